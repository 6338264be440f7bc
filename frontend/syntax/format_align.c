/* SPDX-License-Identifier: Apache-2.0 */
/* The last step of zplan fmt: neighbouring lines get their operators, their braces and their comments into one column.
 * The layout has noted where these stand; here blanks are put in before them, and nothing else is changed.
 *
 * Neighbours are lines one below the other: a blank line, a comment of its own or a line of another kind ends a group.
 * Operators end in one column, so that `=` and `<=` agree. */
#include "format.h"

/* Characters, not bytes: strings and comments may hold UTF-8. */
static int width(const char *text, int bytes) {
  int count = 0;
  for (int i = 0; i < bytes; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
  return count;
}

static bool same_kind(const zp_fmt_line *a, const zp_fmt_line *b) {
  return a->mark_end && b->mark_end && a->indent == b->indent && a->braces == b->braces;
}

/* Blanks before the operator of each line, so that all of a group end where the last one does. A group that would leave
 * the line's columns stays as it is. */
static void align_marks(const zp_buf *text, zp_fmt_lines *lines) {
  for (int first = 0, end; first < lines->len; first = end) {
    for (end = first + 1; end < lines->len && same_kind(&lines->data[end - 1], &lines->data[end]);) end++;
    int column = 0, widest = 0;
    for (int i = first; i < end; i++) {
      int at = width(text->data + lines->data[i].begin, lines->data[i].mark_end);
      if (at > column) column = at;
    }
    for (int i = first; i < end; i++) {
      zp_fmt_line *l = &lines->data[i];
      l->mark_blanks = l->mark_end ? column - width(text->data + l->begin, l->mark_end) : 0;
      int columns = width(text->data + l->begin, l->code_end) + l->mark_blanks;
      if (columns > widest) widest = columns;
    }
    for (int i = first; i < end && widest > ZP_FMT_COLUMNS; i++) lines->data[i].mark_blanks = 0;
  }
}

static int code_columns(const zp_buf *text, const zp_fmt_line *l) {
  return width(text->data + l->begin, l->code_end) + l->mark_blanks;
}

/* Comments of neighbouring lines, whatever their bodies. */
static void align_comments(const zp_buf *text, zp_fmt_lines *lines) {
  for (int first = 0, end; first < lines->len; first = end) {
    int column = 0;
    for (end = first; end < lines->len && lines->data[end].has_comment; end++) {
      int columns = code_columns(text, &lines->data[end]);
      if (columns > column) column = columns;
    }
    for (int i = first; i < end; i++) lines->data[i].comment_blanks = column - code_columns(text, &lines->data[i]);
    if (end == first) end++;
  }
}

const char *zp_fmt_align(zp_arena *arena, const zp_buf *text, zp_fmt_lines *lines) {
  align_marks(text, lines);
  align_comments(text, lines);
  zp_buf out = zp_buf_new(arena);
  for (int i = 0; i < lines->len; i++) {
    const zp_fmt_line *l = &lines->data[i];
    size_t end = i + 1 < lines->len ? lines->data[i + 1].begin : text->len;
    size_t mark = l->begin + (size_t)(l->mark_end ? l->mark_at : 0), code = l->begin + (size_t)l->code_end;
    if (mark > code) mark = code;
    zp_buf_put(&out, text->data + l->begin, mark - l->begin);
    zp_buf_printf(&out, "%*s", l->mark_blanks, "");
    zp_buf_put(&out, text->data + mark, code - mark);
    zp_buf_printf(&out, "%*s", l->comment_blanks, "");
    zp_buf_put(&out, text->data + code, end - code);
  }
  return out.data;
}
