/* One pass: the loop over the columns of a thread that computes the pass's values, adds up its reductions and writes
 * its sinks; then the reductions over the threads of the row. */
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

void zp_cuda_open_columns(zp_cuda_text *t, int64_t cols) {
  int64_t count = zp_cuda_columns(t, cols);
  if (count > 1) zp_buf_line(&t->out, count <= MAX_UNROLLED ? "#pragma unroll" : "#pragma unroll 4");
  zp_cuda_open(t, zp_format(t->arena, "for (int i = 0; i < %lld; i++) {", (long long)count));
  zp_buf_line(&t->out, "const int c = thread + i * %s;", t->warp_a_row ? "ZPD_WARP" : "ZPD_ROW_THREADS");
  if (cols % zp_cuda_threads(t)) zp_buf_line(&t->out, "if (c >= %lld) break;", (long long)cols);
}

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
  zp_buf_line(&t->out, "%s = zpd_%s_%s(%s);", name, t->warp_a_row ? "warp" : "block", sum ? "sum" : "max", name);
}

static void write_sink(zp_cuda_text *t, const zp_row_sink *sink) {
  const char *x = zp_cuda_expression(t, sink->value);
  if (sink->kind == ZP_ROW_STORE)
    zp_buf_line(&t->out, "out_%s[c] = %s;", sink->name, x);
  else
    zp_buf_line(&t->out, t->sums_in_memory ? "sum_%s[c] += %s;" : "sum_%s[i] += %s;", sink->name, x);
}

void zp_cuda_print_pass(zp_cuda_text *t, const zp_row_pass *pass) {
  for (int i = 0; i < pass->reductions.len; i++) start_reduction(t, pass->reductions.data[i]);
  zp_cuda_open_columns(t, pass->cols);
  for (int i = 0; i < pass->values.len; i++) zp_cuda_print_value(t, pass->values.data[i]);
  for (int i = 0; i < pass->reductions.len; i++) add_to_reduction(t, pass->reductions.data[i]);
  for (int i = 0; i < pass->sinks.len; i++) write_sink(t, &t->program->sinks.data[pass->sinks.data[i]]);
  zp_cuda_close(t);
  for (int i = 0; i < pass->reductions.len; i++) end_reduction(t, pass->reductions.data[i]);
}
