/* SPDX-License-Identifier: Apache-2.0 */
/* Words that were cut lately and their ids. */
#include "tokenize.h"
#include <zplan/hash.h>

void cache_init(word_cache *c, zp_arena *arena) { c->slots = ZP_NEW_ARRAY(arena, cached_word, CACHED_WORDS); }

static cached_word *slot_of(const word_cache *c, const char *word, int len) {
  return &c->slots[zp_hash(ZP_HASH_START, word, (size_t)len) % CACHED_WORDS];
}

const int32_t *cache_find(const word_cache *c, const char *word, int len, int *n) {
  if (len > CACHED_BYTES) return NULL;
  const cached_word *slot = slot_of(c, word, len);
  if (slot->len != len || memcmp(slot->bytes, word, (size_t)len) != 0) return NULL;
  *n = slot->n;
  return slot->ids;
}

void cache_keep(word_cache *c, const char *word, int len, const int32_t *ids, int n) {
  if (len > CACHED_BYTES) return;
  cached_word *slot = slot_of(c, word, len);
  slot->len = (uint8_t)len;
  slot->n = (uint8_t)n;
  memcpy(slot->bytes, word, (size_t)len);
  memcpy(slot->ids, ids, sizeof *ids * (size_t)n);
}
