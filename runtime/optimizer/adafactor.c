/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor (formulas: kernels/optimizer/adafactor.c), in three passes over the elements that a rank updates.
 *   1  sums of squared gradients by row and column, an instance of a run at a time. Ranks that have parts of tensors
 *      add theirs, in f64: tensor ranks of what they share, with ZeRO the data ranks of all. So every rank has the
 *      statistics of whole tensors, and copies stay equal to the bit.
 *   2  squares of parameters and of updates, which all ranks sum as they do for the norm.
 *   3  parameters.
 * What of gradients, of squares and of parameters is off the device host_adafactor.c does; statistics never are.
 * Statistics are those of all trained parameters of a stage one after the other, run by run. The scratch region has
 * the sums of an instance, and what arrives of them; then the factors of the tensor at work, and room for sums. */
#include "adafactor.h"
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "home.h"
#include "lamb.h"
#include "optimizer.h"

zpr_statistics zpr_statistics_of(const zpr_param *param) {
  zpr_statistics s = {.height = 1, .width = 1, .elements = 1};
  for (int d = 0; d < param->rank; d++) s.elements *= param->shape[d];
  s.width = param->rank > 0 ? param->shape[param->rank - 1] : 1;
  if (param->rank > 1) s.height = param->shape[param->rank - 2];
  s.rows = param->rank > 1 ? s.elements / s.width : 0;
  s.cols = s.elements / s.height;
  return s;
}

static int64_t statistics_before(const zpr_run *run, int k) {
  int64_t n = 0;
  for (int i = 0; i < k && zpr_is_trained(run->kind); i++) {
    zpr_statistics s = zpr_statistics_of(&run->params[i]);
    n += s.rows + s.cols;
  }
  return n;
}

int64_t zpr_statistics_at(const zpr *c, const zpr_run *run, int64_t i, int k) {
  int64_t at = i * statistics_before(run, run->n_params) + statistics_before(run, k);
  for (const zpr_run *r = c->stage->runs; r < run; r++) at += r->count * statistics_before(r, r->n_params);
  return at;
}

/* How many elements of a tensor, from the first on, have their state on the device, their gradients; and all. */
typedef struct reach {
  int64_t state, grads, all;
} reach;

typedef struct adafactor {
  zpr_stretches stretches;
  int64_t n, tensors;          /* here; of all stages */
  zpr_factored *item, *graded; /* whole; what of it has its gradients on the device */
  reach *reach;
  zpr_factored_step *step;           /* of items */
  double *squares;                   /* [tensors][2]: of parameters, of updates */
  double *pieces;                    /* [pieces of the largest][2] */
  zpr_factored_offloaded *offloaded; /* NULL: nothing is */
} adafactor;

static int64_t padded(int64_t n, int64_t shares) { return (n + shares - 1) / shares * shares; }

static bool is_split(const zpr *c, const zpr_param *param) { return param->split_dim >= 0 && c->program->tensor > 1; }

/* Parameters whose sums travel together: those of an instance, or one that units share, which the trainer may have in a
 * run with others, of no stride. */
typedef struct group {
  const zpr_run *run;
  int first, n;
} group;

static group group_of(const zpr_run *run, int k) {
  return run->stride == 0 ? (group){run, k, 1} : (group){run, 0, run->n_params};
}

static group group_of_item(const zpr_factored *t) { return group_of(t->run, (int)(t->param - t->run->params)); }

static int64_t count_sums(const zpr *c, group g, int end, bool split) {
  int64_t n = 0;
  for (int k = g.first; k < end; k++) {
    zpr_statistics s = zpr_statistics_of(&g.run->params[k]);
    if (is_split(c, &g.run->params[k]) == split) n += s.rows + s.cols;
  }
  return n;
}

/* Those that tensor ranks share stand first. */
static int64_t split_sums(const zpr *c, group g) {
  return padded(count_sums(c, g, g.first + g.n, true), c->program->tensor);
}

static int64_t all_sums(const zpr *c, group g) { return split_sums(c, g) + count_sums(c, g, g.first + g.n, false); }

