/* Arithmetic on flat buffers: sum of squares, addition, sums of several arrays, fill. */
#include "clones.h"
#include <zplan/zpk.h>

enum { LANES = 32, BLOCK = 4096, BLOCK_SUMS = 256 };

#include "real_f32.h"
#include "flat_template.h"
#include "real_f64.h"
#include "flat_template.h"
#include "real_bf16.h"
#include "flat_template.h"

static double block_squares(zpk_dtype dtype, const void *x, int64_t at, int64_t count) {
  if (dtype == ZPK_F64) return block_squares_f64((const double *)x + at, count);
  if (dtype == ZPK_BF16) return block_squares_bf16((const zpk_bf16 *)x + at, count);
  return block_squares_f32((const float *)x + at, count);
}

/* Every block of 4096 is summed by itself and the block sums are added in order, so that a caller who adds the sums of
 * single blocks in order gets the bits of one call over all of them. */
double zpk_sum_squares(zpk_dtype dtype, const void *x, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t at = begin; at < end;) {
    int64_t next = (at / BLOCK + 1) * BLOCK;
    if (next > end) next = end;
    sum += block_squares(dtype, x, at, next - at);
    at = next;
  }
  return sum;
}

void zpk_fill(zpk_dtype dtype, void *y, double value, int64_t count) {
  if (dtype == ZPK_F64)
    fill_f64(y, value, count);
  else if (dtype == ZPK_BF16)
    fill_bf16(y, (float)value, count);
  else
    fill_f32(y, (float)value, count);
}

void zpk_sum_parts(zpk_dtype dtype, void *out, const void *const *part, int n, int64_t begin, int64_t end) {
  if (dtype == ZPK_F64)
    sum_parts_f64(out, part, n, begin, end);
  else if (dtype == ZPK_BF16)
    sum_parts_bf16(out, part, n, begin, end);
  else
    sum_parts_f32(out, part, n, begin, end);
}

void zpk_sum_partials(zpk_dtype dtype, bool accumulate, void *y, const void *const *part, int n, int64_t count) {
  if (dtype == ZPK_F64)
    sum_partials_f64(accumulate, y, part, n, count);
  else if (dtype == ZPK_BF16)
    sum_partials_bf16(accumulate, y, part, n, count);
  else
    sum_partials_f32(accumulate, y, part, n, count);
}
