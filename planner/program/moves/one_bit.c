/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit Adam (arXiv 2102.02888): after the micro-batches ranks exchange chunks of momentum, one bit an element and a
 * scale for a block of ZP_SIGNS_BLOCK of them; each averages a chunk and all gather it. Packing passes over momentum
 * and error in f32: the worker's side reads both, writes error and signs' sources; the server's side, of a chunk,
 * unpacks, reads and writes its error. Before the variance freezes gradients are summed instead.
 *
 * With ZeRO 1 the ranks' errors, with their gradients added, go to the owners of the elements, and what weights shall
 * change by that comes back (kernels/optimizer/one_bit.c): the same records. The worker reads its gradients, and reads
 * and writes its error twice; the owner, alongside its update, the weights of all ranks and what it has more than
 * these; all of them their weights. Until then it is ZeRO 1. */
#include "strategy.h"

#include <zplan/buf.h>

enum { F32 = 4, WORKER_BYTES = 4 * F32, SERVER_BYTES = 3 * F32, OWED_BYTES = 4 * F32, OWNER_BYTES = 2 * F32 };

/* Errors are where their elements' state is, so the host packs and unpacks what it updates: records go up to be sent,
 * come down to be averaged (each rank's part of the elements: all of them together once), go up as means and come down
 * again for all elements. */
static void make_offloaded(const zp_move_scope *x, zp_move *move, zp_on_move *emit, void *user) {
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER), blocks = gone / ZP_SIGNS_BLOCK;
  move->when = ZP_WHEN_AT_HOST_UPDATE;
  move->wait = ZP_WAIT_AT_ONCE;
  zp_emit_copy(x, move, ZP_QUEUE_UP, blocks, ZP_SIGNS_BLOCK_BYTES, emit, user);
  zp_emit_copy(x, move, ZP_QUEUE_DOWN, blocks, ZP_SIGNS_BLOCK_BYTES, emit, user);
  zp_emit_shared_copy(x, move, ZP_QUEUE_UP, blocks, ZP_SIGNS_BLOCK_BYTES, emit, user);
  zp_emit_copy(x, move, ZP_QUEUE_DOWN, blocks, ZP_SIGNS_BLOCK_BYTES, emit, user);
  zp_emit_copy(x, move, ZP_QUEUE_HOST_MEMORY, gone, WORKER_BYTES, emit, user);
  zp_emit_shared_copy(x, move, ZP_QUEUE_HOST_MEMORY, gone, SERVER_BYTES, emit, user);
}

/* With ZeRO 1 the host is the owner of what it updates: records of all workers come down, that of the change goes up.
 * Where its own weights are a master copy, those of all ranks come down, too; elsewhere it has them, and its error. */
static void make_owner_offloaded(const zp_move_scope *x, zp_move *move, zp_on_move *emit, void *user) {
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER), blocks = gone / ZP_SIGNS_BLOCK, n = x->choice->data;
  bool mixed = x->lowered->compute_bytes == 2;
  move->when = ZP_WHEN_AT_HOST_UPDATE;
  move->wait = ZP_WAIT_AT_ONCE;
  zp_emit_copy(x, move, ZP_QUEUE_DOWN, n * blocks, ZP_SIGNS_BLOCK_BYTES, emit, user);
  zp_emit_copy(x, move, ZP_QUEUE_UP, blocks, ZP_SIGNS_BLOCK_BYTES, emit, user);
  if (!mixed) zp_emit_copy(x, move, ZP_QUEUE_HOST_MEMORY, gone, OWNER_BYTES, emit, user);
  move->what = ZP_MOVE_PARAMETERS;
  if (mixed) zp_emit_copy(x, move, ZP_QUEUE_DOWN, gone, x->lowered->param_bytes, emit, user);
}

static bool applies(const zp_move_scope *x) { return x->choice->compress; }

/* 1-bit LAMB keeps a copy of momentum, and reads and writes how the variance would have gone on. An owner needs no
 * copy, but goes over momentum and variance twice. */
static int lamb_bytes(const zp_lowered *l, bool owner) {
  return zp_optimizer_facts(&l->spec->train)->one_bit == ZP_ONE_BIT_LAMB ? (owner ? 4 : 7) * l->stat_bytes : 0;
}

static void make_packing(const zp_move_scope *x, zp_move *move, int64_t all, zp_on_move *emit, void *user) {
  bool shards = zp_shards_state(x->choice);
  int64_t here = all - zp_scope_offloaded(x, ZP_STATE_OPTIMIZER);
  const zp_lowered *l = x->lowered;
  int worker = shards ? l->grad_bytes + OWED_BYTES + 2 * l->param_bytes : WORKER_BYTES + lamb_bytes(l, false);
  int owner = l->param_bytes + (l->compute_bytes == 2 ? 0 : OWNER_BYTES) + lamb_bytes(l, true);
  zp_emit_copy(x, move, ZP_QUEUE_DEVICE_MEMORY, shards ? all : here, worker, emit, user);
  int64_t mine = shards ? all / x->choice->data - zp_scope_offloaded(x, ZP_STATE_OPTIMIZER) : here / x->choice->data;
  zp_emit_copy(x, move, ZP_QUEUE_DEVICE_MEMORY, mine, shards ? owner : SERVER_BYTES, emit, user);
}

