/* SPDX-License-Identifier: Apache-2.0 */
/* Orders as phrases, and orders that are not the schedule's: legal exactly where nothing waits for itself. */
#include <criterion/criterion.h>
#include <zplan/program.h>
#include <zplan/schedule.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(own_order, .init = setup, .fini = teardown);

static zp_choice choice_of(zp_schedule schedule, int pipeline, int chunks) {
  return (zp_choice){.tensor = 1, .pipeline = pipeline, .data = 1, .schedule = schedule, .chunks = chunks};
}

/* ---- phrases ---- */

static void check_phrases(const zp_choice *c, int64_t m) {
  int64_t *length = ZP_NEW_ARRAY(arena, int64_t, c->pipeline);
  zp_action **table = zp_orders(arena, c, m, length);
  for (int s = 0; s < c->pipeline; s++) {
    zp_phrases phrases = zp_stage_phrases(arena, c, s, m, table[s]);
    zp_action *again = ZP_NEW_ARRAY(arena, zp_action, length[s]);
    const char *wrong = NULL, *text = zp_order_text(arena, &phrases, zp_chunks(c));
    cr_assert_eq(zp_read_order(text, zp_chunks(c), again, length[s], &wrong), length[s], "%s", text);
    for (int64_t i = 0; i < length[s]; i++)
      cr_assert(again[i].act == table[s][i].act && again[i].chunk == table[s][i].chunk,
                "%s, stage %d of %d, %d micro-batches: action %d", zp_schedule_name(c->schedule), s, c->pipeline,
                (int)m, (int)i);
  }
}

/* Written, read and repeated, phrases are the order table again. */
Test(own_order, phrases_are_the_table) {
  for (int p = 1; p <= 6; p++)
    for (int64_t m = 1; m <= 20; m++)
      for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
        for (int v = 1; v <= 3; v++) {
          zp_arena_mark mark = zp_arena_get_mark(arena);
          zp_choice c = choice_of((zp_schedule)schedule, p, v);
          if (!zp_schedule_refusal(&c)) check_phrases(&c, m);
          zp_arena_rewind(arena, mark);
        }
}

Test(own_order, few_phrases_for_many_micro_batches) {
  const zp_choice some[] = {choice_of(ZP_SCHEDULE_ZB_V, 8, 2), choice_of(ZP_SCHEDULE_DUALPIPEV, 8, 2),
                            choice_of(ZP_SCHEDULE_INTERLEAVED, 8, 3), choice_of(ZP_SCHEDULE_ZB_H2, 8, 1)};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    int64_t length[8];
    zp_action **table = zp_orders(arena, &some[i], 4096, length);
    for (int s = 0; s < 8; s++) {
      int n = zp_stage_phrases(arena, &some[i], s, 4096, table[s]).len;
      cr_expect_leq(n, 32, "%s, stage %d: %d phrases for %d actions", zp_schedule_name(some[i].schedule), s, n,
                    (int)length[s]);
    }
  }
}

Test(own_order, texts_that_are_no_order) {
  static const char *const bad[] = {
      "",        "F",     "1",    "1 X",   "1 F B ",     "1  F",          " 1 F",
      "1 F,2 B", "1 F, ", "1 FB", "1 F0",  "1 F; 1 B",   "0 F",           "-1 F",
      "1.5 F",   "1 F,",  "5 F",  "3 F B", "2 F B, 1 F", "99999999999 F", "1 F, 1 F, 1 F, 1 F, 1 F"};
  static const char *const bad_groups[] = {"2 (1 F", "2 1 F)", "2 (1 F))",     "2 (2 (1 F))",
                                           "2 ()",   "(1 F)",  "3 (1 F, 1 B)", "0 (1 F)"};
  static const char *const bad_chunks[] = {"1 F", "1 F2", "1 F0 B", "1 F-1", "1 F99999999999"};
  zp_action room[4];
  const char *wrong = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_expect_eq(zp_read_order(bad[i], 1, room, 4, &wrong), -1, "%s", bad[i]);
  for (size_t i = 0; i < sizeof bad_chunks / sizeof *bad_chunks; i++)
    cr_expect_eq(zp_read_order(bad_chunks[i], 2, room, 4, &wrong), -1, "%s", bad_chunks[i]);
  for (size_t i = 0; i < sizeof bad_groups / sizeof *bad_groups; i++)
    cr_expect_eq(zp_read_order(bad_groups[i], 1, room, 4, &wrong), -1, "%s", bad_groups[i]);
  cr_expect_eq(zp_read_order("2 (1 F, 1 B)", 1, room, 4, &wrong), 4);
  cr_expect(room[2].act == ZP_ACT_F && room[3].act == ZP_ACT_B);
  cr_expect_eq(zp_read_order("1 F, 2 X", 1, room, 4, &wrong), -1);
  cr_expect_str_eq(wrong, "2 X");
  cr_expect_eq(zp_read_order("1 F0, 2 W1", 2, room, 4, &wrong), 3);
  cr_expect(room[2].act == ZP_ACT_BW && room[2].chunk == 1);
}

