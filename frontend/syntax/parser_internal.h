/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the scanner, the parser and their helpers. Nothing outside this folder sees it. */
#ifndef ZPLAN_SYNTAX_PARSER_INTERNAL_H
#define ZPLAN_SYNTAX_PARSER_INTERNAL_H

#include <zplan/ast.h>

enum {
  ZP_MAX_BRACKETS = 200,   /* nesting of ( [ { */
  ZP_MAX_EXPR_DEPTH = 400, /* operators inside one another, so that recursion over the tree is safe */
  ZP_MAX_SYNTAX_ERRORS = 20,
};

/* A number with its unit, or a string. */
typedef struct zp_literal {
  double number;
  bool is_integer;
  const char *unit, *text;
} zp_literal;

/* One scan of one source. */
typedef struct zp_scan {
  zp_arena *arena;
  zp_diags *diags;
  int source;
  uint32_t at; /* byte after the last token */
  bool keep_comments;
  int errors;       /* reported by the scanner and the parser */
  int64_t reported; /* where the scanner last complained; -1: nowhere */
  void *flex;       /* yyscan_t, owned */
} zp_scan;

/* A token with its place. kind is a bison token kind; 0 is the end. */
typedef struct zp_token {
  int kind;
  zp_span span;
  zp_literal literal;
} zp_token;

typedef struct zp_bracket {
  char open;
  zp_span span;
} zp_bracket;

/* The token stream that the parser sees: raw tokens, plus the SYNC tokens of error recovery (feed.c).
 * `open` holds the brackets that were open when `last` was met: what `last` opens or closes counts from the next. */
typedef struct zp_feed {
  zp_scan scan;
  int start;                  /* START_FILE or START_SETTING: fed first, then 0 */
  zp_token last, before_last; /* raw tokens; kind -1: none yet */
  ZP_VEC(zp_bracket) open;
  enum { ZP_FEED_NORMAL, ZP_FEED_PANIC, ZP_FEED_REPLAY } mode;
  int closing;      /* missing `}` still to be fed before the replay */
  int64_t synced;   /* where the token starts before which the last SYNC was fed; -1: nowhere */
  bool fatal;       /* stop: feed only the end, report nothing more */
  zp_file *file;    /* result of START_FILE */
  zp_attr *setting; /* result of START_SETTING */
} zp_feed;

union zp_value;

/* dz.l */
bool zp_scan_open(zp_scan *scan);
void zp_scan_close(zp_scan *scan);
int zp_scan_raw(zp_scan *scan, union zp_value *value, zp_span *span);

/* feed.c */
int zp_feed_token(union zp_value *value, zp_span *span, zp_feed *feed);
/* After a syntax error at feed->last: the next token fed is the SYNC before the place where parsing can go on. */
void zp_feed_panic(zp_feed *feed);
/* Innermost bracket that was open when `last` was met; NULL when none was. */
const zp_bracket *zp_feed_open_bracket(const zp_feed *feed);
/* Reports that the input nests too deeply and ends the parse. */
void zp_feed_too_deep(zp_feed *feed, zp_span span);

#endif
