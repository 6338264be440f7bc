/* SPDX-License-Identifier: Apache-2.0 */
/* From the gradients of this replica to new parameters: norm, clipping, optimizer. What ranks sum before and share
 * after is the program's (zpr_program.sum_gradients, share_weights): calls of functions here, in shards.c and
 * partial.c.
 *
 * The elements that this rank updates are cut into blocks once, at the start: a block lies in one parameter, one bucket
 * and one aligned window (device.h) of the flat buffers, so it has one recipe, and sums over blocks do not depend
 * on the threads. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "host_grads.h"
#include "loads.h"
#include "lamb.h"
#include "one_bit.h"
#include "optimizer.h"
#include "param_home.h"
#include "profile.h"
#include "signals.h"
#include "state.h"
#include "state_home.h"

enum { STEPS_OPEN = 2 };

struct zpr_updater {
  zpr_stretches stretches;
  int64_t n, room;
  zpr_block *blocks; /* of own elements (home.h) */
  double *squares;   /* per block */
  int64_t n_here;    /* blocks whose state is on the device, cut where it ends, as its buffers have them */
  zpr_block *here;
  zpr_block_list list;        /* the same */
  zpr_host_update *offloaded; /* the others; NULL: none */
  zpr_update_set set;         /* all of these, as optimizers have them */
  const zpr_optimizer_row *optimizer;
  void *own;                      /* what it keeps; NULL: nothing */
  const zpr_one_bit_row *one_bit; /* NULL: no step exchanges in 1 bit */
  void *one_bit_own;
  bool runs_ahead;
  int signal[STEPS_OPEN];             /* of the steps whose outcome was not asked for */
  zpr_step_result result[STEPS_OPEN]; /* of those that the host decided */
  int64_t finished, told;
};

/* ---- blocks ---- */

/* A tied parameter counts on its first stage. */
static bool owned(const zpr *c, int64_t element) {
  for (int i = 0; i < c->program->n_ties; i++) {
    const zpr_tie *tie = &c->program->ties[i];
    for (int k = 1; k < tie->n_stages; k++)
      if (tie->stages[k] == c->p && element >= tie->offset[k] && element < tie->offset[k] + tie->elements) return false;
  }
  return true;
}

static void add_block(zpr *c, zpr_block b) {
  zpr_updater *u = c->state->updater;
  if (u->n == u->room) {
    u->room = u->room ? 2 * u->room : 256;
    zpr_block *more = realloc(u->blocks, (size_t)u->room * sizeof *more);
    if (!more) zpr_fail(c, "Z0822", "cannot get memory for %lld blocks of the update", (long long)u->room);
    u->blocks = more;
  }
  u->blocks[u->n++] = b;
}

/* A rank's shard of a part is all of it unless ZeRO shares the work out over those who hold the same. */
zpr_part zpr_part_of(zpr *c, zpr_kind kind) {
  const zpr_stage *stage = c->stage;
  zpr_part part = {.holders = kind == ZPR_KIND_SPREAD ? zpr_replica_group(c) : zpr_shard_group(c),
                   .place = c->d % zpr_shard_ranks(c->program),
                   .copied = c->d >= zpr_shard_ranks(c->program),
                   .elements = stage->flat[kind],
                   .shard_elements = stage->shard[kind]};
  if (kind == ZPR_KIND_SPREAD) part.place /= zpr_expert_ranks(c->program);
  for (zpr_kind before = 0; before < kind; before++) {
    part.begin += stage->flat[before];
    part.state_begin += stage->shard[before];
  }
  if (!zpr_is_trained(kind) && !zpr_shards_params(c->program)) part.state_begin = part.begin; /* after whole ones */
  return part;
}

/* Every replica counts with 1-bit Adam, see squares_of_step. */
bool zpr_counts(zpr *c, const zpr_run *run, const zpr_param *param, int64_t begin) {
  zpr_part part = zpr_part_of(c, run->kind);
  bool alone = (!part.copied && (zpr_shards_state(c->program) || part.place == 0)) || zpr_is_one_bit(c->program);
  return alone && (param->split_dim >= 0 || c->t == 0) && owned(c, begin) && param->recipe.sign_rate == 0;
}

