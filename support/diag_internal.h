/* SPDX-License-Identifier: Apache-2.0 */
/* What diag.c collects and diag_render.c and diag_json.c print. */
#ifndef ZPLAN_SUPPORT_DIAG_INTERNAL_H
#define ZPLAN_SUPPORT_DIAG_INTERNAL_H

#include <zplan/buf.h>
#include <zplan/diag.h>
#include <zplan/vec.h>

typedef struct source {
  const char *path, *text; /* text is borrowed */
  size_t len;
  ZP_VEC(uint32_t) lines; /* byte offset of each line's start; made at the first question */
  bool is_library;
} source;

/* A place with words; label may be NULL. */
typedef struct place {
  zp_span span;
  const char *label;
} place;

typedef struct footer {
  const char *kind; /* "note" or "help" */
  const char *text;
} footer;

struct zp_diag {
  zp_arena *arena;
  zp_diag_code code;
  const char *message;
  place primary;
  bool moved; /* primary is not where it was reported: also[0] is */
  ZP_VEC(place) also;
  ZP_VEC(footer) footers;
};

struct zp_diags {
  zp_arena *arena;
  ZP_VEC(source) sources;
  ZP_VEC(zp_diag *) list;
  int errors;
  int printed; /* how many of `list` the text or JSON printer has seen */
  int shown;   /* how many of those were put on paper: never above the limit */
};

enum { ZP_SHOWN_DIAGS = 20 };

/* How diagnostics are drawn. columns: that no line is wider than; 0: as wide as texts and source lines are. */
typedef struct zp_diag_look {
  bool color;
  int columns;
} zp_diag_look;

/* Text of 1-based line `line` of a file without its line break; offset is where it starts in the file. */
const char *zp_diags_line(const zp_diags *diags, int file, int line, size_t *len, uint32_t *offset);
void zp_diag_render(const zp_diags *diags, const zp_diag *diag, zp_buf *out, zp_diag_look look);
/* Appends words from `column` of a line on; where they are wrapped, lines after the first are indented. */
void zp_diag_words(zp_buf *out, int indent, int column, zp_diag_look look, const char *text);
/* Draws one source line (its number padded to `gutter` columns) with all its marks; marks[0] is the primary place
 * when has_primary is set. All places lie on this line. */
void zp_snippet_render(const zp_diags *diags, zp_buf *out, int gutter, zp_diag_look look, bool has_primary,
                       const place *marks, int count);

#endif
