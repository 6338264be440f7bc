/* SPDX-License-Identifier: Apache-2.0 */
/* The reference of the language: every key of its blocks, every call that stands as a value, every operation with its
 * arguments. It is made of the tables that read them, so it says what they do. `zplan explain WORD`, docs/reference,
 * zplan.1 and editors show it. */
#ifndef ZPLAN_REFERENCE_H
#define ZPLAN_REFERENCE_H

#include <zplan/buf.h>
#include <zplan/vec.h>

typedef enum zp_reference_kind {
  ZP_REFERENCE_BLOCK,     /* `train { ... }` */
  ZP_REFERENCE_CALL,      /* `adamw(...)`, the value of a key */
  ZP_REFERENCE_OPERATION, /* `attention(...)` in a model */
} zp_reference_kind;

/* A key of a block, or an argument. Texts are static or of the arena; none is NULL unless it says so. */
typedef struct zp_reference_row {
  const char *key;
  const char *type;    /* "whole number", "word", "size" */
  const char *unless;  /* what holds where it is not written: a value, or in words: "required", "no clipping" */
  const char *range;   /* "1 or more", the words; empty: no limit but the type */
  const char *meaning; /* a phrase */
  const char *example; /* as it is written: `batch = 16`; of an operand its name */
  const char *written; /* the value of `unless` as it may be written: `every = 1`; NULL: there is none */
  const char *outside; /* what is refused: `batch = 0`; NULL: of an operand */
} zp_reference_row;
typedef ZP_VEC(zp_reference_row) zp_reference_rows;

/* A block, a call or an operation. */
typedef struct zp_reference_page {
  const char *name;   /* "train", "adamw", "attention" */
  const char *within; /* where it stands: "train" of "checkpoint", "train.optimizer" of "adamw"; empty: by itself */
  zp_reference_kind kind;
  const char *meaning, *example;
  zp_reference_rows rows;
} zp_reference_page;
typedef ZP_VEC(zp_reference_page) zp_reference_pages;

/* All pages, blocks before calls before operations. Arena. */
zp_reference_pages zp_reference(zp_arena *arena);
/* What a word means, as text for a terminal or an editor: a page ("attention"), or rows ("batch", "train.batch",
 * "attention.heads"; several where several pages have such a key). NULL: no word of the language. Arena. */
const char *zp_reference_find(zp_arena *arena, const char *word);
/* Words that it would find, for somebody who mistyped one. Arena. */
zp_strings zp_reference_words(zp_arena *arena);

/* Words from column `at` on, broken before column 80, and the end of the line. */
void zp_put_wrapped(zp_buf *out, int at, const char *text);

/* ---- for pages and completion ---- */
/* With its first letter a capital. Arena. */
const char *zp_as_sentence(zp_arena *arena, const char *text);
/* All pages of a kind as Markdown, a table each. */
void zp_reference_markdown(zp_buf *out, const zp_reference_pages *pages, zp_reference_kind kind);

#endif
