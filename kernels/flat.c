/* Arithmetic on flat buffers: sum of squares, addition, fill. */
#include "clones.h"
#include <zplan/zpk.h>

enum { LANES = 32, BLOCK = 4096 };

#include "real_f32.h"
#include "flat_template.h"
#include "real_f64.h"
#include "flat_template.h"

/* Every block of 4096 is summed by itself and the block sums are added in order, so that a caller who adds the sums of
 * single blocks in order gets the bits of one call over all of them. */
double zpk_sum_squares(zpk_dtype dtype, const void *x, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t at = begin; at < end;) {
    int64_t next = (at / BLOCK + 1) * BLOCK;
    if (next > end) next = end;
    sum += dtype == ZPK_F64 ? block_squares_f64((const double *)x + at, next - at)
                            : block_squares_f32((const float *)x + at, next - at);
    at = next;
  }
  return sum;
}

void zpk_add(zpk_dtype dtype, void *y, const void *x, int64_t count) {
  if (dtype == ZPK_F64)
    add_f64(y, x, count);
  else
    add_f32(y, x, count);
}

void zpk_fill(zpk_dtype dtype, void *y, double value, int64_t count) {
  if (dtype == ZPK_F64)
    fill_f64(y, value, count);
  else
    fill_f32(y, (float)value, count);
}
