/* What a trainer prints that came out of a file or from a command line: names, paths, messages that hold them. A
 * terminal obeys nothing of it (zplan/shown.h), and JSON reads it back. */
#include <stdarg.h>
#include <string.h>
#include <zplan/shown.h>
#include "checkpoint.h"
#include "internal.h"

enum { LONGEST = 2 * ZPR_PATH };

static void put_shown(FILE *out, const char *text) {
  char shown[ZP_SHOWN_CHARACTER];
  for (size_t left = strlen(text), used; left > 0; text += used, left -= used) {
    used = zp_show_character((const unsigned char *)text, left, shown);
    fputs(shown, out);
  }
}

void zpr_say_line(FILE *out, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zpr_say_list(out, format, args);
  va_end(args);
}

void zpr_say_list(FILE *out, const char *format, va_list args) {
  char text[LONGEST];
  vsnprintf(text, sizeof text, format, args);
  put_shown(out, text);
  fputc('\n', out);
}

/* Bytes of 128 and more stay as they are: a path that is no UTF-8 is read back as itself. */
void zpr_put_json(FILE *out, const char *text) {
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
