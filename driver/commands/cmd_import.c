/* SPDX-License-Identifier: Apache-2.0 */
/* zplan import: a model or a cluster of another program as a .dz file, on stdout or in a file; what was left out or
 * assumed on stderr. */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/import.h>

#include <stdio.h>
#include <sys/stat.h>

typedef enum import_format { HF, NCCL, SLURM, FORMATS, MEGATRON = FORMATS, DEEPSPEED, TORCHTITAN } import_format;
static const struct {
  const char *file; /* what it wants */
  zp_diag_code missing;
} formats[] = {[HF] = {"config.json", ZP_Z0683},
               [NCCL] = {"file of NCCL_TOPO_DUMP_FILE", ZP_Z0687},
               [SLURM] = {"file of what Slurm said", ZP_Z0685}};

static zp_imported *read_format(zp_run_state *run, import_format format, const char *path, const char *text,
                                size_t len) {
  switch (format) {
  case HF: return zp_import_hf(run->arena, run->diags, path, text, len);
  case NCCL: return zp_import_nccl(run->arena, run->diags, path, text, len, run->options.gpu);
  case SLURM: return zp_import_slurm(run->arena, run->diags, path, text, len);
  case MEGATRON:
  case DEEPSPEED:
  case TORCHTITAN: break; /* cmd_import_launch.c */
  }
  return NULL;
}

int zp_cmd_import(zp_run_state *run) {
  static const char *const words[] = {"hf", "nccl", "slurm", "megatron", "deepspeed", "torchtitan"};
  int format = zp_take_format(run, words, sizeof words / sizeof *words);
  if (format < 0) return ZP_EXIT_USAGE;
  if (format >= FORMATS) return zp_import_launch(run, words[format]);
  const char *of_launches = run->options.load.gpus              ? "--gpus"
                            : run->options.load.model           ? "--model"
                            : run->options.machine              ? "--machine"
                            : run->options.trainer_args.len > 0 ? "`--`"
                                                                : NULL;
  if (of_launches)
    return zp_usage_error("%s is for launches; `zplan import %s` does not take it", of_launches, words[format]);
  if (run->options.gpu && format != NCCL)
    return zp_usage_error("--gpu says which GPUs `zplan import nccl` reads; `zplan import %s` does not take it",
                          words[format]);
  if (run->options.files.len != 1)
    return zp_usage_error("`zplan import %s` wants one %s, %d were given", words[format], formats[format].file,
                          run->options.files.len);
  const char *path = run->options.files.data[0], *error = NULL;
  size_t len;
  struct stat st;
  if (format == HF && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) path = zp_format(run->arena, "%s/config.json", path);
  const char *text = zp_read_input(run->arena, path, &len, &error);
  if (!text) {
    zp_report(run->diags, formats[format].missing, ZP_NO_SPAN, "%s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  zp_imported *found = read_format(run, (import_format)format, path, text, len);
  if (!zp_flush_diags(run) || !found) return ZP_EXIT_ERROR;
  for (int i = 0; i < found->notes.len; i++) zp_say_line(stderr, "note: %s", found->notes.data[i]);
  const char *laid_out = zp_format_source(
      run->arena, run->diags, zp_diags_add_source(run->diags, "imported", found->text, strlen(found->text)));
  if (!zp_flush_diags(run) || !laid_out) return ZP_EXIT_ERROR; /* our bug: what was written is no .dz file */
  return zp_put_output(run, laid_out, "#") ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
