/* SPDX-License-Identifier: Apache-2.0 */
/* In place of ../backend where zplan was built to plan only: what generates, runs or measures trainers is not there. */
#include "driver.h"

#include <stdio.h>

const bool zp_has_backend = false;

static void say_left_out(zp_run_state *run, const char *what) {
  zp_diag *d = zp_report(run->diags, ZP_Z0708, ZP_NO_SPAN,
                         "%s needs a trainer or measures the machine, and this zplan only plans: it was built without "
                         "LLVM and the runtime",
                         what);
  zp_diag_help(d, "build the whole where it shall train: install LLVM 19 and Open MPI (examples/packages.sh lists "
                  "packages), then `cmake --workflow --preset release`; plan files that were made here hold there: "
                  "`zplan run PLAN.json`");
  zp_flush_diags(run);
}

static int left_out(zp_run_state *run) {
  say_left_out(run, zp_format(run->arena, "`zplan %s`", run->command));
  return ZP_EXIT_ERROR;
}

bool zp_use_kept_calibration(zp_run_state *run, zp_spec *spec) {
  (void)spec;
  say_left_out(run, "--calibration kept");
  return false;
}

bool zp_calibrate_here(zp_run_state *run, zp_spec *spec) {
  (void)run, (void)spec; /* run and bench do not get here */
  return true;
}

int zp_cmd_build(zp_run_state *run) { return left_out(run); }
int zp_cmd_run(zp_run_state *run) { return left_out(run); }
int zp_cmd_bench(zp_run_state *run) { return left_out(run); }
int zp_cmd_calibrate(zp_run_state *run) { return left_out(run); }
int zp_cmd_sample(zp_run_state *run) { return left_out(run); }
int zp_cmd_eval(zp_run_state *run) { return left_out(run); }

int zp_cmd_doctor(zp_run_state *run) {
  if (run->options.files.len) return zp_usage_error("`zplan doctor` takes no files");
  zp_doctor d = {.arena = run->arena};
  zp_doctor_begin(&d);
  zp_doctor_row(&d, "trainers", NULL,
                "zplan build, run, bench, calibrate, sample, eval: left out of a plan-only build");
  zp_doctor_machine(&d);
  zp_doctor_purpose(&d, "plan", NULL, NULL);
  zp_doctor_purpose(&d, "training", "not in a plan-only build", "cmake --workflow --preset release");
  zp_show_doctor(run, &d);
  return ZP_EXIT_OK;
}
