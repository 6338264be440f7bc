/* Sums over columns: each thread adds up the columns that it owns, in registers where these are few, else in the
 * block's share of partial[], which no other thread touches. Where a warp takes a row, the warps' sums are added in
 * order when the rows are done. */
#include "text.h"

/* Sums of a thread that stay in registers; loops over more columns are not unrolled. */
enum { MAX_SUMS_OF_THREAD = 32, MAX_COLUMNS_OF_THREAD = 8 };
/* The part of 48 KiB static shared memory that the sums of all warps may take. */
enum { MAX_SUMS_BYTES = 32 * 1024 };

/* The columns that are summed: of all sums, and of the longest. */
static int64_t summed_columns(const zp_row_program *program, int64_t *longest) {
  int64_t all = 0;
  *longest = 0;
  for (int i = 0; i < program->sinks.len; i++) {
    const zp_row_sink *sink = &program->sinks.data[i];
    if (sink->kind != ZP_ROW_CSUM) continue;
    all += sink->cols;
    if (sink->cols > *longest) *longest = sink->cols;
  }
  return all;
}

bool zp_cuda_warps_hold_sums(const zp_cuda_text *t) {
  int64_t longest, all = summed_columns(t->program, &longest);
  return all * (ZPD_ROW_THREADS / ZP_CUDA_WARP) * t->real_bytes <= MAX_SUMS_BYTES;
}

/* A warp's sums are few: they fit into shared memory. */
static bool sums_in_memory(const zp_cuda_text *t) {
  int64_t longest, all = summed_columns(t->program, &longest);
  if (t->warp_a_row) return false;
  return zp_cuda_columns(t, all) > MAX_SUMS_OF_THREAD || zp_cuda_columns(t, longest) > MAX_COLUMNS_OF_THREAD;
}

static void start_sum(zp_cuda_text *t, const zp_row_sink *sink) {
  if (!t->sums_in_memory) {
    zp_buf_line(&t->out, "real sum_%s[%lld] = {0};", sink->name, (long long)zp_cuda_columns(t, sink->cols));
    return;
  }
  zp_buf_line(&t->out, "real *sum_%s = (real *)a.partial[%d] + (zpd_int)blockIdx.x * %lld;", sink->name, sink->index,
              (long long)sink->cols);
  zp_cuda_open_columns(t, sink->cols);
  zp_buf_line(&t->out, "sum_%s[c] = 0;", sink->name);
  zp_cuda_close(t);
}

static void add_warps(zp_cuda_text *t, const zp_row_sink *sink) {
  zp_buf_line(&t->out, "__shared__ real warps_%s[ZPD_WARPS][%lld];", sink->name, (long long)sink->cols);
  zp_cuda_open_columns(t, sink->cols);
  zp_buf_line(&t->out, "warps_%s[warp][c] = sum_%s[i];", sink->name, sink->name);
  zp_cuda_close(t);
  zp_buf_line(&t->out, "__syncthreads();");
  zp_cuda_open(t, zp_format(t->arena, "for (int c = (int)threadIdx.x; c < %lld; c += ZPD_ROW_THREADS) {",
                            (long long)sink->cols));
  zp_buf_line(&t->out, "real sum = 0;");
  zp_buf_line(&t->out, "for (int w = 0; w < ZPD_WARPS; w++) sum += warps_%s[w][c];", sink->name);
  zp_buf_line(&t->out, "partial_%s[c] = sum;", sink->name);
  zp_cuda_close(t);
}

static void end_sum(zp_cuda_text *t, const zp_row_sink *sink) {
  if (t->sums_in_memory) return;
  zp_buf_line(&t->out, "real *partial_%s = (real *)a.partial[%d] + (zpd_int)blockIdx.x * %lld;", sink->name,
              sink->index, (long long)sink->cols);
  if (t->warp_a_row) {
    add_warps(t, sink);
    return;
  }
  zp_cuda_open_columns(t, sink->cols);
  zp_buf_line(&t->out, "partial_%s[c] = sum_%s[i];", sink->name, sink->name);
  zp_cuda_close(t);
}

static void each_sum(zp_cuda_text *t, void (*print)(zp_cuda_text *, const zp_row_sink *)) {
  for (int i = 0; i < t->program->sinks.len; i++)
    if (t->program->sinks.data[i].kind == ZP_ROW_CSUM) print(t, &t->program->sinks.data[i]);
}

void zp_cuda_start_sums(zp_cuda_text *t) {
  t->sums_in_memory = sums_in_memory(t);
  each_sum(t, start_sum);
}

void zp_cuda_end_sums(zp_cuda_text *t) { each_sum(t, end_sum); }
