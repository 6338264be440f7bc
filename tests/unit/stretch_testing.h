/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a few queries, for the tests of the CPU and of the device kernels: what such queries do not see is NaN,
 * and so is what they must not write. */
#ifndef STRETCH_TESTING_H
#define STRETCH_TESTING_H

#include "lengths_testing.h"

/* Keys and values after the last query, and outputs in front of it, as nobody may read and write them. */
static inline void spoil(problem *p, int64_t behind) {
  const zpk_attention_args *a = &p->a;
  for (int64_t b = 0; b < a->B && !a->keys; b++)
    for (int64_t row = b * a->S + behind; row < (b + 1) * a->S; row++)
      for (int64_t i = 0; i < 2 * a->G * a->hd; i++) put(a->dtype, p->qkv, row * a->k_ld + a->H * a->hd + i, NAN);
  for (int64_t i = 0; i < a->B * a->S * a->H * a->hd; i++) put(a->dtype, p->o_out, i, NAN);
}

static inline void restore(problem *p) {
  const zpk_attention_args *a = &p->a;
  char *base = p->qkv;
  int64_t e = zpk_bytes(a->dtype), rows = a->B * a->S;
  if (a->keys) return;
  store(a->dtype, p->k, rows, a->G * a->hd, base + a->H * a->hd * e, a->k_ld);
  store(a->dtype, p->v, rows, a->G * a->hd, base + (a->H + a->G) * a->hd * e, a->v_ld);
}

/* want: [B * S, H * hd], of which queries first .. first + n - 1 of every sample were asked for. */
static inline void expect_stretch(const problem *p, const double *want, int64_t first, int64_t n, const char *what) {
  const zpk_attention_args *a = &p->a;
  double bound =
      (a->dtype == ZPK_F64 ? 1e-14 : 4e-6) * (1 + (double)(a->keys ? a->keys : a->S) / 50) + 2 * narrow_unit(a->dtype);
  for (int64_t row = 0; row < a->B * a->S; row++)
    for (int64_t i = 0; i < a->H * a->hd; i++) {
      double got = get(a->dtype, p->o_out, row * a->o_ld + i);
      bool here = row % a->S >= first && row % a->S < first + n;
      cr_assert(here ? fabs(got - want[row * a->H * a->hd + i]) < bound : isnan(got), "%s, %lld + %lld: row %lld, %g",
                what, (long long)first, (long long)n, (long long)row, got);
    }
}

#endif
