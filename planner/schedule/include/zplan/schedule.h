/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside the planner: order tables of all stages, and how much they keep in flight. */
#ifndef ZPLAN_SCHEDULE_H
#define ZPLAN_SCHEDULE_H

#include <zplan/order.h>

static inline zp_action zp_act_of(zp_act act, int chunk, int64_t microbatch) {
  return (zp_action){.forward = act == ZP_ACT_F, .microbatch = microbatch, .act = act, .chunk = chunk};
}

/* Why the pipeline, chunks and schedule of a choice do not go together; NULL when they do. */
const char *zp_schedule_refusal(const zp_choice *choice);

/* ---- generators, one file each; they fill in the whole table of a stage and return its length ---- */
int64_t zp_order_gpipe(int64_t microbatches, zp_action *out);
/* How interleaving groups micro-batches: `longer` groups of size + 1, then the rest of `count` groups of size. */
typedef struct zp_groups {
  int64_t count, size, longer;
} zp_groups;
zp_groups zp_interleaved_groups(int pipeline, int64_t microbatches);
int64_t zp_interleaved_warmup(int pipeline, int chunks, int stage, int64_t microbatches);
int64_t zp_order_interleaved(int pipeline, int chunks, int stage, int64_t microbatches, zp_action *out);
/* depth: forwards before the first backward; delay: backwards before the first weight gradient. */
int64_t zp_order_split(int64_t microbatches, int64_t depth, int64_t delay, zp_action *out);
int64_t zp_order_zb_h1(int pipeline, int stage, int64_t microbatches, zp_action *out);
int64_t zp_order_zb_h2(int pipeline, int stage, int64_t microbatches, zp_action *out);
int64_t zp_order_dualpipev(int pipeline, int stage, int64_t microbatches, zp_action *out);
/* All stages at once: out[pipeline], room for 6 * microbatches entries each. */
void zp_orders_zb_v(int pipeline, int64_t microbatches, zp_action *const *out);

/* Order tables of all stages in the arena, and their lengths. */
zp_action **zp_orders(zp_arena *arena, const zp_choice *choice, int64_t microbatches, int64_t *length);

/* Entries of every stage's table. */
int64_t zp_order_length(const zp_choice *choice, int64_t microbatches);

/* ---- phrases.c ---- */
/* A table of n actions as phrases of at most `longest` actions. Arena; borrows the table. */
zp_phrases zp_phrases_of(zp_arena *arena, const zp_action *table, int64_t n, int64_t longest);

/* The text of an order, read back: its actions, and how many; -1: it is none, or longer than `room`; *wrong: where. */
int64_t zp_read_order(const char *text, int chunks, zp_action *out, int64_t room, const char **wrong);

/* ---- play.c ---- */
/* Plays the tables of all stages with so many message buffers. What is wrong goes to `findings` (arena). */
zp_played_order zp_play_order(zp_arena *arena, const zp_choice *choice, int64_t microbatches, int64_t messages,
                              zp_action *const *order, const int64_t *length, zp_strings *findings);

/* ---- in_flight.c: what the tables keep, in closed form and O(1); the tests play the tables against it ---- */
/* Most micro-batches that a chunk of the stage has in flight: F done, its last backward not. */
int64_t zp_in_flight_chunk(const zp_choice *choice, int stage, int chunk, int64_t microbatches);
/* zp_in_flight_chunk of all chunks of a stage: flight[chunks]. */
void zp_in_flight_chunks(const zp_choice *choice, int stage, int64_t microbatches, int64_t *flight);
/* Most micro-batches of a chunk whose weight gradient waits: BI done, BW not. 0 for schedules that do not split. */
int64_t zp_pending_chunk(const zp_choice *choice, int stage, int chunk, int64_t microbatches);
/* The caps that the ZB-V generator schedules within. */
int64_t zp_zb_v_flight(int pipeline, int stage, int chunk);
int64_t zp_zb_v_pending(int pipeline);

#endif
