/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a, 64 bits: names and plan identity, not security. */
#ifndef ZPLAN_HASH_H
#define ZPLAN_HASH_H

#include <stddef.h>
#include <stdint.h>

#define ZP_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t zp_hash(uint64_t start, const void *data, size_t len);

/* Hash of numbers by which a table in memory is looked up: a word at a time. */
static inline uint64_t zp_hash_numbers(const int64_t *number, size_t n) {
  uint64_t hash = 0;
  for (size_t i = 0; i < n; i++) hash = (hash ^ (uint64_t)number[i]) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
  return hash;
}

#endif
