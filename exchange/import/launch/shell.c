/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of a launch script: assignments, tests, and the one that starts a program of Python. */
#include "shell.h"
#include "launch.h"

#include <assert.h>
#include <ctype.h>

enum { MOST_BLOCKS = 64, MOST_VARIABLES = 4096 };

typedef enum truth { NO, YES, OPEN } truth;

/* An `if`, or a loop or `case`, whose body may run or not. */
typedef struct block {
  truth taken;  /* of this branch: commands of a NO are not read */
  bool was_yes; /* of an earlier branch of the same `if` */
  zp_span at;
} block;

typedef struct commands {
  shell_reader r;
  block blocks[MOST_BLOCKS];
  int depth;
  shell_launch *launch;
} commands;

static truth now(const commands *c) {
  truth all = YES;
  for (int i = 0; i < c->depth; i++) {
    if (c->blocks[i].taken == NO) return NO;
    if (c->blocks[i].taken == OPEN) all = OPEN;
  }
  return all;
}

static zp_span open_test(const commands *c) {
  for (int i = 0; i < c->depth; i++)
    if (c->blocks[i].taken == OPEN) return c->blocks[i].at;
  return ZP_NO_SPAN;
}

/* ---- assignments ---- */

/* The length of NAME in NAME=..., NAME+=...; 0: it is no assignment. */
static size_t name_length(const char *raw) {
  size_t n = 0;
  if (isdigit((unsigned char)*raw)) return 0;
  while (isalnum((unsigned char)raw[n]) || raw[n] == '_') n++;
  return n > 0 && (raw[n] == '=' || (raw[n] == '+' && raw[n + 1] == '=')) ? n : 0;
}

static shell_variable *variable(commands *c, const char *name) {
  shell_variable *found = shell_find(&c->r, name);
  if (found) return found;
  if (c->r.variables.len == MOST_VARIABLES)
    shell_complain(&c->r, ZP_NO_SPAN, "the script sets more than %d variables", MOST_VARIABLES);
  shell_variable v = {.name = name};
  zp_push(c->r.arena, &c->r.variables, v);
  return &c->r.variables.data[c->r.variables.len - 1];
}

static void read_array(commands *c, shell_texts *values) {
  const char *raw;
  for (;;) {
    shell_end end = shell_next(&c->r, values, &raw);
    if (end == SHELL_CLOSE) return;
    if (end == SHELL_FILE) {
      shell_complain(&c->r, ZP_NO_SPAN, "an array has no closing parenthesis");
      return;
    }
  }
}

/* What follows the `=` in the last of `words`, which begins with NAME= or NAME+=. */
static shell_text value_of(commands *c, const shell_texts *words, size_t skip) {
  shell_text value = {0};
  for (int w = 0; w < words->len; w++) { /* an unquoted value may have become several words */
    const shell_text *word = &words->data[w];
    if (w > 0) shell_put(&c->r, &value, ' ', word->at ? word->at[0] : 0);
    for (int i = w == 0 ? (int)skip : 0; i < word->len; i++) shell_put(&c->r, &value, word->data[i], word->at[i]);
    shell_taint(&value, word);
  }
  return value;
}

static void assign(commands *c, const char *raw, size_t name, const shell_texts *words) {
  bool more = raw[name] == '+';
  size_t skip = name + (more ? 2 : 1);
  bool is_array = raw[skip] == '\0' && c->r.at < c->r.len && c->r.text[c->r.at] == '(';
  shell_texts values = {0};
  if (is_array) {
    c->r.at++;
    read_array(c, &values);
  } else {
    shell_text value = value_of(c, words, skip);
    zp_push(c->r.arena, &values, value);
  }
  truth taken = now(c);
  if (taken == NO || c->r.failed) return;
  const shell_text open = {.open = taken == OPEN, .open_test = open_test(c)};
  for (int i = 0; i < values.len; i++) shell_taint(&values.data[i], &open);
  shell_variable *v = variable(c, zp_strndup(c->r.arena, raw, name));
  if (!more) v->values = (shell_texts){0};
  if (more && !is_array && v->values.len == 1 && !v->is_array) {
    shell_text *old = &v->values.data[0];
    shell_taint(old, &values.data[0]);
    for (int i = 0; i < values.data[0].len; i++) shell_put(&c->r, old, values.data[0].data[i], values.data[0].at[i]);
    return;
  }
  v->is_array = is_array || v->is_array;
  for (int i = 0; i < values.len; i++) zp_push(c->r.arena, &v->values, values.data[i]);
}

/* ---- tests ---- */

static const char *text_of(const shell_text *word) { return word->data ? word->data : ""; }

