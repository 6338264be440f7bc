/* What the units of a variant take: seconds, bytes and parameters of its layers and of their parts, added up where
 * bounds ask for ranges of units. */
#include <assert.h>
#include <math.h>
#include "procedures.h"

static double weight_gradients_s(const zp_procedure *backward) {
  double seconds = 0;
  for (int i = 0; i < backward->steps.len; i++)
    if (backward->steps.data[i].deferred) seconds += backward->steps.data[i].cost_s;
  return seconds;
}

/* Seconds of one iteration of a segment or piece; backward by what it yields: gradients of inputs, of weights. */
typedef struct unit_costs {
  double forward_s, inputs_s, weights_s, backward_share;
  int64_t saved_bytes, waiting_bytes, elements, spread_elements, frozen_elements;
} unit_costs;

/* Where no schedule splits backward, all of it yields gradients of inputs. */
static unit_costs costs_of(const zp_lowered *l, int i) {
  const zp_segment_program *segment = &l->segments[i];
  double seconds = segment->forward.cost_s + segment->backward.cost_s;
  double weights = l->splits ? weight_gradients_s(&segment->backward) : 0;
  return (unit_costs){.forward_s = segment->forward.cost_s,
                      .inputs_s = segment->backward.cost_s - weights,
                      .weights_s = weights,
                      .backward_share = seconds > 0 ? segment->backward.cost_s / seconds : 1,
                      .saved_bytes = segment->saved_bytes,
                      .waiting_bytes = segment->pending_bytes,
                      .elements = segment->elements,
                      .spread_elements = segment->spread_elements,
                      .frozen_elements = segment->frozen_elements};
}

/* The least in everything of several modes. */
static unit_costs least_costs(zp_lowered *const *modes, int n, int segment) {
  unit_costs least = costs_of(modes[0], segment);
  for (int i = 1; i < n; i++) {
    unit_costs c = costs_of(modes[i], segment);
    least.forward_s = fmin(least.forward_s, c.forward_s);
    least.inputs_s = fmin(least.inputs_s, c.inputs_s);
    least.weights_s = fmin(least.weights_s, c.weights_s);
    least.backward_share = fmin(least.backward_share, c.backward_share);
    least.saved_bytes = c.saved_bytes < least.saved_bytes ? c.saved_bytes : least.saved_bytes;
    least.waiting_bytes = c.waiting_bytes < least.waiting_bytes ? c.waiting_bytes : least.waiting_bytes;
  }
  return least;
}

/* ---- units ---- */

/* Costs of the pieces of one segment: [first part][end]. */
typedef struct range_costs {
  int parts;
  unit_costs of[ZP_MOST_PARTS][ZP_MOST_PARTS + 1];
} range_costs;

static double forward_of(const unit_costs *c) { return c->forward_s; }
static double inputs_of(const unit_costs *c) { return c->inputs_s; }
static double weights_of(const unit_costs *c) { return c->weights_s; }
static double saved_of(const unit_costs *c) { return (double)c->saved_bytes; }
static double waiting_of(const unit_costs *c) { return (double)c->waiting_bytes; }
static double elements_of(const unit_costs *c) { return (double)c->elements; }
static double spread_of(const unit_costs *c) { return (double)c->spread_elements; }
static double frozen_of(const unit_costs *c) { return (double)c->frozen_elements; }

/* Gives every part a cost such that no piece costs less than its parts together: the part's own cost, scaled by the
 * largest factor for which that holds. (Pieces may cost more than the layer, where kernels were fused across the cut,
 * or less, where their inputs need not be rebuilt.) One part: its cost. */
static void share_out(const range_costs *r, double (*cost)(const unit_costs *), double *part) {
  double scale = 1;
  for (int first = 0; first < r->parts; first++) {
    double sum = 0;
    for (int end = first + 1; end <= r->parts; end++) {
      sum += cost(&r->of[end - 1][end]);
      if (sum > 0) scale = fmin(scale, cost(&r->of[first][end]) / sum);
    }
  }
  for (int i = 0; i < r->parts; i++) part[i] = scale * cost(&r->of[i][i + 1]);
}

/* piece[first][end] becomes a cost that no piece with these parts falls below, not even when it is part of a larger
 * one: that has the parts' own costs more. No less than the parts together, by share_out. */
static void grow_pieces(const range_costs *r, double (*cost)(const unit_costs *), const double *part,
                        double piece[ZP_MOST_PARTS][ZP_MOST_PARTS + 1]) {
  for (int n = r->parts; n > 0; n--)
    for (int first = 0; first + n <= r->parts; first++) {
      int end = first + n;
      double least = cost(&r->of[first][end]);
      if (first > 0) least = fmin(least, piece[first - 1][end] - part[first - 1]);
      if (end < r->parts) least = fmin(least, piece[first][end + 1] - part[end]);
      piece[first][end] = least;
    }
}

