/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions over the values of a configuration: defaults of fields, conditions of rows, holes of templates. */
#include "hf.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>

typedef struct parser {
  const hf_scope *scope;
  const char *at;
} parser;

static hf_value ternary(parser *p);

static hf_value whole(int64_t n) { return (hf_value){.kind = HF_INT, .n = n}; }
static hf_value real(double x) { return (hf_value){.kind = HF_FLOAT, .x = x}; }
static const hf_value poison = {.kind = HF_POISON};

static double number_of(hf_value v) { return v.kind == HF_INT ? (double)v.n : v.x; }

static bool is_true(hf_value v) {
  switch (v.kind) {
  case HF_POISON: return false;
  case HF_INT: return v.n != 0;
  case HF_FLOAT: return v.x != 0;
  case HF_TEXT: return v.text[0] != 0;
  }
  return false;
}

static bool takes(parser *p, const char *word) {
  while (*p->at == ' ') p->at++;
  size_t n = strlen(word);
  if (strncmp(p->at, word, n) != 0) return false;
  p->at += n;
  return true;
}

static void expects(parser *p, const char *word) {
  bool found = takes(p, word);
  assert(found);
  (void)found;
}

static const hf_value *find(const hf_model *m, const char *name) {
  for (int i = 0; i < m->values.len; i++)
    if (strcmp(m->values.data[i].name, name) == 0) return &m->values.data[i].value;
  return NULL;
}

const char *hf_model_name(const hf_model *m) {
  const hf_value *given = find(m, "name");
  return given ? given->text : m->family->type;
}

static hf_value value_of(const hf_scope *s, const char *name) {
  if (strcmp(name, "i") == 0) return whole(s->i);
  if (strcmp(name, "j") == 0) return whole(s->j);
  if (strcmp(name, "expert") == 0) return whole(s->expert);
  if (strcmp(name, "type") == 0) return (hf_value){.kind = HF_TEXT, .text = hf_model_name(s->model)};
  const hf_value *of_loop = s->in_loop ? find(s->model, zp_format(s->arena, "%s.%lld", name, (long long)s->i)) : NULL;
  const hf_value *found = of_loop ? of_loop : find(s->model, name);
  assert(found && "a row or a template names a value that its family does not set");
  return *found;
}

static hf_value primary(parser *p) {
  const char *begin;
  if (takes(p, "(")) {
    hf_value v = ternary(p);
    expects(p, ")");
    return v;
  }
  if (takes(p, "'")) {
    begin = p->at;
    p->at = strchr(begin, '\'');
    assert(p->at);
    return (hf_value){.kind = HF_TEXT, .text = zp_strndup(p->scope->arena, begin, (size_t)(p->at++ - begin))};
  }
  begin = p->at;
  if (isdigit((unsigned char)*begin)) {
    char *end, *end_of_whole;
    double x = strtod(begin, &end);
    int64_t n = strtoll(begin, &end_of_whole, 10);
    p->at = end;
    return end == end_of_whole ? whole(n) : real(x);
  }
  while (isalnum((unsigned char)*p->at) || *p->at == '_') p->at++;
  const char *name = zp_strndup(p->scope->arena, begin, (size_t)(p->at - begin));
  if (strcmp(name, "given") != 0) return value_of(p->scope, name);
  expects(p, "(");
  begin = p->at;
  p->at = strchr(begin, ')');
  assert(p->at);
  const zp_json *value = zp_json_get(p->scope->root, zp_strndup(p->scope->arena, begin, (size_t)(p->at++ - begin)));
  return whole(value && !zp_json_is_null(value));
}

static hf_value unary(parser *p) {
  if (!takes(p, "!")) return primary(p);
  hf_value v = unary(p);
  return v.kind == HF_POISON ? v : whole(!is_true(v));
}

static hf_value computed(char op, hf_value a, hf_value b) {
  if (a.kind == HF_POISON || b.kind == HF_POISON) return poison;
  assert(a.kind != HF_TEXT && b.kind != HF_TEXT);
  bool of_whole = a.kind == HF_INT && b.kind == HF_INT;
  double x = number_of(a), y = number_of(b);
  switch (op) {
  case '+': return of_whole ? whole(a.n + b.n) : real(x + y);
  case '-': return of_whole ? whole(a.n - b.n) : real(x - y);
  case '*': return of_whole ? whole(a.n * b.n) : real(x * y);
  case '%': return of_whole && b.n ? whole(a.n % b.n) : poison;
  default:
    if (y == 0) return poison;
    return of_whole ? whole(a.n / b.n) : real(x / y);
  }
}

