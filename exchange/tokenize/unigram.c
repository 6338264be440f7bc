/* SPDX-License-Identifier: Apache-2.0 */
/* One word to pieces of a unigram model (Kudo 2018): the way through the word with the greatest sum of scores, by its
 * best end at every position (Viterbi). Ties go to the way that was found first: earlier beginnings of the last piece.
 * A character that no piece begins and ends with costs as much as the rarest piece and 10 more, as in SentencePiece. */
#include "tokenize.h"

#include <math.h>
#include <stdlib.h>

static const double unknown_penalty = 10;

static int by_text(const void *a, const void *b) {
  const piece *x = a, *y = b;
  int common = x->len < y->len ? x->len : y->len, order = memcmp(x->text, y->text, (size_t)common);
  if (order == 0) order = (x->len > y->len) - (x->len < y->len);
  return order ? order : (x->id > y->id) - (x->id < y->id);
}

void unigram_sort(unigram *u) {
  double least = INFINITY;
  int n = u->pieces.len, kept = 0;
  piece *p = u->pieces.data;
  for (int i = 0; i < n; i++) least = fmin(least, p[i].score);
  u->unknown_score = least - unknown_penalty;
  qsort(p, (size_t)n, sizeof *p, by_text);
  for (int i = 0; i < n; i++) {
    bool last = i + 1 == n || p[i].len != p[i + 1].len || memcmp(p[i].text, p[i + 1].text, (size_t)p[i].len) != 0;
    if (last && p[i].len > 0) p[kept++] = p[i];
  }
  u->pieces.len = kept;
  for (int byte = 0, i = 0; byte <= 256; byte++) {
    while (i < kept && (unsigned char)p[i].text[0] < byte) i++;
    u->first_of[byte] = i;
  }
}

/* The first of the pieces [low, high), which agree up to `at`, whose byte there is not below `byte`; shorter ones,
 * which have none, are below all. */
static int bound(const unigram *u, int low, int high, int at, int byte) {
  while (low < high) {
    int middle = low + (high - low) / 2;
    const piece *p = &u->pieces.data[middle];
    if (at >= p->len || (unsigned char)p->text[at] < byte)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void offer(best_end *end, double score, int begin, int32_t id) {
  if (end->begin < 0 || score > end->score) *end = (best_end){score, begin, id};
}

/* All pieces that begin at `begin`, and the unknown character where none is one character long. */
static void go_on(unigram *u, const char *word, int len, int begin) {
  int character = character_bytes((unsigned char)word[begin]);
  int low = u->first_of[(unsigned char)word[begin]], high = u->first_of[(unsigned char)word[begin] + 1];
  double score = u->best.data[begin].score;
  bool single = false;
  for (int at = 1; low < high; at++) {
    const piece *p = &u->pieces.data[low];
    if (p->len == at) { /* the shortest stands first */
      offer(&u->best.data[begin + at], score + p->score, begin, p->id);
      single |= at == character;
      low++;
    }
    if (begin + at >= len) break;
    int byte = (unsigned char)word[begin + at];
    low = bound(u, low, high, at, byte);
    high = bound(u, low, high, at, byte + 1);
  }
  if (!single) offer(&u->best.data[begin + character], score + u->unknown_score, begin, -1);
}

/* Ids from the end backwards, then turned round. Unknown characters in a row are one unknown token, or all their
 * bytes. */
static bool collect(unigram *u, const char *word, int len, int *where) {
  int32_t before = 0;
  for (int end = len; end > 0; end = u->best.data[end].begin) {
    const best_end *b = &u->best.data[end];
    if (b->id >= 0) {
      zp_push(u->arena, &u->ids, b->id);
    } else if (u->other.bytes) {
      for (int i = end - 1; i >= b->begin; i--) zp_push(u->arena, &u->ids, u->other.of_byte[(unsigned char)word[i]]);
    } else if (u->other.unknown < 0) {
      *where = b->begin;
      return false;
    } else if (before >= 0) {
      zp_push(u->arena, &u->ids, u->other.unknown);
    }
    before = b->id;
  }
  for (int i = 0, k = u->ids.len - 1; i < k; i++, k--) {
    int32_t id = u->ids.data[i];
    u->ids.data[i] = u->ids.data[k];
    u->ids.data[k] = id;
  }
  return true;
}

const int32_t *unigram_word(unigram *u, const char *word, int len, int *n) {
  const int32_t *known = cache_find(&u->cache, word, len, n);
  if (known) return known;
  u->best.len = u->ids.len = 0;
  zp_reserve(u->arena, &u->best, len + 1);
  for (int i = 0; i <= len; i++) u->best.data[i] = (best_end){.begin = -1};
  for (int i = 0; i < len; i += character_bytes((unsigned char)word[i])) go_on(u, word, len, i);
  if (!collect(u, word, len, n)) return NULL;
  cache_keep(&u->cache, word, len, u->ids.data, u->ids.len);
  *n = u->ids.len;
  return u->ids.data;
}
