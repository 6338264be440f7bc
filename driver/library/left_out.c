/* SPDX-License-Identifier: Apache-2.0 */
/* In place of ../backend: the library plans, and starts no trainer and no measurement. */
#include "driver.h"

const bool zp_has_backend = false;

bool zp_use_kept_calibration(zp_run_state *run, zp_spec *spec) {
  (void)spec;
  zp_diag *d =
      zp_report(run->diags, ZP_Z0708, ZP_NO_SPAN, "--calibration kept measures the machine, and libzplan only plans");
  zp_diag_help(d, "`zplan calibrate -o FILE` measures it: then --calibration FILE");
  return zp_flush_diags(run);
}

bool zp_calibrate_here(zp_run_state *run, zp_spec *spec) {
  (void)run, (void)spec; /* run and bench do not get here */
  return true;
}
