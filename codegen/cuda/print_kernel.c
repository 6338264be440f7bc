/* The frame of a kernel: the rows of a block, the levels of the schedule, sums over columns.
 *
 * Sums over columns belong to the threads that own the columns: registers where a thread has few of them, else the
 * block's share of partial[], which no other thread touches. */
#include "text.h"

/* Column sums of a thread that stay in registers; loops over more columns are not unrolled. */
enum { MAX_SUMS_OF_THREAD = 32, MAX_COLUMNS_OF_THREAD = 8 };

static bool has_sums(const zp_row_program *program) { return program->n_partial > 0; }

static bool too_many_sums(const zp_row_program *program) {
  int64_t sums = 0, longest = 0;
  for (int i = 0; i < program->sinks.len; i++) {
    const zp_row_sink *sink = &program->sinks.data[i];
    if (sink->kind != ZP_ROW_CSUM) continue;
    int64_t columns = zp_cuda_columns(sink->cols);
    sums += columns;
    if (columns > longest) longest = columns;
  }
  return sums > MAX_SUMS_OF_THREAD || longest > MAX_COLUMNS_OF_THREAD;
}

static void start_sum(zp_cuda_text *t, const zp_row_sink *sink) {
  const char *share =
      zp_format(t->arena, "(real *)a.partial[%d] + (zpd_int)blockIdx.x * %lld", sink->index, (long long)sink->cols);
  if (!t->sums_in_memory) {
    zp_buf_line(&t->out, "real sum%d[%lld] = {0};", sink->index, (long long)zp_cuda_columns(sink->cols));
    return;
  }
  zp_buf_line(&t->out, "real *sum%d = %s;", sink->index, share);
  zp_cuda_open_columns(t, sink->cols);
  zp_buf_line(&t->out, "sum%d[c] = 0;", sink->index);
  zp_cuda_close(t);
}

static void end_sum(zp_cuda_text *t, const zp_row_sink *sink) {
  if (t->sums_in_memory) return;
  zp_buf_line(&t->out, "real *partial%d = (real *)a.partial[%d] + (zpd_int)blockIdx.x * %lld;", sink->index,
              sink->index, (long long)sink->cols);
  zp_cuda_open_columns(t, sink->cols);
  zp_buf_line(&t->out, "partial%d[c] = sum%d[i];", sink->index, sink->index);
  zp_cuda_close(t);
}

static void each_sum(zp_cuda_text *t, void (*print)(zp_cuda_text *, const zp_row_sink *)) {
  for (int i = 0; i < t->program->sinks.len; i++)
    if (t->program->sinks.data[i].kind == ZP_ROW_CSUM) print(t, &t->program->sinks.data[i]);
}

static void open_rows(zp_cuda_text *t) {
  if (!has_sums(t->program)) {
    zp_cuda_open(t, "for (zpd_int row = blockIdx.x; row < a.rows; row += gridDim.x) {");
    return;
  }
  zp_buf_line(&t->out, "const zpd_int chunk = blockIdx.x, end = a.rows * (chunk + 1) / a.chunks;");
  zp_cuda_open(t, "for (zpd_int row = a.rows * chunk / a.chunks; row < end; row++) {");
}

static void print_levels(zp_cuda_text *t) {
  for (int level = 0; level < t->schedule.n_levels; level++) {
    const zp_ints *scalars = &t->schedule.scalars[level];
    for (int i = 0; i < scalars->len; i++) zp_cuda_print_value(t, scalars->data[i]);
    for (int i = 0; i < t->schedule.passes.len; i++)
      if (t->schedule.passes.data[i].level == level) zp_cuda_print_pass(t, &t->schedule.passes.data[i]);
  }
}

void zp_cuda_print_kernel(zp_cuda_text *t, const zp_row_program *program, const char *symbol, const char *about) {
  t->program = program;
  t->schedule = zp_row_make_schedule(program);
  t->sums_in_memory = too_many_sums(program);
  zp_cuda_print_constants(t);
  zp_buf_line(&t->out, "/* %s */", about);
  zp_cuda_open(t, zp_format(t->arena, "ZPD_KERNEL(%s, zpd_rows) {", symbol));
  zp_buf_line(&t->out, "const int thread = (int)threadIdx.x;");
  zp_cuda_print_prepare(t);
  each_sum(t, start_sum);
  open_rows(t);
  zp_cuda_print_prepare_row(t);
  print_levels(t);
  zp_cuda_close(t);
  each_sum(t, end_sum);
  zp_cuda_close(t);
}
