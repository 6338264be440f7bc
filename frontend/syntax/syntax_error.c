/* SPDX-License-Identifier: Apache-2.0 */
/* "expected X, found Y": turns the set of possible tokens into a few words, and guesses what was meant. */
#include "dz_parser.h"

#include "syntax_error.h"

#include <zplan/buf.h>

enum { MAX_ALTERNATIVES = 5, LONGEST_QUOTE = 40 };

static bool has(const zp_expected *e, int token) { return e->token[token - FIRST_TOKEN]; }

static void drop(zp_expected *e, int first, int last) {
  for (int token = first; token <= last; token++) e->token[token - FIRST_TOKEN] = false;
}

/* What a message quotes of the source. */
static const char *source_text(const zp_feed *feed, zp_span span) {
  const char *text = zp_diags_source_text(feed->scan.diags, span.file, NULL);
  uint32_t len = span.end - span.begin;
  if (len > LONGEST_QUOTE) return zp_format(feed->scan.arena, "%.*s...", LONGEST_QUOTE, text + span.begin);
  return zp_strndup(feed->scan.arena, text + span.begin, len);
}

/* Keywords that may serve as names; `in`, `and`, `or`, `not`, `true` and `false` never do. */
static void drop_words(zp_expected *e) { drop(e, ID, PLAN); }

/* What can follow every operand goes without saying. */
static void drop_operators(zp_expected *e) {
  drop(e, EQ, PERCENT);
  drop(e, DOT, RANGE);
  drop(e, LPAREN, LPAREN);
  drop(e, LBRACKET, LBRACKET);
  drop(e, IN, IN);
  drop(e, AND, OR);
}

static void drop_operands(zp_expected *e) {
  drop_words(e);
  drop(e, NUMBER, STRING);
  drop(e, LPAREN, LPAREN);
  drop(e, LBRACKET, LBRACKET);
  drop(e, MINUS, MINUS);
}

/* What follows the key of an attribute. */
static void drop_key_operators(zp_expected *e) {
  drop(e, ASSIGN, GE);
  drop(e, IN, IN);
  drop(e, DOT, DOT);
  drop(e, LBRACKET, LBRACKET);
  drop(e, STRING, STRING);
}

/* Replaces groups of tokens by one phrase for each, in `said`; what is left in the set is listed token by token. */
static void summarize(zp_expected *e, zp_strings *said, zp_arena *arena) {
  bool operand = has(e, NUMBER) && has(e, LPAREN) && has(e, MINUS);
  bool words = has(e, ID) && has(e, RESERVED), closes = has(e, RBRACE);
  if (has(e, PLUS)) drop_operators(e);
  if (operand) {
    drop_operands(e);
    zp_push(arena, said, "an expression");
  } else if (words) {
    drop_words(e);
    zp_push(arena, said, closes ? "a key" : "a name");
  } else if (has(e, INPUT) && has(e, RETURN)) {
    drop_words(e);
    drop(e, AT, AT);
    zp_push(arena, said, "a statement");
  } else if (has(e, USE) && has(e, MODEL)) {
    drop_words(e);
    drop(e, DOT, DOT);
    zp_push(arena, said, "a declaration (use, let, block, model, device, node, cluster, fabric, train, plan)");
  }
  if (has(e, ASSIGN) && has(e, LE) && has(e, GE)) {
    drop_key_operators(e);
    zp_push(arena, said, "an operator (`=`, `<=`, `in`, ...)");
  }
}

/* Kinds of tokens are named, texts are quoted. */
static const char *token_words(zp_arena *arena, int token) {
  const char *name = zp_token_name(token);
  if (token == ID) return "a name";
  if (token == NUMBER || token == STRING) return zp_format(arena, "a %s", name);
  return zp_format(arena, "`%s`", name);
}

