/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that BERT puts around texts, of a tokenizer or alongside bytes. */
#include "make_data_internal.h"

enum { BYTE_CLS = 256, BYTE_SEP, BYTE_MASK, BYTE_VOCABULARY };

static int32_t added(const zp_tokenizer *tokenizer, const char *name, const char *other) {
  int32_t id = zp_tokenizer_added(tokenizer, name);
  return id >= 0 ? id : zp_tokenizer_added(tokenizer, other);
}

bool zp_marks_open(zp_data_job *job, zp_marks *m) {
  const char *path = job->tokenizer;
  size_t len;
  *m = (zp_marks){.cls = BYTE_CLS, .sep = BYTE_SEP, .mask = BYTE_MASK};
  if (!path) return true;
  const char *json = zp_tokenizer_text(job->arena, job->diags, path, &len);
  if (!json) return false;
  m->tokenizer = zp_tokenizer_read(job->arena, job->diags, path, json, len);
  if (!m->tokenizer) return false;
  m->decoder = zp_decoder_read(job->arena, json, len);
  m->cls = added(m->tokenizer, "[CLS]", "<s>");
  m->sep = added(m->tokenizer, "[SEP]", "</s>");
  m->mask = added(m->tokenizer, "[MASK]", "<mask>");
  if (m->cls >= 0 && m->sep >= 0) return true;
  zp_diag *d = zp_report(job->diags, ZP_Z0806, ZP_NO_SPAN, "%s has no tokens to put around questions", path);
  zp_diag_help(d, "it takes the added tokens [CLS] and [SEP], or <s> and </s>");
  return false;
}

void zp_marks_close(zp_marks *m) {
  zp_tokenizer_free(m->tokenizer);
  m->tokenizer = NULL;
}

int64_t zp_marks_vocabulary(const zp_marks *m) {
  return m->tokenizer ? zp_tokenizer_vocabulary(m->tokenizer) : BYTE_VOCABULARY;
}
