/* SPDX-License-Identifier: Apache-2.0 */
/* Words of byte-level BPE against a search of all pairs for the least rank, and the alphabet of bytes. Whole files are
 * compared with Hugging Face's tokenizers in tests/interop/tokens.py. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../exchange/tokenize/tokenize.h"

enum { RULES = 60, LETTERS = 4, LONGEST = 400 };

/* Rule i joins rules[i].left and .right to id 256 + i. */
static void make_rules(merger *m, zp_arena *arena, merge_rule *rules, unsigned *seed) {
  merger_init(m, arena, RULES);
  for (int i = 0; i < 256; i++) m->of_byte[i] = i;
  for (int i = 0; i < RULES; i++) {
    bool again = true;
    while (again) { /* every pair has one rule */
      int choice = LETTERS + i, left = rand_r(seed) % choice, right = rand_r(seed) % choice;
      rules[i] = (merge_rule){left < LETTERS ? 'a' + left : 256 + left - LETTERS,
                              right < LETTERS ? 'a' + right : 256 + right - LETTERS, i, 256 + i};
      again = false;
      for (int k = 0; k < i; k++) again |= rules[k].left == rules[i].left && rules[k].right == rules[i].right;
    }
    merger_add(m, rules[i]);
  }
}

static int merge_slowly(const merge_rule *rules, int32_t *ids, int n) {
  for (;;) {
    int best = -1, at = -1;
    for (int i = 0; i + 1 < n; i++)
      for (int k = 0; k < (best < 0 ? RULES : best); k++)
        if (rules[k].left == ids[i] && rules[k].right == ids[i + 1]) best = k, at = i;
    if (best < 0) return n;
    ids[at] = rules[best].id;
    memmove(ids + at + 1, ids + at + 2, sizeof *ids * (size_t)(n - at - 2));
    n--;
  }
}

Test(tokenize, words_are_merged_by_rank_then_from_the_left) {
  unsigned seed = 7;
  for (int trial = 0; trial < 20; trial++) {
    zp_arena *arena = zp_arena_new("test");
    merger m = {0};
    merge_rule rules[RULES];
    make_rules(&m, arena, rules, &seed);
    for (int word = 0; word < 200; word++) {
      char text[LONGEST];
      int32_t want[LONGEST];
      int len = 1 + rand_r(&seed) % (word % 10 == 0 ? LONGEST : 12), n;
      for (int i = 0; i < len; i++) want[i] = text[i] = (char)('a' + rand_r(&seed) % LETTERS);
      int expected = merge_slowly(rules, want, len);
      for (int again = 0; again < 2; again++) { /* the second time a short word comes from the cache */
        const int32_t *got = merge_word(&m, text, len, &n);
        cr_assert_eq(n, expected, "trial %d, word %d: %d ids, not %d", trial, word, n, expected);
        cr_assert_arr_eq(got, want, sizeof *got * (size_t)n);
      }
    }
    zp_arena_free(arena);
  }
}

/* The greatest score of all ways through a word, character by character; those that no piece covers alone are
 * unknown. */
static double best_of_all(const unigram *u, const char *word, int len) {
  if (len == 0) return 0;
  double best = -INFINITY;
  int character = character_bytes((unsigned char)word[0]);
  bool single = false;
  for (int i = 0; i < u->pieces.len; i++) {
    const piece *p = &u->pieces.data[i];
    if (p->len > len || memcmp(p->text, word, (size_t)p->len) != 0) continue;
    single |= p->len == character;
    best = fmax(best, p->score + best_of_all(u, word + p->len, len - p->len));
  }
  return single ? best : fmax(best, u->unknown_score + best_of_all(u, word + character, len - character));
}

/* What the ids are worth, if they spell the word. Unknown characters in a row are one id. */
static double worth(const unigram *u, const int32_t *ids, int n, const char *word, int len, int unknown) {
  double sum = 0;
  int at = 0;
  for (int i = 0; i < n; i++) {
    const piece *p = NULL;
    for (int k = 0; k < u->pieces.len && !p; k++)
      if (u->pieces.data[k].id == ids[i]) p = &u->pieces.data[k];
    if (ids[i] == unknown) { /* all that begin with a byte above 127 here */
      do at += character_bytes((unsigned char)word[at]), sum += u->unknown_score;
      while (at < len && (unsigned char)word[at] >= 128);
      continue;
    }
    cr_assert(p && at + p->len <= len && memcmp(p->text, word + at, (size_t)p->len) == 0);
    at += p->len;
    sum += p->score;
  }
  cr_assert_eq(at, len);
  return sum;
}

