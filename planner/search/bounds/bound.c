/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds of the simulated step time. All proofs need only that a stage runs its order table in order, that a
 * chunk waits for the one before it (backward: after it), and that nothing runs faster than its procedures cost:
 * gathers, copies and messages only add. Each proof stands at its function, in these letters:
 *
 *   P stages, K chunks of the model, m micro-batches, T seconds of all micro-batches
 *   F, B, X = F + B  forward, backward, both, of one micro-batch on a stage; W: X of all stages
 *   I                F and the part of B on the way to the gradient of the inputs (schedules that split backward)
 *   A, C             X of the stages before and after a stage: A + X + C = W
 *   w = P - 1 - s    stages after stage s
 *   M, L             X of the longest stage, at least max(W / P, L); of the longest unit
 *
 * Where stages choose what they recompute, W and L are the least of all modes, or what memory allows (least_work.c); X,
 * F and B of a known stage are its own. */
#include <math.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "procedures.h"

typedef zp_group_link zp_find_link(const zp_machine *machine, int tensor, int pipeline, int data, zp_rank_order order);

/* The links of the current degrees. */
static const zp_group_link *recall_link(const zp_search_cache *s, zp_link_memo *memo, zp_find_link *find,
                                        const zp_choice *c) {
  if (!memo->known || !zp_same_degrees(&memo->choice, c))
    *memo = (zp_link_memo){true, *c, find(&s->machine, c->tensor, c->pipeline, c->data, c->order)};
  return &memo->link;
}

static const zp_group_link *recall_peers(const zp_search_cache *s, zp_link_memo *memo, zp_move_end peers,
                                         const zp_choice *c) {
  if (!memo->known || !zp_same_degrees(&memo->choice, c))
    *memo = (zp_link_memo){true, *c, zp_cost_link_of(&s->machine, c, peers)};
  return &memo->link;
}

static const zp_group_link *data_link(zp_search_cache *s, const zp_choice *c) {
  return recall_peers(s, &s->memo.data, ZP_END_DATA_RANKS, c);
}

static const zp_group_link *replica_link(zp_search_cache *s, const zp_choice *c) {
  return recall_peers(s, &s->memo.replicas, ZP_END_REPLICAS, c);
}

/* With several node types only the work of the stages is bounded: links and the end of the step are left out, because
 * which of them is fastest depends on the group. */
double zp_least_message(zp_search_cache *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  if (zp_has_types(s) || !s->in->floor.messages) return 0;
  const zp_variant *v = zp_variant_of(s, point);
  const zp_group_link *link = recall_link(s, &s->memo.stages, zp_machine_pipeline_link, c);
  return zp_cost_message(link, (double)v->carry_elements * v->lowered->compute_bytes);
}

/* What the first chunk of every stage but the last takes at least, where cuts are stated (chunk_cut.c): W less the
 * other K - P + 1 chunks. Chunks are cut for the shortest longest one, so none is longer than W / K + L. They are cut
 * by the times of some mode; in a faster one they may take less, at most by the share that the unit with the greatest
 * gain takes less. Loose by how much shorter than W / K + L chunks are. */
static double first_chunks(const zp_search_cache *s, const zp_point *point, double P, double K) {
  const zp_variant *v = zp_variant_of(s, point);
  double least = HUGE_VAL;
  for (int i = 0; i < point->n_modes; i++) {
    const zp_variant *cut = &s->variants.data[point->modes[i]];
    double W = cut->prefix_s[zp_point_units(s, point)], share = 1;
    for (int k = 0; k < v->lowered->n_segments && point->n_modes > 1; k++)
      share = fmin(share, v->unit_s[k] / cut->unit_s[k]);
    least = fmin(least, share * fmax(0, (P - 1) * W / K - (K - P + 1) * cut->longest_s));
  }
  return least;
}

/* Any schedule: the longest stage runs all micro-batches, T >= m M; and one micro-batch goes all the way up and back,
 * trip_s. Loose: nothing overlaps the two. */
