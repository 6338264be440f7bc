/* SPDX-License-Identifier: Apache-2.0 */
/* What the search chooses, and what a plan file decides: degrees, schedule, cut, what is recomputed and where state
 * lives. */
#ifndef ZPLAN_CHOICE_H
#define ZPLAN_CHOICE_H

#include <assert.h>
#include <limits.h>
#include <zplan/model.h>
#include <zplan/spec.h>

/* The last `eighths`/8 of a state class's bytes live on `tier`, the rest on the device. tier DEVICE: eighths is 0. */
typedef struct zp_home {
  zp_tier tier;
  int eighths; /* 0 .. 8 */
} zp_home;

enum { ZP_MOST_LOSS_CHUNKS = 256 };

/* How the layers of a stage divide where they do not all recompute alike: of every chunk of the stage the first
 * `layers` recompute as the stage's mode says, the others as `rest` does (Megatron-LM's block method). A piece of a
 * layer counts as one; what stands outside repeats is never recomputed and not counted. ZP_ALL_LAYERS: they are alike,
 * and `rest` is the stage's mode. */
#define ZP_ALL_LAYERS INT64_MAX
typedef struct zp_stage_mix {
  int64_t layers;
  zp_stage_mode rest;
} zp_stage_mix;

/* What the search chooses. All zero but the degrees, the micro-batch and the cut is a sound choice: 1F1B, nothing
 * recomputed or offloaded. */
typedef struct zp_choice {
  int tensor, pipeline;
  int data;    /* ranks that hold the same of the model, all of which its state may be divided over: those that share
                * positions count. zp_replicas have samples of their own, which users call `data` */
  int context; /* data ranks that share the positions of the same samples (0 means 1); zp_context_ranks reads it */
  zp_context_by context_by; /* what ranks of a context group exchange around attention */
  int expert; /* data ranks that share the experts of a tensor rank (0 means 1); zp_expert_ranks reads it */
  int zero;   /* 0 .. 3 */
  int shard;  /* data ranks that divide among them what ZeRO 1 to 3 share out (0 means all; never all otherwise);
               * zp_shard_ranks reads it */
  int hpz;    /* ZeRO 3: data ranks that divide among them a second copy of the parameters, which backward gathers
               * (hpZ of ZeRO++); 0: there is none */
  zp_schedule schedule;
  int chunks;    /* model chunks a stage (0 means 1): > 1 for INTERLEAVED, 2 where the schedule folds */
  bool sequence; /* see zp_constraints.sequence */
  bool fine;     /* cuts may lie inside layers: units are parts of a repeat's body (pieces.h) */
  bool compress; /* 1-bit Adam: momentum compressed over the data ranks (arXiv 2102.02888) */
  zp_home home[ZP_STATE_COUNT];
  zp_rank_order order; /* of the ranks over the nodes */
  int64_t microbatch;
  int loss_chunks; /* parts of a micro-batch's tokens that the loss is made by, in backward (0 means 1: at once, in
                    * forward); zp_loss_chunks reads it */
  zp_recompute recompute;
  bool recompute_shard;           /* kept unit inputs are split over the tensor ranks */
  zp_stage_mode *stage_recompute; /* [pipeline]: what every stage recomputes, where they differ; `recompute` and
                                   * `recompute_shard` are then those of stage 0. NULL: all stages as these two say.
                                   * zp_choice_mode reads either. */
  zp_stage_mix *mix;              /* [pipeline]; NULL: the layers of every stage are alike */
  /* An order that is not the schedule's, from a plan file; NULL: the schedule's. Borrowed. */
  const struct zp_own_order *own_order;
  int64_t *cut; /* pipeline * chunks + 1 unit numbers: chunk k of the model runs units cut[k] .. cut[k+1]-1; with one
                 * chunk a stage, chunk k is stage k. zp_chunk_stage says which stage has chunk k. */
} zp_choice;