/* Cut at multiples in the flat buffers. */
static void add_param(zpr *c, int r, int64_t i, int k) {
  const zpr_program *p = c->program;
  const zpr_run *run = &c->stage->runs[r];
  const zpr_param *param = &run->params[k];
  const int64_t tensor = zpr_tensor_number(c, r, i, k);
  zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
  int64_t begin = run->base + i * run->stride + param->offset, end = begin + param->elements,
          back = home.own - home.flat;
  bool counted = zpr_counts(c, run, param, begin);
  if (zpr_shards_state(p) && begin < home.flat) begin = home.flat;
  if (zpr_shards_state(p) && end > home.flat + home.size) end = home.flat + home.size;
  while (begin < end) {
    int64_t cut = (begin / zpr_block_elements + 1) * zpr_block_elements;
    if (cut > end) cut = end;
    add_block(c, (zpr_block){.begin = begin + back,
                             .end = cut + back,
                             .recipe = param->recipe,
                             .tensor = tensor,
                             .counted = counted,
                             .orthogonal = param->orthogonal});
    begin = cut;
  }
}

/* The optimizer's blocks on the device, as far as their parameters and gradients are there, and on the host. The norm
 * takes them uncut, so that it has the same bits whatever left. */
static void split_blocks(zpr *c) {
  zpr_updater *u = c->state->updater;
  int64_t end = zpr_state_here(c);
  for (int k = 0; k < ZPR_CLASSES; k++)
    if (end > zpr_own_here(c, (zpr_class)k)) end = zpr_own_here(c, (zpr_class)k);
  u->here = zpr_alloc(c, (size_t)u->n + 1, sizeof *u->here);
  for (int64_t i = 0; i < u->n; i++) {
    zpr_block b = zpr_block_here(&u->stretches, &u->blocks[i], end);
    if (b.begin < b.end && !b.orthogonal) u->here[u->n_here++] = b;
  }
  u->list = (zpr_block_list){.block = u->here, .n = u->n_here};
  u->offloaded = zpr_host_update_open(c, &u->stretches, u->blocks, u->n);
}

static void open_optimizer(zpr *c) {
  zpr_updater *u = c->state->updater;
  u->optimizer = zpr_optimizer_of(c->program);
  u->one_bit = zpr_one_bit_of(c->program);
  u->set = (zpr_update_set){
      .stretches = &u->stretches, .blocks = u->blocks, .n = u->n, .here = &u->list, .offloaded = u->offloaded};
  if (u->optimizer->open) u->own = u->optimizer->open(c, &u->set);
  if (u->one_bit && u->one_bit->open) u->one_bit_own = u->one_bit->open(c);
}

void zpr_update_open(zpr *c) {
  zpr_updater *u = c->state->updater = zpr_alloc(c, 1, sizeof *u);
  u->stretches = zpr_find_stretches(c);
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    for (int64_t i = 0; i < run->count && zpr_is_trained(run->kind); i++)
      for (int k = 0; k < run->n_params; k++) add_param(c, r, i, k);
  }
  u->squares = zpr_alloc(c, (size_t)u->n, sizeof *u->squares);
  split_blocks(c);
  open_optimizer(c);
  zpr_partial_open(c);
}

void zpr_update_close(zpr *c) {
  zpr_updater *u = c->state->updater;
  zpr_partial_close(c);
  if (!u) return;
  zpr_block_list_close(c, &u->list);
  if (u->own) u->optimizer->close(u->own);
  if (u->one_bit && u->one_bit->close) u->one_bit->close(c, u->one_bit_own);
  free(u->blocks);
  free(u->squares);
  free(u->here);
  free(u->stretches.item);
  free(c->state->additions);
  zpr_host_update_close(u->offloaded);
  zpr_host_grads_close(c);
  free(u);
  c->state->updater = NULL;
}

/* ---- gradients ---- */

void zpr_begin_step(zpr *c) {
  int64_t size = zpr_gradient_bytes(c);
  char *grads = zpr_at(c, c->stage->grads);
  zpr_loads_zero(c);
  if (zpr_moves_gradients(c->program)) {
    zpr_zero_shared_shards(c);
    return;
  }
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    for (int k = 0; k < run->n_params; k++) {
      if (!run->params[k].zero_first) continue;
      for (int64_t i = 0; i < run->count; i++)
        zpr_zero(c, grads + (run->base + i * run->stride + run->params[k].offset) * size,
                 run->params[k].elements * size);
    }
  }
}

