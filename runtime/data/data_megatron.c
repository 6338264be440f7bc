/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron's indexed datasets: PREFIX.idx says what PREFIX.bin holds, token ids back to back.
 *
 * The index: 9 bytes "MMIDIDX\0\0", uint64 version 1, a byte for the type of a token, uint64 sequences n, uint64
 * boundaries m; then int32[n] tokens of a sequence, int64[n] where it begins in the .bin, int64[m] documents as indices
 * of sequences. (megatron/core/datasets/indexed_dataset.py) The tokens are read as one stream in the order of the .bin:
 * samples go over the ends of documents, as Megatron's do, and their order is zplan's (data.c). */
#include <stdlib.h>
#include <string.h>
#include "data.h"

enum { INDEX_HEADER_BYTES = 34 };

static const char index_magic[9] = "MMIDIDX"; /* two zeros after it */

/* Types of tokens by their code from 1 on; width 0: floating point, no ids. */
static const struct token_type {
  int width;
  bool is_signed;
} types[] = {{1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {0, false}, {0, false}, {2, false}};

typedef struct index_file {
  const char *path;
  const unsigned char *bytes;
  uint64_t size, sequences, boundaries;
  struct token_type type;
} index_file;

static uint64_t u64_at(const unsigned char *at) {
  uint64_t value;
  memcpy(&value, at, sizeof value); /* nothing in the file is aligned */
  return value;
}

static int32_t i32_at(const unsigned char *at) {
  int32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static bool read_header(index_file *index, zpr_error *error) {
  const unsigned char *b = index->bytes;
  if (index->size < INDEX_HEADER_BYTES || memcmp(b, index_magic, sizeof index_magic) != 0) {
    zpr_error_set(error, "Z0802", "\"%s\" is no index of a Megatron dataset", index->path);
    return false;
  }
  uint64_t version = u64_at(b + 9), code = b[17];
  if (version != 1 || code < 1 || code > sizeof types / sizeof *types || types[code - 1].width == 0) {
    zpr_error_set(error, "Z0802", "\"%s\": version %llu, type of tokens %llu: not what holds token ids in version 1",
                  index->path, (unsigned long long)version, (unsigned long long)code);
    return false;
  }
  index->type = types[code - 1];
  index->sequences = u64_at(b + 18);
  index->boundaries = u64_at(b + 26);
  uint64_t room = (index->size - INDEX_HEADER_BYTES) / 4; /* before the products below can overflow */
  if (index->sequences > room || index->boundaries > room ||
      INDEX_HEADER_BYTES + 12 * index->sequences + 8 * index->boundaries > index->size) {
    zpr_error_set(error, "Z0802", "\"%s\" is truncated: %llu sequences and %llu boundaries do not fit in %llu bytes",
                  index->path, (unsigned long long)index->sequences, (unsigned long long)index->boundaries,
                  (unsigned long long)index->size);
    return false;
  }
  return true;
}

/* Do the sequences lie back to back in a file of so many bytes? */
static bool check_sequences(const index_file *index, uint64_t bin_bytes, zpr_error *error) {
  const unsigned char *lengths = index->bytes + INDEX_HEADER_BYTES, *begins = lengths + 4 * index->sequences;
  uint64_t at = 0;
  for (uint64_t i = 0; i < index->sequences; i++) {
    int32_t tokens = i32_at(lengths + 4 * i);
    if (tokens < 0 || u64_at(begins + 8 * i) != at) {
      zpr_error_set(error, "Z0802", "\"%s\": sequence %llu does not begin where the one before it ends", index->path,
                    (unsigned long long)i);
      return false;
    }
    at += (uint64_t)tokens * (uint64_t)index->type.width;
  }
  if (at == bin_bytes) return true;
  zpr_error_set(error, "Z0802", "\"%s\" counts %llu bytes of tokens, its .bin has %llu", index->path,
                (unsigned long long)at, (unsigned long long)bin_bytes);
  return false;
}

static bool add_tokens(zpr_stream *stream, const index_file *index, const char *bin, zpr_error *error) {
  zpr_shard *shard = zpr_stream_map(stream, bin, error);
  if (!shard || !check_sequences(index, shard->map_bytes, error)) return false;
  shard->body = shard->map;
  shard->width = index->type.width;
  shard->is_signed = index->type.is_signed;
  shard->tokens = (int64_t)shard->map_bytes / shard->width;
  stream->tokens += shard->tokens;
  return true;
}

bool zpr_stream_add_megatron(zpr_stream *stream, const char *path, zpr_error *error) {
  zpr_stream indices = {0}; /* the index is only considered here */
  zpr_shard *mapped = zpr_stream_map(&indices, path, error);
  char *bin = mapped ? strdup(path) : NULL;
  bool ok = bin != NULL;
  if (mapped && !bin) zpr_error_set(error, "Z0822", "cannot get memory to open \"%s\"", path);
  if (ok) {
    index_file index = {.path = path, .bytes = mapped->map, .size = mapped->map_bytes};
    memcpy(bin + strlen(bin) - 3, "bin", 3);
    ok = read_header(&index, error) && add_tokens(stream, &index, bin, error);
  }
  free(bin);
  zpr_stream_close(&indices);
  return ok;
}
