/* SPDX-License-Identifier: Apache-2.0 */
/* What the units of a variant take: seconds, bytes and parameters of its layers and of their parts, added up where
 * bounds ask for ranges of units. */
#include <assert.h>
#include <math.h>
#include "procedures.h"

/* Costs of one iteration of a segment or piece. Seconds, backward by what it yields: gradients of inputs, of weights;
 * bytes saved, and of what waits for gradients of weights; parameters by kind. */
enum { FORWARD, INPUTS, WEIGHTS, SAVED, WAITING, ELEMENTS, COSTS = ELEMENTS + ZP_KINDS };
typedef struct unit_costs {
  double of[COSTS], backward_share;
} unit_costs;

/* Where no schedule splits backward, all of it yields gradients of inputs. */
static unit_costs costs_of(const zp_lowered *l, int i) {
  const zp_segment_program *segment = &l->segments[i];
  double seconds = segment->forward.cost_s + segment->backward.cost_s;
  double weights = l->splits ? segment->weights_s : 0;
  unit_costs c = {.of = {[FORWARD] = segment->forward.cost_s,
                         [INPUTS] = segment->backward.cost_s - weights,
                         [WEIGHTS] = weights,
                         [SAVED] = (double)segment->saved_bytes,
                         [WAITING] = (double)segment->pending_bytes},
                  .backward_share = seconds > 0 ? segment->backward.cost_s / seconds : 1};
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) c.of[ELEMENTS + kind] = (double)segment->elements.of[kind];
  return c;
}

/* The least in everything of several modes. */
static unit_costs least_costs(zp_lowered *const *modes, int n, int segment) {
  unit_costs least = costs_of(modes[0], segment);
  for (int i = 1; i < n; i++) {
    unit_costs c = costs_of(modes[i], segment);
    for (int k = 0; k < COSTS; k++) least.of[k] = fmin(least.of[k], c.of[k]);
    least.backward_share = fmin(least.backward_share, c.backward_share);
  }
  return least;
}

/* ---- units ---- */

/* Costs of the pieces of one segment: [first part][end]. */
typedef struct range_costs {
  int parts;
  unit_costs of[ZP_MOST_PARTS][ZP_MOST_PARTS + 1];
} range_costs;

/* Gives every part a cost such that no piece costs less than its parts together: the part's own cost, scaled by the
 * largest factor for which that holds. (Pieces may cost more than the layer, where kernels were fused across the cut,
 * or less, where their inputs need not be rebuilt.) One part: its cost. */
static void share_out(const range_costs *r, int cost, double *part) {
  double scale = 1;
  for (int first = 0; first < r->parts; first++) {
    double sum = 0;
    for (int end = first + 1; end <= r->parts; end++) {
      sum += r->of[end - 1][end].of[cost];
      if (sum > 0) scale = fmin(scale, r->of[first][end].of[cost] / sum);
    }
  }
  for (int i = 0; i < r->parts; i++) part[i] = scale * r->of[i][i + 1].of[cost];
}

/* piece[first][end] becomes a cost that no piece with these parts falls below, not even when it is part of a larger
 * one: that has the parts' own costs more. No less than the parts together, by share_out. */
static void grow_pieces(const range_costs *r, int cost, const double *part,
                        double piece[ZP_MOST_PARTS][ZP_MOST_PARTS + 1]) {
  for (int n = r->parts; n > 0; n--)
    for (int first = 0; first + n <= r->parts; first++) {
      int end = first + n;
      double least = r->of[first][end].of[cost];
      if (first > 0) least = fmin(least, piece[first - 1][end] - part[first - 1]);
      if (end < r->parts) least = fmin(least, piece[first][end + 1] - part[end]);
      piece[first][end] = least;
    }
}

