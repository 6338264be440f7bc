/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: words wrapped, fields with labels. Bars are in bar.c. */
#include "page_internal.h"

#include <assert.h>
#include <string.h>
#include <zplan/hosted.h>
#include <zplan/quote.h>

enum {
  WIDEST_TEXT = 100,
  STACKED_BELOW = 40, /* labels have lines of their own */
  STACKED_INDENT = 2
};

zp_page zp_page_new(zp_arena *arena, zp_screen screen, int label) {
  assert(screen.width >= ZP_LEAST_COLUMNS && label >= 0);
  return (zp_page){.screen = screen,
                   .out = zp_buf_new(arena),
                   .text_width = screen.width < WIDEST_TEXT ? screen.width : WIDEST_TEXT,
                   .label = screen.width < STACKED_BELOW ? STACKED_INDENT : label};
}

zp_screen zp_plain_screen(int width) { return (zp_screen){.width = width}; }

void zp_page_blank(zp_page *page) { zp_buf_puts(&page->out, "\n"); }

void zp_page_put(const zp_page *page, FILE *out) { fwrite(page->out.data, 1, page->out.len, zp_stream(out)); }

/* ---- words ---- */

/* A unit stays with its number: "10.3 min". */
static bool is_unit(const char *word, size_t len) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB",  "k", "M",
                                      "G", "T",  "P",  "ns", "us", "ms", "s",   "min", "h",   "days", "%", "x"};
  while (len > 0 && strchr(",.;:)", word[len - 1])) len--;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strlen(units[i]) == len && strncmp(units[i], word, len) == 0) return true;
  return false;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Bytes up to the next place where a line may end. */
static size_t word_length(const char *text) {
  size_t len = strcspn(text, " ");
  while (len > 0 && is_digit(text[len - 1]) && text[len] == ' ') {
    size_t unit = strcspn(text + len + 1, " ");
    if (!is_unit(text + len + 1, unit)) break;
    len += 1 + unit;
  }
  return len;
}

size_t zp_page_piece(const char *word, size_t len, int columns) {
  size_t most = zp_fitting_bytes(word, columns);
  if (most == 0) most = 1;
  if (most >= len) return len;
  for (size_t i = most; i > 1; i--)
    if (strchr(" " ZP_WORD_PARTS, word[i - 1])) return i;
  return most;
}

void zp_page_word(zp_buf *out, const char *word, size_t len) {
  const char *end = word + len;
  while (word < end) {
    const char *glue = strstr(word, ZP_GLUE);
    if (!glue || glue >= end) glue = end;
    zp_buf_put(out, word, (size_t)(glue - word));
    if (glue < end) zp_buf_puts(out, " ");
    word = glue < end ? glue + strlen(ZP_GLUE) : end;
  }
}

void zp_page_words(zp_page *page, int indent, int column, const char *text) {
  zp_buf *out = &page->out;
  const char *shown = zp_quote_terminal(out->arena, text);
  bool begins = true; /* nothing stands on this line yet */
  if (indent > page->text_width / 2) indent = STACKED_INDENT;
  while (*shown) {
    if (*shown == ' ') {
      shown++;
      continue;
    }
    size_t len = word_length(shown);
    int columns = zp_columns(zp_strndup(out->arena, shown, len)), gap = begins ? 0 : 1;
    if ((!begins || column > indent) && column + gap + columns > page->text_width) {
      zp_buf_printf(out, "\n%*s", indent, "");
      column = indent;
      begins = true;
      continue;
    }
    if (!begins) zp_buf_puts(out, " ");
    if (column + gap + columns > page->text_width) {
      len = zp_page_piece(shown, len, page->text_width - column);
      columns = zp_columns(zp_strndup(out->arena, shown, len));
    }
    zp_page_word(out, shown, len);
    shown += len;
    column += gap + columns;
    begins = false;
  }
}

/* ---- emphasis ---- */

static const char *const begin_of[] = {[ZP_PLAIN] = "", [ZP_STRONG] = "\x1b[1m", [ZP_DIM] = "\x1b[2m"};

void zp_page_begin(zp_page *page, zp_emphasis emphasis) {
  if (page->screen.color) zp_buf_puts(&page->out, begin_of[emphasis]);
}

void zp_page_end(zp_page *page, zp_emphasis emphasis) {
  if (page->screen.color && emphasis != ZP_PLAIN) zp_buf_puts(&page->out, "\x1b[0m");
}

/* ---- lines and fields ---- */

void zp_page_text(zp_page *page, zp_emphasis emphasis, int further, const char *text) {
  zp_page_begin(page, emphasis);
  zp_page_words(page, further, 0, text);
  zp_page_end(page, emphasis);
  zp_page_blank(page);
}

int zp_page_label(zp_page *page, const char *label) {
  zp_page_begin(page, ZP_DIM);
  zp_buf_puts(&page->out, label);
  zp_page_end(page, ZP_DIM);
  int columns = zp_columns(label);
  if (columns < page->label) {
    zp_buf_printf(&page->out, "%*s", page->label - columns, "");
    return page->label;
  }
  if (page->label > STACKED_INDENT) {
    zp_buf_puts(&page->out, " ");
    return columns + 1;
  }
  zp_buf_printf(&page->out, "\n%*s", page->label, "");
  return page->label;
}

void zp_page_field(zp_page *page, const char *label, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = zp_vformat(page->out.arena, format, args);
  va_end(args);
  int column = zp_page_label(page, label);
  zp_page_words(page, page->label, column, text);
  zp_page_blank(page);
}

static void put_line(zp_page *page, const char *line) {
  zp_arena *arena = page->out.arena;
  const char *shown = zp_quote_terminal(arena, line);
  if (zp_columns(shown) <= page->screen.width) {
    zp_page_word(&page->out, shown, strlen(shown));
    return;
  }
  int lead = (int)strspn(line, " "), middle = page->text_width / 2;
  const char *gap = strstr(line + lead, "  ");
  int column = gap ? (int)(gap - line) + (int)strspn(gap, " ") : lead;
  if (column > middle) column = lead < middle ? lead : 0;
  const char *head = zp_quote_terminal(arena, zp_strndup(arena, line, (size_t)column));
  zp_buf_puts(&page->out, head);
  zp_page_words(page, column > lead ? column : lead + STACKED_INDENT, zp_columns(head), line + column);
}

void zp_page_lines(zp_page *page, const char *lines) {
  while (*lines) {
    size_t len = strcspn(lines, "\n");
    put_line(page, zp_strndup(page->out.arena, lines, len));
    zp_page_blank(page);
    lines += len + (lines[len] == '\n');
  }
}
