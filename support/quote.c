/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as words of other languages. */
#include <zplan/buf.h>
#include <zplan/quote.h>
#include <zplan/shown.h>

#include <assert.h>

typedef const unsigned char *bytes;

/* Three digits, so that a digit after belongs to the text. */
static void put_octal(zp_buf *out, unsigned char byte) { zp_buf_printf(out, "\\%03o", byte); }

const char *zp_quote_c(zp_arena *arena, const char *text) {
  if (!text) return "NULL";
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "\"");
  for (bytes c = (bytes)text; *c; c++) {
    if (*c == '"' || *c == '\\' || *c == '?')
      zp_buf_printf(&out, "\\%c", *c);
    else if (*c < 0x20 || *c >= 0x7f)
      put_octal(&out, *c);
    else
      zp_buf_put(&out, (const char *)c, 1);
  }
  zp_buf_puts(&out, "\"");
  return out.data;
}

/* A backslash or `??/` in front of a line's end would join the next line to a comment, and breaking lines (wrap.c) puts
 * ends where there were none. */
const char *zp_quote_c_comment(zp_arena *arena, const char *text) {
  const char *shown = zp_quote_terminal(arena, text);
  zp_buf out = zp_buf_new(arena);
  for (const char *c = shown; *c; c++) {
    bool ends = c[0] == '*' && c[1] == '/', begins = c[0] == '/' && c[1] == '*',
         joins = c[0] == '\\' || (c[0] == '?' && c[1] == '?');
    zp_buf_put(&out, joins ? "_" : c, 1);
    if (ends || begins) zp_buf_puts(&out, " ");
  }
  return out.data ? out.data : "";
}

/* `#` begins a comment, `$` a variable, and blanks in front are dropped. Backslashes count in front of a `#` and at the
 * end of a line alone: there an empty variable stands after them. */
const char *zp_quote_make(zp_arena *arena, const char *text) {
  assert(text);
  zp_buf out = zp_buf_new(arena);
  if (strchr(text, '\n')) return NULL;
  if (*text && strchr(" \t\v\f\r", *text)) zp_buf_puts(&out, "$()");
  size_t backslashes = 0; /* in front of here */
  for (const char *c = text; *c; c++) {
    if (*c == '#')
      for (size_t i = 0; i <= backslashes; i++) zp_buf_puts(&out, "\\");
    zp_buf_puts(&out, *c == '$' ? "$" : "");
    zp_buf_put(&out, c, 1);
    backslashes = *c == '\\' ? backslashes + 1 : 0;
  }
  size_t n = strlen(text);
  if (n > 0 && strchr("\\ \t\r", text[n - 1])) zp_buf_puts(&out, "$()");
  return out.data ? out.data : "";
}

static bool has_control(const char *text) {
  size_t left = strlen(text);
  for (bytes c = (bytes)text; left > 0;) {
    size_t len = zp_character_length(c, left);
    if (len == 0 || zp_is_control(zp_character_number(c, len))) return true;
    c += len;
    left -= len;
  }
  return false;
}

/* $'...' has escapes, '...' none at all: there a quote ends it, stands escaped, and begins it again. */
const char *zp_quote_shell(zp_arena *arena, const char *text) {
  assert(text);
  static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=@%+-";
  if (*text && strspn(text, safe) == strlen(text)) return text;
  bool escapes = has_control(text);
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, escapes ? "$'" : "'");
  for (bytes c = (bytes)text; *c; c++) {
    if (escapes && (*c < 0x20 || *c >= 0x7f))
      put_octal(&out, *c);
    else if (escapes && (*c == '\'' || *c == '\\'))
      zp_buf_printf(&out, "\\%c", *c);
    else if (*c == '\'')
      zp_buf_puts(&out, "'\\''");
    else
      zp_buf_put(&out, (const char *)c, 1);
  }
  zp_buf_puts(&out, "'");
  return out.data;
}

static const char *shown(zp_arena *arena, const char *text, const char *but) {
  assert(text);
  zp_buf out = zp_buf_new(arena);
  char character[ZP_SHOWN_CHARACTER];
  size_t left = strlen(text);
  for (bytes c = (bytes)text; left > 0;) {
    size_t used = 0;
    while (used < left && c[used] >= 0x20 && c[used] < 0x7f) used++; /* printable as it is */
    if (used > 0)
      zp_buf_put(&out, (const char *)c, used);
    else if (used = 1, strchr(but, *c))
      zp_buf_put(&out, (const char *)c, 1);
    else
      used = zp_show_character(c, left, character), zp_buf_puts(&out, character);
    c += used;
    left -= used;
  }
  return out.data ? out.data : "";
}

const char *zp_quote_terminal(zp_arena *arena, const char *text) { return shown(arena, text, ""); }
const char *zp_quote_lines(zp_arena *arena, const char *text) { return shown(arena, text, "\n\t"); }

const char *zp_quote_html(zp_arena *arena, const char *text) {
  zp_buf out = zp_buf_new(arena);
  for (const char *c = zp_quote_lines(arena, text); *c; c++) {
    switch (*c) {
    case '&': zp_buf_puts(&out, "&amp;"); break;
    case '<': zp_buf_puts(&out, "&lt;"); break;
    case '>': zp_buf_puts(&out, "&gt;"); break;
    case '"': zp_buf_puts(&out, "&quot;"); break;
    case '\'': zp_buf_puts(&out, "&#39;"); break;
    default: zp_buf_put(&out, c, 1);
    }
  }
  return out.data ? out.data : "";
}
