/* A text to ids: added tokens are taken out, what lies between goes through the patterns one after the other, and every
 * piece that is left is a word. */
#include "tokenize.h"

enum { LONGEST_WORD = 1 << 28 };

typedef struct walk {
  zp_tokenizer *t;
  zp_on_tokens *on_tokens;
  void *user;
  const char **error;
} walk;

static bool fail(const walk *w, const char *why) {
  *w->error = why;
  return false;
}

static bool on_word(const walk *w, const char *text, size_t len) {
  if (len > LONGEST_WORD)
    return fail(w, zp_format(w->t->arena, "a word of %zu bytes; at most %d are possible", len, LONGEST_WORD));
  int n;
  const int32_t *ids = merge_word(&w->t->merger, text, (int)len, &n);
  return w->on_tokens(w->user, ids, n);
}

/* A piece through the patterns from `stage` on. */
static bool on_piece(const walk *w, int stage, const char *text, size_t len) {
  if (len == 0) return true;
  if (stage == w->t->n_stages) return on_word(w, text, len);
  splitter *s = &w->t->stages[stage];
  size_t done = 0, begin, end;
  int found;
  while ((found = splitter_next(s, text, len, done, &begin, &end)) > 0) {
    if (!on_piece(w, stage + 1, text + done, begin - done)) return false;
    if (!on_piece(w, stage + 1, text + begin, end - begin)) return false;
    done = end;
  }
  if (found < 0) return fail(w, splitter_error(w->t->arena, found));
  return on_piece(w, stage + 1, text + done, len - done);
}

static bool on_added(const walk *w, const char *text, size_t len) {
  for (int i = 0; i < w->t->added.len; i++) {
    const added_token *a = &w->t->added.data[i];
    if (a->len == len && memcmp(a->content, text, len) == 0) return w->on_tokens(w->user, &a->id, 1);
  }
  return fail(w, "an added token is not in its own list");
}

/* Position of the first byte that is no UTF-8 (RFC 3629: no surrogates, nothing above U+10FFFF, shortest form); len if
 * there is none. */
static size_t find_not_utf8(const unsigned char *s, size_t len) {
  size_t i = 0;
  while (i < len) {
    unsigned char c = s[i];
    if (c < 0x80) {
      i++;
      continue;
    }
    int more = c >= 0xC2 && c <= 0xDF ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
    if (more == 0 || len - i <= (size_t)more) return i;
    unsigned char second = s[i + 1];
    if ((c == 0xE0 && second < 0xA0) || (c == 0xED && second > 0x9F) || (c == 0xF0 && second < 0x90) ||
        (c == 0xF4 && second > 0x8F))
      return i;
    for (int k = 1; k <= more; k++)
      if ((s[i + (size_t)k] & 0xC0) != 0x80) return i;
    i += (size_t)more + 1;
  }
  return len;
}

bool zp_tokenize(zp_tokenizer *t, const char *text, size_t len, zp_on_tokens *on_tokens, void *user,
                 const char **error) {
  walk w = {t, on_tokens, user, error};
  *error = NULL;
  size_t bad = find_not_utf8((const unsigned char *)text, len);
  if (bad < len) return fail(&w, zp_format(t->arena, "byte %zu (0x%02X) is no UTF-8", bad, (unsigned char)text[bad]));
  size_t done = 0, begin, end;
  int found = 0;
  while (t->find_added.code && (found = splitter_next(&t->find_added, text, len, done, &begin, &end)) > 0) {
    if (!on_piece(&w, 0, text + done, begin - done) || !on_added(&w, text + begin, end - begin)) return false;
    done = end;
  }
  if (found < 0) return fail(&w, splitter_error(t->arena, found));
  return on_piece(&w, 0, text + done, len - done);
}

int64_t zp_tokenizer_vocabulary(const zp_tokenizer *t) { return t->largest_id + 1; }

int32_t zp_tokenizer_added(const zp_tokenizer *t, const char *content) {
  for (int i = 0; i < t->added.len; i++)
    if (strcmp(t->added.data[i].content, content) == 0) return t->added.data[i].id;
  return -1;
}
