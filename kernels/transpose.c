/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices of samples turned over, in tiles of which both sides fit a cache. */
#include "clones.h"
#include <assert.h>
#include <zplan/zpk.h>

enum { TILE = 16 };

#define TEMPLATE "transpose_template.h"
#include "every_dtype.h"

int64_t zpk_transpose_tasks(int64_t samples, int64_t cols) { return samples * ((cols + TILE - 1) / TILE); }

void zpk_transpose(zpk_dtype dtype, const void *x, int64_t rows, int64_t cols, void *y, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && rows >= 1 && cols >= 1 && begin >= 0 && begin <= end);
  ZPK_BY_DTYPE(dtype, transpose, x, rows, cols, y, begin, end);
}
