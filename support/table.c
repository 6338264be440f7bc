/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: which columns fit, and rows of them. */
#include "page_internal.h"

#include <assert.h>
#include <string.h>
#include <zplan/quote.h>
#include <zplan/table.h>

enum { MOST_COLUMNS = 24, GAP = 2 };

/* How the table is shown: columns of each; 0: left out. */
typedef struct layout {
  int width[MOST_COLUMNS];
  bool as_lists;
} layout;

void zp_table_add(zp_arena *arena, zp_table *table, const char *const *cells) {
  for (int c = 0; c < table->n; c++) {
    const char *cell = cells[c] ? cells[c] : "";
    zp_push(arena, &table->cells, cell);
  }
}

static int total(const layout *l, int n) {
  int sum = -GAP;
  for (int c = 0; c < n; c++) sum += l->width[c] ? l->width[c] + GAP : 0;
  return sum;
}

static int at_least(int width, int other) { return width > other ? width : other; }

/* The column to leave out next; -1: none may be. */
static int spare(const layout *l, const zp_table *t) {
  int most = -1;
  for (int c = 0; c < t->n; c++)
    if (l->width[c] && t->columns[c].spared && (most < 0 || t->columns[c].spared > t->columns[most].spared)) most = c;
  return most;
}

/* Folds texts as far as the table needs it, the last ones first. */
static void fold(layout *l, const zp_table *t, int columns) {
  for (int c = t->n - 1; c >= 0; c--) {
    int over = total(l, t->n) - columns, most = l->width[c] - t->columns[c].folds;
    if (over <= 0 || !t->columns[c].folds || !l->width[c] || most <= 0) continue;
    l->width[c] -= over < most ? over : most;
  }
}

/* rows: those whose cells count. */
static layout lay_out(const zp_page *page, const zp_table *t, int rows) {
  assert(t->n <= MOST_COLUMNS);
  layout l = {0};
  int full[MOST_COLUMNS] = {0}, columns = page->screen.width;
  for (int c = 0; c < t->n; c++) {
    full[c] = at_least(zp_columns(t->columns[c].title), at_least(t->columns[c].least, 1));
    for (int r = 0; r < rows; r++) full[c] = at_least(full[c], zp_columns(t->cells.data[r * t->n + c]));
    l.width[c] = full[c];
  }
  fold(&l, t, columns);
  for (int out; total(&l, t->n) > columns && (out = spare(&l, t)) >= 0;) {
    l.width[out] = 0;
    for (int c = 0; c < t->n; c++)
      if (l.width[c]) l.width[c] = full[c];
    fold(&l, t, columns);
  }
  l.as_lists = total(&l, t->n) > columns;
  return l;
}

/* ---- rows ---- */

/* What of a text goes on the line; *rest: what goes on the next ones. */
static const char *cut(zp_arena *arena, const char *text, int columns, const char **rest) {
  if (zp_columns(text) <= columns) return *rest = "", text;
  size_t most = zp_fitting_bytes(text, columns), end = most;
  while (end > 0 && text[end] != ' ') end--;
  if (end == 0) end = most ? most : 1;
  *rest = text + end + strspn(text + end, " ");
  while (end > 0 && text[end - 1] == ' ') end--;
  return zp_strndup(arena, text, end);
}

static void put_cell(zp_buf *out, const char *text, int width, bool right, bool last) {
  int blank = width - zp_columns(text);
  if (blank < 0) blank = 0;
  if (right) zp_buf_printf(out, "%*s", blank, "");
  zp_buf_puts(out, text);
  if (!right && !last) zp_buf_printf(out, "%*s", blank, "");
}

static void put_row(zp_page *page, const zp_table *t, const layout *l, const char *const *cells) {
  zp_arena *arena = page->out.arena;
  const char *left[MOST_COLUMNS];
  bool more = true;
  int last = t->n - 1;
  while (last > 0 && !l->width[last]) last--;
  for (int c = 0; c < t->n; c++) left[c] = zp_quote_terminal(arena, cells[c]);
  while (more) {
    zp_buf line = zp_buf_new(arena);
    more = false;
    for (int c = 0; c < t->n; c++) {
      if (!l->width[c]) continue;
      const char *part = t->columns[c].folds ? cut(arena, left[c], l->width[c], &left[c]) : left[c];
      if (!t->columns[c].folds) left[c] = "";
      put_cell(&line, part, l->width[c], !t->columns[c].folds, c == last);
      if (c < last) zp_buf_printf(&line, "%*s", GAP, "");
      more |= left[c][0] != '\0';
    }
    while (line.len > 0 && line.data[line.len - 1] == ' ') line.data[--line.len] = '\0';
    zp_buf_puts(&page->out, line.data);
    zp_buf_puts(&page->out, "\n");
  }
}

/* "title value" a line: nothing is left out. */
static void put_list(zp_page *page, const zp_table *t, const char *const *cells) {
  for (int c = 0; c < t->n; c++) {
    const char *text = zp_format(page->out.arena, "%s%s %s", c ? "  " : "", t->columns[c].title, cells[c]);
    if (!*cells[c]) continue;
    zp_page_begin(page, c ? ZP_PLAIN : ZP_STRONG);
    if (c) zp_buf_puts(&page->out, "  ");
    zp_page_words(page, 4, c ? 2 : 0, text);
    zp_page_end(page, c ? ZP_PLAIN : ZP_STRONG);
    zp_page_blank(page);
  }
}

static void put_titles(zp_page *page, const zp_table *t, const layout *l) {
  const char *titles[MOST_COLUMNS];
  if (l->as_lists) return;
  for (int c = 0; c < t->n; c++) titles[c] = t->columns[c].title;
  put_row(page, t, l, titles);
}

static void put_one(zp_page *page, const zp_table *t, const layout *l, int row) {
  const char *const *cells = t->cells.data + (size_t)row * (size_t)t->n;
  if (l->as_lists)
    put_list(page, t, cells);
  else
    put_row(page, t, l, cells);
}

static void put_left_out(zp_page *page, const zp_table *t, const layout *l) {
  zp_buf names = zp_buf_new(page->out.arena);
  if (l->as_lists) return;
  for (int c = 0; c < t->n; c++)
    if (!l->width[c]) zp_buf_printf(&names, "%s%s", names.len ? ", " : "", t->columns[c].title);
  if (names.len)
    zp_page_text(page, ZP_DIM, 2,
                 zp_format(page->out.arena, "not shown in %d columns: %s", page->screen.width, names.data));
}

void zp_page_table(zp_page *page, const zp_table *t) {
  int rows = t->cells.len / t->n;
  layout l = lay_out(page, t, rows);
  put_titles(page, t, &l);
  for (int r = 0; r < rows; r++) put_one(page, t, &l, r);
  put_left_out(page, t, &l);
}

void zp_page_titles(zp_page *page, const zp_table *t) {
  layout l = lay_out(page, t, 0);
  put_titles(page, t, &l);
}

void zp_page_last_row(zp_page *page, const zp_table *t) {
  assert(t->cells.len >= t->n);
  layout l = lay_out(page, t, 0);
  put_one(page, t, &l, t->cells.len / t->n - 1);
}

void zp_page_left_out(zp_page *page, const zp_table *t) {
  layout l = lay_out(page, t, 0);
  put_left_out(page, t, &l);
}
