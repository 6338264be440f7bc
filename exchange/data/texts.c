/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of texts: bytes, or those of --tokenizer, and what --eod puts after each. */
#include "make_data_internal.h"

bool zp_texts_open(zp_data_job *job, zp_texts *texts) {
  const zp_data_job *o = job;
  size_t len;
  *texts = (zp_texts){.eod = -1};
  if (!o->tokenizer) return true;
  const char *json = zp_tokenizer_text(job->arena, job->diags, o->tokenizer, &len);
  if (!json) return false;
  texts->tokenizer = zp_tokenizer_read(job->arena, job->diags, o->tokenizer, json, len);
  if (!texts->tokenizer) return false;
  if (o->eod) texts->eod = zp_tokenizer_added(texts->tokenizer, o->eod);
  if (!o->eod || texts->eod >= 0) return true;
  zp_report(job->diags, ZP_Z0806, ZP_NO_SPAN, "%s has no added token `%s`, which --eod asks for", o->tokenizer, o->eod);
  return false;
}

void zp_texts_close(zp_texts *texts) {
  zp_tokenizer_free(texts->tokenizer);
  texts->tokenizer = NULL;
}

int64_t zp_texts_vocabulary(const zp_texts *texts) {
  return texts->tokenizer ? zp_tokenizer_vocabulary(texts->tokenizer) : ZP_BYTE_VOCABULARY;
}

static bool put_bytes(const char *bytes, size_t len, zp_on_tokens *on_tokens, void *user) {
  int32_t ids[512];
  for (size_t done = 0, now; done < len; done += now) {
    now = len - done < 512 ? len - done : 512;
    for (size_t i = 0; i < now; i++) ids[i] = (unsigned char)bytes[done + i];
    if (!on_tokens(user, ids, (int)now)) return false;
  }
  return true;
}

bool zp_texts_put(zp_data_job *job, const zp_texts *texts, const char *place, const char *text, size_t len,
                  zp_on_tokens *on_tokens, void *user) {
  const char *error = NULL;
  bool ok = texts->tokenizer ? zp_tokenize(texts->tokenizer, text, len, on_tokens, user, &error)
                             : put_bytes(text, len, on_tokens, user);
  if (error) zp_report(job->diags, ZP_Z0808, ZP_NO_SPAN, "%s: %s", place, error);
  return ok && (texts->eod < 0 || on_tokens(user, &texts->eod, 1));
}
