/* SPDX-License-Identifier: Apache-2.0 */
/* A split backward of a plan file: what BW reads outlives BI, and every deferred step is one that may wait. Where
 * parameters or gradients pass through rings no parameters are there for BW, and what BI adds to gradients has a place
 * of its own after the rest of what waits, from which BW takes it. */
#include <zplan/schedule.h>
#include "verify_internal.h"

#define LL(x) ((long long)(x))

typedef struct splitting {
  zp_verifier *v;
  const char *name;
  int piece;
  const zp_json *segment, *buffers, *steps;
} splitting;

static const zp_json *root_of(const splitting *p, const zp_json *list, int i) {
  const zp_json *b = zp_json_at(p->buffers, (int)zp_json_int(zp_json_at(list, i), -1));
  const zp_json *base = zp_json_at(p->buffers, (int)zp_json_get_int(b, "base", -1));
  return base ? base : b;
}

static bool is_at(const zp_json *buffer, const char *place) {
  return strcmp(zp_json_get_string(buffer, "place", ""), place) == 0;
}

/* What comes in and stands in the slot once for all units stays as long as the slot does. */
static bool is_stream(const splitting *p, const zp_json *root) {
  const zp_graph *g = p->v->pieces->piece[p->piece].segment.graph;
  for (int i = 0; i < g->carry_in.len; i++)
    if (zp_verify_stream(p->v, p->piece, i) >= 0 &&
        strcmp(g->tensors.data[g->carry_in.data[i]].name, zp_json_get_string(root, "name", "")) == 0)
      return true;
  return false;
}

/* Is it still there when BW runs, other micro-batches later? */
static bool outlives(const splitting *p, const zp_json *root) {
  bool input_kept = zp_claim(p->segment, "carry_kept_elements") == zp_claim_own(p->segment);
  if (is_at(root, "grad_in")) return zp_json_get_bool(zp_json_get(p->segment, "backward"), "keeps_gradient", false);
  if (is_at(root, "carry_in")) return input_kept || is_stream(p, root);
  if (zp_moves_buckets(&p->v->choice) && (zp_claimed_kind(root) < ZP_KINDS || is_at(root, "shared"))) return false;
  return !is_at(root, "transient") && !is_at(root, "carry_out") && !is_at(root, "grad_out");
}

static void check_deferred(const splitting *p, int s) {
  const zp_json *step = zp_json_at(p->steps, s), *in = zp_json_get(step, "in");
  if (zp_json_count(zp_json_get(step, "out")) > 0)
    zp_find(p->v, "%s: step %d waits, but yields more than gradients of weights", p->name, s);
  for (int i = 0; i < zp_json_count(in); i++)
    if (!outlives(p, root_of(p, in, i)))
      zp_find(p->v, "%s: step %d reads `%s`, which does not wait for it", p->name, s,
              zp_json_get_string(root_of(p, in, i), "name", ""));
}

/* Off the device, saved values that BI changes must go out again, or BW would read the old ones. */
static void check_saved(const splitting *p, int64_t inputs) {
  bool changes = false;
  for (int s = 0; s < inputs; s++) {
    const zp_json *out = zp_json_get(zp_json_at(p->steps, s), "out");
    for (int i = 0; i < zp_json_count(out); i++) changes |= is_at(root_of(p, out, i), "saved");
  }
  if (changes != zp_json_get_bool(zp_json_get(p->segment, "backward"), "changes_saved", false))
    zp_find(p->v, "%s: the first part of backward %s saved values, the file says otherwise", p->name,
            changes ? "changes" : "does not change");
}

/* dy stands first of what waits, where it is kept. */
static void check_gradient(const splitting *p) {
  if (!zp_json_get_bool(zp_json_get(p->segment, "backward"), "keeps_gradient", false)) return;
  int64_t bytes = 0;
  for (int b = 0; b < zp_json_count(p->buffers); b++) {
    const zp_json *x = zp_json_at(p->buffers, b);
    if (zp_claim(x, "base") < 0 && is_at(x, "grad_in")) bytes = zp_claim(x, "bytes");
  }
  if (zp_claim(p->segment, "pending_bytes") < bytes)
    zp_find(p->v, "%s: the gradient of its output does not fit into what waits", p->name);
  for (int b = 0; b < zp_json_count(p->buffers); b++) {
    const zp_json *x = zp_json_at(p->buffers, b);
    if (zp_claim(x, "base") < 0 && is_at(x, "pending") && zp_claim(x, "offset") < bytes)
      zp_find(p->v, "%s: `%s` lies on the gradient of its output", p->name, zp_json_get_string(x, "name", ""));
  }
}

