/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as samples of one length, for models that read `tokens` and `lengths`: arrays tokens.npy and lengths.npy, and
 * labels.npy, the tokens that follow, where a text is not labelled as a whole.
 *
 * A labelled text is one sample, cut where it is longer. Others begin a sample each, and a longer one goes on in the
 * next; or, packed, texts share samples: in their order, and what is not longer than a sample is never cut, so that it
 * begins the next one where the rest of this one is too short for it (next fit). After a text inside a sample follows
 * the next one, which its last label says; attention sees across. Or, with --documents, texts are apart: the last label
 * of each is -1, and documents.npy and positions.npy say which text of its sample a position is of, from 0 on, and
 * which position it has there. What is left of a sample has tokens 0, labels and documents -1, and positions 0. */
#include "make_data_internal.h"

#include <stdio.h>

struct zp_documents {
  zp_data_job *job;
  const zp_texts *texts;
  int64_t length;
  bool labelled, packs, apart;
  zp_ids text;                    /* tokens of the current one */
  zp_ids tokens, labels, lengths; /* of all samples; the last one is open while it has room */
  zp_ids documents, positions;    /* likewise */
  int64_t open, begun;            /* tokens and texts of the open sample; 0: there is none */
  int64_t count, cut, empty, all;
};

zp_documents *zp_documents_open(zp_data_job *job, const zp_texts *texts, bool labelled) {
  zp_documents *d = ZP_NEW(job->arena, zp_documents);
  *d = (zp_documents){.job = job,
                      .texts = texts,
                      .length = job->length,
                      .labelled = labelled,
                      .packs = job->pack,
                      .apart = job->documents};
  return d;
}

static bool add_ids(void *user, const int32_t *ids, int n) {
  zp_documents *d = user;
  for (int i = 0; i < n; i++) zp_push(d->job->arena, &d->text, ids[i]);
  return true;
}

static void put_place(zp_documents *d, int64_t document, int position) {
  zp_push(d->job->arena, &d->documents, (int32_t)document);
  zp_push(d->job->arena, &d->positions, position);
}

static void close_sample(zp_documents *d) {
  if (d->open == 0) return;
  for (int64_t i = d->open; i < d->length; i++) {
    zp_push(d->job->arena, &d->tokens, 0);
    zp_push(d->job->arena, &d->labels, -1);
    if (d->apart) put_place(d, -1, 0);
  }
  zp_push(d->job->arena, &d->lengths, (int32_t)d->open);
  d->open = d->begun = 0;
}

/* Tokens [begin, end) of the text, which have room. */
static void put(zp_documents *d, int begin, int end) {
  if (d->open > 0 && !d->apart) d->labels.data[d->labels.len - 1] = d->text.data[begin];
  for (int i = begin; i < end; i++) {
    zp_push(d->job->arena, &d->tokens, d->text.data[i]);
    zp_push(d->job->arena, &d->labels, i + 1 < d->text.len ? d->text.data[i + 1] : -1);
    if (d->apart) put_place(d, d->begun, i - begin);
  }
  d->open += end - begin;
  d->begun++;
}

static void put_text(zp_documents *d) {
  int n = d->text.len, length = (int)d->length;
  if (d->labelled && n > length) d->cut++, n = length;
  bool fits = d->packs && d->open + n <= length;
  if (!fits) close_sample(d);
  for (int begin = 0; begin < n; begin += length) {
    int end = begin + length < n ? begin + length : n;
    put(d, begin, end);
    if (d->open == length) close_sample(d);
  }
  if (!d->packs) close_sample(d);
}

bool zp_documents_add(zp_documents *d, zp_row_place place, const char *text) {
  char where[512];
  size_t len = strlen(text);
  snprintf(where, sizeof where, "%.480s:%lld", place.path, (long long)place.line);
  if (len == 0 && d->labelled) return zp_bad_row(d->job, place, "`%s` is empty", d->job->field), false;
  d->empty += len == 0;
  if (len == 0) return true;
  d->text.len = 0;
  if (!zp_texts_put(d->job, d->texts, where, text, len, add_ids, d)) return false;
  if ((int64_t)d->tokens.len + d->text.len + 2 * d->length > INT32_MAX)
    return zp_bad_row(d->job, place, "more tokens than one array takes here (2147483647)"), false;
  d->count++;
  d->all += d->text.len;
  put_text(d);
  return true;
}

bool zp_documents_write(zp_documents *d, zp_out_folder *out) {
  close_sample(d);
  return zp_npy_write(out, "tokens", "i4", d->lengths.len, d->length, d->tokens.data) &&
         zp_npy_write(out, "lengths", "i4", d->lengths.len, 0, d->lengths.data) &&
         (!d->apart || (zp_npy_write(out, "documents", "i4", d->lengths.len, d->length, d->documents.data) &&
                        zp_npy_write(out, "positions", "i4", d->lengths.len, d->length, d->positions.data))) &&
         (d->labelled || zp_npy_write(out, "labels", "i4", d->lengths.len, d->length, d->labels.data));
}

void zp_documents_tell(const zp_documents *d) {
  int64_t filled = 0;
  for (int i = 0; i < d->lengths.len; i++) filled += d->lengths.data[i];
  zp_say_lines(stdout, "  tokens, lengths%s%s: %d samples of %lld tokens from %lld texts, %.1f %% of them filled\n",
               d->labelled ? "" : ", labels", d->apart ? ", documents, positions" : "", d->lengths.len,
               (long long)d->length, (long long)d->count,
               d->lengths.len ? 100 * (double)filled / ((double)d->lengths.len * (double)d->length) : 0);
  if (d->cut > 0)
    zp_say_lines(stderr, "note: %lld texts are cut at %lld tokens\n", (long long)d->cut, (long long)d->length);
  if (d->empty > 0) zp_say_lines(stderr, "note: %lld empty texts are left out\n", (long long)d->empty);
}