/* Model chunks a stage. */
static inline int zp_chunks(const zp_choice *choice) { return choice->chunks > 1 ? choice->chunks : 1; }
static inline int zp_loss_chunks(const zp_choice *choice) { return choice->loss_chunks > 1 ? choice->loss_chunks : 1; }
/* Has every stage two chunks, the second half of the model folded back over the first one? */
static inline bool zp_schedule_folds(zp_schedule schedule) {
  return schedule == ZP_SCHEDULE_ZB_V || schedule == ZP_SCHEDULE_DUALPIPEV;
}
/* Does the schedule split backward into gradients of inputs (BI) and of weights (BW)? */
static inline bool zp_schedule_splits(zp_schedule schedule) {
  return schedule == ZP_SCHEDULE_ZB_H1 || schedule == ZP_SCHEDULE_ZB_H2 || zp_schedule_folds(schedule);
}
/* Ranks that a plan uses. */
static inline int zp_choice_ranks(const zp_choice *choice) { return choice->tensor * choice->pipeline * choice->data; }
/* Ranks of an expert group: neighbours among the data ranks of a stage and tensor rank. Rank d has place d % expert. */
static inline int zp_expert_ranks(const zp_choice *choice) { return choice->expert > 1 ? choice->expert : 1; }
/* Ranks of a context group: neighbours among the data ranks. Rank d has place d % context, with the positions from that
 * share on. */
static inline int zp_context_ranks(const zp_choice *choice) { return choice->context > 1 ? choice->context : 1; }
/* Data ranks with samples of their own. */
static inline int zp_replicas(const zp_choice *choice) { return choice->data / zp_context_ranks(choice); }
/* Are there groups that exchange something inside units: expert groups, context groups? Of the data ranks, those that
 * share positions among them: neither size need divide the other. */
static inline bool zp_choice_exchanges(const zp_choice *choice) {
  return zp_context_ranks(choice) > 1 || zp_expert_ranks(choice) > 1;
}
/* Ranks of a shard group: neighbours among the data ranks, as those of an expert group, which lies inside one. Ranks at
 * one place of their groups have copies of the same shards. */
static inline int zp_shard_ranks(const zp_choice *choice) { return choice->shard > 0 ? choice->shard : choice->data; }
static inline int zp_shard_copies(const zp_choice *choice) { return choice->data / zp_shard_ranks(choice); }
/* What functions that are asked often may assert of a choice: degrees that make ranks, one of its stages, one of the
 * chunks of a stage. */
static inline bool zp_choice_has_degrees(const zp_choice *choice) {
  return choice->tensor >= 1 && choice->pipeline >= 1 && choice->data >= 1 &&
         choice->data % zp_expert_ranks(choice) == 0 && choice->data % zp_context_ranks(choice) == 0 &&
         choice->data % zp_shard_ranks(choice) == 0 && (choice->hpz == 0 || choice->data % choice->hpz == 0);
}
/* Negative numbers are large ones without their sign: one comparison. */
static inline bool zp_choice_has_stage(const zp_choice *choice, int stage) {
  return (unsigned)stage < (unsigned)choice->pipeline;
}
static inline bool zp_choice_has_chunk(const zp_choice *choice, int chunk) {
  return chunk == 0 || (unsigned)chunk < (unsigned)zp_chunks(choice);
}
/* Does it have degrees, a micro-batch, ZeRO 0 to 3, classes of state that live somewhere, and a cut of so many units,
 * ascending from 0? O(stages * chunks): for what is asked seldom. */