/* ---- gradients that BI yields ---- */

static const zp_segment *segment_of(const splitting *p) {
  const zp_pieces *pieces = p->v->pieces;
  const char *name = zp_json_get_string(p->segment, "name", "");
  for (int i = 0; i < pieces->n; i++)
    if (strcmp(pieces->piece[i].segment.name, name) == 0) return &pieces->piece[i].segment;
  return NULL;
}

/* Elements of a parameter that the segment uses; -1: it uses none of that name. */
static int64_t elements_of(const splitting *p, const char *name) {
  const zp_segment *segment = segment_of(p);
  for (int i = 0; segment && i < segment->graph->params.len; i++) {
    int param = segment->graph->params.data[i].param;
    if (strcmp(p->v->spec->model->params.data[param].name, name) == 0) return p->v->elements[param];
  }
  return -1;
}

/* They stand in the order of the file, without gaps, and end what waits. The first of them; -1: they do not. */
static int64_t first_early(const splitting *p, const zp_json *early) {
  int64_t first = zp_claim(p->segment, "pending_bytes"), at;
  for (int i = 0; zp_json_key(early, i); i++) {
    int64_t elements = elements_of(p, zp_json_key(early, i));
    if (elements < 0) return -1;
    first -= zp_up(elements * p->v->grad_bytes, 256);
  }
  at = first;
  for (int i = 0; zp_json_key(early, i); i++) {
    if (zp_claim(early, zp_json_key(early, i)) != at) return -1;
    at += zp_up(elements_of(p, zp_json_key(early, i)) * p->v->grad_bytes, 256);
  }
  return first;
}

static void check_early(const splitting *p, int64_t inputs) {
  const zp_json *early = zp_json_get(zp_json_get(p->segment, "backward"), "early");
  int64_t first = first_early(p, early);
  if (first < 0) {
    zp_find(p->v, "%s: gradients that wait for the second part do not stand after one another", p->name);
    return;
  }
  for (int b = 0; b < zp_json_count(p->buffers); b++) {
    const zp_json *x = zp_json_at(p->buffers, b);
    bool waits = is_at(x, "pending") || (is_at(x, "grad_in") && outlives(p, x));
    if (zp_claim(x, "base") < 0 && waits && zp_claim(x, "offset") + zp_claim(x, "bytes") > first)
      zp_find(p->v, "%s: `%s` lies on gradients that wait", p->name, zp_json_get_string(x, "name", ""));
  }
  for (int s = 0; s < inputs; s++) {
    const zp_json *sums = zp_json_get(zp_json_at(p->steps, s), "sums");
    for (int i = 0; i < zp_json_count(sums); i++)
      if (!zp_json_get(early, zp_json_string(zp_json_at(sums, i), "")))
        zp_find(p->v, "%s: step %d adds to a gradient that has no place to wait", p->name, s);
  }
}

void zp_verify_split(zp_verifier *v, const zp_json *segment, int piece, const char *name) {
  const zp_json *backward = zp_json_get(segment, "backward");
  splitting p = {.v = v, .name = name, .piece = piece, .segment = segment};
  p.buffers = zp_json_get(backward, "buffers");
  p.steps = zp_json_get(backward, "steps");
  int64_t inputs = zp_json_get_int(backward, "inputs", -1);
  if (!zp_schedule_splits(v->choice.schedule)) {
    if (inputs >= 0) zp_find(v, "%s is split, the schedule does not split it", name);
    return;
  }
  if (inputs < 0 || inputs > zp_json_count(p.steps)) {
    zp_find(v, "%s: %lld of its %d steps yield gradients of inputs", name, LL(inputs), zp_json_count(p.steps));
    return;
  }
  for (int s = (int)inputs; s < zp_json_count(p.steps); s++) check_deferred(&p, s);
  check_gradient(&p);
  if (v->choice.home[ZP_STATE_ACTIVATIONS].eighths > 0) check_saved(&p, inputs);
  if (zp_early_gradients_wait(&v->choice)) check_early(&p, inputs);
}
