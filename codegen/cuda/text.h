/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that print row programs as CUDA C.
 *
 * A kernel is a loop over rows. Who shares a row is up to its program (zp_cuda_sharing). A thread owns packs of
 * columns: 16 bytes of operands, which it moves at once, or single columns where the number of columns is no multiple.
 * Pack i of thread t begins at column `first`, (t + i * threads) packs along; its k-th column is `c`. Values per row
 * are computed by every thread, values per column by the owner of the column, again in every pass that needs them; what
 * is read of the row stays in registers from pass to pass. Reductions end a pass and are sums over the threads of the
 * row. */
#ifndef ZPLAN_CUDA_TEXT_H
#define ZPLAN_CUDA_TEXT_H

#include <zplan/buf.h>
#include <zplan/decimal.h>
#include <zplan/zpd.h>
#include "rowprog.h"

/* Frequencies of rotary pairs, a constant array of the text: zpd_frequency_head32_theta10000. */
typedef struct zp_cuda_rotary {
  double theta;
  int64_t head;
} zp_cuda_rotary;

/* Rows without reductions need not be whole: a warp takes a tile of columns, a pack a lane, and the tiles of a row are
 * the second dimension of the grid. Else a warp takes a row, without barriers, or a block does. */
typedef enum zp_cuda_sharing { ZP_CUDA_TILES, ZP_CUDA_WARPS, ZP_CUDA_BLOCK } zp_cuda_sharing;

typedef struct zp_cuda_text {
  zp_arena *arena; /* borrowed */
  zp_buf out;
  int real_bytes, elem_bytes; /* of what is computed with, and of operands */
  ZP_VEC(zp_cuda_rotary) rotaries;
  /* of the current kernel */
  const zp_row_program *program;
  zp_row_schedule schedule;
  bool *inlined;   /* [values]: written where its one reader needs it, without a statement */
  bool *explained; /* [values]: said already what it is */
  zp_cuda_sharing sharing;
  int vec;                 /* columns of a pack */
  bool sums_in_memory;     /* column sums grow in partial[], not in registers */
  bool *held;              /* [inputs]: the row's packs stay in registers */
  bool *whole;             /* [inputs]: held, and read as a whole before the row's first pass */
  bool ahead;              /* those are read while the row before is computed */
  const zp_row_pass *pass; /* the one that is printed */
} zp_cuda_text;

enum { ZP_CUDA_WARP = 32 };

/* Threads that share a row, or a tile of it. */
static inline int zp_cuda_threads(const zp_cuda_text *t) {
  return t->sharing == ZP_CUDA_BLOCK ? ZPD_ROW_THREADS : ZP_CUDA_WARP;
}
/* Packs of a thread, at most; and its columns. */
static inline int64_t zp_cuda_packs(const zp_cuda_text *t, int64_t cols) {
  int64_t once = (int64_t)zp_cuda_threads(t) * t->vec;
  return t->sharing == ZP_CUDA_TILES ? 1 : (cols + once - 1) / once;
}
static inline int64_t zp_cuda_columns(const zp_cuda_text *t, int64_t cols) { return zp_cuda_packs(t, cols) * t->vec; }

/* ---- sharing.c ---- */
/* Sets sharing, vec and sums_in_memory for the program. */
void zp_cuda_choose_sharing(zp_cuda_text *t);
/* The longest of all values and sinks. */
int64_t zp_cuda_longest(const zp_row_program *program);
/* The number of tiles of a row; 0: a row is not cut. */
int zp_cuda_tiles(const zp_cuda_text *t);
/* Sets held, whole and ahead. */
void zp_cuda_choose_held(zp_cuda_text *t);

/* ---- names.c ---- */
/* Decides which values of the program get statements. */
void zp_cuda_name_values(zp_cuda_text *t);
/* A comment that says what v is, to stand after its first statement; "" later on. */
const char *zp_cuda_explain(zp_cuda_text *t, int v);

/* ---- print_value.c ---- */
/* The expression for value v where c is its column: a name, the number of an IMM, or a formula; the second: for an
 * operand of something else, formulas in parentheses. */
const char *zp_cuda_expression(zp_cuda_text *t, int v);
const char *zp_cuda_operand(zp_cuda_text *t, int v);
/* "const real centered = x - mean;" Nothing for an IMM. */
void zp_cuda_print_value(zp_cuda_text *t, int v);
/* The column at which a leaf is read for column c: c, or the other one of its pair. */
const char *zp_cuda_column_of(zp_cuda_text *t, const zp_row_value *leaf);
/* What its arrays are called after "cos_" and "sin_": "head32_theta10000"; frequencies are printed when they are
 * new. */
const char *zp_cuda_rotary_of(zp_cuda_text *t, const zp_row_value *v);
/* Whether cosines and sines of a row fit into shared memory; else each column computes its own. */
bool zp_cuda_shares_rotary(const zp_cuda_text *t, const zp_row_value *v);

/* ---- print_leaves.c: what is prepared before the passes of a row ---- */
void zp_cuda_print_constants(zp_cuda_text *t); /* before the kernel: arrays of the text */
void zp_cuda_print_prepare(zp_cuda_text *t);   /* before the loop over rows */
void zp_cuda_print_prepare_row(zp_cuda_text *t);
/* Reads all inputs that are read as a whole, of row `row`, to held_x or next_x. */
void zp_cuda_print_whole(zp_cuda_text *t, const char *to, const char *row);
/* In the loop over packs: what the pass reads of operands, but for what an earlier pass holds. */
void zp_cuda_print_loads(zp_cuda_text *t, const zp_row_pass *pass);
/* The name of the pack that a leaf is in. */
const char *zp_cuda_pack_of(zp_cuda_text *t, const zp_row_value *leaf);

/* ---- print_pass.c ---- */
/* Opens the loop over the packs of a thread, and in it that over a pack's columns; each is closed by its own
 * function. */
void zp_cuda_open_packs(zp_cuda_text *t, int64_t cols);
void zp_cuda_close_packs(zp_cuda_text *t);
void zp_cuda_open_columns(zp_cuda_text *t);
void zp_cuda_close_columns(zp_cuda_text *t);
/* The number of the column among those of its thread. */
const char *zp_cuda_slot(const zp_cuda_text *t, int64_t cols);
void zp_cuda_print_pass(zp_cuda_text *t, const zp_row_pass *pass);
void zp_cuda_open(zp_cuda_text *t, const char *line);
void zp_cuda_close(zp_cuda_text *t);

/* ---- print_sums.c: sums over columns ---- */
void zp_cuda_start_sums(zp_cuda_text *t); /* before the loop over rows */
void zp_cuda_end_sums(zp_cuda_text *t);   /* after it */

/* ---- print_kernel.c ---- */
void zp_cuda_print_kernel(zp_cuda_text *t, const zp_row_program *program, const char *symbol, const char *about);

#endif
