/* SPDX-License-Identifier: Apache-2.0 */
/* zpr_main: from the command line to the loop. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "checkpoint.h"
#include "device.h"
#include "given.h"
#include "infer.h"
#include "profile.h"
#include "state.h"

/* Help or a usage error, told once however many ranks were started. */
static int explain(const zpr_program *program, int parsed, const char *message, int *argc, char ***argv) {
  zpr c = {.program = program};
  c.state = zpr_alloc(&c, 1, sizeof *c.state);
  zpr_comm_init(&c, argc, argv);
  if (c.rank == 0 && parsed == ZPR_OPTIONS_HELP) zpr_options_help(stdout, program);
  if (c.rank == 0 && parsed == ZPR_OPTIONS_WRONG) zpr_say_line(stderr, "error: %s", message);
  fflush(stdout);
  zpr_barrier(&c);
  zpr_comm_finish(&c);
  free(c.state);
  return parsed == ZPR_OPTIONS_HELP ? 0 : ZPR_EXIT_USAGE;
}

/* A path on the command line replaces the program's source and keeps its order, of a mixture that of the first source:
 * *.bin are token files, the rest is text, or lines where the program has lines; of arrays it is a folder. What is
 * masked or cut out stays. */
static zpr_source source_of(const zpr_program *program, const zpr_source *source, const char *path) {
  zpr_source s = *source;
  if (!path) return s;
  size_t length = strlen(path);
  if (source->kind == ZPR_MIX) {
    s.shuffled = source->parts[0].shuffled;
    s.seed = source->parts[0].seed;
    source = &source->parts[0];
  }
  s.end = source->end;
  s.kind = length >= 4 && strcmp(path + length - 4, ".bin") == 0
               ? (source->kind == ZPR_DOCUMENTS ? ZPR_DOCUMENTS : ZPR_TOKENS)
           : source->kind == ZPR_LINES ? ZPR_LINES
                                       : ZPR_TEXT;
  if (source->kind == ZPR_NPY || (program->n_inputs == 0 && s.spans.rate == 0)) s.kind = ZPR_NPY;
  s.path = path;
  return s;
}

static void use_defaults(zpr_options *options, const zpr_program *program) {
  if (options->steps < 0) options->steps = program->steps;
  if (!options->log_path) options->log_path = program->log_path;
  if (!options->checkpoint_dir) options->checkpoint_dir = program->checkpoint_dir;
  if (options->no_checkpoint) options->checkpoint_dir = NULL;
}

/* A folder that cannot be written is told now, not at the first checkpoint hours later; nor does a run prune what
 * another one has left there, unless it is told to. */
static void claim_folder(const zpr_options *options, zpr_error *error) {
  const char *dir = options->checkpoint_dir;
  if (!zpr_make_folders(dir, error)) return;
  if (access(dir, W_OK | X_OK) != 0)
    zpr_error_set(error, "Z0811", "cannot write checkpoint folder \"%s\": %s", dir, strerror(errno));
  else if (zpr_lock_folder(dir, error) && !options->resume && !options->overwrite && zpr_newest_step(dir) >= 0)
    zpr_error_set(
        error, "Z0815",
        "\"%s\" holds the checkpoints of a run, the newest of step %lld: --resume goes on with it, --overwrite "
        "removes them and starts anew, another folder (--checkpoint) keeps them",
        dir, (long long)zpr_newest_step(dir));
}

static void check_checkpoint_folder(zpr *c) {
  zpr_error error = {0};
  if (c->state->options.checkpoint_dir && c->rank == 0) claim_folder(&c->state->options, &error);
  zpr_agree(c, &error);
}

/* Now that nothing else can be refused. */
static void overwrite(zpr *c) {
  const zpr_options *options = &c->state->options;
  zpr_error error = {0};
  if (options->overwrite && options->checkpoint_dir && c->rank == 0)
    zpr_remove_checkpoints(options->checkpoint_dir, &error);
  zpr_agree(c, &error);
}

