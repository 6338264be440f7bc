/* SPDX-License-Identifier: Apache-2.0 */
/* zplan run: builds if stale and starts the trainer; its exit status says how the trainer ended. */
#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* mpirun would tell it in a page, after the build. */
static bool check_hostfile(zp_run_state *run) {
  const char *path = run->options.hostfile;
  if (!path || access(path, R_OK) == 0) return true;
  zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "cannot read the hostfile `%s`: %s", path, strerror(errno));
  return zp_flush_diags(run);
}

/* The trainer would refuse them, too, after the build. */
static bool check_words(const zp_options *o) {
  if (o->resume && o->overwrite)
    return zp_usage_error("--resume goes on, --overwrite starts anew: give one of them"), false;
  if (o->accept_changes && !o->resume) return zp_usage_error("--accept-changes goes with --resume"), false;
  if (o->sync && o->profile) return zp_usage_error("--sync changes what --profile measures: give one of them"), false;
  if (o->profile_steps && !o->profile) return zp_usage_error("--profile-steps goes with --profile"), false;
  return true;
}

int zp_cmd_run(zp_run_state *run) {
  if (!check_words(&run->options)) return ZP_EXIT_USAGE;
  if (!check_hostfile(run)) return ZP_EXIT_ERROR;
  zp_plan *plan = zp_obtain_plan(run, 1);
  if (!plan) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!plan->feasible) {
    zp_print_no_plan(run, plan);
    return ZP_EXIT_INFEASIBLE;
  }
  if (!zp_can_generate(run, plan->spec) || !zp_find_weights(run, plan->spec)) return ZP_EXIT_ERROR;
  if (!zp_host_holds(run, plan)) return ZP_EXIT_MEMORY;
  const zp_choice *c = &plan->best.choice;
  const char *expert = zp_expert_ranks(c) > 1 ? zp_format(run->arena, " (expert %d)", c->expert) : "";
  const char *context = zp_context_ranks(c) > 1 ? zp_format(run->arena, " x context %d", c->context) : "";
  zp_say(stderr, "plan: tensor %d x pipeline %d%s x data %d%s, zero %d, micro-batch %lld, recompute %s; step ~%s\n",
         c->tensor, c->pipeline, context, zp_replicas(c), expert, c->zero, (long long)c->microbatch,
         zp_choice_recompute_words(run->arena, c), zp_show_seconds(run->arena, plan->best.estimate.step_s));
  zp_toolchain tools = zp_target_toolchain(run, plan->spec);
  const char *error = NULL, *dir = zp_tree_dir(run), *binary = NULL;
  zp_begin_work(run, "building");
  int lock = zp_tree_lock(run->arena, dir, &error);
  if (lock >= 0) binary = zp_trainer_build(run->arena, plan, run->diags, &tools, dir, &error);
  zp_status_end();
  if (!binary) {
    zp_report(run->diags, ZP_Z0703, ZP_NO_SPAN, "cannot build the trainer: %s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  if (!zp_write_weights(run) || !zp_arrange_hosts(run, plan, dir)) return ZP_EXIT_ERROR;
  zp_result_text(run, "trainer", binary);
  zp_choose_checkpoints(run, plan->spec);
  zp_tree_use(run->arena, dir); /* until this process ends */
  close(lock);
  return zp_launch_trainer(run, binary, zp_choice_ranks(c), false);
}