static hf_value product(parser *p) {
  hf_value v = unary(p);
  for (;;) {
    if (takes(p, "*"))
      v = computed('*', v, unary(p));
    else if (takes(p, "/"))
      v = computed('/', v, unary(p));
    else if (takes(p, "%"))
      v = computed('%', v, unary(p));
    else
      return v;
  }
}

static hf_value sum(parser *p) {
  hf_value v = product(p);
  for (;;) {
    if (takes(p, "+"))
      v = computed('+', v, product(p));
    else if (takes(p, "-"))
      v = computed('-', v, product(p));
    else
      return v;
  }
}

/* <0, 0, >0 */
static int order_of(hf_value a, hf_value b) {
  assert((a.kind == HF_TEXT) == (b.kind == HF_TEXT));
  if (a.kind == HF_TEXT) return strcmp(a.text, b.text);
  double x = number_of(a), y = number_of(b);
  return (x > y) - (x < y);
}

static hf_value comparison(parser *p) {
  static const struct {
    const char *word;
    bool less, equal, more;
  } rows[] = {{"==", false, true, false}, {"!=", true, false, true}, {"<=", true, true, false},
              {">=", false, true, true},  {"<", true, false, false}, {">", false, false, true}};
  hf_value a = sum(p);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (!takes(p, rows[i].word)) continue;
    hf_value b = sum(p);
    if (a.kind == HF_POISON || b.kind == HF_POISON) return poison;
    int order = order_of(a, b);
    return whole(order < 0 ? rows[i].less : order > 0 ? rows[i].more : rows[i].equal);
  }
  return a;
}

static hf_value conjunction(parser *p) {
  hf_value a = comparison(p);
  while (takes(p, "&")) {
    hf_value b = comparison(p);
    a = a.kind == HF_POISON || b.kind == HF_POISON ? poison : whole(is_true(a) && is_true(b));
  }
  return a;
}

static hf_value disjunction(parser *p) {
  hf_value a = conjunction(p);
  while (takes(p, "|")) {
    hf_value b = conjunction(p);
    a = a.kind == HF_POISON || b.kind == HF_POISON ? poison : whole(is_true(a) || is_true(b));
  }
  return a;
}

static hf_value ternary(parser *p) {
  hf_value condition = disjunction(p);
  if (!takes(p, "?")) return condition;
  hf_value yes = ternary(p);
  expects(p, ":");
  hf_value no = ternary(p);
  if (condition.kind == HF_POISON) return condition;
  return is_true(condition) ? yes : no;
}

hf_value hf_evaluate(const hf_scope *scope, const char *expression) {
  parser p = {scope, expression};
  hf_value v = ternary(&p);
  expects(&p, "");
  assert(!*p.at);
  return v;
}

bool hf_holds(const hf_scope *scope, const char *expression) {
  return !expression || is_true(hf_evaluate(scope, expression));
}

/* ---- values ---- */

void hf_set(zp_arena *arena, hf_model *m, const char *name, hf_value value) {
  for (int i = 0; i < m->values.len; i++)
    if (strcmp(m->values.data[i].name, name) == 0) {
      m->values.data[i].value = value;
      return;
    }
  zp_push(arena, &m->values, ((hf_named){name, value}));
}

void hf_set_int(zp_arena *arena, hf_model *m, const char *name, int64_t n) { hf_set(arena, m, name, whole(n)); }
void hf_set_real(zp_arena *arena, hf_model *m, const char *name, double x) { hf_set(arena, m, name, real(x)); }
void hf_set_text(zp_arena *arena, hf_model *m, const char *name, const char *text) {
  hf_set(arena, m, name, (hf_value){.kind = HF_TEXT, .text = text});
}

double hf_real(const hf_model *m, const char *name) {
  const hf_value *v = find(m, name);
  return v && (v->kind == HF_INT || v->kind == HF_FLOAT) ? number_of(*v) : 0;
}

int64_t hf_int(const hf_model *m, const char *name) {
  const hf_value *v = find(m, name);
  return v && v->kind == HF_INT ? v->n : 0;
}

bool hf_is_poison(const hf_model *m, const char *name) {
  const hf_value *v = find(m, name);
  return v && v->kind == HF_POISON;
}
