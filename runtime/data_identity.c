/* What tells one stream of tokens from another when a run is resumed: their number, and a hash of some of them. Token
 * ids count, not files: the same ids in other files, or in another format, are the same data.
 *
 * Hashed are BLOCKS blocks of BLOCK ids, evenly spread from the first token to the last (of a stream that is not longer
 * than that: all of it), so that opening terabytes reads some hundred pages. A change between the blocks that keeps the
 * number of tokens is not seen. */
#include <assert.h>
#include "data.h"

enum { BLOCK = 1024, BLOCKS = 64 };
#define FNV_START UINT64_C(14695981039346656037)
#define FNV_PRIME UINT64_C(1099511628211)

static uint64_t hash_block(const zpr_stream *stream, int64_t begin, int64_t count, uint64_t hash) {
  int32_t ids[BLOCK] = {0};
  zpr_error ignored = {0}; /* ids beyond the vocabulary are told when they are trained on */
  zpr_stream_read(stream, begin, count, INT32_MAX, ids, &ignored);
  for (int64_t i = 0; i < count; i++)
    for (int byte = 0; byte < 4; byte++) hash = (hash ^ ((uint32_t)ids[i] >> (8 * byte) & 0xff)) * FNV_PRIME;
  return hash;
}

uint64_t zpr_stream_hash(const zpr_stream *stream, int64_t tokens) {
  assert(tokens >= 0 && tokens <= stream->tokens);
  uint64_t hash = FNV_START;
  if (tokens <= BLOCK * BLOCKS) {
    for (int64_t at = 0; at < tokens; at += BLOCK)
      hash = hash_block(stream, at, tokens - at < BLOCK ? tokens - at : BLOCK, hash);
    return hash;
  }
  int64_t room = tokens - BLOCK; /* (room / 63) k + ... : no product of two large numbers */
  for (int64_t k = 0; k < BLOCKS; k++)
    hash = hash_block(stream, room / (BLOCKS - 1) * k + room % (BLOCKS - 1) * k / (BLOCKS - 1), BLOCK, hash);
  return hash;
}
