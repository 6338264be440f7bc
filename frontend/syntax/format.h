/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the formatter: format.c lays out what format_tokens.c lists, format_align.c lines its lines up. */
#ifndef ZPLAN_SYNTAX_FORMAT_H
#define ZPLAN_SYNTAX_FORMAT_H

#include <zplan/buf.h>

#include "parser_internal.h"

/* What a token begins. */
typedef enum zp_member { ZP_MEMBER_NONE, ZP_MEMBER_ITEM, ZP_MEMBER_STMT, ZP_MEMBER_ATTR } zp_member;

typedef struct zp_fmt_token {
  int kind;         /* COMMENT too; the last token is END */
  const char *text; /* borrowed from the source */
  int len;
  int newlines;     /* between the token before and this one; 0 for the first token of the file */
  zp_member member; /* what begins here; */
  int member_end;   /* index after its last token */
  int match;        /* `{`: index of its `}` */
  bool unary;       /* a minus sign without left operand */
  int column;       /* in the source, in bytes */
  bool goes_on;     /* a comment on a line of its own below the one at the end of a line, in the same column */
  bool word;        /* a name, or a keyword that stands for one */
} zp_fmt_token;

typedef ZP_VEC(zp_fmt_token) zp_fmt_tokens;

/* All tokens and comments of a source that parsed without errors. */
zp_fmt_tokens zp_fmt_list(zp_arena *arena, zp_diags *diags, const zp_file *file);
/* Whether a blank stands between two neighbours on one line (0, or 1; 2 between attributes). */
int zp_fmt_blanks(const zp_fmt_token *before, const zp_fmt_token *after);

enum { ZP_FMT_COLUMNS = 100 };

/* One line of the laid-out text. Offsets count bytes from `begin`. */
typedef struct zp_fmt_line {
  size_t begin;
  int indent;
  int mark_at, mark_end; /* operator or opening brace that lines up with its neighbours'; mark_end 0: none */
  bool braces;
  int code_end; /* where the comment's blanks begin, or the line ends */
  bool has_comment;
  int mark_blanks, comment_blanks; /* zp_fmt_align: blanks to put in */
} zp_fmt_line;

typedef ZP_VEC(zp_fmt_line) zp_fmt_lines;

/* The text with operators, braces and comments of neighbouring lines in one column. */
const char *zp_fmt_align(zp_arena *arena, const zp_buf *text, zp_fmt_lines *lines);

#endif
