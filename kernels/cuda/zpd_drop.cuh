/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout of attention's probabilities: which keys a query keeps, the same numbers as on CPUs (zpk_attention_dropout).
 * Four neighbouring keys of a query have one call of Philox. Shared by both kinds of attention; a model without has no
 * ZPD_DROPOUT in its text, and every factor is 1. */
#ifndef ZPD_DROP_CUH
#define ZPD_DROP_CUH

#include "zpd_philox.cuh"

#ifdef ZPD_DROPOUT
ZPD_DEVICE bool zpd_drops(const zpd_attention &a) { return a.keep_from != 0; }

/* Bit i: whether the query of a row of all heads' keeps key 4 * group + i of its sample, i < 4. */
ZPD_DEVICE unsigned zpd_keep_group(const zpd_attention &a, unsigned row, unsigned group) {
  unsigned x[4] = {row * (unsigned)a.drop_groups + group, a.stream_instance, a.first_sample + blockIdx.z, a.drop_step};
  zpd_philox(x, (unsigned)a.seed, (unsigned)(a.seed >> 32));
  unsigned kept = 0;
  ZPD_EACH (w, 4) kept |= (unsigned)(x[w] >= a.keep_from) << w;
  return kept;
}

/* Bit i: whether a query of a head of this rank keeps key + i, i < 4; `key` is a multiple of four. Of a context rank's
 * stretches the first key has any position, and what follows it may stand in the opposite order. */
#ifdef ZPD_CONTEXT_KEYS
ZPD_DEVICE unsigned zpd_keep_four(const zpd_attention &a, zpd_int head, int query, int key) {
  const int at = (int)a.drop_query + (a.drop_turned ? -query : query);
  const int first = (int)a.drop_key + (a.drop_turned ? -key - 3 : key); /* the lowest; of no key: below 0 */
  const unsigned row = (unsigned)(a.first_head + head) * (unsigned)a.drop_queries + (unsigned)at;
  const int past = first & 3, group = first >> 2;
  unsigned kept = zpd_keep_group(a, row, (unsigned)group);
  if (past) kept |= zpd_keep_group(a, row, (unsigned)group + 1) << 4;
  kept = kept >> past & 15;
  return a.drop_turned ? (kept & 1) << 3 | (kept & 2) << 1 | (kept & 4) >> 1 | kept >> 3 : kept;
}
#else
ZPD_DEVICE unsigned zpd_keep_four(const zpd_attention &a, zpd_int head, int query, int key) {
  const unsigned row = (unsigned)(a.first_head + head) * (unsigned)a.drop_queries + (unsigned)query;
  return zpd_keep_group(a, row, (unsigned)key / 4);
}
#endif

/* Bits of lanes that differ in the bits FIRST and SECOND of their number. */
template <int FIRST, int SECOND> ZPD_DEVICE unsigned zpd_join_bits(unsigned bits) {
  bits |= __shfl_xor_sync(0xffffffffu, bits, FIRST);
  return bits | __shfl_xor_sync(0xffffffffu, bits, SECOND);
}
#else
ZPD_DEVICE constexpr bool zpd_drops(const zpd_attention &) { return false; }
#endif

#endif
