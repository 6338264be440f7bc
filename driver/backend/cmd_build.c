/* SPDX-License-Identifier: Apache-2.0 */
/* zplan build: the generated tree and its binary; prints the binary's path. */
#include "driver.h"

#include <stdio.h>
#include <unistd.h>

const bool zp_has_backend = true;

zp_plan *zp_plan_to_build(zp_run_state *run, int *status) {
  zp_plan *plan = zp_obtain_plan(run, 1);
  *status = run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!plan) return NULL;
  if (!plan->feasible) {
    zp_print_no_plan(run, plan);
    *status = ZP_EXIT_INFEASIBLE;
    return NULL;
  }
  *status = ZP_EXIT_ERROR;
  return zp_can_generate(run, plan->spec) && zp_find_weights(run, plan->spec) ? plan : NULL;
}

const char *zp_build_trainer(zp_run_state *run, const zp_plan *plan, const zp_spec *target, const char *folder,
                             int *lock) {
  zp_toolchain tools = zp_target_toolchain(run, target);
  const char *error = NULL, *binary = NULL;
  zp_begin_work(run, "building");
  *lock = zp_tree_lock(run->arena, folder, &error);
  if (*lock >= 0) binary = zp_trainer_build(run->arena, plan, run->diags, &tools, folder, &error);
  zp_status_end();
  if (binary) return binary;
  zp_diag *d = zp_report(run->diags, ZP_Z0703, ZP_NO_SPAN, "cannot build the trainer: %s", error);
  zp_diag_help(d, "`zplan doctor` shows which tools were found");
  zp_flush_diags(run);
  return NULL;
}

int zp_cmd_build(zp_run_state *run) {
  int status, lock;
  zp_plan *plan = zp_plan_to_build(run, &status);
  if (!plan) return status;
  const char *binary = zp_build_trainer(run, plan, plan->spec, zp_tree_dir(run), &lock);
  if (!binary || !zp_write_weights(run)) return ZP_EXIT_ERROR;
  zp_result_text(run, "trainer", binary);
  zp_hand_on(stdout, binary, strlen(binary));
  putchar('\n');
  return ZP_EXIT_OK;
}
