/* SPDX-License-Identifier: Apache-2.0 */
/* How many micro-batches a stage keeps, without making its order table. An order of its own was played when it was
 * read. */
#include <zplan/schedule.h>

#include <assert.h>

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t zp_zb_v_flight(int pipeline, int stage, int chunk) {
  assert(stage >= 0 && stage < pipeline && (chunk == 0 || chunk == 1));
  return chunk == 0 ? 2 * pipeline - stage : stage + 1;
}
int64_t zp_zb_v_pending(int pipeline) {
  assert(pipeline >= 1);
  return pipeline / 2 + 1;
}

/* Weight gradients of the early chunk that wait in the drain of DualPipeV: its part of the stage's, and while those of
 * the late chunk are taken, one more for each. Of the late chunk one waits from BI to BW, at least. */
static int64_t dualpipev_pending(int pipeline, int stage, int chunk) {
  int64_t own = stage + 1, behind = pipeline - own, taken = min64(behind, own);
  if (chunk == 1) return max64(1, own / 2);
  return own % 2 ? own / 2 + 1 + taken / 2 : own / 2 + (taken + 1) / 2;
}

/* ---- interleaved: forwards and backwards come in runs of one chunk ---- */

typedef struct interleaved {
  int64_t v, all, warmup; /* chunks; forwards of the stage; of them before the first backward */
  zp_groups groups;
} interleaved;

static int64_t group_size(const interleaved *x, int64_t group) { return x->groups.size + (group < x->groups.longer); }

/* Micro-batches before a group. */
static int64_t group_start(const interleaved *x, int64_t group) {
  return group * x->groups.size + min64(group, x->groups.longer);
}

/* How many of the first n actions belong to the chunk that has place `turn` in every group. */
static int64_t count(const interleaved *x, int64_t turn, int64_t n) {
  int64_t long_part = x->groups.longer * (x->groups.size + 1) * x->v, group;
  if (n < long_part)
    group = n / ((x->groups.size + 1) * x->v);
  else
    group = x->groups.longer + (n - long_part) / (x->groups.size * x->v);
  int64_t before = group_start(x, group), inside = n - before * x->v - turn * group_size(x, group);
  return before + (inside < 0 ? 0 : min64(inside, group_size(x, group)));
}

/* count() for any n: 0 where n is below 0. */
static int64_t count_past(const interleaved *x, int64_t turn, int64_t n) { return n > 0 ? count(x, turn, n) : 0; }

/* In flight of a chunk right before its run of backwards in a group starts. */
static int64_t before_backwards(const interleaved *x, int64_t chunk, int64_t group) {
  int64_t backward = group_start(x, group) * x->v + (x->v - 1 - chunk) * group_size(x, group);
  int64_t n = x->warmup + 1 + backward;
  if (n < x->all) return count(x, chunk, n) - group_start(x, group);
  return x->all / x->v - count_past(x, x->v - 1 - chunk, x->all - 1 - x->warmup);
}

/* It falls only within runs of backwards of the chunk, so its maximum stands where one starts. Groups of one size
 * repeat: the first groups and those where the size changes tell all. */
static int64_t interleaved_chunk(const interleaved *x, int64_t chunk) {
  int64_t longer = x->groups.longer, edge = 4, most = before_backwards(x, chunk, 0);
  for (int64_t g = longer > edge ? longer - edge : 1; g < x->groups.count && g < longer + 2; g++)
    most = max64(most, before_backwards(x, chunk, g));
  return most;
}

static interleaved interleaved_of(const zp_choice *c, int stage, int64_t microbatches) {
  return (interleaved){.v = zp_chunks(c),
                       .all = microbatches * zp_chunks(c),
                       .warmup = zp_interleaved_warmup(c->pipeline, zp_chunks(c), stage, microbatches),
                       .groups = zp_interleaved_groups(c->pipeline, microbatches)};
}

/* ---- all schedules ---- */

