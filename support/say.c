/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to people and results for other programs: bytes as they are in a pipe; on a terminal nothing that it would
 * obey, and lines of messages no wider than it is. */
#include <zplan/hosted.h>
#include <zplan/page.h>
#include <zplan/quote.h>

#include <assert.h>
#include <limits.h>
#include <unistd.h>

void zp_say(FILE *out, const char *format, ...) {
  assert(out && format);
  zp_arena *scratch = zp_arena_new("a message");
  va_list args;
  va_start(args, format);
  fputs(zp_quote_lines(scratch, zp_vformat(scratch, format, args)), zp_stream(out));
  va_end(args);
  zp_arena_free(scratch);
}

/* Lines that are narrow enough stay as they are, tabs included. */
static void put_lines(FILE *out, zp_arena *scratch, const char *text) {
  out = zp_stream(out);
  if (!isatty(fileno(out))) {
    fputs(zp_quote_lines(scratch, text), out);
    return;
  }
  zp_page page = zp_page_new(scratch, zp_screen_of(fileno(out), ZP_COLOR_NEVER), 0);
  zp_page_lines(&page, text);
  zp_page_put(&page, out);
}

void zp_say_lines(FILE *out, const char *format, ...) {
  assert(out && format);
  zp_arena *scratch = zp_arena_new("lines");
  va_list args;
  va_start(args, format);
  put_lines(out, scratch, zp_vformat(scratch, format, args));
  va_end(args);
  zp_arena_free(scratch);
}

void zp_say_line(FILE *out, const char *format, ...) {
  assert(out && format);
  zp_arena *scratch = zp_arena_new("a line");
  va_list args;
  va_start(args, format);
  const char *line = zp_quote_terminal(scratch, zp_vformat(scratch, format, args));
  va_end(args);
  put_lines(out, scratch, zp_format(scratch, "%s\n", line));
  zp_arena_free(scratch);
}

bool zp_hand_on(FILE *out, const char *text, size_t len) {
  assert(out && (text || len == 0));
  out = zp_stream(out);
  if (!isatty(fileno(out))) return fwrite(text, 1, len, out) == len;
  zp_say(out, "%.*s", (int)(len < INT_MAX ? len : INT_MAX), text);
  return !ferror(out);
}
