/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on flat buffers: sum of squares, addition, sums of several arrays. */
#include "clones.h"

#include <assert.h>
#include <zplan/zpk.h>

enum { LANES = 32, BLOCK = 4096, BLOCK_SUMS = 256 };

#define TEMPLATE "flat_template.h"
#include "every_dtype.h"

static double block_squares(zpk_dtype dtype, const void *x, int64_t at, int64_t count) {
  return ZPK_BY_DTYPE(dtype, block_squares, (const void *)((const char *)x + at * zpk_bytes(dtype)), count);
}

/* Every block of 4096 is summed by itself and the block sums are added in order, so that a caller who adds the sums of
 * single blocks in order gets the bits of one call over all of them. */
double zpk_sum_squares(zpk_dtype dtype, const void *x, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  double sum = 0;
  for (int64_t at = begin; at < end;) {
    int64_t next = (at / BLOCK + 1) * BLOCK;
    if (next > end) next = end;
    sum += block_squares(dtype, x, at, next - at);
    at = next;
  }
  return sum;
}

void zpk_sum_parts(zpk_dtype dtype, void *out, const void *const *part, int n, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && n >= 1 && begin >= 0 && begin <= end);
  ZPK_BY_DTYPE(dtype, sum_parts, out, part, n, begin, end);
}
