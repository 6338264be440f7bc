/* SPDX-License-Identifier: Apache-2.0 */
/* The reference: all pages, a word's text, Markdown. */
#include "reference_internal.h"

#include <zplan/diag.h>

#include <assert.h>
#include <ctype.h>
#include <string.h>

zp_reference_pages zp_reference(zp_arena *arena) {
  zp_reference_pages pages = {0};
  zp_reference_blocks(arena, &pages);
  zp_reference_operations(arena, &pages);
  zp_reference_sparse(arena, &pages);
  return pages;
}

/* "train.checkpoint": a block with where it stands. */
static const char *path_of(zp_arena *arena, const zp_reference_page *page) {
  return *page->within ? zp_format(arena, "%s.%s", page->within, page->name) : page->name;
}

/* ---- text ---- */

enum { COLUMNS = 80, INDENT = 2, KEY_WIDTH = 18 };

void zp_put_wrapped(zp_buf *out, int at, const char *text) {
  int column = at, gap = 0;
  for (const char *p = text; *p;) {
    int n = (int)strcspn(p, " ");
    if (column > at && column + gap + n > COLUMNS) {
      zp_buf_printf(out, "\n%*s", at, "");
      column = at, gap = 0;
    }
    zp_buf_printf(out, "%*s%.*s", gap, "", n, p);
    column += gap + n;
    gap = (int)strspn(p + n, " ");
    p += n + gap;
  }
  zp_buf_puts(out, "\n");
}

static void put_row(zp_buf *out, const zp_reference_row *row) {
  int width = (int)strlen(row->key);
  zp_buf_printf(out, "%*s%s", INDENT, "", row->key);
  if (width + 2 > KEY_WIDTH)
    zp_buf_printf(out, "\n%*s", INDENT + KEY_WIDTH, "");
  else
    zp_buf_printf(out, "%*s", KEY_WIDTH - width, "");
  zp_put_wrapped(out, INDENT + KEY_WIDTH, row->meaning);
  zp_buf_printf(out, "%*s", INDENT + KEY_WIDTH, "");
  zp_put_wrapped(
      out, INDENT + KEY_WIDTH,
      zp_format(out->arena, "%s%s%s; default: %s", row->type, *row->range ? ": " : "", row->range, row->unless));
  if (strcmp(row->example, row->key) != 0) {
    zp_buf_printf(out, "%*s", INDENT + KEY_WIDTH, "");
    zp_put_wrapped(out, INDENT + KEY_WIDTH, row->example);
  }
}

static void put_page(zp_buf *out, const zp_reference_page *page) {
  static const char *const kinds[] = {"block", "call", "operation"};
  zp_buf_printf(out, "%s: %s", page->name, kinds[page->kind]);
  if (*page->within) zp_buf_printf(out, " in %s", page->within);
  zp_buf_printf(out, "\n%*s", INDENT, "");
  zp_put_wrapped(out, INDENT, page->meaning);
  zp_buf_printf(out, "%*s", INDENT, "");
  zp_put_wrapped(out, INDENT, page->example);
  zp_buf_puts(out, "\n");
  for (int i = 0; i < page->rows.len; i++) put_row(out, &page->rows.data[i]);
}

/* "train.checkpoint.dir" names a key of a page; bare "dir" does, too. */
static bool names_key(zp_arena *arena, const zp_reference_page *page, const zp_reference_row *row, const char *word) {
  const char *dot = strrchr(word, '.');
  if (strcmp(dot ? dot + 1 : word, row->key) != 0) return false;
  if (!dot) return true;
  const char *head = zp_strndup(arena, word, (size_t)(dot - word));
  return strcmp(head, page->name) == 0 || strcmp(head, path_of(arena, page)) == 0;
}

