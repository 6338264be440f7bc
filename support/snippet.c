/* SPDX-License-Identifier: Apache-2.0 */
/* One source line with its underlines and labels:
 *
 *   26 |   return a + mlp(x)
 *      |          -   ^^^^^^ [B, S, 3072]
 *      |          |
 *      |          [B, S, 768] */
#include "diag_internal.h"

#include <zplan/quote.h>
#include <zplan/screen.h>
#include <zplan/shown.h>

enum {
  TAB_COLUMNS = 4,
  MARGIN_COLUMNS = 3 /* " | " */,
  LONG_LINE_BYTES = 240,
  CONTEXT_BYTES = 80,
  CUT_COLUMNS = 3 /* "..." */
};

/* A mark in display columns; end is past the last underlined column, at least begin + 1. */
typedef struct mark {
  int begin, end;
  const char *label;
  bool primary;
} mark;

/* The part of a line that is shown: bytes [from, to) of the file, as display text, and each byte's column. */
typedef struct view {
  uint32_t from, to;
  zp_buf text;
  int *column; /* to - from + 1 entries */
} view;

/* Columns that a line takes: as make_view puts it. */
static int columns_of(const char *line, size_t len) {
  int columns = 0;
  for (size_t i = 0; i < len;) {
    size_t size = zp_character_length((const unsigned char *)line + i, len - i);
    columns += line[i] == '\t' ? TAB_COLUMNS : 1;
    i += size ? size : 1;
  }
  return columns;
}

/* A line that is very long, or wider than the screen's rest, is cut around the first mark. columns: 0 for any. */
static void choose_window(view *v, const char *line, uint32_t offset, size_t len, uint32_t first_mark, int columns) {
  v->from = offset;
  v->to = offset + (uint32_t)len;
  bool wide = columns > 0 && columns_of(line, len) > columns;
  if (len <= LONG_LINE_BYTES && !wide) return;
  uint32_t before = wide && columns / 3 < CONTEXT_BYTES ? (uint32_t)columns / 3 : CONTEXT_BYTES;
  if (first_mark > offset + before) v->from = first_mark - before;
  while (v->from > offset && ((unsigned char)line[v->from - offset] & 0xc0) == 0x80) v->from--; /* whole characters */
  if (v->to - v->from > LONG_LINE_BYTES) v->to = v->from + LONG_LINE_BYTES;
  while (wide && columns_of(line + (v->from - offset), v->to - v->from) > columns - 2 * CUT_COLUMNS) v->to--;
}

/* Tabs become blanks, controls (shown.h) and malformed UTF-8 a '?', so that a terminal shows what the columns count. */
static view make_view(zp_arena *arena, const char *line, uint32_t offset, size_t len, uint32_t first_mark,
                      int columns) {
  view v;
  choose_window(&v, line, offset, len, first_mark, columns);
  v.text = zp_buf_new(arena);
  v.column = ZP_NEW_ARRAY(arena, int, v.to - v.from + 1);
  int column = 0;
  if (v.from > offset) column = (zp_buf_puts(&v.text, "..."), CUT_COLUMNS);
  size_t count = v.to - v.from;
  const unsigned char *bytes = (const unsigned char *)line + (v.from - offset);
  for (size_t i = 0; i < count;) {
    size_t size = zp_character_length(bytes + i, count - i);
    for (size_t k = 0; k < (size ? size : 1); k++) v.column[i + k] = column;
    if (bytes[i] == '\t')
      zp_buf_printf(&v.text, "%*s", TAB_COLUMNS, "");
    else if (size == 0 || zp_is_control(zp_character_number(bytes + i, size)))
      zp_buf_puts(&v.text, "?");
    else
      zp_buf_put(&v.text, (const char *)bytes + i, size);
    column += bytes[i] == '\t' ? TAB_COLUMNS : 1;
    i += size ? size : 1;
  }
  v.column[count] = column;
  if (v.to < offset + len) zp_buf_puts(&v.text, "...");
  return v;
}

static int column_of(const view *v, uint32_t byte) {
  if (byte < v->from) return 0;
  return v->column[(byte < v->to ? byte : v->to) - v->from];
}

/* Left to right; the primary mark last among equals, so that its label stands alongside the carets. */
static void sort_marks(mark *marks, int count) {
  for (int i = 1; i < count; i++) {
    mark moving = marks[i];
    int j = i;
    for (; j > 0; j--) {
      bool after = marks[j - 1].begin > moving.begin ||
                   (marks[j - 1].begin == moving.begin && marks[j - 1].primary && !moving.primary);
      if (!after) break;
      marks[j] = marks[j - 1];
    }
    marks[j] = moving;
  }
}