/* `a == b`, `-n a` of known values between brackets; anything else is not known. */
static truth compare(const shell_texts *w, int begin, int end) {
  const shell_text *a = &w->data[begin], *b = &w->data[end - 1];
  if (end - begin == 2 && !b->unknown) {
    if (strcmp(text_of(a), "-n") == 0) return b->len > 0 ? YES : NO;
    if (strcmp(text_of(a), "-z") == 0) return b->len == 0 ? YES : NO;
  }
  if (end - begin != 3 || a->unknown || b->unknown) return OPEN;
  const char *op = text_of(&w->data[begin + 1]);
  bool same = strcmp(text_of(a), text_of(b)) == 0;
  if (strcmp(op, "==") == 0 || strcmp(op, "=") == 0 || strcmp(op, "-eq") == 0) return same ? YES : NO;
  if (strcmp(op, "!=") == 0 || strcmp(op, "-ne") == 0) return same ? NO : YES;
  return OPEN;
}

static truth test_of(const shell_texts *w) {
  if (w->len < 3) return OPEN;
  const char *first = text_of(&w->data[0]), *last = text_of(&w->data[w->len - 1]);
  bool brackets =
      (strcmp(first, "[") == 0 && strcmp(last, "]") == 0) || (strcmp(first, "[[") == 0 && strcmp(last, "]]") == 0);
  if (!brackets) return OPEN;
  int begin = 1, end = w->len - 1;
  bool opposite = false;
  for (; end - begin >= 2 && strcmp(text_of(&w->data[begin]), "!") == 0; begin++) opposite = !opposite;
  truth of = compare(w, begin, end);
  return !opposite || of == OPEN ? of : of == YES ? NO : YES;
}

static truth join(truth a, truth b, shell_end by) {
  if (by == SHELL_OR) return a == YES || b == YES ? YES : a == OPEN || b == OPEN ? OPEN : NO;
  return a == NO || b == NO ? NO : a == OPEN || b == OPEN ? OPEN : YES;
}

/* Up to `then`. Inside brackets || and && join, too: `[[ a == b || c == d ]]`. */
static truth read_test(commands *c) {
  truth all = OPEN;
  shell_end by = SHELL_LINE;
  bool inside = false;
  shell_texts words = {0};
  for (;;) {
    const char *raw;
    int before = words.len;
    shell_end end = shell_next(&c->r, &words, &raw);
    if (end == SHELL_WORD && strcmp(raw, "then") != 0) {
      if (strcmp(raw, "[[") == 0) inside = true;
      if (strcmp(raw, "]]") == 0) inside = false;
      if (words.len == before) { /* an empty value is a word for a test */
        shell_text none = {.any = true, .quoted = true};
        zp_push(c->r.arena, &words, none);
      }
      continue;
    }
    if (inside || end == SHELL_OPEN || end == SHELL_CLOSE) { /* joined inside, or grouped */
      if (end == SHELL_FILE) return OPEN;
      words.len = 0;
      all = OPEN;
      by = SHELL_AND;
      inside = end != SHELL_LINE && inside;
      if (inside) continue;
    }
    if (words.len && strcmp(text_of(&words.data[0]), "then") != 0) {
      truth one = test_of(&words);
      all = by == SHELL_LINE ? one : join(all, one, by);
      by = end;
    }
    words = (shell_texts){0};
    if (end == SHELL_FILE || (end == SHELL_WORD && strcmp(raw, "then") == 0)) return all;
  }
}

static void enter(commands *c, truth taken, zp_span at) {
  if (c->depth == MOST_BLOCKS) {
    shell_complain(&c->r, at, "blocks are nested more than %d deep", MOST_BLOCKS);
    return;
  }
  c->blocks[c->depth++] = (block){.taken = taken, .was_yes = taken == YES, .at = at};
}

/* Words that begin, divide or end blocks. false: `raw` is none. */
static bool read_block(commands *c, const char *raw, zp_span at) {
  block *inner = c->depth ? &c->blocks[c->depth - 1] : NULL;
  if (launch_among("if", raw)) {
    enter(c, now(c) == NO ? NO : read_test(c), at);
  } else if (launch_among("elif", raw) && inner) {
    truth test = read_test(c);
    inner->taken = inner->was_yes ? NO : inner->taken == OPEN && test == YES ? OPEN : test;
    inner->was_yes |= inner->taken == YES;
  } else if (launch_among("else", raw) && inner) {
    inner->taken = inner->was_yes ? NO : inner->taken == OPEN ? OPEN : YES;
  } else if (launch_among("for while until case", raw)) {
    enter(c, now(c) == NO ? NO : OPEN, at);
  } else if (launch_among("fi done esac", raw)) {
    if (c->depth) c->depth--;
  } else {
    return launch_among("do then { }", raw);
  }
  return true;
}