/* Weights that the run starts from: drawn, or where a map says. */
static void start(zpr *c) {
  zpr_error error = {0};
  char path[ZPR_PATH];
  const char *map = c->state->options.init_path;
  if (!map && c->program->starts_from_weights) map = zpr_alongside_trainer(path, "weights.json");
  zpr_given *given = map ? zpr_given_open(map, &error) : NULL;
  zpr_agree(c, &error);
  if (given && c->rank == 0 && !c->state->options.infer_path)
    zpr_say_line(stderr, "note: starts from the weights of %s", given->source);
  if (given) zpr_path(c->state->initial, "%s", given->source);
  zpr_init_weights(c, given, &error);
  zpr_given_close(given);
  zpr_agree(c, &error);
}

/* Rank 0: the step to go on from; -1: there is none. */
static int64_t choose_step(const zpr_options *options, zpr_error *error) {
  const char *dir = options->checkpoint_dir;
  int64_t asked = options->resume_from - 1;
  if (asked < 0) return zpr_newest_step(dir);
  if (!zpr_has_step(dir, asked))
    zpr_error_set(error, "Z0813", "there is no checkpoint of step %lld in \"%s\", the newest is of step %lld",
                  (long long)asked, dir, (long long)zpr_newest_step(dir));
  return asked;
}

/* The weights to start from. Whether they are those that the run ends with. */
static bool start_or_resume(zpr *c) {
  const zpr_options *options = &c->state->options;
  zpr_error error = {0};
  if (options->resume && !options->checkpoint_dir)
    zpr_error_set(&error, "Z0813",
                  "--resume needs a checkpoint folder: name one in the train block or with --checkpoint");
  zpr_agree(c, &error);
  int64_t chosen = options->resume && c->rank == 0 ? choose_step(options, &error) : options->resume ? INT64_MAX : -1;
  zpr_agree(c, &error);
  chosen = zpr_world_min(c, chosen);
  if (chosen < 0)
    start(c);
  else
    zpr_init_weights(c, NULL, NULL);
  int64_t step = chosen < 0 ? -1 : zpr_checkpoint_load_step(c, options->checkpoint_dir, chosen);
  zpr_update_begin(c);
  if (step >= 0) zpr_checkpoint_load_stale(c, options->checkpoint_dir);
  if (step >= 0) c->step = step;
  if (step > options->steps)
    zpr_error_set(
        &error, "Z0816",
        "the checkpoint in \"%s\" is of step %lld, and the run ends with step %lld: --steps counts from the first "
        "step of all",
        options->checkpoint_dir, (long long)step, (long long)options->steps);
  zpr_agree(c, &error);
  if (options->resume && step < 0 && c->rank == 0)
    zpr_say_line(stderr, "note: no checkpoint in \"%s\", starting from step 0", options->checkpoint_dir);
  return step == options->steps;
}