static double bound_any_schedule(double m, double M, double trip_s) { return fmax(m * M, trip_s); }

/* GPipe runs the micro-batches backward in the opposite order, last in, first out: before the longest stage begins,
 * the first one comes up through A and C goes down from it: T >= A + m M + C = W + (m - 1) M, and all messages of a
 * trip. */
static double bound_gpipe(double m, double W, double M, double messages_s) { return W + (m - 1) * M + messages_s; }

/* Interleaving: the last stage waits for the first chunks of all stages before it, and ends with the same chunks
 * backward: T >= A + m X of it. With every cut in the space A may be next to nothing. */
static double bound_interleaved(double m, double M, double first_chunks_s) { return m * M + first_chunks_s; }

/* 1F1B, round trips: the first stage has at most P micro-batches in flight, so number i + P starts there after i is
 * back. */
static double bound_1f1b_trips(double m, double P, double trip_s) { return (1 + floor((m - 1) / P)) * trip_s; }

/* 1F1B, m <= P: between its first forward and its first backward the longest stage waits for C, and has at most m - 1
 * forwards to fill that with: T >= A + m X + C - (m - 1) F = W + (m - 1) B. backward_share: least share of B in X. */
static double bound_1f1b_few(double m, double W, double M, double backward_share) {
  return W + (m - 1) * backward_share * M;
}

/* 1F1B, m > P: the longest stage waits for C twice, before its first backward (w forwards fill that time) and before
 * its last one (w backwards do), and the two spans do not overlap: T >= A + m M + max(0, C - w F) + max(0, C - w B)
 * >= A + m M + max(0, 2 C - w M) = (m - 1) M + W + max(-C, C - w M). With w <= P - 1 the last term is at least
 * -(P - 1) M / 2 (both are equal at C = w M / 2), and A <= s M, so C >= W - (P - w) M, which makes it at least W - P
 * M. */
static double bound_1f1b_at(double m, double P, double W, double M) {
  return (m - 1) * M + W - fmin((P - 1) * M / 2, P * M - W);
}

/* M is only known from below. As a function of M the bound has two straight parts that meet where (P - 1) M / 2 is
 * P M - W, so its least value over longer M is at one of their ends. */
static double bound_1f1b_many(double m, double P, double W, double M) {
  double turn = fmax(M, 2 * W / (P + 1));
  return fmin(bound_1f1b_at(m, P, W, M), bound_1f1b_at(m, P, W, turn));
}

/* W: of all stages, with what they move where that is known. Where backward is not split, one micro-batch goes through
 * all of W. 1F1B with few micro-batches weighs a share of backward, which is known of computing alone. */
static double pipeline_bound(zp_search_cache *s, const zp_point *point, double W) {
  const zp_variant *v = zp_variant_of(s, point);
  const zp_choice *c = &point->choice;
  double P = c->pipeline, m = (double)zp_microbatches(s->in->spec, c);
  if (c->pipeline == 1) return m * W;
  double M = fmax(W / P, point->longest_s), K = zp_model_chunks(c);
  double hops = 2 * (K - 1 - zp_schedule_folds(c->schedule)); /* folded, it turns on the last stage */
  double messages = hops * zp_least_message(s, point);
  double trip = v->input_s[zp_point_units(s, point)] + point->work_s - v->prefix_s[zp_point_units(s, point)] + messages;
  if (!zp_schedule_splits(c->schedule)) trip = fmax(trip, W + messages);
  double bound = bound_any_schedule(m, M, trip);
  switch (c->schedule) {
  case ZP_SCHEDULE_GPIPE: return fmax(bound, bound_gpipe(m, W, M, messages));
  case ZP_SCHEDULE_INTERLEAVED:
    return fmax(bound,
                bound_interleaved(m, M, point->every_cut || s->in->pinned_cut ? 0 : first_chunks(s, point, P, K)));
  case ZP_SCHEDULE_1F1B:
    bound = fmax(bound, bound_1f1b_trips(m, P, W + messages));
    if (m > P) return fmax(bound, bound_1f1b_many(m, P, W, M));
    return fmax(bound, bound_1f1b_few(m, W, fmax(point->work_s / P, point->longest_s), v->backward_share));
  default: return bound;
  }
}

