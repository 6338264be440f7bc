/* SPDX-License-Identifier: Apache-2.0 */
/* The formatter's view of a file: its tokens with comments, and from the tree which token begins what. */
#include "dz_parser.h"

#include "format.h"

/* Something of the tree, by the bytes it covers. In the order of the source, outer before inner. */
typedef struct member {
  zp_member kind;
  uint32_t begin, end;
} member;

typedef struct members {
  zp_arena *arena;
  ZP_VEC(member) list;
} members;

static void add_member(members *m, zp_member kind, zp_span span) {
  member fresh = {kind, span.begin, span.end};
  zp_push(m->arena, &m->list, fresh);
}

static void add_attrs(members *m, zp_attrs attrs) {
  for (int i = 0; i < attrs.len; i++) {
    add_member(m, ZP_MEMBER_ATTR, attrs.data[i]->span);
    add_attrs(m, attrs.data[i]->body);
  }
}

static void add_stmts(members *m, zp_stmts stmts) {
  for (int i = 0; i < stmts.len; i++) {
    const zp_stmt *stmt = stmts.data[i];
    add_member(m, ZP_MEMBER_STMT, stmt->span);
    add_stmts(m, stmt->body);
    /* `else if` is one statement in the list, but it begins no line of its own. */
    const zp_stmt *chained = stmt->otherwise.len == 1 ? stmt->otherwise.data[0] : NULL;
    while (chained && chained->kind == ZP_STMT_IF && chained->is_else_if) {
      add_stmts(m, chained->body);
      stmt = chained;
      chained = stmt->otherwise.len == 1 ? stmt->otherwise.data[0] : NULL;
    }
    add_stmts(m, stmt->otherwise);
  }
}

static members list_members(zp_arena *arena, const zp_file *file) {
  members m = {.arena = arena};
  for (int i = 0; i < file->items.len; i++) {
    const zp_item *item = file->items.data[i];
    add_member(&m, ZP_MEMBER_ITEM, item->span);
    add_stmts(&m, item->body);
    add_attrs(&m, item->attrs);
  }
  return m;
}

static int count_newlines(const char *text, uint32_t begin, uint32_t end) {
  int count = 0;
  for (uint32_t i = begin; i < end; i++) count += text[i] == '\n';
  return count;
}

static int column_of(const char *text, uint32_t at) {
  uint32_t begin = at;
  while (begin > 0 && text[begin - 1] != '\n') begin--;
  return (int)(at - begin);
}

/* Comments lose the blanks at their end. */
static int trimmed_length(const char *text, zp_span span) {
  uint32_t end = span.end;
  while (end > span.begin && strchr(" \t\r\f", text[end - 1])) end--;
  return (int)(end - span.begin);
}

/* Tokens and their place in the source; the last one is END. */
static zp_fmt_tokens scan_tokens(zp_arena *arena, zp_diags *diags, int source, zp_ints *begins) {
  zp_fmt_tokens tokens = {0};
  zp_scan scan = {.arena = arena, .diags = diags, .source = source, .keep_comments = true};
  const char *text = zp_diags_source_text(diags, source, NULL);
  if (strncmp(text, "\xef\xbb\xbf", 3) == 0) scan.at = 3;
  if (!zp_scan_open(&scan)) return tokens;
  uint32_t before = scan.at;
  int kind;
  do {
    union zp_value value;
    zp_span span;
    kind = zp_scan_raw(&scan, &value, &span);
    zp_fmt_token token = {.kind = kind, .text = text + span.begin, .len = trimmed_length(text, span)};
    token.newlines = tokens.len ? count_newlines(text, before, span.begin) : 0;
    before = span.end;
    if (kind == COMMENT && tokens.len) {
      const zp_fmt_token *last = &tokens.data[tokens.len - 1];
      token.column = column_of(text, span.begin);
      bool behind_code = tokens.len > 1 && last->newlines == 0;
      token.goes_on = last->kind == COMMENT && (last->goes_on || behind_code) && token.newlines == 1 &&
                      token.column == last->column;
    }
    zp_push(arena, &tokens, token);
    zp_push(arena, begins, (int)span.begin);
  } while (kind != END);
  zp_scan_close(&scan);
  return tokens;
}

/* Both lists are in the order of the source; only ends need a search forward. */
static void mark_members(zp_fmt_tokens *tokens, const zp_ints *begins, const members *m) {
  int at = 0;
  for (int i = 0; i < m->list.len; i++) {
    while ((uint32_t)begins->data[at] < m->list.data[i].begin) at++;
    int low = at, high = tokens->len - 1; /* the first token at or after the end; END is */
    while (low < high) {
      int middle = (low + high) / 2;
      if ((uint32_t)begins->data[middle] >= m->list.data[i].end)
        high = middle;
      else
        low = middle + 1;
    }
    tokens->data[at].member = m->list.data[i].kind;
    tokens->data[at].member_end = low;
  }
}

static void match_braces(zp_arena *arena, zp_fmt_tokens *tokens) {
  zp_ints open = {0};
  for (int i = 0; i < tokens->len; i++) {
    if (tokens->data[i].kind == LBRACE)
      zp_push(arena, &open, i);
    else if (tokens->data[i].kind == RBRACE)
      tokens->data[open.data[--open.len]].match = i;
  }
}

static bool ends_operand(const zp_fmt_token *t) {
  return t->word || t->kind == NUMBER || t->kind == STRING || t->kind == RPAREN || t->kind == RBRACKET ||
         t->kind == TRUE || t->kind == FALSE;
}

static void classify(zp_fmt_tokens *tokens) {
  const zp_fmt_token *before = NULL; /* not a comment */
  for (int i = 0; i < tokens->len; i++) {
    zp_fmt_token *t = &tokens->data[i];
    if (t->kind == COMMENT) continue;
    bool keyword = t->kind >= RESERVED && t->kind <= PLAN;
    bool named = (before && before->kind == DOT) || t->member == ZP_MEMBER_ATTR || tokens->data[i + 1].kind == ASSIGN;
    t->word = t->kind == ID || (keyword && named);
    t->unary = t->kind == MINUS && (!before || !ends_operand(before));
    before = t;
  }
}

zp_fmt_tokens zp_fmt_list(zp_arena *arena, zp_diags *diags, const zp_file *file) {
  zp_ints begins = {0};
  zp_fmt_tokens tokens = scan_tokens(arena, diags, file->source, &begins);
  if (tokens.len == 0) return tokens;
  members m = list_members(arena, file);
  mark_members(&tokens, &begins, &m);
  match_braces(arena, &tokens);
  classify(&tokens);
  return tokens;
}

int zp_fmt_blanks(const zp_fmt_token *before, const zp_fmt_token *after) {
  if (after->kind == COMMENT) return 2;
  if (before->kind == LBRACE && after->kind == RBRACE) return 0;
  if (after->member == ZP_MEMBER_ATTR && before->kind != LBRACE) return 2;
  switch (after->kind) {
  case COMMA:
  case COLON:
  case RPAREN:
  case RBRACKET:
  case DOT:
  case RANGE: return 0;
  case LPAREN:
  case LBRACKET:
    if (before->word || before->kind == RPAREN || before->kind == RBRACKET) return 0;
    break;
  default: break;
  }
  switch (before->kind) {
  case LPAREN:
  case LBRACKET:
  case DOT:
  case RANGE:
  case AT: return 0;
  case MINUS: return before->unary ? 0 : 1;
  default: return 1;
  }
}