static int64_t sums_at(const zpr *c, const zpr_run *run, int k) {
  group g = group_of(run, k);
  bool split = is_split(c, &run->params[k]);
  return (split ? 0 : split_sums(c, g)) + count_sums(c, g, k, split);
}

/* Bytes that the plan has for a group, all of which are written. */
static int64_t room_of(const zpr *c, group g) {
  int64_t ranks = (int64_t)c->program->tensor * c->program->data,
          n = count_sums(c, g, g.first + g.n, false) + count_sums(c, g, g.first + g.n, true);
  return 2 * (padded(n, ranks) + ranks) * (int64_t)sizeof(double);
}

static zpr_factored tensor_of(zpr *c, const zpr_stretches *stretches, int r, int64_t i, int k) {
  const zpr_run *run = &c->stage->runs[r];
  zpr_factored t = {.run = run, .param = &run->params[k], .has = zpr_statistics_of(&run->params[k])};
  t.state = zpr_statistics_at(c, run, i, k);
  t.sums = sums_at(c, run, k);
  t.number = zpr_tensor_number(c, r, i, k);
  t.own = zpr_own_block(c, stretches, run, i, t.param, &t.first);
  t.share = zpr_share_of(c->program, t.param, c->t);
  zpr_bucket_home bucket = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
  t.bucket_begin = bucket.own;
  t.bucket_end = bucket.own + bucket.size;
  t.counted = zpr_counts(c, run, t.param, run->base + i * run->stride + t.param->offset);
  return t;
}

/* Sums of the largest instance, with what fills them up. */
static int64_t most_sums(const zpr *c, const adafactor *a) {
  int64_t most = 0;
  for (int64_t i = 0; i < a->n; i++) {
    int64_t sums = padded(all_sums(c, group_of_item(&a->item[i])), zpr_shard_ranks(c->program));
    most = most > sums ? most : sums;
  }
  return most;
}

static int64_t within(int64_t n, int64_t most) { return n < 0 ? 0 : n < most ? n : most; }

static reach reach_of(const zpr *c, const zpr_factored *t) {
  int64_t all = t->own.end - t->own.begin, first = t->own.begin + t->own.to_state;
  return (reach){within(zpr_state_here(c) - first, all), within(zpr_own_here(c, ZPR_CLASS_GRADS) - first, all), all};
}

zpr_factored zpr_factored_part(const zpr_factored *t, int64_t begin, int64_t end) {
  zpr_factored part = *t;
  assert(begin >= 0 && begin <= end && end <= t->own.end - t->own.begin);
  part.own.begin += begin;
  part.own.end = t->own.begin + end;
  part.first += begin;
  return part;
}

void zpr_factored_walk(const zpr_factored *t, int64_t begin, int64_t end, zpr_on_neighbours *on, void *arg) {
  int64_t first = t->first + begin, last = t->first + end;
  for (int64_t b = first / t->share.local_stride; b < t->share.blocks && b * t->share.local_stride < last; b++) {
    int64_t block = b * t->share.local_stride, from = block > first ? block : first, to = block + t->share.width;
    if (to > last) to = last;
    if (from < to) on(arg, from - t->first, to - t->first, t->share.first + b * t->share.stride + from - block);
  }
}

