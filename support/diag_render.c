/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics as text for people, in the manner of rustc: heading, place, snippets, notes, closing count.
 * One source line with its underlines is drawn by snippet.c. */
#include "diag_internal.h"

#include <unistd.h>
#include <zplan/page.h>
#include <zplan/quote.h>

#include "page_internal.h"

static const char *on(bool color, const char *escape) { return color ? escape : ""; }
#define RED "\033[1;31m"
#define YELLOW "\033[1;33m"
#define BLUE "\033[1;34m"
#define BOLD "\033[1m"
#define PLAIN "\033[0m"

void zp_diag_words(zp_buf *out, int indent, int column, zp_diag_look look, const char *text) {
  const char *shown = zp_quote_terminal(out->arena, text);
  if (look.columns == 0 || column + zp_columns(shown) <= look.columns) {
    zp_buf_puts(out, shown);
    return;
  }
  zp_page page = zp_page_new(out->arena, (zp_screen){.width = look.columns}, 0);
  page.out = *out;
  zp_page_words(&page, indent, column, text);
  *out = page.out;
}

static void put_heading(const zp_diag *diag, zp_buf *out, zp_diag_look look) {
  bool error = zp_diag_level(diag) == ZP_ERROR;
  const char *begin = zp_format(out->arena, "%s[%s]", error ? "error" : "warning", zp_code_name(diag->code));
  zp_buf_printf(out, "%s%s%s%s: ", on(look.color, error ? RED : YELLOW), begin, on(look.color, PLAIN),
                on(look.color, BOLD));
  zp_diag_words(out, 2, (int)strlen(begin) + 2, look, diag->message);
  zp_buf_printf(out, "%s\n", on(look.color, PLAIN));
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

static void put_arrow(const zp_diags *diags, zp_span span, zp_buf *out, int gutter, zp_diag_look look) {
  int line, column;
  zp_diags_locate(diags, span, &line, &column);
  zp_buf_printf(out, "%*s%s-->%s ", gutter, "", on(look.color, BLUE), on(look.color, PLAIN));
  zp_diag_words(out, gutter + 4, gutter + 4, look,
                zp_format(out->arena, "%s:%d:%d", zp_diags_source_path(diags, span.file), line, column));
  zp_buf_puts(out, "\n");
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
static void put_line(const zp_diags *diags, picture *p, int file, int line, zp_buf *out, int gutter,
                     zp_diag_look look) {
  place *marks = ZP_NEW_ARRAY(out->arena, place, p->count);
  int used = 0;
  bool has_primary = false;
  for (int i = 0; i < p->count; i++) {
    if (p->drawn[i] || p->all[i].span.file != file || line_of(diags, p->all[i].span) != line) continue;
    has_primary |= i == 0;
    marks[used++] = p->all[i];
    p->drawn[i] = true;
  }
  zp_snippet_render(diags, out, gutter, look, has_primary, marks, used);
}

/* All lines of one file that have places, from top to bottom. */
static void put_file(const zp_diags *diags, picture *p, int file, zp_buf *out, int gutter, zp_diag_look look) {
  int before = 0;
  for (int line; (line = next_line(diags, p, file)) != 0; before = line) {
    if (before == 0)
      zp_buf_printf(out, "%*s %s|%s\n", gutter, "", on(look.color, BLUE), on(look.color, PLAIN));
    else if (line > before + 1)
      zp_buf_printf(out, "%s...%s\n", on(look.color, BLUE), on(look.color, PLAIN));
    put_line(diags, p, file, line, out, gutter, look);
  }
}

/* The file of the primary place, then the others in the order given, each with an arrow to its first place. */
static void put_snippets(const zp_diags *diags, const zp_diag *diag, zp_buf *out, int gutter, zp_diag_look look) {
  int count = diag->also.len + 1;
  picture p = {ZP_NEW_ARRAY(out->arena, place, count), ZP_NEW_ARRAY(out->arena, bool, count), count};
  p.all[0] = diag->primary;
  for (int i = 1; i < count; i++) p.all[i] = diag->also.data[i - 1];
  for (int i = 0; i < count; i++) {
    if (p.drawn[i] || p.all[i].span.file < 0) continue;
    put_arrow(diags, p.all[i].span, out, gutter, look);
    put_file(diags, &p, p.all[i].span.file, out, gutter, look);
  }
}

/* Continuation lines of a note stand under its first word. */
static void put_footer(const footer *f, zp_buf *out, int gutter, zp_diag_look look) {
  zp_buf_printf(out, "%*s%s=%s %s%s%s: ", gutter + 1, "", on(look.color, BLUE), on(look.color, PLAIN),
                on(look.color, BOLD), f->kind, on(look.color, PLAIN));
  for (const char *line = f->text; line;) {
    const char *end = strchr(line, '\n');
    zp_diag_words(out, gutter + 9, gutter + 9, look, end ? zp_strndup(out->arena, line, (size_t)(end - line)) : line);
    zp_buf_printf(out, "\n%*s", end ? gutter + 9 : 0, "");
    line = end ? end + 1 : NULL;
  }
}

void zp_diag_render(const zp_diags *diags, const zp_diag *diag, zp_buf *out, zp_diag_look look) {
  put_heading(diag, out, look);
  int gutter = gutter_width(diags, diag);
  put_snippets(diags, diag, out, gutter, look);
  for (int i = 0; i < diag->footers.len; i++) put_footer(&diag->footers.data[i], out, gutter, look);
  zp_buf_puts(out, "\n");
}

/* "2 errors and 1 warning in gpt2.dz" */
static void put_closing(const zp_diags *diags, zp_buf *out, zp_diag_look look) {
  int file = -1, files = 0, warnings = diags->list.len - diags->errors;
  for (int i = 0; i < diags->list.len; i++) {
    int at = diags->list.data[i]->primary.span.file;
    if (at < 0 || zp_diag_level(diags->list.data[i]) != ZP_ERROR || (files && at == file)) continue;
    file = at;
    files++;
  }
  zp_buf text = zp_buf_new(out->arena);
  zp_buf_printf(&text, "%d error%s", diags->errors, diags->errors == 1 ? "" : "s");
  if (warnings) zp_buf_printf(&text, " and %d warning%s", warnings, warnings == 1 ? "" : "s");
  if (files == 1) zp_buf_printf(&text, " in %s", zp_diags_source_path(diags, file));
  int hidden = diags->list.len - diags->shown;
  if (hidden) zp_buf_printf(&text, " (the first %d are shown)", diags->shown);
  zp_buf_printf(out, "%serror%s: ", on(look.color, RED), on(look.color, PLAIN));
  zp_diag_words(out, 2, 7, look, text.data);
  zp_buf_puts(out, "\n");
}

void zp_diags_print(zp_diags *diags, FILE *out, bool color) {
  int fd = fileno(out);
  zp_diag_look look = {color, isatty(fd) ? zp_screen_of(fd, ZP_COLOR_NEVER).width : 0};
  if (diags->printed == diags->list.len) return;
  zp_arena *scratch = zp_arena_new("diagnostics");
  zp_buf text = zp_buf_new(scratch);
  for (; diags->printed < diags->list.len; diags->printed++) {
    if (diags->shown == ZP_SHOWN_DIAGS) continue;
    zp_diag_render(diags, diags->list.data[diags->printed], &text, look);
    diags->shown++;
  }
  if (diags->errors) put_closing(diags, &text, look);
  fwrite(text.data, 1, text.len, out);
  fflush(out);
  zp_arena_free(scratch);
}
