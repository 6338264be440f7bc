/* SPDX-License-Identifier: Apache-2.0 */
/* zplan import megatron|deepspeed|torchtitan: a launch of another program as a .dz file. With -o it also answers what
 * people ask of a launch that exists: does it fit, how long is a step, what does it wait for, what would be better and
 * by how much. */
#include "driver.h"
#include "machines.h"

#include <zplan/import.h>

#include <zplan/known_models.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char default_machine[] = "dgx-h100";

/* What a program's launches are read by, and what the command line has to say. */
typedef enum model_said { NO_MODEL, MAY_NAME_MODEL, NEEDS_MODEL } model_said;
typedef struct launch_reader {
  const char *name;
  zp_imported *(*read)(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                       const zp_launch_words *words);
  model_said model;
  bool needs_file;
} launch_reader;
static const launch_reader readers[] = {{"megatron", zp_import_megatron, NO_MODEL, false},
                                        {"deepspeed", zp_import_deepspeed, NEEDS_MODEL, true},
                                        {"torchtitan", zp_import_torchtitan, MAY_NAME_MODEL, false}};

static const launch_reader *reader_of(const char *name) {
  const launch_reader *p = readers;
  while (strcmp(p->name, name) != 0) p++;
  return p;
}

/* The node of a machine as a line of a cluster block. false after saying that there is none. */
static bool take_machine(zp_run_state *run, zp_launch_words *words) {
  const char *name = run->options.machine ? run->options.machine : default_machine, *word;
  int64_t gpus = run->options.load.gpus;
  if (strcmp(name, "this") == 0)
    return zp_usage_error("--machine this: a launch is planned for GPUs of `zplan machines`"), false;
  run->options.load.gpus = 0; /* whole nodes */
  const char *block = zp_machine_block(run, name, 1, &word);
  run->options.load.gpus = gpus;
  if (!block) return false;
  const char *node = strchr(block, '\n');
  words->node = node ? node + 1 + strspn(node + 1, " ") : block;
  words->gpus_per_node = zp_machine_devices(run, name);
  words->node_from = run->options.machine ? zp_format(run->arena, "--machine %s", name) : NULL;
  return true;
}

/* ---- a model that the launch does not say ---- */

static int64_t parameters_of(const zp_model *model, const zp_graph *graph) {
  int64_t sum = 0;
  for (int i = 0; i < graph->params.len; i++)
    sum += zp_shape_elements(&model->params.data[graph->params.data[i].param].shape, 1);
  return sum;
}

static bool share_parameters(const zp_graph *a, const zp_graph *b) {
  for (int i = 0; i < a->params.len; i++)
    for (int j = 0; j < b->params.len; j++)
      if (a->params.data[i].param == b->params.data[j].param) return true;
  return false;
}

/* What the model's pipelines are cut between. */
static void take_units(zp_run_state *run, const zp_model *model, zp_launch_words *words) {
  for (int s = 0; s < model->segments.len; s++) {
    const zp_segment *segment = &model->segments.data[s];
    zp_launch_unit unit = {segment->is_repeat, parameters_of(model, segment->graph)};
    for (int64_t i = 0; i < segment->count; i++) zp_push(run->arena, &words->units, unit);
  }
  words->tied = model->segments.len > 1 &&
                share_parameters(model->segments.data[0].graph, model->segments.data[model->segments.len - 1].graph);
}

static const zp_spec *load_model(zp_run_state *run, const char *path, const char *text, size_t len,
                                 zp_launch_words *words) {
  const zp_source_text source = {.path = path, .text = text, .len = len};
  const zp_load_options options = {.library_dir = run->options.load.library_dir, .model_only = true};
  const zp_spec *spec = zp_load(run->arena, run->diags, path, &source, 1, &options);
  if (spec) take_units(run, spec->model, words);
  return spec;
}

