/* SPDX-License-Identifier: Apache-2.0 */
/* zplan fmt: canonical layout, in place; --check only says whether something would change. */
#include "driver.h"

#include <stdio.h>

/* With --json: what became of a file. */
static void note_file(zp_json *files, const char *path, bool canonical, bool written) {
  if (!files) return;
  zp_json *o = zp_json_append(files, zp_json_object());
  zp_json_set_string(o, "file", path);
  zp_json_set_bool(o, "canonical", canonical); /* before */
  zp_json_set_bool(o, "written", written);
}

int zp_cmd_fmt(zp_run_state *run) {
  if (run->options.files.len == 0) return zp_usage_error("`zplan fmt` wants one or more .dz files");
  int status = ZP_EXIT_OK;
  zp_json *files = run->options.json ? zp_json_set(zp_result_object(run), "files", zp_json_array()) : NULL;
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
    bool canonical = strcmp(out, text) == 0;
    if (!canonical && run->options.check) {
      if (!run->options.json) zp_say(stdout, "%s\n", path);
      status = ZP_EXIT_DIFFERENT;
    } else if (!canonical && !zp_write_file(run->arena, path, out, strlen(out), &error)) {
      zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "%s", error);
      zp_flush_diags(run);
      return ZP_EXIT_ERROR;
    }
    note_file(files, path, canonical, !canonical && !run->options.check);
  }
  return status;
}
