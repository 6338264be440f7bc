/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of samples by number: those that are asked for, and the gradient, which adds what was asked for twice. */
#include "clones.h"
#include <assert.h>
#include <string.h>
#include <zplan/zpk.h>

enum { BLOCK = 256 };

#define TEMPLATE "gather_template.h"
#include "every_dtype.h"

void zpk_gather(zpk_dtype dtype, const zpk_gather_args *a, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && a->S >= 1 && a->n >= 1 && a->cols >= 1);
  assert(begin >= 0 && begin <= end && end <= a->samples * a->n);
  ZPK_BY_DTYPE(dtype, gather, a, begin, end);
}

void zpk_gather_grad(zpk_dtype dtype, const zpk_gather_args *a, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && a->S >= 1 && a->n >= 1 && a->cols >= 1);
  assert(begin >= 0 && begin <= end && end <= a->samples * a->S);
  ZPK_BY_DTYPE(dtype, gather_grad, a, begin, end);
}
