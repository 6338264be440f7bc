/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the strategies: the list of them, and what several of them ask a scope. */
#ifndef ZPLAN_STRATEGY_H
#define ZPLAN_STRATEGY_H

#include "layout_internal.h"
#include <stddef.h>
#include <zplan/moves.h>

/* In the order of a step: when they have records, and which questions about room their row answers, because the search
 * asks millions of times. A new strategy is one file of this folder and one row here. arg: handed on to X. */
#define ZP_MOVE_STRATEGIES(X, arg)                                                                                     \
  X(zp_params_offloaded, ON_ACTION | ON_STEP | HAS_RING | HAS_REGIONS, arg)                                            \
  X(zp_zero_gather, ON_ACTION | HAS_RING, arg)                                                                         \
  X(zp_hpz_copy, ON_ACTION | HAS_REGIONS, arg)                                                                         \
  X(zp_narrow_weights, HAS_REGIONS, arg)                                                                               \
  X(zp_saved_offloaded_strategy, ON_ACTION | HAS_RING | HAS_REGIONS, arg)                                              \
  X(zp_tensor_collectives, ON_INSIDE, arg)                                                                             \
  X(zp_expert_exchange, ON_INSIDE, arg)                                                                                \
  X(zp_context_exchange, ON_INSIDE, arg)                                                                               \
  X(zp_zero_scatter, ON_ACTION | HAS_RING, arg)                                                                        \
  X(zp_stochastic_sums, 0, arg)                                                                                        \
  X(zp_gradients_offloaded, ON_ACTION | ON_STEP | HAS_RING | HAS_REGIONS, arg)                                         \
  X(zp_pipeline_messages, ON_CHUNK | HAS_REGIONS, arg)                                                                 \
  X(zp_hand_over, ON_CHUNK, arg)                                                                                       \
  X(zp_stream_ends, ON_CHUNK, arg)                                                                                     \
  X(zp_replica_sums, ON_BUCKETS | ON_STEP, arg)                                                                        \
  X(zp_shard_copies_sums, ON_BUCKETS, arg)                                                                             \
  X(zp_one_bit_exchange, ON_STEP | HAS_REGIONS | TAKES_ALL, arg)                                                       \
  X(zp_tied_weights, ON_STEP, arg)                                                                                     \
  X(zp_partial_sums, ON_STEP, arg)                                                                                     \
  X(zp_lengths_offloaded, ON_STEP, arg)                                                                                \
  X(zp_optimizer_offloaded, ON_STEP | HAS_REGIONS, arg)                                                                \
  X(zp_statistics_sums, ON_STEP | HAS_TRANSIENT, arg)                                                                  \
  X(zp_whole_matrices, ON_STEP | HAS_TRANSIENT, arg)                                                                   \
  X(zp_device_update, ON_STEP | HAS_REGIONS, arg)                                                                      \
  X(zp_weights_back, ON_BUCKETS | ON_STEP, arg)
#define ZP_MOVE_ROW(strategy, flags, arg) extern const zp_move_strategy strategy;
ZP_MOVE_STRATEGIES(ZP_MOVE_ROW, )
#undef ZP_MOVE_ROW

/* ---- asking a scope ---- */
static inline int zp_eighths_offloaded(const zp_move_scope *x, zp_state state) {
  return x->choice->home[state].eighths;
}
static inline bool zp_on_disk(const zp_move_scope *x, zp_state state) {
  return x->choice->home[state].tier == ZP_TIER_NVME;
}
/* Does the action need a unit's parameters; does it complete its gradients? */
static inline bool zp_needs_params(zp_act act) { return act != ZP_ACT_BW; }
/* Does the action gather them from the second copy of hpZ? */
static inline bool zp_reads_hpz(const zp_choice *choice, zp_act act) { return choice->hpz > 0 && act != ZP_ACT_F; }
static inline bool zp_makes_gradients(zp_act act) { return act == ZP_ACT_B || act == ZP_ACT_BW; }
/* Buckets of the scope's unit, or its relaxation's, one of a kind. begin: {0}. */
bool zp_scope_next_bucket(const zp_move_scope *x, zp_bucket_walk *walk);
/* The first of the stage's units with a shared parameter stands for all of them in what happens once a step. */
bool zp_is_first_user(const zp_move_scope *x, int param);
/* Elements of one micro-batch that flow between model chunks k - 1 and k; 0: not both on one stage, or not on two. */
int64_t zp_scope_carry(const zp_move_scope *x, int64_t k, bool of_one_stage);
/* What a rank has of a bucket off the device, PARAMS or GRADIENTS, in elements: exact where the unit's place is
 * known. */
