/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: texts with holes that are expressions over the values of a configuration.
 *
 * ${expression} is its value, ${?expression:text} the text where it holds. A line that begins with % is no text:
 *   %if EXPRESSION, %else, %end        lines where it holds, and where not
 *   %each EXPRESSION, %end             lines for i of 0, 1, ... so many times
 *   %let NAME = EXPRESSION             a value of its own
 *   %text NAME TEXT                    likewise, TEXT with its holes filled in
 *   %include NAME                      another template */
#include "hf.h"

#include <assert.h>
#include <stdlib.h>

const char *hf_number(zp_arena *arena, double value) {
  char *text = NULL, *zeros;
  if (value == (double)(int64_t)value) return zp_format(arena, "%.1f", value);
  for (int digits = 1; digits <= 17; digits++) {
    text = zp_format(arena, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  if ((zeros = strstr(text, "e-0")) != NULL) memmove(zeros + 2, zeros + 3, strlen(zeros + 2)); /* 1e-05: 1e-5 */
  return text;
}

static const char *shown(const hf_scope *s, hf_value v) {
  switch (v.kind) {
  case HF_INT: return zp_format(s->arena, "%lld", (long long)v.n);
  case HF_FLOAT: return s->for_people ? zp_format(s->arena, "%g", v.x) : hf_number(s->arena, v.x);
  case HF_TEXT: return v.text;
  case HF_POISON: break;
  }
  assert(!"a hole whose value was reported");
  return "";
}

/* After "${" or "(": the brace or the parenthesis that closes it, or `until` outside of all. */
static const char *closing(const char *at, char until) {
  for (int depth = 0; *at; at++) {
    if (depth == 0 && *at == until) return at;
    if (*at == '{' || *at == '(') depth++;
    if (*at == '}' || *at == ')') depth--;
  }
  assert(!"a hole that does not end");
  return at;
}

static void put_text(zp_buf *out, const hf_scope *s, const char *text) {
  const char *hole;
  while ((hole = strstr(text, "${")) != NULL) {
    zp_buf_put(out, text, (size_t)(hole - text));
    const char *begin = hole + 2, *end = closing(begin, '}');
    if (*begin == '?') {
      const char *colon = closing(++begin, ':');
      if (hf_holds(s, zp_strndup(s->arena, begin, (size_t)(colon - begin))))
        put_text(out, s, zp_strndup(s->arena, colon + 1, (size_t)(end - colon - 1)));
    } else {
      zp_buf_puts(out, shown(s, hf_evaluate(s, zp_strndup(s->arena, begin, (size_t)(end - begin)))));
    }
    text = end + 1;
  }
  zp_buf_puts(out, text);
}

const char *hf_fill_in(const hf_scope *scope, const char *text) {
  zp_buf out = zp_buf_new(scope->arena);
  put_text(&out, scope, text);
  return out.data ? out.data : "";
}

static const struct {
  const char *name, *text;
} templates[] = {
#include "hf_template_rows.h"
};

const char *hf_template(const char *name) {
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
    if (strcmp(templates[i].name, name) == 0) return templates[i].text;
  return NULL;
}

/* ---- lines ---- */

typedef struct filling {
  zp_buf *out;
  hf_scope scope;
  hf_model *model; /* %let sets its values */
  const char *at;  /* the line that comes next */
} filling;

/* A line, and where a hole goes on on the next one, that too. */
static const char *next_line(filling *f) {
  const char *end = f->at;
  for (; *end && *end != '\n'; end++)
    if (strncmp(end, "${", 2) == 0) end = closing(end + 2, '}');
  assert(*end && "templates end with a line break");
  const char *line = zp_strndup(f->scope.arena, f->at, (size_t)(end - f->at));
  f->at = end + 1;
  return line;
}

/* After the word; NULL: the line is another one. */
static const char *behind(const char *line, const char *word) {
  size_t n = strlen(word);
  return strncmp(line, word, n) == 0 && (!line[n] || line[n] == ' ') ? line + n + (line[n] == ' ') : NULL;
}

/* Up to %else or %end of the same depth, which is taken too. active false: nothing is written. True: it was %else. */
static bool put_lines(filling *f, bool active);

static void put_condition(filling *f, const char *expression, bool active) {
  bool holds = active && hf_holds(&f->scope, expression);
  if (put_lines(f, holds)) put_lines(f, active && !holds);
}

static void put_loop(filling *f, const char *expression, bool active) {
  const char *begin = f->at;
  hf_scope outside = f->scope;
  int64_t n = active ? hf_evaluate(&f->scope, expression).n : 0;
  if (n == 0) put_lines(f, false);
  for (f->scope.in_loop = true, f->scope.i = 0; f->scope.i < n; f->scope.i++) {
    f->at = begin;
    put_lines(f, true);
  }
  f->scope = outside;
}

static const char *word_of(filling *f, const char *text, const char **rest) {
  size_t n = strcspn(text, " ");
  *rest = text + n + (text[n] == ' ');
  return zp_strndup(f->scope.arena, text, n);
}

static void put_template(zp_buf *out, const hf_scope *scope, hf_model *model, const char *text) {
  filling f = {.out = out, .scope = *scope, .model = model, .at = text};
  while (*f.at) put_lines(&f, true);
}

static void put_line(filling *f, const char *line) {
  const char *rest, *name;
  if ((rest = behind(line, "%let")) != NULL) {
    name = word_of(f, rest, &rest);
    assert(strncmp(rest, "= ", 2) == 0);
    hf_set(f->scope.arena, f->model, name, hf_evaluate(&f->scope, rest + 2));
  } else if ((rest = behind(line, "%text")) != NULL) {
    name = word_of(f, rest, &rest);
    hf_set_text(f->scope.arena, f->model, name, hf_fill_in(&f->scope, rest));
  } else if ((rest = behind(line, "%include")) != NULL) {
    const char *other = hf_template(rest);
    assert(other && "%include names no template");
    put_template(f->out, &f->scope, f->model, other);
  } else {
    assert(line[0] != '%');
    put_text(f->out, &f->scope, line);
    zp_buf_puts(f->out, "\n");
  }
}

static bool put_lines(filling *f, bool active) {
  while (*f->at) {
    const char *line = next_line(f), *rest;
    if (behind(line, "%end")) return false;
    if (behind(line, "%else")) return true;
    if ((rest = behind(line, "%if")) != NULL)
      put_condition(f, rest, active);
    else if ((rest = behind(line, "%each")) != NULL)
      put_loop(f, rest, active);
    else if (active)
      put_line(f, line);
  }
  return false;
}

const char *hf_expand(zp_arena *arena, hf_model *model, const char *text) {
  zp_buf out = zp_buf_new(arena);
  hf_scope scope = {.arena = arena, .model = model};
  put_template(&out, &scope, model, text);
  return out.data;
}
