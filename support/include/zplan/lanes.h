/* SPDX-License-Identifier: Apache-2.0 */
/* Several numbers at once, for loops whose maximum would else wait for the one before it. The same bits as one by one.
 *
 * A file of such loops is compiled twice where processors differ in how many numbers they take: as it is, and in a
 * second file that begins with `#pragma GCC target("avx2")` and includes it. Its functions have two names then
 * (ZP_LANED), and who calls them asks zp_has_wide_lanes which to take. */
#ifndef ZPLAN_LANES_H
#define ZPLAN_LANES_H

#include <stdbool.h>
#include <stdint.h>
#include <zplan/seconds.h>

/* Are there second files? Other compilers do not read the pragma. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ZP_WIDE_LANES 1
static inline bool zp_has_wide_lanes(void) { return __builtin_cpu_supports("avx2"); }
#else
#define ZP_WIDE_LANES 0
static inline bool zp_has_wide_lanes(void) { return false; }
#endif

/* The name of a function that is compiled twice. */
#ifdef __AVX2__
#define ZP_LANED(name) name##_wide
#else
#define ZP_LANED(name) name##_narrow
#endif

#if defined(__AVX2__)
#include <immintrin.h>
enum { ZP_LANES = 4 };
typedef __m256d zp_lanes;
static inline zp_lanes zp_lanes_at(const double *x) { return _mm256_loadu_pd(x); }
static inline zp_lanes zp_lanes_at_aligned(const double *x) { return _mm256_loadu_pd(x); }
static inline zp_lanes zp_lanes_gather(const double *x, const int32_t *i) {
  return _mm256_set_pd(x[i[3]], x[i[2]], x[i[1]], x[i[0]]);
}
static inline zp_lanes zp_lanes_all(double x) { return _mm256_set1_pd(x); }
static inline void zp_lanes_put(double *x, zp_lanes p) { _mm256_storeu_pd(x, p); }
static inline zp_lanes zp_lanes_add(zp_lanes a, zp_lanes b) { return _mm256_add_pd(a, b); }
static inline zp_lanes zp_lanes_less(zp_lanes a, zp_lanes b) { return _mm256_sub_pd(a, b); }
static inline zp_lanes zp_lanes_times(zp_lanes a, zp_lanes b) { return _mm256_mul_pd(a, b); }
static inline zp_lanes zp_lanes_later(zp_lanes a, zp_lanes b) { return _mm256_max_pd(a, b); }
static inline zp_lanes zp_lanes_sooner(zp_lanes a, zp_lanes b) { return _mm256_min_pd(a, b); }
static inline bool zp_lanes_any_above(zp_lanes a, zp_lanes b) {
  return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_GT_OQ)) != 0;
}
static inline bool zp_lanes_any_reaches(zp_lanes a, zp_lanes b) {
  return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_GE_OQ)) != 0;
}
static inline double zp_lanes_latest(zp_lanes p) {
  __m128d two = _mm_max_pd(_mm256_castpd256_pd128(p), _mm256_extractf128_pd(p, 1));
  return zp_later(_mm_cvtsd_f64(two), _mm_cvtsd_f64(_mm_unpackhi_pd(two, two)));
}
#elif defined(__SSE2__)
#include <emmintrin.h>
enum { ZP_LANES = 2 };
typedef __m128d zp_lanes;
static inline zp_lanes zp_lanes_at(const double *x) { return _mm_loadu_pd(x); }
static inline zp_lanes zp_lanes_at_aligned(const double *x) { return _mm_load_pd(x); } /* to 16 bytes */
static inline zp_lanes zp_lanes_gather(const double *x, const int32_t *i) { return _mm_set_pd(x[i[1]], x[i[0]]); }
static inline zp_lanes zp_lanes_all(double x) { return _mm_set1_pd(x); }
static inline void zp_lanes_put(double *x, zp_lanes p) { _mm_storeu_pd(x, p); }
static inline zp_lanes zp_lanes_add(zp_lanes a, zp_lanes b) { return _mm_add_pd(a, b); }
static inline zp_lanes zp_lanes_less(zp_lanes a, zp_lanes b) { return _mm_sub_pd(a, b); }
static inline zp_lanes zp_lanes_times(zp_lanes a, zp_lanes b) { return _mm_mul_pd(a, b); }
static inline zp_lanes zp_lanes_later(zp_lanes a, zp_lanes b) { return _mm_max_pd(a, b); }
static inline zp_lanes zp_lanes_sooner(zp_lanes a, zp_lanes b) { return _mm_min_pd(a, b); }
static inline bool zp_lanes_any_above(zp_lanes a, zp_lanes b) { return _mm_movemask_pd(_mm_cmpgt_pd(a, b)) != 0; }
static inline bool zp_lanes_any_reaches(zp_lanes a, zp_lanes b) { return _mm_movemask_pd(_mm_cmpge_pd(a, b)) != 0; }
static inline double zp_lanes_latest(zp_lanes p) {
  return zp_later(_mm_cvtsd_f64(p), _mm_cvtsd_f64(_mm_unpackhi_pd(p, p)));
}
#else
enum { ZP_LANES = 2 };
typedef struct zp_lanes {
  double a, b;
} zp_lanes;
static inline zp_lanes zp_lanes_at(const double *x) { return (zp_lanes){x[0], x[1]}; }
static inline zp_lanes zp_lanes_at_aligned(const double *x) { return zp_lanes_at(x); }
static inline zp_lanes zp_lanes_gather(const double *x, const int32_t *i) { return (zp_lanes){x[i[0]], x[i[1]]}; }
static inline zp_lanes zp_lanes_all(double x) { return (zp_lanes){x, x}; }
static inline void zp_lanes_put(double *x, zp_lanes p) { x[0] = p.a, x[1] = p.b; }
static inline zp_lanes zp_lanes_add(zp_lanes a, zp_lanes b) { return (zp_lanes){a.a + b.a, a.b + b.b}; }
static inline zp_lanes zp_lanes_less(zp_lanes a, zp_lanes b) { return (zp_lanes){a.a - b.a, a.b - b.b}; }
static inline zp_lanes zp_lanes_times(zp_lanes a, zp_lanes b) { return (zp_lanes){a.a * b.a, a.b * b.b}; }
static inline zp_lanes zp_lanes_later(zp_lanes a, zp_lanes b) {
  return (zp_lanes){zp_later(a.a, b.a), zp_later(a.b, b.b)};
}
static inline zp_lanes zp_lanes_sooner(zp_lanes a, zp_lanes b) {
  return (zp_lanes){zp_sooner(a.a, b.a), zp_sooner(a.b, b.b)};
}
static inline bool zp_lanes_any_above(zp_lanes a, zp_lanes b) { return a.a > b.a || a.b > b.b; }
static inline bool zp_lanes_any_reaches(zp_lanes a, zp_lanes b) { return a.a >= b.a || a.b >= b.b; }
static inline double zp_lanes_latest(zp_lanes p) { return zp_later(p.a, p.b); }
#endif

#endif
