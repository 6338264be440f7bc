/* SPDX-License-Identifier: Apache-2.0 */
/* The 8-bit formats of operands and scales, to f32 and back: of one number, without a branch, so that loops vectorise.
 * As zpk_narrow.h has those of 16 bits.
 *
 *   e4m3  4 significant bits, from 2^-9 (below 2^-6 with fewer bits) to 448; no infinity, S.1111.111 is NaN
 *   e5m2  3 significant bits, from 2^-16 (below 2^-14 with fewer bits) to 57344; infinities and NaN as in IEEE 754
 *   e8m0  2^-127 to 2^127, the exponent alone, for scales; 255 is NaN
 *
 * As in OCP 8-bit Floating Point Specification (OFP8) 1.0 and OCP Microscaling Formats (MX) 1.0. Rounding: to the
 * nearest, of two equally near ones the even one; beyond the largest number, infinity included, to the largest number
 * ("saturating"); NaN stays a NaN of its sign. A bf16 or f16 number is one of f32, so widening it first loses
 * nothing. */
#ifndef ZPLAN_ZPK_FLOAT8_H
#define ZPLAN_ZPK_FLOAT8_H

#include <zplan/zpk_narrow.h>

/* Largest numbers. */
#define ZPK_E4M3_MOST 448.0f
#define ZPK_E5M2_MOST 57344.0f

/* Exponents are 7 in e4m3 and 127 in f32 at the number 1. A subnormal m is m * 2^-9: f32 has it as 2^-6 + m * 2^-9 less
 * 2^-6, which is exact. */
ZPK_NARROW float zpk_widen_e4m3(uint8_t x) {
  uint32_t bits = (uint32_t)(x & 0x7F) << 20, sign = (uint32_t)(x & 0x80) << 24;
  float subnormal = zpk_from_bits(bits + (121u << 23)) - zpk_from_bits(121u << 23);
  uint32_t wide = bits < 1u << 23 ? zpk_to_bits(subnormal) : bits + (120u << 23);
  return zpk_from_bits(((x & 0x7F) == 0x7F ? 0x7FC00000u : wide) | sign);
}

/* A magnitude, no NaN, in a format whose exponents are `bias` less than those of f32 and which drops `dropped` bits.
 * Below the least normal number the sum with `unit`, whose last bit is worth a subnormal, rounds; above, a carry out of
 * the kept bits does. */
ZPK_NARROW uint32_t zpk_round_float8(uint32_t bits, float most, uint32_t bias, int dropped, float unit) {
  uint32_t kept = bits < zpk_to_bits(most) ? bits : zpk_to_bits(most);
  uint32_t subnormal = zpk_to_bits(zpk_from_bits(kept) + unit) - zpk_to_bits(unit);
  uint32_t normal = (kept - (bias << 23) + (1u << (dropped - 1)) - 1 + (kept >> dropped & 1)) >> dropped;
  return kept < (bias + 1) << 23 ? subnormal : normal;
}

ZPK_NARROW uint8_t zpk_round_e4m3(float x) {
  uint32_t bits = zpk_to_bits(x) & 0x7FFFFFFF, sign = zpk_to_bits(x) >> 24 & 0x80;
  uint32_t narrow = zpk_round_float8(bits, ZPK_E4M3_MOST, 120, 20, 0x1p14f);
  return (uint8_t)((bits > 0x7F800000u ? 0x7F : narrow) | sign);
}

/* The upper byte of an f16. */
ZPK_NARROW float zpk_widen_e5m2(uint8_t x) { return zpk_widen_f16((uint16_t)(x << 8)); }

ZPK_NARROW uint8_t zpk_round_e5m2(float x) {
  uint32_t bits = zpk_to_bits(x) & 0x7FFFFFFF, sign = zpk_to_bits(x) >> 24 & 0x80;
  uint32_t narrow = zpk_round_float8(bits, ZPK_E5M2_MOST, 112, 21, 0x1p7f);
  return (uint8_t)((bits > 0x7F800000u ? 0x7E | (bits >> 21 & 1) : narrow) | sign);
}

/* 2^-127 is a subnormal f32. */
ZPK_NARROW float zpk_widen_e8m0(uint8_t x) {
  return zpk_from_bits(x == 0 ? 0x00400000u : x == 255 ? 0x7FC00000u : (uint32_t)x << 23);
}

/* The least scale that is not below x >= 0; beyond the largest the largest; NaN stays NaN. Nothing that is at most x is
 * more than 1 once it is divided by the scale. */
ZPK_NARROW uint8_t zpk_above_e8m0(float x) {
  uint32_t bits = zpk_to_bits(x) & 0x7FFFFFFF, above = (bits + 0x7FFFFF) >> 23;
  above = bits <= 0x00400000u ? 0 : above < 254 ? above : 254;
  return (uint8_t)(bits > 0x7F800000u ? 255 : above);
}

#endif
