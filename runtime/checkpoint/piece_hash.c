/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of a piece of a checkpoint: of a file's header, or of one tensor in it.
 *
 * Every element (2, 4 or 8 bytes, little-endian, as an unsigned number v) at place i of its piece adds mix(v + (i + 1)
 * G) modulo 2^64. So ranks that write parts of a tensor hash them from memory while they write, in any order, and their
 * sums add up to the tensor's, whichever layout wrote it and whichever reads it.
 *
 * What it is good for: mix is a bijection of 64 bits, so one changed element always changes the sum; any other accident
 * (elements that are missing, exchanged, of an older checkpoint) goes unseen with a chance of about 2^-64. It is no
 * defence against somebody who wants to deceive: he writes a new manifest. About 1 ns an element. */
#include <assert.h>
#include <string.h>
#include "checkpoint.h"

static inline uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

#define ADD_ALL(type)                                                                                                  \
  for (int64_t i = 0; i < count; i++) {                                                                                \
    type v;                                                                                                            \
    memcpy(&v, (const char *)data + i * (int64_t)sizeof v, sizeof v);                                                  \
    sum += mix(v + (uint64_t)(first + i + 1) * UINT64_C(0x9e3779b97f4a7c15));                                          \
  }

uint64_t zpr_piece_sum(const void *data, int64_t first, int64_t count, int64_t element_bytes) {
  assert(element_bytes == 2 || element_bytes == 4 || element_bytes == 8);
  uint64_t sum = 0;
  if (element_bytes == 2)
    ADD_ALL(uint16_t)
  else if (element_bytes == 4)
    ADD_ALL(uint32_t)
  else
    ADD_ALL(uint64_t)
  return sum;
}
