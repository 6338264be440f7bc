/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log, tanh, sigmoid and erf of scalars and vectors, without branches and without calls.
 *
 * Polynomials are minimax fits (Remez exchange in 50 digits, weighted for the error that matters) made for zplan; the
 * fit errors stand alongside them. Bounds on the results, checked on dense grids by tests/unit/test_rowprog_math.c, in
 * units in the last place (ulp) of the exact value:
 *
 *             exp   log   tanh  sigmoid  erf
 *     f32      2     3     4      3       4
 *     f64      2     3     4      3       4
 *
 * The range reductions carry no fast-math flags: reassociation would cancel x - round(x). NaN passes through; the
 * comparisons are written so that NaN takes the path that keeps it. exp underflows gradually to 0 and overflows to
 * Inf. */
#include "emit.h"
#include <math.h>

/* ---- short forms ---- */
static LLVMValueRef add(zp_emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildFAdd(e->builder, a, b, ""); }
static LLVMValueRef sub(zp_emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildFSub(e->builder, a, b, ""); }
static LLVMValueRef mul(zp_emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildFMul(e->builder, a, b, ""); }
static LLVMValueRef divide(zp_emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildFDiv(e->builder, a, b, ""); }
static LLVMValueRef negate(zp_emit *e, LLVMValueRef a) { return LLVMBuildFNeg(e->builder, a, ""); }

/* a * b + c, fused where the target can. */
static LLVMValueRef fma_of(zp_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
  LLVMTypeRef type = LLVMTypeOf(a);
  return zp_emit_call(e, "llvm.fmuladd", &type, 1, (LLVMValueRef[]){a, b, c}, 3);
}

static LLVMValueRef unary(zp_emit *e, const char *intrinsic, LLVMValueRef x) {
  LLVMTypeRef type = LLVMTypeOf(x);
  return zp_emit_call(e, intrinsic, &type, 1, &x, 1);
}

static LLVMValueRef copy_sign(zp_emit *e, LLVMValueRef size, LLVMValueRef sign) {
  LLVMTypeRef type = LLVMTypeOf(size);
  return zp_emit_call(e, "llvm.copysign", &type, 1, (LLVMValueRef[]){size, sign}, 2);
}

/* predicate(x, bound) ? yes : no; ordered predicates are false for NaN. */
static LLVMValueRef choose(zp_emit *e, LLVMRealPredicate predicate, LLVMValueRef x, LLVMValueRef bound,
                           LLVMValueRef yes, LLVMValueRef no) {
  LLVMValueRef test = LLVMBuildFCmp(e->builder, predicate, x, bound, "");
  return LLVMBuildSelect(e->builder, test, yes, no, "");
}

static LLVMValueRef clamp_above(zp_emit *e, LLVMValueRef x, double bound) {
  LLVMValueRef limit = zp_emit_real(e, x, bound);
  return choose(e, LLVMRealOGT, x, limit, limit, x);
}

static LLVMValueRef clamp_below(zp_emit *e, LLVMValueRef x, double bound) {
  LLVMValueRef limit = zp_emit_real(e, x, bound);
  return choose(e, LLVMRealOLT, x, limit, limit, x);
}

/* Horner's rule; coefficient[0] is the constant term. */
static LLVMValueRef polynomial(zp_emit *e, LLVMValueRef x, const double *coefficient, int count) {
  LLVMValueRef sum = zp_emit_real(e, x, coefficient[count - 1]);
  for (int i = count - 2; i >= 0; i--) sum = fma_of(e, sum, x, zp_emit_real(e, x, coefficient[i]));
  return sum;
}
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static bool is_f64(const zp_emit *e) { return e->elem_bytes == 8; }
static unsigned mantissa_bits(const zp_emit *e) { return is_f64(e) ? 52 : 23; }