static void put_gutter(zp_buf *out, int gutter, bool color) {
  zp_buf_printf(out, "%*s %s|%s", gutter, "", color ? "\033[1;34m" : "", color ? "\033[0m" : "");
}

static const char *paint(bool color, bool primary) { return !color ? "" : primary ? "\033[1;31m" : "\033[1;34m"; }

/* A label after what stands on a line up to `column` of the source, or on lines of its own where it does not fit. */
static void put_label(zp_buf *out, int gutter, zp_diag_look look, int column, const char *gap, const char *label) {
  column += (int)strlen(gap);
  int margin = gutter + MARGIN_COLUMNS, columns = zp_columns(label);
  if (look.columns == 0 || margin + column + columns <= look.columns) {
    zp_buf_printf(out, "%s%s", gap, label);
    return;
  }
  int room = look.columns - columns; /* as far to the right as it fits */
  int indent = room > margin ? room : margin;
  zp_buf_printf(out, "\n%*s", indent, "");
  zp_diag_words(out, margin, indent, look, label);
}

/* The line of carets and dashes, with the last mark's label at its end. */
static void put_underlines(zp_buf *out, int gutter, zp_diag_look look, const mark *marks, int count) {
  int width = 0;
  for (int i = 0; i < count; i++)
    if (marks[i].end > width) width = marks[i].end;
  char *row = zp_alloc(out->arena, (size_t)width + 1);
  memset(row, ' ', (size_t)width);
  for (int primary = 0; primary < 2; primary++)
    for (int i = 0; i < count; i++)
      if (marks[i].primary == (bool)primary)
        memset(row + marks[i].begin, primary ? '^' : '-', (size_t)(marks[i].end - marks[i].begin));
  const mark *last = &marks[count - 1];
  put_gutter(out, gutter, look.color);
  zp_buf_printf(out, " %s%s", paint(look.color, last->primary), row);
  if (last->label) put_label(out, gutter, look, width, " ", last->label);
  zp_buf_printf(out, "%s\n", look.color ? "\033[0m" : "");
}

/* Blanks and bars down to `until` columns: one bar for each labelled mark among the first `count`. Returns the
 * column. */
static int put_bars(zp_buf *out, const mark *marks, int count) {
  int column = 0;
  for (int i = 0; i < count; i++) {
    if (!marks[i].label || marks[i].begin < column) continue;
    zp_buf_printf(out, "%*s|", marks[i].begin - column, "");
    column = marks[i].begin + 1;
  }
  return column;
}

/* Labels of all marks but the last, from right to left. */
static void put_hanging_labels(zp_buf *out, int gutter, zp_diag_look look, const mark *marks, int count) {
  bool first = true;
  for (int i = count - 2; i >= 0; i--) {
    if (!marks[i].label) continue;
    if (first) {
      put_gutter(out, gutter, look.color);
      zp_buf_puts(out, " ");
      put_bars(out, marks, i + 1);
      zp_buf_puts(out, "\n");
    }
    first = false;
    put_gutter(out, gutter, look.color);
    zp_buf_puts(out, " ");
    int left = i; /* a mark that starts in the same column has no bar of its own here */
    while (left > 0 && marks[left - 1].begin == marks[i].begin) left--;
    int column = put_bars(out, marks, left);
    zp_buf_printf(out, "%*s%s", marks[i].begin - column, "", paint(look.color, marks[i].primary));
    put_label(out, gutter, look, marks[i].begin, "", marks[i].label);
    zp_buf_printf(out, "%s\n", look.color ? "\033[0m" : "");
  }
}

void zp_snippet_render(const zp_diags *diags, zp_buf *out, int gutter, zp_diag_look look, bool has_primary,
                       const place *places, int count) {
  int line, column;
  zp_diags_locate(diags, places[0].span, &line, &column);
  size_t len;
  uint32_t offset;
  const char *text = zp_diags_line(diags, places[0].span.file, line, &len, &offset);
  view v = make_view(out->arena, text, offset, len, places[0].span.begin,
                     look.columns ? look.columns - gutter - MARGIN_COLUMNS : 0);
  mark *marks = ZP_NEW_ARRAY(out->arena, mark, count);
  for (int i = 0; i < count; i++) {
    int begin = column_of(&v, places[i].span.begin), end = column_of(&v, places[i].span.end);
    const char *label = places[i].label ? zp_quote_terminal(out->arena, places[i].label) : NULL;
    marks[i] = (mark){begin, end > begin ? end : begin + 1, label, has_primary && i == 0};
  }
  sort_marks(marks, count);
  zp_buf_printf(out, "%s%*d |%s %s\n", look.color ? "\033[1;34m" : "", gutter, line, look.color ? "\033[0m" : "",
                v.text.data);
  put_underlines(out, gutter, look, marks, count);
  put_hanging_labels(out, gutter, look, marks, count);
}