static const char *expected_words(zp_feed *feed, const zp_expected *expected) {
  zp_arena *arena = feed->scan.arena;
  zp_expected rest = *expected;
  zp_strings said = {0};
  summarize(&rest, &said, arena);
  /* The closing bracket of the innermost open one is the most likely thing to be missing: name it first. */
  for (int token = LAST_TOKEN; token >= FIRST_TOKEN; token--)
    if (has(&rest, token) && token != COMMENT && token != SYNC) zp_push(arena, &said, token_words(arena, token));
  if (said.len == 0) return "the end of the input";
  int shown = said.len < MAX_ALTERNATIVES ? said.len : MAX_ALTERNATIVES;
  zp_buf words = zp_buf_new(arena);
  for (int i = 0; i < shown; i++)
    zp_buf_printf(&words, "%s%s", i == 0 ? "" : i + 1 == shown ? " or " : ", ", said.data[i]);
  return words.data;
}

static const char *found_words(const zp_feed *feed) {
  zp_arena *arena = feed->scan.arena;
  const zp_token *found = &feed->last;
  if (found->kind == END) return feed->file ? "the end of the file" : "the end of the setting";
  const char *text = source_text(feed, found->span);
  if (found->kind == STRING) return "a string";
  if (found->kind == RESERVED) return zp_format(arena, "the reserved word `%s`", text);
  if (found->kind == ID) return zp_format(arena, "`%s`", text);
  if (found->kind >= USE && found->kind <= PLAN) return zp_format(arena, "the keyword `%s`", text);
  return zp_format(arena, "`%s`", text);
}

/* Words of other languages for ours. */
static const char *const foreign_words[][2] = {
    {"def", "block"},    {"func", "block"},     {"fn", "block"},       {"function", "block"},  {"class", "model"},
    {"for", "repeat"},   {"while", "repeat"},   {"import", "use"},     {"include", "use"},     {"from", "use"},
    {"var", "let"},      {"const", "let"},      {"training", "train"}, {"parameter", "param"}, {"weight", "param"},
    {"elif", "else if"}, {"elseif", "else if"},
};

static const char *foreign_word(const char *word) {
  for (size_t i = 0; i < sizeof foreign_words / sizeof *foreign_words; i++)
    if (strcmp(foreign_words[i][0], word) == 0) return foreign_words[i][1];
  return NULL;
}

/* Suggests a keyword for `word` when one is near that `allowed` holds (NULL: any). */
static bool suggest_keyword(zp_feed *feed, zp_diag *diag, const char *word, const zp_expected *allowed) {
  zp_strings candidates = {0};
  for (int token = USE; token <= PLAN; token++)
    if (!allowed || has(allowed, token)) zp_push(feed->scan.arena, &candidates, zp_token_name(token));
  if (zp_diag_did_you_mean(diag, word, candidates.data, candidates.len)) return true;
  const char *ours = foreign_word(word);
  if (ours) zp_diag_help(diag, "did you mean `%s`? `%s` is no keyword here", ours, word);
  return ours != NULL;
}

/* A misspelled keyword: either the found word itself, or the word before it, which was then taken for a name. */
static bool explain_misspelling(zp_feed *feed, zp_diag *diag, const zp_expected *e) {
  if (feed->last.kind == ID && suggest_keyword(feed, diag, source_text(feed, feed->last.span), e)) return true;
  bool was_name = feed->before_last.kind == ID && has(e, ASSIGN) && !has(e, LE);
  if (!was_name || (feed->last.kind != ID && feed->last.kind != LBRACE)) return false;
  const char *word = source_text(feed, feed->before_last.span);
  if (!suggest_keyword(feed, diag, word, NULL)) return false;
  zp_diag_also(diag, feed->before_last.span, "taken for a name");
  return true;
}

/* What follows the wrong token in the file. */
static const char *source_after(const zp_feed *feed) {
  return zp_diags_source_text(feed->scan.diags, feed->last.span.file, NULL) + feed->last.span.end;
}

/* Is the comma one of 1,024? */
static bool groups_digits(const zp_feed *feed) {
  const char *after = source_after(feed);
  return feed->before_last.kind == NUMBER && feed->before_last.span.end == feed->last.span.begin &&
         strspn(after, "0123456789") == 3;
}

