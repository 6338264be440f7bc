/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of a trainer. One table: what is parsed and what --help says cannot differ. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "watch.h"

const zpr_options zpr_default_options = {
    .steps = -1, .progress = true, .wait_warn = ZPR_WAIT_WARN_S, .wait_end = -1, .grace = ZPR_WAIT_GRACE_S};

typedef enum value_kind {
  FLAG_ON,
  FLAG_OFF,
  COUNT,
  SECONDS,
  RESUME_STEP,
  THREADS,
  STEPS,
  TEXT,
  WAY,
  LIBRARY,
  HELP
} value_kind;

static const struct option {
  const char *name, *value;
  value_kind kind;
  size_t offset; /* of the field in zpr_options */
  const char *help;
} table[] = {
    {"--steps", "N", COUNT, offsetof(zpr_options, steps),
     "train until N steps are done in all; 0 publishes the initial checkpoint"},
    {"--resume", NULL, FLAG_ON, offsetof(zpr_options, resume), "continue from the newest checkpoint, if there is one"},
    {"--resume-from", "STEP", RESUME_STEP, offsetof(zpr_options, resume_from),
     "continue from the checkpoint of that step, newer ones are left alone"},
    {"--accept-changes", NULL, FLAG_ON, offsetof(zpr_options, accept_changes),
     "with --resume: go on although data or seed are not those of the checkpoint"},
    {"--overwrite", NULL, FLAG_ON, offsetof(zpr_options, overwrite),
     "start anew where checkpoints are, and remove these"},
    {"--init", "FILE", TEXT, offsetof(zpr_options, init_path),
     "start from the weights that FILE maps, as `zplan run --init` wrote it"},
    {"--infer", "FILE", TEXT, offsetof(zpr_options, infer_path),
     "do not train: answer the request in FILE, as `zplan sample` and `zplan eval` write it"},
    {"--log", "FILE", TEXT, offsetof(zpr_options, log_path), "write one JSON object a step to FILE"},
    {"--data", "PATH", TEXT, offsetof(zpr_options, data_path), "train on PATH: token files (*.bin) or a text file"},
    {"--validate", "PATH", TEXT, offsetof(zpr_options, validate_path), "validate on PATH, likewise"},
    {"--checkpoint", "FOLDER", TEXT, offsetof(zpr_options, checkpoint_dir), "keep checkpoints in FOLDER"},
    {"--no-checkpoint", NULL, FLAG_ON, offsetof(zpr_options, no_checkpoint), "keep no checkpoints"},
    {"--offload", "FOLDER", TEXT, offsetof(zpr_options, offload_dir),
     "state that the plan keeps on disk goes to FOLDER (default: $ZPLAN_OFFLOAD, or the trainer's folder)"},
    {"--threads", "N", THREADS, offsetof(zpr_options, threads),
     "threads of each rank (default: cores / ranks on this host)"},
    {"--comm", "WAY", WAY, offsetof(zpr_options, comm), "between GPUs: nccl, or staged in host memory and sent by MPI"},
    {"--products", "LIBRARY", LIBRARY, offsetof(zpr_options, products),
     "of CPU ranks: by openblas or onednn (default: what has kernels for the processor's features)"},
    {"--check-memory", NULL, FLAG_ON, offsetof(zpr_options, check_memory),
     "measure the arena's peak and the bytes sent; fail if they are not the plan's"},
    {"--sync", NULL, FLAG_ON, offsetof(zpr_options, sync),
     "trainers of GPUs: wait after every kernel, so that a fault names it; slow"},
    {"--profile", NULL, FLAG_ON, offsetof(zpr_options, profile),
     "measure where the time of every second step goes (trainers of zplan build --profile)"},
    {"--profile-steps", "A..B", STEPS, offsetof(zpr_options, profile_first), "with --profile: measure steps A to B"},
    {"--wait-warn", "SECONDS", SECONDS, offsetof(zpr_options, wait_warn),
     "say so when a rank has waited that long for another one (default 30; 0: never)"},
    {"--wait-end", "SECONDS", SECONDS, offsetof(zpr_options, wait_end),
     "end the run when a rank has waited that long (default 600, outside of steps 3600; 0: never)"},
    {"--grace", "SECONDS", SECONDS, offsetof(zpr_options, grace),
     "the same after a signal that asks to end (default 30; 0: as --wait-end)"},
    {"--no-progress", NULL, FLAG_OFF, offsetof(zpr_options, progress), "plain lines, also on a terminal"},
    {"--help", NULL, HELP, 0, "this text"},
};

