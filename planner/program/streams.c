/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: which carried tensors units read or hand on unchanged, so that a chunk's slot has them once.
 *
 * A tensor keeps its place among what is carried from boundary to boundary. It is a stream from the boundary after its
 * maker on, through all units that hand it on, and into a unit outside repeats that does not. A repeat that takes it up
 * and changes it wants it where its units have what they change, so there it ends a unit earlier, with a copy. Streams
 * past ZP_MOST_STREAMS stay each unit's own. */
#include "lower_internal.h"

#include <assert.h>

/* Does segment s hand on what comes in at place i, and is it a stream after it? */
static bool passes(const zp_lowered *l, int s, int i) {
  for (;; s++) {
    const zp_graph *g = l->sharding->trained[s];
    if (i >= g->carry_in.len || i >= g->carry_out.len || g->carry_in.data[i] != g->carry_out.data[i]) return false;
    if (!l->spec->model->segments.data[s + 1].is_repeat) return true;
  }
}

static bool is_stream(const zp_lowered *l, int s, int i) {
  return passes(l, s, i) || (s > 0 && !l->spec->model->segments.data[s].is_repeat && passes(l, s - 1, i));
}

void zp_lower_find_streams(zp_arena *arena, zp_lowered *l) {
  int n = l->spec->model->segments.len;
  l->stream_of = ZP_NEW_ARRAY(arena, int *, n);
  for (int s = 0; s < n; s++) {
    const zp_graph *g = l->sharding->trained[s];
    l->stream_of[s] = ZP_NEW_ARRAY(arena, int, g->carry_in.len + 1);
    for (int i = 0; i < g->carry_in.len; i++) {
      int *stream = &l->stream_of[s][i];
      *stream = -1;
      if (!is_stream(l, s, i)) continue;
      if (s > 0 && passes(l, s - 1, i)) {
        *stream = l->stream_of[s - 1][i];
      } else if (l->streams.len < ZP_MOST_STREAMS) {
        *stream = l->streams.len;
        zp_push(arena, &l->streams, zp_shape_elements(&g->tensors.data[g->carry_in.data[i]].shape, l->microbatch));
      }
    }
  }
}

void zp_lower_set_carries(zp_arena *arena, const zp_lowered *l, int index, zp_segment_program *out) {
  const zp_graph *g = out->graph;
  int segment = l->pieces->piece[index].whole; /* what goes through all of it keeps its place in the pieces */
  out->carries = ZP_NEW_ARRAY(arena, zp_carry, g->carry_in.len + 1);
  out->carry_own_elements = 0;
  for (int i = 0; i < g->carry_in.len; i++) {
    zp_carry *c = &out->carries[i];
    *c = (zp_carry){.stream = l->stream_of[segment][i], .at = out->carry_own_elements};
    if (c->stream < 0)
      out->carry_own_elements += zp_shape_elements(&g->tensors.data[g->carry_in.data[i]].shape, l->microbatch);
    else
      c->passes = passes(l, segment, i), c->at = 0;
  }
}

bool zp_takes_streams(const zp_segment_program *segment) {
  for (int i = 0; i < segment->graph->carry_in.len; i++)
    if (segment->carries[i].stream >= 0) return true;
  return false;
}

int64_t zp_stream_at(const zp_lowered *l, uint64_t streams, int stream) {
  assert(stream >= 0 && stream <= ZP_MOST_STREAMS);
  int64_t at = 0;
  for (int i = 0; i < stream && i < l->streams.len; i++)
    if (streams >> i & 1) at += zp_round_up(l->streams.data[i] * l->compute_bytes, ZP_ALIGN_BYTES);
  return at;
}
