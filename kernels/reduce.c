/* SPDX-License-Identifier: Apache-2.0 */
/* One axis made one number: sum, largest, log-sum-exp, and their gradients. */
#include "clones.h"
#include <assert.h>
#include <stdbool.h>
#include <zplan/zpk.h>

enum { BLOCK = 256, LANES = 16 };

/* Lines from `at` on that stand side by side in one [n, inner]. */
static int64_t zpk_reduce_stretch(const zpk_reduce_args *a, int64_t at, int64_t end) {
  int64_t count = a->inner - at % a->inner;
  if (count > end - at) count = end - at;
  return count > BLOCK ? BLOCK : count;
}

#define TEMPLATE "reduce_template.h"
#include "every_dtype.h"

static void check(zpk_dtype dtype, const zpk_reduce_args *a, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && a->kind <= ZPK_LOG_SUM_EXP && a->outer >= 1 && a->n >= 1 && a->inner >= 1);
  assert(begin >= 0 && begin <= end && end <= a->outer * a->inner);
  (void)dtype, (void)a, (void)begin, (void)end;
}

void zpk_reduce(zpk_dtype dtype, const zpk_reduce_args *a, int64_t begin, int64_t end) {
  check(dtype, a, begin, end);
  ZPK_BY_DTYPE(dtype, reduce, a, begin, end);
}

void zpk_reduce_grad(zpk_dtype dtype, const zpk_reduce_args *a, int64_t begin, int64_t end) {
  check(dtype, a, begin, end);
  ZPK_BY_DTYPE(dtype, reduce_grad, a, begin, end);
}
