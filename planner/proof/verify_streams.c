/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that units hand on unchanged: a slot must have each of them once. Found from the model alone: a tensor that
 * flows after the unit that made it keeps its place until a unit changes it. */
#include "verify_internal.h"

enum { MOST_STREAMS = 64 }; /* more are kept by every unit */

static bool hands_on(const zp_verifier *v, int segment, int place) {
  const zp_graph *g = v->spec->model->segments.data[segment].graph;
  return place < g->carry_in.len && place < g->carry_out.len && g->carry_in.data[place] == g->carry_out.data[place];
}

/* The last segment that it comes into, when it goes through `segment`: the first one that does not hand it on, which
 * may be no repeat, as units of repeats have it alongside what they change: then the last one before that is none. */
static int end_of(const zp_verifier *v, int segment, int place) {
  int end = segment;
  while (hands_on(v, end, place)) end++;
  while (end > segment && v->spec->model->segments.data[end].is_repeat) end--;
  return end;
}

int zp_verify_stream(const zp_verifier *v, int segment, int place) {
  return v->stream_of[v->pieces->piece[segment].whole][place];
}

void zp_verify_find_streams(zp_verifier *v) {
  const zp_model *model = v->spec->model;
  int n = 0;
  v->stream_of = ZP_NEW_ARRAY(v->arena, int *, model->segments.len);
  for (int s = 0; s < model->segments.len; s++) {
    int places = model->segments.data[s].graph->carry_in.len;
    v->stream_of[s] = ZP_NEW_ARRAY(v->arena, int, places + 1);
    for (int i = 0; i < places; i++) v->stream_of[s][i] = -1;
  }
  for (int s = 0; s < model->segments.len; s++)
    for (int i = 0; i < model->segments.data[s].graph->carry_in.len; i++) {
      int end = v->stream_of[s][i] < 0 && n < MOST_STREAMS ? end_of(v, s, i) : s;
      for (int k = s; k <= end && end > s; k++) v->stream_of[k][i] = n;
      n += end > s;
    }
}

int64_t zp_verify_stream_elements(const zp_verifier *v, int segment, int place) {
  const zp_graph *g = v->pieces->piece[segment].segment.graph;
  int64_t elements = zp_shape_elements(&g->tensors.data[g->carry_in.data[place]].shape, v->choice.microbatch);
  return zp_verify_share(v, elements);
}
