/* SPDX-License-Identifier: Apache-2.0 */
/* --json of every verb: one document on standard output, whatever happens.
 *
 * Verbs whose document scripts have read for long (plan, check, ...) print that when they have one. All others, and
 * those when they fail, print {"status": N, "messages": [...], "result": {...} or null}: the exit status, the
 * diagnostics as --message-format json has them, what the verb made. What it would print as text is `result.text`. */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/diag_json.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Standard output while a verb runs: a file that is read afterwards. What a training prints goes to standard error as
 * it comes. */
static struct {
  int kept;   /* the real one; -1: it is not taken */
  FILE *file; /* what takes its place; NULL: standard error does */
} captured = {.kept = -1};

bool zp_asks_for_json(int argc, char *const *argv) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--json") == 0) return true;
  return false;
}

bool zp_envelope_begin(const zp_verb *verb) {
  bool trains = strcmp(verb->name, "run") == 0;
  fflush(stdout);
  captured.file = trains ? NULL : tmpfile();
  captured.kept = trains || captured.file ? dup(STDOUT_FILENO) : -1;
  if (captured.kept >= 0 && dup2(trains ? STDERR_FILENO : fileno(captured.file), STDOUT_FILENO) >= 0) return true;
  zp_usage_error("cannot keep what the command prints: no temporary file");
  return false;
}

/* What the verb has printed; standard output is the real one again. */
static const char *take_back(zp_arena *arena) {
  zp_buf text = zp_buf_new(arena);
  char some[4096];
  fflush(stdout);
  dup2(captured.kept, STDOUT_FILENO);
  close(captured.kept);
  if (captured.file) {
    rewind(captured.file);
    for (size_t n; (n = fread(some, 1, sizeof some, captured.file)) > 0;) zp_buf_put(&text, some, n);
    fclose(captured.file);
  }
  captured.kept = -1;
  return text.data;
}

/* Does the verb print a document of its own? */
static bool is_document(const zp_verb *verb, const char *text) {
  return verb->has_document && (*text == '{' || *text == '[');
}

zp_json *zp_envelope_messages(zp_run_state *run) {
  zp_json *messages = zp_diags_json(run->arena, run->diags);
  if (zp_last_usage_error()) {
    zp_json *one = zp_json_append(messages, zp_json_object());
    zp_json_set_string(one, "level", "error");
    zp_json_set_string(one, "message", zp_last_usage_error());
  }
  return messages;
}

const char *zp_envelope_text(zp_run_state *run, const zp_verb *verb, int status, const char *text) {
  if (is_document(verb, text)) return text;
  zp_json *o = zp_json_object();
  zp_json_set_int(o, "status", status);
  zp_json_set(o, "messages", zp_envelope_messages(run));
  if (!run->result && *text) run->result = zp_json_object();
  if (*text) zp_json_set_string(run->result, "text", text);
  if (run->result)
    zp_json_set(o, "result", run->result);
  else
    zp_json_set_string(o, "result", NULL);
  run->result = NULL;
  const char *whole = zp_format(run->arena, "%s\n", zp_json_text(run->arena, o, true));
  zp_json_free(o);
  return whole;
}

void zp_envelope_end(zp_run_state *run, const zp_verb *verb, int status) {
  const char *text = take_back(run->arena);
  const char *whole = zp_envelope_text(run, verb, status, text);
  if (whole == text)
    fwrite(text, 1, strlen(text), stdout); /* Jansson wrote it: no control character is left in it */
  else
    zp_say(stdout, "%s", whole);
}

zp_json *zp_result_object(zp_run_state *run) {
  assert(run->options.json);
  if (!run->result) run->result = zp_json_object();
  return run->result;
}

void zp_result_text(zp_run_state *run, const char *key, const char *value) {
  if (run->options.json) zp_json_set_string(zp_result_object(run), key, value);
}