void zpr_sum_flat(zpr *c) {
  char *grads = zpr_at(c, c->stage->grads);
  if (zpr_is_frozen(c)) return;
  for (zpr_kind kind = 0; kind < ZPR_KINDS; kind++) {
    if (!zpr_is_trained(kind)) continue;
    zpr_part part = zpr_part_of(c, kind);
    zpr_group_all_reduce(c, &part.holders, ZPR_DATA, zpr_gradient_type(c), grads + part.begin * zpr_gradient_bytes(c),
                         part.elements);
  }
}

/* Where ranks own pieces, or gradients move, a tie is a bucket, but with 1-bit Adam, whose ranks send all elements of
 * their own gradients. All sums add in rank order, so the stages of a tie get
 * the same bits and their copies of the weight stay equal for good. */
void zpr_sum_ties(zpr *c) {
  bool whole = !zpr_shards_state(c->program) || zpr_is_one_bit(c->program);
  bool buckets = zpr_moves_gradients(c->program) || !whole;
  char *grads = zpr_at(c, c->stage->grads);
  for (int i = 0; i < c->program->n_ties; i++) {
    const zpr_tie *tie = &c->program->ties[i];
    zpr_group g = zpr_tie_group(c, i);
    if (g.n > 1 && buckets)
      zpr_sum_tied_shards(c, tie, &g);
    else if (g.n > 1)
      zpr_group_all_reduce(c, &g, ZPR_TIE, zpr_gradient_type(c), grads + tie->offset[g.me] * zpr_gradient_bytes(c),
                           tie->elements);
  }
}

static void sum_gradients(zpr *c) {
  zpr_land_gradients(c);
  if (c->program->sum_gradients) c->program->sum_gradients(c);
  zpr_loads_finish(c, &c->state->updater->stretches);
}

static double sum_squares(zpr *c) {
  const zpr_updater *u = c->state->updater;
  if (u->one_bit && u->one_bit->squares && zpr_is_frozen(c)) return u->one_bit->squares(c, u->one_bit_own);
  zpr_square_gradients(c, &u->stretches, u->blocks, u->n, u->squares);
  double sum = 0;
  for (int64_t i = 0; i < u->n; i++) sum += u->squares[i];
  return sum;
}

/* Square of the gradient's norm, from the sum of all ranks' squares. 1-bit Adam counts the gradients of every replica:
 * while they are summed the same of each, or with ZeRO 1 shards of the sum; once the variance is frozen a replica has
 * its own part g of the sum of n, and the norm is the root mean square of their n g. */
static double squares_of_step(const zpr *c, double squares) {
  if (!zpr_is_one_bit(c->program)) return squares;
  if (zpr_is_frozen(c)) return squares * c->program->data;
  return zpr_shards_state(c->program) ? squares : squares / c->program->data;
}

/* ---- update ---- */

/* Only what is on the device can be left to it. Optimizers that are not by element ask all ranks for the lengths of
 * their tensors, or have kernels that do not ask whether the step is applied; 1-bit Adam asks every step whether its
 * variance is frozen, and a step whose time is measured ends before the next one begins. */
void zpr_update_begin(zpr *c) {
  zpr_updater *u = c->state->updater;
  zpr_host_update_begin(c, u->offloaded);
  u->runs_ahead = zpr_device_decides(c) && !u->offloaded && u->optimizer->by_element && !u->one_bit &&
                  !c->program->profile && c->stage->grads_offloaded.elements == 0 &&
                  c->stage->params_offloaded.elements == 0;
  if (u->runs_ahead) zpr_decide_begin(c);
}

bool zpr_is_behind(const zpr *c) { return c->program->delayed && c->step > c->program->delay_after; }

void zpr_update_join(zpr *c) { zpr_host_update_join(c->state->updater->offloaded); }

void zpr_update_catch_up(zpr *c) {
  assert(zpr_is_behind(c));
  if (c->state->updater->offloaded) zpr_host_update_exchange(c, c->state->updater->offloaded, NULL);
  if (c->program->share_weights) c->program->share_weights(c);
}

