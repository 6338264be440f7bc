/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a launch script: quotes, variables, sums. */
#include "shell.h"

#include <ctype.h>
#include <stdlib.h>
#include <zplan/buf.h>

enum { MOST_CHARACTERS = 4 << 20, MOST_DEPTH = 32 };

bool shell_complain(shell_reader *r, zp_span at, const char *format, ...) {
  if (r->failed) return false;
  va_list args;
  va_start(args, format);
  zp_report(r->diags, ZP_Z0688, at, "%s", zp_vformat(r->arena, format, args));
  va_end(args);
  r->failed = true;
  return false;
}

bool shell_put(shell_reader *r, shell_text *text, char c, uint32_t at) {
  if (++r->kept > MOST_CHARACTERS)
    return shell_complain(r, ZP_NO_SPAN, "the script's words have more than %d characters", MOST_CHARACTERS);
  if (text->len + 1 >= text->cap) {
    int cap = text->cap ? 2 * text->cap : 32;
    text->data = zp_grow(r->arena, text->data, (size_t)text->cap, (size_t)cap);
    text->at = zp_grow(r->arena, text->at, sizeof *text->at * (size_t)text->cap, sizeof *text->at * (size_t)cap);
    text->cap = cap;
  }
  text->data[text->len] = c;
  text->at[text->len++] = at;
  text->unknown |= (at & SHELL_UNKNOWN) != 0;
  text->data[text->len] = '\0';
  return text->any = true;
}

void shell_taint(shell_text *text, const shell_text *from) {
  if (!text->open && from->open) text->open_test = from->open_test;
  text->open |= from->open;
}

zp_span shell_span(const shell_reader *r, const shell_text *text) {
  if (text->len == 0) return ZP_NO_SPAN;
  uint32_t begin = text->at[0] & ~SHELL_UNKNOWN, end = (text->at[text->len - 1] & ~SHELL_UNKNOWN) + 1;
  return (zp_span){r->file, begin, end > begin ? end : begin + 1};
}

void shell_split(shell_reader *r, const shell_text *text, shell_texts *words) {
  shell_text word = {0};
  for (int i = 0; i <= text->len; i++) {
    bool blank = i == text->len || isspace((unsigned char)text->data[i]);
    if (!blank) {
      shell_put(r, &word, text->data[i], text->at[i]);
    } else if (word.any) {
      shell_taint(&word, text);
      zp_push(r->arena, words, word);
      word = (shell_text){0};
    }
  }
}

shell_variable *shell_find(shell_reader *r, const char *name) {
  for (int i = 0; i < r->variables.len; i++)
    if (strcmp(r->variables.data[i].name, name) == 0) return &r->variables.data[i];
  return NULL;
}

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static char here(const shell_reader *r) { return r->at < r->len ? r->text[r->at] : '\0'; }

static const char *take_name(shell_reader *r) {
  uint32_t begin = r->at;
  while (is_name(here(r))) r->at++;
  return zp_strndup(r->arena, r->text + begin, r->at - begin);
}

/* What only a run would tell stands as it is written. */
static void put_unknown(shell_reader *r, shell_text *word, uint32_t begin) {
  for (uint32_t i = begin; i < r->at; i++) shell_put(r, word, r->text[i], i | SHELL_UNKNOWN);
}

/* ---- sums ---- */

typedef struct sum {
  shell_reader *r;
  const char *at, *end;
  int depth;
  bool known;
  shell_text *word; /* that it becomes a part of */
} sum;

static int64_t add(sum *s);

static void skip(sum *s) {
  while (s->at < s->end && (isspace((unsigned char)*s->at) || *s->at == '"')) s->at++;
}

static int64_t unknown(sum *s) {
  s->known = false;
  s->at = s->end;
  return 0;
}

static int64_t value_of(sum *s, const char *name) {
  const shell_variable *v = shell_find(s->r, name);
  if (!v || v->values.len != 1 || v->values.data[0].unknown || v->values.data[0].len == 0) return unknown(s);
  shell_taint(s->word, &v->values.data[0]);
  char *end = NULL;
  int64_t value = strtoll(v->values.data[0].data, &end, 10);
  return *end ? unknown(s) : value;
}

static int64_t number(sum *s) {
  skip(s);
  if (s->at >= s->end || s->depth > MOST_DEPTH) return unknown(s);
  if (*s->at == '(') {
    s->at++;
    s->depth++;
    int64_t value = add(s);
    s->depth--;
    skip(s);
    if (s->at >= s->end || *s->at++ != ')') return unknown(s);
    return value;
  }
  if (isdigit((unsigned char)*s->at)) {
    char *end = NULL;
    int64_t value = strtoll(s->at, &end, 10);
    s->at = end;
    return value;
  }
  if (*s->at == '$') s->at++;
  bool braces = s->at < s->end && *s->at == '{';
  if (braces) s->at++;
  const char *begin = s->at;
  while (s->at < s->end && is_name(*s->at)) s->at++;
  if (s->at == begin || isdigit((unsigned char)*begin)) return unknown(s);
  const char *name = zp_strndup(s->r->arena, begin, (size_t)(s->at - begin));
  if (braces && (s->at >= s->end || *s->at++ != '}')) return unknown(s);
  return value_of(s, name);
}

