/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics as text for people, in the manner of rustc: heading, place, snippets, notes, closing count.
 * One source line with its underlines is drawn by snippet.c. */
#include "diag_internal.h"

#include <zplan/quote.h>

static const char *on(bool color, const char *escape) { return color ? escape : ""; }
#define RED "\033[1;31m"
#define YELLOW "\033[1;33m"
#define BLUE "\033[1;34m"
#define BOLD "\033[1m"
#define PLAIN "\033[0m"

static void put_heading(const zp_diag *diag, zp_buf *out, bool color) {
  bool error = zp_diag_level(diag) == ZP_ERROR;
  zp_buf_printf(out, "%s%s[%s]%s%s: %s%s\n", on(color, error ? RED : YELLOW), error ? "error" : "warning",
                zp_code_name(diag->code), on(color, PLAIN), on(color, BOLD),
                zp_quote_terminal(out->arena, diag->message), on(color, PLAIN));
}

static int line_of(const zp_diags *diags, zp_span span) {
  int line, column;
  zp_diags_locate(diags, span, &line, &column);
  return line;
}

/* Columns that the widest line number of this diagnostic takes. */
static int gutter_width(const zp_diags *diags, const zp_diag *diag) {
  int highest = line_of(diags, diag->primary.span);
  for (int i = 0; i < diag->also.len; i++) {
    int line = line_of(diags, diag->also.data[i].span);
    if (line > highest) highest = line;
  }
  int width = 1;
  while (highest >= 10) {
    highest /= 10;
    width++;
  }
  return width;
}

static void put_arrow(const zp_diags *diags, zp_span span, zp_buf *out, int gutter, bool color) {
  int line, column;
  zp_diags_locate(diags, span, &line, &column);
  zp_buf_printf(out, "%*s%s-->%s %s:%d:%d\n", gutter, "", on(color, BLUE), on(color, PLAIN),
                zp_quote_terminal(out->arena, zp_diags_source_path(diags, span.file)), line, column);
}

/* The places of one diagnostic while they are drawn; `drawn` are done. */
typedef struct picture {
  place *all;
  bool *drawn;
  int count;
} picture;

/* The topmost line of `file` that still has places to draw; 0 when none is left. */
static int next_line(const zp_diags *diags, const picture *p, int file) {
  int first = 0;
  for (int i = 0; i < p->count; i++) {
    if (p->drawn[i] || p->all[i].span.file != file) continue;
    int line = line_of(diags, p->all[i].span);
    if (first == 0 || line < first) first = line;
  }
  return first;
}

/* Draws the places on one line together. */
static void put_line(const zp_diags *diags, picture *p, int file, int line, zp_buf *out, int gutter, bool color) {
  place *marks = ZP_NEW_ARRAY(out->arena, place, p->count);
  int used = 0;
  bool has_primary = false;
  for (int i = 0; i < p->count; i++) {
    if (p->drawn[i] || p->all[i].span.file != file || line_of(diags, p->all[i].span) != line) continue;
    has_primary |= i == 0;
    marks[used++] = p->all[i];
    p->drawn[i] = true;
  }
  zp_snippet_render(diags, out, gutter, color, has_primary, marks, used);
}

/* All lines of one file that have places, from top to bottom. */
static void put_file(const zp_diags *diags, picture *p, int file, zp_buf *out, int gutter, bool color) {
  int before = 0;
  for (int line; (line = next_line(diags, p, file)) != 0; before = line) {
    if (before == 0)
      zp_buf_printf(out, "%*s %s|%s\n", gutter, "", on(color, BLUE), on(color, PLAIN));
    else if (line > before + 1)
      zp_buf_printf(out, "%s...%s\n", on(color, BLUE), on(color, PLAIN));
    put_line(diags, p, file, line, out, gutter, color);
  }
}

/* The file of the primary place, then the others in the order given, each with an arrow to its first place. */
static void put_snippets(const zp_diags *diags, const zp_diag *diag, zp_buf *out, int gutter, bool color) {
  int count = diag->also.len + 1;
  picture p = {ZP_NEW_ARRAY(out->arena, place, count), ZP_NEW_ARRAY(out->arena, bool, count), count};
  p.all[0] = diag->primary;
  for (int i = 1; i < count; i++) p.all[i] = diag->also.data[i - 1];
  for (int i = 0; i < count; i++) {
    if (p.drawn[i] || p.all[i].span.file < 0) continue;
    put_arrow(diags, p.all[i].span, out, gutter, color);
    put_file(diags, &p, p.all[i].span.file, out, gutter, color);
  }
}

/* Continuation lines of a note stand under its first word. */
static void put_footer(const footer *f, zp_buf *out, int gutter, bool color) {
  zp_buf_printf(out, "%*s%s=%s %s%s%s: ", gutter + 1, "", on(color, BLUE), on(color, PLAIN), on(color, BOLD), f->kind,
                on(color, PLAIN));
  for (const char *c = zp_quote_lines(out->arena, f->text); *c; c++) {
    zp_buf_put(out, c, 1);
    if (*c == '\n') zp_buf_printf(out, "%*s", gutter + 9, "");
  }
  zp_buf_puts(out, "\n");
}

void zp_diag_render(const zp_diags *diags, const zp_diag *diag, zp_buf *out, bool color) {
  put_heading(diag, out, color);
  int gutter = gutter_width(diags, diag);
  put_snippets(diags, diag, out, gutter, color);
  for (int i = 0; i < diag->footers.len; i++) put_footer(&diag->footers.data[i], out, gutter, color);
  zp_buf_puts(out, "\n");
}

/* "2 errors and 1 warning in gpt2.dz" */
static void put_closing(const zp_diags *diags, zp_buf *out, bool color) {
  int file = -1, files = 0, warnings = diags->list.len - diags->errors;
  for (int i = 0; i < diags->list.len; i++) {
    int at = diags->list.data[i]->primary.span.file;
    if (at < 0 || zp_diag_level(diags->list.data[i]) != ZP_ERROR || (files && at == file)) continue;
    file = at;
    files++;
  }
  zp_buf_printf(out, "%serror%s: %d error%s", on(color, RED), on(color, PLAIN), diags->errors,
                diags->errors == 1 ? "" : "s");
  if (warnings) zp_buf_printf(out, " and %d warning%s", warnings, warnings == 1 ? "" : "s");
  if (files == 1) zp_buf_printf(out, " in %s", zp_quote_terminal(out->arena, zp_diags_source_path(diags, file)));
  int hidden = diags->list.len - diags->shown;
  if (hidden) zp_buf_printf(out, " (the first %d are shown)", diags->shown);
  zp_buf_puts(out, "\n");
}

void zp_diags_print(zp_diags *diags, FILE *out, bool color) {
  if (diags->printed == diags->list.len) return;
  zp_arena *scratch = zp_arena_new("diagnostics");
  zp_buf text = zp_buf_new(scratch);
  for (; diags->printed < diags->list.len; diags->printed++) {
    if (diags->shown == ZP_SHOWN_DIAGS) continue;
    zp_diag_render(diags, diags->list.data[diags->printed], &text, color);
    diags->shown++;
  }
  if (diags->errors) put_closing(diags, &text, color);
  fwrite(text.data, 1, text.len, out);
  fflush(out);
  zp_arena_free(scratch);
}