/* ---- the end of the step ---- */

/* The mean of the stages' trained parameters. */
static zp_flat mean_of(const zp_variant *v, const zp_choice *c) {
  zp_flat mean = {{0}};
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    if (zp_kinds[kind].trained) mean.of[kind] = v->elements.of[kind] / c->pipeline;
  return mean;
}

/* The update of a stage with the mean of the parameters: there is one with as many. */
static zp_step_end update_of(const zp_search_cache *s, const zp_variant *v, const zp_choice *c) {
  zp_flat mean = mean_of(v, c);
  zp_step_end end = zp_cost_step_update(v->lowered, &s->machine, c, &mean);
  if (!s->in->floor.offload) end.offload_s = end.least_offload_s = end.delayed_s = 0;
  return end;
}

/* The reduction that nothing hides: the first stage holds the first unit. The generated CPU trainer reduces after the
 * last micro-batch; on GPUs what is left of the reduction is known for one stage only. backward: of all units. */
static double reduce_s(const zp_search_cache *s, const zp_point *point, double backward) {
  const zp_variant *v = zp_variant_of(s, point);
  const zp_choice *c = &point->choice;
  bool one = c->pipeline == 1;
  if ((!one && !s->machine.node->device.is_cpu) || !s->in->floor.reductions) return 0;
  zp_step_end of_first = zp_cost_step_end(v->lowered, &s->machine, c, one ? &v->elements : &v->elements_before[1]);
  if (!one) return of_first.reduce_s;
  return zp_cost_exposed_reduce(&s->machine, of_first.taken, of_first.reduce_s, 0, backward, zp_point_units(s, point));
}

/* What follows from degrees and from what the step exchanges, whatever the homes. */
static const zp_step_end_memo *recall_end(zp_search_cache *s, const zp_point *point) {
  const zp_variant *v = zp_variant_of(s, point);
  const zp_choice *c = &point->choice;
  zp_step_end_memo *memo = &s->memo.end[c->zero][c->compress];
  if (memo->known && zp_same_degrees(&memo->choice, c) && memo->elements == v->elements_before) return memo;
  zp_choice here = *c;
  memset(here.home, 0, sizeof here.home);
  double gather = 0;
  zp_flat mean = mean_of(v, c);
  if (s->in->floor.reductions) gather = zp_cost_step_end(v->lowered, &s->machine, &here, &mean).gather_s;
  double reduce = c->pipeline == 1 ? 0 : reduce_s(s, point, 0);
  *memo = (zp_step_end_memo){true, *c, v->elements_before, gather, reduce, update_of(s, v, &here)};
  return memo;
}

/* *update: what of it homes change. */
static double end_after(zp_search_cache *s, const zp_point *point, double backward, zp_step_end *update) {
  const zp_choice *c = &point->choice;
  const zp_step_end_memo *memo = recall_end(s, point);
  double reduce = c->pipeline == 1 ? reduce_s(s, point, backward) : memo->reduce_s;
  *update = zp_all_on_device(c) ? memo->update : update_of(s, zp_variant_of(s, point), c);
  return reduce + update->optimizer_s + update->least_offload_s + memo->gather_s;
}

double zp_bound_end_after(zp_search_cache *s, const zp_point *point, double backward) {
  zp_step_end update;
  return end_after(s, point, backward, &update);
}

double zp_bound_end_of_homes(zp_search_cache *s, const zp_point *point) {
  if (zp_has_types(s)) return 0;
  zp_step_end end = update_of(s, zp_variant_of(s, point), &point->choice);
  return (end.optimizer_s + end.least_offload_s + recall_end(s, point)->gather_s) * (1 - ZP_BOUND_SLACK);
}

