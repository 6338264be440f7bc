/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's `precompiled_charsmap`: four bytes with the size of a trie, the trie, then replacements that end with
 * NUL bytes. The trie is Darts-clone's double array (github.com/s-yata/darts-clone, public header): a unit of 32 bits
 * has a label, an offset to its children and a mark that one of them is a value. Applied as Hugging Face's tokenizers
 * do, whose files these are: a grapheme of less than six bytes as a whole, else its characters; the first replacement
 * found on the way stands for all of it. */
#include "tokenize.h"

#include <unigbrk.h>

static const uint32_t leaf_mark = 1u << 8, value_mask = 0x7FFFFFFFu, label_mask = 0x800000FFu;

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6); }

/* ---- reading ---- */

static int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* NULL: it is no base64. */
static unsigned char *decode(zp_arena *arena, const char *text, size_t *len) {
  size_t n = strlen(text), used = 0;
  unsigned char *bytes = zp_alloc(arena, n / 4 * 3 + 3);
  uint32_t bits = 0;
  if (n % 4 != 0) return NULL;
  while (n > 0 && text[n - 1] == '=' && n % 4 != 2) n--;
  for (size_t i = 0; i < n; i++) {
    int digit = digit_of(text[i]);
    if (digit < 0) return NULL;
    bits = bits << 6 | (uint32_t)digit;
    if (i % 4 > 0) bytes[used++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
  }
  *len = used;
  return bytes;
}

bool charsmap_read(charsmap *m, zp_arena *arena, const char *base64) {
  size_t len;
  const unsigned char *bytes = decode(arena, base64, &len);
  if (!bytes || len < 4) return false;
  size_t trie = bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 24;
  if (trie % 4 != 0 || trie == 0 || trie >= len - 4 || bytes[len - 1] != 0) return false;
  uint32_t *units = ZP_NEW_ARRAY(arena, uint32_t, trie / 4);
  for (size_t i = 0; i < trie; i++) units[i / 4] |= (uint32_t)bytes[4 + i] << 8 * (i % 4);
  *m = (charsmap){units, trie / 4, (const char *)bytes + 4 + trie, len - 4 - trie};
  return find_not_utf8((const unsigned char *)m->replacements, m->n_replacements) == m->n_replacements;
}

/* ---- applying ---- */

enum { NONE = -1, DAMAGED = -2 };

/* Where the replacement begins for the shortest beginning of the text that has one. */
static int64_t look_up(const charsmap *m, const char *text, size_t len) {
  size_t at = offset_of(m->units[0]);
  for (size_t i = 0; i < len && text[i]; i++) {
    at ^= (unsigned char)text[i];
    if (at >= m->n_units) return DAMAGED;
    uint32_t unit = m->units[at];
    if ((unit & label_mask) != (unsigned char)text[i]) return NONE;
    at ^= offset_of(unit);
    if (at >= m->n_units) return DAMAGED;
    if (!(unit & leaf_mark)) continue;
    size_t value = m->units[at] & value_mask;
    bool inside = value < m->n_replacements && ((unsigned char)m->replacements[value] & 0xC0) != 0x80;
    return inside ? (int64_t)value : DAMAGED;
  }
  return NONE;
}

static void put(zp_arena *arena, characters *out, const char *text, size_t len) {
  zp_reserve(arena, out, out->len + (int)len);
  memcpy(out->data + out->len, text, len);
  out->len += (int)len;
}

/* True: replaced, or damaged. */
static bool replace(const charsmap *m, zp_arena *arena, const char *text, size_t len, characters *out, bool *damaged) {
  int64_t at = look_up(m, text, len);
  *damaged |= at == DAMAGED;
  if (at >= 0) put(arena, out, m->replacements + at, strlen(m->replacements + at));
  return at != NONE;
}

bool charsmap_apply(const charsmap *m, zp_arena *arena, const char *text, size_t len, characters *out) {
  const uint8_t *begin = (const uint8_t *)text, *end = begin + len;
  bool damaged = false;
  for (const uint8_t *next; begin < end && !damaged; begin = next) {
    next = u8_grapheme_next(begin, end);
    size_t bytes = (size_t)(next - begin), one;
    if (bytes < 6 && replace(m, arena, (const char *)begin, bytes, out, &damaged)) continue;
    for (const uint8_t *c = begin; c < next && !damaged; c += one) {
      one = (size_t)character_bytes(*c);
      if (!replace(m, arena, (const char *)c, one, out, &damaged)) put(arena, out, (const char *)c, one);
    }
  }
  return !damaged;
}
