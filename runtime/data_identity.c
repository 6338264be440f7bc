/* What tells one stream of tokens from another when a run is resumed: their number, and a hash of some of them. Token
 * ids count, not files: the same ids in other files, or in another format, are the same data.
 *
 * Hashed are ZPR_HASHED_BLOCKS blocks of BLOCK ids, evenly spread from the first token to the last (of a stream that is
 * not longer than that: all of it), so that opening terabytes reads some hundred pages. A change between the blocks
 * that keeps the number of tokens is not seen. */
#include <assert.h>
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
