/* SPDX-License-Identifier: Apache-2.0 */
/* What tells one source of samples from another when a run is resumed. Of a stream of tokens: their number, and a hash
 * of some of them. Token ids count, not files: the same ids in other files, or in another format, are the same data.
 *
 * Hashed are ZPR_HASHED_BLOCKS blocks of BLOCK ids, evenly spread from the first token to the last (of a stream that is
 * not longer than that: all of it), so that opening terabytes reads some hundred pages. A change between the blocks
 * that keeps the number of tokens is not seen. Of a mixture the hash is that of its sources' kinds, weights, orders,
 * numbers and hashes: where one of them changed, it is other data. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"

enum { BLOCK = 1024 };

uint64_t zpr_hash_bytes(const void *bytes, int64_t n, uint64_t hash) {
  const unsigned char *b = bytes;
  for (int64_t i = 0; i < n; i++) hash = (hash ^ b[i]) * UINT64_C(1099511628211);
  return hash;
}

/* (room / 63) k + ... : no product of two large numbers */
int64_t zpr_hashed_block(int64_t size, int64_t block, int64_t k) {
  int64_t room = size - block, steps = ZPR_HASHED_BLOCKS - 1;
  assert(room >= 0 && k >= 0 && k <= steps);
  return room / steps * k + room % steps * k / steps;
}

static uint64_t hash_block(const zpr_stream *stream, int64_t begin, int64_t count, uint64_t hash) {
  int32_t ids[BLOCK] = {0};
  zpr_error ignored = {0}; /* ids beyond the vocabulary are told when they are trained on */
  zpr_stream_read(stream, begin, count, INT32_MAX, ids, &ignored);
  return zpr_hash_bytes(ids, count * (int64_t)sizeof *ids, hash);
}

uint64_t zpr_stream_hash(const zpr_stream *stream, int64_t tokens) {
  assert(tokens >= 0 && tokens <= stream->tokens);
  uint64_t hash = ZPR_HASH_START;
  if (tokens <= BLOCK * ZPR_HASHED_BLOCKS) {
    for (int64_t at = 0; at < tokens; at += BLOCK)
      hash = hash_block(stream, at, tokens - at < BLOCK ? tokens - at : BLOCK, hash);
    return hash;
  }
  for (int64_t k = 0; k < ZPR_HASHED_BLOCKS; k++)
    hash = hash_block(stream, zpr_hashed_block(tokens, BLOCK, k), BLOCK, hash);
  return hash;
}

static int64_t count_of(const zpr_data_part *part) {
  return part->source.kind == ZPR_NPY ? part->arrays.samples : part->stream.tokens;
}

/* Hash of the first `count` samples or tokens, which the source must have; made-up samples have none. */
static uint64_t hash_of(const zpr *c, const zpr_data_part *part, int64_t count) {
  if (part->source.kind == ZPR_SYNTHETIC) return 0;
  if (part->source.kind == ZPR_NPY) return zpr_npy_files_hash(c, &part->arrays, count);
  uint64_t hash = zpr_stream_hash(&part->stream, count);
  return part->source.kind == ZPR_DOCUMENTS ? zpr_hash_bytes(&part->source.end, sizeof part->source.end, hash) : hash;
}

static const char *last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static void identify_mix(const zpr_data *data, zpr_data_identity *id) {
  size_t n = 0;
  id->hash = ZPR_HASH_START;
  for (int i = 0; i < data->n_parts; i++) {
    const zpr_data_part *part = &data->parts[i];
    const zpr_source *s = &part->source;
    int64_t count = count_of(part);
    const uint64_t words[] = {s->kind, data->mix.share[i], s->shuffled,
                              s->seed, (uint64_t)count,    hash_of(data->c, part, count)};
    id->hash = zpr_hash_bytes(words, sizeof words, id->hash);
    id->tokens += count;
    if (n < sizeof id->path)
      n += (size_t)snprintf(id->path + n, sizeof id->path - n, "%s%.9g %s", i ? " + " : "", data->source.weights[i],
                            s->path ? last_name(s->path) : zpr_data_kind_name(s->kind));
  }
}

static void put_masks(const zpr_data *data, char *text, size_t size) {
  const zpr_source *s = &data->source;
  const zpr_span_rule *spans = &s->spans;
  if (s->mask_rate > 0)
    snprintf(text, size, "token %lld, rate %.9g, seed %llu", (long long)s->mask_token, s->mask_rate,
             (unsigned long long)s->mask_seed);
  if (data->masks.whole_words) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, ", words %08llx", (unsigned long long)(data->masks.words.hash & 0xffffffff));
  }
  if (spans->rate > 0)
    snprintf(text, size, "spans of %.9g, rate %.9g, sentinel %lld, eos %lld, start %lld, seed %llu", spans->mean,
             spans->rate, (long long)spans->sentinel, (long long)spans->eos, (long long)spans->start,
             (unsigned long long)spans->seed);
}

/* A path that is too long is left out. */
static void put_words(const zpr_source *s, char *words, size_t size) {
  char *path = s->mask_words ? realpath(s->mask_words, NULL) : NULL;
  if (path && strlen(path) < size) snprintf(words, size, "%s", path);
  free(path);
}

zpr_data_identity zpr_data_identify(const zpr_data *data) {
  zpr_data_identity id = {0};
  if (!data) return id;
  id.kind = data->source.kind;
  put_masks(data, id.masks, sizeof id.masks);
  put_words(&data->source, id.words, sizeof id.words);
  if (id.kind == ZPR_MIX) {
    identify_mix(data, &id);
    return id;
  }
  id.shuffled = data->source.shuffled;
  id.seed = (int64_t)data->source.seed;
  if (data->source.path) snprintf(id.path, sizeof id.path, "%s", data->source.path);
  id.tokens = count_of(&data->parts[0]);
  id.hash = hash_of(data->c, &data->parts[0], id.tokens);
  return id;
}

bool zpr_data_begins_with(const zpr_data *data, const zpr_data_identity *earlier) {
  /* the others are windows of streams of tokens */
  static const int64_t apart[] = {ZPR_SYNTHETIC, ZPR_NPY, ZPR_MIX, ZPR_LINES, ZPR_DOCUMENTS};
  for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
    if (((int64_t)data->source.kind == apart[i]) != (earlier->kind == apart[i])) return false;
  if (data->source.kind == ZPR_SYNTHETIC) return true;
  if (data->source.kind == ZPR_MIX) {
    zpr_data_identity now = zpr_data_identify(data);
    return now.tokens == earlier->tokens && now.hash == earlier->hash;
  }
  const zpr_data_part *part = &data->parts[0];
  return earlier->tokens <= count_of(part) && hash_of(data->c, part, earlier->tokens) == earlier->hash;
}
