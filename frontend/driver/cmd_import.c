/* zplan import: a model of another program as a .dz file, on stdout or in a file; what was left out on stderr. */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/import.h>

#include <stdio.h>

/* Formats that are asked for and not read in this version. */
static int refuse_later(const char *word) {
  return zp_usage_error("`zplan import %s` is not built in this version; `zplan import hf` is", word);
}

int zp_cmd_import(zp_run_state *run) {
  static const char *const words[] = {"hf", "nccl", "slurm"};
  int format = zp_take_format(run, words, sizeof words / sizeof *words);
  if (format < 0) return ZP_EXIT_USAGE;
  if (format > 0) return refuse_later(words[format]);
  if (run->options.files.len != 1)
    return zp_usage_error("`zplan import hf` wants one config.json, %d were given", run->options.files.len);
  const char *path = run->options.files.data[0], *error = NULL;
  size_t len;
  const char *json = zp_read_file(run->arena, path, &len, &error);
  if (!json) {
    zp_report(run->diags, ZP_Z0683, ZP_NO_SPAN, "%s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  zp_imported *model = zp_import_hf(run->arena, run->diags, path, json, len);
  if (!zp_flush_diags(run) || !model) return ZP_EXIT_ERROR;
  for (int i = 0; i < model->notes.len; i++) fprintf(stderr, "note: %s\n", model->notes.data[i]);
  const char *laid_out = zp_format_source(
      run->arena, run->diags, zp_diags_add_source(run->diags, "imported", model->text, strlen(model->text)));
  if (!zp_flush_diags(run) || !laid_out) return ZP_EXIT_ERROR; /* our bug: what was written is no .dz file */
  return zp_put_output(run, laid_out) ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
