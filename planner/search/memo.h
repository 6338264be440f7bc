/* SPDX-License-Identifier: Apache-2.0 */
/* What a search has found out and asks for again: each memo says for which question it holds its answer. */
#ifndef ZPLAN_SEARCH_MEMO_H
#define ZPLAN_SEARCH_MEMO_H

#include <zplan/cost.h>
#include "point.h"

/* Clusters of several node types: where the stages of the current choice stand. Groups of many ranks are slow to look
 * through. */
typedef struct zp_stage_nodes_memo {
  bool known;
  zp_choice choice;   /* tensor, pipeline, data and order count */
  zp_node_set *types; /* [pipeline]; room for the most stages */
  zp_limits *limits;  /* [pipeline] */
  zp_node_set *sets;  /* the different ones among `types` */
  int n_sets;
} zp_stage_nodes_memo;

/* What the bounds of neighbouring points share: groups of thousands of ranks are slow to look through. */
typedef struct zp_step_end_memo {
  bool known;
  zp_choice choice;        /* degrees, expert and shard groups, and rank order count */
  const zp_flat *elements; /* elements_before of the variants */
  double gather_s, reduce_s;
  zp_step_end update; /* with all state on the device */
} zp_step_end_memo;
typedef struct zp_moving_memo { /* of the point that was asked for last */
  bool known;
  zp_choice choice; /* degrees, expert and shard groups, rank order, ZeRO stage, homes, schedule, chunks, fine count */
  zp_relaxed_unit mean;
  zp_least_moving moving;       /* of the mean stage */
  double forward_s, backward_s; /* collectives of all stages together, at least */
  double alone_s;               /* of all chunks together */
} zp_moving_memo;
static inline bool zp_same_degrees(const zp_choice *a, const zp_choice *b) {
  return a->tensor == b->tensor && zp_expert_ranks(a) == zp_expert_ranks(b) && a->pipeline == b->pipeline &&
         a->data == b->data && zp_context_ranks(a) == zp_context_ranks(b) && a->shard == b->shard && a->hpz == b->hpz &&
         a->order == b->order;
}
typedef struct zp_link_memo { /* of the degrees that were asked for last */
  bool known;
  zp_choice choice;
  zp_group_link link;
} zp_link_memo;
typedef struct zp_exchange_memo { /* of the degrees that were asked for last */
  bool known;
  zp_choice choice;
  zp_exchange_links links;
} zp_exchange_memo;
/* How gradients are summed over the data ranks alongside the last backward. way: COPY where they are not. What copies
 * of shards sum afterwards is left out. */
typedef struct zp_bucket_sum {
  zp_move_way way;
  int element_bytes;
} zp_bucket_sum;
typedef struct zp_bucket_sum_memo {
  const zp_lowered *lowered; /* NULL: nothing is known */
  zp_choice choice;          /* all state on the device */
  zp_bucket_sum sum;
} zp_bucket_sum_memo;
enum { ZP_FLIGHT_SLOTS = 2048 };
typedef struct zp_flight_memo { /* of one pipeline that was asked for */
  bool known, counted;          /* counted: every stage; else the least and most of all */
  zp_schedule schedule;
  int chunks, pipeline, room, stages; /* room: for model chunks; stages: the same for stages */
  int64_t microbatches;
  double *flight;                                  /* [pipeline]: see least_work.c */
  double *pending;                                 /* [pipeline]: zp_pending_chunk of the chunk with the fewest */
  double least, most, least_pending, most_pending; /* of all stages */
  double *fewest, *all, *slots; /* [pipeline]: of the chunk with the fewest, of all chunks together; zp_in_flight */
  bool descend;                 /* no stage has more than the one before it */
  int64_t *chunk;               /* [pipeline][chunks]: zp_in_flight_chunk */
} zp_flight_memo;
typedef struct zp_stage_flight { /* of one stage, as zp_flight_memo says it */
  double flight, pending, fewest, all, slots;
} zp_stage_flight;
enum { ZP_STAGE_FLIGHT_SLOTS = 4096, ZP_STAGE_FLIGHT_KEY = 5 };
typedef struct zp_stage_flight_memo {
  int64_t key[ZP_STAGE_FLIGHT_KEY]; /* schedule, chunks, pipeline, micro-batches, stage; all zero: not known */
  zp_stage_flight flight;
} zp_stage_flight_memo;
enum { ZP_STATED_CUT_SLOTS = 512 };
typedef struct zp_stated_cut_memo { /* zp_state_cut of one variant, asked for lately */
  bool known, possible;
  int variant, chunks; /* variant: index */
  bool from_back;
  int room;     /* for numbers of a cut */
  int64_t *cut; /* [chunks + 1] */
} zp_stated_cut_memo;
enum { ZP_STATED_BOUND_SLOTS = 1 << 13 };
typedef struct zp_stated_bound_memo { /* of the stated cuts of a point (price.c) */
  bool known;
  int64_t key[5]; /* variant, schedule, chunks a stage, pipeline, data */
  double seconds;
} zp_stated_bound_memo;
/* What fits of the last point that zp_remember_fits was called for. */
typedef struct zp_known_fit {
  int64_t fits, fails; /* units: the most that are known to fit, the fewest that are known not to */
} zp_known_fit;
/* A range of units inside one segment, on any stage but the first and the last one. */
typedef struct zp_known_inner {
  int64_t point; /* number of the point; another one: not known */
  zp_inner_stage stage;
} zp_known_inner;
/* Ranges of units inside one segment from some unit on. */
typedef struct zp_range_order {
  int order;
  int64_t segment_end;
} zp_range_order;
/* What a stage of several chunks takes. */
enum { ZP_CHUNK_FIT_SLOTS = 512 };
typedef struct zp_known_chunks {
  int64_t point;               /* number of the point; another one: not known */
  int stage, first, end, mode; /* that was asked for, and the answer */
  zp_units part[ZP_MOST_CHUNKS];
} zp_known_chunks;
typedef struct zp_fits_memo {
  int64_t point;           /* its number */
  const zp_pieces *pieces; /* of the next two */
  zp_range_order *order;   /* [units] */
  int64_t order_cap;
  int orders;       /* of ranges (fit_table.c) */
  zp_limits limits; /* that were asked for */
  int64_t cap;
  zp_known_fit *known; /* [pipeline][modes][orders] */
  int64_t inner_cap;
  zp_known_inner *inner;   /* [modes][orders][units]: of ranges inside a segment */
  zp_known_chunks *chunks; /* [ZP_CHUNK_FIT_SLOTS]: of several chunks a stage; NULL: nothing was remembered yet */
  int64_t laid_out;        /* stages, for answers that were not known */
} zp_fits_memo;
/* All that zp_communicators_of asks of a choice: degrees, expert and shard groups, rank order, schedule, chunks,
 * sequence. */