static void measure_pieces(zp_variant *v, const range_costs *r, int segment, double part[COSTS][ZP_MOST_PARTS]) {
  double f[ZP_MOST_PARTS][ZP_MOST_PARTS + 1], i[ZP_MOST_PARTS][ZP_MOST_PARTS + 1], w[ZP_MOST_PARTS][ZP_MOST_PARTS + 1];
  grow_pieces(r, FORWARD, part[FORWARD], f);
  grow_pieces(r, INPUTS, part[INPUTS], i);
  grow_pieces(r, WEIGHTS, part[WEIGHTS], w);
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
      int64_t bytes = least[first] + (int64_t)r->of[first][end].of[SAVED];
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
  double cost[COSTS][ZP_MOST_PARTS];
  range_costs r = costs_of_ranges(v, modes, n, segment);
  for (int k = 0; k < COSTS; k++) share_out(&r, k, cost[k]);
  measure_pieces(v, &r, segment, cost);
  if (whole->carry_out_elements > 0 && whole->carry_out_elements < v->carry_elements)
    v->carry_elements = whole->carry_out_elements;
  zp_flat_add(&v->elements, &whole->elements, whole->segment->count);
  int64_t saved_bytes = least_saved(&r) * whole->segment->count;
  v->saved_bytes += saved_bytes;
  if (l->sharding->trained[segment]->losses.len > 0) v->saved_for_loss += saved_bytes;
  double work[ZP_MOST_PARTS];
  for (int part = 0; part < r.parts; part++) {
    int piece = zp_pieces_find(l->pieces, segment, part, part + 1);
    double forward = cost[FORWARD][part], inputs = cost[INPUTS][part];
    work[part] = forward + inputs + cost[WEIGHTS][part];
    v->longest_s = fmax(v->longest_s, work[part]);
    v->part_s[piece] = (zp_part_seconds){work[part], forward, forward + inputs};
    v->kept_bytes[piece] = cost[SAVED][part];
    v->waiting_bytes[piece] = cost[WAITING][part];
    for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) v->part_elements[kind][piece] = cost[ELEMENTS + kind][part];
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
  add_pieces(sum, &v->piece_s[segment], layers - (from > 0)); /* the piece of all parts */
  if (to > 0) add_pieces(sum, &v->piece_s[zp_pieces_find(pieces, segment, 0, to)], 1);
}

static zp_part_seconds mixed_seconds(const zp_variant *v, int64_t first, int64_t end) {
  int64_t middle = zp_stage_rest(v, first, end);
  zp_variant own = *v;
  own.rest = NULL;
  zp_part_seconds sum = {0};
  if (middle > first) sum = zp_stage_seconds(&own, first, middle);
  if (middle == end) return sum;
  zp_part_seconds rest = zp_stage_seconds(v->rest, middle, end);
  add_pieces(&sum, &rest, 1);
  return sum;
}

double zp_mixed_work(const zp_variant *v, int64_t first, int64_t end) {
  int64_t middle = zp_stage_rest(v, first, end);
  return v->prefix_s[middle] - v->prefix_s[first] + (v->rest->prefix_s[end] - v->rest->prefix_s[middle]);
}

zp_part_seconds zp_stage_seconds(const zp_variant *v, int64_t first, int64_t end) {
  assert(v->prefix_s && first < end && end <= v->lowered->n_units);
  if (v->rest) return mixed_seconds(v, first, end);
  if (!v->fine)
    return (zp_part_seconds){v->prefix_s[end] - v->prefix_s[first], v->forward_s[end] - v->forward_s[first],
                             v->input_s[end] - v->input_s[first]};
  zp_part_seconds sum = {0};
  int64_t start = 0;
  for (int i = 0; i < v->lowered->pieces->n_whole && start < end; i++) {
    int64_t units = v->lowered->segments[i].segment->count * v->lowered->pieces->parts[i];
    if (first < start + units)
      add_range(&sum, v, i, first > start ? first - start : 0, end - start < units ? end - start : units);
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
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    v->part_elements[kind] = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->backward_share = 1;
  v->carry_elements = INT64_MAX;
  for (int i = 0; i < l->pieces->n_whole; i++) measure_segment(v, modes, n, i);
  add_units(v);
  for (int i = 0; i < l->shared.len; i++)
    v->elements.of[zp_kind_of(l, l->shared.data[i])] += l->param_elements[l->shared.data[i]];
}
