/* SPDX-License-Identifier: Apache-2.0 */
/* A text as a word of another language: one writer for each, used by all that print a name, a path or another string
 * that came out of a file. Whatever bytes the text has, the word is read back as that text and ends where it ends.
 * Results live in the arena. */
#ifndef ZPLAN_QUOTE_H
#define ZPLAN_QUOTE_H

#include <stdio.h>
#include <zplan/arena.h>

/* C, C++ and CUDA: a literal with its quotes, of ASCII alone; `NULL` of NULL. No `?` is left as it is, which could
 * begin a trigraph. */
const char *zp_quote_c(zp_arena *arena, const char *text);
/* Words inside of a C comment of that line: never its end, nor a line's. The same text unless it holds such. */
const char *zp_quote_c_comment(zp_arena *arena, const char *text);
/* The value of a variable of make, after `NAME = `. A text with a line end has none: NULL. */
const char *zp_quote_make(zp_arena *arena, const char *text);
/* One word of bash, and of sh where the text has no control characters; bare where it needs no quotes. Of one line. */
const char *zp_quote_shell(zp_arena *arena, const char *text);
/* A JSON string with its quotes, in UTF-8 without control characters; bytes that are no UTF-8 become '?'. */
const char *zp_quote_json(zp_arena *arena, const char *text);
/* Text or an attribute of HTML. What a terminal would obey is shown as there; line ends and tabs stay. */
const char *zp_quote_html(zp_arena *arena, const char *text);
/* A part of a line on a terminal (shown.h): line ends and tabs are shown, too. */
const char *zp_quote_terminal(zp_arena *arena, const char *text);
/* Lines on a terminal: line ends and tabs stay. */
const char *zp_quote_lines(zp_arena *arena, const char *text);

/* Prints to a terminal or whatever stands in its place: as zp_quote_lines. */
void zp_say(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whole lines of a message: on a terminal that is too narrow they are wrapped at words; a pipe has them as they are. */
void zp_say_lines(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One such line, whatever line ends are in it; the last one is put here. */
void zp_say_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a result that another program may read, such as a script: the bytes as they are, but on a terminal as zp_say.
 * False when they could not be written. */
bool zp_hand_on(FILE *out, const char *text, size_t len);

#endif