int64_t zp_bucket_offloaded(const zp_move_scope *x, const zp_bucket *bucket, zp_state state);
/* Elements of the stage's flat buffers that are trained, or the relaxation's. */
zp_flat zp_scope_flat(const zp_move_scope *x);
/* Elements off the device whose update needs them: of a stage those that the layout has put there, else the share of
 * the optimizer's elements. */
int64_t zp_scope_offloaded(const zp_move_scope *x, zp_state state);
/* Elements of a rank's optimizer state. */
int64_t zp_scope_shard(const zp_move_scope *x);

/* Refusals of a class that may live off the device, which every strategy of one has. */
const char *zp_refuse_home(const zp_choice *choice, const zp_spec *spec, zp_state state);
/* Likewise of parameters and gradients: nor those of a model whose tensor ranks have parts of gradients. */
const char *zp_refuse_shared_by_heads(const zp_choice *choice, const zp_spec *spec, zp_state state);

/* ---- limiting the plan block ---- */
#define ZP_BIT(value) (1u << (value))
#define ZP_ON_DEVICE ZP_BIT(ZP_TIER_DEVICE)
#define ZP_NO_DISKS (ZP_BIT(ZP_TIER_DEVICE) | ZP_BIT(ZP_TIER_HOST))
#define ZP_LIMIT_OFFLOAD(state, name)                                                                                  \
  .key = "offload[" name "]", .offset = offsetof(zp_constraints, offload[state]), .highest = ZP_TIER_NVME
#define ZP_LIMIT_NO_COMPRESSION                                                                                        \
  .key = "compress", .offset = offsetof(zp_constraints, compress), .highest = 1, .keep = ZP_BIT(0)

/* CPU ranks have nowhere to offload to. */
#define ZP_LIMIT_ON_CPUS(state, name)                                                                                  \
  ZP_LIMIT_OFFLOAD(state, name), .keep = ZP_ON_DEVICE, .no_effect = true,                                              \
                                 .why = "CPU ranks compute in host memory: there is nowhere to offload to"
/* The rows of an array, where `is`. */
#define ZP_LIMITS_IF(is, rows) ((is) ? (zp_move_limits){(rows), sizeof(rows) / sizeof *(rows)} : (zp_move_limits){0})

/* ---- needing regions ---- */
static inline void zp_need(zp_placing *p, zp_region region, int64_t bytes) {
  if (bytes > p->stage->bytes[region]) p->stage->bytes[region] = bytes;
}
/* A class that may live on disks passes through windows on the host, in which it is read, changed and written. */
enum { ZP_WINDOWS = 4 };
/* What a rank has of parameters or gradients off the device, on the host or on disks. */
void zp_need_offloaded(const zp_move_scope *x, zp_placing *p, zp_state state, zp_region host, zp_region file,
                       int element_bytes);
/* Two windows where gradients land for an update on the host. Sets what a piece of that is. */
void zp_need_landing(const zp_move_scope *x, zp_placing *p);
/* Rings of buffers, each for what the largest unit has of the class. */
void zp_need_rings(zp_placing *p, const zp_move_rings *rings);
/* one_bit_room.c */
void zp_need_one_bit(const zp_move_scope *x, zp_placing *p);

