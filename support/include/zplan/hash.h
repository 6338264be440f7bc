/* FNV-1a, 64 bits: names and plan identity, not security. */
#ifndef ZPLAN_HASH_H
#define ZPLAN_HASH_H

#include <stddef.h>
#include <stdint.h>

#define ZP_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t zp_hash(uint64_t start, const void *data, size_t len);

#endif