/* On CPU ranks the end of the step is more than an update. */
double zp_bound_update(zp_search_cache *s, const zp_point *point) {
  return s->machine.node->device.is_cpu ? 0 : zp_bound_step_end(s, point) * (1 - ZP_BOUND_SLACK);
}

/* ---- transfers alongside the micro-batches ---- */

static bool same_homes(const zp_choice *a, const zp_choice *b) { return memcmp(a->home, b->home, sizeof a->home) == 0; }

static bool same_elements(const zp_flat *a, const zp_flat *b) { return memcmp(a, b, sizeof *a) == 0; }

static bool same_moving(const zp_moving_memo *memo, const zp_choice *c, const zp_relaxed_unit *mean) {
  const zp_choice *k = &memo->choice;
  return memo->known && zp_same_degrees(k, c) && k->zero == c->zero && same_homes(k, c) && k->schedule == c->schedule &&
         zp_chunks(k) == zp_chunks(c) && k->fine == c->fine && same_elements(&memo->mean.elements, &mean->elements) &&
         memo->mean.saved_bytes == mean->saved_bytes && memo->mean.units == mean->units;
}

/* The segment with the most units: the least of it that can be a unit, and how many units are not of it. */
typedef struct repeated {
  zp_relaxed_unit least;
  int64_t others;
} repeated;

static repeated find_repeated(const zp_variant *v) {
  const zp_lowered *l = v->lowered;
  int most = 0;
  int64_t units = 0;
  for (int i = 0; i < l->pieces->n_whole; i++) {
    int64_t n = l->segments[i].segment->count * l->pieces->parts[i];
    if (n > units) most = i, units = n;
  }
  repeated r = {{.elements = {{INT64_MAX, INT64_MAX}}, .units = 1}, l->n_units - units};
  for (int i = 0; i < l->pieces->parts[most]; i++) { /* no piece has less than one of its parts */
    int piece = zp_pieces_find(l->pieces, most, i, i + 1);
    for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
      int64_t elements = (int64_t)v->part_elements[kind][piece];
      if (zp_kinds[kind].trained && elements < r.least.elements.of[kind]) r.least.elements.of[kind] = elements;
    }
  }
  return r;
}

/* All stages together: `stages` of them have a unit of the repeated segment or more, others perhaps nothing that is
 * trained, and so no collective. Where the price of one is convex, the stages' sum is least with the mean on each of
 * these; where it is concave, with no more than that unit on all but one. Where the unit has no trained parameter, some
 * stage still has the mean. */
static double data_of_stages(const zp_data_parts *mean, const zp_data_parts *unit, const zp_data_parts *rest,
                             double stages) {
  double seconds = 0;
  for (int link = 0; link < 2; link++)
    for (int i = 0; i < ZP_COLLECTIVE_WAYS; i++) {
      double even = mean->s[link][i], of_unit = unit->s[link][i];
      seconds += of_unit > 0 ? fmin(stages * even, (stages - 1) * of_unit + rest->s[link][i]) : even;
    }
  return seconds;
}

static zp_flat rest_of(const zp_flat *mean, const zp_flat *unit, int64_t pipeline, int64_t stages) {
  zp_flat rest = *unit;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    int64_t elements = mean->of[kind] * pipeline - (stages - 1) * unit->of[kind];
    if (elements > rest.of[kind]) rest.of[kind] = elements;
  }
  return rest;
}

