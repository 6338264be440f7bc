/* Shared by the files that print row programs as CUDA C.
 *
 * A kernel is a loop over rows; a block takes one row at a time, or, where rows are narrow, each of its warps. Thread t
 * of those that share a row owns the columns t, t + their number, ...: its `i`-th column is `c`. Values per row are
 * computed by every thread, values per column by the owner of the column, again in every pass that needs them.
 * Reductions end a pass and are sums over the threads of the row. */
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

typedef struct zp_cuda_text {
  zp_arena *arena; /* borrowed */
  zp_buf out;
  int real_bytes; /* of what is computed with */
  ZP_VEC(zp_cuda_rotary) rotaries;
  /* of the current kernel */
  const zp_row_program *program;
  zp_row_schedule schedule;
  bool *inlined;       /* [values]: written where its one reader needs it, without a statement */
  bool *explained;     /* [values]: said already what it is */
  bool warp_a_row;     /* else a block */
  bool sums_in_memory; /* column sums grow in partial[], not in registers */
} zp_cuda_text;

enum { ZP_CUDA_WARP = 32 };

static inline int zp_cuda_threads(const zp_cuda_text *t) { return t->warp_a_row ? ZP_CUDA_WARP : ZPD_ROW_THREADS; }
/* Columns of a thread, at most. */
static inline int64_t zp_cuda_columns(const zp_cuda_text *t, int64_t cols) {
  return (cols + zp_cuda_threads(t) - 1) / zp_cuda_threads(t);
}

/* ---- names.c ---- */
/* Decides which values of the program get statements. */
void zp_cuda_name_values(zp_cuda_text *t);
/* A comment that says what v is, to stand behind its first statement; "" later on. */
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
/* What its arrays are called behind "cos_" and "sin_": "head32_theta10000"; frequencies are printed when they are new.
 */
const char *zp_cuda_rotary_of(zp_cuda_text *t, const zp_row_value *v);
/* Whether cosines and sines of a row fit into shared memory; else each column computes its own. */
bool zp_cuda_shares_rotary(const zp_cuda_text *t, const zp_row_value *v);

/* ---- print_leaves.c: what is prepared before the passes of a row ---- */
void zp_cuda_print_constants(zp_cuda_text *t); /* before the kernel: arrays of the text */
void zp_cuda_print_prepare(zp_cuda_text *t);   /* before the loop over rows */
void zp_cuda_print_prepare_row(zp_cuda_text *t);

/* ---- print_pass.c ---- */
/* Opens the loop over the columns of a thread; closed by one zp_cuda_close. */
void zp_cuda_open_columns(zp_cuda_text *t, int64_t cols);
void zp_cuda_print_pass(zp_cuda_text *t, const zp_row_pass *pass);
void zp_cuda_open(zp_cuda_text *t, const char *line);
void zp_cuda_close(zp_cuda_text *t);

/* ---- print_sums.c: sums over columns ---- */
/* Whether shared memory has room for a sum of each warp. */
bool zp_cuda_warps_hold_sums(const zp_cuda_text *t);
void zp_cuda_start_sums(zp_cuda_text *t); /* before the loop over rows */
void zp_cuda_end_sums(zp_cuda_text *t);   /* after it */

/* ---- print_kernel.c ---- */
void zp_cuda_print_kernel(zp_cuda_text *t, const zp_row_program *program, const char *symbol, const char *about);

#endif