static bool parse_number(const char *text, int64_t low, int64_t high, int64_t *out) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (errno || end == text || *end || value < low || value > high) return false;
  *out = value;
  return true;
}

/* "10..20": two fields, side by side. */
static bool parse_steps(const char *text, int64_t *first_last) {
  const char *dots = strstr(text, "..");
  char first[24];
  if (!dots || (size_t)(dots - text) >= sizeof first) return false;
  snprintf(first, sizeof first, "%.*s", (int)(dots - text), text);
  return parse_number(first, 1, INT64_MAX, &first_last[0]) &&
         parse_number(dots + 2, first_last[0], INT64_MAX, &first_last[1]);
}

/* False when the value does not fit the option. */
static bool store(const struct option *o, const char *value, zpr_options *options) {
  char *field = (char *)options + o->offset;
  int64_t number;
  switch (o->kind) {
  case FLAG_ON:
  case FLAG_OFF: *(bool *)(void *)field = o->kind == FLAG_ON; return true;
  case TEXT: *(const char **)(void *)field = value; return *value != 0;
  case WAY: *(const char **)(void *)field = value; return strcmp(value, "nccl") == 0 || strcmp(value, "staged") == 0;
  case LIBRARY:
    *(const char **)(void *)field = value;
    return strcmp(value, "openblas") == 0 || strcmp(value, "onednn") == 0;
  case STEPS: return parse_steps(value, (int64_t *)(void *)field);
  case COUNT: return parse_number(value, 0, INT64_MAX, (int64_t *)(void *)field);
  case SECONDS:
    if (!parse_number(value, 0, ZPR_MOST_SECONDS, &number)) return false;
    *(int *)(void *)field = (int)number;
    return true;
  case RESUME_STEP:
    if (!parse_number(value, 0, INT64_MAX - 1, &number)) return false;
    options->resume = true;
    options->resume_from = number + 1;
    return true;
  case THREADS:
    if (!parse_number(value, 1, ZPR_MAX_WORKERS, &number)) return false;
    *(int *)(void *)field = (int)number;
    return true;
  case HELP: break;
  }
  return true;
}

static const struct option *find(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].name, name) == 0) return &table[i];
  return NULL;
}

int zpr_options_parse(int argc, char **argv, zpr_options *options, char *message, size_t size) {
  *options = zpr_default_options;
  for (int i = 1; i < argc; i++) {
    const struct option *o = find(argv[i]);
    if (!o) {
      snprintf(message, size, "unknown option \"%s\"; --help lists them", argv[i]);
      return ZPR_OPTIONS_WRONG;
    }
    if (o->kind == HELP) return ZPR_OPTIONS_HELP;
    const char *value = o->value && i + 1 < argc ? argv[++i] : "";
    if (!store(o, value, options)) {
      snprintf(message, size, "%s needs a value %s%s, not \"%s\"", o->name, o->value,
               o->kind == THREADS   ? " from 1 to 8"
               : o->kind == SECONDS ? " up to 1000000"
               : o->kind == STEPS   ? ", two steps such as 10..20"
               : o->kind == WAY     ? ", nccl or staged"
               : o->kind == LIBRARY ? ", openblas or onednn"
                                    : "",
               value);
      return ZPR_OPTIONS_WRONG;
    }
  }
  const char *wrong = options->overwrite && options->resume ? "--resume goes on, --overwrite starts anew: one of them"
                      : options->accept_changes && !options->resume ? "--accept-changes goes with --resume"
                      : options->sync && options->profile ? "--sync changes what --profile measures: one of them"
                      : options->profile_first > 0 && !options->profile ? "--profile-steps goes with --profile"
                                                                        : NULL;
  if (wrong) snprintf(message, size, "%s", wrong);
  return wrong ? ZPR_OPTIONS_WRONG : ZPR_OPTIONS_RUN;
}

_Static_assert(offsetof(zpr_options, profile_last) == offsetof(zpr_options, profile_first) + sizeof(int64_t),
               "--profile-steps sets both");
_Static_assert(ZPR_MAX_WORKERS == 8 && ZPR_MOST_SECONDS == 1000000, "the message above names the limits");

void zpr_options_help(FILE *out, const zpr_program *program) {
  fprintf(out, "trainer of %s, for %d ranks (tensor %d x pipeline %d x data %d, expert %d)\n\noptions:\n",
          program->name, program->tensor * program->pipeline * program->data, program->tensor, program->pipeline,
          program->data, zpr_expert_ranks(program));
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    char left[40];
    snprintf(left, sizeof left, "%s %s", table[i].name, table[i].value ? table[i].value : "");
    fprintf(out, "  %-20s %s\n", left, table[i].help);
  }
}