static bool put_keys(zp_buf *out, const zp_reference_pages *pages, const char *word, bool blocks) {
  bool any = false;
  for (int p = 0; p < pages->len; p++) {
    const zp_reference_page *page = &pages->data[p];
    if ((page->kind == ZP_REFERENCE_BLOCK) != blocks) continue;
    for (int i = 0; i < page->rows.len; i++) {
      if (!names_key(out->arena, page, &page->rows.data[i], word)) continue;
      bool again = any && !blocks; /* an argument of several calls */
      zp_buf_printf(out, "%s%s%s.%s\n", out->len && !again ? "\n" : "", again ? "also " : "", path_of(out->arena, page),
                    page->rows.data[i].key);
      if (!again) put_row(out, &page->rows.data[i]);
      any = true;
    }
  }
  return any;
}

static bool put_pages(zp_buf *out, const zp_reference_pages *pages, const char *word) {
  bool any = false;
  for (int p = 0; p < pages->len; p++) {
    const zp_reference_page *page = &pages->data[p];
    if (strcmp(word, page->name) != 0 && strcmp(word, path_of(out->arena, page)) != 0) continue;
    if (out->len) zp_buf_puts(out, "\n");
    put_page(out, page);
    any = true;
  }
  return any;
}

const char *zp_reference_find(zp_arena *arena, const char *word) {
  assert(word);
  zp_reference_pages pages = zp_reference(arena);
  zp_buf out = zp_buf_new(arena);
  bool any = put_pages(&out, &pages, word);
  any |= put_keys(&out, &pages, word, true);
  if (!any) any = put_keys(&out, &pages, word, false);
  return any ? out.data : NULL;
}

zp_strings zp_reference_words(zp_arena *arena) {
  zp_reference_pages pages = zp_reference(arena);
  zp_strings words = {0};
  for (int p = 0; p < pages.len; p++) {
    const zp_reference_page *page = &pages.data[p];
    zp_push(arena, &words, page->name);
    for (int i = 0; i < page->rows.len && page->kind == ZP_REFERENCE_BLOCK; i++) {
      zp_push(arena, &words, page->rows.data[i].key);
      zp_push(arena, &words, zp_format(arena, "%s.%s", page->name, page->rows.data[i].key));
    }
  }
  return words;
}

/* ---- Markdown ---- */

/* Inside of a table: bars are columns. */
static const char *cell(zp_arena *arena, const char *text) {
  zp_buf out = zp_buf_new(arena);
  for (const char *p = text; *p; p++) zp_buf_printf(&out, "%s%c", *p == '|' ? "\\" : "", *p);
  return out.data ? out.data : "";
}

/* In code marks. Words are left as they are; empty stays empty. */
static const char *code(zp_arena *arena, const char *text) {
  return *text ? zp_format(arena, "`%s`", cell(arena, text)) : "";
}

const char *zp_as_sentence(zp_arena *arena, const char *text) {
  char *copy = zp_strdup(arena, text);
  copy[0] = (char)toupper((unsigned char)copy[0]);
  return copy;
}

void zp_reference_markdown(zp_buf *out, const zp_reference_pages *pages, zp_reference_kind kind) {
  for (int p = 0; p < pages->len; p++) {
    const zp_reference_page *page = &pages->data[p];
    if (page->kind != kind) continue;
    zp_buf_printf(out, "\n## %s\n\n", page->name);
    if (*page->within) zp_buf_printf(out, "In `%s`. ", page->within);
    zp_buf_printf(out, "%s.\n\n    %s\n\n", zp_as_sentence(out->arena, page->meaning), page->example);
    if (page->rows.len == 0) continue;
    zp_buf_puts(out, "| key | type | default | range | meaning | example |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < page->rows.len; i++) {
      const zp_reference_row *row = &page->rows.data[i];
      bool has_example = strcmp(row->example, row->key) != 0;
      zp_buf_printf(out, "| `%s` | %s | %s | %s | %s | %s |\n", row->key, cell(out->arena, row->type),
                    row->written ? code(out->arena, row->unless) : cell(out->arena, row->unless),
                    cell(out->arena, row->range), cell(out->arena, row->meaning),
                    has_example ? code(out->arena, row->example) : "");
    }
  }
}
