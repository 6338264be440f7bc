/* SPDX-License-Identifier: Apache-2.0 */
/* One pass: the loop over the packs of a thread that reads what the pass needs, computes its values column by column,
 * adds up its reductions and writes its sinks; then the reductions over the threads of the row. */
#include "text.h"

/* Loops this short are unrolled whole, so that arrays indexed by i are registers. */
enum { MAX_UNROLLED = 8 };

void zp_cuda_open(zp_cuda_text *t, const char *line) {
  zp_buf_line(&t->out, "%s", line);
  t->out.indent++;
}

void zp_cuda_close(zp_cuda_text *t) {
  t->out.indent--;
  zp_buf_line(&t->out, "}");
}

/* ---- columns ---- */

/* Where rows are cut into tiles, `first`, or `c`, is known already. */
void zp_cuda_open_packs(zp_cuda_text *t, int64_t cols) {
  int64_t count = zp_cuda_packs(t, cols), once = (int64_t)zp_cuda_threads(t) * t->vec;
  const char *column = t->vec > 1 ? "first" : "c";
  if (t->sharing == ZP_CUDA_TILES) {
    bool whole = cols % once == 0 && cols == zp_cuda_longest(t->program);
    zp_cuda_open(t, whole ? "{" : zp_format(t->arena, "if (%s < %lld) {", column, (long long)cols));
    return;
  }
  if (count > 1) zp_buf_line(&t->out, count <= MAX_UNROLLED ? "#pragma unroll" : "#pragma unroll 2");
  zp_cuda_open(t, zp_format(t->arena, "for (int i = 0; i < %lld; i++) {", (long long)count));
  const char *threads = t->sharing == ZP_CUDA_BLOCK ? "ZPD_ROW_THREADS" : "ZPD_WARP";
  zp_buf_line(&t->out, t->vec > 1 ? "const int first = (thread + i * %s) * ZPD_VEC;" : "const int c = thread + i * %s;",
              threads);
  if (cols % once) zp_buf_line(&t->out, "if (%s >= %lld) break;", column, (long long)cols);
}

void zp_cuda_close_packs(zp_cuda_text *t) { zp_cuda_close(t); }

void zp_cuda_open_columns(zp_cuda_text *t) {
  if (t->vec == 1) return;
  zp_cuda_open(t, "ZPD_EACH (k, ZPD_VEC) {");
  zp_buf_line(&t->out, "const int c = first + k;");
  zp_buf_line(&t->out, "(void)c;");
}

void zp_cuda_close_columns(zp_cuda_text *t) {
  if (t->vec > 1) zp_cuda_close(t);
}

const char *zp_cuda_slot(const zp_cuda_text *t, int64_t cols) {
  bool one_pack = zp_cuda_packs(t, cols) == 1;
  if (t->vec == 1) return t->sharing == ZP_CUDA_TILES ? "0" : "i";
  return t->sharing == ZP_CUDA_TILES || one_pack ? "k" : "i * ZPD_VEC + k";
}

/* ---- reductions and sinks ---- */

static void start_reduction(zp_cuda_text *t, int v) {
  bool sum = t->program->values.data[v].op == ZP_ROW_RSUM;
  zp_buf_line(&t->out, "real %s = %s;%s", zp_cuda_operand(t, v), sum ? "0" : "-zpd_infinity()", zp_cuda_explain(t, v));
}

/* As in the other targets, the largest of numbers: NaN is never larger. */
static void add_to_reduction(zp_cuda_text *t, int v) {
  const zp_row_value *value = &t->program->values.data[v];
  const char *x = zp_cuda_expression(t, value->arg[0]), *so_far = zp_cuda_operand(t, v);
  if (value->op == ZP_ROW_RSUM)
    zp_buf_line(&t->out, "%s += %s;", so_far, x);
  else
    zp_buf_line(&t->out, "%s = %s > %s ? %s : %s;", so_far, x, so_far, x, so_far);
}

static void end_reduction(zp_cuda_text *t, int v) {
  bool sum = t->program->values.data[v].op == ZP_ROW_RSUM;
  const char *name = zp_cuda_operand(t, v);
  zp_buf_line(&t->out, "%s = zpd_%s_%s(%s);", name, t->sharing == ZP_CUDA_BLOCK ? "block" : "warp", sum ? "sum" : "max",
              name);
}

static const zp_row_sink *sink_of(const zp_cuda_text *t, int i) {
  return &t->program->sinks.data[t->pass->sinks.data[i]];
}

static void write_sink(zp_cuda_text *t, const zp_row_sink *sink) {
  const char *x = zp_cuda_expression(t, sink->value);
  if (sink->kind == ZP_ROW_STORE)
    zp_buf_line(&t->out, t->vec > 1 ? "result_%s[k] = %s;" : "out_%s[c] = %s;", sink->name, x);
  else if (t->sums_in_memory)
    zp_buf_line(&t->out, "sum_%s[c] += %s;", sink->name, x);
  else
    zp_buf_line(&t->out, "sum_%s[%s] += %s;", sink->name, zp_cuda_slot(t, sink->cols), x);
}

static void open_results(zp_cuda_text *t) {
  for (int i = 0; i < t->pass->sinks.len && t->vec > 1; i++)
    if (sink_of(t, i)->kind == ZP_ROW_STORE) zp_buf_line(&t->out, "real result_%s[ZPD_VEC];", sink_of(t, i)->name);
}

static void store_results(zp_cuda_text *t) {
  for (int i = 0; i < t->pass->sinks.len && t->vec > 1; i++)
    if (sink_of(t, i)->kind == ZP_ROW_STORE)
      zp_buf_line(&t->out, "zpd_raw_store(out_%s + first, zpd_raw_of(result_%s), ZPD_VEC, packs);", sink_of(t, i)->name,
                  sink_of(t, i)->name);
}

void zp_cuda_print_pass(zp_cuda_text *t, const zp_row_pass *pass) {
  t->pass = pass;
  for (int i = 0; i < pass->reductions.len; i++) start_reduction(t, pass->reductions.data[i]);
  zp_cuda_open_packs(t, pass->cols);
  zp_cuda_print_loads(t, pass);
  open_results(t);
  zp_cuda_open_columns(t);
  for (int i = 0; i < pass->values.len; i++) zp_cuda_print_value(t, pass->values.data[i]);
  for (int i = 0; i < pass->reductions.len; i++) add_to_reduction(t, pass->reductions.data[i]);
  for (int i = 0; i < pass->sinks.len; i++) write_sink(t, sink_of(t, i));
  zp_cuda_close_columns(t);
  store_results(t);
  zp_cuda_close_packs(t);
  for (int i = 0; i < pass->reductions.len; i++) end_reduction(t, pass->reductions.data[i]);
}
