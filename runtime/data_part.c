/* One source of samples, by their numbers: its windows, in order or permuted in every pass. */
#include <assert.h>
#include <string.h>
#include "data.h"

/* A stream of tokens has floor((tokens - 1) / length) windows. */
static bool open_tokens(zpr *c, zpr_data_part *part, zpr_error *error) {
  const zpr_source *s = &part->source;
  bool ok = s->kind == ZPR_TOKENS ? zpr_stream_add_token_files(&part->stream, s->path, error)
                                  : zpr_stream_add_text(&part->stream, s->path, error);
  if (!ok) return false;
  if (s->kind == ZPR_LINES) {
    zpr_lines_open(c, &part->stream, &part->lines);
    part->windows = part->lines.n;
    if (part->windows < 1) zpr_error_set(error, "Z0804", "\"%s\" has no line that is not empty", s->path);
  } else {
    part->windows = (part->stream.tokens - 1) / part->length;
    if (part->windows < 1)
      zpr_error_set(error, "Z0804", "\"%s\" has %lld tokens, too few for one sample of %lld and its last label",
                    s->path, (long long)part->stream.tokens, (long long)part->length);
  }
  return part->windows >= 1;
}

bool zpr_data_part_open(zpr *c, const zpr_source *source, int64_t length, zpr_data_part *part, zpr_error *error) {
  assert(source->kind != ZPR_NO_DATA && source->kind != ZPR_MIX && length >= 1);
  *part = (zpr_data_part){.source = *source, .length = length};
  if (source->kind == ZPR_SYNTHETIC) return true;
  if (source->kind != ZPR_NPY) return open_tokens(c, part, error);
  bool ok = zpr_npy_files_open(c, source->path, &part->arrays, error);
  part->windows = part->arrays.samples;
  return ok;
}

void zpr_data_part_close(zpr_data_part *part) {
  zpr_stream_close(&part->stream);
  zpr_lines_close(&part->lines);
  zpr_npy_files_close(&part->arrays);
}

int64_t zpr_data_part_window(const zpr_data_part *part, int64_t n) {
  assert(part->windows > 0 && n >= 0);
  int64_t w = n % part->windows;
  return part->source.shuffled ? zpr_permute(part->source.seed, (uint64_t)(n / part->windows), part->windows, w) : w;
}

int64_t zpr_data_part_tokens(const zpr_data_part *part, int64_t n) {
  if (part->source.kind != ZPR_LINES) return part->length;
  return zpr_lines_length(&part->lines, &part->stream, zpr_data_part_window(part, n), part->length);
}

/* length + 1 tokens: the labels are those that follow. */
static bool read_stretch(const zpr_data_part *part, int64_t n, int64_t vocabulary, int32_t *stretch, zpr_sample *sample,
                         zpr_error *error) {
  int64_t S = part->length;
  if (part->source.kind == ZPR_SYNTHETIC)
    zpr_synthetic(part->source.seed, (uint64_t)n, vocabulary, S + 1, stretch);
  else if (!zpr_stream_read(&part->stream, zpr_data_part_window(part, n) * S, S + 1, vocabulary, stretch, error))
    return false;
  memcpy(sample->tokens, stretch, (size_t)S * sizeof(int32_t));
  memcpy(sample->labels, stretch + 1, (size_t)S * sizeof(int32_t));
  sample->length = (int32_t)S;
  return true;
}

bool zpr_data_part_read(const zpr_data_part *part, int64_t n, int64_t vocabulary, int32_t *stretch, zpr_sample *sample,
                        zpr_error *error) {
  assert(part->source.kind != ZPR_NPY);
  if (part->source.kind != ZPR_LINES) return read_stretch(part, n, vocabulary, stretch, sample, error);
  return zpr_lines_read(&part->lines, &part->stream, zpr_data_part_window(part, n), part->length, vocabulary, sample,
                        error);
}
