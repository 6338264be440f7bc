/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer prints that came out of a file or from a command line: names, paths, messages that hold them. A
 * terminal obeys nothing of it (zplan/shown.h), and JSON reads it back. */
#include <assert.h>
#include <stdarg.h>
#include <string.h>
#include <zplan/shown.h>
#include "checkpoint.h"
#include "internal.h"

enum { LONGEST = 2 * ZPR_PATH, MOST_SHOWN = 4 }; /* bytes that one byte becomes */

void zpr_say_line(FILE *out, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zpr_say_list(out, format, args);
  va_end(args);
}

/* In one write: lines of several ranks must not mix. */
void zpr_say_list(FILE *out, const char *format, va_list args) {
  assert(out && format);
  char text[LONGEST], shown[MOST_SHOWN * LONGEST + ZP_SHOWN_CHARACTER];
  size_t n = 0;
  vsnprintf(text, sizeof text, format, args);
  const char *at = text;
  for (size_t left = strlen(text), used; left > 0; at += used, left -= used) {
    used = zp_show_character((const unsigned char *)at, left, shown + n);
    n += strlen(shown + n);
  }
  fprintf(out, "%.*s\n", (int)n, shown);
}

/* Bytes of 128 and more stay as they are: a path that is no UTF-8 is read back as itself. */
void zpr_put_json(FILE *out, const char *text) {
  assert(out && text);
  fputc('"', out);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < 0x20 || c == 0x7f)
      fprintf(out, "\\u%04x", c);
    else
      fputc(c, out);
  }
  fputc('"', out);
}