zpr_block_arrays zpr_arrays_of(zpr *c, const zpr_block *b) {
  const zpr_stage *s = c->stage;
  bool mixed = zpk_is_narrow(c->program->dtype);
  int64_t state = (b->begin + b->to_state) * zpk_real_bytes(c->program->dtype);
  char *weights = (char *)zpr_at(c, s->params) + (b->begin + b->to_params) * zpk_bytes(c->program->dtype);
  return (zpr_block_arrays){.param = mixed ? (char *)zpr_at(c, s->master) + state : weights,
                            .weight = mixed ? weights : NULL,
                            .grad = (char *)zpr_at(c, s->grads) + b->begin * zpr_gradient_bytes(c),
                            .m = s->moment1 >= 0 ? (char *)zpr_at(c, s->moment1) + state : NULL,
                            .v = s->moment2 >= 0 ? (char *)zpr_at(c, s->moment2) + state : NULL,
                            .average =
                                c->program->ema > 0 && s->average >= 0 ? (char *)zpr_at(c, s->average) + state : NULL};
}

bool zpr_runs_ahead(const zpr *c) { return c->state->updater->runs_ahead; }

static zpk_update rule_of(const zpr *c, double lr) {
  const zpr_program *p = c->program;
  return (zpk_update){.dtype = p->dtype,
                      .kind = c->state->updater->optimizer->rule,
                      .lr = lr,
#define COPY(name) .name = p->name,
                      ZPK_SETTINGS(COPY)
#undef COPY
                          .ema = p->ema};
}

/* Updates of the variance up to this one: as many as of the parameters until it is frozen. */
static int64_t variance_updates(const zpr *c, int64_t step) {
  const zpr_one_bit_row *one_bit = c->state->updater->one_bit;
  if (one_bit && one_bit->variance_updates) return one_bit->variance_updates(c);
  return step - c->frozen_steps - zpr_is_frozen(c);
}

static void update(zpr *c, double lr, double grad_scale) {
  const zpr_program *p = c->program;
  const zpr_updater *u = c->state->updater;
  int64_t step = c->step + 1 - c->skipped_steps; /* updates of the parameters, this one included */
  zpk_update rule = rule_of(c, lr);
#define BIAS(bias, beta) rule.bias = 1 - pow(p->beta, (double)step);
  ZPK_BIASES(BIAS)
#undef BIAS
  rule.bias2 = 1 - pow(p->beta2, (double)variance_updates(c, step));
  rule.grad_scale = grad_scale;
  if (!zpr_is_frozen(c)) {
    u->optimizer->update(c, u->own, &u->set, &rule, step);
    return;
  }
  rule.grad_scale *= p->data; /* the mean of the replicas' momentum is that of the sum of their gradients */
  u->one_bit->update(c, u->one_bit_own, &u->set, &rule);
}

static void skip(zpr *c, double lr) {
  const zpr_updater *u = c->state->updater;
  zpk_update rule = rule_of(c, lr);
  rule.bias2 = 1 - pow(rule.beta2, (double)variance_updates(c, c->step + 1 - c->skipped_steps));
  if (u->one_bit && u->one_bit->skip)
    u->one_bit->skip(c, u->one_bit_own, &u->set, &rule);
  else if (u->offloaded && zpr_delays(c))
    zpr_host_update_exchange(c, u->offloaded, NULL);
}

/* As torch.nn.utils.clip_grad_norm_. */
static double clip_factor(double clip, double norm) {
  double factor = clip > 0 ? clip / (norm + 1e-6) : 1;
  return factor < 1 ? factor : 1;
}

/* The device decides: whether the step before was applied the host may not know yet, so it says what follows from
 * either. */
static void leave_to_device(zpr *c, double lr) {
  zpr_updater *u = c->state->updater;
  zpr_block_list *counted = zpr_counted_blocks(c, &u->stretches, u->blocks, u->n);
  zpk_update rule = rule_of(c, lr);
  zpr_biases biases;
  for (int more = 0; more < 2; more++) {
    double t = (double)(c->step + 1 - c->skipped_steps - more);
#define BIAS(bias, beta) biases.bias[more] = 1 - pow(c->program->beta, t);
    ZPK_BIASES(BIAS)
#undef BIAS
  }
  zpr_decide(c, counted, &u->list, &rule, &biases);
}

