/* SPDX-License-Identifier: Apache-2.0 */
/* In place of all files of .. where PCRE2 or libunistring was not found: no tokenizer can be read, and it says so.
 * Bytes are tokens without one. */
#include <zplan/tokenizer.h>

#include <stdlib.h>

const char *zp_tokenizer_text(zp_arena *arena, zp_diags *diags, const char *path, size_t *len) {
  (void)arena, (void)len;
  zp_diag *d = zp_report(diags, ZP_Z0709, ZP_NO_SPAN,
                         "cannot read the tokenizer %s: this zplan was built without PCRE2 or libunistring", path);
  zp_diag_help(d, "install libpcre2-dev and libunistring-dev, or both in a folder of -DCMAKE_PREFIX_PATH, and build "
                  "again; without --tokenizer every byte is a token");
  return NULL;
}

zp_tokenizer *zp_tokenizer_read(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len) {
  (void)json;
  (void)zp_tokenizer_text(arena, diags, path, &len);
  return NULL;
}

void zp_tokenizer_free(zp_tokenizer *tokenizer) {
  if (tokenizer) abort(); /* here and below: there is none */
}

int64_t zp_tokenizer_vocabulary(const zp_tokenizer *tokenizer) {
  (void)tokenizer;
  abort();
}

int32_t zp_tokenizer_added(const zp_tokenizer *tokenizer, const char *content) {
  (void)tokenizer, (void)content;
  abort();
}

bool zp_tokenize(zp_tokenizer *tokenizer, const char *text, size_t len, zp_on_tokens *on_tokens, void *user,
                 const char **error) {
  (void)tokenizer, (void)text, (void)len, (void)on_tokens, (void)user, (void)error;
  abort();
}

bool zp_tokenizer_has_places(const zp_tokenizer *tokenizer) {
  (void)tokenizer;
  abort();
}

bool zp_tokenize_places(zp_tokenizer *tokenizer, const char *text, size_t len, zp_token_places *out,
                        const char **error) {
  (void)tokenizer, (void)text, (void)len, (void)out, (void)error;
  abort();
}

zp_decoder *zp_decoder_read(zp_arena *arena, const char *json, size_t len) {
  (void)arena, (void)json, (void)len;
  abort();
}

void zp_decode(const zp_decoder *decoder, int32_t id, zp_buf *out) {
  (void)decoder, (void)id, (void)out;
  abort();
}

const char *zp_tokenizer_pcre2(zp_arena *arena) {
  (void)arena;
  return NULL;
}
const char *zp_tokenizer_unistring(zp_arena *arena) {
  (void)arena;
  return NULL;
}
