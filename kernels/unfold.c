/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over positions side by side in rows, as products of convolutions read them, and the gradient. */
#include "clones.h"
#include <assert.h>
#include <string.h>
#include <zplan/zpk.h>

enum { BLOCK = 256 };

/* Windows along a dimension that have a position: from `first` on to before `end`. */
typedef struct reach {
  int64_t first, end;
} reach;

static reach windows_with(const zpk_unfold_args *a, int dimension, int64_t position) {
  int64_t at = position + a->padding[dimension], stride = a->stride[dimension], kernel = a->kernel[dimension];
  reach w = {.first = at < kernel ? 0 : (at - kernel) / stride + 1, .end = at / stride + 1};
  if (w.end > a->count[dimension]) w.end = a->count[dimension];
  return w;
}

#define TEMPLATE "unfold_template.h"
#include "every_dtype.h"

static void check(const zpk_unfold_args *a, int64_t begin, int64_t end, int64_t rows) {
  assert(a->samples >= 1 && a->cols >= 1 && begin >= 0 && begin <= end && end <= a->samples * rows);
  assert(a->first >= 0 && a->n >= 1 && a->first + a->n <= a->count[0] * a->count[1]);
  for (int i = 0; i < 2; i++) {
    assert(a->size[i] >= 1 && a->kernel[i] >= 1 && a->stride[i] >= 1 && a->padding[i] >= 0 && a->count[i] >= 1);
    assert((a->count[i] - 1) * a->stride[i] + a->kernel[i] <= a->size[i] + 2 * a->padding[i]);
  }
}

void zpk_unfold(zpk_dtype dtype, const zpk_unfold_args *a, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16);
  check(a, begin, end, a->n);
  ZPK_BY_DTYPE(dtype, unfold, a, begin, end);
}

void zpk_unfold_grad(zpk_dtype dtype, const zpk_unfold_args *a, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16);
  check(a, begin, end, a->size[0] * a->size[1]);
  ZPK_BY_DTYPE(dtype, unfold_grad, a, begin, end);
}
