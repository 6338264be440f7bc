/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to messages: headers with the length of the body. After a header that is wrong the next one is looked for. */
#include "lsp_internal.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

enum { MOST_HEADER_BYTES = 4096, BYTES_A_READ = 65536, MOST_SKIPPED = 1 << 30 };
static const char length_header[] = "Content-Length:", type_header[] = "Content-Type:";

static size_t left(const zp_lsp_input *input) { return input->end - input->begin; }

/* Goes to the next header that says a length; without one all is dropped that cannot be its beginning. */
static void find_header(zp_lsp_input *input) {
  size_t n = sizeof length_header - 1;
  while (left(input) >= n && strncasecmp(input->data + input->begin, length_header, n) != 0) input->begin++;
  input->lost = left(input) < n;
}

static zp_lsp_taken lose(zp_lsp_input *input, const char **why, const char *what) {
  if (left(input) > 0) input->begin++;
  input->lost = true;
  *why = what;
  return ZP_LSP_BAD_FRAME;
}

/* A whole number of bytes that can be meant; false: it is none. */
static bool read_length(const char *text, size_t n, size_t *length) {
  while (n > 0 && (*text == ' ' || *text == '\t')) text++, n--;
  while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
  *length = 0;
  for (size_t i = 0; i < n; i++) {
    if (!isdigit((unsigned char)text[i]) || *length > MOST_SKIPPED) return false;
    *length = 10 * *length + (size_t)(text[i] - '0');
  }
  return n > 0 && *length <= MOST_SKIPPED;
}

/* The protocol has one encoding. */
static bool is_utf8(const char *text, size_t n) {
  for (size_t i = 0; i + 8 <= n; i++)
    if (strncasecmp(text + i, "charset=", 8) == 0)
      return (i + 13 <= n && strncasecmp(text + i + 8, "utf-8", 5) == 0) ||
             (i + 12 <= n && strncasecmp(text + i + 8, "utf8", 4) == 0);
  return true;
}

typedef struct header {
  size_t bytes, length;
  bool has_length, is_utf8;
} header;

static bool is_name(const char *text, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!isalnum((unsigned char)text[i]) && text[i] != '-') return false;
  return n > 0;
}

/* Reads lines up to the empty one. NOTHING: it has not come yet. */
static zp_lsp_taken read_header(zp_lsp_input *input, header *h, const char **why) {
  *h = (header){.is_utf8 = true};
  const char *data = input->data + input->begin;
  for (size_t at = 0;;) {
    const char *newline = left(input) > at ? memchr(data + at, '\n', left(input) - at) : NULL;
    if (!newline && left(input) - at > MOST_HEADER_BYTES) return lose(input, why, "the header has no end");
    if (!newline) return ZP_LSP_NOTHING;
    const char *line = data + at, *colon;
    size_t n = (size_t)(newline - line);
    at += n + 1;
    if (n > 0 && line[n - 1] == '\r') n--;
    if (n == 0) {
      h->bytes = at;
      return h->has_length ? ZP_LSP_BODY : lose(input, why, "a header without Content-Length");
    }
    colon = memchr(line, ':', n);
    if (!colon || !is_name(line, (size_t)(colon - line)) || at > MOST_HEADER_BYTES)
      return lose(input, why, "this is no header");
    size_t named = (size_t)(colon - line) + 1;
    if (named == sizeof length_header - 1 && strncasecmp(line, length_header, named) == 0) {
      h->has_length = read_length(colon + 1, n - named, &h->length);
      if (!h->has_length) return lose(input, why, "Content-Length is no number of bytes that can be meant");
    } else if (named == sizeof type_header - 1 && strncasecmp(line, type_header, named) == 0) {
      h->is_utf8 = is_utf8(colon + 1, n - named);
    }
  }
}

static zp_lsp_taken skip_body(zp_lsp_input *input, const header *h, const char **why, const char *what) {
  input->begin += h->bytes;
  input->skip = h->length;
  *why = what;
  return ZP_LSP_BAD_FRAME;
}

zp_lsp_taken zp_lsp_take(zp_lsp_input *input, const char **body, size_t *len, const char **why) {
  size_t dropped = input->skip < left(input) ? input->skip : left(input);
  input->begin += dropped;
  input->skip -= dropped;
  if (input->skip > 0) return ZP_LSP_NOTHING;
  if (input->lost) find_header(input);
  if (input->lost) return ZP_LSP_NOTHING;
  header h;
  zp_lsp_taken taken = read_header(input, &h, why);
  if (taken != ZP_LSP_BODY) return taken;
  if (h.length > ZP_LSP_MOST_BYTES) return skip_body(input, &h, why, "the message is longer than 64 MiB");
  if (!h.is_utf8) return skip_body(input, &h, why, "messages are UTF-8, this one has another charset");
  if (left(input) < h.bytes + h.length) return ZP_LSP_NOTHING;
  *body = input->data + input->begin + h.bytes;
  *len = h.length;
  input->begin += h.bytes + h.length;
  return ZP_LSP_BODY;
}

void zp_lsp_read(zp_lsp_input *input, bool wait) {
  struct pollfd ready = {.fd = input->fd, .events = POLLIN};
  if (input->ended || (!wait && poll(&ready, 1, 0) <= 0)) return;
  if (input->begin > 0) {
    memmove(input->data, input->data + input->begin, left(input));
    input->end -= input->begin;
    input->begin = 0;
  }
  if (input->cap - input->end < BYTES_A_READ) {
    size_t cap = 2 * input->cap + BYTES_A_READ;
    char *data = realloc(input->data, cap);
    input->ended = !data; /* the environment failed: nothing can go on */
    if (!data) return;
    input->data = data;
    input->cap = cap;
  }
  ssize_t n = read(input->fd, input->data + input->end, input->cap - input->end);
  if (n > 0) input->end += (size_t)n;
  input->ended = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

bool zp_lsp_write(int fd, const char *text, size_t len) {
  while (len > 0) {
    ssize_t n = write(fd, text, len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text += n;
    len -= (size_t)n;
  }
  return true;
}
