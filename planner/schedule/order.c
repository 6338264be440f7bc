/* SPDX-License-Identifier: Apache-2.0 */
/* One door to all schedules: placement of chunks, order tables. */
#include <zplan/schedule.h>

#include <assert.h>

int zp_chunk_stage(const zp_choice *choice, int64_t k, int *chunk) {
  assert(k >= 0 && k < (int64_t)choice->pipeline * zp_chunks(choice));
  int p = choice->pipeline;
  int turn = (int)(k / p), inside = (int)(k % p);
  if (chunk) *chunk = turn;
  return zp_schedule_folds(choice->schedule) && turn == 1 ? p - 1 - inside : inside;
}

int64_t zp_model_chunk(const zp_choice *choice, int stage, int chunk) {
  assert(zp_choice_has_stage(choice, stage) && zp_choice_has_chunk(choice, chunk));
  int p = choice->pipeline;
  return zp_schedule_folds(choice->schedule) && chunk == 1 ? 2 * p - 1 - stage : (int64_t)chunk * p + stage;
}

const char *zp_schedule_refusal(const zp_choice *choice) {
  assert(choice->schedule < ZP_SCHEDULE_COUNT);
  int v = zp_chunks(choice);
  if (choice->schedule == ZP_SCHEDULE_INTERLEAVED) {
    if (v < 2) return "interleaved wants two or more chunks a stage";
    return choice->pipeline < 2 ? "interleaved wants two or more pipeline stages" : NULL;
  }
  bool dual = choice->schedule == ZP_SCHEDULE_DUALPIPEV;
  if (zp_schedule_folds(choice->schedule)) {
    if (v != 2) return dual ? "dualpipev has exactly two chunks a stage" : "zb_v has exactly two chunks a stage";
    if (choice->pipeline >= 2) return NULL;
    return dual ? "dualpipev wants two or more pipeline stages" : "zb_v wants two or more pipeline stages";
  }
  return v > 1 ? "only interleaved, zb_v and dualpipev have more than one chunk a stage" : NULL;
}

int64_t zp_order_length(const zp_choice *choice, int64_t microbatches) {
  assert(choice->schedule < ZP_SCHEDULE_COUNT && microbatches >= 1);
  return (zp_schedule_splits(choice->schedule) ? 3 : 2) * zp_chunks(choice) * microbatches;
}

/* One stage of a schedule whose stages are made one by one. */
static int64_t order_stage(const zp_choice *c, int stage, int64_t m, zp_action *out) {
  switch (c->schedule) {
  case ZP_SCHEDULE_GPIPE: return zp_order_gpipe(m, out);
  case ZP_SCHEDULE_INTERLEAVED: return zp_order_interleaved(c->pipeline, zp_chunks(c), stage, m, out);
  case ZP_SCHEDULE_ZB_H1: return zp_order_zb_h1(c->pipeline, stage, m, out);
  case ZP_SCHEDULE_ZB_H2: return zp_order_zb_h2(c->pipeline, stage, m, out);
  case ZP_SCHEDULE_DUALPIPEV: return zp_order_dualpipev(c->pipeline, stage, m, out);
  default: zp_order_1f1b(c->pipeline, stage, m, out); return 2 * m;
  }
}

zp_action **zp_orders(zp_arena *arena, const zp_choice *choice, int64_t microbatches, int64_t *length) {
  assert(microbatches >= 1 && length);
  zp_action **order = ZP_NEW_ARRAY(arena, zp_action *, choice->pipeline);
  int64_t n = zp_order_length(choice, microbatches);
  assert(!choice->own_order || choice->own_order->microbatches == microbatches);
  for (int s = 0; s < choice->pipeline && choice->own_order; s++) length[s] = n;
  if (choice->own_order) return choice->own_order->table;
  for (int s = 0; s < choice->pipeline; s++) {
    order[s] = ZP_ROOM_FOR(arena, zp_action, n);
    length[s] = n;
    if (choice->schedule != ZP_SCHEDULE_ZB_V) order_stage(choice, s, microbatches, order[s]);
  }
  if (choice->schedule == ZP_SCHEDULE_ZB_V) zp_orders_zb_v(choice->pipeline, microbatches, order);
  return order;
}

static void find_in_flight(const zp_action *table, int64_t n, int chunks, int64_t *in_flight) {
  for (int chunk = 0; chunk < chunks; chunk++) {
    int64_t now = 0;
    in_flight[chunk] = 0;
    for (int64_t i = 0; i < n; i++) {
      if (table[i].chunk != chunk || table[i].act == ZP_ACT_BI) continue;
      now += table[i].act == ZP_ACT_F ? 1 : -1;
      if (now > in_flight[chunk]) in_flight[chunk] = now;
    }
  }
}

int64_t zp_order(const zp_choice *choice, int stage, int64_t microbatches, zp_action *out, int64_t *in_flight) {
  assert(zp_choice_has_stage(choice, stage) && microbatches >= 1 && out);
  int64_t n = zp_order_length(choice, microbatches);
  if (choice->own_order) {
    assert(choice->own_order->microbatches == microbatches);
    memcpy(out, choice->own_order->table[stage], sizeof *out * (size_t)n);
  } else if (choice->schedule == ZP_SCHEDULE_ZB_V) { /* made for all stages at once */
    zp_arena *scratch = zp_arena_new("order");
    int64_t *length = ZP_NEW_ARRAY(scratch, int64_t, choice->pipeline);
    memcpy(out, zp_orders(scratch, choice, microbatches, length)[stage], sizeof *out * (size_t)n);
    zp_arena_free(scratch);
  } else {
    order_stage(choice, stage, microbatches, out);
  }
  if (in_flight) find_in_flight(out, n, zp_chunks(choice), in_flight);
  return n;
}