static void measure_pieces(zp_variant *v, const range_costs *r, int segment, const double *forward,
                           const double *inputs, const double *weights) {
  double f[ZP_MOST_PARTS][ZP_MOST_PARTS + 1], i[ZP_MOST_PARTS][ZP_MOST_PARTS + 1], w[ZP_MOST_PARTS][ZP_MOST_PARTS + 1];
  grow_pieces(r, forward_of, forward, f);
  grow_pieces(r, inputs_of, inputs, i);
  grow_pieces(r, weights_of, weights, w);
  for (int first = 0; first < r->parts; first++)
    for (int end = first + 1; end <= r->parts; end++)
      v->piece_s[zp_pieces_find(v->lowered->pieces, segment, first, end)] = (zp_part_seconds){
          f[first][end] + i[first][end] + w[first][end], f[first][end], f[first][end] + i[first][end]};
}

/* Least bytes that a layer saves, over all ways to cut it. */
static int64_t least_saved(const range_costs *r) {
  int64_t least[ZP_MOST_PARTS + 1] = {0};
  for (int end = 1; end <= r->parts; end++) {
    least[end] = INT64_MAX;
    for (int first = 0; first < end; first++) {
      int64_t bytes = least[first] + r->of[first][end].saved_bytes;
      if (bytes < least[end]) least[end] = bytes;
    }
  }
  return least[r->parts];
}

static range_costs costs_of_ranges(zp_variant *v, zp_lowered *const *modes, int n, int segment) {
  const zp_lowered *l = v->lowered;
  range_costs r = {.parts = l->pieces->parts[segment]};
  for (int first = 0; first < r.parts; first++)
    for (int end = first + 1; end <= r.parts; end++) {
      r.of[first][end] = least_costs(modes, n, zp_pieces_find(l->pieces, segment, first, end));
      v->backward_share = fmin(v->backward_share, r.of[first][end].backward_share);
    }
  return r;
}

/* Bounds weigh the three kinds of work differently, so each of them must be the least by itself: no two are the rest of
 * a third. */
static void measure_segment(zp_variant *v, zp_lowered *const *modes, int n, int segment) {
  const zp_lowered *l = v->lowered;
  const zp_segment_program *whole = &l->segments[segment];
  double forward[ZP_MOST_PARTS], inputs[ZP_MOST_PARTS], weights[ZP_MOST_PARTS], saved[ZP_MOST_PARTS],
      waiting[ZP_MOST_PARTS], elements[ZP_MOST_PARTS], spread[ZP_MOST_PARTS], frozen[ZP_MOST_PARTS],
      work[ZP_MOST_PARTS];
  range_costs r = costs_of_ranges(v, modes, n, segment);
  share_out(&r, forward_of, forward);
  share_out(&r, inputs_of, inputs);
  share_out(&r, weights_of, weights);
  share_out(&r, saved_of, saved);
  share_out(&r, waiting_of, waiting);
  share_out(&r, elements_of, elements);
  share_out(&r, spread_of, spread);
  share_out(&r, frozen_of, frozen);
  for (int part = 0; part < r.parts; part++) work[part] = forward[part] + inputs[part] + weights[part];
  measure_pieces(v, &r, segment, forward, inputs, weights);
  if (whole->carry_out_elements > 0 && whole->carry_out_elements < v->carry_elements)
    v->carry_elements = whole->carry_out_elements;
  v->elements += whole->elements * whole->segment->count;
  v->spread_elements += whole->spread_elements * whole->segment->count;
  v->frozen_elements += whole->frozen_elements * whole->segment->count;
  int64_t saved_bytes = least_saved(&r) * whole->segment->count;
  v->saved_bytes += saved_bytes;
  if (l->sharding->trained[segment]->losses.len > 0) v->saved_for_loss += saved_bytes;
  for (int part = 0; part < r.parts; part++) {
    int piece = zp_pieces_find(l->pieces, segment, part, part + 1);
    v->longest_s = fmax(v->longest_s, work[part]);
    v->part_s[piece] = (zp_part_seconds){work[part], forward[part], forward[part] + inputs[part]};
    v->kept_bytes[piece] = saved[part];
    v->waiting_bytes[piece] = waiting[part];
    v->part_elements[piece] = elements[part];
    v->part_spread[piece] = spread[part];
    v->part_frozen[piece] = frozen[part];
  }
  for (int first = 0; first < r.parts; first++)
    for (int end = first + 1; end <= r.parts; end++)
      for (int part = first; part < end; part++)
        v->unit_s[zp_pieces_find(l->pieces, segment, first, end)] += work[part];
}

