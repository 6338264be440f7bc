/* A result must not take the place of what it is made from, nor of another result. */
#include "driver.h"

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
      {"--log", reads_log ? NULL : o->log},
  };
  enum { N = sizeof results / sizeof *results };
  for (int i = 0; i < N; i++) {
    for (int k = first_input; k < o->files.len; k++)
      if (!differs_from(&results[i], "the input", o->files.data[k])) return false;
    if (!differs_from(&results[i], "the calibration", o->calibration) ||
        !differs_from(&results[i], "the hostfile", o->hostfile) ||
        !differs_from(&results[i], "the log", reads_log ? o->log : NULL))
      return false;
    for (int k = i + 1; k < N; k++)
      if (!differs_from(&results[i], results[k].what, results[k].path)) return false;
  }
  return true;
}

int zp_write_plan(zp_run_state *run, zp_json *json) {
  const char *text = zp_json_text(run->arena, json, true), *error = NULL;
  zp_json_free(json);
  if (run->options.json) zp_say(stdout, "%s\n", text);
  if (!run->options.output) return ZP_EXIT_OK;
  if (!zp_write_file(run->arena, run->options.output, text, strlen(text), &error)) {
    zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "cannot write the plan: %s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  if (!run->options.json)
    zp_say(stdout, "plan written to %s (zplan report, zplan explain, zplan verify, zplan build)\n",
           run->options.output);
  return ZP_EXIT_OK;
}
