/* SPDX-License-Identifier: Apache-2.0 */
/* zplan data: texts, rows of JSON lines and tables, pairs of sentences, questions; to token files and arrays that a
 * trainer reads. Outputs appear whole or not at all. */
#ifndef ZPLAN_MAKE_DATA_H
#define ZPLAN_MAKE_DATA_H

#include <zplan/diag.h>
#include <zplan/vec.h>

typedef enum zp_data_result {
  ZP_DATA_MADE,
  ZP_DATA_FAILED, /* diagnostics say why */
  ZP_DATA_USAGE,  /* the words contradict each other: zp_data_job.usage */
} zp_data_result;

/* What to make of which files. Strings are borrowed; NULL and 0: not given. */
typedef struct zp_data_job {
  zp_arena *arena;
  zp_diags *diags;
  zp_strings files; /* the form's name (jsonl, table, pairs, squad) first, unless texts become tokens */
  const char *output;
  const char *tokenizer, *eod;
  const char *field;          /* jsonl, table: the column of texts */
  zp_strings numbers, labels; /* jsonl, table: NAME=COLUMN,... */
  int64_t classes;            /* jsonl, table: labels are below */
  int64_t length, stride;     /* tokens of a sample; squad: from window to window */
  int64_t copies, seed;       /* pairs: how often the texts are read */
  bool unmasked;              /* pairs: the trainer masks */
  bool pack, documents;       /* jsonl, table: whole texts share samples; they do not see each other */
  bool skip_bad;              /* jsonl: leave out rows that cannot be read */
  bool force;                 /* replace a file that is no token file */

  /* Results. */
  const char *usage;
  struct {
    int64_t mended, bad;         /* characters replaced; rows left out */
    const char *why, *first_bad; /* why the last bad row is one; the first that was left out */
  } rows;
} zp_data_job;

/* Makes the data; prints one line about it to stdout, notes to stderr. */
zp_data_result zp_make_data(zp_data_job *job);

#endif
