/* SPDX-License-Identifier: Apache-2.0 */
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

/* ---- cache.c ---- */

enum { CACHED_BYTES = 24, CACHED_WORDS = 1 << 15 };

/* Words that came lately, one a slot: most words of a text are few. */
typedef struct cached_word {
  uint8_t len, n; /* len 0: empty slot */
  char bytes[CACHED_BYTES];
  int32_t ids[CACHED_BYTES];
} cached_word;

typedef struct word_cache {
  cached_word *slots; /* CACHED_WORDS */
} word_cache;

void cache_init(word_cache *c, zp_arena *arena);
/* NULL: it is not there. */
const int32_t *cache_find(const word_cache *c, const char *word, int len, int *n);
void cache_keep(word_cache *c, const char *word, int len, const int32_t *ids, int n); /* at most one id a byte */

/* ---- alphabet.c ---- */

/* What a character becomes that is no token: the tokens <0x00> to <0xFF> of its bytes, or the unknown token. */
typedef struct fallback {
  bool bytes;
  int32_t of_byte[256];
  int32_t unknown; /* -1: there is none, the text is refused */
  bool fuse;       /* several in a row are one */
} fallback;

/* All 256 tokens of bytes, or false and how many there are. */
bool fallback_find_bytes(fallback *f, const vocabulary *v, int *found);
/* Bytes of the UTF-8 character that the byte begins; 1 for others. */
int character_bytes(unsigned char first);

/* ---- merge.c ---- */

typedef struct merge_rule {
  int32_t left, right; /* ids */
  int32_t rank;        /* the order in which rules apply; -1: empty slot */
  int32_t id;          /* of both together */
} merge_rule;

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
  int32_t of_byte[256];         /* byte-level: where every word begins */
  const vocabulary *characters; /* or, not NULL, a word begins as its characters; others are the fallback's */
  fallback other;
  merge_rule *rules;
  uint64_t mask;
  const vocabulary *whole; /* a word that is a token is that token, whatever the rules; NULL: rules only */
  word_cache cache;
  ZP_VEC(symbol) symbols;
  ZP_VEC(candidate) heap; /* least rank first, then leftmost */
  ZP_VEC(int32_t) ids;
  ZP_VEC(char) written; /* the word in the alphabet of bytes */
} merger;

void merger_init(merger *m, zp_arena *arena, int rules);
void merger_add(merger *m, merge_rule rule);
/* Ids of a word, at most one a byte; valid until the next call. NULL: *n is the position of a character that is no
 * token. */
const int32_t *merge_word(merger *m, const char *word, int len, int *n);

/* ---- unigram.c ---- */

typedef struct piece {
  const char *text; /* borrowed */
  int len;
  int32_t id;
  double score; /* logarithm of its probability */
} piece;

typedef struct best_end {
  double score; /* of the best pieces up to here */
  int begin;    /* of the last of them; -1: none ends here */
  int32_t id;
} best_end;

typedef struct unigram {
  zp_arena *arena;
  ZP_VEC(piece) pieces; /* sorted by text; of equal texts the last counts */
  int first_of[257];    /* pieces by their first byte */
  double unknown_score;
  fallback other;
  word_cache cache;
  ZP_VEC(best_end) best;
  ZP_VEC(int32_t) ids;
} unigram;

/* After the pieces were pushed. */
void unigram_sort(unigram *u);
/* As merge_word: the pieces with the greatest sum of scores. */
const int32_t *unigram_word(unigram *u, const char *word, int len, int *n);

/* ---- wordpiece.c ---- */

typedef struct wordpiece {
  zp_arena *arena;
  const vocabulary *vocabulary;
  const char *prefix; /* of tokens that do not begin a word */
  int32_t unknown;
  int64_t most_characters; /* of a word; longer ones are unknown */
  ZP_VEC(int32_t) ids;
  ZP_VEC(int) ends; /* of every token in the word */
  ZP_VEC(char) key;
} wordpiece;

/* As merge_word; every word has ids, and `ends` is of the last one. */
const int32_t *wordpiece_word(wordpiece *p, const char *word, int len, int *n);

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

/* ---- charsmap.c ---- */

typedef ZP_VEC(char) characters;

/* SentencePiece's own normalization: a double-array trie from byte strings to replacements. */
typedef struct charsmap {
  const uint32_t *units;
  size_t n_units;
  const char *replacements; /* each ends with a NUL */
  size_t n_replacements;
} charsmap;

/* `base64` as in the file. False: it is none. */
bool charsmap_read(charsmap *m, zp_arena *arena, const char *base64);

/* Appends to `out`. False: the map is damaged. */
bool charsmap_apply(const charsmap *m, zp_arena *arena, const char *text, size_t len, characters *out);

