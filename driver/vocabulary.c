/* SPDX-License-Identifier: Apache-2.0 */
/* Is a tokenizer that of a model? Tables of embeddings are often padded by a few rows, never by a tenth. */
#include "driver.h"

bool zp_tokenizer_fits(zp_run_state *run, const char *path, const zp_tokenizer *tokenizer, const zp_model *model) {
  long long tokens = zp_tokenizer_vocabulary(tokenizer), rows = model->vocabulary;
  if (tokens > rows) {
    zp_diag *d =
        zp_report(run->diags, ZP_Z0806, ZP_NO_SPAN, "%s has %lld tokens, and the model %lld", path, tokens, rows);
    zp_diag_help(d, "it is the tokenizer of another model");
    return false;
  }
  if (tokens < rows - rows / 10)
    zp_say_line(stderr, "note: %s has %lld tokens, and the model %lld: is it the tokenizer of another model?", path,
                tokens, rows);
  return true;
}
