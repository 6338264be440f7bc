/* SPDX-License-Identifier: Apache-2.0 */
/* zplan fmt: one layout for everybody.
 *
 *  - two blanks for each level, one statement, attribute or declaration a line;
 *  - attributes that the author put on one line stay together while the line has room, and so does a body on one line
 *    with attributes or with a single statement;
 *  - operators of neighbouring lines end in one column, as do braces of one-line blocks and comments (format_align.c);
 *  - line breaks inside ( ) and [ ], blank lines (one at most) and all comments are the author's;
 *  - everything else, blanks between tokens above all, is decided here.
 *
 * Formatting twice gives the same text: each rule reads only what it would itself write. */
#include "dz_parser.h"

#include <assert.h>
#include "format.h"

#include <zplan/buf.h>

enum { CONTINUATION = 4 };

typedef struct layout {
  zp_buf out;
  const zp_fmt_token *t;
  zp_fmt_lines lines; /* the last one is being written */
} layout;

static zp_fmt_line *this_line(layout *l) { return &l->lines.data[l->lines.len - 1]; }

static int column(layout *l) { return (int)(l->out.len - this_line(l)->begin); }

static void end_line(layout *l) {
  if (l->lines.len == 0) return;
  zp_fmt_line *line = this_line(l);
  if (!line->has_comment) line->code_end = column(l);
  zp_buf_put(&l->out, "\n", 1);
}

static void new_line(layout *l, int columns) {
  end_line(l);
  zp_fmt_line fresh = {.begin = l->out.len, .indent = columns};
  zp_push(l->out.arena, &l->lines, fresh);
  zp_buf_printf(&l->out, "%*s", columns, "");
}

/* The author's blank line, but none at the start of a body or of the file. */
static void new_entry(layout *l, int index, bool first, int columns) {
  if (l->t[index].newlines > 1 && !first && l->lines.len) new_line(l, 0);
  new_line(l, columns);
}

static void put(layout *l, int index) { zp_buf_put(&l->out, l->t[index].text, (size_t)l->t[index].len); }

/* A comment after code: the blanks before it belong to it. */
static void put_comment(layout *l, int index) {
  zp_fmt_line *line = this_line(l);
  line->code_end = column(l);
  line->has_comment = true;
  zp_buf_puts(&l->out, "  ");
  put(l, index);
}

/* Whether the author wrote [from, to) on one line, and it may stay there: a body with statements has one at most. */
static bool can_be_flat(const layout *l, int from, int to) {
  for (int i = from; i < to; i++) {
    const zp_fmt_token *t = &l->t[i];
    if (t->kind == COMMENT || (i > from && t->newlines > 0)) return false;
    bool second = t->member == ZP_MEMBER_STMT && i > from && l->t[i - 1].kind != LBRACE;
    if (second) return false;
  }
  return true;
}

static int flat_columns(const layout *l, int from, int to) {
  int columns = 0;
  for (int i = from; i < to; i++) columns += l->t[i].len + (i > from ? zp_fmt_blanks(&l->t[i - 1], &l->t[i]) : 0);
  return columns;
}

static void put_flat(layout *l, int from, int to) {
  for (int i = from; i < to; i++) {
    if (i > from) zp_buf_printf(&l->out, "%*s", zp_fmt_blanks(&l->t[i - 1], &l->t[i]), "");
    put(l, i);
  }
}

static void put_entries(layout *l, int from, int to, int columns);

/* `{` at `open` to its `}`; the caller has put the blank before it. */
static void put_braces(layout *l, int open, int columns) {
  int close = l->t[open].match;
  bool fits = column(l) + flat_columns(l, open, close + 1) <= ZP_FMT_COLUMNS;
  if (close == open + 1 || (fits && can_be_flat(l, open, close + 1))) {
    put_flat(l, open, close + 1);
    return;
  }
  put(l, open);
  put_entries(l, open + 1, close, columns + 2);
  new_line(l, columns);
  put(l, close);
}

/* Starts a new line inside a member where the author did, or where a comment ends the line. */
static void put_continuation(layout *l, int index, int columns, int brackets) {
  int kind = l->t[index].kind;
  bool closes = kind == RPAREN || kind == RBRACKET;
  int level = closes ? brackets - 1 : brackets;
  new_line(l, columns + (level > 0 ? 2 * level : closes ? 0 : CONTINUATION));
}

