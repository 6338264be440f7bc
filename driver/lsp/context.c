/* SPDX-License-Identifier: Apache-2.0 */
/* Where a place of a text stands: its word, and the block or the call around it. Text that is half written has both. */
#include "lsp_internal.h"

#include <ctype.h>

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* A word, from `name` to `end`; end 0: none. It names what a bracket opens: `train {`, `adamw(`, `cluster mine {`. */
typedef struct opened {
  size_t name, end;
} opened;

static bool is_kind(const char *text, size_t n) {
  static const char *const kinds[] = {"model", "block", "cluster", "node", "device", "fabric", "train", "plan"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strlen(kinds[i]) == n && strncmp(kinds[i], text, n) == 0) return true;
  return false;
}

/* The end of a comment or a text that begins at `i`; `i`: there is none. *closed: it ends before `end`. */
static size_t skipped(const char *text, size_t i, size_t end, bool *closed) {
  char c = text[i];
  *closed = true;
  if (c != '#' && c != '"') return i;
  for (i++; i < end && text[i] != '\n'; i++) {
    if (c == '"' && text[i] == '\\' && i + 1 < end)
      i++;
    else if (c == '"' && text[i] == '"')
      return i + 1;
  }
  *closed = i < end;
  return i;
}

static const char *piece(zp_arena *arena, const char *text, opened o) {
  return zp_strndup(arena, text + o.name, o.end - o.name);
}

/* What follows on the same line, but for spaces. */
static char next_sign(const zp_lsp_lines *lines, size_t i) {
  while (i < lines->len && (lines->text[i] == ' ' || lines->text[i] == '\t')) i++;
  if (i + 1 < lines->len && strchr("<>", lines->text[i]) && lines->text[i + 1] == '=') return '=';
  return i < lines->len ? lines->text[i] : '\0';
}

/* What was read so far of a text: the brackets that are open, and the words that may still name the next one. */
typedef struct reading {
  zp_arena *arena;
  const char *text;
  ZP_VEC(opened) open;
  opened last, before; /* the last two words */
  opened kind;         /* the last word of is_kind, for `cluster mine {` and `model gpt(...) {` */
  opened key;          /* of `key =` with nothing behind it */
} reading;

static void take_word(reading *r, size_t begin, size_t end) {
  r->before = r->last;
  r->last = (opened){begin, end};
  r->key = (opened){0};
  if (is_kind(r->text + begin, end - begin)) r->kind = r->last;
}

static void open_bracket(reading *r, char sign) {
  bool has_kind =
      sign == '{' && r->kind.end && (r->kind.end == r->last.end || r->kind.end == r->before.end || r->open.len == 0);
  zp_push(r->arena, &r->open, has_kind ? r->kind : r->last);
  r->key = r->last = r->before = (opened){0};
  if (sign == '{') r->kind = (opened){0};
}

static void close_bracket(reading *r, char sign) {
  if (r->open.len > 0) r->open.len--;
  if (sign == '}') r->kind = (opened){0};
  r->key = r->last = (opened){0};
}

static void take_sign(reading *r, char sign) {
  if (sign == '{' || sign == '(')
    open_bracket(r, sign);
  else if (sign == '}' || sign == ')')
    close_bracket(r, sign);
  else if (sign == '=')
    r->key = r->last;
  else if (!strchr(" \t<>", sign))
    r->key = (opened){0};
}

/* Up to `end`, which is in no word. False: `end` is in a comment or a text. */
static bool read_to(reading *r, size_t end) {
  bool closed = true;
  for (size_t i = 0, next; i < end; i = next) {
    next = skipped(r->text, i, end, &closed);
    if (next > i) {
      r->key = (opened){0};
    } else if (in_word(r->text[i])) {
      while (next < end && in_word(r->text[next])) next++;
      take_word(r, i, next);
    } else {
      take_sign(r, r->text[i]);
      next++;
    }
  }
  return closed;
}

zp_lsp_place zp_lsp_place_at(zp_arena *arena, const zp_lsp_lines *lines, size_t at) {
  const char *text = lines->text;
  zp_lsp_place place = {.begin = at, .end = at};
  while (place.begin > 0 && in_word(text[place.begin - 1])) place.begin--;
  while (place.end < lines->len && in_word(text[place.end])) place.end++;
  reading r = {.arena = arena, .text = text};
  place.silent = !read_to(&r, place.begin);
  opened innermost = {0};
  for (int i = 0; i < r.open.len; i++) {
    innermost = r.open.data[i];
    const char *name = piece(arena, text, innermost);
    if (strcmp(name, "model") == 0 || strcmp(name, "block") == 0) place.in_model = true;
  }
  place.around = piece(arena, text, innermost);
  place.word = piece(arena, text, (opened){place.begin, place.end});
  place.value_of = piece(arena, text, r.key);
  place.next = next_sign(lines, place.end);
  return place;
}
