/* SPDX-License-Identifier: Apache-2.0 */
/* Documents as samples: what stands between tokens that end one, if it is not empty. Each token is followed by the
 * next, the last one by the end token, also where the stream ends without it. What is shorter than the sequence leaves
 * positions without a token; what is longer is cut, or goes on in the next sample. The lines of a text are documents of
 * bytes that newlines end, and are cut. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"

enum { PADDING = 0, NO_LABEL = -1 };

static bool add(zpr_documents *documents, int64_t begin, int64_t length) {
  if (documents->n == documents->room) {
    int64_t room = documents->room ? 2 * documents->room : 1024;
    int64_t *begins = realloc(documents->begin, (size_t)room * sizeof *begins);
    if (begins) documents->begin = begins;
    int32_t *lengths = realloc(documents->length, (size_t)room * sizeof *lengths);
    if (lengths) documents->length = lengths;
    if (!begins || !lengths) return false;
    documents->room = room;
  }
  documents->begin[documents->n] = begin;
  documents->length[documents->n++] = (int32_t)length;
  return true;
}

bool zpr_documents_open(const zpr_stream *stream, int32_t end, bool splits, int64_t sequence, zpr_documents *documents,
                        zpr_error *error) {
  bool ok = true;
  *documents = (zpr_documents){.end = end};
  for (int64_t begin = 0; ok && begin < stream->tokens;) {
    int64_t stop = zpr_stream_find(stream, begin, end);
    for (int64_t at = begin; ok && at < stop && (at == begin || splits); at += sequence)
      ok = add(documents, at, stop - at < sequence ? stop - at : sequence);
    begin = stop + 1;
  }
  if (!ok) zpr_error_set(error, "Z0822", "cannot get memory for the places of %lld documents", (long long)documents->n);
  return ok;
}

void zpr_documents_close(zpr_documents *documents) {
  free(documents->begin);
  free(documents->length);
  *documents = (zpr_documents){0};
}

bool zpr_documents_read(const zpr_documents *documents, const zpr_stream *stream, int64_t document, int64_t sequence,
                        int64_t vocabulary, zpr_sample *sample, zpr_error *error) {
  assert(document >= 0 && document < documents->n);
  int64_t begin = documents->begin[document], n = documents->length[document];
  bool last = begin + n == stream->tokens; /* the stream ends without an end token */
  if (!zpr_stream_read(stream, begin, n, vocabulary, sample->tokens, error) ||
      !zpr_stream_read(stream, begin + 1, n - last, vocabulary, sample->labels, error))
    return false;
  if (last) sample->labels[n - 1] = documents->end;
  for (int64_t i = n; i < sequence; i++) {
    sample->tokens[i] = PADDING;
    sample->labels[i] = NO_LABEL;
  }
  sample->length = (int32_t)n;
  return true;
}