/* A member that does not stand on one line. */
static void put_broken(layout *l, int from, int to, int columns) {
  int brackets = 0;
  for (int i = from; i < to; i++) {
    const zp_fmt_token *t = &l->t[i];
    bool after_comment = i > from && l->t[i - 1].kind == COMMENT;
    bool joins = t->kind == LBRACE || t->kind == ELSE;
    if (i > from && (after_comment || (t->newlines > 0 && !joins)))
      put_continuation(l, i, columns, brackets);
    else if (i > from && t->kind != COMMENT)
      zp_buf_printf(&l->out, "%*s", zp_fmt_blanks(&l->t[i - 1], t), "");
    brackets += t->kind == LPAREN || t->kind == LBRACKET;
    brackets -= t->kind == RPAREN || t->kind == RBRACKET;
    if (t->kind == LBRACE) {
      put_braces(l, i, columns);
      i = t->match;
    } else if (t->kind == COMMENT && t->newlines == 0 && !after_comment) {
      put_comment(l, i);
    } else {
      put(l, i);
    }
  }
}

/* The operator or opening brace of an attribute or assignment, by which it lines up with its neighbours; -1: none. */
static int mark_of(const layout *l, int from, int to) {
  const zp_fmt_token *t = l->t;
  if (t[from].member_end != to || t[from].member == ZP_MEMBER_ITEM) return -1;
  for (int i = from; i < to; i++) {
    switch (t[i].kind) {
    case ASSIGN: return i;
    case LBRACE:
    case LE:
    case GE:
    case LT:
    case GT:
    case NE: return t[from].member == ZP_MEMBER_ATTR ? i : -1;
    case COMMA:
    case LBRACKET:
    case RBRACKET:
    case STRING: break;
    default:
      if (!t[i].word) return -1;
    }
  }
  return -1;
}

static void note_mark(layout *l, int from, int mark, int columns) {
  zp_fmt_line *line = this_line(l);
  line->mark_at = columns + flat_columns(l, from, mark) + zp_fmt_blanks(&l->t[mark - 1], &l->t[mark]);
  line->mark_end = line->mark_at + l->t[mark].len;
  line->braces = l->t[mark].kind == LBRACE;
}

static void put_member(layout *l, int from, int to, int columns) {
  bool fits = column(l) + flat_columns(l, from, to) <= ZP_FMT_COLUMNS;
  if (!fits || !can_be_flat(l, from, to)) {
    put_broken(l, from, to, columns);
    return;
  }
  int mark = mark_of(l, from, to);
  if (mark > from) note_mark(l, from, mark, columns);
  put_flat(l, from, to);
}

/* Index after the attributes that stand on one line with the one at `from`; after that one alone when they do not
 * fit. */
static int end_of_run(const layout *l, int from, int to, int columns) {
  int end = l->t[from].member_end;
  if (l->t[from].member != ZP_MEMBER_ATTR) return end;
  int last = end;
  while (last < to && l->t[last].member == ZP_MEMBER_ATTR && l->t[last].newlines == 0) last = l->t[last].member_end;
  bool fits = columns + flat_columns(l, from, last) <= ZP_FMT_COLUMNS;
  return fits && can_be_flat(l, from, last) ? last : end;
}

/* The members and comments of a body or of the file, each entry on a line of its own. */
static void put_entries(layout *l, int from, int to, int columns) {
  bool first = true;
  for (int i = from; i < to;) {
    if (l->t[i].kind == COMMENT && l->t[i].newlines == 0 && l->lines.len) {
      put_comment(l, i++);
      continue;
    }
    if (l->t[i].goes_on) {
      new_line(l, 0);
      put_comment(l, i++);
      continue;
    }
    new_entry(l, i, first, columns);
    first = false;
    if (l->t[i].kind == COMMENT) {
      put(l, i++);
      continue;
    }
    int end = end_of_run(l, i, to, columns);
    put_member(l, i, end, columns);
    i = end;
  }
}

const char *zp_format_source(zp_arena *arena, zp_diags *diags, int source) {
  assert(source >= 0 && source < zp_diags_source_count(diags));
  int errors = zp_diags_errors(diags);
  const zp_file *file = zp_parse(arena, diags, source);
  if (zp_diags_errors(diags) != errors) return NULL;
  zp_fmt_tokens tokens = zp_fmt_list(arena, diags, file);
  if (tokens.len == 0) return NULL;
  layout l = {.out = zp_buf_new(arena), .t = tokens.data};
  put_entries(&l, 0, tokens.len - 1, 0);
  end_line(&l);
  return zp_fmt_align(arena, &l.out, &l.lines);
}
