/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that put something on a page. */
#ifndef ZPLAN_PAGE_INTERNAL_H
#define ZPLAN_PAGE_INTERNAL_H

#include <zplan/page.h>

/* Puts words from `column` of the current line on; lines after it are indented. No line end after the last. */
void zp_page_words(zp_page *page, int indent, int column, const char *text);
/* Puts a label; the column where its text begins, maybe on the next line. */
int zp_page_label(zp_page *page, const char *label);
/* Bytes of a word that go on a line of so many columns: all, else up to the last sign that parts its parts. */
size_t zp_page_piece(const char *word, size_t len, int columns);
#define ZP_WORD_PARTS "/_-.,=:["
/* Puts a word, with spaces for the glue in it. */
void zp_page_word(zp_buf *out, const char *word, size_t len);
void zp_page_begin(zp_page *page, zp_emphasis emphasis);
void zp_page_end(zp_page *page, zp_emphasis emphasis);

#endif
