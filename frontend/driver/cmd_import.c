/* zplan import: a model or a cluster of another program as a .dz file, on stdout or in a file; what was left out or
 * assumed on stderr. */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/import.h>

#include <stdio.h>

typedef zp_imported *import_format(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len);
static const struct {
  import_format *read;
  const char *file; /* what it wants */
  zp_diag_code missing;
} formats[] = {{zp_import_hf, "config.json", ZP_Z0683},
               {NULL, NULL, ZP_Z0683},
               {zp_import_slurm, "file of what Slurm said", ZP_Z0685}};

int zp_cmd_import(zp_run_state *run) {
  static const char *const words[] = {"hf", "nccl", "slurm"};
  int format = zp_take_format(run, words, sizeof words / sizeof *words);
  if (format < 0) return ZP_EXIT_USAGE;
  if (!formats[format].read)
    return zp_usage_error(
        "`zplan import %s` is not built in this version; `zplan import hf` and `zplan import slurm` are",
        words[format]);
  if (run->options.files.len != 1)
    return zp_usage_error("`zplan import %s` wants one %s, %d were given", words[format], formats[format].file,
                          run->options.files.len);
  const char *path = run->options.files.data[0], *error = NULL;
  size_t len;
  const char *text = zp_read_file(run->arena, path, &len, &error);
  if (!text) {
    zp_report(run->diags, formats[format].missing, ZP_NO_SPAN, "%s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  zp_imported *found = formats[format].read(run->arena, run->diags, path, text, len);
  if (!zp_flush_diags(run) || !found) return ZP_EXIT_ERROR;
  for (int i = 0; i < found->notes.len; i++) fprintf(stderr, "note: %s\n", found->notes.data[i]);
  const char *laid_out = zp_format_source(
      run->arena, run->diags, zp_diags_add_source(run->diags, "imported", found->text, strlen(found->text)));
  if (!zp_flush_diags(run) || !laid_out) return ZP_EXIT_ERROR; /* our bug: what was written is no .dz file */
  return zp_put_output(run, laid_out) ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
