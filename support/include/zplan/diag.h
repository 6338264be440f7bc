/* SPDX-License-Identifier: Apache-2.0 */
/* Sources, spans and diagnostics: the one way to tell a person that their input is wrong.
 *
 *   zp_diag *d = zp_report(diags, ZP_Z0203, span, "unknown name `%s`", name);
 *   zp_diag_help(d, "did you mean `%s`?", best);
 *
 * Rendered in the manner of rustc: code, place, source line with carets, notes, help. */
#ifndef ZPLAN_DIAG_H
#define ZPLAN_DIAG_H

#include <stdbool.h>
#include <stdio.h>
#include <zplan/arena.h>

/* Half-open byte range in a source file. file < 0: no place (command line, whole run). */
typedef struct zp_span {
  int file;
  uint32_t begin, end;
} zp_span;
#define ZP_NO_SPAN ((zp_span){-1, 0, 0})
bool zp_span_within(zp_span inner, zp_span outer);

/* One row per code in diag_codes.def: number, level, title, page for `zplan explain`. */
typedef enum zp_diag_code {
#define ZP_DIAG(code, level, title, page) ZP_##code,
#include <zplan/diag_codes.def>
#undef ZP_DIAG
  ZP_DIAG_CODE_COUNT
} zp_diag_code;
typedef enum zp_level { ZP_ERROR, ZP_WARNING } zp_level;

typedef struct zp_diags zp_diags; /* all sources and diagnostics of one run */
typedef struct zp_diag zp_diag;

zp_diags *zp_diags_new(zp_arena *arena);
/* Registers a text (borrowed, must outlive the diags); returns the file index for spans. */
int zp_diags_add_source(zp_diags *diags, const char *path, const char *text, size_t len);
int zp_diags_source_count(const zp_diags *diags);
/* Files that people do not edit: what is wrong in them was caused elsewhere (sema/blame.c). */
void zp_diags_mark_library(zp_diags *diags, int file);
bool zp_diags_in_library(const zp_diags *diags, zp_span span);
const char *zp_diags_source_path(const zp_diags *diags, int file);
const char *zp_diags_source_text(const zp_diags *diags, int file, size_t *len);
/* 1-based; columns count bytes. */
void zp_diags_locate(const zp_diags *diags, zp_span span, int *line, int *column);
/* "gpt2.dz:14", or "" without a place. Arena. */
const char *zp_diags_place(const zp_diags *diags, zp_arena *arena, zp_span span);

/* Adds a diagnostic; never NULL. The arena copies all text. */
zp_diag *zp_report(zp_diags *diags, zp_diag_code code, zp_span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The primary place, and another one for it: the first one stays as a second place with the words `was`. Moved again,
 * a diagnostic still shows where it was at first. */
zp_span zp_diag_span(const zp_diag *diag);
void zp_diag_move(zp_diag *diag, zp_span span, const char *was);
/* The words under the primary carets. */
void zp_diag_label(zp_diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A second place, underlined with dashes, with its own words. */
void zp_diag_also(zp_diag *diag, zp_span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void zp_diag_note(zp_diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));
void zp_diag_help(zp_diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "did you mean `x`?" when a candidate is near enough (Damerau-Levenshtein <= max(1, len/3)); says whether it added
 * one. */
bool zp_diag_did_you_mean(zp_diag *diag, const char *word, const char *const *candidates, int count);

/* What a diagnostic says, for programs that show it in a way of their own. */
typedef struct zp_diag_text {
  const char *kind; /* "note" or "help"; NULL: a second place */
  const char *text; /* NULL: a place without words */
  zp_span span;     /* of a second place */
} zp_diag_text;
zp_diag_code zp_diag_get_code(const zp_diag *diag);
zp_level zp_diag_level(const zp_diag *diag);
const char *zp_diag_message(const zp_diag *diag);
const char *zp_diag_get_label(const zp_diag *diag); /* NULL: none */
/* Second places, then notes and helps, in their order; false past the end. */
bool zp_diag_text_at(const zp_diag *diag, int index, zp_diag_text *text);

int zp_diags_errors(const zp_diags *diags);
/* Number of all diagnostics, warnings included. */
int zp_diags_count(const zp_diags *diags);
/* The index-th of them, to add notes afterwards (which call an inlined block came from). */
zp_diag *zp_diags_get(const zp_diags *diags, int index);
/* Takes one back that was not printed yet: it says nothing that another has not said. */
void zp_diags_drop(zp_diags *diags, int index);
/* Prints those not printed yet, at most 20 in all, then a closing count when there were errors. */
void zp_diags_print(zp_diags *diags, FILE *out, bool color);
/* One JSON object a line, fields as rustc's. */
void zp_diags_print_json(zp_diags *diags, FILE *out);

/* The closest candidate or NULL, by the rule above. */
const char *zp_closest(const char *word, const char *const *candidates, int count);
const char *zp_code_name(zp_diag_code code);  /* "Z0203" */
const char *zp_code_title(zp_diag_code code); /* one line */
const char *zp_code_page(zp_diag_code code);  /* paragraphs for `zplan explain Z0203` */
/* ZP_DIAG_CODE_COUNT when the name is no code. */
zp_diag_code zp_code_by_name(const char *name);

#endif