/* ---- the command that counts ---- */

static bool is_program(const shell_text *word) {
  return word->len > 3 && strcmp(word->data + word->len - 3, ".py") == 0;
}

static bool begins_flag(const shell_text *word) { return word->len > 2 && strncmp(word->data, "--", 2) == 0; }

static void push(commands *c, shell_words *words, const shell_text *text) {
  shell_word word = {text_of(text), shell_span(&c->r, text), text->unknown, text->open, text->open_test};
  zp_push(c->r.arena, words, word);
}

/* The words of a command. One that starts a program of Python with flags replaces what was found before. */
static void take_command(commands *c, const shell_texts *words) {
  int program = -1, flags = 0;
  for (int i = 0; i < words->len && program < 0; i++)
    if (is_program(&words->data[i])) program = i;
  for (int i = program + 1; program >= 0 && i < words->len; i++) flags += begins_flag(&words->data[i]);
  if (flags == 0) return;
  shell_launch *l = c->launch;
  l->launcher = l->args = (shell_words){0};
  l->commands++;
  l->program = words->data[program].data;
  for (int i = 0; i < words->len; i++)
    if (i != program) push(c, i < program ? &l->launcher : &l->args, &words->data[i]);
}

static bool is_redirection(const char *raw) {
  while (isdigit((unsigned char)*raw)) raw++;
  return *raw == '>' || *raw == '<';
}

static void read_command(commands *c) {
  shell_texts words = {0};
  bool first = true, redirected = false;
  for (;;) {
    const char *raw;
    int before = words.len;
    shell_end end = shell_next(&c->r, &words, &raw);
    if (end == SHELL_OPEN || end == SHELL_CLOSE) continue; /* of a group, a function or a pattern */
    if (end != SHELL_WORD) break;
    size_t name = first ? name_length(raw) : 0;
    uint32_t at = c->r.at - (uint32_t)strlen(raw);
    if (first && read_block(c, raw, (zp_span){c->r.file, at, c->r.at})) {
      words.len = before;
      continue;
    }
    if (name) {
      shell_texts mine = {.data = words.data + before, .len = words.len - before, .cap = words.len - before};
      assign(c, raw, name, &mine);
    }
    redirected |= is_redirection(raw);
    if (name || redirected || (first && launch_among("export declare local readonly exec", raw))) {
      words.len = before;
      continue;
    }
    first = false;
  }
  truth taken = now(c);
  const shell_text open = {.open = taken == OPEN, .open_test = open_test(c)};
  for (int i = 0; i < words.len; i++) shell_taint(&words.data[i], &open);
  if (taken != NO) take_command(c, &words);
}

/* A command that stands in a variable, which something else runs. */
static void look_into_variables(commands *c) {
  for (int i = 0; i < c->r.variables.len && c->launch->commands == 0; i++) {
    const shell_variable *v = &c->r.variables.data[i];
    shell_texts words = {0};
    for (int k = 0; k < v->values.len; k++) shell_split(&c->r, &v->values.data[k], &words);
    take_command(c, &words);
  }
}

/* No command: flags of all variables, in their order. */
static void take_variables(commands *c) {
  for (int i = 0; i < c->r.variables.len; i++) {
    const shell_variable *v = &c->r.variables.data[i];
    shell_texts words = {0};
    for (int k = 0; k < v->values.len; k++) shell_split(&c->r, &v->values.data[k], &words);
    if (words.len == 0 || !begins_flag(&words.data[0])) continue;
    bool launcher = strstr(text_of(&words.data[0]), "nproc") || strstr(text_of(&words.data[0]), "nnodes");
    for (int k = 0; k < words.len; k++) push(c, launcher ? &c->launch->launcher : &c->launch->args, &words.data[k]);
  }
}

bool shell_read(zp_arena *arena, zp_diags *diags, int file, shell_launch *found) {
  assert(found);
  size_t len;
  const char *text = zp_diags_source_text(diags, file, &len);
  commands c = {.r = {.arena = arena, .diags = diags, .file = file, .text = text, .len = (uint32_t)len},
                .launch = found};
  *found = (shell_launch){0};
  if (memchr(text, 0, len) || len >= SHELL_UNKNOWN)
    return shell_complain(&c.r, ZP_NO_SPAN, "%s is no text", zp_diags_source_path(diags, file));
  while (c.r.at < c.r.len && !c.r.failed) read_command(&c);
  if (!c.r.failed && found->commands == 0) look_into_variables(&c);
  if (!c.r.failed && found->commands == 0) take_variables(&c);
  return !c.r.failed;
}