/* A .dz file: used as it is, by its whole path. */
static bool take_dz(zp_run_state *run, const char *path, zp_launch_words *words) {
  size_t len;
  const char *error = NULL, *text = zp_read_input(run->arena, path, &len, &error);
  char *whole = text ? realpath(path, NULL) : NULL;
  if (!whole) {
    zp_report(run->diags, ZP_Z0688, ZP_NO_SPAN, "%s", error ? error : "the file has no path");
    return false;
  }
  const zp_spec *spec = load_model(run, path, text, len, words);
  words->model = zp_format(run->arena, "use std.hw\nuse %s as given\n", zp_quote_json(run->arena, whole));
  if (spec) words->model_name = zp_format(run->arena, "given.%s()", spec->model->name);
  free(whole);
  return spec != NULL;
}

/* A published model, a config.json, or a folder with one. */
static bool take_hf(zp_run_state *run, const char *name, zp_launch_words *words) {
  const zp_known_model *known = access(name, F_OK) == 0 ? NULL : zp_find_known_model(name);
  const zp_imported *found = NULL;
  struct stat st;
  if (known) {
    found = zp_import_known_model(run->arena, run->diags, known);
  } else {
    size_t len;
    const char *error = NULL, *path = name;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) path = zp_format(run->arena, "%s/config.json", path);
    const char *text = zp_read_input(run->arena, path, &len, &error);
    if (text)
      found = zp_import_hf_model(run->arena, run->diags, path, text, len, NULL);
    else
      zp_diag_help(zp_report(run->diags, ZP_Z0688, ZP_NO_SPAN, "%s", error),
                   "--model is a .dz file, a config.json, a folder with one, or a name of `zplan models`");
  }
  if (!found) return false;
  for (int i = 0; i < found->notes.len; i++) zp_say_line(stderr, "note: %s", found->notes.data[i]);
  words->model = found->text;
  words->model_name = zp_hf_model_name(found);
  words->dropout = zp_hf_dropout(found);
  return load_model(run, "model.dz", found->text, strlen(found->text), words) != NULL;
}

static bool take_model(zp_run_state *run, zp_launch_words *words) {
  const char *name = run->options.load.model;
  size_t n = strlen(name);
  bool dz = n > 3 && strcmp(name + n - 3, ".dz") == 0;
  return dz ? take_dz(run, name, words) : take_hf(run, name, words);
}

/* ---- the launch ---- */

/* The text that is written. NULL after reporting. */
static const char *imported(zp_run_state *run, const launch_reader *p, zp_launch_words *words,
                            const char **for_program) {
  const char *path = run->options.files.len ? run->options.files.data[0] : NULL, *error = NULL, *text = NULL;
  size_t len = 0;
  if (path && !(text = zp_read_input(run->arena, path, &len, &error))) {
    zp_report(run->diags, ZP_Z0688, ZP_NO_SPAN, "%s", error);
    zp_flush_diags(run);
    return NULL;
  }
  if (run->options.load.model && !take_model(run, words)) {
    zp_flush_diags(run);
    return NULL;
  }
  const zp_imported *found = p->read(run->arena, run->diags, path, text, len, words);
  if (!zp_flush_diags(run) || !found) return NULL;
  *for_program = found->program;
  for (int i = 0; i < found->notes.len; i++) zp_say_line(stderr, "note: %s", found->notes.data[i]);
  const char *laid_out = zp_format_source(
      run->arena, run->diags, zp_diags_add_source(run->diags, "imported", found->text, strlen(found->text)));
  return zp_flush_diags(run) ? laid_out : NULL;
}

/* ---- the answer ---- */

static void set_json(zp_run_state *run, const char *key, const zp_plan *plan, bool feasible) {
  if (!run->options.json) return;
  zp_json *o = zp_json_set(zp_result_object(run), key, zp_json_object());
  zp_json_set_bool(o, "fits", feasible);
  if (!feasible) return;
  zp_json_set_real(o, "step_s", plan->best.estimate.step_s);
  zp_json_set_int(o, "peak_bytes", plan->best.estimate.peak_bytes);
  zp_json_set(o, "plan", zp_choice_json(&plan->best.choice));
}

