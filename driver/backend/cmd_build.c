/* SPDX-License-Identifier: Apache-2.0 */
/* zplan build: the generated tree and its binary; prints the binary's path. */
#include "driver.h"

#include <stdio.h>

const bool zp_has_backend = true;

int zp_cmd_build(zp_run_state *run) {
  zp_plan *plan = zp_obtain_plan(run, 1);
  if (!plan) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!plan->feasible) {
    zp_print_no_plan(run, plan);
    return ZP_EXIT_INFEASIBLE;
  }
  if (!zp_can_generate(run, plan->spec) || !zp_find_weights(run, plan->spec)) return ZP_EXIT_ERROR;
  zp_toolchain tools = zp_target_toolchain(run, plan->spec);
  const char *error = NULL, *dir = zp_tree_dir(run), *binary = NULL;
  zp_begin_work(run, "building");
  if (zp_tree_lock(run->arena, dir, &error) >= 0)
    binary = zp_trainer_build(run->arena, plan, run->diags, &tools, dir, &error);
  zp_status_end();
  if (!binary) {
    zp_diag *d = zp_report(run->diags, ZP_Z0703, ZP_NO_SPAN, "cannot build the trainer: %s", error);
    zp_diag_help(d, "`zplan doctor` shows which tools were found");
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  if (!zp_write_weights(run)) return ZP_EXIT_ERROR;
  zp_result_text(run, "trainer", binary);
  zp_hand_on(stdout, binary, strlen(binary));
  putchar('\n');
  return ZP_EXIT_OK;
}
