/* SPDX-License-Identifier: Apache-2.0 */
/* The random stream of all plans: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011). A number is a function of what it is for, so it does not depend on the layout, the thread or the order. */
#include <assert.h>
#include <math.h>
#include <zplan/zpk.h>

void zpk_philox(uint32_t counter[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * counter[0], b = (uint64_t)0xCD9E8D57u * counter[2];
    uint32_t c1 = counter[1], c3 = counter[3];
    counter[0] = (uint32_t)(b >> 32) ^ c1 ^ key0;
    counter[1] = (uint32_t)b;
    counter[2] = (uint32_t)(a >> 32) ^ c3 ^ key1;
    counter[3] = (uint32_t)a;
    key0 += 0x9E3779B9u; /* Weyl sequences of the golden ratio and of sqrt(3) - 1 */
    key1 += 0xBB67AE85u;
  }
}

double zpk_philox_uniform(uint64_t seed, uint64_t step, uint64_t sample, uint64_t stream, uint64_t instance,
                          uint64_t element) {
  uint32_t word[4] = {(uint32_t)(element / 4), (uint32_t)(stream << 16 | instance), (uint32_t)sample, (uint32_t)step};
  zpk_philox(word, (uint32_t)seed, (uint32_t)(seed >> 32));
  return word[element % 4] * 0x1p-32;
}

/* ---- initial weights ---- */

/* A block of four elements. Weights draw from a key of their own (the tag is "INIT"), with the block and the
 * parameter's name as counter. */
static void draw_block(uint64_t seed, uint64_t name_hash, uint64_t block, uint32_t word[4]) {
  word[0] = (uint32_t)block;
  word[1] = (uint32_t)(block >> 32);
  word[2] = (uint32_t)name_hash;
  word[3] = (uint32_t)(name_hash >> 32);
  zpk_philox(word, (uint32_t)seed, (uint32_t)(seed >> 32) ^ 0x494E4954u);
}

/* Box-Muller: two words make two normal numbers, the even element the cosine and the odd one the sine. */
static void make_normal(const uint32_t word[2], double mean, double std, double out[2]) {
  const double two_pi = 0x1.921fb54442d18p2;
  double radius = sqrt(-2 * log((word[0] + 1.0) * 0x1p-32)), angle = two_pi * (word[1] * 0x1p-32);
  out[0] = mean + std * radius * cos(angle);
  out[1] = mean + std * radius * sin(angle);
}

void zpk_initial_weights(uint64_t seed, uint64_t name_hash, uint64_t first, int64_t n, int kind, double a, double b,
                         double *out) {
  enum { NORMAL, UNIFORM, CONSTANT, BLOCK = 4 };
  assert(n >= 0 && kind >= NORMAL && kind <= CONSTANT && out);
  uint64_t end = first + (uint64_t)n;
  for (uint64_t at = first - first % BLOCK; at < end; at += BLOCK) {
    uint32_t word[BLOCK];
    double x[BLOCK] = {a, a, a, a};
    if (kind != CONSTANT) draw_block(seed, name_hash, at / BLOCK, word);
    for (int i = 0; i < BLOCK && kind == UNIFORM; i++) x[i] = a + (b - a) * (word[i] * 0x1p-32);
    for (int i = 0; i < BLOCK && kind == NORMAL; i += 2) make_normal(word + i, a, b, x + i);
    for (uint64_t i = 0; i < BLOCK; i++)
      if (at + i >= first && at + i < end) out[at + i - first] = x[i];
  }
}

double zpk_initial_weight(uint64_t seed, uint64_t name_hash, uint64_t element, int kind, double a, double b) {
  double x;
  zpk_initial_weights(seed, name_hash, element, 1, kind, a, b, &x);
  return x;
}