/* ---- making records ---- */
/* A record of the scope's unit or stage. */
static inline zp_move zp_move_begin(const zp_move_scope *x, const zp_move_strategy *strategy, zp_move_what what,
                                    zp_move_when when, zp_move_wait wait) {
  bool unit = x->moment <= ZP_MOMENT_BUCKETS;
  return (zp_move){.strategy = strategy,
                   .what = what,
                   .when = when,
                   .wait = wait,
                   .act = x->act,
                   .run = unit ? x->run : -1,
                   .first = unit ? x->iteration : 0,
                   .count = 1,
                   .bucket = -1,
                   .times = x->moment == ZP_MOMENT_BUCKETS || x->moment == ZP_MOMENT_STEP ? 1 : x->microbatches,
                   .ranks = 1,
                   .share = 1};
}
/* From here on it is of steps before the variance freezes, if `is`: prices are of those after that. */
static inline void zp_move_warms_up(zp_move *move, bool is) {
  move->warmup = is;
  move->share = !is;
}
/* What emits fills in the rest of a record, which may be used again. A copy of `elements` on a queue, unless there are
 * none. */
void zp_emit_copy(const zp_move_scope *x, zp_move *move, zp_move_queue queue, int64_t elements, int element_bytes,
                  zp_on_move *emit, void *user);
/* A copy of what is a data rank's own of `elements`, which they have between them. */
void zp_emit_shared_copy(const zp_move_scope *x, zp_move *move, zp_move_queue queue, int64_t elements,
                         int element_bytes, zp_on_move *emit, void *user);
/* The way up, from disks first where the class lives there; the way down. */
void zp_emit_up(const zp_move_scope *x, zp_move *move, zp_state state, int64_t elements, int element_bytes,
                int64_t disk_elements, zp_on_move *emit, void *user);
void zp_emit_down(const zp_move_scope *x, zp_move *move, zp_state state, int64_t elements, int element_bytes,
                  int64_t disk_elements, zp_on_move *emit, void *user);
/* Emits a collective of the ranks that hold the same, unless it has no elements. */
void zp_emit_among_holders(const zp_move_scope *x, zp_move *move, zp_move_way way, zp_param_kind kind, int64_t elements,
                           int element_bytes, zp_on_move *emit, void *user);
/* Emits the gathers of a bucket's weights, or of all of a kind: of casts that are kept alone, and of the rest. Where it
 * is not known how many are, it is all. */
void zp_emit_weight_gathers(const zp_move_scope *x, zp_move *move, const zp_bucket *bucket, zp_on_move *emit,
                            void *user);
/* Emits the sum of a bucket's shard over its copies. */
void zp_emit_among_copies(const zp_move_scope *x, zp_move *move, zp_param_kind kind, int64_t elements,
                          int element_bytes, zp_on_move *emit, void *user);
/* An all-gather from the second copy of hpZ. Requires: there is one. */
void zp_emit_among_hpz(const zp_move_scope *x, zp_move *move, int64_t elements, int element_bytes, zp_on_move *emit,
                       void *user);
/* Are gradients summed after the last backward, and not alongside it? */
bool zp_sums_after(const zp_move_scope *x);
/* Bytes that an update reads and writes of an element; of them its state, and the weights where they are no copy. */
int zp_update_bytes(const zp_lowered *lowered);
int zp_update_state_bytes(const zp_lowered *lowered);
/* What passes over state that is off the device read and write of an element's: lengths of tensors, then the update. */
typedef struct zp_host_pass {
  int read, written;
} zp_host_pass;
zp_host_pass zp_host_lengths(const zp_lowered *lowered);
zp_host_pass zp_host_update(const zp_lowered *lowered);
/* Which of them gradients that are not off the device come down for. */
zp_move_when zp_gradients_come_down(const zp_lowered *lowered);
/* Elements of that state, of disks with what fills up pages. */
int64_t zp_state_pages(const zp_move_scope *x);
/* "3/8 on the host" */
const char *zp_home_words(zp_arena *arena, const zp_move_scope *x, zp_state state);

#endif
