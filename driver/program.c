/* SPDX-License-Identifier: Apache-2.0 */
/* The program that a plan is for (--for): whose kernels are priced, and whose abilities bound the space. */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/moves.h>
#include <zplan/software.h>

/* Trainers are those of zplan. */
static bool needs_own_trainer(const zp_run_state *run) {
  static const char *const verbs[] = {"build", "run", "bench"};
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
    if (strcmp(run->command, verbs[i]) == 0) return true;
  return false;
}

static void check_verb(zp_run_state *run, const zp_cluster *cluster) {
  if (cluster->trainer == ZP_TRAINER_ZPLAN || !needs_own_trainer(run)) return;
  const char *title = zp_trainer_title(cluster->trainer), *path = run->options.files.data[0];
  zp_diag *d = zp_report(run->diags, ZP_Z0702, ZP_NO_SPAN, "%s is planned for %s; `zplan %s` makes zplan's own trainer",
                         path, title, run->command);
  if (cluster->trainer == ZP_TRAINER_FSDP)
    zp_diag_help(d, "--for zplan takes the plan as it is for zplan's own trainer");
  else
    zp_diag_help(
        d, "`zplan export %s %s` writes its settings; --for zplan takes the plan as it is for zplan's own trainer",
        zp_trainer_word(cluster->trainer), path);
}

static void check_device(zp_run_state *run, const zp_cluster *cluster) {
  if (!cluster->software || !cluster->node.device.is_cpu) return;
  zp_diag *d = zp_report(run->diags, ZP_Z0627, cluster->span, "cluster `%s` has CPU devices, %s runs on GPUs",
                         cluster->name, zp_trainer_title(cluster->trainer));
  zp_diag_help(d, "CPU ranks are trained by zplan's own trainer: --for zplan; for GPUs choose another cluster with "
                  "--cluster");
}

/* Profiles of other programs know nothing of weights without gradients and state. */
static void check_frozen(zp_run_state *run, const zp_spec *spec) {
  if (spec->cluster.trainer == ZP_TRAINER_ZPLAN || !zp_model_has_frozen(spec->model)) return;
  zp_diag *d = zp_report(run->diags, ZP_Z0627, spec->train.span, "%s is planned with all parameters trained",
                         zp_trainer_title(spec->cluster.trainer));
  zp_diag_help(d, "frozen parameters and adapters are planned for zplan's own trainer: --for zplan");
}

static void check_strategies(zp_run_state *run, const zp_spec *spec) {
  for (int i = 0; zp_move_strategies[i]; i++) {
    if (!zp_move_strategies[i]->objects) continue;
    zp_move_objection objection = zp_move_strategies[i]->objects(run->arena, spec);
    if (!objection.why) continue;
    zp_diag *d = zp_report(run->diags, ZP_Z0627, objection.span, "%s", objection.why);
    zp_diag_help(d, "%s", objection.help);
  }
}

static void report_lacking(zp_run_state *run, const zp_cluster *cluster, const zp_lacking *lacking) {
  zp_diag *d = cluster->node.device.is_cpu
                   ? zp_report(run->diags, ZP_Z0627, lacking->span, "`%s`: %s", lacking->key, lacking->why)
                   : zp_report(run->diags, ZP_Z0627, lacking->span, "no value that `%s` may have is in %s: %s",
                               lacking->key, zp_trainer_title(cluster->trainer), lacking->why);
  if (lacking->help) zp_diag_help(d, "%s", lacking->help);
  if (lacking->other != ZP_TRAINER_NONE)
    zp_diag_help(d, "%s has it: --for %s plans for that program", zp_trainer_title(lacking->other),
                 zp_trainer_word(lacking->other));
}

static void warn_useless(zp_run_state *run, const zp_lacking *useless) {
  zp_report(run->diags, ZP_Z0628, useless->span, "`%s` has no effect here: %s", useless->key, useless->why);
}

/* The word goes into plan files as the profile's name: what is newest changes. Files without it are for zplan. */
static void keep_word(zp_run_state *run, zp_spec *spec) {
  if (!spec->cluster.software) return;
  zp_push(run->arena, &spec->options, "--for");
  zp_push(run->arena, &spec->options, zp_software_name(spec->cluster.software));
}

/* The plan block's word for it; NULL: it has none, or names no program, which was reported. */
static const char *word_of_plan(zp_run_state *run, const zp_spec *spec) {
  const zp_constraints *plan = &spec->plans.data[spec->plan];
  zp_trainer trainer;
  const zp_software *software;
  if (!plan->program || zp_software_find(plan->program, &trainer, &software)) return plan->program;
  zp_strings words = zp_software_words(run->arena);
  zp_buf list = zp_buf_new(run->arena);
  for (int i = 0; i < words.len; i++) zp_buf_printf(&list, "%s\"%s\"", i ? ", " : "", words.data[i]);
  zp_diag *d = zp_report(run->diags, ZP_Z0308, plan->program_span, "`for` cannot be \"%s\"", plan->program);
  zp_diag_did_you_mean(d, plan->program, words.data, words.len);
  zp_diag_note(d, "possible here: %s", list.data);
  return NULL;
}

bool zp_choose_program(zp_run_state *run, zp_spec *spec, bool from_plan) {
  zp_cluster *cluster = &spec->cluster;
  const char *otherwise = from_plan || cluster->node.device.is_cpu ? NULL : run->default_program;
  const char *word = run->options.program ? run->options.program : from_plan ? NULL : word_of_plan(run, spec);
  if (!word) word = otherwise;
  zp_narrowing done = zp_program_choose(run->arena, spec, word ? word : zp_trainer_word(ZP_TRAINER_ZPLAN));
  check_device(run, cluster);
  check_frozen(run, spec);
  check_strategies(run, spec);
  check_verb(run, cluster);
  for (int i = 0; i < done.lacking.len && !from_plan && !run->lacking_is_fine; i++)
    report_lacking(run, cluster, &done.lacking.data[i]);
  run->narrowed = done.keys;
  for (int i = 0; i < done.useless.len && !from_plan; i++) warn_useless(run, &done.useless.data[i]);
  keep_word(run, spec);
  return zp_flush_diags(run);
}