int64_t zp_in_flight_chunk(const zp_choice *choice, int stage, int chunk, int64_t microbatches) {
  assert(zp_choice_has_stage(choice, stage) && zp_choice_has_chunk(choice, chunk) && microbatches >= 1);
  int64_t p = choice->pipeline, m = microbatches;
  if (choice->own_order) return choice->own_order->kept.in_flight[stage * zp_chunks(choice) + chunk];
  switch (choice->schedule) {
  case ZP_SCHEDULE_GPIPE: return m;
  case ZP_SCHEDULE_INTERLEAVED: {
    interleaved x = interleaved_of(choice, stage, m);
    return interleaved_chunk(&x, chunk);
  }
  case ZP_SCHEDULE_ZB_H1: return min64(m, p);
  case ZP_SCHEDULE_ZB_H2: return min64(m, 2 * p - 1);
  case ZP_SCHEDULE_ZB_V:
  case ZP_SCHEDULE_DUALPIPEV: return min64(m, zp_zb_v_flight(choice->pipeline, stage, chunk));
  default: return min64(m, p - stage);
  }
}

void zp_in_flight_chunks(const zp_choice *choice, int stage, int64_t microbatches, int64_t *flight) {
  assert(zp_choice_has_stage(choice, stage) && microbatches >= 1 && flight);
  int chunks = zp_chunks(choice);
  if (choice->own_order || choice->schedule != ZP_SCHEDULE_INTERLEAVED) {
    for (int k = 0; k < chunks; k++) flight[k] = zp_in_flight_chunk(choice, stage, k, microbatches);
    return;
  }
  interleaved x = interleaved_of(choice, stage, microbatches);
  for (int k = 0; k < chunks; k++) flight[k] = interleaved_chunk(&x, k);
}

int64_t zp_in_flight(const zp_choice *choice, int stage, int64_t microbatches) {
  assert(zp_choice_has_stage(choice, stage) && microbatches >= 1);
  int64_t p = choice->pipeline, v = zp_chunks(choice), m = microbatches;
  if (choice->own_order) return choice->own_order->kept.pool[stage];
  if (choice->schedule == ZP_SCHEDULE_INTERLEAVED)
    return min64(m * v, zp_interleaved_warmup(choice->pipeline, (int)v, stage, m) + 1);
  if (choice->schedule == ZP_SCHEDULE_ZB_V) return min64(2 * m, 2 * p);
  if (choice->schedule == ZP_SCHEDULE_DUALPIPEV) /* both chunks have their most at once */
    return zp_in_flight_chunk(choice, stage, 0, m) + zp_in_flight_chunk(choice, stage, 1, m);
  return zp_in_flight_chunk(choice, stage, 0, m);
}

int64_t zp_pending_chunk(const zp_choice *choice, int stage, int chunk, int64_t microbatches) {
  assert(zp_choice_has_stage(choice, stage) && zp_choice_has_chunk(choice, chunk) && microbatches >= 1);
  if (choice->own_order) return choice->own_order->kept.pending[stage * zp_chunks(choice) + chunk];
  switch (choice->schedule) {
  case ZP_SCHEDULE_ZB_H1: return min64(microbatches, stage + 1);
  case ZP_SCHEDULE_ZB_H2: return min64(microbatches, 2 * stage + 1);
  case ZP_SCHEDULE_ZB_V:
    return min64(zp_in_flight_chunk(choice, stage, chunk, microbatches), zp_zb_v_pending(choice->pipeline));
  case ZP_SCHEDULE_DUALPIPEV: return min64(microbatches, dualpipev_pending(choice->pipeline, stage, chunk));
  default: return 0;
  }
}

/* One where neighbours take turns. ZB-V's tables are made on equal durations without counting messages: two always
 * sufficed. DualPipeV comes to its end with one, and waits for nobody with two. Interleaving: groups longer than the
 * pipeline send ahead to the next chunk by what they are longer. A buffer for a micro-batch that there is not would
 * never be written. */
int64_t zp_message_buffers(const zp_choice *choice, int64_t microbatches) {
  assert(microbatches >= 1);
  if (choice->own_order) return choice->own_order->messages;
  if (zp_schedule_folds(choice->schedule)) return min64(2, microbatches);
  if (choice->schedule != ZP_SCHEDULE_INTERLEAVED) return 1;
  zp_groups g = zp_interleaved_groups(choice->pipeline, microbatches);
  int64_t ahead = g.size + (g.longer > 0) - choice->pipeline;
  return min64(ahead > 0 ? ahead + 2 : 2, microbatches);
}
