/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 is the upper half of an f32. f16 has 5 bits of exponent and 10 of mantissa, with subnormal numbers. */
#include "element.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint16_t to_bf16(float x) {
  uint32_t bits = bits_of(x);
  if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
  float x = exponent == 0 ? ldexpf((float)mantissa, -24) : ldexpf((float)(mantissa | 0x400), (int)exponent - 25);
  return sign ? -x : x;
}

static uint16_t to_f16(float x) {
  uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
  float size = fabsf(x);
  if (isnan(x)) return (uint16_t)(sign | 0x7e00);
  if (size >= 65520) return (uint16_t)(sign | 0x7c00); /* the middle between the largest number and the next */
  int exponent = 0;
  frexpf(size, &exponent); /* size = [1/2, 1) * 2^exponent */
  if (size == 0 || exponent < -13) return (uint16_t)(sign | (uint16_t)nearbyintf(ldexpf(size, 24)));
  float mantissa = nearbyintf(ldexpf(size, 11 - exponent)); /* 1024 to 2048 */
  /* The leading bit of the mantissa adds one to the exponent. */
  return (uint16_t)(sign | (((uint32_t)(exponent + 13) << 10) + (uint32_t)mantissa));
}

double zp_element_read(const char *dtype, const void *data, int64_t at) {
  if (strcmp(dtype, "F32") == 0) return ((const float *)data)[at];
  if (strcmp(dtype, "F64") == 0) return ((const double *)data)[at];
  uint16_t narrow = ((const uint16_t *)data)[at];
  if (strcmp(dtype, "BF16") == 0) return float_of((uint32_t)narrow << 16);
  assert(strcmp(dtype, "F16") == 0);
  return from_f16(narrow);
}

void zp_element_write(const char *dtype, void *data, int64_t at, double value) {
  if (strcmp(dtype, "F32") == 0)
    ((float *)data)[at] = (float)value;
  else if (strcmp(dtype, "F64") == 0)
    ((double *)data)[at] = value;
  else if (strcmp(dtype, "BF16") == 0)
    ((uint16_t *)data)[at] = to_bf16((float)value);
  else
    ((uint16_t *)data)[at] = to_f16((float)value);
}
