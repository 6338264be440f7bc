/* SPDX-License-Identifier: Apache-2.0 */
/* zplan data jsonl, zplan data table: a column of texts as a token file, or as samples of one length; columns of
 * numbers and of labels as arrays alongside them. */
#include "make_data_internal.h"

#include <stdio.h>

enum { MOST_LENGTH = 1 << 20, END_OF_BYTES = 0 /* after a text in bytes; JSON and tables have none in texts */ };

typedef struct maker {
  zp_data_job *job;
  zp_strings columns; /* the texts' first, where there are any */
  zp_texts texts;
  zp_shard_file *shard;    /* NULL: arrays are made */
  zp_columns *arrays;      /* the same rows */
  zp_documents *documents; /* NULL: there are no texts among the arrays */
  int64_t rows, empty;
  bool json;
} maker;

static const char *text_of(maker *m, zp_row_place place, const zp_cell *cell) {
  const char *field = m->job->field;
  switch (cell->kind) {
  case ZP_CELL_TEXT: return cell->text;
  case ZP_CELL_MISSING: zp_bad_row(m->job, place, "there is no field `%s`", field); break;
  case ZP_CELL_EMPTY:
    if (m->json) return ""; /* null */
    zp_bad_row(m->job, place, "`%s` is empty", field);
    break;
  case ZP_CELL_NUMBER:
  case ZP_CELL_OTHER: zp_bad_row(m->job, place, "`%s` is no text", field); break;
  }
  return NULL;
}

static bool add_to_shard(maker *m, zp_row_place place, const char *text) {
  char where[512];
  snprintf(where, sizeof where, "%.480s:%lld", place.path, (long long)place.line);
  if (text[0]) return zp_texts_put(m->job, &m->texts, where, text, strlen(text), zp_shard_put, m->shard);
  m->empty++;
  return true;
}

static bool add_row(void *user, zp_row_place place, const zp_cell *cells) {
  maker *m = user;
  if (m->job->field) {
    const char *text = text_of(m, place, &cells[0]);
    if (!text) return false;
    if (m->shard ? !add_to_shard(m, place, text) : !zp_documents_add(m->documents, place, text)) return false;
  }
  if (!m->shard && !zp_columns_add(m->arrays, place, cells)) return false;
  m->rows++;
  return true;
}

static bool read_files(maker *m) {
  const zp_data_job *o = m->job;
  bool ok = true;
  for (int i = 1; ok && i < o->files.len; i++)
    ok = (m->json ? zp_read_jsonl : zp_read_table)(m->job, o->files.data[i], &m->columns, add_row, m);
  if (ok && m->rows == 0) {
    zp_report(m->job->diags, ZP_Z0810, ZP_NO_SPAN, "%s: there is no row%s", o->files.data[1],
              m->job->rows.bad > 0 ? " that can be read" : "");
    ok = false;
  }
  if (m->job->rows.bad > 0)
    zp_say_line(stderr, "note: %lld rows that cannot be read are left out, the first: %s", (long long)m->job->rows.bad,
                m->job->rows.first_bad);
  if (m->job->rows.mended > 0)
    zp_say_lines(stderr, "note: %lld characters that no text holds (\\u0000, halves of surrogate pairs) are U+FFFD\n",
                 (long long)m->job->rows.mended);
  return ok;
}

static bool make_shard(maker *m) {
  const zp_data_job *o = m->job;
  m->shard = zp_shard_open(m->job, zp_texts_vocabulary(&m->texts), 1);
  if (!m->shard || !zp_shard_close(m->shard, read_files(m))) return false;
  zp_say_lines(stdout, "%s: %lld tokens of %lld texts (%s, vocabulary %lld)\n", o->output,
               (long long)zp_shard_tokens(m->shard), (long long)(m->rows - m->empty),
               o->tokenizer ? o->tokenizer : "bytes", (long long)zp_texts_vocabulary(&m->texts));
  if (m->empty > 0) zp_say_lines(stderr, "note: %lld empty texts are left out\n", (long long)m->empty);
  return true;
}

static bool make_arrays(maker *m) {
  const zp_data_job *o = m->job;
  bool labelled = o->numbers.len + o->labels.len > 0;
  if (o->field) m->documents = zp_documents_open(m->job, &m->texts, labelled);
  zp_out_folder *out = zp_out_open(m->job->arena, m->job->diags, o->output);
  if (!out) return false;
  bool good = read_files(m) && (!m->documents || zp_documents_write(m->documents, out));
  if (!zp_out_close(out, good && zp_columns_write(m->arrays, out))) return false;
  zp_say_lines(stdout, "%s: %lld rows%s%s\n", o->output, (long long)m->rows, o->field ? ", texts in " : "",
               !o->field      ? ""
               : o->tokenizer ? o->tokenizer
                              : "bytes");
  if (m->documents) zp_documents_tell(m->documents);
  zp_columns_tell(m->arrays);
  return true;
}

/* NULL: the words agree. */
static const char *contradiction(const zp_data_job *o) {
  bool columns = o->numbers.len + o->labels.len > 0;
  if (!o->field && !columns) return "say what to read: --field COLUMN for texts, --numbers and --labels for arrays";
  if (o->skip_bad && (o->length || columns || strcmp(o->files.data[0], "jsonl") != 0))
    return "--skip-bad is for `zplan data jsonl` to a token file: rows of arrays belong together";
  if (o->stride) return "--stride is for `zplan data squad`";
  if (!o->field && (o->length || o->tokenizer || o->pack))
    return "--length, --tokenizer and --pack are for texts: --field";
  if (o->field && columns && !o->length) return "texts alongside other columns have one length: --length N";
  if (o->pack && (!o->length || columns)) return "--pack is for texts alone, with --length N";
  if (o->documents && !o->pack) return "--documents is for --pack: else a sample is one document";
  if (o->classes && o->labels.len == 0) return "--classes is for --labels";
  if (o->eod && !o->tokenizer) return "--eod names a token of a tokenizer: say --tokenizer FILE.json, too";
  if (o->length > MOST_LENGTH) return "--length is at most 1048576 tokens";
  return NULL;
}

zp_data_result zp_data_rows(zp_data_job *job) {
  const zp_data_job *o = job;
  maker m = {.job = job, .json = o->files.len > 0 && strcmp(o->files.data[0], "jsonl") == 0};
  if (o->files.len < 2 || !o->output)
    return zp_data_usage(
        job,
        "usage: zplan data jsonl|table FILES... --field COLUMN -o TOKENS.bin [--tokenizer FILE.json [--eod TOKEN]]\n"
        "       zplan data jsonl|table FILES... -o FOLDER [--field COLUMN --length N [--pack "
        "[--documents]]] [--numbers "
        "NAME=COLUMN,...] [--labels NAME=COLUMN [--classes N]]");
  const char *wrong = contradiction(o);
  if (wrong) return zp_data_usage(job, "%s", wrong);
  if (o->field) zp_push(job->arena, &m.columns, o->field);
  m.arrays = zp_columns_open(job, &m.columns);
  if (!m.arrays) return ZP_DATA_USAGE;
  bool ok = zp_texts_open(job, &m.texts);
  if (ok && !o->tokenizer && !(o->numbers.len + o->labels.len)) m.texts.eod = END_OF_BYTES;
  ok = ok && (o->field && !o->length ? make_shard(&m) : make_arrays(&m));
  zp_texts_close(&m.texts);
  if (ok) return ZP_DATA_MADE;
  return ZP_DATA_FAILED;
}
