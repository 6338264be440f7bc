/* Private to this folder: the parts of a tokenizer. */
#ifndef ZPLAN_TOKENIZE_H
#define ZPLAN_TOKENIZE_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <zplan/json.h>
#include <zplan/tokenizer.h>
#include <zplan/vec.h>

/* ---- vocabulary.c ---- */

typedef struct token_text {
  const char *text; /* in the alphabet of bytes; NULL: empty slot */
  size_t len;
  int32_t id;
} token_text;

/* Hash table of token texts. */
typedef struct vocabulary {
  token_text *slots;
  uint64_t mask;
} vocabulary;

void vocabulary_init(vocabulary *v, zp_arena *arena, int64_t tokens);
void vocabulary_add(vocabulary *v, const char *text, size_t len, int32_t id); /* text is borrowed */
int32_t vocabulary_find(const vocabulary *v, const char *text, size_t len);   /* -1: none */

/* A byte as it is written in tokens: printable bytes of Latin-1 as themselves, the others from U+0100 on, in UTF-8.
 * Returns its length, 1 or 2. (openai/gpt-2, src/encoder.py) */
int byte_text(unsigned char byte, char out[2]);

/* ---- merge.c ---- */

typedef struct merge_rule {
  int32_t left, right; /* ids */
  int32_t rank;        /* the order in which rules apply; -1: empty slot */
  int32_t id;          /* of both together */
} merge_rule;

enum { CACHED_BYTES = 24, CACHED_WORDS = 1 << 15 };

/* Words that came lately, one a slot: most words of a text are few. */
typedef struct cached_word {
  uint8_t len, n; /* len 0: empty slot */
  char bytes[CACHED_BYTES];
  int32_t ids[CACHED_BYTES];
} cached_word;

typedef struct symbol {
  int32_t id;
  int before, after; /* neighbours in the word, -1 at its ends */
} symbol;

typedef struct candidate {
  int32_t rank, id;
  int left; /* symbols[left] and the one after it */
} candidate;

typedef struct merger {
  zp_arena *arena;
  int32_t of_byte[256];
  merge_rule *rules;
  uint64_t mask;
  const vocabulary *whole; /* a word that is a token is that token, whatever the rules; NULL: rules only */
  cached_word *cache;
  ZP_VEC(symbol) symbols;
  ZP_VEC(candidate) heap; /* least rank first, then leftmost */
  ZP_VEC(int32_t) ids;
  ZP_VEC(char) written; /* the word in the alphabet of bytes */
} merger;

void merger_init(merger *m, zp_arena *arena, int rules);
void merger_add(merger *m, merge_rule rule);
/* Ids of a word, at most one a byte; valid until the next call. */
const int32_t *merge_word(merger *m, const char *word, int len, int *n);

/* ---- split.c ---- */

/* A pattern whose matches, and what lies between them, become pieces of their own. */
typedef struct splitter {
  pcre2_code *code;
  pcre2_match_data *match;
} splitter;

/* False and a message (arena) when the pattern is none. */
bool splitter_init(splitter *s, zp_arena *arena, const char *pattern, size_t len, bool literal, const char **error);
void splitter_free(splitter *s);
/* The next match at or after `from`: 1 with [*begin, *end), 0 for none, below 0 an error of PCRE2. Empty matches are
 * passed over. */
int splitter_next(splitter *s, const char *text, size_t len, size_t from, size_t *begin, size_t *end);
const char *splitter_error(zp_arena *arena, int code);

/* ---- tokenizer.c ---- */

typedef struct added_token {
  const char *content;
  size_t len;
  int32_t id;
} added_token;

enum { MOST_STAGES = 8 };

struct zp_tokenizer {
  zp_arena *arena;
  vocabulary vocabulary;
  merger merger;
  ZP_VEC(added_token) added; /* longest first */
  splitter find_added;       /* code NULL: there are none */
  splitter stages[MOST_STAGES];
  int n_stages;
  int64_t largest_id;
};

#endif
