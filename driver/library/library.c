/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of zplan.h: a verb of the command, its words and its two streams, as a value. What a call makes goes with
 * it, however it ends (support/hosted.c). */
#define _GNU_SOURCE /* streams of one's own */
#include "answer.h"
#include "driver.h"

#include <zplan/hosted.h>

#include <locale.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct call {
  const char *verb, *path, *text;
  const char *const *lists[2]; /* decisions, as --set; options. NULL: none */
} call;

/* A text in memory as a stream. open_memstream drops what it has no room for, and says so to nobody. */
typedef struct memory {
  FILE *file;
  char *data; /* ends with a zero byte; NULL: nothing was written */
  size_t len, room;
  bool failed;
} memory;

static _Thread_local const volatile int *leave_flag;

static ssize_t append(void *stream, const char *text, size_t bytes) {
  memory *m = stream;
  if (m->room - m->len <= bytes) {
    size_t room = 2 * (m->len + bytes) + 1;
    char *data = realloc(m->data, room);
    if (!data) return m->failed = true, 0;
    m->data = data;
    m->room = room;
  }
  memcpy(m->data + m->len, text, bytes);
  m->len += bytes;
  m->data[m->len] = '\0';
  return (ssize_t)bytes;
}

static const char *written(memory *m) {
  if (fflush(m->file) != 0 || m->failed) zp_give_up(ZP_EXIT_ERROR, "out of memory for what is printed");
  return m->data ? m->data : "";
}

static bool open_memory(memory *m) {
  m->file = fopencookie(m, "w", (cookie_io_functions_t){.write = append});
  return m->file && setvbuf(m->file, NULL, _IONBF, 0) == 0;
}

static void close_memory(memory *m) {
  if (m->file) fclose(m->file);
  free(m->data);
}

/* The words after the verb: the file, --json, --set before every decision, the options. */
static void gather(zp_run_state *run, const call *c) {
  zp_strings words = {0};
  const char *path = c->path;
  if (path && *path == '-') path = zp_format(run->arena, "./%s", path); /* a file, no option */
  if (path) zp_push(run->arena, &words, path);
  zp_push(run->arena, &words, "--json");
  for (int list = 0; list < 2; list++)
    for (const char *const *word = c->lists[list]; word && *word; word++) {
      if (list == 0) zp_push(run->arena, &words, "--set");
      zp_push(run->arena, &words, *word);
    }
  run->words = (char **)(uintptr_t)words.data;
  run->n_words = words.len;
  run->given_path = c->text ? path : NULL;
  run->given_text = c->text;
}

static const char *unknown_verb(zp_arena *arena, const char *verb) {
  zp_buf text = zp_buf_new(arena);
  zp_buf_printf(&text, "libzplan has no `%s`, but", verb);
  const char *comma = "";
  for (int i = 0; i < zp_verb_count(); i++) {
    if (!zp_verb_at(i)->run) continue;
    zp_buf_printf(&text, "%s %s", comma, zp_verb_at(i)->name);
    comma = ",";
  }
  return text.data;
}

static bool carry_out(const call *c, memory *out, memory *err, zplan_answer *answer) {
  zp_arena *arena = zp_arena_new("call"), *values = zp_arena_new("JSON of a call");
  zp_json_make_in(values);
  zp_forget_usage_error();
  zp_run_state run = {.arena = arena, .command = c->verb, .diags = zp_diags_new(arena)};
  const zp_verb *verb = zp_find_verb(c->verb);
  if (!verb || !verb->run) zp_give_up(ZP_EXIT_USAGE, "%s", unknown_verb(arena, c->verb));
  gather(&run, c);
  int status = zp_carry_out(&run, verb);
  const char *json = zp_envelope_text(&run, verb, status, written(out));
  const char *messages = zp_json_text(arena, zp_envelope_messages(&run), true);
  return zp_answer_fill(answer, status, json, messages, written(err));
}

/* Whatever the call does, here it ends. */
static void guard(const call *c, memory *out, memory *err, zplan_answer *answer) {
  zp_hosted host = {.out = out->file, .err = err->file, .leave = leave_flag};
  zp_hosted_begin(&host);
  if (setjmp(host.failed) != 0)
    zp_answer_give_up(answer, host.status, host.why);
  else if (!carry_out(c, out, err, answer))
    zp_answer_give_up(answer, ZP_EXIT_ERROR, "out of memory for the answer");
  zp_hosted_end();
}

/* Numbers are read and written as in the locale "C", whatever the host's. */
static zplan_answer *answer_to(const call *c) {
  zplan_answer *answer = calloc(1, sizeof *answer);
  memory out = {0}, err = {0};
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  bool ready = answer && plain && open_memory(&out) && open_memory(&err);
  if (ready) {
    locale_t before = uselocale(plain);
    guard(c, &out, &err, answer);
    uselocale(before);
  } else if (answer) {
    zp_answer_give_up(answer, ZP_EXIT_ERROR, "out of memory");
  }
  close_memory(&err);
  close_memory(&out);
  if (plain) freelocale(plain);
  return answer ? answer : (zplan_answer *)(uintptr_t)&zp_answer_without_memory;
}

/* What a text without a name is called. */
static const char *name_of(const char *text) {
  if (!text) return NULL;
  return text[strspn(text, " \t\r\n")] == '{' ? "plan.json" : "input.dz";
}

static zplan_answer *answer_about(const char *verb, const char *path, const char *text, const char *const *decisions,
                                  const char *const *options) {
  const call c = {verb, path ? path : name_of(text), text, {decisions, options}};
  return answer_to(&c);
}

int zplan_abi(void) { return ZPLAN_ABI; }

const char *zplan_version(void) { return zp_version(); }

/* version.c, which names every library of the command, is not linked. */
const char *zp_version(void) { return ZPLAN_VERSION; }

zplan_answer *zplan_parse(const char *path, const char *text, const char *const *options) {
  return answer_about("check", path, text, NULL, options);
}

zplan_answer *zplan_plan(const char *path, const char *text, const char *const *options) {
  return answer_about("plan", path, text, NULL, options);
}

zplan_answer *zplan_price(const char *path, const char *text, const char *const *decisions,
                          const char *const *options) {
  return answer_about("plan", path, text, decisions, options);
}

zplan_answer *zplan_verify(const char *path, const char *text, const char *const *options) {
  return answer_about("verify", path, text, NULL, options);
}

zplan_answer *zplan_report(const char *path, const char *text, const char *const *options) {
  return answer_about("report", path, text, NULL, options);
}

zplan_answer *zplan_call(const char *verb, const char *path, const char *text, const char *const *options) {
  return answer_about(verb ? verb : "", path, text, NULL, options);
}

void zplan_leave(const volatile int *flag) { leave_flag = flag; }

/* The linker brings failed assertions of the library here: a bug of ours ends the call, not the host. */
_Noreturn void __wrap___assert_fail(const char *what, const char *file, unsigned line, const char *function);
void __wrap___assert_fail(const char *what, const char *file, unsigned line, const char *function) {
  zp_give_up(ZP_EXIT_BUG, "a bug of zplan: %s:%u: %s: %s does not hold", file, line, function, what);
}
