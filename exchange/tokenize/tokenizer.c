/* SPDX-License-Identifier: Apache-2.0 */
/* A text to ids. Added tokens are taken out, what lies between goes through the normalizers, and once more added tokens
 * are taken out: those that are looked for in normalized text. The rest goes through the stages one after the other,
 * and every piece that is left is a word. */
#include "tokenize.h"

#include <assert.h>

/* A unigram model keeps 24 bytes for every one of a word. */
enum { LONGEST_WORD = 1 << 28, LONGEST_UNIGRAM = 1 << 26 };

typedef struct walk {
  zp_tokenizer *t;
  zp_on_tokens *on_tokens;
  void *user;
  const char **error;
  places *places; /* NULL: they are not asked for */
} walk;

/* Part of the text; `first`: it is where the text begins. */
typedef struct part {
  const char *text;
  size_t len;
  bool first;
} part;

static bool fail(const walk *w, const char *why) {
  *w->error = why;
  return false;
}

static part part_of(part p, size_t begin, size_t end) {
  return (part){p.text + begin, end - begin, p.first && begin == 0};
}

static void add_place(const walk *w, int32_t id, int32_t begin, int32_t end) {
  zp_token_places *out = w->places->out;
  zp_push(w->t->arena, &out->ids, id);
  zp_push(w->t->arena, &out->begin, begin);
  zp_push(w->t->arena, &out->end, end);
}

static bool on_pieces(const walk *w, part p, const int32_t *ids, int n) {
  const places *map = w->places;
  if (!map) return w->on_tokens(w->user, ids, n);
  size_t at = (size_t)(p.text - map->normal);
  for (int i = 0; i < n; i++) {
    size_t first = at + (i > 0 ? (size_t)w->t->wordpiece.ends.data[i - 1] : 0);
    size_t last = at + (size_t)w->t->wordpiece.ends.data[i] - 1;
    add_place(w, ids[i], map->begin.data[first], map->end.data[last]);
  }
  return true;
}

static const int32_t *ids_of(zp_tokenizer *t, part p, int *n) {
  switch (t->kind) {
  case BY_SCORES: return unigram_word(&t->unigram, p.text, (int)p.len, n);
  case BY_LONGEST: return wordpiece_word(&t->wordpiece, p.text, (int)p.len, n);
  default: return merge_word(&t->merger, p.text, (int)p.len, n);
  }
}

static bool on_word(const walk *w, part p) {
  zp_tokenizer *t = w->t;
  size_t most = t->kind == BY_SCORES ? LONGEST_UNIGRAM : LONGEST_WORD;
  if (p.len > most) return fail(w, zp_format(t->arena, "a word of %zu bytes; at most %zu are possible", p.len, most));
  int n;
  const int32_t *ids = ids_of(t, p, &n);
  if (ids) return on_pieces(w, p, ids, n);
  return fail(w, zp_format(t->arena, "the tokenizer has no token for `%.*s`, and none for unknown characters",
                           character_bytes((unsigned char)p.text[n]), p.text + n));
}

static bool on_piece(const walk *w, int stage, part p);

static bool on_pattern(const walk *w, int at, part p) {
  stage *s = &w->t->stages[at];
  size_t done = 0, begin, end;
  int found;
  while ((found = splitter_next(&s->pattern, p.text, p.len, done, &begin, &end)) > 0) {
    if (!on_piece(w, at + 1, part_of(p, done, begin))) return false;
    if (s->kind == ISOLATE && !on_piece(w, at + 1, part_of(p, begin, end))) return false;
    done = end;
  }
  if (found < 0) return fail(w, splitter_error(w->t->arena, found));
  return on_piece(w, at + 1, part_of(p, done, p.len));
}

/* Spaces become marks, in a buffer of the stage. */
static bool on_mark(const walk *w, int at, part p) {
  stage *s = &w->t->stages[at];
  size_t mark = strlen(s->mark), spaces = 0;
  for (size_t i = 0; i < p.len; i++) spaces += p.text[i] == ' ';
  if (p.len + (spaces + 1) * mark > INT32_MAX / 2) return fail(w, "its marked text is longer than 1 GiB");
  s->marked.len = 0;
  zp_reserve(w->t->arena, &s->marked, (int)(p.len + (spaces + 1) * mark));
  char *to = s->marked.data;
  bool marked = p.text[0] == ' ' || (p.len >= mark && memcmp(p.text, s->mark, mark) == 0);
  if (!marked && (s->prepend == ALWAYS || (s->prepend == FIRST && p.first)))
    to = (char *)memcpy(to, s->mark, mark) + mark;
  for (size_t i = 0; i < p.len; i++) {
    if (p.text[i] == ' ')
      to = (char *)memcpy(to, s->mark, mark) + mark;
    else
      *to++ = p.text[i];
  }
  part all = {s->marked.data, (size_t)(to - s->marked.data), p.first};
  size_t begin = 0;
  for (size_t i = 1; s->split && i + mark <= all.len; i++) {
    if (memcmp(all.text + i, s->mark, mark) != 0) continue;
    if (!on_piece(w, at + 1, part_of(all, begin, i))) return false;
    begin = i;
    i += mark - 1;
  }
  return on_piece(w, at + 1, part_of(all, begin, all.len));
}

