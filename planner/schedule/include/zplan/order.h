/* SPDX-License-Identifier: Apache-2.0 */
/* Which micro-batch a stage takes when: order tables of every schedule, their phrases, and what they keep. */
#ifndef ZPLAN_ORDER_H
#define ZPLAN_ORDER_H

#include <zplan/choice.h>

/* One entry of an order table. `forward` is true for ZP_ACT_F. B is the whole backward; schedules that split it use BI
 * (gradients of inputs) and BW (gradients of weights). */
typedef enum zp_act { ZP_ACT_F, ZP_ACT_B, ZP_ACT_BI, ZP_ACT_BW } zp_act;
typedef struct zp_action {
  int64_t microbatch;
  zp_act act;
  int chunk;
  bool forward;
} zp_action;

/* A run of actions and how often it stands there, one after the other; or as often the next `group` phrases, which are
 * no groups. Every action is on the next micro-batch of its kind and chunk; those of the actions here are the first
 * time's, or 0. */
typedef struct zp_phrase {
  int64_t times, length;
  const zp_action *actions; /* [length] */
  int group;                /* 0: a run of actions */
} zp_phrase;
typedef ZP_VEC(zp_phrase) zp_phrases;

/* What order tables keep when they are played. */
typedef struct zp_played_order {
  /* [stage * chunks + chunk]: most micro-batches in flight; whose weight gradients wait */
  int64_t *in_flight, *pending;
  int64_t *pool; /* [stage]: most in flight, all chunks together */
} zp_played_order;

/* An order of its own, proven legal by zp_own_order_make. */
typedef struct zp_own_order {
  int64_t microbatches;
  zp_action **table;     /* [pipeline][length] */
  const int64_t *length; /* [pipeline] */
  zp_played_order kept;
  int64_t messages; /* buffers of a chunk in each direction, with which nothing stands still */
  uint64_t hash;    /* of all actions */
} zp_own_order;

/* 1F1B order of a stage (one forward, one backward after min(pipeline - 1 - stage, m) warm-up forwards). out: 2 * m
 * entries. */
void zp_order_1f1b(int pipeline, int stage, int64_t microbatches, zp_action *out);

/* The order table of a stage under any schedule; returns the number of entries. out: room for 3 * chunks * m entries.
 * Fills the most micro-batches that any chunk has in flight (F done, B or BW not) into *in_flight[chunk] when not
 * NULL. */
int64_t zp_order(const zp_choice *choice, int stage, int64_t microbatches, zp_action *out, int64_t *in_flight);
/* Stage of model chunk k, and its place on that stage. */
int zp_chunk_stage(const zp_choice *choice, int64_t k, int *chunk);
/* The other way round: which model chunk that is. */
int64_t zp_model_chunk(const zp_choice *choice, int stage, int chunk);
/* The order of a stage as phrases, the one form of plan files and trainers. table: the stage's; may be NULL for GPipe,
 * 1F1B and choices with an order of their own. Arena; borrows the table. */
zp_phrases zp_stage_phrases(zp_arena *arena, const zp_choice *choice, int stage, int64_t microbatches,
                            const zp_action *table);
/* F forward, B backward, or I and W, its halves; then the chunk, where a stage has several: "B", "F0". */
const char *zp_action_text(zp_arena *arena, const zp_action *action, int chunks);
/* "3 F, 29 F B, 3 B": phrases, each with how often; groups in brackets, "8 (4 F0, 4 F1)". Arena. */
const char *zp_order_text(zp_arena *arena, const zp_phrases *phrases, int chunks);
/* A choice's order that is not the schedule's. table, length: [pipeline], borrowed. NULL with *error (arena), which
 * says the circle in which stages wait for each other, or the message that is never sent. */
const zp_own_order *zp_own_order_make(zp_arena *arena, const zp_choice *choice, int64_t microbatches, zp_action **table,
                                      const int64_t *length, const char **error);
/* Does every stage take the messages of a neighbour, upwards and downwards, in the order in which that one sends them?
 * order, length: of all stages. True of every table that zplan makes; NCCL's messages, which have no tags, count on
 * it. */
bool zp_messages_in_order(const zp_choice *choice, zp_action *const *order, const int64_t *length);
/* The most micro-batches in flight on a stage, all chunks together (1F1B: min(m, pipeline - stage)). */
int64_t zp_in_flight(const zp_choice *choice, int stage, int64_t microbatches);
/* Message buffers that a chunk needs in each direction so that the order tables cannot deadlock when a send must wait
 * for a free one; micro-batch mb takes buffer mb % n. */
int64_t zp_message_buffers(const zp_choice *choice, int64_t microbatches);

#endif
