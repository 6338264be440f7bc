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
  if (o->no_checkpoint && (o->resume || o->overwrite || o->checkpoint))
    return zp_usage_error("--no-checkpoint keeps none: %s does not go with it", o->checkpoint ? "--checkpoint"
                                                                                : o->resume   ? "--resume"
                                                                                              : "--overwrite"),
           false;
  if (o->accept_changes && !o->resume) return zp_usage_error("--accept-changes goes with --resume"), false;
  if (o->sync && o->profile) return zp_usage_error("--sync changes what --profile measures: give one of them"), false;
  if (o->profile_steps && !o->profile) return zp_usage_error("--profile-steps goes with --profile"), false;
  return true;
}

int zp_cmd_run(zp_run_state *run) {
  int status, lock;
  if (!check_words(&run->options)) return ZP_EXIT_USAGE;
  if (!check_hostfile(run)) return ZP_EXIT_ERROR;
  zp_plan *plan = zp_plan_to_build(run, &status);
  if (!plan) return status;
  if (!zp_host_holds(run, plan)) return ZP_EXIT_MEMORY;
  const char *dir = zp_tree_dir(run);
  zp_choose_checkpoints(run, plan->spec);
  zp_show_run(run, plan);
  const char *binary = zp_build_trainer(run, plan, plan->spec, dir, &lock);
  if (!binary || !zp_write_weights(run) || !zp_arrange_hosts(run, plan, dir)) return ZP_EXIT_ERROR;
  zp_result_text(run, "trainer", binary);
  zp_tree_use(run->arena, dir); /* until this process ends */
  close(lock);
  status = zp_launch_trainer(run, binary, zp_choice_ranks(&plan->best.choice), false);
  zp_show_run_end(run, plan, status);
  return status;
}
