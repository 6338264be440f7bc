/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of Megatron-LM as fields of Megatron-Bridge: by the table, and the few that need more than a name. */
#include "bridge.h"

#include <zplan/quote.h>

#include <assert.h>
#include <stdlib.h>

static const struct {
  zp_megatron_flag flag;
  zp_bridge_part part;
  const char *field, *text;
} rows[] = {
#define BRIDGE_FIELD(flag, part, field, text) {ZP_MEGATRON_##flag, ZP_BRIDGE_##part, field, text},
#include "bridge.def"
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const struct {
  zp_bridge_part part;
  const char *field, *text;
} defaults[] = {
#define BRIDGE_DEFAULT(part, field, text) {ZP_BRIDGE_##part, field, text},
#include "bridge.def"
};
enum { N_DEFAULTS = sizeof defaults / sizeof *defaults };

static zp_bridge_field *find(zp_bridge *b, zp_bridge_part part, const char *name) {
  for (int i = 0; i < b->fields[part].len; i++)
    if (strcmp(b->fields[part].data[i].name, name) == 0) return &b->fields[part].data[i];
  return NULL;
}

static void set(zp_bridge *b, zp_bridge_part part, const char *name, const char *text) {
  zp_bridge_field *there = find(b, part, name), field = {.name = name, .text = text};
  if (there)
    there->text = text;
  else
    zp_push(b->m->e->arena, &b->fields[part], field);
}

/* Words with blanks between them as a list of Python. */
static const char *list_of(zp_arena *arena, const char *words) {
  zp_buf out = zp_buf_new(arena);
  for (const char *p = words; *p; p += strspn(p, " ")) {
    size_t n = strcspn(p, " ");
    zp_buf_printf(&out, "%s\"%.*s\"", out.len ? ", " : "", (int)n, p);
    p += n;
  }
  return zp_format(arena, "[%s]", out.data);
}

/* A string of JSON is one of Python. */
static const char *text_of(zp_arena *arena, const zp_megatron_argument *a, const char *text) {
  if (text && strcmp(text, "[]") == 0) return list_of(arena, a->value);
  if (text) return text;
  return a->number ? a->value : zp_quote_json(arena, a->value);
}

static void set_argument(zp_bridge *b, const zp_megatron_argument *a) {
  bool known = false;
  for (int i = 0; i < N_ROWS; i++) {
    if (rows[i].flag != a->flag) continue;
    known = true;
    if (rows[i].field) set(b, rows[i].part, rows[i].field, text_of(b->m->e->arena, a, rows[i].text));
  }
  assert(known);
}

static int64_t whole(const zp_megatron *m, zp_megatron_flag flag) {
  const zp_megatron_argument *a = zp_megatron_find(m, flag);
  assert(a && a->number);
  return strtoll(a->value, NULL, 10);
}

/* Rows of the tables. Megatron-Bridge pads for no model that says its vocabulary (training/setup.py), so that what it
 * says is padded as Megatron-LM does. A tokenizer with fewer tokens is fine there. */
static void set_vocabulary(zp_bridge *b) {
  const zp_megatron *m = b->m;
  int64_t tokens = whole(m, ZP_MEGATRON_VOCABULARY);
  int64_t step = whole(m, ZP_MEGATRON_VOCABULARY_MULTIPLE) * m->e->choice->tensor;
  set(b, ZP_BRIDGE_MODEL, "vocab_size", zp_format(m->e->arena, "%lld", (long long)((tokens + step - 1) / step * step)));
  if (zp_megatron_find(m, ZP_MEGATRON_MOCK_DATA))
    set(b, ZP_BRIDGE_TOKENIZER, "vocab_size", zp_format(m->e->arena, "%lld", (long long)tokens));
}

/* A learned table has as many rows as a sample has positions there (models/gpt_provider.py). */
static void check_positions(const zp_megatron *m) {
  int64_t table = whole(m, ZP_MEGATRON_MAX_POSITIONS), sequence = whole(m, ZP_MEGATRON_SEQ_LENGTH);
  if (!m->gpt->rope && table != sequence)
    zp_export_refuse(m->e, "as many positions as a sample has, or zplan export megatron",
                     "a table of %lld positions for samples of %lld: Megatron-Bridge makes one of %lld",
                     (long long)table, (long long)sequence, (long long)sequence);
}

/* As Megatron-LM sets them where a rank has several chunks (training/arguments.py). */
static void set_chunks(zp_bridge *b) {
  const zp_choice *c = b->m->e->choice;
  if (c->chunks <= 1) return;
  set(b, ZP_BRIDGE_MODEL, "virtual_pipeline_model_parallel_size", zp_format(b->m->e->arena, "%d", c->chunks));
  set(b, ZP_BRIDGE_MODEL, "overlap_p2p_comm", "True");
  set(b, ZP_BRIDGE_MODEL, "batch_p2p_comm", "False");
}

/* One kernel of Transformer Engine, which Megatron-LM takes unless it is not there. */
static void set_rope(zp_bridge *b) {
  const zp_megatron *m = b->m;
  if (m->gpt->rope && !m->gpt->rope_interleaved && !zp_megatron_find(m, ZP_MEGATRON_IMPLEMENTATION))
    set(b, ZP_BRIDGE_MODEL, "apply_rope_fusion", "True");
}

/* DeepEP is refused on GB200 and GB300, where HybridEP does the same (training/flex_dispatcher_backend.py). */
static void set_dispatcher(zp_bridge *b) {
  zp_exporter *e = b->m->e;
  const char *device = e->spec->cluster.node.device.name;
  if (!zp_megatron_find(b->m, ZP_MEGATRON_DISPATCHER_BACKEND) || strncmp(device, "gb", 2) != 0) return;
  set(b, ZP_BRIDGE_MODEL, "moe_flex_dispatcher_backend", "\"hybridep\"");
  zp_export_note(e, "tokens go to experts by HybridEP: Megatron-Bridge refuses DeepEP on %s", device);
}

void zp_bridge_fill(zp_bridge *b) {
  for (int i = 0; i < b->m->arguments.len; i++)
    if (!b->m->arguments.data[i].title) set_argument(b, &b->m->arguments.data[i]);
  check_positions(b->m);
  set_vocabulary(b);
  set_chunks(b);
  set_rope(b);
  set_dispatcher(b);
  for (int i = 0; i < N_DEFAULTS; i++)
    if (!find(b, defaults[i].part, defaults[i].field)) set(b, defaults[i].part, defaults[i].field, defaults[i].text);
}
