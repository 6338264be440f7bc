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

/* ---- texts between rows ---- */

static const char between[] = ""; /* the second cell of a text: by its address */

void zp_table_add_text(zp_arena *arena, zp_table *table, const char *text) {
  assert(table->n > 1);
  zp_push(arena, &table->cells, text);
  for (int c = 1; c < table->n; c++) zp_push(arena, &table->cells, between);
}

static bool is_text(const zp_table *t, int row) { return t->n > 1 && t->cells.data[row * t->n + 1] == between; }

/* ---- widths ---- */

/* Columns of the widest word in a text. pieces: words may break after the signs that part their parts. */
static int widest_word(zp_arena *arena, const char *text, bool pieces) {
  const char *ends = pieces ? " " ZP_WORD_PARTS : " ";
  int widest = 0;
  for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
    size_t len = strcspn(at, ends);
    if (at[len] && at[len] != ' ') len++;
    widest = at_least(widest, zp_columns(zp_strndup(arena, at, len)));
    at += len;
  }
  return widest;
}

/* The column to leave out next; -1: none may be. */
static int spare(const layout *l, const zp_table *t) {
  int most = -1;
  for (int c = 0; c < t->n; c++)
    if (l->width[c] && t->columns[c].spared && (most < 0 || t->columns[c].spared > t->columns[most].spared)) most = c;
  return most;
}

/* Folds texts as far as the table needs it, the widest first. */
static void fold(layout *l, const int *least, int n, int columns) {
  while (total(l, n) > columns) {
    int widest = -1;
    for (int c = 0; c < n; c++)
      if (l->width[c] > least[c] && (widest < 0 || l->width[c] >= l->width[widest])) widest = c;
    if (widest < 0) return;
    l->width[widest]--;
  }
}

/* Folds, and leaves out what may be until the rest fits. */
static layout fit(const zp_table *t, const int *full, const int *least, int columns) {
  layout l = {0};
  memcpy(l.width, full, sizeof l.width);
  fold(&l, least, t->n, columns);
  for (int out; total(&l, t->n) > columns && (out = spare(&l, t)) >= 0;) {
    l.width[out] = 0;
    for (int c = 0; c < t->n; c++)
      if (l.width[c]) l.width[c] = full[c];
    fold(&l, least, t->n, columns);
  }
  l.as_lists = total(&l, t->n) > columns;
  return l;
}

/* Columns of every column as wide as its texts, and folded as far as it goes. rows: those whose cells count. */
static void measure(zp_arena *arena, const zp_table *t, int rows, bool pieces, int *full, int *least) {
  for (int c = 0; c < t->n; c++) {
    int title = zp_columns(t->columns[c].title), folds = t->columns[c].folds;
    full[c] = at_least(title, at_least(t->columns[c].least, 1));
    least[c] = at_least(folds, widest_word(arena, t->columns[c].title, pieces));
    for (int r = 0; r < rows; r++) {
      const char *cell = t->cells.data[r * t->n + c];
      if (is_text(t, r)) continue;
      full[c] = at_least(full[c], zp_columns(cell));
      if (folds) least[c] = at_least(least[c], widest_word(arena, cell, pieces));
    }
    if (!folds) least[c] = full[c];
  }
}

/* Words stay whole where the table fits with them. */
static layout lay_out(const zp_page *page, const zp_table *t, int rows) {
  assert(t->n <= MOST_COLUMNS);
  int full[MOST_COLUMNS] = {0}, least[MOST_COLUMNS] = {0};
  measure(page->out.arena, t, rows, false, full, least);
  layout l = fit(t, full, least, page->screen.width);
  if (!l.as_lists) return l;
  measure(page->out.arena, t, rows, true, full, least);
  return fit(t, full, least, page->screen.width);
}

/* ---- rows ---- */

/* What of a text goes on the line; *rest: what goes on the next ones. */
static const char *cut(zp_arena *arena, const char *text, int columns, const char **rest) {
  if (zp_columns(text) <= columns) return *rest = "", text;
  size_t lead = strspn(text, " "), end = zp_fitting_bytes(text, columns);
  while (end > lead && text[end] != ' ') end--;
  if (end == lead) end += zp_page_piece(text + lead, strcspn(text + lead, " "), at_least(columns - (int)lead, 1));
  *rest = text + end + strspn(text + end, " ");
  while (end > 0 && text[end - 1] == ' ') end--;
  return zp_strndup(arena, text, end);
}

static void put_cell(zp_buf *out, const char *text, int width, bool right, bool last) {
  int blank = width - zp_columns(text);
  if (blank < 0) blank = 0;
  if (right) zp_buf_printf(out, "%*s", blank, "");
  zp_page_word(out, text, strlen(text));
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

/* "title: value" a line: nothing is left out. */
static void put_list(zp_page *page, const zp_table *t, const char *const *cells) {
  for (int c = 0; c < t->n; c++) {
    const char *title = t->columns[c].title,
               *text = *title ? zp_format(page->out.arena, "%s: %s", title, cells[c]) : cells[c];
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

static void put_text(zp_page *page, const char *text) {
  bool heads = *text == '\n';
  if (heads) zp_page_blank(page);
  zp_page_text(page, heads ? ZP_STRONG : ZP_PLAIN, heads ? 2 : 4, text + heads);
}

static void put_one(zp_page *page, const zp_table *t, const layout *l, int row) {
  const char *const *cells = t->cells.data + (size_t)row * (size_t)t->n;
  if (is_text(t, row))
    put_text(page, cells[0]);
  else if (l->as_lists)
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