static void find_data(zp_search_cache *s, const zp_point *point, zp_moving_memo *memo, const repeated *r,
                      const zp_group_link *data, const zp_group_link *replicas) {
  const zp_choice *c = &point->choice;
  const zp_least_moving *mean = &memo->moving;
  int64_t stages = c->pipeline - r->others;
  if (stages <= 0 || mean->forward.data_s + mean->backward.data_s <= 0) return;
  const zp_lowered *l = zp_variant_of(s, point)->lowered;
  zp_relaxed_unit most = {.elements = rest_of(&memo->mean.elements, &r->least.elements, c->pipeline, stages),
                          .units = 1};
  zp_least_moving unit = zp_cost_least_moving(l, &s->machine, c, &r->least, data, replicas),
                  rest = zp_cost_least_moving(l, &s->machine, c, &most, data, replicas);
  memo->forward_s = data_of_stages(&mean->forward.parts, &unit.forward.parts, &rest.forward.parts, (double)stages);
  memo->backward_s = data_of_stages(&mean->backward.parts, &unit.backward.parts, &rest.backward.parts, (double)stages);
}

/* What moves alongside the units of the point. Every chunk begins with a unit of its own and ends with one, so at most
 * as many chunks as there are other units do not begin, or do not end, with one of the repeated segment. */
static const zp_moving_memo *recall_moving(zp_search_cache *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  zp_moving_memo *memo = &s->memo.moving;
  int64_t units = zp_point_units(s, point);
  zp_relaxed_unit mean = {mean_of(v, c), v->saved_bytes / c->pipeline, (units + c->pipeline - 1) / c->pipeline};
  if (same_moving(memo, c, &mean)) return memo;
  const zp_group_link *data = data_link(s, c),
                      *replicas = v->elements.of[ZP_KIND_SPREAD] > 0 ? replica_link(s, c) : NULL;
  repeated r = find_repeated(v);
  double chunks = fmax(0, (double)(zp_model_chunks(c) - r.others));
  *memo = (zp_moving_memo){.known = true,
                           .choice = *c,
                           .mean = mean,
                           .moving = zp_cost_least_moving(v->lowered, &s->machine, c, &mean, data, replicas)};
  find_data(s, point, memo, &r, data, replicas);
  if (chunks > 0) memo->alone_s = chunks * zp_cost_least_alone(v->lowered, &s->machine, c, &r.least, data, replicas);
  return memo;
}

/* What one micro-batch moves alongside a stage with the mean of parameters and saved values: one stage moves as
 * much. */
static double transfers_s(zp_search_cache *s, const zp_point *point) {
  if (zp_has_types(s)) return 0;
  const zp_moving_memo *memo = recall_moving(s, point);
  const zp_least_lanes *forward = &memo->moving.forward, *backward = &memo->moving.backward;
  double data = forward->data_s + backward->data_s;
  if (forward->waits || backward->waits) data += point->work_s / point->choice.pipeline;
  return fmax(data, forward->links_s + backward->links_s);
}

double zp_bound_alone(zp_search_cache *s, const zp_point *point) {
  return zp_has_types(s) ? 0 : recall_moving(s, point)->alone_s;
}

/* Forward, or backward, of all stages. Links are busy for as long as with the mean on every stage, because every byte
 * takes the same time. data_s: of the collectives of all stages. */
static double moved_action(const zp_least_lanes *mean, double compute_s, double all_stages, double data_s) {
  const zp_least_lanes all = {.data_s = data_s, .links_s = mean->links_s * all_stages, .waits = mean->waits};
  return zp_cost_least_action(&all, compute_s);
}

/* W with what moves. A stage takes no less than its computing and what it moves alone. And its forward takes no less
 * than its links are busy, nor does its backward. Of forward and backward by themselves the fastest mode of each is
 * known, not what memory forces. */
static double moved_work(zp_search_cache *s, const zp_point *point, double alone) {
  double work = point->work_s + alone, P = point->choice.pipeline;
  if (zp_has_types(s)) return work;
  const zp_part_seconds *all = &zp_variant_of(s, point)->all_s;
  const zp_moving_memo *memo = recall_moving(s, point);
  return fmax(work, moved_action(&memo->moving.forward, all->forward, P, memo->forward_s) +
                        moved_action(&memo->moving.backward, all->work - all->forward, P, memo->backward_s));
}

/* One stage: what hides the reduction is the last backward with its transfers, so of a micro-batch all but the least
 * forward. Longer micro-batches hide more, but never more than they take longer. */