bool zp_choice_is_whole(const zp_choice *choice, int64_t units);
/* Do data ranks own pieces of the optimizer's state, of gradients, of parameters? ZeRO 1, 2 and 3. */
static inline bool zp_shards_state(const zp_choice *choice) { return choice->zero >= 1; }
static inline bool zp_shards_gradients(const zp_choice *choice) { return choice->zero >= 2; }
static inline bool zp_shards_params(const zp_choice *choice) { return choice->zero >= 3; }
static inline bool zp_shards(const zp_choice *choice, zp_state state) {
  static const int zero[ZP_STATE_COUNT] = {[ZP_STATE_OPTIMIZER] = 1,
                                           [ZP_STATE_GRADIENTS] = 2,
                                           [ZP_STATE_PARAMS] = 3,
                                           [ZP_STATE_ACTIVATIONS] = INT_MAX}; /* ranks have samples of their own */
  assert(state < ZP_STATE_COUNT);
  return choice->zero >= zero[state];
}
/* Does no share of any class of state leave the device? */
static inline bool zp_all_on_device(const zp_choice *choice) {
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (choice->home[i].eighths > 0) return false;
  return true;
}
/* Do parameters, gradients pass through a ring of buffers, bucket by bucket: because a rank has shards of them, or
 * because some of them live off the device? */
static inline bool zp_moves_params(const zp_choice *choice) {
  return zp_shards_params(choice) || choice->home[ZP_STATE_PARAMS].eighths > 0;
}
static inline bool zp_moves_gradients(const zp_choice *choice) {
  return zp_shards_gradients(choice) || choice->home[ZP_STATE_GRADIENTS].eighths > 0;
}
static inline bool zp_moves_buckets(const zp_choice *choice) {
  return zp_moves_params(choice) || zp_moves_gradients(choice);
}
static inline zp_stage_mode zp_choice_mode(const zp_choice *choice, int stage) {
  assert(zp_choice_has_stage(choice, stage));
  return choice->stage_recompute ? choice->stage_recompute[stage]
                                 : zp_stage_mode_of(choice->recompute, choice->recompute_shard);
}
/* Layers of a stage that recompute as its mode says: ZP_ALL_LAYERS where it is not mixed. */
static inline int64_t zp_choice_layers(const zp_choice *choice, int stage) {
  return choice->mix ? choice->mix[stage].layers : ZP_ALL_LAYERS;
}
/* Do stages, or layers of one, recompute differently? */
static inline bool zp_choice_has_modes(const zp_choice *choice) { return choice->stage_recompute || choice->mix; }
/* Does some stage, or do some of its layers, run in that mode? */
bool zp_choice_runs_mode(const zp_choice *choice, int stage, zp_stage_mode mode);
/* Sets the modes of all stages in their one normal form: stage_recompute only where they differ. Borrows `mode`. */
void zp_choice_set_modes(zp_choice *choice, zp_stage_mode *mode);
/* Sets the mixes of all stages in their one normal form: mix only where one is. Borrows `mix`. */
void zp_choice_set_mix(zp_choice *choice, zp_stage_mix *mix);
/* "full", "full on 3 layers, none on the others"; arena, or static. */
const char *zp_stage_mode_words(zp_arena *arena, const zp_choice *choice, int stage);
/* With its own cut and modes. Arena. */
zp_choice zp_choice_copy(zp_arena *arena, const zp_choice *choice);

/* Stage of a rank. */
static inline int zp_stage_of_rank(const zp_choice *c, int64_t rank) {
  assert(rank >= 0 && rank < zp_choice_ranks(c));
  return (int)(c->order == ZP_ORDER_TPD ? rank / c->tensor % c->pipeline : rank / ((int64_t)c->tensor * c->data));
}
/* Ranks with consecutive numbers stand on one stage in blocks of so many. */
static inline int64_t zp_stage_block(const zp_choice *c) {
  return c->order == ZP_ORDER_TPD ? c->tensor : (int64_t)c->tensor * c->data;
}
/* What is recomputed, in words: "full", "full on stages 0-5, selective on 6-9, none on 10-15". */
const char *zp_choice_recompute_words(zp_arena *arena, const zp_choice *choice);
const char *zp_state_name(zp_state state); /* "optimizer" */
const char *zp_tier_name(zp_tier tier);    /* "host" */

#endif
