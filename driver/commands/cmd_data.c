/* SPDX-License-Identifier: Apache-2.0 */
/* zplan data: the options as a job. */
#include "driver.h"

#include <zplan/make_data.h>

int zp_cmd_data(zp_run_state *run) {
  const zp_options *o = &run->options;
  zp_data_job job = {.arena = run->arena,
                     .diags = run->diags,
                     .files = o->files,
                     .output = o->output,
                     .tokenizer = o->tokenizer,
                     .eod = o->eod,
                     .field = o->field,
                     .numbers = o->numbers,
                     .labels = o->labels,
                     .classes = o->classes,
                     .length = o->length,
                     .stride = o->stride,
                     .copies = o->copies,
                     .seed = o->seed,
                     .unmasked = o->unmasked,
                     .pack = o->pack,
                     .documents = o->documents,
                     .skip_bad = o->skip_bad,
                     .force = o->force};
  zp_data_result result = zp_make_data(&job);
  if (result == ZP_DATA_USAGE) return zp_usage_error("%s", job.usage);
  if (result == ZP_DATA_FAILED) zp_flush_diags(run);
  if (result == ZP_DATA_MADE) zp_result_text(run, "file", o->output);
  return result == ZP_DATA_MADE ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