static double step_end(zp_search_cache *s, const zp_point *point, zp_step_end *update) {
  *update = (zp_step_end){0};
  if (zp_has_types(s)) return 0;
  double whole = point->work_s;
  if (point->choice.pipeline == 1) whole = fmax(whole, transfers_s(s, point));
  return end_after(s, point, whole - zp_variant_of(s, point)->forward_s[zp_point_units(s, point)], update);
}

double zp_bound_step_end(zp_search_cache *s, const zp_point *point) {
  zp_step_end update;
  return step_end(s, point, &update);
}

static void find_sum(void *user, const zp_move *m) {
  if (m->when == ZP_WHEN_OVERLAPPED_BACKWARD && m->queue == ZP_QUEUE_DATA && m->share > 0 &&
      zp_move_peers(m) != ZP_END_COPIES)
    *(zp_bucket_sum *)user = (zp_bucket_sum){m->way, m->element_bytes};
}

/* By the list, whatever the homes: what comes up for it is summed no sooner. With one stage step_end has what is left
 * of it, and on several node types links are left out. */
static zp_bucket_sum find_bucket_sum(const zp_search_cache *s, const zp_choice *here, const zp_variant *v) {
  static const zp_flat one = {{[ZP_KIND_WHOLE] = 1}};
  zp_bucket_sum sum = {.way = ZP_WAY_COPY};
  const zp_move_scope scope = {.lowered = v->lowered,
                               .choice = here,
                               .cpu = s->machine.node->device.is_cpu,
                               .moment = ZP_MOMENT_BUCKETS,
                               .microbatches = 1,
                               .run = -1,
                               .together = &one,
                               .units = 1};
  zp_make_moves(&scope, find_sum, &sum);
  return sum;
}

/* All but the homes. Not bytes: what fills a struct up is not the same in every copy. */
static bool are_alike(const zp_choice *a, const zp_choice *b) {
  return a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data && a->context == b->context &&
         a->expert == b->expert && a->zero == b->zero && a->shard == b->shard && a->hpz == b->hpz &&
         a->schedule == b->schedule && a->chunks == b->chunks && a->context_by == b->context_by &&
         a->sequence == b->sequence && a->fine == b->fine && a->compress == b->compress && a->order == b->order &&
         a->microbatch == b->microbatch && a->loss_chunks == b->loss_chunks && a->recompute == b->recompute &&
         a->recompute_shard == b->recompute_shard && a->stage_recompute == b->stage_recompute && a->mix == b->mix &&
         a->own_order == b->own_order && a->cut == b->cut;
}

/* The stages of a point ask for the same, but for what they recompute. */
static zp_bucket_sum sum_alongside(zp_search_cache *s, const zp_choice *c, const zp_variant *v) {
  if (c->pipeline == 1 || zp_has_types(s) || !s->in->floor.reductions) return (zp_bucket_sum){.way = ZP_WAY_COPY};
  zp_bucket_sum_memo *memo = &s->memo.bucket_sums[v->mode];
  if (memo->lowered == v->lowered && are_alike(&memo->choice, c)) return memo->sum;
  zp_choice here = *c;
  memset(here.home, 0, sizeof here.home);
  *memo = (zp_bucket_sum_memo){v->lowered, here, find_bucket_sum(s, &here, v)};
  return memo->sum;
}

/* Parameters of a stage by kind, or the mean of them. */
typedef struct amounts {
  double of[ZP_KINDS];
} amounts;

/* Sums the gradients of one stage: of those that all data ranks hold, of other kinds where there are some. */
static double sum_s(zp_search_cache *s, const zp_choice *c, zp_bucket_sum sum, amounts elements) {
  double seconds = 0;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    if (!zp_kinds[kind].trained || (kind != ZP_KIND_WHOLE && elements.of[kind] <= 0)) continue;
    const zp_group_link *link = zp_kinds[kind].by_place ? replica_link(s, c) : data_link(s, c);
    seconds += zp_cost_way(link, sum.way, elements.of[kind] * sum.element_bytes);
  }
  return seconds;
}

