/* SPDX-License-Identifier: Apache-2.0 */
/* TOML (toml.io, version 1.0) as far as configurations of trainings use it. */
#include "toml.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <zplan/buf.h>
#include <zplan/shown.h>

enum { MOST_DEPTH = 16, MOST_NUMBER = 64 };

typedef struct reader {
  zp_arena *arena;
  zp_diags *diags;
  int file;
  const char *text;
  uint32_t at, len;
  bool failed;
} reader;

static bool complain(reader *r, uint32_t at, const char *what) {
  if (!r->failed)
    zp_report(r->diags, ZP_Z0688, (zp_span){r->file, at < r->len ? at : r->len, at < r->len ? at + 1 : r->len}, "%s",
              what);
  r->failed = true;
  return false;
}

static char here(const reader *r) { return r->at < r->len ? r->text[r->at] : '\0'; }

static void skip(reader *r, bool lines) {
  for (;;) {
    char c = here(r);
    if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
      r->at++;
    else if (c == '#')
      while (r->at < r->len && here(r) != '\n') r->at++;
    else
      return;
  }
}

static bool end_line(reader *r) {
  skip(r, false);
  if (here(r) == '\r') r->at++;
  if (r->at < r->len && here(r) != '\n') return complain(r, r->at, "the line goes on after its value");
  return true;
}

/* After the opening quote. */
static const char *string(reader *r, char quote) {
  zp_buf out = zp_buf_new(r->arena);
  uint32_t begin = r->at - 1;
  while (r->at < r->len && here(r) != quote && here(r) != '\n') {
    char c = r->text[r->at++];
    if (c == '\\' && quote == '"') {
      static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
      const char *known = here(r) ? strchr(from, here(r)) : NULL;
      if (!known) return complain(r, r->at, "this escape in a string is not read"), NULL;
      c = to[known - from];
      r->at++;
    }
    zp_buf_put(&out, &c, 1);
  }
  if (here(r) != quote) return complain(r, begin, "the string that begins here has no end"), NULL;
  r->at++;
  return out.data;
}