/* ---- bert_text.c: each appends to `out` ---- */
void bert_clean(const char *text, size_t len, zp_arena *arena, characters *out);
void bert_separate(const char *text, size_t len, zp_arena *arena, characters *out);      /* spaces around ideographs */
void bert_strip_accents(const char *text, size_t len, zp_arena *arena, characters *out); /* of text in NFD */

/* ---- normalize.c ---- */

typedef enum normal_kind {
  TO_FORM,
  TO_LOWER,
  PREPEND,
  REPLACE,
  STRIP,
  BY_CHARSMAP,
  CLEAN,
  SEPARATE,
  STRIP_ACCENTS
} normal_kind;

/* One normalizer of the file. */
typedef struct normal_step {
  normal_kind kind;
  const char *form; /* TO_FORM: "NFC" */
  splitter pattern; /* REPLACE */
  const char *text; /* PREPEND, REPLACE: what is put */
  size_t len;
  bool left, right; /* STRIP */
  charsmap map;     /* BY_CHARSMAP */
} normal_step;

bool is_form(const char *name);
/* *text and *len go through one step, into `out` if they change. False with *error (arena). */
bool normalize_step(const normal_step *step, zp_arena *arena, const char **text, size_t *len, characters *out,
                    const char **error);

/* ---- tokenizer.c ---- */

/* Position of the first byte that is no UTF-8 (RFC 3629: no surrogates, nothing above U+10FFFF, shortest form); len if
 * there is none. */
size_t find_not_utf8(const unsigned char *s, size_t len);

typedef struct added_token {
  const char *name;    /* as in the file */
  const char *content; /* what is looked for: of normalized text the name through the normalizers */
  size_t len;
  int32_t id;
} added_token;

typedef struct added_tokens {
  ZP_VEC(added_token) tokens; /* longest first */
  splitter find;              /* code NULL: there are none */
} added_tokens;

/* What cuts a text into words, one after the other. */
typedef enum stage_kind {
  ISOLATE, /* matches, and what lies between them */
  REMOVE,  /* what lies between matches */
  MARK     /* spaces become a mark, which begins a word (SentencePiece; `Metaspace`) */
} stage_kind;

typedef struct stage {
  stage_kind kind;
  splitter pattern;                      /* ISOLATE, REMOVE */
  const char *mark;                      /* MARK: U+2581 usually */
  enum { NEVER, FIRST, ALWAYS } prepend; /* a mark before the first word of the text, or of every piece */
  bool split;                            /* at marks */
  characters marked;
} stage;

enum { MOST_STAGES = 8, MOST_NORMALIZERS = 16 };

typedef enum model_kind { BY_RULES, BY_SCORES, BY_LONGEST } model_kind; /* BPE, unigram, WordPiece */

struct zp_tokenizer {
  zp_arena *arena;
  vocabulary vocabulary;
  model_kind kind;
  merger merger;
  unigram unigram;
  wordpiece wordpiece;
  added_tokens raw, normal; /* found before, and after the normalizers */
  normal_step normalizers[MOST_NORMALIZERS];
  int n_normalizers;
  characters normalized[2]; /* each step reads one and writes the other */
  stage stages[MOST_STAGES];
  int n_stages;
  int64_t largest_id;
};

/* Through all normalizers: the text itself where there are none, else a place that is valid until the next call. */
bool normalize(zp_tokenizer *t, const char **text, size_t *len, const char **error);

/* ---- places.c ---- */

/* Which bytes of the text every byte of its normalized form is from. */
typedef struct places {
  const char *text;   /* the whole of it */
  const char *normal; /* the part in work, normalized */
  ZP_VEC(int32_t) begin, end;
  characters one[2];
  zp_token_places *out;
} places;

/* Finds them for the part of the text that begins at `begin`. False with *error where characters are changed
 * together. */
bool places_find(zp_tokenizer *t, places *p, const char *text, size_t begin, size_t len, const char *normal,
                 size_t normal_len, const char **error);

/* ---- read.c: shared by its parts ---- */

typedef struct reader {
  zp_diags *diags;
  const char *path;
  zp_tokenizer *t;
  bool byte_level;
} reader;

bool malformed(reader *r, const char *what); /* Z0806; false */
bool refuse(reader *r, const char *what);    /* Z0807; false */
const char *name_in(reader *r, const char *format, const char *what);
bool is_said(const zp_json *object, const char *key); /* there, and neither null nor "" */

bool read_id(const zp_json *value, int32_t *id);
void use_id(zp_tokenizer *t, int32_t id);
/* ---- read_steps.c: before read_model.c ---- */
bool read_normalizer(reader *r, const zp_json *step);
bool read_words(reader *r, const zp_json *step); /* `pre_tokenizer`; sets byte_level */
bool add_pattern(reader *r, stage_kind kind, const char *pattern, bool literal);
/* ---- read_model.c ---- */
bool read_model(reader *r, const zp_json *model);

#endif
