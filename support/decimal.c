/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <zplan/decimal.h>

/* %g of so many digits switches to an exponent above that many; 100000 reads better than 1e+05. Up to DBL_DIG digits
 * nothing but zeros is added, where doubles have their full precision: any decimal of so few digits reads and prints
 * as itself there, and %g leaves zeros at the end away. */
static int digits_to_print(double x, int digits) { return digits < DBL_DIG && fabs(x) >= DBL_MIN ? DBL_DIG : digits; }

const char *zp_decimal(zp_arena *arena, double x) {
  assert(isfinite(x));
  if (x == 0) return signbit(x) ? "-0.0" : "0"; /* C reads -0 as an integer, which has no sign */
  int digits = 1;
  while (digits < DBL_DECIMAL_DIG && strtod(zp_format(arena, "%.*g", digits, x), NULL) != x) digits++;
  return zp_format(arena, "%.*g", digits_to_print(x, digits), x);
}