static int64_t multiply(sum *s) {
  int64_t value = number(s);
  for (skip(s); s->at < s->end && strchr("*/%", *s->at); skip(s)) {
    char op = *s->at++;
    int64_t with = number(s), product;
    if (!s->known || (op != '*' && with == 0)) return unknown(s);
    if (op == '*' && __builtin_mul_overflow(value, with, &product)) return unknown(s);
    value = op == '*' ? product : op == '/' ? value / with : value % with;
  }
  return value;
}

static int64_t add(sum *s) {
  int64_t value = multiply(s);
  for (skip(s); s->at < s->end && strchr("+-", *s->at); skip(s)) {
    char op = *s->at++;
    int64_t with = multiply(s), total;
    bool wrong = op == '+' ? __builtin_add_overflow(value, with, &total) : __builtin_sub_overflow(value, with, &total);
    if (!s->known || wrong) return unknown(s);
    value = total;
  }
  return value;
}

/* ---- $ ---- */

/* After `$(`: to its end, quotes and parentheses inside it included. */
static void skip_parentheses(shell_reader *r) {
  int depth = 1;
  char quote = '\0';
  for (; r->at < r->len && depth > 0; r->at++) {
    char c = here(r);
    if (c == '\\')
      r->at++;
    else if (quote)
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
  }
  if (r->at > r->len) r->at = r->len;
}

static void put_sum(shell_reader *r, shell_text *word, uint32_t begin) {
  uint32_t from = begin + 3;
  skip_parentheses(r); /* the inner pair, then the outer one */
  uint32_t to = r->at > from + 2 ? r->at - 2 : from;
  sum s = {.r = r, .at = r->text + from, .end = r->text + to, .known = true, .word = word};
  int64_t value = add(&s);
  skip(&s);
  if (!s.known || s.at != s.end) {
    put_unknown(r, word, begin);
    return;
  }
  for (const char *c = zp_format(r->arena, "%lld", (long long)value); *c; c++) shell_put(r, word, *c, begin);
}

static void put_text(shell_reader *r, shell_text *word, const shell_text *from) {
  shell_taint(word, from);
  for (int i = 0; i < from->len; i++) shell_put(r, word, from->data[i], from->at[i]);
}

static void end_word(shell_reader *r, shell_text *word, shell_texts *words) {
  if (word->any) zp_push(r->arena, words, *word);
  *word = (shell_text){0};
}

/* A variable's value at the end of a word that has begun: unquoted it is split at blanks, and an array in quotes stays
 * what its words are. */
static void put_variable(shell_reader *r, shell_variable *v, bool quoted, bool all, shell_text *word,
                         shell_texts *words) {
  int n = all ? v->values.len : v->values.len > 0 ? 1 : 0;
  for (int i = 0; i < n; i++) {
    const shell_text *value = &v->values.data[i];
    if (i > 0) end_word(r, word, words);
    if (quoted) {
      word->any = true;
      put_text(r, word, value);
      continue;
    }
    shell_texts parts = {0};
    shell_split(r, value, &parts);
    for (int k = 0; k < parts.len; k++) {
      if (k > 0) end_word(r, word, words);
      put_text(r, word, &parts.data[k]);
    }
  }
}

static void put_default(shell_reader *r, bool quoted, shell_text *word, shell_texts *words);

/* After `${`. */
static void put_braces(shell_reader *r, uint32_t begin, bool quoted, shell_text *word, shell_texts *words) {
  const char *name = take_name(r);
  shell_variable *v = *name && !isdigit((unsigned char)*name) ? shell_find(r, name) : NULL;
  bool all = r->at + 2 < r->len && here(r) == '[' && strchr("@*", r->text[r->at + 1]) && r->text[r->at + 2] == ']';
  if (all) r->at += 3;
  bool set = v && (v->is_array || (v->values.len && v->values.data[0].len));
  if (here(r) == '}') {
    r->at++;
    if (v)
      put_variable(r, v, quoted, all, word, words);
    else if (!all) /* an array that was never set has no words */
      put_unknown(r, word, begin);
    return;
  }
  if (here(r) == ':') r->at++;
  if (here(r) == '-' || here(r) == '=') {
    r->at++;
    shell_text unused = {0};
    shell_texts no_words = {0};
    put_default(r, quoted, set ? &unused : word, set ? &no_words : words);
    if (set) put_variable(r, v, quoted, all, word, words);
    return;
  }
  while (r->at < r->len && here(r) != '}') r->at++;
  if (r->at < r->len) r->at++;
  put_unknown(r, word, begin);
}

