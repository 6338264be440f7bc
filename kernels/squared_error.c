/* SPDX-License-Identifier: Apache-2.0 */
/* The mean of squared differences of every row, and its gradient. */
#include "clones.h"
#include <assert.h>
#include <zplan/zpk.h>

#define TEMPLATE "squared_error_template.h"
#include "every_dtype.h"

void zpk_squared_error(zpk_dtype dtype, const void *x, const void *target, int64_t cols, void *stat, int64_t begin,
                       int64_t end) {
  assert(dtype <= ZPK_F16 && cols >= 1 && begin >= 0 && begin <= end);
  ZPK_BY_DTYPE(dtype, squared_error, x, target, cols, stat, begin, end);
}

void zpk_squared_error_grad(zpk_dtype dtype, const void *x, const void *target, int64_t cols, double scale, void *dx,
                            int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && cols >= 1 && begin >= 0 && begin <= end);
  ZPK_BY_DTYPE(dtype, squared_error_grad, x, target, cols, scale, dx, begin, end);
}
