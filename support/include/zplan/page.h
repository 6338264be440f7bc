/* SPDX-License-Identifier: Apache-2.0 */
/* A page: text for people, laid out for a screen. No line is wider than the screen, and words break only where one
 * alone is wider. Texts may come from files: a page shows what a terminal would obey (quote.h), so that its text goes
 * out as it is, with zp_page_put.
 *
 * What the cost model estimates has ZP_ESTIMATED before its figure, everywhere; a figure without it is exact. */
#ifndef ZPLAN_PAGE_H
#define ZPLAN_PAGE_H

#include <stdio.h>
#include <zplan/buf.h>
#include <zplan/screen.h>

#define ZP_GLUE "\u00a0" /* a space where no line ends */
#define ZP_ESTIMATED "~"
#define ZP_ESTIMATED_LEGEND "~ estimated by the cost model; figures without it are exact"

typedef struct zp_page {
  zp_screen screen;
  zp_buf out;     /* what a terminal may be given, in lines */
  int text_width; /* of running text: long lines are hard to read on wide screens */
  int label;      /* columns of labels */
} zp_page;

/* label: where the texts of fields begin. */
zp_page zp_page_new(zp_arena *arena, zp_screen screen, int label);
/* One that plain text goes to: so wide, ASCII, no colours. */
zp_screen zp_plain_screen(int width);

typedef enum zp_emphasis { ZP_PLAIN, ZP_STRONG, ZP_DIM } zp_emphasis;

void zp_page_blank(zp_page *page);
/* Words over as many lines as they take. further: columns by which lines after the first are indented. */
void zp_page_text(zp_page *page, zp_emphasis emphasis, int further, const char *text);
/* "label      text": on a narrow screen the label has a line of its own. */
void zp_page_field(zp_page *page, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Lines as they are, but what is wider than the screen is wrapped at words. Further lines begin where the text after
 * the line's first gap of two spaces does, so that lists of labels and texts stay such. */
void zp_page_lines(zp_page *page, const char *lines);

/* A part of a whole, in a bar: its name, its share and what the legend says of its size. */
typedef struct zp_part {
  const char *name, *size;
  double amount;
  char letter; /* in bars of ASCII; '.' is for what is free */
} zp_part;
/* A bar over the text's width that the parts divide, and a legend. Parts of no amount are left out. Parts differ
 * by letter, or by pattern where the screen has more than ASCII; colours come on top. */
void zp_page_bar(zp_page *page, const char *label, const zp_part *parts, int n);

/* Writes the page. */
void zp_page_put(const zp_page *page, FILE *out);

#endif