/* 0/1 Adam, alongside the update: every step adds momentum to a sum, decays the weights of the last exchange, and makes
 * those to go on with of both; an exchange makes the mean of the sum, and without a master copy copies weights
 * twice. */
static int local_bytes(const zp_lowered *l) { return l->spec->train.variance_every > 0 ? 7 * l->stat_bytes : 0; }
static int mean_bytes(const zp_lowered *l) {
  if (l->spec->train.variance_every == 0) return 0;
  return 3 * l->stat_bytes + (l->compute_bytes == 2 ? 0 : 4 * l->param_bytes);
}

/* Prices are of 0/1 Adam's average step; of 1-bit Adam's with a frozen variance, which are exchanges all. */
static void lower(zp_arena *scratch, zp_lowered *l) {
  const zp_train *train = &l->spec->train;
  zp_intervals x = zp_train_intervals(scratch, train);
  bool local = train->variance_every > 0 && train->steps > 0;
  l->exchanged = local ? (double)x.exchanges / (double)train->steps : 1;
  l->summed = local ? (double)x.sums / (double)train->steps : 0;
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_flat flat = zp_scope_flat(x);
  int64_t all = zp_flat_trained(&flat), blocks = all / ZP_SIGNS_BLOCK;
  zp_move move = zp_move_begin(x, &zp_one_bit_exchange, ZP_MOVE_SIGNS, ZP_WHEN_AFTER_BACKWARD, ZP_WAIT_BY_NORM);
  move.frozen = true;
  int local = local_bytes(x->lowered), mean = mean_bytes(x->lowered);
  zp_emit_copy(x, &move, ZP_QUEUE_DEVICE_MEMORY, local > 0 ? all : 0, local, emit, user);
  move.share = x->lowered->exchanged;
  zp_emit_among_holders(x, &move, ZP_WAY_EXCHANGE, ZP_KIND_WHOLE, blocks, ZP_SIGNS_BLOCK_BYTES, emit, user);
  zp_emit_among_holders(x, &move, ZP_WAY_EXCHANGE, ZP_KIND_WHOLE, blocks, ZP_SIGNS_BLOCK_BYTES, emit,
                        user); /* the means */
  make_packing(x, &move, all, emit, user);
  zp_emit_copy(x, &move, ZP_QUEUE_DEVICE_MEMORY, mean > 0 ? all : 0, mean, emit, user);
  zp_move offloaded = move;
  (zp_shards_state(x->choice) ? make_owner_offloaded : make_offloaded)(x, &offloaded, emit, user);
  if (zp_shards_state(x->choice)) return; /* until then it is ZeRO 1's */
  move.what = ZP_MOVE_GRADIENTS;
  move.warmup = true;
  move.frozen = false;
  move.share = x->lowered->summed;
  zp_emit_among_holders(x, &move, ZP_WAY_ALL_REDUCE, ZP_KIND_WHOLE, all, x->lowered->grad_bytes, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  const char *what = zp_shards_state(x->choice) ? "gradients and of what weights change by" : "momentum";
  return zp_format(arena, "%d data ranks exchange the signs of their %s, %d bytes for %d elements", x->choice->data,
                   what, ZP_SIGNS_BLOCK_BYTES, ZP_SIGNS_BLOCK);
}

/* Ranks send momentum instead of gradients and keep errors for the whole vector, so that all of a rank's gradients are
 * there at once. */
static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  if (!c->compress) return NULL;
  const char *const *not_with = zp_optimizer_facts(&spec->train)->not_with;
  if (not_with[ZP_LIMIT_ONE_BIT]) return not_with[ZP_LIMIT_ONE_BIT];
  if (spec->train.variance_every > 0) {
    if (not_with[ZP_LIMIT_ONE_BIT_GROWING]) return not_with[ZP_LIMIT_ONE_BIT_GROWING];
    if (zp_shards_state(c))
      return "freeze = growing does not go with ZeRO: between exchanges every rank moves all weights by its own "
             "momentum, for which it needs all of the optimizer state";
    if (c->home[ZP_STATE_OPTIMIZER].eighths > 0)
      return "freeze = growing does not go with optimizer state off the device";
  }
  if (c->data < 2) return "compress needs two or more data ranks";
  if (zp_model_has_frozen(spec->model)) return "compress does not go with frozen parameters";
  if (zp_model_has_gate_biases(spec->model))
    return "compress does not go with biases of gates, which move by their load";
  if (zp_expert_ranks(c) > 1) return "compress does not go with experts spread over data ranks";
  if (zp_shards_gradients(c)) return "compress does not go with ZeRO 2 and 3";
  if (c->home[ZP_STATE_GRADIENTS].eighths > 0 || c->home[ZP_STATE_PARAMS].eighths > 0)
    return "compress does not go with gradients or parameters off the device";
  if (c->home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_NVME) return "compress does not go with optimizer state on disks";
  return NULL;
}

const zp_move_strategy zp_one_bit_exchange = {
    .name = "1-bit exchange",
    .applies = applies,
    .make = make,
    .explain = explain,
    .takes_all = true,
    .regions = zp_need_one_bit,
    .lower = lower,
    .refuses = refuses,
    .provides = 1u << ZP_MOVE_NEED_SIGNS,
};
