/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds the parser, watches the brackets, and finds the place where parsing goes on after a syntax error.
 *
 * Recovery: the grammar has `error SYNC` in every list. After an error the feed skips tokens until one that surely
 * starts something new, feeds SYNC (which ends bison's own recovery) and then that token. Such a token is
 *   - the `}` that closes the body in which the error is,
 *   - a word that begins a line and is not indented deeper than the line where the broken statement begins,
 *   - a declaration's keyword in the first column: a missing `}` is then fed for every body that is still open,
 *   - the end of the file.
 * What stands in braces after the error is skipped as a whole. */
#include "dz_parser.h"

static const char *text_of(const zp_feed *feed) {
  return zp_diags_source_text(feed->scan.diags, feed->scan.source, NULL);
}

static bool is_open(int kind) { return kind == LPAREN || kind == LBRACKET || kind == LBRACE; }

static char bracket_of(int kind) {
  return kind == LPAREN || kind == RPAREN ? '(' : kind == LBRACKET || kind == RBRACKET ? '[' : '{';
}

/* Index of the innermost open `{`, or -1. */
static int innermost_brace(const zp_feed *feed) {
  int i = feed->open.len - 1;
  while (i >= 0 && feed->open.data[i].open != '{') i--;
  return i;
}

static int count_braces(const zp_feed *feed) {
  int count = 0;
  for (int i = 0; i < feed->open.len; i++) count += feed->open.data[i].open == '{';
  return count;
}

const zp_bracket *zp_feed_open_bracket(const zp_feed *feed) {
  return feed->open.len ? &feed->open.data[feed->open.len - 1] : NULL;
}

void zp_feed_too_deep(zp_feed *feed, zp_span span) {
  if (feed->fatal) return;
  feed->fatal = true;
  feed->scan.errors++;
  zp_diag *diag = zp_report(feed->scan.diags, ZP_Z0101, span, "the input is nested too deeply");
  zp_diag_note(diag, "brackets may be nested %d deep, operators %d deep", ZP_MAX_BRACKETS, ZP_MAX_EXPR_DEPTH);
}

/* Lets the last token open or close its bracket. A `}` also closes what was forgotten inside; a `)` or `]` that
 * matches nothing changes nothing. */
static void settle_brackets(zp_feed *feed) {
  int kind = feed->last.kind;
  if (is_open(kind)) {
    if (feed->open.len == ZP_MAX_BRACKETS) {
      zp_feed_too_deep(feed, feed->last.span);
      return;
    }
    zp_bracket bracket = {bracket_of(kind), feed->last.span};
    zp_push(feed->scan.arena, &feed->open, bracket);
  } else if (kind == RBRACE) {
    int brace = innermost_brace(feed);
    if (brace >= 0) feed->open.len = brace;
  } else if (kind == RPAREN || kind == RBRACKET) {
    const zp_bracket *top = zp_feed_open_bracket(feed);
    if (top && top->open == bracket_of(kind)) feed->open.len--;
  }
}

static void advance(zp_feed *feed) {
  union zp_value value = {0};
  settle_brackets(feed);
  feed->before_last = feed->last;
  feed->last.kind = zp_scan_raw(&feed->scan, &value, &feed->last.span);
  feed->last.literal = value.literal;
}

/* Blanks before the first word of the line on which byte `at` lies. */
static uint32_t indentation(const zp_feed *feed, uint32_t at) {
  const char *text = text_of(feed);
  while (at > 0 && text[at - 1] != '\n') at--;
  uint32_t first = at;
  while (text[first] == ' ' || text[first] == '\t') first++;
  return first - at;
}

/* Whether `last` is the first word of its line. Looks at blanks only: lines may be very long. */
static bool begins_line(const zp_feed *feed, uint32_t *blanks) {
  const char *text = text_of(feed);
  uint32_t begin = feed->last.span.begin, at = begin;
  while (at > 0 && (text[at - 1] == ' ' || text[at - 1] == '\t')) at--;
  *blanks = begin - at;
  return at == 0 || text[at - 1] == '\n';
}

/* The indentation of the line where the statement with the error begins, as far as tokens tell. */
static uint32_t statement_indentation(const zp_feed *feed) {
  int outermost = innermost_brace(feed) + 1;
  uint32_t at = feed->last.span.begin;
  if (outermost < feed->open.len)
    at = feed->open.data[outermost].span.begin;
  else if (feed->before_last.kind > 0 && feed->before_last.kind != LBRACE)
    at = feed->before_last.span.begin;
  return indentation(feed, at);
}

static bool is_word(int kind) { return kind == ID || (kind >= RESERVED && kind <= PLAN); }

/* `model` in the first column, with a name, a string or a brace after it: not the key of an attribute. */
static bool starts_declaration(const zp_feed *feed) {
  int kind = feed->last.kind;
  bool declares = kind == USE || kind == LET || kind == BLOCK || kind == MODEL || (kind >= DEVICE && kind <= PLAN);
  uint32_t blanks;
  if (!declares || !begins_line(feed, &blanks) || blanks > 0) return false;
  const char *next = text_of(feed) + feed->last.span.end;
  while (*next == ' ' || *next == '\t') next++;
  return *next && (strchr("\"{_", *next) || (*next >= 'A' && *next <= 'Z') || (*next >= 'a' && *next <= 'z'));
}

/* Whether parsing can go on at `last`, in a body that has `base` open braces around it. */
static bool can_go_on(const zp_feed *feed, int base, uint32_t deepest) {
  if (count_braces(feed) != base) return false;
  if (feed->last.kind == RBRACE) return base > 0;
  uint32_t blanks;
  return is_word(feed->last.kind) && begins_line(feed, &blanks) && blanks <= deepest;
}

void zp_feed_panic(zp_feed *feed) {
  feed->mode = ZP_FEED_PANIC;
  if (feed->last.kind == END && feed->synced == feed->last.span.begin) feed->fatal = true;
}

/* Skips to the place where parsing can go on; at least one token further than the last time. */
static void skip(zp_feed *feed) {
  int base = count_braces(feed);
  uint32_t deepest = statement_indentation(feed);
  feed->open.len = innermost_brace(feed) + 1;
  feed->closing = 0;
  for (; feed->last.kind != END && !feed->fatal; advance(feed)) {
    if (feed->last.span.begin == feed->synced) continue;
    if (starts_declaration(feed)) {
      feed->closing = base;
      break;
    }
    if (can_go_on(feed, base, deepest)) break;
  }
  feed->open.len = feed->closing ? 0 : innermost_brace(feed) + 1;
  feed->synced = feed->last.span.begin;
}

/* A token of no width before `last`. */
static int insert(const zp_feed *feed, int kind, zp_span *span) {
  *span = (zp_span){feed->scan.source, feed->last.span.begin, feed->last.span.begin};
  return kind;
}

int zp_feed_token(union zp_value *value, zp_span *span, zp_feed *feed) {
  if (feed->start) {
    int start = feed->start;
    feed->start = 0;
    *span = (zp_span){feed->scan.source, 0, 0};
    return start;
  }
  if (feed->mode == ZP_FEED_PANIC && !feed->fatal) {
    skip(feed);
    feed->mode = ZP_FEED_REPLAY;
    return insert(feed, SYNC, span);
  }
  if (feed->mode == ZP_FEED_REPLAY && feed->closing > 0) {
    feed->closing--;
    return insert(feed, RBRACE, span);
  }
  if (feed->mode == ZP_FEED_NORMAL) advance(feed);
  feed->mode = ZP_FEED_NORMAL;
  if (feed->fatal || feed->scan.errors >= ZP_MAX_SYNTAX_ERRORS) {
    feed->fatal = true;
    return insert(feed, END, span);
  }
  value->literal = feed->last.literal;
  *span = feed->last.span;
  return feed->last.kind;
}
