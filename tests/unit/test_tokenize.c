/* Words of byte-level BPE against a search of all pairs for the least rank, and the alphabet of bytes. Whole files are
 * compared with Hugging Face's tokenizers in tests/interop/tokens.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../frontend/tokenize/tokenize.h"

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
Test(tokenize, long_words_and_long_texts) {
  zp_arena *arena = zp_arena_new("test");
  zp_diags *diags = zp_diags_new(arena);
  const char *error = NULL, *path = ZPLAN_SOURCE_DIR "/tests/interop/tokenizers/llama3_like.json";
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
    cr_assert(ids > 0 && ids <= 1 << 20);
  }
  zp_tokenizer_free(t);
  free(text);
  zp_arena_free(arena);
}