/* What people mean by a token that is often wrong in the same way. */
static void explain_token(zp_feed *feed, zp_diag *diag, const zp_expected *e) {
  int found = feed->last.kind;
  bool key_place = has(e, RESERVED) && has(e, RBRACE), operand = has(e, NUMBER) && has(e, MINUS);
  if (found == ASSIGN && has(e, EQ))
    zp_diag_help(diag, "`==` compares");
  else if (found == COLON && has(e, ASSIGN))
    zp_diag_help(diag, "write `=`");
  else if (found == ASSIGN && has(e, COLON))
    zp_diag_help(diag, "a declaration needs a type: `name: [B, S]`");
  else if (found == COMMA && key_place && groups_digits(feed))
    zp_diag_help(diag, "digits are not grouped: write 300000, or 3e5");
  else if (found == COMMA && key_place)
    zp_diag_help(diag, "attributes need no separator: remove the comma");
  else if (found == COMMA && has(e, RPAREN) && !has(e, COMMA))
    zp_diag_help(diag, "a list is written in brackets: [0.9, 0.95]");
  else if (found == DOT && source_after(feed)[0] == 'T')
    zp_diag_help(diag, "a product with a transposed tensor is matmul(a, transpose(b))");
  else if (found == AT)
    zp_diag_help(diag, "a product of matrices is matmul(a, b)");
  else if (found == LBRACE && feed->last.span.begin == 0)
    zp_diag_help(diag, "is it JSON? This reads .dz files; plan files are for report, verify, explain, run, ...");
  else if (found == DOT && operand)
    zp_diag_help(diag, "write a digit before the point, as in 0.5");
  else if (found == RBRACE && !feed->open.len)
    zp_diag_note(diag, "no `{` is open here");
  else if (found == RESERVED && has(e, ID))
    zp_diag_note(diag, "`state`, `test` and `sweep` are reserved for later");
  else if (found >= USE && found <= PLAN && has(e, ID) && !has(e, found) && !operand)
    zp_diag_note(diag, "a keyword cannot be a name");
}

static bool same_line(const zp_feed *feed, zp_span a, zp_span b) {
  const char *text = zp_diags_source_text(feed->scan.diags, a.file, NULL);
  return !memchr(text + a.end, '\n', b.begin - a.end);
}

/* Points to the bracket whose partner is missing. True when that explains the error. */
static bool explain_bracket(zp_feed *feed, zp_diag *diag, const zp_expected *e) {
  const zp_bracket *open = zp_feed_open_bracket(feed);
  if (!open) return false;
  bool closes = has(e, open->open == '(' ? RPAREN : open->open == '[' ? RBRACKET : RBRACE);
  int found = feed->last.kind;
  if (found == COMMA && has(e, RPAREN) && !has(e, COMMA)) return false; /* explain_token knows better */
  if (found == AT) return false;
  bool declares =
      found == USE || found == LET || found == BLOCK || found == MODEL || (found >= DEVICE && found <= PLAN);
  bool outer = found == END || (open->open == '{' ? declares : true);
  if (!closes || !outer) return false;
  zp_diag_also(diag, open->span, "to match this `%c`", open->open);
  return true;
}

/* Where a closing bracket is missing at the end of a line, the caret belongs there and not on the next line. */
static zp_span best_place(const zp_feed *feed, const zp_expected *e) {
  zp_span found = feed->last.span, before = feed->before_last.span;
  if (feed->before_last.kind <= 0 || same_line(feed, before, found)) return found;
  const zp_bracket *open = zp_feed_open_bracket(feed);
  bool closer_missing = open && open->open != '{' && has(e, open->open == '(' ? RPAREN : RBRACKET);
  if (!closer_missing && feed->last.kind != END) return found;
  return (zp_span){before.file, before.end, before.end};
}

void zp_syntax_error(zp_feed *feed, const zp_expected *expected) {
  int64_t begin = feed->last.span.begin, before = feed->before_last.span.end;
  /* The last recovery ended here, or the scanner has complained of this token or of what it skipped before it. */
  bool known = feed->synced == begin || (feed->scan.reported >= before && feed->scan.reported <= begin);
  if (!known && !feed->fatal) {
    feed->scan.errors++;
    zp_diag *diag = zp_report(feed->scan.diags, ZP_Z0101, best_place(feed, expected), "expected %s, found %s",
                              expected_words(feed, expected), found_words(feed));
    bool explained = explain_misspelling(feed, diag, expected);
    explained |= explain_bracket(feed, diag, expected);
    if (!explained) explain_token(feed, diag, expected);
  }
  zp_feed_panic(feed);
}
