/* SPDX-License-Identifier: Apache-2.0 */
/* Which form of data a job is of, and which options belong to other forms. */
#include "make_data_internal.h"

#include <assert.h>
#include <stdarg.h>

zp_data_result zp_data_usage(zp_data_job *job, const char *format, ...) {
  va_list args;
  va_start(args, format);
  job->usage = zp_vformat(job->arena, format, args);
  va_end(args);
  return ZP_DATA_USAGE;
}

zp_data_result zp_make_data(zp_data_job *job) {
  assert(job && job->arena && job->diags);
  const char *form = job->files.len > 0 ? job->files.data[0] : "";
  bool rows = strcmp(form, "jsonl") == 0 || strcmp(form, "table") == 0;
  if (!rows &&
      (job->field || job->numbers.len > 0 || job->labels.len > 0 || job->classes > 0 || job->pack || job->documents))
    return zp_data_usage(job,
                         "--field, --numbers, --labels, --classes, --pack and --documents are for `zplan data jsonl` "
                         "and `table`");
  if (rows) return zp_data_rows(job);
  if (strcmp(form, "pairs") == 0) return zp_data_pairs(job);
  if (job->copies || job->seed || job->unmasked)
    return zp_data_usage(job, "--copies, --unmasked and --seed are for `zplan data pairs`");
  if (strcmp(form, "squad") == 0) return zp_data_squad(job);
  if (job->length || job->stride)
    return zp_data_usage(job, "--length and --stride are for other forms of `zplan data`");
  if (job->files.len == 0 || !job->output)
    return zp_data_usage(job, "usage: zplan data FILES... -o TOKENS.bin [--tokenizer FILE.json [--eod TOKEN]]");
  if (job->eod && !job->tokenizer)
    return zp_data_usage(job, "--eod names a token of a tokenizer: say --tokenizer FILE.json, too");
  return zp_data_tokens(job);
}
