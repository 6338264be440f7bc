/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011):
 * the reference for every kernel that draws numbers. */
#include <string.h>
#include <zplan/philox.h>

#include <assert.h>

static const uint32_t multiplier[2] = {0xD2511F53, 0xCD9E8D57};
static const uint32_t weyl[2] = {0x9E3779B9, 0xBB67AE85}; /* golden ratio, sqrt(3) - 1 */

void zp_philox4x32(const uint32_t key_in[2], const uint32_t counter[4], uint32_t out[4]) {
  uint32_t key[2] = {key_in[0], key_in[1]};
  memcpy(out, counter, 4 * sizeof *out);
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)multiplier[0] * out[0], b = (uint64_t)multiplier[1] * out[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ out[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ out[3] ^ key[1],
                        (uint32_t)a};
    memcpy(out, next, sizeof next);
    key[0] += weyl[0];
    key[1] += weyl[1];
  }
}

double zp_philox_uniform(uint64_t seed, uint64_t step, uint64_t sample, uint64_t stream, uint64_t instance,
                         uint64_t element) {
  assert(stream <= UINT16_MAX && instance <= UINT16_MAX);
  assert(step <= UINT32_MAX && sample <= UINT32_MAX && element / 4 <= UINT32_MAX);
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, word[4];
  uint32_t counter[4] = {(uint32_t)(element / 4), (uint32_t)(stream << 16 | instance), (uint32_t)sample,
                         (uint32_t)step};
  zp_philox4x32(key, counter, word);
  return word[element % 4] * 0x1p-32;
}
