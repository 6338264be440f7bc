/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor (arXiv 1804.04235, algorithms 4 to 6) of a tensor whose last two dimensions are R rows and C columns; beta2
 * of step t is 1 - t^-decay, so that the first step takes its own squares alone:
 *
 *   row = beta2 row + (1 - beta2) (mean of g^2 over the columns + eps);  col the same over the rows
 *   u = g / sqrt(row col / mean of row);  of a vector v = beta2 v + (1 - beta2) (g^2 + eps);  u = g / sqrt(v)
 *   u = u / max(1, rms(u) / clip);  a = lr max(least, rms(p)), or lr;  p -= a wd p + a u
 *   with momentum m = beta1 m + (1 - beta1) a u instead of a u
 *
 * as transformers' Adafactor (T5's) has it. torch.optim.Adafactor puts eps alongside the update instead of into the
 * means, and takes the lesser of lr and 1 / sqrt(t). Here are the passes over elements; what belongs to rows and
 * columns, and lengths of whole tensors, come in between. `rows` and `cols` are 1 / sqrt(row / mean) and 1 /
 * sqrt(col). */
#include "clones.h"

#include <assert.h>
#include <zplan/zpk.h>

/* A part of a row: where its factor is, and those of its columns. */
typedef struct zpk_row {
  int64_t row, col, count;
} zpk_row;

static zpk_row zpk_row_at(const zpk_rows *at, int64_t done) {
  int64_t element = at->first + done, row = element / at->cols, col = element % at->cols;
  int64_t left = at->count - done, rest = at->cols - col;
  return (zpk_row){row, row / at->rows * at->cols + col, rest < left ? rest : left};
}

#define TEMPLATE "adafactor_template.h"
#include "every_real.h"

static void check(const zpk_update *u, const zpk_rows *at) {
  assert(u->dtype <= ZPK_F16 && at->rows >= 1 && at->cols >= 1 && at->first >= 0 && at->count >= 0);
  (void)u, (void)at;
}

void zpk_adafactor_sums(const zpk_update *u, const zpk_rows *at, const void *grad, double *rows, double *cols) {
  check(u, at);
  ZPK_BY_REAL(u->dtype, adafactor_sums, u, at, grad, rows, cols);
}

void zpk_adafactor_squares(const zpk_update *u, const zpk_rows *at, const void *param, const void *grad,
                           const void *rows, const void *cols, double sums[2]) {
  check(u, at);
  ZPK_BY_REAL(u->dtype, adafactor_squares, u, at, param, grad, rows, cols, sums);
}

void zpk_adafactor_apply(const zpk_update *u, const zpk_rows *at, void *param, const void *grad, void *m,
                         const void *rows, const void *cols, double factor) {
  check(u, at);
  ZPK_BY_REAL(u->dtype, adafactor_apply, u, at, param, grad, m, rows, cols, factor);
}
