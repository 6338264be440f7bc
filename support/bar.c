/* SPDX-License-Identifier: Apache-2.0 */
/* Bars: a whole and its parts, to scale. */
#include "page_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Colours by Okabe and Ito, which colour-blind people can tell apart, nearest of the terminal's 256; patterns differ in
 * brightness from their neighbours. Both go round where there are more parts. */
static const int colors[] = {25, 214, 75, 166, 36, 175, 227};
static const char *const patterns[] = {"█", "▒", "▓", "░", "▚", "▄", "▀"};
static const char free_letter = '.', *const free_pattern = "·";
enum { N_COLORS = sizeof colors / sizeof *colors, N_PATTERNS = sizeof patterns / sizeof *patterns };

static void put_cells(zp_page *page, const zp_part *part, int index, int cells) {
  bool is_free = part->letter == free_letter;
  if (page->screen.color && !is_free) zp_buf_printf(&page->out, "\x1b[38;5;%dm", colors[index % N_COLORS]);
  for (int i = 0; i < cells; i++)
    if (page->screen.utf8)
      zp_buf_puts(&page->out, is_free ? free_pattern : patterns[index % N_PATTERNS]);
    else
      zp_buf_put(&page->out, &part->letter, 1);
  if (page->screen.color && !is_free) zp_buf_puts(&page->out, "\x1b[0m");
}

/* Ends of parts are rounded, so that errors do not add up. */
static void put_bar(zp_page *page, const zp_part *parts, int n, int width) {
  double whole = 0, before = 0;
  for (int i = 0; i < n; i++) whole += parts[i].amount;
  for (int i = 0, done = 0; i < n && whole > 0; i++) {
    before += parts[i].amount;
    int end = (int)lround(before / whole * width);
    put_cells(page, &parts[i], i, end - done);
    done = end;
  }
}

/* "W weights 2.73 GB": never divided but where it is wider than the screen. */
static int put_entry(zp_page *page, const zp_part *part, int index, int column) {
  zp_arena *arena = page->out.arena;
  const char *words = zp_format(arena, "%s %s", part->name, part->size);
  int columns = 2 + zp_columns(words);
  if (column > page->label && column + 2 + columns > page->text_width) {
    zp_buf_printf(&page->out, "\n%*s", page->label, "");
    column = page->label;
  } else if (column > page->label) {
    zp_buf_puts(&page->out, "  ");
    column += 2;
  }
  put_cells(page, part, index, 1);
  zp_buf_puts(&page->out, " ");
  zp_page_words(page, page->label + 2, column + 2, words);
  return column + columns;
}

void zp_page_bar(zp_page *page, const char *label, const zp_part *parts, int n) {
  enum { WIDEST_BAR = 72, LEAST_BAR = 10 };
  assert(n >= 0);
  int column = zp_page_label(page, label), width = page->text_width - column;
  if (width > WIDEST_BAR) width = WIDEST_BAR;
  if (width < LEAST_BAR) width = LEAST_BAR;
  put_bar(page, parts, n, width);
  zp_buf_printf(&page->out, "\n%*s", page->label, "");
  column = page->label;
  for (int i = 0; i < n; i++)
    if (parts[i].amount > 0) column = put_entry(page, &parts[i], i, column);
  zp_page_blank(page);
}
