/* SPDX-License-Identifier: Apache-2.0 */
/* Token texts and their ids. */
#include "tokenize.h"
#include <zplan/hash.h>

void vocabulary_init(vocabulary *v, zp_arena *arena, int64_t tokens) {
  uint64_t slots = 16;
  while (slots < 2 * (uint64_t)tokens) slots *= 2;
  *v = (vocabulary){ZP_NEW_ARRAY(arena, token_text, slots), slots - 1};
}

/* The slot that holds the text, or the empty one where it belongs. */
static token_text *slot_of(const vocabulary *v, const char *text, size_t len) {
  uint64_t at = zp_hash(ZP_HASH_START, text, len) & v->mask;
  while (v->slots[at].text && (v->slots[at].len != len || memcmp(v->slots[at].text, text, len) != 0))
    at = (at + 1) & v->mask;
  return &v->slots[at];
}

void vocabulary_add(vocabulary *v, const char *text, size_t len, int32_t id) {
  *slot_of(v, text, len) = (token_text){text, len, id};
}

int32_t vocabulary_find(const vocabulary *v, const char *text, size_t len) {
  const token_text *slot = slot_of(v, text, len);
  return slot->text ? slot->id : -1;
}

int byte_text(unsigned char byte, char out[2]) {
  unsigned point = byte;
  if (byte <= 32) /* those that are not printable, in their order: 0-32, 127-160, 173 */
    point = 256u + byte;
  else if (byte >= 127 && byte <= 160)
    point = 256u + 33 + (byte - 127u);
  else if (byte == 173)
    point = 256u + 67;
  if (point < 128) {
    out[0] = (char)point;
    return 1;
  }
  out[0] = (char)(0xC0 | point >> 6);
  out[1] = (char)(0x80 | (point & 0x3F));
  return 2;
}
