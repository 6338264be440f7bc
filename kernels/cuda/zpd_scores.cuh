/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to scores between the product and the softmax: soft caps, and biases by distance, ALiBi's and of a table
 * (ZPD_BIAS), as zpk_attention_args says. Shared by both kinds of attention. A model that has none pays nothing: its
 * text has no ZPD_SCORES, and all of this is the identity. */
#ifndef ZPD_SCORES_CUH
#define ZPD_SCORES_CUH

#include "zpd_bias.cuh"

#if defined(ZPD_BIAS) && !defined(ZPD_SCORES)
#define ZPD_SCORES
#endif

#ifdef ZPD_SCORES
/* How scores of one head are bent. They are products times a scale; here they stay in units of the products, so that
 * everything after is the same with and without. */
struct zpd_bend {
  real inverse, cap, slope;
#ifdef ZPD_BIAS
  const real *line; /* of the head, from distance 0 on; NULL: none */
  real per_scale;
  int most; /* the largest distance */
#endif

  /* head: of this rank. */
  __device__ __forceinline__ void begin(const zpd_attention &a, zpd_int head, real scale) {
    inverse = a.softcap > 0 ? scale / (real)a.softcap : 0;
    cap = a.softcap > 0 ? (real)a.softcap / scale : 0;
    slope = a.alibi_heads > 0 ? slope_of(a.first_head + head, a.alibi_heads) / scale : 0;
#ifdef ZPD_BIAS
    most = (int)a.S - 1;
    line = a.lines ? (const real *)a.lines + head * 2 * a.S + most : nullptr;
    per_scale = 1 / scale;
#endif
  }
  static __device__ __forceinline__ real slope_of(zpd_int head, zpd_int heads) {
    zpd_int power = 1;
    while (2 * power <= heads) power *= 2;
    const int number = (int)(head < power ? 2 * (head + 1) : 2 * (head - power) + 1);
#ifdef ZPD_NARROW
    return exp2f(-4.0f * (float)number / (float)power);
#else
    return (real)exp2(-4.0 * number / (double)power);
#endif
  }
  /* A product to a score; *grad: of the score by the product. */
  __device__ __forceinline__ real score(real product, int query, int key, real *grad) const {
    real bent = product;
    *grad = 1;
    if (cap != 0) {
      const real t = zpd_tanh(product * inverse);
      bent = t * cap;
      *grad = 1 - t * t;
    }
    const int behind = key - query;
#ifdef ZPD_BIAS
    /* Pairs that nobody sees have some bias of the line, too. */
    if (line) bent += per_scale * line[behind < -most ? -most : behind > most ? most : behind];
#endif
    return bent - slope * (real)(behind < 0 ? -behind : behind);
  }
};
#else
struct zpd_bend {
  __device__ __forceinline__ void begin(const zpd_attention &, zpd_int, real) {}
  __device__ __forceinline__ real score(real product, int, int, real *grad) const {
    *grad = 1;
    return product;
  }
};
#endif

#endif