enum { ZP_COMMUNICATORS_SLOTS = 1024, ZP_COMMUNICATORS_KEY = 12 };
typedef struct zp_communicators_memo {
  int64_t key[ZP_COMMUNICATORS_KEY]; /* and ties; degrees of 0: not known */
  int64_t bytes;
} zp_communicators_memo;
/* Mixed stages: an open table of what first layers and the others run. */
typedef struct zp_mixed_slot {
  const zp_lowered *first, *rest;
  int64_t layers;
  const zp_variant *variant; /* NULL: empty */
} zp_mixed_slot;
/* What mixed stages run that were asked for. */
enum { ZP_MIX_SLOTS = 1 << 13 };
typedef struct zp_known_mix {
  int64_t point, units; /* number of the point, 0: empty; of the range */
  int stage, order;     /* of the range */
  const zp_variant *variant;
} zp_known_mix;
/* Bytes of inner stages that run a mixed variant. */
enum { ZP_INNER_MIX_SLOTS = 1 << 12 };
typedef struct zp_inner_mix {
  int64_t key[5]; /* number of the point, both modes, layers, order of the range, units; all zero: empty */
  zp_inner_stage stage;
} zp_inner_mix;
typedef struct zp_mix_memo {
  zp_known_mix *known; /* [ZP_MIX_SLOTS]; NULL: nothing was remembered yet */
  zp_inner_mix *inner; /* the same, [ZP_INNER_MIX_SLOTS] */
} zp_mix_memo;

/* Order tables that were simulated last: cuts and homes do not change them. */
typedef struct zp_order_memo {
  zp_arena *arena; /* of the tables alone */
  zp_arena_mark none;
  int64_t key[4]; /* schedule, pipeline, chunks, micro-batches; all zero: none */
  zp_action **order;
  int64_t *actions;
} zp_order_memo;

typedef struct zp_search_memo {
  zp_order_memo orders;
  zp_mix_memo mixes;
  zp_mixed_slot *mixed; /* [mixed_slots], a power of two */
  int mixed_slots, n_mixed;
  zp_stage_nodes_memo stage_nodes;
  zp_flight_memo flight[ZP_FLIGHT_SLOTS];
  zp_stage_flight_memo stage_flight[ZP_STAGE_FLIGHT_SLOTS];
  zp_stated_cut_memo stated[ZP_STATED_CUT_SLOTS];
  zp_stated_bound_memo stated_bound[ZP_STATED_BOUND_SLOTS];
  zp_fits_memo fits;
  zp_communicators_memo communicators[ZP_COMMUNICATORS_SLOTS];
  const zp_communicators_memo *last_communicators; /* that were asked for: often again */
  ZP_VEC(int64_t *) units_before;                  /* of a variant: zp_least_work's */
  ZP_VEC(struct zp_part_knapsack *) knapsacks;     /* of a variant: zp_find_least_parts' */
  zp_step_end_memo end[4][2];                      /* [zero][compress] */
  int groups, groups_tensor, groups_ranks;         /* the tensor groups that were asked for last */
  zp_moving_memo moving;
  zp_bucket_sum_memo bucket_sums[ZP_STAGE_MODES];
  /* Links of the data ranks, of those that hold the same experts, between stages; of groups that exchange. */
  zp_link_memo data, replicas, stages;
  zp_exchange_memo exchanges;
} zp_search_memo;

#endif
