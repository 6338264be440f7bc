/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens continue a word: those of WordPiece whose line in the vocabulary, a token a line, begins with ##. */
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "state.h"

static int64_t lines_of(const char *text, int64_t bytes) {
  int64_t lines = bytes > 0 && text[bytes - 1] != '\n';
  for (int64_t i = 0; i < bytes; i++) lines += text[i] == '\n';
  return lines;
}

/* Flags of the tokens, and how many are set. */
static int64_t flag_lines(const char *text, int64_t bytes, unsigned char *continues) {
  int64_t token = 0, set = 0;
  for (int64_t at = 0; at < bytes; token++) {
    const char *end = memchr(text + at, '\n', (size_t)(bytes - at));
    int64_t length = end ? end - text - at : bytes - at;
    continues[token] = length > 2 && text[at] == '#' && text[at + 1] == '#' && text[at + 2] != '\r';
    set += continues[token];
    at += length + 1;
  }
  return set;
}

static bool read_text(zpr *c, const char *path, const char *text, int64_t bytes, int64_t vocabulary, zpr_words *words,
                      zpr_error *error) {
  words->tokens = lines_of(text, bytes);
  if (words->tokens > vocabulary) {
    zpr_error_set(error, "Z0802", "\"%s\" has %lld lines, one for each token: the model has %lld", path,
                  (long long)words->tokens, (long long)vocabulary);
    return false;
  }
  words->continues = zpr_alloc(c, (size_t)words->tokens, 1);
  if (flag_lines(text, bytes, words->continues) == 0)
    zpr_error_set(error, "Z0802",
                  "no line of \"%s\" begins with ##: words are found by the vocabulary of WordPiece, a token a line",
                  path);
  else
    words->hash = zpr_hash_bytes(words->continues, words->tokens, ZPR_HASH_START);
  return !error->code[0];
}

bool zpr_words_open(zpr *c, const char *path, int64_t vocabulary, zpr_words *words, zpr_error *error) {
  zpr_stream files = {0};
  const zpr_shard *file = zpr_stream_map(&files, path, error);
  bool ok = file && read_text(c, path, file->map, (int64_t)file->map_bytes, vocabulary, words, error);
  zpr_stream_close(&files);
  return ok;
}

void zpr_words_close(zpr_words *words) {
  free(words->continues);
  *words = (zpr_words){0};
}

bool zpr_continues(const zpr_words *words, int32_t token) { return token < words->tokens && words->continues[token]; }
