/* SPDX-License-Identifier: Apache-2.0 */
/* The order of samples, of which nothing is remembered: it is computed for every sample on its own, from its number in
 * the run, so that no table has to be kept or resumed.
 *
 * The windows of a pass are permuted by a four-round Feistel network over the smallest even number of bits that holds
 * them, walked again until the result is one of them.
 *
 * Sources that are mixed take turns as a line is drawn by Bresenham: of the first n samples the first source has n w_0
 * to the nearest, w_0 its share of all weights; of the other samples, numbered among themselves, the second one has its
 * share of the weights that are left, and so on. So with k sources each has never more than (k - 1) / 2 samples more or
 * less than its share of those so far, and its samples come in its own order. Shares are kept to 2^-33. */
#include <assert.h>
#include <math.h>
#include "data.h"
#include "device.h"

/* ---- a permutation ---- */

static uint32_t feistel_round(uint64_t seed, uint64_t epoch, uint32_t round, uint32_t half) {
  uint32_t counter[4] = {half, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
  zpk_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
  return counter[0];
}

int64_t zpr_permute(uint64_t seed, uint64_t epoch, int64_t windows, int64_t index) {
  unsigned half_bits = 1;
  while (half_bits < 31 && ((int64_t)1 << (2 * half_bits)) < windows) half_bits++;
  uint64_t mask = ((uint64_t)1 << half_bits) - 1, x = (uint64_t)index;
  do {
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint32_t round = 0; round < 4; round++) {
      uint64_t next = left ^ (feistel_round(seed, epoch, round, (uint32_t)right) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits | right;
  } while (x >= (uint64_t)windows);
  return (int64_t)x;
}

/* ---- turns ---- */

#define ONE ((uint64_t)1 << 32)

zpr_mix zpr_mix_of(int n, const double *weights) {
  assert(n >= 1 && n <= ZPR_MOST_PARTS);
  zpr_mix mix = {.n = n};
  double left = 0;
  for (int i = n - 1; i >= 0; i--) { /* from the end: the last one has all that is left, whatever was rounded */
    assert(weights[i] > 0);
    left += weights[i];
    mix.share[i] = i == n - 1 ? ONE : (uint64_t)llround(weights[i] / left * (double)ONE);
  }
  return mix;
}

/* n * share to the nearest, halves up; no product of two large numbers. */
static int64_t share_of(int64_t n, uint64_t share) {
  uint64_t high = (uint64_t)n >> 32, low = (uint64_t)n & (ONE - 1);
  return (int64_t)(high * share + ((low * share + ONE / 2) >> 32));
}

int zpr_mix_source(const zpr_mix *mix, int64_t n, int64_t *sample) {
  assert(n >= 0);
  for (int i = 0;; i++) {
    int64_t before = share_of(n, mix->share[i]);
    if (i == mix->n - 1 || share_of(n + 1, mix->share[i]) > before) {
      *sample = i == mix->n - 1 ? n : before;
      return i;
    }
    n -= before;
  }
}

void zpr_mix_count(const zpr_mix *mix, int64_t n, int64_t count[ZPR_MOST_PARTS]) {
  assert(n >= 0);
  for (int i = 0; i < mix->n; i++) {
    count[i] = i == mix->n - 1 ? n : share_of(n, mix->share[i]);
    n -= count[i];
  }
}