static LLVMValueRef to_bits(zp_emit *e, LLVMValueRef x) {
  return LLVMBuildBitCast(e->builder, x, zp_emit_like(e->integer, x), "");
}
static LLVMValueRef from_bits(zp_emit *e, LLVMValueRef bits) {
  return LLVMBuildBitCast(e->builder, bits, zp_emit_like(e->real, bits), "");
}
static uint64_t bits_of(const zp_emit *e, double number) {
  uint64_t wide;
  uint32_t narrow;
  float rounded = (float)number;
  memcpy(&wide, &number, sizeof wide);
  memcpy(&narrow, &rounded, sizeof narrow);
  return is_f64(e) ? wide : narrow;
}

/* ---- the exponential ---- */

/* (exp(f) - 1) / f on |f| <= ln(2)/2; errors 1.1e-8 and 1.8e-17 relative. */
static const double expm1_f32[] = {1.000000010812972703,   0.5000000081043167371,   0.1666650487693208147,
                                   0.04166623985911449433, 0.008369189375549098127, 0.001394864063715326905};
static const double expm1_f64[] = {0.9999999999999999995,   0.5000000000000005647,   0.1666666666666669075,
                                   0.04166666666657275077,  0.008333333333312977189, 0.001388888893262470094,
                                   0.000198412699054905301, 2.480150417521929868e-5, 2.755722622134795935e-6,
                                   2.762642845325153553e-7, 2.511493306961848436e-8};

/* exp(x) = 2^n (1 + p) */
typedef struct exponential {
  LLVMValueRef n, p; /* n: integers */
} exponential;

/* ln(2) in two parts, the first with so few bits that n * high is exact. */
static void subtract_n_ln2(zp_emit *e, LLVMValueRef n, LLVMValueRef *f) {
  double high = is_f64(e) ? 0x1.62e42fee00000p-1 : 0x1.63p-1;
  double low = is_f64(e) ? 0x1.a39ef35793c76p-33 : -0x1.bd0105c610ca8p-13;
  LLVMValueRef minus_n = negate(e, n);
  *f = fma_of(e, minus_n, zp_emit_real(e, n, high), *f);
  *f = fma_of(e, minus_n, zp_emit_real(e, n, low), *f);
}

/* Adding 1.5 * 2^mantissa rounds x / ln(2) to an integer and leaves it in the low bits of the sum: no conversion, which
 * would be undefined for NaN. */
static exponential split_exp(zp_emit *e, LLVMValueRef x) {
  double magic = ldexp(1.5, (int)mantissa_bits(e));
  LLVMValueRef magic_value = zp_emit_real(e, x, magic);
  LLVMValueRef shifted = fma_of(e, x, zp_emit_real(e, x, M_LOG2E), magic_value);
  LLVMValueRef f = x;
  subtract_n_ln2(e, sub(e, shifted, magic_value), &f);
  LLVMValueRef ratio =
      is_f64(e) ? polynomial(e, f, expm1_f64, COUNT(expm1_f64)) : polynomial(e, f, expm1_f32, COUNT(expm1_f32));
  LLVMValueRef n = LLVMBuildSub(e->builder, to_bits(e, shifted), zp_emit_integer(e, x, bits_of(e, magic)), "");
  return (exponential){.n = n, .p = mul(e, f, ratio)};
}

/* 2^n for n in the range of normal exponents. */
static LLVMValueRef power_of_two(zp_emit *e, LLVMValueRef n) {
  LLVMValueRef biased = LLVMBuildAdd(e->builder, n, zp_emit_integer(e, n, is_f64(e) ? 1023 : 127), "");
  return from_bits(e, LLVMBuildShl(e->builder, biased, zp_emit_integer(e, n, mantissa_bits(e)), ""));
}

