/* SPDX-License-Identifier: Apache-2.0 */
/* The two 16-bit formats that operands may be stored in, to f32 and back: of one number, without a branch, so that
 * loops vectorise. For kernels of the host, and for device kernels that are compiled for the host (C++).
 *
 *   bf16  bfloat16, the upper half of an f32: the same exponents, 8 significant bits
 *   f16   IEEE 754 binary16: 11 significant bits, from 2^-24 (below 2^-14 with fewer bits) to 65504
 *
 * Rounding: to the nearest, of two equally near ones the even one; beyond the largest number to infinity; NaN stays a
 * (quiet) NaN. */
#ifndef ZPLAN_ZPK_NARROW_H
#define ZPLAN_ZPK_NARROW_H

#include <stdint.h>
#include <string.h>

#define ZPK_NARROW __attribute__((always_inline)) static inline

ZPK_NARROW float zpk_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

ZPK_NARROW uint32_t zpk_to_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

ZPK_NARROW float zpk_widen_bf16(uint16_t x) { return zpk_from_bits((uint32_t)x << 16); }

ZPK_NARROW uint16_t zpk_round_bf16(float x) {
  uint32_t bits = zpk_to_bits(x);
  uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

/* Exponents are 15 in f16 and 127 in f32 at the number 1. A subnormal m is m * 2^-24: f32 has it as 2^-14 + m * 2^-24
 * less 2^-14, which is exact. */
ZPK_NARROW float zpk_widen_f16(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, bits = (uint32_t)(x & 0x7FFF) << 13;
  float subnormal = zpk_from_bits(bits + (113u << 23)) - zpk_from_bits(113u << 23);
  uint32_t normal = bits + (112u << 23), special = bits | 0xFFu << 23;
  uint32_t wide = bits < 1u << 23 ? zpk_to_bits(subnormal) : bits < 31u << 23 ? normal : special;
  return zpk_from_bits(wide | sign);
}

/* Below 2^-14 the sum with 0.5, whose last bit is worth 2^-24, rounds; above, a carry out of the kept bits does, into
 * the exponent too, and from the largest number into infinity. */
ZPK_NARROW uint16_t zpk_round_f16(float x) {
  uint32_t bits = zpk_to_bits(x) & 0x7FFFFFFF, sign = zpk_to_bits(x) >> 16 & 0x8000;
  uint32_t subnormal = zpk_to_bits(zpk_from_bits(bits) + 0.5f) - zpk_to_bits(0.5f);
  uint32_t normal = (bits - (112u << 23) + 0xFFF + (bits >> 13 & 1)) >> 13;
  uint32_t quiet = 0x7E00 | (bits >> 13 & 0x3FF);
  uint32_t narrow = bits < 113u << 23 ? subnormal : bits < 143u << 23 ? normal : bits <= 0x7F800000u ? 0x7C00 : quiet;
  return (uint16_t)(narrow | sign);
}

#endif