static int plan_block(zp_run_state *run, const char *path, const char *block, const zp_plan **plan) {
  const zp_options own = run->options;
  run->options.output = run->options.machine = run->options.machine_cluster = NULL;
  run->options.load.machine = NULL;
  run->options.load.gpus = 0;
  run->options.load.model = NULL;
  run->options.load.plan = block;
  int status = zp_obtain_plan_of(run, path, plan);
  run->options = own;
  if (status != ZP_EXIT_ERROR) set_json(run, block, *plan, status == ZP_EXIT_OK);
  return status;
}

static void put_better(zp_page *page, const zp_plan *launched, const zp_plan *free_plan) {
  const zp_estimate *was = launched ? &launched->best.estimate : NULL, *is = &free_plan->best.estimate;
  zp_arena *arena = page->out.arena;
  const char *layout = zp_words_layout(arena, &free_plan->best.choice);
  double faster = was ? was->step_s / is->step_s - 1 : 0;
  if (!was)
    zp_page_field(page, "fits", "%s: ~%s a step", layout, zp_show_seconds(arena, is->step_s));
  else if (faster < 0.005)
    zp_page_field(page, "better", "nothing that was found: at most ~%.1f%% faster", 100 * (faster > 0 ? faster : 0));
  else
    zp_page_field(page, "better", "%s: ~%s a step, ~%.1f%% more tokens/s", layout, zp_show_seconds(arena, is->step_s),
                  100 * faster);
}

/* Prints both plans, of a launch that does not fit the other alone. Exit status. */
static int answer(zp_run_state *run, const char *path, const char *program) {
  const zp_plan *launched = NULL, *free_plan = NULL;
  if (!run->options.gap_text) run->options.gap_text = "1%", run->options.gap = 0.01;
  run->default_program = program;
  int status = plan_block(run, path, "launched", &launched);
  if (status == ZP_EXIT_ERROR) return status;
  int other = plan_block(run, path, "free", &free_plan);
  if (other == ZP_EXIT_ERROR) return other;
  if (run->options.json) return status;
  zp_page page = zp_page_for(run, stdout, ZP_FIRST_LABEL);
  bool fits = status == ZP_EXIT_OK;
  if (fits) zp_report_first_screen(&page, launched);
  if (other == ZP_EXIT_OK) {
    put_better(&page, fits ? launched : NULL, free_plan);
    zp_page_field(&page, "next", "zplan %s %s --plan %s --for %s", fits ? "compare" : "plan",
                  zp_quote_shell(run->arena, path), fits ? "launched --plan free" : "free", program);
  }
  zp_page_text(&page, ZP_DIM, 2, ZP_ESTIMATED_LEGEND);
  zp_page_put(&page, stdout);
  return status;
}

int zp_import_launch(zp_run_state *run, const char *format) {
  const zp_options *o = &run->options;
  if (o->gpus_auto || o->gpus_low) return zp_usage_error("--gpus wants a number here: a launch runs on so many");
  if (o->gpu) return zp_usage_error("--gpu is for `zplan import nccl`; --machine says what a launch runs on");
  const launch_reader *p = reader_of(format);
  if (p->model == NEEDS_MODEL && !o->load.model)
    return zp_usage_error("`zplan import %s` wants --model: a .dz file, a config.json or a name of `zplan models`; the "
                          "configuration does not say it",
                          format);
  if (p->model == NO_MODEL && o->load.model) return zp_usage_error("--model: the flags of %s say the model", format);
  if (o->files.len > 1 || (p->needs_file && o->files.len == 0))
    return zp_usage_error("`zplan import %s` wants one file, %d were given", format, o->files.len);
  if (o->files.len == 0 && o->trainer_args.len == 0)
    return zp_usage_error("`zplan import %s` wants a script, or flags after `--`", format);
  zp_launch_words words = {.args = o->trainer_args, .gpus = o->load.gpus};
  const char *for_program = format;
  if (!take_machine(run, &words)) return ZP_EXIT_USAGE;
  const char *text = imported(run, p, &words, &for_program);
  if (!text) return ZP_EXIT_ERROR;
  if (!zp_put_output(run, text, "#")) return ZP_EXIT_ERROR;
  return run->options.output ? answer(run, run->options.output, for_program) : ZP_EXIT_OK;
}