/* ---- orders of their own, at random ---- */

static unsigned random_state = 1;
static int random_below(int n) {
  random_state = random_state * 1103515245u + 12345u;
  return (int)((random_state >> 16) % (unsigned)n);
}

enum { MOST = 256 };

/* Actions as a graph: what each waits for, the one before it on its stage included. A circle by depth-first search. */
typedef struct graph {
  int n, from[MOST][3], degree[MOST], state[MOST];
} graph;

static bool has_circle(graph *g, int v) {
  if (g->state[v]) return g->state[v] == 1;
  g->state[v] = 1;
  for (int i = 0; i < g->degree[v]; i++)
    if (has_circle(g, g->from[v][i])) return true;
  g->state[v] = 2;
  return false;
}

static void add_edge(graph *g, int v, int from) { g->from[v][g->degree[v]++] = from; }

static int find(const zp_choice *c, zp_action **table, int64_t n, int64_t part, zp_act act, int64_t microbatch) {
  int chunk, stage = zp_chunk_stage(c, part, &chunk);
  for (int64_t i = 0; i < n; i++)
    if (table[stage][i].act == act && table[stage][i].chunk == chunk && table[stage][i].microbatch == microbatch)
      return (int)(stage * n + i);
  return -1;
}

static bool waits_for_itself(const zp_choice *c, zp_action **table, int64_t n) {
  graph g = {.n = (int)(c->pipeline * n)};
  int64_t parts = (int64_t)c->pipeline * zp_chunks(c);
  zp_act gradients = zp_schedule_splits(c->schedule) ? ZP_ACT_BI : ZP_ACT_B;
  for (int s = 0; s < c->pipeline; s++)
    for (int64_t i = 0; i < n; i++) {
      const zp_action *a = &table[s][i];
      int v = (int)(s * n + i);
      int64_t part = zp_model_chunk(c, s, a->chunk);
      if (i > 0) add_edge(&g, v, v - 1);
      if (a->act == ZP_ACT_F && part > 0) add_edge(&g, v, find(c, table, n, part - 1, ZP_ACT_F, a->microbatch));
      if (a->act == gradients) add_edge(&g, v, find(c, table, n, part, ZP_ACT_F, a->microbatch));
      if (a->act == gradients && part + 1 < parts)
        add_edge(&g, v, find(c, table, n, part + 1, gradients, a->microbatch));
      if (a->act == ZP_ACT_BW) add_edge(&g, v, find(c, table, n, part, ZP_ACT_BI, a->microbatch));
    }
  for (int v = 0; v < g.n; v++)
    if (has_circle(&g, v)) return true;
  return false;
}

/* A few neighbours of the schedule's tables change places; micro-batches are counted anew. */
static void disturb(const zp_choice *c, zp_action **table, int64_t n, int64_t swaps) {
  for (int64_t i = 0; i < swaps; i++) {
    zp_action *t = table[random_below(c->pipeline)];
    int at = random_below((int)n - 1);
    zp_action kept = t[at];
    t[at] = t[at + 1];
    t[at + 1] = kept;
  }
  for (int s = 0; s < c->pipeline; s++) {
    int64_t next[ZP_ACT_BW + 1][4] = {{0}};
    for (int64_t i = 0; i < n; i++) table[s][i].microbatch = next[table[s][i].act][table[s][i].chunk]++;
  }
}

