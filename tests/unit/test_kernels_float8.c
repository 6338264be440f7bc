/* SPDX-License-Identifier: Apache-2.0 */
/* The 8-bit formats against tables that are made from the specification's formula in f64: all 256 numbers, every
 * midpoint between neighbours and its neighbours in f32, all of bf16, and what saturates. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <zplan/zpk_float8.h>

/* A format by its definition: sign, exponent bits, mantissa bits, bias. */
typedef struct format {
  const char *name;
  int mantissa, bias;
  double most;
  uint8_t (*round)(float);
  float (*widen)(uint8_t);
} format;

static uint8_t round_e4m3(float x) { return zpk_round_e4m3(x); }
static float widen_e4m3(uint8_t x) { return zpk_widen_e4m3(x); }
static uint8_t round_e5m2(float x) { return zpk_round_e5m2(x); }
static float widen_e5m2(uint8_t x) { return zpk_widen_e5m2(x); }
static const format formats[] = {{"e4m3", 3, 7, 448, round_e4m3, widen_e4m3},
                                 {"e5m2", 2, 15, 57344, round_e5m2, widen_e5m2}};

/* By definition, of the positive half: (-1)^s 2^(e - bias) (1 + m / 2^M), with e = 0: 2^(1 - bias) m / 2^M. */
static double defined(const format *f, int code) {
  int m = code & ((1 << f->mantissa) - 1), e = code >> f->mantissa, one = 1 << f->mantissa;
  return e == 0 ? ldexp(m, 1 - f->bias - f->mantissa) : ldexp(one + m, e - f->bias - f->mantissa);
}

static int largest(const format *f) {
  int code = 0;
  while (defined(f, code) < f->most) code++;
  return code;
}

/* By search: the nearest of all numbers up to the largest, which stands for what is beyond it; of two as near the one
 * with an even code. */
static int nearest(const format *f, double x) {
  static double table[2][128];
  double *value = table[f - formats], kept = fmin(x, f->most);
  int best = 0, most = f == formats ? 0x7E : 0x7B;
  for (int code = 0; code <= most && value[most] == 0; code++) value[code] = defined(f, code);
  for (int code = 1; code <= most; code++) {
    double now = fabs(value[code] - kept), before = fabs(value[best] - kept);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

static void expect_rounded(const format *f, float x) {
  int want = nearest(f, fabs((double)x)) | (signbit(x) ? 0x80 : 0);
  cr_assert_eq(f->round(x), want, "%s: %a is %02x, not %02x", f->name, (double)x, f->round(x), want);
}

Test(kernels_float8, all_numbers) {
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 256; i++) {
      const format *f = &formats[k];
      float got = f->widen((uint8_t)i);
      int code = i & 0x7F;
      cr_assert_eq(!!signbit(got), i >> 7);
      if (code <= largest(f)) {
        cr_assert_eq(fabs((double)got), defined(f, code), "%s %02x", f->name, i);
        cr_assert_eq(f->round(got), i);
      } else if (k == 1 && code == 0x7C) {
        cr_assert(isinf(got));
        cr_assert_eq(f->round(got), (i & 0x80) | 0x7B, "infinity saturates");
      } else {
        cr_assert(isnan(got), "%s %02x", f->name, i);
        cr_assert(isnan(f->widen(f->round(got))) && f->round(got) >> 7 == i >> 7, "NaN of its sign");
      }
    }
  cr_expect_eq(largest(&formats[0]), 0x7E);
  cr_expect_eq(largest(&formats[1]), 0x7B);
}

Test(kernels_float8, midpoints) {
  for (int k = 0; k < 2; k++)
    for (int code = 0; code < largest(&formats[k]); code++) {
      const format *f = &formats[k];
      float half = (float)((defined(f, code) + defined(f, code + 1)) / 2);
      const float near[] = {half, nextafterf(half, 0), nextafterf(half, INFINITY)};
      cr_assert_eq((double)half, (defined(f, code) + defined(f, code + 1)) / 2);
      for (int i = 0; i < 3; i++) expect_rounded(f, near[i]), expect_rounded(f, -near[i]);
    }
}

Test(kernels_float8, every_bf16) {
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; i < 65536; i++) {
      float x = zpk_widen_bf16((uint16_t)i);
      if (isnan(x))
        cr_assert(isnan(formats[k].widen(formats[k].round(x))));
      else
        expect_rounded(&formats[k], x);
    }
}

Test(kernels_float8, saturates) {
  const float beyond[] = {464, 480, 1e30f, 61440, 65536, INFINITY, 3.4e38f};
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
      if ((double)beyond[i] < formats[k].most) continue;
      cr_expect_eq((double)formats[k].widen(formats[k].round(beyond[i])), formats[k].most);
      cr_expect_eq((double)formats[k].widen(formats[k].round(-beyond[i])), -formats[k].most);
    }
}

/* Every power of two, and what lies next to it. */
Test(kernels_float8, scales) {
  for (int i = 0; i < 255; i++) {
    double power = ldexp(1, i - 127);
    float x = zpk_widen_e8m0((uint8_t)i);
    cr_assert_eq((double)x, power);
    cr_assert_eq(zpk_above_e8m0(x), i);
    cr_assert_eq(zpk_above_e8m0(nextafterf(x, INFINITY)), i < 254 ? i + 1 : 254);
    cr_assert_eq(zpk_above_e8m0(nextafterf(x, 0)), i, "%d", i);
  }
  cr_expect(isnan(zpk_widen_e8m0(255)));
  cr_expect_eq(zpk_above_e8m0(NAN), 255);
  cr_expect_eq(zpk_above_e8m0(0), 0);
  cr_expect_eq(zpk_above_e8m0(INFINITY), 254);
}