static double seconds_since_1970(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void announce(zpr *c) {
  const zpr_program *p = c->program;
  static const char *const dtypes[] = {[ZPK_F32] = "f32", [ZPK_F64] = "f64", [ZPK_BF16] = "bf16", [ZPK_F16] = "f16"};
  const char *dtype = dtypes[p->dtype], *precision = p->precision ? p->precision : dtype;
  char line[896];
  zpr_device_text text;
  zpr_device_describe(c, &text);
  snprintf(line, sizeof line,
           "{\"event\": \"%s\", \"step\": %lld, \"program\": \"%s\", \"plan\": \"%s\", \"ranks\": %d, \"tensor\": %d, "
           "\"pipeline\": %d, \"data\": %d, \"expert\": %d, \"zero\": %d, \"dtype\": \"%s\", \"precision\": \"%s\", "
           "\"threads\": %d, \"products\": "
           "\"%s\", \"steps\": %lld, \"predicted_step_ms\": %.3f, \"time\": %.3f}",
           c->step > 0 ? "resume" : "start", (long long)c->step, p->name, p->plan_hash, c->ranks, p->tensor,
           p->pipeline, p->data, zpr_expert_ranks(p), p->zero, dtype, precision, zpr_threads(c), text.products,
           (long long)c->state->options.steps, p->predicted_step_s * 1e3, seconds_since_1970());
  zpr_log_event(c, line);
  /* Two lines, for screens of 80 columns. */
  zpr_log_note(c, "%s: %d rank%s (tensor %d x pipeline %d x data %d), ZeRO %d, %s", p->name, c->ranks,
               c->ranks == 1 ? "" : "s", p->tensor, p->pipeline, p->data, p->zero, precision);
  zpr_log_note(c, "  %s, products by %s, from step %lld to %lld", text.device, text.products, (long long)c->step,
               (long long)c->state->options.steps);
  if (p->delayed)
    zpr_log_note(c, "delayed update: from step %lld on gradients are those of weights one update old",
                 (long long)p->delay_after + 2);
  if (c->rank == 0 && text.warning[0]) zpr_say_line(stderr, "warning: %s", text.warning);
}

static int run(zpr *c) {
  const zpr_program *program = c->program;
  const zpr_options *options = &c->state->options;
  int64_t last = options->steps;
  zpr_data *validate = NULL;
  int status = 0;
  zpr_source source = source_of(program, &program->train, options->data_path);
  zpr_source held_out = source_of(program, &program->validate, options->validate_path);
  if (last > 0) c->state->data = zpr_data_open(c, &source); /* the initial checkpoint needs no data */
  if (last > 0 && held_out.kind != ZPR_NO_DATA) validate = zpr_data_open(c, &held_out);
  zpr_update_open(c);
  if (options->infer_path) {
    start(c);
    status = zpr_infer(c, options->infer_path);
    zpr_update_close(c);
    zpr_data_close(c->state->data);
    return status;
  }
  check_checkpoint_folder(c);
  if (start_or_resume(c)) {
    if (c->rank == 0) printf("already at step %lld of %lld: nothing to do\n", (long long)c->step, (long long)last);
  } else {
    zpr_log_open(c, options->log_path, options->resume, options->progress);
    zpr_profile_open(c, last);
    announce(c);
    overwrite(c);
    status = zpr_train(c, validate, last);
    zpr_profile_close(c);
    zpr_log_close(c);
  }
  zpr_unlock_folder();
  zpr_update_close(c);
  zpr_data_close(c->state->data);
  zpr_data_close(validate);
  return status;
}

/* Has it the tables that the generator prints? */
static bool program_is_sound(const zpr_program *p) {
  if (p->tensor < 1 || p->pipeline < 1 || p->data < 1 || p->data % zpr_shard_ranks(p) != 0) return false;
  if (p->data % zpr_context_ranks(p) != 0) return false;
  if (zpr_shard_ranks(p) % zpr_expert_ranks(p) != 0 || (p->shard > 0 && !zpr_shards_state(p))) return false;
  if (p->hpz < 0 || (p->hpz > 0 && (p->zero < 3 || p->shard > 0 || p->data % p->hpz != 0))) return false;
  if (p->zero < 0 || p->zero > 3 || p->dtype > ZPK_F16 || p->chunks < 0 || p->messages < 0) return false;
  if (p->microbatch < 1 || p->microbatches < 1 || p->batch != p->microbatches * p->microbatch * zpr_replicas(p))
    return false;
  return p->stages && p->micro_batches && p->sequence >= 1 && p->n_inputs >= 0 && p->n_inputs <= 2 &&
         (p->n_inputs > 0 || p->n_named > 0);
}

int zpr_main(int argc, char **argv, const zpr_program *program) {
  assert(argc >= 1 && argv && program_is_sound(program));
  zpr c;
  zpr_options options;
  char message[256];
  int parsed = zpr_options_parse(argc, argv, &options, message, sizeof message);
  if (parsed != ZPR_OPTIONS_RUN) return explain(program, parsed, message, &argc, &argv);
  use_defaults(&options, program);
  zpr_open(&c, program, &options, &argc, &argv);
  int status = run(&c);
  zpr_close(&c);
  return status;
}