/* The scale is applied in two halves, so that results below the normal range and just below overflow come out right. */
LLVMValueRef zp_emit_exp(zp_emit *e, LLVMValueRef x) {
  LLVMValueRef bounded = clamp_above(e, clamp_below(e, x, is_f64(e) ? -746 : -104), is_f64(e) ? 710 : 89);
  exponential parts = split_exp(e, bounded);
  LLVMValueRef half = LLVMBuildAShr(e->builder, parts.n, zp_emit_integer(e, x, 1), "");
  LLVMValueRef first = power_of_two(e, half);
  LLVMValueRef second = power_of_two(e, LLVMBuildSub(e->builder, parts.n, half, ""));
  return mul(e, fma_of(e, parts.p, first, first), second);
}

/* tanh|x| = q / (q + 2) with q = exp(2|x|) - 1 = 2^n p + (2^n - 1): no cancellation for small x, where n = 0. */
LLVMValueRef zp_emit_tanh(zp_emit *e, LLVMValueRef x) {
  LLVMValueRef size = unary(e, "llvm.fabs", x);
  exponential parts = split_exp(e, clamp_above(e, add(e, size, size), is_f64(e) ? 44 : 20));
  LLVMValueRef scale = power_of_two(e, parts.n);
  LLVMValueRef q = fma_of(e, parts.p, scale, sub(e, scale, zp_emit_real(e, x, 1)));
  return copy_sign(e, divide(e, q, add(e, q, zp_emit_real(e, x, 2))), x);
}

LLVMValueRef zp_emit_sigmoid(zp_emit *e, LLVMValueRef x) {
  LLVMValueRef one = zp_emit_real(e, x, 1);
  return divide(e, one, add(e, one, zp_emit_exp(e, negate(e, x))));
}

LLVMValueRef zp_emit_sqrt(zp_emit *e, LLVMValueRef x) { return unary(e, "llvm.sqrt", x); }

/* ---- the logarithm ---- */

/* (2 atanh(s) / s - 2) / s^2 in s^2, for s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)]; errors of the
 * logarithm 8.1e-10 and 1.3e-18. */
static const double atanh_f32[] = {0.6666677704800108835, 0.3997745008809587294, 0.2987440670802330623};
static const double atanh_f64[] = {0.6666666666666735379, 0.3999999999940749963, 0.285714287441400017,
                                   0.2222219837851860066, 0.1818357516821816648, 0.1531375557134890041,
                                   0.1479906909733736971};

/* x = 2^exponent m */
static LLVMValueRef split_log(zp_emit *e, LLVMValueRef x, LLVMValueRef *exponent) {
  LLVMValueRef bits = to_bits(e, x), width = zp_emit_integer(e, x, mantissa_bits(e));
  LLVMValueRef above = LLVMBuildSub(e->builder, bits, zp_emit_integer(e, x, bits_of(e, M_SQRT1_2)), "");
  LLVMValueRef n = LLVMBuildAShr(e->builder, above, width, "");
  *exponent = LLVMBuildSIToFP(e->builder, n, LLVMTypeOf(x), "");
  return from_bits(e, LLVMBuildSub(e->builder, bits, LLVMBuildShl(e->builder, n, width, ""), ""));
}

static LLVMValueRef log_specials(zp_emit *e, LLVMValueRef x, LLVMValueRef result) {
  LLVMValueRef zero = zp_emit_real(e, x, 0), infinite = zp_emit_real(e, x, INFINITY);
  result = choose(e, LLVMRealOEQ, x, infinite, infinite, result);
  result = choose(e, LLVMRealOEQ, x, zero, zp_emit_real(e, x, -INFINITY), result);
  result = choose(e, LLVMRealOLT, x, zero, zp_emit_real(e, x, NAN), result);
  return choose(e, LLVMRealUNO, x, x, x, result);
}

