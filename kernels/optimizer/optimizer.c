/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer updates (formulas: optimizer_template.h), one fused pass over parameter, gradient and moments: Adam reads
 * four arrays and writes three, 28 bytes a parameter in f32, and memory is the limit.
 *
 * Coefficients are computed in f64 and rounded once. */
#include "clones.h"

#include <assert.h>
#include <zplan/zpk.h>

#define TEMPLATE "optimizer_template.h"
#include "every_real.h"

void zpk_optimizer(const zpk_update *u, void *param, const void *grad, void *const *moment, int64_t begin,
                   int64_t end) {
  assert(u->dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, update, u, param, grad, moment, begin, end);
}

void zpk_average(const zpk_update *u, const void *param, void *average, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && u->ema > 0 && u->ema < 1 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, average, u, param, average, begin, end);
}

void zpk_optimizer_and_average(const zpk_update *u, void *param, const void *grad, void *const *moment, void *average,
                               int64_t begin, int64_t end) {
  enum { AT_ONCE = 4096 }; /* elements; their arrays fit into any cache of the second level */
  assert(!average || u->ema > 0);
  int64_t step = average ? AT_ONCE : end - begin;
  for (int64_t at = begin, to; at < end; at = to) {
    to = end - at < step ? end : at + step;
    zpk_optimizer(u, param, grad, moment, at, to);
    if (average) zpk_average(u, param, average, at, to);
  }
}

void zpk_lamb_moments(const zpk_update *u, const void *param, const void *grad, void *m, void *v, int64_t begin,
                      int64_t end, double sums[2]) {
  assert(u->dtype <= ZPK_F16 && u->kind == ZPK_LAMB && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, lamb_moments, u, param, grad, m, v, begin, end, sums);
}

void zpk_lamb_apply(const zpk_update *u, void *param, const void *m, const void *v, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && u->kind == ZPK_LAMB && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, lamb_apply, u, param, m, v, begin, end);
}
