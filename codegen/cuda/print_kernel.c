/* The frame of a kernel: whether a warp or a block takes a row, which rows, the levels of the schedule. */
#include "text.h"

/* A warp needs no barriers for its reductions, and narrow rows would leave most threads of a block without a column.
 * With 8 columns a lane, gradients took up to 250 registers (sm_90, CUDA 13.0), which leaves one block on a
 * multiprocessor. */
enum { MAX_COLUMNS_OF_WARP = ZP_CUDA_WARP * 4 };

static bool is_narrow(const zp_row_program *program) {
  for (int v = 0; v < program->values.len; v++) {
    const zp_row_value *value = &program->values.data[v];
    /* Cosines of a position are shared by the block. */
    if (value->cols > MAX_COLUMNS_OF_WARP || value->op == ZP_ROW_COS || value->op == ZP_ROW_SIN) return false;
  }
  for (int i = 0; i < program->sinks.len; i++)
    if (program->sinks.data[i].cols > MAX_COLUMNS_OF_WARP) return false;
  return true;
}

static void print_thread(zp_cuda_text *t) {
  if (t->warp_a_row)
    zp_buf_line(&t->out, "const int thread = (int)threadIdx.x %% ZPD_WARP, warp = (int)threadIdx.x / ZPD_WARP;");
  else
    zp_buf_line(&t->out, "const int thread = (int)threadIdx.x;");
}

/* All rows in turn; with sums over columns the rows of the block's chunk. */
static void open_rows(zp_cuda_text *t) {
  if (t->program->n_partial == 0) {
    zp_cuda_open(t, t->warp_a_row ? "for (zpd_int row = (zpd_int)blockIdx.x * ZPD_WARPS + warp; row < a.rows; "
                                    "row += (zpd_int)gridDim.x * ZPD_WARPS) {"
                                  : "for (zpd_int row = blockIdx.x; row < a.rows; row += gridDim.x) {");
    return;
  }
  zp_buf_line(&t->out, "const zpd_int chunk = blockIdx.x, end = a.rows * (chunk + 1) / a.chunks;");
  zp_cuda_open(t, t->warp_a_row ? "for (zpd_int row = a.rows * chunk / a.chunks + warp; row < end; row += ZPD_WARPS) {"
                                : "for (zpd_int row = a.rows * chunk / a.chunks; row < end; row++) {");
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
  zp_cuda_name_values(t);
  t->schedule = zp_row_make_schedule(program);
  t->warp_a_row = is_narrow(program) && zp_cuda_warps_hold_sums(t);
  zp_cuda_print_constants(t);
  zp_buf_line(&t->out, "/* %s */", about);
  zp_cuda_open(t, zp_format(t->arena, "ZPD_KERNEL(%s, zpd_rows) {", symbol));
  print_thread(t);
  zp_cuda_print_prepare(t);
  zp_cuda_start_sums(t);
  open_rows(t);
  zp_cuda_print_prepare_row(t);
  print_levels(t);
  zp_cuda_close(t);
  zp_cuda_end_sums(t);
  zp_cuda_close(t);
}