/* Adds up all units, one after another: rounded as what stands in the arrays. These may be NULL. */
static void add_units(zp_variant *v) {
  const zp_pieces *pieces = v->lowered->pieces;
  zp_part_seconds sum = {0};
  int64_t unit = 0;
  for (int i = 0; i < pieces->n_whole; i++) {
    int64_t units = v->lowered->segments[i].segment->count * pieces->parts[i];
    for (int64_t k = 0; k < units; k++) {
      int at = (int)(k % pieces->parts[i]);
      const zp_part_seconds *part = &v->part_s[zp_pieces_find(pieces, i, at, at + 1)];
      sum.work += part->work;
      sum.forward += part->forward;
      sum.input += part->input;
      unit++;
      if (!v->prefix_s) continue;
      v->prefix_s[unit] = sum.work;
      v->forward_s[unit] = sum.forward;
      v->input_s[unit] = sum.input;
    }
  }
  v->all_s = sum;
}

void zp_make_sums(zp_search_cache *s, int variant) {
  zp_variant *v = &s->variants.data[variant];
  if (v->prefix_s) return;
  v->prefix_s = ZP_NEW_ARRAY(s->arena, double, v->lowered->n_units + 1);
  v->forward_s = ZP_NEW_ARRAY(s->arena, double, v->lowered->n_units + 1);
  /* Where no schedule splits backward they are the same numbers. */
  v->input_s = v->lowered->splits ? ZP_NEW_ARRAY(s->arena, double, v->lowered->n_units + 1) : v->prefix_s;
  add_units(v);
}

static void add_pieces(zp_part_seconds *sum, const zp_part_seconds *piece, int64_t count) {
  sum->work += (double)count * piece->work;
  sum->forward += (double)count * piece->forward;
  sum->input += (double)count * piece->input;
}

/* Units first .. end - 1 of one segment, which has `parts` in a layer. */
static void add_range(zp_part_seconds *sum, const zp_variant *v, int segment, int64_t first, int64_t end) {
  const zp_pieces *pieces = v->lowered->pieces;
  int parts = pieces->parts[segment], from = (int)(first % parts), to = (int)(end % parts);
  int64_t layers = end / parts - first / parts;
  if (layers == 0) {
    add_pieces(sum, &v->piece_s[zp_pieces_find(pieces, segment, from, to)], 1);
    return;
  }
  if (from > 0) add_pieces(sum, &v->piece_s[zp_pieces_find(pieces, segment, from, parts)], 1);
  add_pieces(sum, &v->piece_s[zp_pieces_find(pieces, segment, 0, parts)], layers - (from > 0));
  if (to > 0) add_pieces(sum, &v->piece_s[zp_pieces_find(pieces, segment, 0, to)], 1);
}

zp_part_seconds zp_stage_seconds(const zp_variant *v, int64_t first, int64_t end) {
  assert(v->prefix_s && first < end && end <= v->lowered->n_units);
  if (!v->fine)
    return (zp_part_seconds){v->prefix_s[end] - v->prefix_s[first], v->forward_s[end] - v->forward_s[first],
                             v->input_s[end] - v->input_s[first]};
  zp_part_seconds sum = {0};
  int64_t start = 0;
  for (int i = 0; i < v->lowered->pieces->n_whole && start < end; i++) {
    int64_t units = v->lowered->segments[i].segment->count * v->lowered->pieces->parts[i];
    int64_t low = first > start ? first - start : 0, high = end - start < units ? end - start : units;
    if (low < high) add_range(&sum, v, i, low, high);
    start += units;
  }
  return sum;
}

void zp_measure_units(zp_search_cache *s, zp_variant *v, zp_lowered *const *modes, int n) {
  const zp_lowered *l = v->lowered;
  v->part_s = ZP_NEW_ARRAY(s->arena, zp_part_seconds, l->n_segments);
  v->piece_s = ZP_NEW_ARRAY(s->arena, zp_part_seconds, l->n_segments);
  v->unit_s = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->kept_bytes = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->waiting_bytes = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->part_elements = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->part_spread = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->part_frozen = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->backward_share = 1;
  v->carry_elements = INT64_MAX;
  for (int i = 0; i < l->pieces->n_whole; i++) measure_segment(v, modes, n, i);
  add_units(v);
  for (int p = 0; p < s->in->spec->model->params.len; p++) {
    const zp_param *param = &s->in->spec->model->params.data[p];
    int64_t *sum = l->sharding->param[p].spread ? &v->spread_elements : &v->elements;
    if (param->segment < 0) *(param->frozen ? &v->frozen_elements : sum) += l->param_elements[p];
  }
}
