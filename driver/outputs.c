/* SPDX-License-Identifier: Apache-2.0 */
/* A result must not take the place of what it is made from, nor of another result, nor of what a person has edited.
 *
 * Texts that have comments end with a line that says that zplan wrote them, and their hash: as long as it fits, the
 * file may be written again. Plan files have such a hash among their fields; traces are known by their words.
 * Everything else that is there already and says something else is left alone without --force. */
#include "driver.h"
#include <zplan/hash.h>
#include <zplan/hosted.h>

#include <unistd.h>

#include <sys/stat.h>

typedef struct named_path {
  const char *what, *path; /* path: NULL when not given */
} named_path;

static bool same_file(const char *a, const char *b) {
  struct stat x, y;
  bool a_there = stat(a, &x) == 0, b_there = stat(b, &y) == 0;
  if (!a_there && !b_there) return strcmp(a, b) == 0;
  return a_there && b_there && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool is_one_of(const char *word, const char *const *list, int n) {
  for (int i = 0; i < n; i++)
    if (strcmp(word, list[i]) == 0) return true;
  return false;
}

static bool differs_from(const named_path *result, const char *what, const char *path) {
  if (!result->path || !path || !same_file(result->path, path)) return true;
  return zp_usage_error("%s %s would take the place of %s", result->what, result->path, what), false;
}

bool zp_results_are_apart(const zp_run_state *run) {
  /* The -o of data: shard_file.c; of the other verbs it is a folder. */
  static const char *const to_file[] = {"plan", "verify", "calibrate", "export", "import"};
  static const char *const named_first[] = {"export", "import"}; /* before their input: whose words these are */
  const zp_options *o = &run->options;
  bool reads_log = strcmp(run->command, "report") == 0;
  int first_input = is_one_of(run->command, named_first, sizeof named_first / sizeof *named_first);
  const named_path results[] = {
      {"-o", is_one_of(run->command, to_file, sizeof to_file / sizeof *to_file) ? o->output : NULL},
      {"--html", o->html},
      {"--trace", o->trace},
      {"--prometheus", o->prometheus},
      {"--log", reads_log ? NULL : o->log},
  };
  enum { N = sizeof results / sizeof *results };
  for (int i = 0; i < N; i++) {
    for (int k = first_input; k < o->files.len; k++)
      if (!differs_from(&results[i], "the input", o->files.data[k])) return false;
    if (!differs_from(&results[i], "the calibration", o->calibration) ||
        !differs_from(&results[i], "the hostfile", o->hostfile) || !differs_from(&results[i], "the front", o->front) ||
        !differs_from(&results[i], "the log", reads_log ? o->log : NULL))
      return false;
    for (int k = i + 1; k < N; k++)
      if (!differs_from(&results[i], results[k].what, results[k].path)) return false;
  }
  return true;
}

static const char mark[] = "written by zplan, unedited: ";

static const char *mark_line(zp_arena *arena, const char *comment, const char *text, size_t len) {
  bool html = comment[0] == '<';
  return zp_format(arena, "%s %s%016llx%s\n", comment, mark, (unsigned long long)zp_hash(ZP_HASH_START, text, len),
                   html ? " -->" : "");
}

const char *zp_mark_output(zp_run_state *run, const char *comment, const char *text) {
  const char *end = text[0] && text[strlen(text) - 1] == '\n' ? "" : "\n";
  const char *whole = zp_format(run->arena, "%s%s", text, end);
  return zp_format(run->arena, "%s%s", whole, mark_line(run->arena, comment, whole, strlen(whole)));
}

/* Does the last line say so, and does it fit? */
static bool is_unedited(zp_arena *arena, const char *text, size_t len) {
  static const char *const comments[] = {"#", "<!--"};
  for (size_t i = 0; i < sizeof comments / sizeof *comments; i++) {
    size_t line = strlen(mark_line(arena, comments[i], "", 0));
    if (len < line) continue;
    if (strcmp(text + len - line, mark_line(arena, comments[i], text, len - line)) == 0) return true;
  }
  return false;
}

/* Plan files have the hash of their other words: a decision in them may be a person's. */
static const char words_hash[] = "file_hash";

static const char *hash_of_words(zp_arena *arena, zp_json *json) {
  zp_json_remove(json, words_hash);
  const char *text = zp_json_text(arena, json, true);
  return zp_format(arena, "%016llx", (unsigned long long)zp_hash(ZP_HASH_START, text, strlen(text)));
}

static bool is_unedited_plan(zp_arena *arena, const char *text, size_t len) {
  const char *error = NULL;
  zp_json *json = zp_json_parse(arena, text, len, &error);
  const char *said = zp_strdup(arena, zp_json_get_string(json, words_hash, ""));
  bool fits = json && zp_json_is_object(json) && strcmp(said, hash_of_words(arena, json)) == 0;
  if (json) zp_json_free(json);
  return fits;
}

/* Traces have words of their own. */
static bool is_trace(const char *text) {
  return strstr(text, "\"microbatches_shown\"") && strstr(text, "\"traceEvents\"");
}

bool zp_may_replace(zp_run_state *run, const char *path, const char *text) {
  struct stat status;
  const char *error = NULL;
  size_t len = 0;
  if (run->options.force || stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return true;
  const char *old = zp_read_file(run->arena, path, &len, &error);
  if (old && text && strcmp(old, text) == 0) return true;
  if (old && is_unedited(run->arena, old, len)) return true;
  if (old && text && strstr(text, words_hash) && is_unedited_plan(run->arena, old, len)) return true;
  if (old && text && is_trace(old) && is_trace(text)) return true;
  zp_diag *d = zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN,
                         "%s is there already, and was edited or is something else: it is left as it is", path);
  zp_diag_help(d, "--force replaces it; -o names another file");
  zp_flush_diags(run);
  return false;
}

bool zp_write_report(zp_run_state *run, const char *path, const char *text) {
  const char *error = NULL;
  if (text[0] == '<') text = zp_mark_output(run, "<!--", text);
  if (!zp_may_replace(run, path, text)) return false;
  if (zp_write_file(run->arena, path, text, strlen(text), &error)) {
    zp_result_text(run, text[0] == '<' ? "html" : "trace", path);
    const zp_verb *verb = zp_find_verb(run->command);
    bool document = run->options.json && verb->has_document; /* then nothing else goes there */
    if (!document) zp_say(stdout, "%s\n", path);
    return true;
  }
  zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "cannot write the report: %s", error);
  return zp_flush_diags(run);
}

