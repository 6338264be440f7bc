/* SPDX-License-Identifier: Apache-2.0 */
/* zplan fmt: canonical layout, in place; --check only says whether something would change. */
#include "driver.h"

#include <stdio.h>

int zp_cmd_fmt(zp_run_state *run) {
  if (run->options.files.len == 0) return zp_usage_error("`zplan fmt` wants one or more .dz files");
  int status = ZP_EXIT_OK;
  for (int i = 0; i < run->options.files.len; i++) {
    const char *path = run->options.files.data[i], *error = NULL;
    size_t len;
    char *text = zp_read_input(run->arena, path, &len, &error);
    if (!text) {
      zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s", error);
      zp_flush_diags(run);
      return ZP_EXIT_ERROR;
    }
    const char *out = zp_format_source(run->arena, run->diags, zp_diags_add_source(run->diags, path, text, len));
    if (!zp_flush_diags(run) || !out) return ZP_EXIT_ERROR;
    if (strcmp(out, text) == 0) continue;
    if (run->options.check) {
      zp_say(stdout, "%s\n", path);
      status = ZP_EXIT_DIFFERENT;
    } else if (!zp_write_file(run->arena, path, out, strlen(out), &error)) {
      zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "%s", error);
      zp_flush_diags(run);
      return ZP_EXIT_ERROR;
    }
  }
  return status;
}
