/* SPDX-License-Identifier: Apache-2.0 */
/* Tables on pages. Where one is wider than the screen, columns of text are folded between words, then columns that
 * matter least are left out, which is said below it, then long words break where their parts end, and at last every row
 * is a list of titles and values. */
#ifndef ZPLAN_TABLE_H
#define ZPLAN_TABLE_H

#include <zplan/page.h>
#include <zplan/vec.h>

typedef struct zp_column {
  const char *title;
  int least;  /* columns that it takes at least */
  int folds;  /* text that may be folded, but not below so many columns; 0: figures, at the right */
  int spared; /* left out in descending order; 0: never */
} zp_column;

typedef struct zp_table {
  const zp_column *columns; /* borrowed */
  int n;
  ZP_VEC(const char *) cells; /* of one row after another */
} zp_table;

/* Appends a row. Texts are borrowed; NULL or "": nothing. */
void zp_table_add(zp_arena *arena, zp_table *table, const char *const *cells);
/* Appends a text over all columns: "\ntitle" begins a part of the table. Not in tables of one column. */
void zp_table_add_text(zp_arena *arena, zp_table *table, const char *text);
/* Puts the whole table with its titles. */
void zp_page_table(zp_page *page, const zp_table *table);

/* ---- row by row, as they are found: widths are those of titles and `least` ---- */
void zp_page_titles(zp_page *page, const zp_table *table);
void zp_page_last_row(zp_page *page, const zp_table *table);
void zp_page_left_out(zp_page *page, const zp_table *table);

#endif
