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

void zpk_add_stochastic(const zpd_stochastic *a, int64_t begin, int64_t end) {
  assert(begin >= 0 && end <= a->count && a->first >= 0 && a->local_stride >= 1);
  uint32_t word[4];
  int64_t drawn = -1;
  for (int64_t i = begin; i < end; i++) {
    int64_t local = a->first + i;
    int64_t element = local / a->local_stride * a->stride + a->logical_first + local % a->local_stride;
    if (element / ZPD_STOCHASTIC_BLOCK != drawn) {
      draw(a, element, word);
      drawn = element / ZPD_STOCHASTIC_BLOCK;
    }
    int64_t place = element % ZPD_STOCHASTIC_BLOCK;
    float sum = a->add ? zpk_widen_bf16(a->sum[i]) + a->x[i] : a->x[i];
    a->sum[i] = round_by(sum, word[place / 2] >> (place % 2 ? 16 : 0) & 0xFFFF);
  }
}