/* Most of a chunk that are begun by one act and not ended by another, from the table of the stage alone. */
static int64_t most_open(const zp_action *t, int64_t n, int chunk, zp_act begins, zp_act ends) {
  int64_t open = 0, most = 0;
  for (int64_t i = 0; i < n; i++) {
    if (t[i].chunk != chunk) continue;
    open += (t[i].act == begins) - (t[i].act == ends);
    if (open > most) most = open;
  }
  return most;
}

static void check_kept(const zp_choice *c, const zp_own_order *own, int64_t n) {
  bool splits = zp_schedule_splits(c->schedule);
  for (int s = 0; s < c->pipeline; s++)
    for (int k = 0; k < zp_chunks(c); k++) {
      int at = s * zp_chunks(c) + k;
      cr_assert_eq(own->kept.in_flight[at], most_open(own->table[s], n, k, ZP_ACT_F, splits ? ZP_ACT_BW : ZP_ACT_B));
      cr_assert_eq(own->kept.pending[at], splits ? most_open(own->table[s], n, k, ZP_ACT_BI, ZP_ACT_BW) : 0);
    }
}

/* Legal is what waits for nothing that waits for it, and whose messages come in the order in which they are sent. */
Test(own_order, legal_or_not) {
  static const struct {
    zp_schedule schedule;
    int chunks;
  } of[] = {{ZP_SCHEDULE_1F1B, 1},        {ZP_SCHEDULE_GPIPE, 1}, {ZP_SCHEDULE_ZB_H1, 1},
            {ZP_SCHEDULE_INTERLEAVED, 2}, {ZP_SCHEDULE_ZB_V, 2},  {ZP_SCHEDULE_DUALPIPEV, 2}};
  int legal = 0, circles = 0, others = 0;
  for (int i = 0; i < 3000; i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    zp_choice c = choice_of(of[i % 6].schedule, 2 + random_below(3), of[i % 6].chunks);
    int64_t m = 2 + random_below(4), *length = ZP_NEW_ARRAY(arena, int64_t, c.pipeline);
    zp_action **table = zp_orders(arena, &c, m, length);
    const char *error = NULL;
    disturb(&c, table, length[0], random_below(6));
    const zp_own_order *own = zp_own_order_make(arena, &c, m, table, length, &error);
    bool circle = waits_for_itself(&c, table, length[0]), in_order = zp_messages_in_order(&c, table, length);
    cr_assert_eq(own != NULL, !circle && in_order, "%s: %s", zp_schedule_name(c.schedule), error ? error : "legal");
    if (circle) cr_assert(strncmp(error, "deadlock: stage ", 16) == 0, "%s", error);
    if (own) check_kept(&c, own, length[0]);
    *(own ? &legal : circle ? &circles : &others) += 1;
    zp_arena_rewind(arena, mark);
  }
  cr_expect(legal > 300 && circles > 300, "%d legal, %d circles, %d in another order", legal, circles, others);
}

/* What the choice keeps is what its own order keeps. */
Test(own_order, decides_what_is_in_flight) {
  zp_choice c = choice_of(ZP_SCHEDULE_1F1B, 3, 1), gpipe = choice_of(ZP_SCHEDULE_GPIPE, 3, 1);
  int64_t length[3];
  const char *error = NULL;
  zp_action **table = zp_orders(arena, &gpipe, 8, length);
  c.own_order = zp_own_order_make(arena, &c, 8, table, length, &error);
  cr_assert(c.own_order, "%s", error);
  for (int s = 0; s < 3; s++)
    cr_expect(zp_in_flight(&c, s, 8) == 8 && zp_in_flight_chunk(&c, s, 0, 8) == 8 &&
              zp_pending_chunk(&c, s, 0, 8) == 0);
  cr_expect_eq(zp_message_buffers(&c, 8), 1, "every stage takes all messages before it sends gradients");
}
