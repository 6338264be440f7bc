/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a: byte by byte, the same value on every machine. */
#include <zplan/hash.h>

#include <assert.h>

uint64_t zp_hash(uint64_t start, const void *data, size_t len) {
  assert(data || len == 0);
  const unsigned char *bytes = data;
  uint64_t hash = start;
  for (size_t i = 0; i < len; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
  return hash;
}