static void put_dollar(shell_reader *r, bool quoted, shell_text *word, shell_texts *words) {
  uint32_t begin = r->at++;
  char c = here(r);
  if (c == '(') {
    r->at++;
    if (here(r) == '(') {
      put_sum(r, word, begin);
    } else {
      skip_parentheses(r);
      put_unknown(r, word, begin);
    }
  } else if (c == '{') {
    r->at++;
    put_braces(r, begin, quoted, word, words);
  } else if (isalpha((unsigned char)c) || c == '_') {
    shell_variable *v = shell_find(r, take_name(r));
    if (v)
      put_variable(r, v, quoted, false, word, words);
    else
      put_unknown(r, word, begin);
  } else {
    if (isdigit((unsigned char)c) || (c && strchr("@*#?!$-", c))) r->at++;
    put_unknown(r, word, begin);
  }
}

/* One character or expansion of a word. */
static void put_next(shell_reader *r, bool quoted, shell_text *word, shell_texts *words) {
  char c = here(r);
  if (c == '\\' && r->at + 1 < r->len) {
    char next = r->text[r->at + 1];
    bool stays = quoted && !strchr("\"$`\\\n", next);
    if (stays) shell_put(r, word, c, r->at);
    if (next != '\n') shell_put(r, word, next, r->at + 1);
    r->at += 2;
  } else if (c == '$') {
    put_dollar(r, quoted, word, words);
  } else if (c == '`') {
    uint32_t begin = r->at++;
    while (r->at < r->len && here(r) != '`') r->at++;
    if (r->at < r->len) r->at++;
    put_unknown(r, word, begin);
  } else {
    shell_put(r, word, c, r->at++);
  }
}

/* From an opening quote to its end. */
static void put_quoted(shell_reader *r, shell_text *word, shell_texts *words) {
  uint32_t begin = r->at;
  char quote = r->text[r->at++];
  word->any = word->quoted = true;
  while (r->at < r->len && here(r) != quote && !r->failed) {
    if (quote == '\'')
      shell_put(r, word, here(r), r->at), r->at++;
    else
      put_next(r, true, word, words);
  }
  if (r->at >= r->len) shell_complain(r, (zp_span){r->file, begin, begin + 1}, "the quote that begins here has no end");
  r->at++;
}

/* After `:-`, to the closing brace. */
static void put_default(shell_reader *r, bool quoted, shell_text *word, shell_texts *words) {
  if (++r->depth > MOST_DEPTH)
    shell_complain(r, (zp_span){r->file, r->at - 1, r->at}, "defaults are nested more than %d deep", MOST_DEPTH);
  while (r->at < r->len && here(r) != '}' && !r->failed) {
    if (here(r) == '"')
      put_quoted(r, word, words);
    else
      put_next(r, quoted, word, words);
  }
  if (r->at < r->len) r->at++;
  r->depth--;
}

/* ---- words ---- */

/* Blanks, line ends after a backslash, and comments where a word may begin. */
static void skip_blanks(shell_reader *r) {
  for (;;) {
    char c = here(r);
    if (c == ' ' || c == '\t' || c == '\r')
      r->at++;
    else if (c == '\\' && r->at + 1 < r->len && r->text[r->at + 1] == '\n')
      r->at += 2;
    else if (c == '\\' && r->at + 2 < r->len && r->text[r->at + 1] == '\r' && r->text[r->at + 2] == '\n')
      r->at += 3;
    else if (c == '#')
      while (r->at < r->len && here(r) != '\n') r->at++;
    else
      return;
  }
}

static shell_end take_sign(shell_reader *r) {
  char c = here(r), next = r->at + 1 < r->len ? r->text[r->at + 1] : '\0';
  r->at++;
  if (c == '(') return SHELL_OPEN;
  if (c == ')') return SHELL_CLOSE;
  if ((c != '&' && c != '|') || next != c) return SHELL_LINE;
  r->at++;
  return c == '&' ? SHELL_AND : SHELL_OR;
}

shell_end shell_next(shell_reader *r, shell_texts *words, const char **raw) {
  *raw = "";
  skip_blanks(r);
  if (r->at >= r->len || r->failed) return SHELL_FILE;
  if (strchr("\n;&|()", here(r))) return take_sign(r);
  shell_text word = {0};
  uint32_t begin = r->at;
  while (r->at < r->len && !strchr(" \t\r\n;&|()", here(r)) && !r->failed) {
    if (here(r) == '"' || here(r) == '\'')
      put_quoted(r, &word, words);
    else
      put_next(r, false, &word, words);
    if (here(r) == '(' && r->at > begin && r->text[r->at - 1] == '=') break; /* NAME=( */
  }
  *raw = zp_strndup(r->arena, r->text + begin, r->at - begin);
  end_word(r, &word, words);
  return SHELL_WORD;
}
