/* SPDX-License-Identifier: Apache-2.0 */
/* Text to token ids with the tokenizer.json of a Hugging Face model: byte-level BPE (Sennrich et al. 2016 over bytes,
 * as in GPT-2; GPT-NeoX, Llama 3, Qwen), and SentencePiece's BPE and unigram (Kudo and Richardson 2018; LLaMA-2,
 * Mistral, T5) with their normalizers, and WordPiece as in BERT. What the file asks for and this does not do is refused
 * by name: dropout, tokens that swallow spaces, other normalizers. No tokens are put around a text: those that a file's
 * post-processor would add are the caller's to ask for. */
#ifndef ZPLAN_TOKENIZER_H
#define ZPLAN_TOKENIZER_H

#include <zplan/buf.h>
#include <zplan/diag.h>
#include <zplan/vec.h>

typedef struct zp_tokenizer zp_tokenizer;

/* The text of a tokenizer.json; of a vocab.txt, BERT's vocabulary, that of the tokenizer.json that it means, with what
 * a tokenizer_config.json alongside it says of case, accents and ideographs. NULL after reporting (Z0806). */
const char *zp_tokenizer_text(zp_arena *arena, zp_diags *diags, const char *path, size_t *len);

/* `path` and `json` are borrowed until it returns. NULL after reporting what is malformed (Z0806) or not done here
 * (Z0807). Freed with zp_tokenizer_free; the rest is of the arena. */
zp_tokenizer *zp_tokenizer_read(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len);
void zp_tokenizer_free(zp_tokenizer *tokenizer); /* NULL is allowed */

/* The largest id and one: what a model needs at least. */
int64_t zp_tokenizer_vocabulary(const zp_tokenizer *tokenizer);
/* Id of an added token such as <|endoftext|>; -1 when there is none. */
int32_t zp_tokenizer_added(const zp_tokenizer *tokenizer, const char *content);

/* False stops. */
typedef bool zp_on_tokens(void *user, const int32_t *ids, int n);

/* Calls on_tokens for all ids of the text in their order; added tokens are found in it. The text is read in place, and
 * memory does not grow with its length; with normalizers or marks for spaces, and where a unigram model or rules over
 * characters find no place to cut, it grows with the longest piece between added tokens. False when on_tokens said so
 * (*error: NULL), or with *error (arena) when the text is not UTF-8, cannot be split, or has a character that is no
 * token. */
bool zp_tokenize(zp_tokenizer *tokenizer, const char *text, size_t len, zp_on_tokens *on_tokens, void *user,
                 const char **error);

/* Tokens and the bytes [begin, end) of the text that each stands for; these may overlap. */
typedef struct zp_token_places {
  ZP_VEC(int32_t) ids, begin, end;
} zp_token_places;
/* Does it know the places of its tokens? WordPiece does. */
bool zp_tokenizer_has_places(const zp_tokenizer *tokenizer);
/* As zp_tokenize, with places; appends to *out. Requires: it has them. */
bool zp_tokenize_places(zp_tokenizer *tokenizer, const char *text, size_t len, zp_token_places *out,
                        const char **error);

/* ---- decode.c: ids back to text ---- */
typedef struct zp_decoder zp_decoder;
/* Requires: a file that zp_tokenizer_read has read. Arena. */
zp_decoder *zp_decoder_read(zp_arena *arena, const char *json, size_t len);
/* Appends the bytes of a token; of ids that are none nothing. A character may be several tokens. Words of WordPiece
 * have a space between them, whatever stood there. */
void zp_decode(const zp_decoder *decoder, int32_t id, zp_buf *out);

/* Versions of the libraries; NULL: built without, and no tokenizer is read. Arena. */
const char *zp_tokenizer_pcre2(zp_arena *arena);
const char *zp_tokenizer_unistring(zp_arena *arena);

#endif
