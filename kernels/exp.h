/* SPDX-License-Identifier: Apache-2.0 */
/* exp for loops that the compiler vectorises: no branch, no call, no table.
 *
 * exp(x) = 2^n * exp(r) with n = round(x / ln 2) and |r| <= ln 2 / 2. Adding `round` (1.5 * 2^mantissa bits) leaves n
 * in the low bits of the sum, which saves the conversion to an integer that SSE2 and AVX2 lack for f64. ln 2 is
 * subtracted in two parts, the first short enough for n * ln2_hi to be exact without FMA. exp(r) is the Taylor series,
 * long enough for its remainder to stay below a tenth of an ulp: r^8 / 8! < 6e-9 in f32, r^14 / 14! < 5e-18 in f64.
 *
 * Error: below 1.5 ulp. -inf and all x whose result is below about twice the smallest normal number give 0 (denormals
 * are slow and nothing here needs them), overflow gives inf, NaN stays NaN because both clamps are false for it. */
#ifndef ZPK_EXP_H
#define ZPK_EXP_H

#include <stdint.h>
#include <string.h>

__attribute__((always_inline)) static inline float zpk_exp_f32(float x) {
  const float round = 0x1.8p23f, ln2_hi = 0x1.63p-1f, ln2_lo = -0x1.bd0106p-13f;
  x = x < -88.0f ? -88.0f : x;
  x = x > 89.0f ? 89.0f : x;
  float shifted = x * 0x1.715476p0f + round;
  float n = shifted - round;
  float r = (x - n * ln2_hi) - n * ln2_lo;
  float y = 1.0f / 5040;
  y = y * r + 1.0f / 720;
  y = y * r + 1.0f / 120;
  y = y * r + 1.0f / 24;
  y = y * r + 1.0f / 6;
  y = y * r + 0.5f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits =
      (bits + 126) << 23; /* 2^(n - 1), since 2^128 has no encoding; 0 for n = -126 and, after the next line, below */
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return x < -86.5f ? 0.0f : (y + y) * scale;
}

__attribute__((always_inline)) static inline double zpk_exp_f64(double x) {
  const double round = 0x1.8p52, ln2_hi = 0x1.62e42feep-1, ln2_lo = 0x1.a39ef35793c76p-33;
  x = x < -709.0 ? -709.0 : x;
  x = x > 710.0 ? 710.0 : x;
  double shifted = x * 0x1.71547652b82fep0 + round;
  double n = shifted - round;
  double r = (x - n * ln2_hi) - n * ln2_lo;
  double y = 1.0 / 6227020800;
  y = y * r + 1.0 / 479001600;
  y = y * r + 1.0 / 39916800;
  y = y * r + 1.0 / 3628800;
  y = y * r + 1.0 / 362880;
  y = y * r + 1.0 / 40320;
  y = y * r + 1.0 / 5040;
  y = y * r + 1.0 / 720;
  y = y * r + 1.0 / 120;
  y = y * r + 1.0 / 24;
  y = y * r + 1.0 / 6;
  y = y * r + 0.5;
  y = y * r + 1.0;
  y = y * r + 1.0;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1022) << 52;
  double scale;
  memcpy(&scale, &bits, sizeof scale);
  return x < -708.0 ? 0.0 : (y + y) * scale;
}

#endif
