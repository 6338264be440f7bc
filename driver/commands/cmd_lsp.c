/* SPDX-License-Identifier: Apache-2.0 */
/* zplan lsp: the language server, for editors to start. */
#include "driver.h"
#include <zplan/lsp.h>
#include <zplan/path.h>

#include <unistd.h>

/* What `zplan check` would say of a file that an editor holds. */
static void check(void *user, zp_arena *arena, zp_diags *diags, const char *path, const zp_source_text *edited,
                  int n_edited, zp_facts *facts) {
  const zp_run_state *server = user;
  zp_run_state run = {.arena = arena, .diags = diags, .command = "check", .quiet = true};
  run.options.load = (zp_load_options){.library_dir = server->options.load.library_dir,
                                       .model_only = true,
                                       .edited = edited,
                                       .n_edited = n_edited,
                                       .facts = facts};
  zp_push(arena, &run.options.files, path);
  zp_spec *spec = zp_load(arena, diags, path, NULL, 0, &run.options.load);
  if (spec && zp_diags_errors(diags) == 0 && zp_find_data(&run, path, false, spec))
    zp_choose_program(&run, spec, false);
}

int zp_cmd_lsp(zp_run_state *run) {
  if (run->options.files.len) return zp_usage_error("`zplan lsp` takes no file: an editor starts it and sends them");
  run->options.load.library_dir = zp_path_tidy(run->arena, run->options.load.library_dir);
  zp_lsp_host host = {
      .version = zp_version(), .library_dir = run->options.load.library_dir, .check = check, .user = run};
  return zp_lsp_serve(&host, STDIN_FILENO, STDOUT_FILENO);
}
