/* The frame of a kernel: who shares a row, which rows, the levels of the schedule. */
#include "text.h"

static void print_thread(zp_cuda_text *t) {
  if (t->sharing == ZP_CUDA_BLOCK)
    zp_buf_line(&t->out, "const int thread = (int)threadIdx.x;");
  else
    zp_buf_line(&t->out, "const int thread = (int)threadIdx.x %% ZPD_WARP, warp = (int)threadIdx.x / ZPD_WARP;");
  if (t->sharing == ZP_CUDA_TILES)
    zp_buf_line(&t->out, "const int %s = ((int)blockIdx.y * ZPD_WARP + thread)%s;", t->vec > 1 ? "first" : "c",
                t->vec > 1 ? " * ZPD_VEC" : "");
}

/* All rows in turn; with sums over columns the rows of the block's chunk. */
static void open_rows(zp_cuda_text *t) {
  bool block = t->sharing == ZP_CUDA_BLOCK;
  if (t->program->n_partial == 0) {
    zp_cuda_open(t, block ? "for (zpd_int row = blockIdx.x; row < a.rows; row += gridDim.x) {"
                          : "for (zpd_int row = (zpd_int)blockIdx.x * ZPD_WARPS + warp; row < a.rows; "
                            "row += (zpd_int)gridDim.x * ZPD_WARPS) {");
    return;
  }
  zp_buf_line(&t->out, "const zpd_int chunk = blockIdx.x, end = a.rows * (chunk + 1) / a.chunks;");
  zp_cuda_open(t, block ? "for (zpd_int row = a.rows * chunk / a.chunks; row < end; row++) {"
                        : "for (zpd_int row = a.rows * chunk / a.chunks + warp; row < end; row += ZPD_WARPS) {");
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
  zp_cuda_choose_sharing(t);
  zp_cuda_choose_held(t);
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