/* With f = m - 1: log(m) = 2 atanh(s) = f - s (f - s^2 r), n ln(2) added in two parts. */
LLVMValueRef zp_emit_log(zp_emit *e, LLVMValueRef x) {
  double lift = is_f64(e) ? 54 : 24; /* brings subnormal numbers into the normal range */
  LLVMValueRef smallest = zp_emit_real(e, x, is_f64(e) ? 0x1p-1022 : 0x1p-126), exponent;
  LLVMValueRef scaled = mul(e, x, zp_emit_real(e, x, exp2(lift)));
  LLVMValueRef m = split_log(e, choose(e, LLVMRealOLT, x, smallest, scaled, x), &exponent);
  LLVMValueRef offset = choose(e, LLVMRealOLT, x, smallest, zp_emit_real(e, x, lift), zp_emit_real(e, x, 0));
  exponent = sub(e, exponent, offset);
  LLVMValueRef f = sub(e, m, zp_emit_real(e, x, 1));
  LLVMValueRef s = divide(e, f, add(e, m, zp_emit_real(e, x, 1))), square = mul(e, s, s);
  LLVMValueRef series = is_f64(e) ? polynomial(e, square, atanh_f64, COUNT(atanh_f64))
                                  : polynomial(e, square, atanh_f32, COUNT(atanh_f32));
  LLVMValueRef inner = fma_of(e, negate(e, square), series, f);
  LLVMValueRef correction = negate(e, mul(e, s, inner));
  subtract_n_ln2(e, negate(e, exponent), &correction);
  return log_specials(e, x, add(e, f, correction));
}

/* ---- the error function ---- */

/* erf(x) / x in x^2 on |x| <= 1; errors 1.3e-9 and 7.4e-18 relative. */
static const double erf_small_f32[] = {1.128379165729559368,    -0.3761262583746510419,  0.1128358524860563475,
                                       -0.02685381458207251743, 0.005188330482592487834, -0.0008010202699272506787,
                                       7.853849828429408839e-5};
static const double erf_small_f64[] = {1.128379167095512566,     -0.3761263890318352002,   0.1128379167094420031,
                                       -0.02686617064311341372,  0.005223977606130842167,  -0.0008548325929766244298,
                                       0.0001205529358693694998, -1.492471243953481411e-5, 1.644713269978662101e-6,
                                       -1.6206318752969209e-7,   1.371098870419052312e-8,  -7.779462971761596892e-10};
/* exp(x^2) erfc(x) in (x - 2) / (x + 2), on [1, 4] for f32 and [1, 6] for f64; errors of erf 1.1e-8 and 2.5e-17
 * absolute. Beyond, erf rounds to 1. */
static const double erfc_f32[] = {0.2553961352340854029, -0.4271867671452979971, 0.2414738838250702215,
                                  -0.08076647786509868576, -0.00242206949141412372};
static const double erfc_f64[] = {0.2553956763105070716,     -0.4271858474139429379,    0.2416581942410408123,
                                  -0.07897858103682292296,   0.003732892504396605396,   0.006997464544102592076,
                                  -0.0008471351729975760879, -0.0009820557433953616495, 4.304322588328261668e-5,
                                  0.0001740836794124029565,  3.275379811906272905e-5,   -1.192242120598083337e-5};

LLVMValueRef zp_emit_erf(zp_emit *e, LLVMValueRef x) {
  LLVMValueRef size = clamp_above(e, unary(e, "llvm.fabs", x), is_f64(e) ? 6 : 4), square = mul(e, size, size);
  LLVMValueRef two = zp_emit_real(e, x, 2), one = zp_emit_real(e, x, 1);
  LLVMValueRef small = is_f64(e) ? polynomial(e, square, erf_small_f64, COUNT(erf_small_f64))
                                 : polynomial(e, square, erf_small_f32, COUNT(erf_small_f32));
  LLVMValueRef t = divide(e, sub(e, size, two), add(e, size, two));
  LLVMValueRef tail =
      is_f64(e) ? polynomial(e, t, erfc_f64, COUNT(erfc_f64)) : polynomial(e, t, erfc_f32, COUNT(erfc_f32));
  LLVMValueRef large = sub(e, one, mul(e, zp_emit_exp(e, negate(e, square)), tail));
  return copy_sign(e, choose(e, LLVMRealOLT, size, one, mul(e, size, small), large), x);
}