zp_relaxations zp_print_no_plan(zp_run_state *run, const zp_plan *plan) {
  zp_print_lines(run, stderr, zp_report_verdict(run->arena, plan));
  fflush(zp_stream(stderr));
  zp_begin_work(run, "looking for what would fit");
  zp_relaxations nearest = zp_find_relaxations(run->arena, plan);
  zp_status_end();
  zp_print_lines(run, stderr, zp_report_changes(run->arena, plan, &nearest));
  return nearest;
}

int zp_write_plan(zp_run_state *run, zp_json *json) {
  const char *text = zp_json_text(run->arena, json, true), *error = NULL;
  if (run->options.json) zp_say(stdout, "%s\n", text);
  if (!run->options.output) {
    zp_json_free(json);
    return ZP_EXIT_OK;
  }
  zp_json_set_string(json, words_hash, hash_of_words(run->arena, json));
  text = zp_json_text(run->arena, json, true);
  zp_json_free(json);
  if (!zp_may_replace(run, run->options.output, text)) return ZP_EXIT_ERROR;
  if (!zp_write_file(run->arena, run->options.output, text, strlen(text), &error)) {
    zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "cannot write the plan: %s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  if (!run->options.json)
    zp_print_lines(run, stdout,
                   zp_format(run->arena,
                             "plan written to %s (zplan report, zplan explain, zplan verify, zplan build)\n",
                             run->options.output));
  return ZP_EXIT_OK;
}