/* The sum of a stage that may have no gradients that all data ranks hold, and so not the latency of their sum. */
static double stage_sum_s(zp_search_cache *s, const zp_choice *c, zp_bucket_sum sum, amounts elements) {
  return sum_s(s, c, sum, elements) - (elements.of[ZP_KIND_WHOLE] > 0 ? 0 : sum_s(s, c, sum, (amounts){{0}}));
}

/* Seconds of an element beyond the latency of the sum. */
static double sum_slope(zp_search_cache *s, const zp_point *point, zp_bucket_sum sum, zp_param_kind kind) {
  const zp_variant *v = zp_variant_of(s, point);
  amounts all = {{0}}, least = {{0}};
  all.of[kind] = (double)v->elements.of[kind];
  least.of[kind] = kind == ZP_KIND_WHOLE ? 0 : 1; /* sum_s counts no latency where there are none */
  if (all.of[kind] < 1) return 0;
  double seconds = sum_s(s, &point->choice, sum, all) - sum_s(s, &point->choice, sum, least);
  return seconds / all.of[kind] * (1 - ZP_BOUND_SLACK);
}

/* Shared elements that the stage with the first unit has. */
static int64_t shared_of_first(const zp_variant *v) {
  int first;
  int64_t iteration;
  zp_unit(v->lowered, 0, &first, &iteration);
  for (int i = 0; i < v->lowered->shared.len; i++)
    if (!v->lowered->segments[first].uses_shared[i]) return 0;
  return v->elements.of[ZP_KIND_WHOLE] - v->elements_before[v->lowered->n_units].of[ZP_KIND_WHOLE];
}

/* Beyond its latency R is proportional to the parameters, so it is a sum over units. Shared parameters count with the
 * first unit, where it has them. Loose: latencies, buckets, shared parameters that another stage has, too. */
const double *zp_bound_sums_before(zp_arena *arena, zp_search_cache *s, const zp_point *point) {
  const zp_variant *v = zp_variant_of(s, point);
  zp_bucket_sum sum = sum_alongside(s, &point->choice, v);
  if (sum.way == ZP_WAY_COPY) return NULL;
  int64_t units = zp_point_units(s, point), shared = shared_of_first(v);
  double *before = ZP_NEW_ARRAY(arena, double, units + 1);
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    if (!zp_kinds[kind].trained) continue;
    double slope = sum_slope(s, point, sum, kind);
    int64_t first = kind == ZP_KIND_WHOLE ? shared : 0;
    for (int64_t u = 1; u <= units; u++) before[u] += slope * (double)(v->elements_before[u].of[kind] + first);
  }
  return before;
}

/* When the last gradients are summed, at least. A stage's sum takes R, of which its last backwards hide no more than
 * they take; these are the backwards of one micro-batch, where backward is split the weights' part.
 *   - Some stage has the mean of the parameters. Its last backwards come after all forwards of the last micro-batch:
 *     T >= F of the model + R of the mean.
 *   - A stage runs m X, less the backwards that hide: T >= (m - 1) X + F + R, where backward is split I instead of F.
 *     The longest of these is no less than their mean over the stages. R beyond its latency is proportional to the
 *     parameters. */
static double bound_sums(zp_search_cache *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  zp_bucket_sum sum = sum_alongside(s, c, v);
  if (sum.way == ZP_WAY_COPY) return 0;
  double P = c->pipeline, m = (double)zp_microbatches(s->in->spec, c);
  amounts mean, least = {{0}};
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) mean.of[kind] = (double)v->elements.of[kind] / P;
  bool spreads = v->elements.of[ZP_KIND_SPREAD] > 0;
  if (spreads) least.of[ZP_KIND_SPREAD] = 1;
  double mean_s = stage_sum_s(s, c, sum, mean), latency_s = sum_s(s, c, sum, least);
  double hops = zp_model_chunks(c) - 1 - zp_schedule_folds(c->schedule);
  double once = zp_schedule_splits(c->schedule) ? v->all_s.input : v->all_s.forward;
  return fmax(v->all_s.forward + hops * zp_least_message(s, point) + mean_s - (spreads ? latency_s : 0),
              ((m - 1) * point->work_s + once) / P + mean_s - latency_s);
}

