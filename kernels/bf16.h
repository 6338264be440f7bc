/* bfloat16 is the upper half of an f32: the same exponents, 8 significant bits. No branch, so that loops vectorise. */
#ifndef ZPK_BF16_H
#define ZPK_BF16_H

#include <string.h>
#include <zplan/zpk.h>

__attribute__((always_inline)) static inline float zpk_widen_bf16(zpk_bf16 x) {
  uint32_t bits = (uint32_t)x << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

/* To the nearest, of two equally near ones the even one; NaN stays a (quiet) NaN. */
__attribute__((always_inline)) static inline zpk_bf16 zpk_round_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return (zpk_bf16)((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

#endif
