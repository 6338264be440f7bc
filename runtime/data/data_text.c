/* SPDX-License-Identifier: Apache-2.0 */
/* A text file as it is: every byte is a token, 0 to 255. */
#include "data.h"

bool zpr_stream_add_text(zpr_stream *stream, const char *path, zpr_error *error) {
  zpr_shard *shard = zpr_stream_map(stream, path, error);
  if (!shard) return false;
  shard->body = shard->map;
  shard->width = 1;
  shard->tokens = (int64_t)shard->map_bytes;
  stream->tokens += shard->tokens;
  return true;
}