Test(tokenize, pieces_have_the_greatest_score) {
  unsigned seed = 11;
  enum { PIECES = 24, UNKNOWN = 1000 };
  for (int trial = 0; trial < 40; trial++) {
    zp_arena *arena = zp_arena_new("test");
    unigram u = {.arena = arena, .other = {.unknown = UNKNOWN}};
    cache_init(&u.cache, arena);
    for (int i = 0; i < PIECES; i++) {
      char *text = zp_alloc(arena, 8);
      int len = i < LETTERS ? 1 : 1 + rand_r(&seed) % 5;
      for (int k = 0; k < len; k++) text[k] = (char)('a' + (i < LETTERS ? i : rand_r(&seed) % LETTERS));
      piece p = {text, len, i, -1 - rand_r(&seed) % 800 / 100.0};
      zp_push(arena, &u.pieces, p);
    }
    unigram_sort(&u);
    for (int word = 0; word < 60; word++) {
      char text[16];
      int len = 0, n;
      while (len < 9) {
        if (rand_r(&seed) % 6 == 0)
          memcpy(text + len, "\xC3\xA9", 2), len += 2;
        else
          text[len++] = (char)('a' + rand_r(&seed) % LETTERS);
      }
      for (int again = 0; again < 2; again++) {
        const int32_t *ids = unigram_word(&u, text, len, &n);
        cr_assert_float_eq(worth(&u, ids, n, text, len, UNKNOWN), best_of_all(&u, text, len), 1e-9, "%.*s", len, text);
      }
    }
    zp_arena_free(arena);
  }
}

/* openai/gpt-2's bytes_to_unicode: printable bytes stay, the others follow from U+0100 in their order. */
Test(tokenize, bytes_have_texts_of_their_own) {
  unsigned next = 0x100;
  for (int byte = 0; byte < 256; byte++) {
    bool stays = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    unsigned want = stays ? (unsigned)byte : next++, got;
    char text[2];
    int len = byte_text((unsigned char)byte, text);
    got = len == 1 ? (unsigned char)text[0] : (text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu);
    cr_assert_eq(got, want, "byte %d is U+%04X, not U+%04X", byte, got, want);
  }
}

static bool count_ids(void *user, const int32_t *ids, int n) {
  (void)ids;
  *(int64_t *)user += n;
  return true;
}

/* A run of one letter is one word of the pattern, longer than any stack of a matcher that recurses. */
static void tokenize_long_texts(const char *path) {
  zp_arena *arena = zp_arena_new("test");
  zp_diags *diags = zp_diags_new(arena);
  const char *error = NULL;
  FILE *file = fopen(path, "rb");
  cr_assert(file != NULL);
  char *json = zp_alloc(arena, 1 << 16), *text = malloc(1 << 20);
  size_t len = fread(json, 1, 1 << 16, file);
  fclose(file);
  zp_tokenizer *t = zp_tokenizer_read(arena, diags, path, json, len);
  cr_assert(t != NULL);
  static const char letters[] = {'z', ' ', '\n', '7', '!'};
  for (size_t i = 0; i < sizeof letters; i++) {
    int64_t ids = 0;
    memset(text, letters[i], 1 << 20);
    cr_assert(zp_tokenize(t, text, 1 << 20, count_ids, &ids, &error), "%s", error);
    cr_assert(ids <= (1 << 20) + 1); /* a mark may be put before them; none: spaces alone are removed */
  }
  zp_tokenizer_free(t);
  free(text);
  zp_arena_free(arena);
}

Test(tokenize, long_words_and_long_texts) {
  tokenize_long_texts(ZPLAN_SOURCE_DIR "/tests/interop/tokenizers/llama3_like.json");
  tokenize_long_texts(ZPLAN_SOURCE_DIR "/tests/interop/tokenizers/llama_like.json");
  tokenize_long_texts(ZPLAN_SOURCE_DIR "/tests/interop/tokenizers/t5_like.json");
}
