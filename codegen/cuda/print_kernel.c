/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a kernel: who shares a row, which rows, the levels of the schedule. */
#include "text.h"

#include <zplan/quote.h>

/* Blocks of a multiprocessor that kernels with tiles leave registers for: a thread needs few, and memory many
 * threads. */
enum { TILE_BLOCKS = 3 };

static void print_thread(zp_cuda_text *t) {
  if (t->sharing == ZP_CUDA_BLOCK)
    zp_buf_line(&t->out, "const int thread = (int)threadIdx.x;");
  else
    zp_buf_line(&t->out, "const int thread = (int)threadIdx.x %% ZPD_WARP, warp = (int)threadIdx.x / ZPD_WARP;");
  if (t->sharing == ZP_CUDA_TILES)
    zp_buf_line(&t->out, "const int %s = ((int)blockIdx.y * ZPD_WARP + thread)%s;", t->vec > 1 ? "first" : "c",
                t->vec > 1 ? " * ZPD_VEC" : "");
}

/* From a row to the next one of the same threads, and where rows end: with sums over columns those of the block's
 * chunk. */
static const char *row_step(const zp_cuda_text *t) {
  bool block = t->sharing == ZP_CUDA_BLOCK;
  if (t->program->n_partial > 0) return block ? "1" : "ZPD_WARPS";
  return block ? "gridDim.x" : "(zpd_int)gridDim.x * ZPD_WARPS";
}
static const char *rows_end(const zp_cuda_text *t) { return t->program->n_partial > 0 ? "end" : "a.rows"; }

/* All rows from the first one on in turn; with sums over columns the rows of the block's chunk. */
static void open_rows(zp_cuda_text *t) {
  bool block = t->sharing == ZP_CUDA_BLOCK, sums = t->program->n_partial > 0;
  const char *end = rows_end(t);
  const char *first = sums    ? block ? "a.rows * chunk / a.chunks" : "a.rows * chunk / a.chunks + warp"
                      : block ? "a.first + blockIdx.x"
                              : "a.first + (zpd_int)blockIdx.x * ZPD_WARPS + warp";
  if (sums) zp_buf_line(&t->out, "const zpd_int chunk = blockIdx.x, end = a.rows * (chunk + 1) / a.chunks;");
  if (!t->ahead) {
    zp_cuda_open(t, zp_format(t->arena, "for (zpd_int row = %s; row < %s; row += %s) {", first, end, row_step(t)));
    return;
  }
  zp_buf_line(&t->out, "zpd_int ahead = %s; /* the row that is read ahead */", first);
  zp_cuda_open(t, zp_format(t->arena, "if (ahead < %s) {", end));
  zp_cuda_print_whole(t, "next", "ahead");
  zp_cuda_close(t);
  zp_cuda_open(t, zp_format(t->arena, "while (ahead < %s) {", end));
  zp_buf_line(&t->out, "const zpd_int row = ahead;");
  zp_buf_line(&t->out, "(void)row;");
}

/* What was read ahead has left for `held`, and the next row is asked for; or this row is. */
static void read_row(zp_cuda_text *t) {
  if (!t->ahead) {
    zp_cuda_print_whole(t, "held", "row");
    return;
  }
  zp_buf_line(&t->out, "ahead += %s;", row_step(t));
  zp_cuda_open(t, zp_format(t->arena, "if (ahead < %s) {", rows_end(t)));
  zp_cuda_print_whole(t, "next", "ahead");
  zp_cuda_close(t);
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
  zp_buf_line(&t->out, "/* %s */", zp_quote_c_comment(t->arena, about));
  if (t->sharing == ZP_CUDA_TILES)
    zp_cuda_open(t, zp_format(t->arena, "ZPD_KERNEL_OF(ZPD_ROW_THREADS, %d, %s, zpd_rows) {", TILE_BLOCKS, symbol));
  else
    zp_cuda_open(t, zp_format(t->arena, "ZPD_KERNEL(%s, zpd_rows) {", symbol));
  print_thread(t);
  zp_cuda_print_prepare(t);
  zp_cuda_start_sums(t);
  open_rows(t);
  zp_cuda_print_prepare_row(t);
  read_row(t);
  print_levels(t);
  zp_cuda_close(t);
  zp_cuda_end_sums(t);
  zp_cuda_close(t);
}
