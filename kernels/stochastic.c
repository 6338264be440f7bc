/* SPDX-License-Identifier: Apache-2.0 */
/* Additions to sums of gradients in bf16, rounded stochastically. The same bits as kernels/cuda/zpd_stochastic.cuh. */
#include <assert.h>
#include <zplan/zpd.h>
#include <zplan/zpk.h>
#include <zplan/zpk_narrow.h>

/* The words of the block of elements that `element` of the logical tensor is in. */
static void draw(const zpd_stochastic *a, int64_t element, uint32_t word[4]) {
  uint64_t block = (uint64_t)element / ZPD_STOCHASTIC_BLOCK;
  word[0] = (uint32_t)block;
  word[1] = a->addend;
  word[2] = (uint32_t)a->tensor;
  word[3] = (uint32_t)(a->tensor >> 32) ^ (uint32_t)(block >> 32);
  zpk_philox(word, a->key[0], a->key[1]);
}

/* Up by a spacing with the probability that the share of it between the two neighbours is; NaN stays one. */
static uint16_t round_by(float x, uint32_t random) {
  uint32_t bits = zpk_to_bits(x);
  return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : (bits + random) >> 16);
}

/* element: that of `begin` in the logical tensor. */
static void add_some(const zpd_stochastic *a, int64_t begin, int64_t end, int64_t element) {
  uint32_t word[4];
  for (int64_t i = begin; i < end; i++, element++) {
    int place = (int)(element % ZPD_STOCHASTIC_BLOCK);
    if (i == begin || place == 0) draw(a, element, word);
    float sum = a->add ? zpk_widen_bf16(a->sum[i]) + a->x[i] : a->x[i];
    a->sum[i] = round_by(sum, word[place / 2] >> place % 2 * 16 & 0xFFFF);
  }
}

void zpk_add_stochastic(const zpd_stochastic *a, int64_t begin, int64_t end) {
  assert(begin >= 0 && begin <= end && end <= a->count && a->first >= 0 && a->local_stride >= 1);
  for (int64_t i = begin, next; i < end; i = next) { /* neighbours of the share that are neighbours of the tensor */
    int64_t local = a->first + i, column = local % a->local_stride;
    next = i + a->local_stride - column < end ? i + a->local_stride - column : end;
    add_some(a, i, next, local / a->local_stride * a->stride + a->logical_first + column);
  }
}