/* An update alongside the next step: some stage has the mean of the parameters, and neither what its host works, U, nor
 * its exchange, E, takes less with more of them: T >= U + E (zp_cost_delayed_step). Loose: sums of gradients in the
 * host's memory. */
static double apart_s(zp_step_end update) {
  update.offload_s = update.least_offload_s;
  return zp_cost_delayed_step(&update);
}

double zp_bound_delayed(zp_search_cache *s, const zp_point *point) {
  bool exchanges = !zp_has_types(s) && !zp_all_on_device(&point->choice);
  return exchanges ? apart_s(update_of(s, zp_variant_of(s, point), &point->choice)) : 0;
}

double zp_bound_microbatches(zp_search_cache *s, const zp_point *point) {
  return zp_bound_below(pipeline_bound(s, point, point->work_s));
}

static double moving_bound(zp_search_cache *s, const zp_point *point, double alone) {
  double m = (double)zp_microbatches(s->in->spec, &point->choice);
  double moving = fmax(pipeline_bound(s, point, moved_work(s, point, alone)), m * transfers_s(s, point));
  return fmax(moving, bound_sums(s, point));
}

double zp_bound_moving(zp_search_cache *s, const zp_point *point) {
  return zp_bound_below(moving_bound(s, point, zp_bound_alone(s, point)));
}

double zp_bound_moving_overlapped(zp_search_cache *s, const zp_point *point, double alone) {
  return zp_bound_below(moving_bound(s, point, alone));
}

double zp_bound(zp_search_cache *s, const zp_point *point) {
  zp_step_end update;
  double moving = moving_bound(s, point, zp_bound_alone(s, point)), end = step_end(s, point, &update);
  return zp_bound_below(fmax(fmax(moving, point->cut_s) + end, apart_s(update)));
}

double zp_bound_own_reduce(zp_search_cache *s, const zp_choice *c, const zp_variant *own, int64_t first, int64_t end) {
  zp_bucket_sum sum = sum_alongside(s, c, own->rest ? own->rest : own); /* parameters are the same in all modes */
  if (sum.way == ZP_WAY_COPY) return 0;
  amounts elements;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    elements.of[kind] = (double)(own->elements_before[end].of[kind] - own->elements_before[first].of[kind]);
  zp_part_seconds seconds = zp_stage_seconds(own, first, end);
  return zp_cost_exposed_reduce(&s->machine, zp_cost_taken(&s->machine, data_link(s, c)),
                                stage_sum_s(s, c, sum, elements), 0, seconds.work - seconds.forward, end - first);
}

/* ---- of procedures ---- */

/* Some stage has at least its share of every segment's layers, when these stay whole. */
static double longest_share(const zp_variant *v, int stages) {
  double longest = v->longest_s;
  for (int i = 0; i < v->lowered->pieces->n_whole && !v->fine; i++) {
    int64_t count = v->lowered->segments[i].segment->count;
    longest = fmax(longest, (double)((count + stages - 1) / stages) * v->unit_s[i]);
  }
  return longest;
}

double zp_bound_work_of(const zp_search_cache *s, const zp_choice *choice, const zp_variant *v, double work_s) {
  double longest = fmax(work_s / choice->pipeline, longest_share(v, choice->pipeline));
  double all = (double)zp_microbatches(s->in->spec, choice) * longest;
  return zp_bound_below(fmax(all, v->all_s.input));
}

double zp_bound_work(const zp_search_cache *s, const zp_point *point) {
  return zp_bound_work_of(s, &point->choice, zp_variant_of(s, point), point->work_s);
}
