/* SPDX-License-Identifier: Apache-2.0 */
/* What `zplan run` says on standard error before and after a training: the plan and what is expected of it, what is
 * trained on, what is kept where; then how to go on and to look at what was measured. What the trainer prints between
 * is on standard output. */
#include "driver.h"

#include <stdio.h>

enum { LABEL = 12 };

/* "book.txt, as text, shuffled" */
static const char *data_words(zp_arena *arena, const zp_data *data) {
  static const char *const kinds[] = {[ZP_DATA_TOKENS] = "token ids",
                                      [ZP_DATA_TEXT] = "as text",
                                      [ZP_DATA_LINES] = "a sample a line",
                                      [ZP_DATA_ARRAYS] = "arrays",
                                      [ZP_DATA_DOCUMENTS] = "documents of token ids"};
  const char *order = data->shuffled ? ", shuffled" : "";
  if (data->kind == ZP_DATA_NONE) return "none";
  if (data->kind == ZP_DATA_SYNTHETIC) return "made-up tokens";
  if (data->kind != ZP_DATA_MIX) return zp_format(arena, "%s, %s%s", data->path, kinds[data->kind], order);
  zp_buf out = zp_buf_new(arena);
  for (int i = 0; i < data->n_parts; i++)
    zp_buf_printf(&out, "%s%s", i ? "; " : "a mixture: ", data_words(arena, &data->parts[i]));
  return zp_format(arena, "%s%s", out.data, order);
}

/* What a word of the trainer has after it: "--checkpoint", which --checkpoint becomes, too; NULL: it is not there. */
static const char *trainer_word(const zp_options *o, const char *word) {
  for (int i = 0; i + 1 < o->trainer_args.len; i++)
    if (strcmp(o->trainer_args.data[i], word) == 0) return o->trainer_args.data[i + 1];
  return NULL;
}

static const char *folder_of(const zp_run_state *run, const zp_spec *spec) {
  const zp_options *o = &run->options;
  const char *told = trainer_word(o, "--checkpoint");
  if (o->no_checkpoint) return NULL;
  if (told) return told;
  return run->checkpoints ? run->checkpoints : spec->train.checkpoint_dir;
}

static const char *log_of(const zp_run_state *run, const zp_spec *spec) {
  return run->options.log ? run->options.log : spec->train.log_path;
}

static int64_t last_step(const zp_run_state *run, const zp_spec *spec) {
  return run->options.steps >= 0 ? run->options.steps : spec->train.steps;
}

static void put_steps(zp_page *page, const zp_run_state *run, const zp_plan *plan) {
  int64_t steps = last_step(run, plan->spec);
  const char *time = zp_show_seconds(page->out.arena, (double)steps * plan->best.estimate.step_s);
  if (run->options.resume)
    zp_page_field(page, "steps", "on from the last checkpoint to step %lld", (long long)steps);
  else if (steps > 0)
    zp_page_field(page, "steps", "%lld, in " ZP_ESTIMATED "%s", (long long)steps, time);
  else
    zp_page_field(page, "steps", "none: the initial weights are kept");
}

static void put_state(zp_page *page, const zp_run_state *run, const zp_spec *spec) {
  const zp_train *train = &spec->train;
  zp_arena *arena = page->out.arena;
  const char *folder = folder_of(run, spec);
  if (!folder) {
    zp_page_field(page, "state", "kept nowhere: it is gone when the run ends");
    return;
  }
  if (folder == run->checkpoints) {
    zp_page_field(page, "checkpoint", "the last state is kept in %s (--no-checkpoint: nowhere)", folder);
    return;
  }
  const char *every = train->checkpoint_every > 0
                          ? zp_format(arena, "every %lld steps and at the end", (long long)train->checkpoint_every)
                          : "at the end";
  const char *keep =
      train->checkpoint_keep > 0 ? zp_format(arena, "; the last %lld are kept", (long long)train->checkpoint_keep) : "";
  zp_page_field(page, "checkpoint", "%s, %s%s", folder, every, keep);
}

static void put_inputs(zp_page *page, const zp_run_state *run, const zp_spec *spec) {
  const zp_train *train = &spec->train;
  zp_arena *arena = page->out.arena;
  zp_page_field(page, "data", "%s", data_words(arena, &train->data));
  if (train->validate_every > 0)
    zp_page_field(page, "validation", "%s, every %lld steps", data_words(arena, &train->validate_data),
                  (long long)train->validate_every);
  put_state(page, run, spec);
  if (log_of(run, spec)) zp_page_field(page, "log", "%s", log_of(run, spec));
}

void zp_show_run(const zp_run_state *run, const zp_plan *plan) {
  zp_page page = zp_page_for(run, stderr, LABEL);
  zp_report_prediction(&page, plan);
  put_steps(&page, run, plan);
  put_inputs(&page, run, plan->spec);
  zp_page_field(&page, "trainer", "%s", zp_tree_dir((zp_run_state *)run));
  zp_page_text(&page, ZP_DIM, 2, ZP_ESTIMATED_LEGEND);
  zp_page_put(&page, stderr);
}

void zp_show_run_end(const zp_run_state *run, const zp_plan *plan, int status) {
  zp_arena *arena = run->arena;
  const zp_spec *spec = plan->spec;
  const zp_options *o = &run->options;
  bool interrupted = status > 128;
  const char *log = log_of(run, spec), *folder = folder_of(run, spec), *tree = zp_tree_dir((zp_run_state *)run);
  zp_page page = zp_page_for(run, stderr, LABEL);
  if (status != ZP_EXIT_OK && !interrupted) return;
  if (folder && interrupted && !o->overwrite)
    zp_page_field(&page, "goes on", "zplan run %s%s", zp_words_for(run, "run"), o->resume ? "" : " --resume");
  else if (folder)
    zp_page_field(&page, "kept", "%s; --resume with more --steps goes on from it", folder);
  if (log && !interrupted && last_step(run, spec) > 0)
    zp_page_field(&page, "look at it", "zplan report %s/plan.json --log %s --html run.html",
                  zp_quote_shell(arena, tree), zp_quote_shell(arena, log));
  zp_page_put(&page, stderr);
}
