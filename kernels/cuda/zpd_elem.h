/* SPDX-License-Identifier: Apache-2.0 */
/* What operands are stored as; `real` is what is computed in. With ZPD_BF16 or ZPD_F16 they differ, and ZPD_NARROW is
 * defined: a value is rounded to the nearest, of two equally near ones to the even one; NaN stays NaN. The GPU converts
 * f16 itself; on the host zpk_narrow.h does. */
#ifndef ZPD_ELEM_H
#define ZPD_ELEM_H

#if defined(ZPD_BF16) || defined(ZPD_F16)
#define ZPD_NARROW

#if defined(ZPD_HOST) && defined(ZPD_BF16)
#include "zplan/zpk_narrow.h"
ZPD_DEVICE real zpd_widen(unsigned short bits) { return zpk_widen_bf16(bits); }
ZPD_DEVICE unsigned short zpd_round(real x) { return zpk_round_bf16(x); }
#elif defined(ZPD_HOST)
#include "zplan/zpk_narrow.h"
ZPD_DEVICE real zpd_widen(unsigned short bits) { return zpk_widen_f16(bits); }
ZPD_DEVICE unsigned short zpd_round(real x) { return zpk_round_f16(x); }
#elif defined(ZPD_BF16)
/* The upper half of an f32. */
ZPD_DEVICE real zpd_widen(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
ZPD_DEVICE unsigned short zpd_round(real x) {
  const unsigned b = __float_as_uint(x);
  return (unsigned short)(x != x ? b >> 16 | 0x40u : (b + 0x7FFFu + (b >> 16 & 1u)) >> 16);
}
#else
ZPD_DEVICE real zpd_widen(unsigned short bits) {
  real x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
ZPD_DEVICE unsigned short zpd_round(real x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#endif

/* Two at once, the first one in the lower half. */
#if defined(ZPD_BF16) && !defined(ZPD_HOST) && __CUDA_ARCH__ >= 800
ZPD_DEVICE unsigned zpd_round_two(real low, real high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
#else
ZPD_DEVICE unsigned zpd_round_two(real low, real high) { return zpd_round(low) | (unsigned)zpd_round(high) << 16; }
#endif

struct elem {
  unsigned short bits;
  elem() = default;
  __device__ __forceinline__ elem(real x) { bits = zpd_round(x); }
  __device__ __forceinline__ operator real() const { return zpd_widen(bits); }
};
#else
typedef real elem;
#endif

/* bf16 in every text: of `cast` of the language, and of sums that are rounded to leave a node. By way of f32, as
 * conversions go. */
#ifdef ZPD_HOST
#include "zplan/zpk_narrow.h"
ZPD_DEVICE float zpd_widen_bf16(unsigned short bits) { return zpk_widen_bf16(bits); }
ZPD_DEVICE unsigned short zpd_round_bf16(float x) { return zpk_round_bf16(x); }
ZPD_DEVICE real zpd_cast_f16(real x) { return zpk_widen_f16(zpk_round_f16((float)x)); }
#else
ZPD_DEVICE float zpd_widen_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
ZPD_DEVICE unsigned short zpd_round_bf16(float x) {
  const unsigned b = __float_as_uint(x);
  return (unsigned short)(x != x ? b >> 16 | 0x40u : (b + 0x7FFFu + (b >> 16 & 1u)) >> 16);
}
ZPD_DEVICE real zpd_cast_f16(real x) {
  unsigned short bits;
  float narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"((float)x));
  asm("cvt.f32.f16 %0, %1;" : "=f"(narrow) : "h"(bits));
  return narrow;
}
#endif
ZPD_DEVICE real zpd_cast_bf16(real x) { return zpd_widen_bf16(zpd_round_bf16((float)x)); }
ZPD_DEVICE real zpd_cast_f32(real x) { return (float)x; }

#endif
