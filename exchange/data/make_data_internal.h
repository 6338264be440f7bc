/* SPDX-License-Identifier: Apache-2.0 */
/* Private: what the forms of data share: token files and arrays that appear whole or not at all, tokens of texts, also
 * with those around them that BERT reads, rows of JSON lines and tables. */
#ifndef ZPLAN_MAKE_DATA_INTERNAL_H
#define ZPLAN_MAKE_DATA_INTERNAL_H

#include <zplan/buf.h>
#include <zplan/make_data.h>
#include <zplan/quote.h>
#include <zplan/out_folder.h>
#include <zplan/tokenizer.h>

enum { ZP_BYTE_VOCABULARY = 256 };
typedef ZP_VEC(int32_t) zp_ids;

/* ---- texts to tokens (texts.c) ---- */
typedef struct zp_texts {
  zp_tokenizer *tokenizer; /* NULL: a byte is a token */
  int32_t eod;             /* after every text; -1: nothing */
} zp_texts;
/* --tokenizer and --eod. False after reporting. */
bool zp_texts_open(zp_data_job *job, zp_texts *texts);
void zp_texts_close(zp_texts *texts);
int64_t zp_texts_vocabulary(const zp_texts *texts);
/* Calls on_tokens for the tokens of a text and for its end. place: "notes.txt", "notes.jsonl:12". False after
 * reporting, or when on_tokens said so. */
bool zp_texts_put(zp_data_job *job, const zp_texts *texts, const char *place, const char *text, size_t len,
                  zp_on_tokens *on_tokens, void *user);

/* ---- llm.c's shards (shard_file.c) ---- */
typedef struct zp_shard_file zp_shard_file;
/* The file of -o, for ids below `vocabulary`; NULL after reporting. Its inputs are the words from `first_input` on. */
zp_shard_file *zp_shard_open(zp_data_job *job, int64_t vocabulary, int first_input);
bool zp_shard_put(void *shard, const int32_t *ids, int n); /* a zp_on_tokens */
/* good: everything was put. Puts it in the target's place, or leaves nothing behind; is it there? */
bool zp_shard_close(zp_shard_file *shard, bool good);
int64_t zp_shard_tokens(const zp_shard_file *shard);

/* ---- arrays of NumPy (npy_file.c) ---- */
/* NAME.npy of 4-byte elements, "i4" or "f4"; columns 0: of one dimension. Errors are reported. */
bool zp_npy_write(zp_out_folder *out, const char *name, const char *type, int64_t rows, int64_t columns,
                  const void *data);

/* ---- rows (read_jsonl.c, read_table.c) ---- */
typedef enum zp_cell_kind {
  ZP_CELL_MISSING, /* there is no such field */
  ZP_CELL_EMPTY,   /* null; in a table nothing, or spaces */
  ZP_CELL_TEXT,
  ZP_CELL_NUMBER, /* true and false are 1 and 0 */
  ZP_CELL_OTHER,  /* a list, an object */
} zp_cell_kind;
typedef struct zp_cell {
  zp_cell_kind kind;
  const char *text; /* ends with a zero; of numbers as written where the row is one of a table, else NULL */
  double number;
} zp_cell;
typedef struct zp_row_place {
  const char *path;
  int64_t line;
} zp_row_place;
/* cells[i]: of column i; borrowed. False stops. */
typedef bool zp_on_row(void *user, zp_row_place place, const zp_cell *cells);
/* A JSON object a line; empty lines are none. "a.b" is the field `a.b`, or else `b` of `a`. */
bool zp_read_jsonl(zp_data_job *job, const char *path, const zp_strings *columns, zp_on_row *on_row, void *user);
/* Comma-separated values (RFC 4180), or with tabs where the name ends in .tsv; the first line names the columns. */
bool zp_read_table(zp_data_job *job, const char *path, const zp_strings *columns, zp_on_row *on_row, void *user);
/* error[Z0810]: FILE:LINE: ...; returns the diagnostic, for a help. */
zp_diag *zp_bad_row(zp_data_job *job, zp_row_place place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- what is made of rows ---- */
/* Arrays of columns (columns.c): --numbers NAME=A,B,C and --labels NAME=D. */
typedef struct zp_columns zp_columns;
/* Adds the columns that it reads; NULL after a usage error. */
zp_columns *zp_columns_open(zp_data_job *job, zp_strings *columns);
bool zp_columns_add(zp_columns *columns, zp_row_place place, const zp_cell *cells);
bool zp_columns_write(zp_columns *columns, zp_out_folder *out);
void zp_columns_tell(const zp_columns *columns);
/* Texts as samples of one length (documents.c). */
typedef struct zp_documents zp_documents;
/* labelled: a text is a sample, alongside whose tokens there are other labels. */
zp_documents *zp_documents_open(zp_data_job *job, const zp_texts *texts, bool labelled);
bool zp_documents_add(zp_documents *documents, zp_row_place place, const char *text);
bool zp_documents_write(zp_documents *documents, zp_out_folder *out);
void zp_documents_tell(const zp_documents *documents);

/* ---- tokens around texts (marks.c) ---- */
/* [CLS], [SEP] and [MASK], or <s>, </s> and <mask>: added tokens of the tokenizer. Without one bytes are the first 256
 * ids, and these three follow. */
typedef struct zp_marks {
  zp_tokenizer *tokenizer; /* NULL: a byte is a token */
  const zp_decoder *decoder;
  int32_t cls, sep, mask; /* mask -1: there is none */
} zp_marks;
/* --tokenizer. False after reporting, also where [CLS] or [SEP] is missing. */
bool zp_marks_open(zp_data_job *job, zp_marks *marks);
void zp_marks_close(zp_marks *marks);
int64_t zp_marks_vocabulary(const zp_marks *marks);

/* ---- the forms ---- */
zp_data_result zp_data_tokens(zp_data_job *job); /* tokens.c */
zp_data_result zp_data_squad(zp_data_job *job);  /* squad.c */
zp_data_result zp_data_rows(zp_data_job *job);   /* rows.c */
zp_data_result zp_data_pairs(zp_data_job *job);  /* pairs.c */
/* Sets job->usage; returns ZP_DATA_USAGE (forms.c). */
zp_data_result zp_data_usage(zp_data_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