static bool on_piece(const walk *w, int at, part p) {
  if (p.len == 0) return true;
  if (at == w->t->n_stages) return on_word(w, p);
  return w->t->stages[at].kind == MARK ? on_mark(w, at, p) : on_pattern(w, at, p);
}

/* ---- added tokens ---- */

static bool on_added(const walk *w, const added_tokens *added, const char *text, size_t len) {
  for (int i = 0; i < added->tokens.len; i++) {
    const added_token *a = &added->tokens.data[i];
    if (a->len != len || memcmp(a->content, text, len) != 0) continue;
    if (!w->places) return w->on_tokens(w->user, &a->id, 1);
    const places *map = w->places;
    bool raw = added == &w->t->raw;
    size_t at = (size_t)(text - (raw ? map->text : map->normal));
    add_place(w, a->id, raw ? (int32_t)at : map->begin.data[at],
              raw ? (int32_t)(at + len) : map->end.data[at + len - 1]);
    return true;
  }
  return fail(w, "an added token is not in its own list");
}

typedef bool on_between(const walk *w, part p);

static bool take_out(const walk *w, added_tokens *added, part p, on_between *between) {
  size_t done = 0, begin, end;
  int found = 0;
  while (added->find.code && (found = splitter_next(&added->find, p.text, p.len, done, &begin, &end)) > 0) {
    if (!between(w, part_of(p, done, begin)) || !on_added(w, added, p.text + begin, end - begin)) return false;
    done = end;
  }
  if (found < 0) return fail(w, splitter_error(w->t->arena, found));
  return between(w, part_of(p, done, p.len));
}

static bool on_normal(const walk *w, part p) { return on_piece(w, 0, p); }

static bool on_raw(const walk *w, part p) {
  if (p.len == 0) return true;
  size_t begin = w->places ? (size_t)(p.text - w->places->text) : 0, len = p.len;
  if (!normalize(w->t, &p.text, &p.len, w->error)) return false;
  if (w->places && !places_find(w->t, w->places, w->places->text, begin, len, p.text, p.len, w->error)) return false;
  return take_out(w, &w->t->normal, p, on_normal);
}

/* ---- the text ---- */

size_t find_not_utf8(const unsigned char *s, size_t len) {
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

static bool walk_text(const walk *w, const char *text, size_t len) {
  *w->error = NULL;
  size_t bad = find_not_utf8((const unsigned char *)text, len);
  if (bad < len) return fail(w, zp_format(w->t->arena, "byte %zu (0x%02X) is no UTF-8", bad, (unsigned char)text[bad]));
  return take_out(w, &w->t->raw, (part){text, len, true}, on_raw);
}

bool zp_tokenize(zp_tokenizer *t, const char *text, size_t len, zp_on_tokens *on_tokens, void *user,
                 const char **error) {
  assert((text || len == 0) && on_tokens && error);
  return walk_text(&(walk){t, on_tokens, user, error, NULL}, text, len);
}

bool zp_tokenizer_has_places(const zp_tokenizer *t) { return t->kind == BY_LONGEST; }

bool zp_tokenize_places(zp_tokenizer *t, const char *text, size_t len, zp_token_places *out, const char **error) {
  assert((text || len == 0) && out && error && zp_tokenizer_has_places(t));
  if (len > INT32_MAX / 2) return *error = "a text is longer than 1 GiB", false;
  places map = {.text = text, .out = out};
  return walk_text(&(walk){t, NULL, NULL, error, &map}, text, len);
}

int64_t zp_tokenizer_vocabulary(const zp_tokenizer *t) { return t->largest_id + 1; }

static int32_t find_added(const added_tokens *added, const char *content) {
  for (int i = 0; i < added->tokens.len; i++)
    if (strcmp(added->tokens.data[i].name, content) == 0) return added->tokens.data[i].id;
  return -1;
}

int32_t zp_tokenizer_added(const zp_tokenizer *t, const char *content) {
  assert(content);
  int32_t id = find_added(&t->raw, content);
  return id >= 0 ? id : find_added(&t->normal, content);
}