static bool is_bare(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-'; }

static const char *key(reader *r) {
  skip(r, false);
  char c = here(r);
  if (c == '"' || c == '\'') {
    r->at++;
    return string(r, c);
  }
  uint32_t begin = r->at;
  while (is_bare(here(r))) r->at++;
  if (r->at == begin) return complain(r, begin, "a key is expected here"), NULL;
  return zp_strndup(r->arena, r->text + begin, r->at - begin);
}

static bool value(reader *r, zp_json *in, const char *name, int depth);

/* a.b.c from `object` on, whose last name is *last; the table that it stands in. NULL after complaining. */
static zp_json *walk(reader *r, zp_json *object, const char **last) {
  for (int depth = 0;; depth++) {
    const char *name = key(r);
    if (!name) return NULL;
    skip(r, false);
    *last = name;
    if (here(r) != '.') return object;
    if (depth == MOST_DEPTH) return complain(r, r->at, "a key has too many parts"), NULL;
    r->at++;
    const zp_json *inner = zp_json_get(object, name);
    if (inner && !zp_json_is_object(inner)) return complain(r, r->at, "a part of this key is a value already"), NULL;
    object = inner ? (zp_json *)(uintptr_t)inner : zp_json_set(object, name, zp_json_object());
  }
}

static bool pair(reader *r, zp_json *object, int depth) {
  const char *name;
  uint32_t begin = r->at;
  zp_json *in = walk(r, object, &name);
  if (!in) return false;
  if (here(r) != '=') return complain(r, r->at, "`=` is expected after a key");
  if (zp_json_get(in, name)) return complain(r, begin, "the key is there twice");
  r->at++;
  return value(r, in, name, depth);
}

/* After the opening bracket: pairs into a table or, each in an object of its own as "value", values into an array. */
static bool elements(reader *r, zp_json *in, char close, int depth) {
  bool lines = close == ']'; /* an array may go on in the next line */
  skip(r, lines);
  while (here(r) != close) {
    bool good = lines ? value(r, zp_json_append(in, zp_json_object()), "value", depth + 1) : pair(r, in, depth + 1);
    if (!good) return false;
    skip(r, lines);
    if (here(r) == close) break;
    if (here(r) != ',')
      return complain(r, r->at, lines ? "`,` or `]` is expected in an array" : "`,` or `}` is expected in a table");
    r->at++;
    skip(r, lines);
  }
  r->at++;
  return true;
}

static bool number(reader *r, zp_json *in, const char *name) {
  char text[MOST_NUMBER], *end = NULL;
  uint32_t begin = r->at;
  size_t n = 0;
  for (; is_bare(here(r)) || here(r) == '+' || here(r) == '.' || here(r) == ':'; r->at++)
    if (here(r) != '_' && n + 1 < sizeof text) text[n++] = here(r);
  text[n] = '\0';
  errno = 0;
  long long whole = strtoll(text, &end, 10);
  if (n && !*end && !errno) {
    zp_json_set_int(in, name, whole);
    return true;
  }
  double real = strtod(text, &end);
  if (n && !*end && (isdigit((unsigned char)*text) || strchr("+-.", *text)) && real > -1e300 && real < 1e300) {
    zp_json_set_real(in, name, real);
    return true;
  }
  return complain(r, begin, "a value is expected here: a string, a number, true, false, an array or a table");
}

static bool literal(reader *r, const char *word) {
  size_t n = strlen(word);
  if (r->len - r->at < n || strncmp(r->text + r->at, word, n) != 0 ||
      is_bare(r->at + n < r->len ? r->text[r->at + n] : ' '))
    return false;
  r->at += (uint32_t)n;
  return true;
}

static bool value(reader *r, zp_json *in, const char *name, int depth) {
  if (depth > MOST_DEPTH) return complain(r, r->at, "values are nested too deeply");
  skip(r, false);
  char c = here(r);
  if (c == '"' || c == '\'') {
    if (r->at + 2 < r->len && r->text[r->at + 1] == c && r->text[r->at + 2] == c)
      return complain(r, r->at, "strings of several lines are not read");
    r->at++;
    const char *text = string(r, c);
    if (text) zp_json_set_string(in, name, text);
    return text != NULL;
  }
  if (c == '[') {
    r->at++;
    return elements(r, zp_json_set(in, name, zp_json_array()), ']', depth);
  }
  if (c == '{') {
    r->at++;
    return elements(r, zp_json_set(in, name, zp_json_object()), '}', depth);
  }
  if (literal(r, "true") || literal(r, "false")) {
    zp_json_set_bool(in, name, r->text[r->at - 2] == 'u');
    return true;
  }
  return number(r, in, name);
}

/* [a.b]: the table in which the keys that follow stand. */
static zp_json *header(reader *r, zp_json *root) {
  const char *name;
  if (here(r) == '[') return complain(r, r->at, "arrays of tables are not read"), NULL;
  zp_json *in = walk(r, root, &name);
  if (!in) return NULL;
  if (here(r) != ']') return complain(r, r->at, "`]` is expected after the name of a table"), NULL;
  r->at++;
  const zp_json *old = zp_json_get(in, name);
  if (old && !zp_json_is_object(old)) return complain(r, r->at, "this table is a value already"), NULL;
  return old ? (zp_json *)(uintptr_t)old : zp_json_set(in, name, zp_json_object());
}

zp_json *toml_read(zp_arena *arena, zp_diags *diags, int file) {
  size_t len;
  reader r = {.arena = arena, .diags = diags, .file = file};
  r.text = zp_diags_source_text(diags, file, &len);
  r.len = (uint32_t)len;
  if (memchr(r.text, 0, len) || len > INT32_MAX) complain(&r, 0, "the file is no text");
  for (size_t at = 0, n; at < len && !r.failed; at += n) {
    n = zp_character_length((const unsigned char *)r.text + at, len - at);
    if (n == 0) complain(&r, (uint32_t)at, "the file is no UTF-8");
  }
  zp_json *root = zp_json_object(), *in = root;
  for (skip(&r, true); r.at < r.len && !r.failed; skip(&r, true)) {
    if (here(&r) == '[') {
      r.at++;
      in = header(&r, root);
      if (!in) break;
    } else if (!pair(&r, in, 0)) {
      break;
    }
    end_line(&r);
  }
  if (!r.failed) return root;
  zp_json_free(root);
  return NULL;
}