static zpr_step_result decide(zpr *c, double lr, int signal) {
  /* One exchange for everything that all ranks must agree on. The loss lives where the model ends, equal on the tensor
   * ranks there, and is 0 elsewhere. */
  enum { SQUARES, LOSS, TROUBLE, SIGNALS, TALLIES = SIGNALS + ZPR_END_SIGNALS, VALUES = TALLIES + 2 * ZPR_MOST_LOSSES };
  int losses = zpr_n_losses(c->program);
  int before = zpr_enter(c, ZPR_AT_UPDATE);
  zpr_collect_loss(c);
  double sum[VALUES] = {
      [SQUARES] = sum_squares(c), [LOSS] = c->t == 0 ? c->loss : 0, [TROUBLE] = c->state->data_error.code[0] != 0};
  zpr_leave(c, before);
  for (int i = 0; i < ZPR_END_SIGNALS; i++) sum[SIGNALS + i] = signal == zpr_end_signals[i];
  before = zpr_enter(c, ZPR_AT_MEET);
  for (int i = 0; c->t == 0 && i < losses; i++)
    sum[TALLIES + 2 * i] = c->tally[i].loss, sum[TALLIES + 2 * i + 1] = c->tally[i].right;
  zpr_world_sum(c, sum, TALLIES + (losses > 1 ? 2 * losses : 0));
  zpr_leave(c, before);
  double scale = (double)c->loss_scale;
  zpr_step_result result = {.loss = sum[LOSS], .grad_norm = sqrt(squares_of_step(c, sum[SQUARES])) / scale};
  for (int i = 0; i < losses; i++) result.tally[i] = (zpr_tally){sum[TALLIES + 2 * i], sum[TALLIES + 2 * i + 1]};
  for (int i = 0; i < ZPR_END_SIGNALS && result.signal == 0; i++)
    if (sum[SIGNALS + i] > 0) result.signal = zpr_end_signals[i];
  result.no_data = sum[TROUBLE] > 0;
  result.applied = isfinite(result.loss) && isfinite(result.grad_norm) && !result.no_data;
  before = zpr_enter(c, ZPR_AT_UPDATE);
  double factor = clip_factor(c->program->clip, result.grad_norm);
  if (result.signal) c->state->local.meets = true; /* a checkpoint follows */
  if (result.applied)
    update(c, lr, factor / scale);
  else
    skip(c, lr);
  if (result.applied && c->program->freeze_threshold > 0 && c->state->freeze.at == 0)
    zpr_variance_freeze_count(c, factor * result.grad_norm);
  zpr_leave(c, before);
  return result;
}

void zpr_finish_step(zpr *c, double lr, int signal) {
  zpr_updater *u = c->state->updater;
  int turn = (int)(u->finished % STEPS_OPEN);
  assert(u->finished - u->told < (u->runs_ahead ? STEPS_OPEN : 1));
  int before = zpr_enter(c, ZPR_AT_REDUCE);
  sum_gradients(c);
  zpr_leave(c, before);
  u->signal[turn] = signal;
  if (u->runs_ahead)
    leave_to_device(c, lr);
  else
    u->result[turn] = decide(c, lr, signal);
  before = zpr_enter(c, ZPR_AT_GATHER);
  if (c->program->share_weights) c->program->share_weights(c); /* skipped or not: every step sends what the plan says */
  zpr_leave(c, before);
  u->finished++;
}

zpr_step_result zpr_step_outcome(zpr *c) {
  zpr_updater *u = c->state->updater;
  assert(u->told < u->finished);
  int turn = (int)(u->told++ % STEPS_OPEN);
  zpr_step_result result = u->result[turn];
  if (u->runs_ahead) {
    zpr_decided d = zpr_decided_wait(c);
    result =
        (zpr_step_result){.loss = d.loss, .grad_norm = d.grad_norm, .applied = d.applied, .signal = u->signal[turn]};
    memcpy(result.tally, d.tally, sizeof result.tally);
    assert(d.loss_scale == (double)c->loss_scale);
  }
  result.loss_scale = c->loss_scale;
  result.rescaled = !result.applied && zpr_loss_scale_can_fall(c);
  if (!result.no_data) zpr_loss_scale_step(c, result.applied); /* a step that was not trained says nothing of it */
  return result;
}
