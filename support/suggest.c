/* SPDX-License-Identifier: Apache-2.0 */
/* Spelling suggestions: Damerau-Levenshtein distance (optimal string alignment). */
#include <zplan/diag.h>

#include <assert.h>
#include <ctype.h>

enum { LONGEST_WORD = 63 };

static int least(int a, int b) { return a < b ? a : b; }

static bool same(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

/* Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`, whatever their capitals. Both at
 * most LONGEST_WORD. */
static int distance(const char *a, int a_len, const char *b, int b_len) {
  int rows[3][LONGEST_WORD + 1];
  int *before = rows[0], *above = rows[1], *row = rows[2];
  for (int j = 0; j <= b_len; j++) above[j] = before[j] = j;
  for (int i = 1; i <= a_len; i++) {
    row[0] = i;
    for (int j = 1; j <= b_len; j++) {
      int change = above[j - 1] + !same(a[i - 1], b[j - 1]);
      row[j] = least(change, least(above[j], row[j - 1]) + 1);
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        row[j] = least(row[j], before[j - 2] + 1);
    }
    int *spare = before;
    before = above;
    above = row;
    row = spare;
  }
  return above[b_len];
}

const char *zp_closest(const char *word, const char *const *candidates, int count) {
  assert(word && count >= 0);
  size_t len = strlen(word);
  if (len > LONGEST_WORD) return NULL;
  /* A word replaced letter by letter is another word: something of it must stay. */
  int limit = len / 3 > 1 ? (int)(len / 3) : 1;
  if (limit >= (int)len) return NULL;
  const char *best = NULL;
  int best_distance = limit + 1;
  for (int i = 0; i < count; i++) {
    size_t other = strlen(candidates[i]);
    if (other > LONGEST_WORD) continue;
    int d = distance(word, (int)len, candidates[i], (int)other);
    if (d < best_distance && strcmp(word, candidates[i]) != 0) {
      best = candidates[i];
      best_distance = d;
    }
  }
  return best;
}
