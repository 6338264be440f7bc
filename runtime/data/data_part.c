/* SPDX-License-Identifier: Apache-2.0 */
/* One source of samples, by their numbers: its windows, in order or permuted in every pass. The list at the end says of
 * every kind of source what it is called, how it is opened and how a sample is read. */
#include <assert.h>
#include <string.h>
#include "data.h"

/* ---- opening ---- */

/* A stream of tokens has floor((tokens - 1) / length) windows. */
static bool count_stretches(zpr_data_part *part, zpr_error *error) {
  part->windows = (part->stream.tokens - 1) / part->length;
  if (part->windows < 1)
    zpr_error_set(error, "Z0804", "\"%s\" has %lld tokens, too few for one sample of %lld and its last label",
                  part->source.path, (long long)part->stream.tokens, (long long)part->length);
  return part->windows >= 1;
}

static bool open_tokens(zpr *c, zpr_data_part *part, zpr_error *error) {
  (void)c;
  return zpr_stream_add_token_files(&part->stream, part->source.path, error) && count_stretches(part, error);
}

static bool open_text(zpr *c, zpr_data_part *part, zpr_error *error) {
  (void)c;
  return zpr_stream_add_text(&part->stream, part->source.path, error) && count_stretches(part, error);
}

static bool find_documents(zpr_data_part *part, int32_t end, bool splits, const char *what, zpr_error *error) {
  if (!zpr_documents_open(&part->stream, end, splits, part->length, &part->documents, error)) return false;
  part->windows = part->documents.n;
  if (part->windows < 1) zpr_error_set(error, "Z0804", "\"%s\" has no %s that is not empty", part->source.path, what);
  return part->windows >= 1;
}

static bool open_lines(zpr *c, zpr_data_part *part, zpr_error *error) {
  (void)c;
  return zpr_stream_add_text(&part->stream, part->source.path, error) &&
         find_documents(part, '\n', false, "line", error);
}

static bool open_documents(zpr *c, zpr_data_part *part, zpr_error *error) {
  (void)c;
  return zpr_stream_add_token_files(&part->stream, part->source.path, error) &&
         find_documents(part, (int32_t)part->source.end, true, "document", error);
}

static bool open_arrays(zpr *c, zpr_data_part *part, zpr_error *error) {
  bool ok = zpr_npy_files_open(c, part->source.path, &part->arrays, error);
  part->windows = part->arrays.samples;
  return ok;
}

static bool open_nothing(zpr *c, zpr_data_part *part, zpr_error *error) {
  (void)c, (void)part, (void)error;
  return true;
}

/* ---- reading ---- */

typedef bool reader(const zpr_data_part *part, int64_t n, int64_t vocabulary, int32_t *stretch, zpr_sample *sample,
                    zpr_error *error);

/* length + 1 tokens: the labels are those that follow. */
static void take_stretch(const zpr_data_part *part, const int32_t *stretch, zpr_sample *sample) {
  memcpy(sample->tokens, stretch, (size_t)part->length * sizeof(int32_t));
  memcpy(sample->labels, stretch + 1, (size_t)part->length * sizeof(int32_t));
  sample->length = (int32_t)part->length;
}

static bool read_stretch(const zpr_data_part *part, int64_t n, int64_t vocabulary, int32_t *stretch, zpr_sample *sample,
                         zpr_error *error) {
  int64_t S = part->length, begin = zpr_data_part_window(part, n) * S;
  if (!zpr_stream_read(&part->stream, begin, S + 1, vocabulary, stretch, error)) return false;
  take_stretch(part, stretch, sample);
  return true;
}

static bool make_up(const zpr_data_part *part, int64_t n, int64_t vocabulary, int32_t *stretch, zpr_sample *sample,
                    zpr_error *error) {
  (void)error;
  zpr_synthetic(part->source.seed, (uint64_t)n, vocabulary, part->length + 1, stretch);
  take_stretch(part, stretch, sample);
  return true;
}

static bool read_document(const zpr_data_part *part, int64_t n, int64_t vocabulary, int32_t *stretch,
                          zpr_sample *sample, zpr_error *error) {
  (void)stretch;
  int64_t document = zpr_data_part_window(part, n);
  return zpr_documents_read(&part->documents, &part->stream, document, part->length, vocabulary, sample, error);
}

/* ---- the list ---- */

static const struct {
  const char *name;
  bool (*open)(zpr *c, zpr_data_part *part, zpr_error *error);
  reader *read; /* NULL: arrays, which are read by the names of inputs (data_arrays.c) */
} kinds[] = {
    [ZPR_TOKENS] = {"tokens", open_tokens, read_stretch},
    [ZPR_TEXT] = {"text", open_text, read_stretch},
    [ZPR_SYNTHETIC] = {"synthetic", open_nothing, make_up},
    [ZPR_LINES] = {"lines", open_lines, read_document},
    [ZPR_DOCUMENTS] = {"documents", open_documents, read_document},
    [ZPR_NPY] = {"arrays", open_arrays, NULL},
    [ZPR_MIX] = {"mix", NULL, NULL}, /* of others */
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *zpr_data_kind_name(int64_t kind) {
  assert(kind > ZPR_NO_DATA && kind < KINDS);
  return kinds[kind].name;
}

int64_t zpr_data_kind_of(const char *name) {
  for (int64_t kind = ZPR_NO_DATA + 1; kind < KINDS; kind++)
    if (strcmp(name, kinds[kind].name) == 0) return kind;
  return ZPR_NO_DATA;
}

bool zpr_data_part_open(zpr *c, const zpr_source *source, int64_t length, zpr_data_part *part, zpr_error *error) {
  assert(source->kind > ZPR_NO_DATA && source->kind < ZPR_MIX && length >= 1);
  *part = (zpr_data_part){.source = *source, .length = length};
  return kinds[source->kind].open(c, part, error);
}

void zpr_data_part_close(zpr_data_part *part) {
  zpr_stream_close(&part->stream);
  zpr_documents_close(&part->documents);
  zpr_npy_files_close(&part->arrays);
}

int64_t zpr_data_part_window(const zpr_data_part *part, int64_t n) {
  assert(part->windows > 0 && n >= 0);
  int64_t w = n % part->windows;
  return part->source.shuffled ? zpr_permute(part->source.seed, (uint64_t)(n / part->windows), part->windows, w) : w;
}

int64_t zpr_data_part_tokens(const zpr_data_part *part, int64_t n) {
  return part->documents.n > 0 ? part->documents.length[zpr_data_part_window(part, n)] : part->length;
}

bool zpr_data_part_read(const zpr_data_part *part, int64_t n, int64_t vocabulary, int32_t *stretch, zpr_sample *sample,
                        zpr_error *error) {
  assert(kinds[part->source.kind].read);
  return kinds[part->source.kind].read(part, n, vocabulary, stretch, sample, error);
}
