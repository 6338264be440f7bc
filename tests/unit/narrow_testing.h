/* SPDX-License-Identifier: Apache-2.0 */
/* The 16-bit dtypes as tests see them: bf16 by its definition, f16 as the compiler's own _Float16. */
#ifndef ZPLAN_TEST_NARROW_TESTING_H
#define ZPLAN_TEST_NARROW_TESTING_H

#include <math.h>
#include <string.h>
#include <zplan/zpk.h>

static inline float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* A stored number is off by up to this share of its size, and f16 below 2^-14 by up to narrow_least. */
static inline double narrow_unit(zpk_dtype dtype) {
  return dtype == ZPK_F16 ? 0x1p-11 : dtype == ZPK_BF16 ? 0x1p-8 : 0;
}
static inline double narrow_least(zpk_dtype dtype) { return dtype == ZPK_F16 ? 0x1p-25 : 0; }

static inline double wide_of(zpk_dtype dtype, uint16_t x) {
  _Float16 half;
  memcpy(&half, &x, sizeof half);
  return dtype == ZPK_F16 ? (double)half : (double)as_float((uint32_t)x << 16);
}

/* The nearer of the two neighbours, of equally near ones the one whose last bit is 0. */
static inline uint16_t narrow_of(zpk_dtype dtype, double x) {
  float narrow = (float)x;
  if (dtype == ZPK_F16) {
    _Float16 half = (_Float16)narrow;
    uint16_t stored;
    memcpy(&stored, &half, sizeof stored);
    return stored;
  }
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
  uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
  double below = fabs((double)narrow - wide_of(dtype, low)), above = fabs(wide_of(dtype, high) - (double)narrow);
  return below < above || (below == above && low % 2 == 0) ? low : high;
}

/* Element i of an array of any dtype. */
static inline void put_as(zpk_dtype dtype, void *x, int64_t i, double value) {
  switch (dtype) {
  case ZPK_F32: ((float *)x)[i] = (float)value; break;
  case ZPK_F64: ((double *)x)[i] = value; break;
  case ZPK_BF16:
  case ZPK_F16: ((uint16_t *)x)[i] = narrow_of(dtype, value); break;
  }
}
static inline double get_as(zpk_dtype dtype, const void *x, int64_t i) {
  if (zpk_is_narrow(dtype)) return wide_of(dtype, ((const uint16_t *)x)[i]);
  return dtype == ZPK_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

#endif
