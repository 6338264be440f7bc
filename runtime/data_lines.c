/* The lines of a text file as samples: every line that is not empty is one, its bytes are tokens, and each is followed
 * by the next, the last one by the newline. What is longer than the sequence is cut, what is shorter leaves positions
 * without a token. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "state.h"

enum { PADDING = 0, NO_LABEL = -1, NEWLINE = '\n' };

static const unsigned char *end_of_line(const unsigned char *at, const unsigned char *end) {
  const unsigned char *newline = memchr(at, NEWLINE, (size_t)(end - at));
  return newline ? newline : end;
}

/* Fills in the beginnings, if there is room for them; how many there are. */
static int64_t find_lines(const zpr_shard *text, int64_t *begin) {
  const unsigned char *at = text->body, *end = at + text->tokens;
  int64_t n = 0;
  while (at < end) {
    const unsigned char *stop = end_of_line(at, end);
    if (stop > at && begin) begin[n] = at - text->body;
    n += stop > at;
    at = stop < end ? stop + 1 : end;
  }
  return n;
}

void zpr_lines_open(zpr *c, const zpr_stream *stream, zpr_lines *lines) {
  assert(stream->n == 1 && stream->shards[0].width == 1);
  lines->n = find_lines(&stream->shards[0], NULL);
  lines->begin = zpr_alloc(c, (size_t)lines->n + 1, sizeof *lines->begin);
  find_lines(&stream->shards[0], lines->begin);
}

void zpr_lines_close(zpr_lines *lines) {
  free(lines->begin);
  lines->begin = NULL;
}

int64_t zpr_lines_length(const zpr_lines *lines, const zpr_stream *stream, int64_t line, int64_t sequence) {
  assert(line >= 0 && line < lines->n);
  const unsigned char *body = stream->shards[0].body, *at = body + lines->begin[line];
  int64_t length = end_of_line(at, body + stream->tokens) - at;
  return length < sequence ? length : sequence;
}

bool zpr_lines_read(const zpr_lines *lines, const zpr_stream *stream, int64_t line, int64_t sequence,
                    int64_t vocabulary, zpr_sample *sample, zpr_error *error) {
  int64_t begin = lines->begin[line], n = zpr_lines_length(lines, stream, line, sequence);
  bool last = begin + n == stream->tokens; /* the file ends without a newline */
  if (!zpr_stream_read(stream, begin, n, vocabulary, sample->tokens, error) ||
      !zpr_stream_read(stream, begin + 1, n - last, vocabulary, sample->labels, error))
    return false;
  if (last) sample->labels[n - 1] = NEWLINE;
  for (int64_t i = n; i < sequence; i++) {
    sample->tokens[i] = PADDING;
    sample->labels[i] = NO_LABEL;
  }
  sample->length = (int32_t)n;
  return true;
}
