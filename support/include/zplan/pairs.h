/* SPDX-License-Identifier: Apache-2.0 */
/* Two numbers at once, for loops whose maximum would else wait for the one before it. The same bits as one by one. */
#ifndef ZPLAN_PAIRS_H
#define ZPLAN_PAIRS_H

#include <stdbool.h>
#include <zplan/seconds.h>

#ifdef __SSE2__
#include <emmintrin.h>
typedef __m128d zp_pair;
static inline zp_pair zp_pair_at(const double *x) { return _mm_loadu_pd(x); }
static inline zp_pair zp_pair_at_aligned(const double *x) { return _mm_load_pd(x); } /* to 16 bytes */
static inline zp_pair zp_pair_of(double a, double b) { return _mm_set_pd(b, a); }
static inline zp_pair zp_pair_twice(double x) { return _mm_set1_pd(x); }
static inline void zp_pair_put(double *x, zp_pair p) { _mm_storeu_pd(x, p); }
static inline zp_pair zp_pair_add(zp_pair a, zp_pair b) { return _mm_add_pd(a, b); }
static inline zp_pair zp_pair_less(zp_pair a, zp_pair b) { return _mm_sub_pd(a, b); }
static inline zp_pair zp_pair_times(zp_pair a, zp_pair b) { return _mm_mul_pd(a, b); }
static inline zp_pair zp_pair_later(zp_pair a, zp_pair b) { return _mm_max_pd(a, b); }
static inline zp_pair zp_pair_sooner(zp_pair a, zp_pair b) { return _mm_min_pd(a, b); }
static inline bool zp_pair_any_above(zp_pair a, zp_pair b) { return _mm_movemask_pd(_mm_cmpgt_pd(a, b)) != 0; }
static inline bool zp_pair_any_reaches(zp_pair a, zp_pair b) { return _mm_movemask_pd(_mm_cmpge_pd(a, b)) != 0; }
static inline double zp_pair_latest(zp_pair p) {
  return zp_later(_mm_cvtsd_f64(p), _mm_cvtsd_f64(_mm_unpackhi_pd(p, p)));
}
#else
typedef struct zp_pair {
  double a, b;
} zp_pair;
static inline zp_pair zp_pair_at(const double *x) { return (zp_pair){x[0], x[1]}; }
static inline zp_pair zp_pair_at_aligned(const double *x) { return zp_pair_at(x); }
static inline zp_pair zp_pair_of(double a, double b) { return (zp_pair){a, b}; }
static inline zp_pair zp_pair_twice(double x) { return (zp_pair){x, x}; }
static inline void zp_pair_put(double *x, zp_pair p) { x[0] = p.a, x[1] = p.b; }
static inline zp_pair zp_pair_add(zp_pair a, zp_pair b) { return (zp_pair){a.a + b.a, a.b + b.b}; }
static inline zp_pair zp_pair_less(zp_pair a, zp_pair b) { return (zp_pair){a.a - b.a, a.b - b.b}; }
static inline zp_pair zp_pair_times(zp_pair a, zp_pair b) { return (zp_pair){a.a * b.a, a.b * b.b}; }
static inline zp_pair zp_pair_later(zp_pair a, zp_pair b) { return (zp_pair){zp_later(a.a, b.a), zp_later(a.b, b.b)}; }
static inline zp_pair zp_pair_sooner(zp_pair a, zp_pair b) {
  return (zp_pair){zp_sooner(a.a, b.a), zp_sooner(a.b, b.b)};
}
static inline bool zp_pair_any_above(zp_pair a, zp_pair b) { return a.a > b.a || a.b > b.b; }
static inline bool zp_pair_any_reaches(zp_pair a, zp_pair b) { return a.a >= b.a || a.b >= b.b; }
static inline double zp_pair_latest(zp_pair p) { return zp_later(p.a, p.b); }
#endif

#endif