static void *open_adafactor(zpr *c, const zpr_update_set *set) {
  adafactor *a = zpr_alloc(c, 1, sizeof *a);
  int64_t n = 0, most = 1;
  assert(zpr_expert_ranks(c->program) == 1);
  a->stretches = zpr_find_stretches(c);
  for (int p = 0; p < c->program->pipeline; p++) a->tensors += zpr_tensors_of(&c->program->stages[p]);
  a->squares = zpr_alloc(c, (size_t)a->tensors * 2 + 1, sizeof *a->squares);
  n = zpr_tensors_of(c->stage);
  a->item = zpr_alloc(c, (size_t)n + 1, sizeof *a->item);
  a->graded = zpr_alloc(c, (size_t)n + 1, sizeof *a->graded);
  a->reach = zpr_alloc(c, (size_t)n + 1, sizeof *a->reach);
  a->step = zpr_alloc(c, (size_t)n + 1, sizeof *a->step);
  for (int r = 0; r < c->stage->n_runs; r++)
    for (int64_t i = 0; i < c->stage->runs[r].count && zpr_is_trained(c->stage->runs[r].kind); i++)
      for (int k = 0; k < c->stage->runs[r].n_params; k++) {
        zpr_factored t = tensor_of(c, &a->stretches, r, i, k);
        int64_t pieces = (t.own.end - t.own.begin) / ZPR_FACTORED_PIECE + 1;
        most = most > pieces ? most : pieces;
        a->reach[a->n] = reach_of(c, &t);
        a->graded[a->n] = zpr_factored_part(&t, 0, a->reach[a->n].grads);
        a->item[a->n++] = t;
      }
  a->pieces = zpr_alloc(c, (size_t)most * 2, sizeof *a->pieces);
  a->offloaded =
      zpr_factored_offloaded_open(c, set->offloaded, &a->stretches, a->item, a->n, a->tensors, most_sums(c, a));
  return a;
}

static void close_adafactor(void *own) {
  adafactor *a = own;
  free(a->stretches.item);
  zpr_factored_offloaded_close(a->offloaded);
  free(a->item);
  free(a->graded);
  free(a->reach);
  free(a->step);
  free(a->squares);
  free(a->pieces);
  free(a);
}

/* ---- the update ---- */

/* Adds what the ranks of a group have, in their order, the same bits everywhere; count: whole shares of all. */
static void add_sums(zpr *c, const zpr_group *g, zpr_axis axis, double *sums, int64_t count, double *arriving) {
  int64_t share = count / g->n, bytes = share * (int64_t)sizeof *sums;
  zpr_group_exchange(c, g, axis, sums, bytes, bytes, arriving);
  zpr_adafactor_add(c, sums + g->me * share, arriving, share, g->n);
  zpr_group_all_gather(c, g, axis, sums, bytes / zpk_bytes(c->program->dtype));
}

static void sum_group(zpr *c, adafactor *a, group g, int64_t first, const zpk_update *rule) {
  zpr_group tensor = zpr_axis_group(c, ZPR_TENSOR), sharers = zpr_shard_group(c);
  int64_t data = zpr_shards_state(c->program) ? sharers.n : 1, split = split_sums(c, g),
          all = padded(all_sums(c, g), data);
  double *sums = zpr_at(c, c->stage->scratch), *arriving = sums + all;
  assert(2 * all * (int64_t)sizeof *sums <= room_of(c, g) && room_of(c, g) <= c->stage->scratch_bytes);
  zpr_zero(c, sums, room_of(c, g));
  zpr_adafactor_sums(c, rule, &a->graded[first], g.n, sums);
  if (a->offloaded) zpr_factored_offloaded_sums(c, a->offloaded, rule, &a->item[first], g.n, sums, all);
  if (split > 0) add_sums(c, &tensor, ZPR_TENSOR, sums, split, arriving);
  if (data > 1) add_sums(c, &sharers, ZPR_DATA, sums, all, arriving);
  for (int k = 0; k < g.n; k++) zpr_adafactor_means(c, rule, &a->item[first + k], sums + a->item[first + k].sums);
}

static void *find_factors(zpr *c, adafactor *a, const zpr_factored *t, zpr_adafactor_room *room) {
  int64_t bytes = padded((t->has.rows + t->has.cols) * zpk_real_bytes(c->program->dtype), 16);
  char *factors = zpr_at(c, c->stage->scratch);
  *room =
      (zpr_adafactor_room){.free = factors + bytes, .free_bytes = c->stage->scratch_bytes - bytes, .pieces = a->pieces};
  assert(room->free_bytes >= 16);
  zpr_adafactor_factors(c, t, factors);
  return factors;
}

