/* SPDX-License-Identifier: Apache-2.0 */
/* One table of columns for each kind of table says where every cell goes. Our own has the text of the reference. */
#include <assert.h>
#include <stddef.h>
#include <zplan/buf.h>
#include "columns.h"

#define AT(field) offsetof(zp_measured, field)
#define TEXT(title, field, holds)                                                                                      \
  { title, CELL_TEXT, AT(field), 0, 0, false, false, false, holds }
#define INT(title, field, most, holds)                                                                                 \
  { title, CELL_INT, AT(field), 0, most, false, false, false, holds }
#define COUNT(title, field, most, holds)                                                                               \
  { title, CELL_COUNT, AT(field), 0, most, false, false, false, holds }
#define COUNT_OR_0(title, field, most, holds)                                                                          \
  { title, CELL_COUNT, AT(field), 0, most, true, false, false, holds }
#define REAL(title, field, scale, most, holds)                                                                         \
  { title, CELL_REAL, AT(field), scale, most, false, false, false, holds }
#define BOOL(title, field, holds)                                                                                      \
  { title, CELL_BOOL, AT(field), 0, 1, true, false, false, holds }
#define UNUSED(title)                                                                                                  \
  { title, CELL_UNUSED, 0, 0, 0, false, false, false, NULL }

/* clang-format off */
static const column own[] = {
#include "columns.def"
};

#define NEEDED(title, kind, field, scale, most) {title, kind, AT(field), scale, most, false, true, false, NULL}
static const column vtrain[] = {
    UNUSED("Parameters (billion)"),
    NEEDED("# GPUs", CELL_INT, gpus, 0, 1e6),
    NEEDED("global batch", CELL_COUNT, batch, 0, 1e8),
    NEEDED("micro batch", CELL_COUNT, microbatch, 0, 1e4),
    NEEDED("hidden size", CELL_COUNT, shape.hidden, 0, 1e6),
    NEEDED("attention heads", CELL_COUNT, shape.heads, 0, 1e6),
    NEEDED("# layers", CELL_COUNT, shape.layers, 0, 1e5),
    NEEDED("sequence length", CELL_COUNT, seq, 0, 1e7),
    NEEDED("tensor parallelism", CELL_INT, tensor, 0, 1e6),
    NEEDED("data parallelism", CELL_INT, data, 0, 1e6),
    NEEDED("pipeline parallelism", CELL_INT, pipeline, 0, 1e6),
    NEEDED("iteration time (ms)", CELL_REAL, step_s, 1e-3, 1e10),
};

/* NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md. */
static const column bridge[] = {
    UNUSED("source_file"), TEXT("release", version, NULL), TEXT("kind", notes, NULL),
    NEEDED("model", CELL_TEXT, model, 0, 0), NEEDED("system", CELL_TEXT, gpu, 0, 0),
    NEEDED("gpus", CELL_INT, gpus, 0, 1e6), TEXT("precision", precision, NULL),
    NEEDED("gbs", CELL_COUNT, batch, 0, 1e8), NEEDED("mbs", CELL_COUNT, microbatch, 0, 1e4),
    NEEDED("seq", CELL_COUNT, seq, 0, 1e7),
    {"fsdp", CELL_INT, AT(shard), 0, 1e6, true, false, false, NULL},
    INT("tp", tensor, 1e6, NULL), INT("pp", pipeline, 1e6, NULL), INT("cp", context, 1e6, NULL),
    INT("vp", chunks, 1e5, NULL), INT("ep", expert, 1e6, NULL), UNUSED("ga"),
    NEEDED("tok_s_gpu", CELL_REAL, tokens_per_s, 1, 1e9), UNUSED("tflops_gpu"),
};

/* NVIDIA-NeMo/Automodel, docs/performance-summary.mdx. */
static const column automodel[] = {
    NEEDED("section", CELL_TEXT, notes, 0, 0), NEEDED("Model", CELL_TEXT, model, 0, 0),
    NEEDED("#GPUs", CELL_INT, gpus, 0, 1e6), NEEDED("GBS", CELL_COUNT, batch, 0, 1e8),
    NEEDED("MBS", CELL_COUNT, microbatch, 0, 1e4), UNUSED("LBS"), INT("GA", flushes, 1e6, NULL),
    NEEDED("Seq Length", CELL_COUNT, seq, 0, 1e7), INT("TP", tensor, 1e6, NULL), INT("PP", pipeline, 1e6, NULL),
    INT("CP", context, 1e6, NULL), INT("EP", expert, 1e6, NULL), INT("VP", chunks, 1e5, NULL),
    INT("FSDP", shard, 1e6, NULL), TEXT("Kernel Optimizations", kernels, NULL),
    NEEDED("Time per Global Step (s)", CELL_REAL, step_s, 1, 1e7), UNUSED("Model TFLOPs/sec/GPU"),
    UNUSED("Tokens/sec/GPU"),
};

/* MooreThreads/SimuMax, docs/b200: runs of Megatron-Core on one node, alongside that simulator's predictions. */
static const column simumax[] = {
    NEEDED("case", CELL_TEXT, id, 0, 0), NEEDED("model", CELL_TEXT, model, 0, 0),
    NEEDED("layers", CELL_COUNT, shape.layers, 0, 1e5), NEEDED("tp", CELL_INT, tensor, 0, 1e6),
    NEEDED("pp", CELL_INT, pipeline, 0, 1e6), NEEDED("dp", CELL_INT, data, 0, 1e6),
    NEEDED("ep", CELL_INT, expert, 0, 1e6), NEEDED("cp", CELL_INT, context, 0, 1e6),
    NEEDED("seq", CELL_COUNT, seq, 0, 1e7), NEEDED("microbatches", CELL_COUNT, batch, 0, 1e8),
    NEEDED("real_ms", CELL_REAL, step_s, 1e-3, 1e10), UNUSED("simumax_ms"),
    REAL("real_alloc_gib", memory_bytes, 1073741824.0, 4e5, NULL), UNUSED("real_reserved_gib"),
    UNUSED("simumax_alloc_gib"),
};

#define COLUMNS(array) (array), (int)(sizeof(array) / sizeof *(array))
const table_kind zp_table_kinds[] = {
    {COLUMNS(vtrain), false, zp_fill_vtrain},
    {COLUMNS(bridge), true, zp_fill_bridge},
    {COLUMNS(automodel), true, zp_fill_automodel},
    {COLUMNS(simumax), true, zp_fill_simumax},
    {COLUMNS(own), false, NULL},
};
/* clang-format on */
static_assert(sizeof zp_table_kinds / sizeof *zp_table_kinds == ZP_TABLE_KINDS, "our own table is the last");

int zp_run_column_count(void) { return sizeof own / sizeof *own; }

zp_run_column zp_run_column_at(zp_arena *arena, int index) {
  static const char *const types[] = {
      [CELL_TEXT] = "text",   [CELL_INT] = "whole number", [CELL_COUNT] = "whole number",
      [CELL_REAL] = "number", [CELL_BOOL] = "0 or 1",
  };
  assert(index >= 0 && index < zp_run_column_count());
  const column *c = &own[index];
  bool whole = c->kind == CELL_INT || c->kind == CELL_COUNT;
  const char *range =
      c->kind == CELL_TEXT || c->kind == CELL_BOOL
          ? ""
          : zp_format(arena, "%s, at most %.0f", whole ? (c->zero_ok ? "0 or more" : "1 or more") : "above 0", c->most);
  return (zp_run_column){c->title, types[c->kind], range, c->holds, c->required};
}
