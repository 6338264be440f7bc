/* SPDX-License-Identifier: Apache-2.0 */
/* One word to pieces of WordPiece (Wu et al. 2016, arXiv 1609.08144, as BERT reads them): the longest token that the
 * rest of the word begins with, again and again; after the first one tokens begin with a prefix, "##". A word that
 * cannot be cut so, or that has too many characters, is the unknown token alone. */
#include "tokenize.h"

static const int32_t *unknown(wordpiece *p, int len, int *n) {
  p->ids.len = p->ends.len = 0;
  zp_push(p->arena, &p->ids, p->unknown);
  zp_push(p->arena, &p->ends, len);
  *n = 1;
  return p->ids.data;
}

/* The longest token that begins at `begin`; *end: where it ends. -1: none. */
static int32_t longest(wordpiece *p, const char *word, int begin, int len, int *end) {
  int before = begin > 0 ? (int)strlen(p->prefix) : 0;
  p->key.len = 0;
  zp_reserve(p->arena, &p->key, before + len - begin + 1);
  memcpy(p->key.data, p->prefix, (size_t)before);
  memcpy(p->key.data + before, word + begin, (size_t)(len - begin));
  for (*end = len; *end > begin; (*end)--) {
    bool inside = *end < len && ((unsigned char)word[*end] & 0xC0) == 0x80;
    int32_t id = inside ? -1 : vocabulary_find(p->vocabulary, p->key.data, (size_t)(before + *end - begin));
    if (id >= 0) return id;
  }
  return -1;
}

const int32_t *wordpiece_word(wordpiece *p, const char *word, int len, int *n) {
  int count = 0;
  for (int i = 0; i < len; i++) count += ((unsigned char)word[i] & 0xC0) != 0x80;
  if (count > p->most_characters) return unknown(p, len, n);
  p->ids.len = p->ends.len = 0;
  for (int begin = 0, end; begin < len; begin = end) {
    int32_t id = longest(p, word, begin, len, &end);
    if (id < 0) return unknown(p, len, n);
    zp_push(p->arena, &p->ids, id);
    zp_push(p->arena, &p->ends, end);
  }
  *n = p->ids.len;
  return p->ids.data;
}