/* Adds the squares of elements [begin, end) of a tensor. */
static void square_part(zpr *c, adafactor *a, const zpk_update *rule, const zpr_factored *t, int64_t begin, int64_t end,
                        bool without_state, const void *factors, const zpr_adafactor_room *room) {
  zpr_factored part = zpr_factored_part(t, begin, end);
  double squares[2];
  if (begin >= end) return;
  part.without_state = without_state;
  zpr_adafactor_squares(c, rule, &part, factors, room, squares);
  a->squares[2 * t->number] += squares[0];
  a->squares[2 * t->number + 1] += squares[1];
}

/* Every tensor's, of all stages. */
static void find_squares(zpr *c, adafactor *a, const zpk_update *rule) {
  zpr_adafactor_room room;
  memset(a->squares, 0, (size_t)a->tensors * 2 * sizeof *a->squares);
  for (int64_t i = 0; i < a->n; i++) {
    const zpr_factored *t = &a->item[i];
    const reach r = a->reach[i];
    bool leaves = r.state < r.all; /* the host wants its factors */
    if (r.all == 0 || (!t->counted && !leaves)) continue;
    const void *factors = find_factors(c, a, t, &room);
    if (leaves) zpr_factored_offloaded_keep(c, a->offloaded, t, factors);
    if (!t->counted) continue;
    square_part(c, a, rule, t, 0, r.state, false, factors, &room);
    square_part(c, a, rule, t, r.state, r.grads, true, factors, &room);
  }
  if (a->offloaded) zpr_factored_offloaded_squares(c, a->offloaded, rule, a->squares);
  zpr_world_sums(c, a->squares, 2 * a->tensors);
}

static void find_steps(const zpr *c, adafactor *a, const zpk_update *rule) {
  const zpr_program *p = c->program;
  for (int64_t i = 0; i < a->n; i++) {
    const zpr_factored *t = &a->item[i];
    const double *squares = &a->squares[2 * t->number], elements = (double)t->has.elements;
    double lr = zpr_rule_with(rule, t->param->recipe).lr;
    if (p->scale_parameter) lr *= fmax(p->least_scale, sqrt(squares[0] / elements));
    a->step[i] = (zpr_factored_step){lr, lr / fmax(1, sqrt(squares[1] / elements) / p->clip_threshold)};
  }
}

typedef struct on_device {
  adafactor *adafactor;
  const zpk_update *rule;
} on_device;

static void apply_here(zpr *c, void *arg) {
  const on_device *d = arg;
  adafactor *a = d->adafactor;
  zpr_adafactor_room room;
  for (int64_t i = 0; i < a->n; i++) {
    const zpr_factored *t = &a->item[i];
    zpr_factored here = zpr_factored_part(t, 0, a->reach[i].state);
    zpk_update own = zpr_rule_with(d->rule, t->param->recipe);
    if (a->reach[i].state == 0) continue;
    own.lr = a->step[i].lr;
    zpr_adafactor_apply(c, &own, &here, find_factors(c, a, t, &room), a->step[i].factor);
  }
}

static void update(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule, int64_t step) {
  (void)set;
  adafactor *a = own;
  zpk_update all = *rule;
  all.beta2 = 1 - pow((double)step, -c->program->decay_rate);
  for (int64_t i = 0, n; i < a->n; i += n) {
    const zpr_factored *t = &a->item[i];
    group g = group_of_item(t);
    sum_group(c, a, g, i, &all);
    n = g.n;
  }
  find_squares(c, a, &all);
  find_steps(c, a, &all);
  on_device d = {a, &all};
  if (a->offloaded)
    zpr_factored_offloaded_apply(c, a->offloaded, &all, a->step, apply_here, &d);
  else
    apply_here(c, &d);
}

const zpr_optimizer_row zpr_adafactor_row = {.name = "adafactor",
                                             .keeps_with = offsetof(zpr_program, beta1),
                                             .moment = {[ZPK_MOMENT1] = ".exp_avg"},
                                             .has_statistics = true,
                                             .exchanges = true,
                                             .recorded = {"eps", "decay_rate", "clip_threshold"},
                                             .open = open_adafactor,
                                             .close = close_adafactor,
                                             .update = update};
