/* SPDX-License-Identifier: Apache-2.0 */
/* Order tables: each is played on all stages at once, with the message buffers that the layout has. */
#include <criterion/criterion.h>
#include <zplan/program.h>
#include <zplan/schedule.h>

enum { MAX_P = 12, MAX_M = 24, MAX_V = 4 };

/* Durations of the acts; the whole backward is BI + BW. */
typedef struct lengths {
  int64_t f, bi, bw;
} lengths;

typedef struct played {
  bool finished;
  int64_t makespan, work;  /* of the busiest stage */
  int64_t idle_inside;     /* of the worst stage, between its first and last action */
  int64_t in_flight, pool; /* worst excess over the closed forms: chunk, stage; 0: equal somewhere, never above */
  int64_t chunk[MAX_V];    /* the same of one chunk, over all stages */
} played;

typedef struct player {
  const zp_choice *c;
  int64_t m;
  lengths t;
  zp_action **order;
  int64_t *length, *next, *free_at, *begin, *busy;
  int64_t *end[3];   /* F, BI, BW: [place][micro-batch]; -1: not yet */
  int64_t *taken[2]; /* [direction][place]: messages that the neighbour has taken from the buffer of this place */
} player;

static int place_of(const player *p, int stage, int chunk) {
  for (int k = 0; k < p->c->pipeline * zp_chunks(p->c); k++) {
    int at;
    if (zp_chunk_stage(p->c, k, &at) == stage && at == chunk) return k;
  }
  return -1;
}

/* The next action of a stage, if what it reads is there and its send buffer is free. */
static bool move(player *p, int s) {
  if (p->next[s] == p->length[s]) return false;
  zp_action a = p->order[s][p->next[s]];
  int k = place_of(p, s, a.chunk), last = p->c->pipeline * zp_chunks(p->c) - 1;
  int64_t m = p->m, start = p->free_at[s];
  bool forward = a.act == ZP_ACT_F, weights = a.act == ZP_ACT_BW;
  cr_assert_eq(a.forward, forward);
  int from = forward ? k - 1 : k + 1, to = forward ? k + 1 : k - 1;
  if (weights) {
    cr_assert(p->end[1][k * m + a.microbatch] >= 0, "BW before BI");
  } else {
    if (!forward) cr_assert(p->end[0][k * m + a.microbatch] >= 0, "backward before forward");
    if (from >= 0 && from <= last) {
      int64_t ready = p->end[forward ? 0 : 1][from * m + a.microbatch];
      if (ready < 0) return false;
      if (ready > start) start = ready;
    }
    if (to >= 0 && to <= last) { /* also on the same stage, which copies */
      int64_t sent = 0;
      for (int64_t i = 0; i < m; i++) sent += p->end[forward ? 0 : 1][k * m + i] >= 0;
      if (p->taken[forward][k] + zp_message_buffers(p->c, m) - 1 < sent) return false;
    }
    if (from >= 0 && from <= last) p->taken[forward][from]++;
  }
  int64_t duration = forward ? p->t.f : weights ? p->t.bw : a.act == ZP_ACT_BI ? p->t.bi : p->t.bi + p->t.bw;
  int64_t *end = &p->end[forward ? 0 : weights ? 2 : 1][k * m + a.microbatch];
  cr_assert_eq(*end, -1, "twice");
  if (a.act == ZP_ACT_B) p->end[2][k * m + a.microbatch] = start + duration;
  if (p->busy[s] == 0) p->begin[s] = start;
  *end = p->free_at[s] = start + duration;
  p->busy[s] += duration;
  p->next[s]++;
  return true;
}

static void compare_in_flight(const player *p, played *out) {
  zp_action *table = calloc((size_t)(3 * zp_chunks(p->c) * p->m), sizeof *table);
  int64_t most[MAX_V];
  out->in_flight = out->pool = INT64_MIN;
  for (int c = 0; c < MAX_V; c++) out->chunk[c] = INT64_MIN;
  for (int s = 0; s < p->c->pipeline; s++) {
    int64_t n = zp_order(p->c, s, p->m, table, most), now = 0, pool = 0;
    cr_assert_eq(n, p->length[s]);
    for (int64_t i = 0; i < n; i++) {
      cr_assert_eq(table[i].act, p->order[s][i].act);
      cr_assert_eq(table[i].chunk, p->order[s][i].chunk);
      cr_assert_eq(table[i].microbatch, p->order[s][i].microbatch);
      now += table[i].act == ZP_ACT_F ? 1 : table[i].act == ZP_ACT_BI ? 0 : -1;
      if (now > pool) pool = now;
    }
    for (int c = 0; c < zp_chunks(p->c); c++) {
      int64_t over = most[c] - zp_in_flight_chunk(p->c, s, c, p->m);
      if (over > out->in_flight) out->in_flight = over;
      if (over < 0 && p->c->schedule != ZP_SCHEDULE_ZB_V)
        cr_assert_fail("%d %d: stage %d chunk %d has %d", p->c->pipeline, (int)p->m, s, c, (int)most[c]);
      if (over > out->chunk[c]) out->chunk[c] = over;
      int64_t waiting = 0, waits = 0;
      for (int64_t i = 0; i < n; i++) {
        if (table[i].chunk != c) continue;
        waiting += table[i].act == ZP_ACT_BI ? 1 : table[i].act == ZP_ACT_BW ? -1 : 0;
        if (waiting > waits) waits = waiting;
      }
      int64_t bound = zp_pending_chunk(p->c, s, c, p->m);
      cr_assert(p->c->schedule == ZP_SCHEDULE_ZB_V ? waits <= bound : waits == bound, "stage %d: %d wait, not %d", s,
                (int)waits, (int)bound);
    }
    if (pool - zp_in_flight(p->c, s, p->m) > out->pool) out->pool = pool - zp_in_flight(p->c, s, p->m);
  }
  free(table);
}

static player player_of(zp_arena *arena, const zp_choice *c, int64_t m, lengths t) {
  player p = {.c = c, .m = m, .t = t};
  int64_t places = (int64_t)c->pipeline * zp_chunks(c);
  int64_t **numbers[] = {&p.length, &p.next, &p.free_at, &p.begin, &p.busy};
  for (size_t i = 0; i < 5; i++) *numbers[i] = ZP_NEW_ARRAY(arena, int64_t, c->pipeline);
  for (int i = 0; i < 2; i++) p.taken[i] = ZP_NEW_ARRAY(arena, int64_t, places);
  for (int i = 0; i < 3; i++) {
    p.end[i] = ZP_NEW_ARRAY(arena, int64_t, places * m);
    for (int64_t k = 0; k < places * m; k++) p.end[i][k] = -1;
  }
  p.order = zp_orders(arena, c, m, p.length);
  return p;
}

static void run_player(player *p) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < p->c->pipeline; s++)
      while (move(p, s)) moved = true;
  }
}

static played play(zp_choice c, int64_t m, lengths t) {
  zp_arena *arena = zp_arena_new("play");
  player p = player_of(arena, &c, m, t);
  cr_assert(zp_messages_in_order(&c, p.order, p.length), "%s p %d m %d", zp_schedule_name(c.schedule), c.pipeline,
            (int)m);
  int64_t places = (int64_t)c.pipeline * zp_chunks(&c);
  run_player(&p);
  played out = {.finished = true};
  for (int s = 0; s < c.pipeline; s++) {
    out.finished &= p.next[s] == p.length[s];
    if (p.free_at[s] > out.makespan) out.makespan = p.free_at[s];
    if (p.busy[s] > out.work) out.work = p.busy[s];
    int64_t idle = p.free_at[s] - p.begin[s] - p.busy[s];
    if (idle > out.idle_inside) out.idle_inside = idle;
  }
  for (int64_t i = 0; i < 3 * places * m && out.finished; i++)
    cr_assert(p.end[i / (places * m)][i % (places * m)] >= 0);
  compare_in_flight(&p, &out);
  zp_arena_free(arena);
  return out;
}

static zp_choice choice_of(zp_schedule schedule, int p, int v) {
  return (zp_choice){.tensor = 1, .pipeline = p, .data = 1, .schedule = schedule, .chunks = v, .microbatch = 1};
}

/* Every action once, in an order that cannot deadlock, within the counts of the closed forms. */
static void check_all(zp_schedule schedule, int v) {
  for (int p = 1; p <= MAX_P; p++)
    for (int64_t m = 1; m <= MAX_M; m++) {
      zp_choice c = choice_of(schedule, p, v);
      if (zp_schedule_refusal(&c)) continue;
      played r = play(c, m, (lengths){2, 2, 2});
      cr_assert(r.finished, "%s p %d v %d m %d deadlocks", zp_schedule_name(schedule), p, v, (int)m);
      cr_assert(r.in_flight <= 0 && r.pool == 0, "%s p %d v %d m %d: in flight %d, stage %d too many",
                zp_schedule_name(schedule), p, v, (int)m, (int)r.in_flight, (int)r.pool);
      /* 2 p micro-batches fill every pipeline: then each chunk has some stage that needs all of its room. */
      for (int k = 0; k < v && m >= 2 * p; k++)
        cr_assert(r.chunk[k] == 0, "%s p %d m %d: chunk %d never has what it has room for", zp_schedule_name(schedule),
                  p, (int)m, k);
    }
}

/* Validation walks the forwards of the tables alone: they must not stand still either. */
static void check_forwards(zp_schedule schedule, int v) {
  for (int p = 2; p <= MAX_P; p++)
    for (int64_t m = 1; m <= MAX_M; m++) {
      zp_arena *arena = zp_arena_new("forwards");
      zp_choice c = choice_of(schedule, p, v);
      player one = player_of(arena, &c, m, (lengths){2, 2, 2});
      for (int s = 0; s < p; s++) {
        int64_t n = 0;
        for (int64_t i = 0; i < one.length[s]; i++)
          if (one.order[s][i].forward) one.order[s][n++] = one.order[s][i];
        one.length[s] = n;
      }
      run_player(&one);
      for (int s = 0; s < p; s++)
        cr_assert_eq(one.next[s], m * v, "%s p %d m %d", zp_schedule_name(schedule), p, (int)m);
      zp_arena_free(arena);
    }
}

/* ---- channels: messages that are matched by their order, as NCCL's are ---- */

/* One message in a channel at a time: what is after it waits, with the buffer that it lies in, until the receiver has
 * asked for those before it. */
typedef struct channel {
  int64_t sent, taken;
  int64_t *part, *microbatch;
} channel;

typedef struct network {
  const zp_choice *c;
  int64_t m;
  zp_action **order;
  int64_t *length, *next;
  channel *channel; /* [from stage][to stage][up] */
  int64_t *left;    /* [part][up]: messages that have left this part's buffers, in order */
  int64_t *filled;  /* the same: messages that were put there */
} network;

static channel *channel_between(const network *n, int from, int to, bool up) {
  return &n->channel[(from * n->c->pipeline + to) * 2 + up];
}

/* The next action of a stage, if its message is the next one of the channel, and its buffer has been emptied. */
static bool act(network *n, int s) {
  if (n->next[s] == n->length[s]) return false;
  zp_action a = n->order[s][n->next[s]];
  int64_t parts = (int64_t)n->c->pipeline * zp_chunks(n->c), mine = zp_model_chunk(n->c, s, a.chunk);
  bool up = a.act == ZP_ACT_F;
  int64_t from = mine + (up ? -1 : 1), to = mine + (up ? 1 : -1);
  if (a.act != ZP_ACT_BW) {
    bool receives = from >= 0 && from < parts, sends = to >= 0 && to < parts;
    int below = receives ? zp_chunk_stage(n->c, from, NULL) : s, above = sends ? zp_chunk_stage(n->c, to, NULL) : s;
    channel *in = channel_between(n, below, s, up), *out = channel_between(n, s, above, up);
    if (receives && in->taken == in->sent) return false;
    if (sends && n->filled[2 * mine + up] - n->left[2 * mine + up] == zp_message_buffers(n->c, n->m)) return false;
    if (receives) {
      cr_assert(in->part[in->taken] == from && in->microbatch[in->taken] == a.microbatch, "%s p %d m %d stage %d",
                zp_schedule_name(n->c->schedule), n->c->pipeline, (int)n->m, s);
      in->taken++;
      n->left[2 * from + up]++;
    }
    if (sends) {
      out->part[out->sent] = mine;
      out->microbatch[out->sent++] = a.microbatch;
      n->filled[2 * mine + up]++;
    }
  }
  n->next[s]++;
  return true;
}

/* The tables come to their end over such channels. */
static void check_channels(zp_schedule schedule, int v) {
  for (int p = 2; p <= MAX_P; p++)
    for (int64_t m = 1; m <= MAX_M; m++) {
      zp_arena *arena = zp_arena_new("channels");
      zp_choice c = choice_of(schedule, p, v);
      network n = {.c = &c, .m = m};
      n.length = ZP_NEW_ARRAY(arena, int64_t, p);
      n.next = ZP_NEW_ARRAY(arena, int64_t, p);
      n.left = ZP_NEW_ARRAY(arena, int64_t, 2 * p * v);
      n.filled = ZP_NEW_ARRAY(arena, int64_t, 2 * p * v);
      n.channel = ZP_NEW_ARRAY(arena, channel, 2 * p * p);
      for (int i = 0; i < 2 * p * p; i++) {
        n.channel[i].part = ZP_NEW_ARRAY(arena, int64_t, m * v);
        n.channel[i].microbatch = ZP_NEW_ARRAY(arena, int64_t, m * v);
      }
      n.order = zp_orders(arena, &c, m, n.length);
      for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < p; s++)
          while (act(&n, s)) moved = true;
      }
      for (int s = 0; s < p; s++)
        cr_assert_eq(n.next[s], n.length[s], "%s p %d m %d: stage %d waits for ever", zp_schedule_name(schedule), p,
                     (int)m, s);
      zp_arena_free(arena);
    }
}

Test(schedule, channels) {
  static const zp_schedule of_one_chunk[] = {ZP_SCHEDULE_GPIPE, ZP_SCHEDULE_1F1B, ZP_SCHEDULE_ZB_H1, ZP_SCHEDULE_ZB_H2};
  for (int i = 0; i < 4; i++) check_channels(of_one_chunk[i], 1);
  check_channels(ZP_SCHEDULE_ZB_V, 2);
  check_channels(ZP_SCHEDULE_DUALPIPEV, 2);
  for (int v = 2; v <= MAX_V; v++) check_channels(ZP_SCHEDULE_INTERLEAVED, v);
}

/* A stage that takes two chunks' messages the other way round is found. */
Test(schedule, messages_out_of_order) {
  zp_arena *arena = zp_arena_new("order");
  zp_choice c = choice_of(ZP_SCHEDULE_INTERLEAVED, 3, 2);
  int64_t length[3];
  zp_action **order = zp_orders(arena, &c, 6, length);
  cr_assert(zp_messages_in_order(&c, order, length));
  int64_t i = 0;
  while (order[1][i].chunk == 0 || !order[1][i].forward) i++; /* the first forward of the second chunk */
  cr_assert(order[1][i - 1].forward && order[1][i - 1].chunk == 0);
  zp_action first = order[1][i - 1];
  order[1][i - 1] = order[1][i];
  order[1][i] = first;
  cr_expect(!zp_messages_in_order(&c, order, length));
  zp_arena_free(arena);
}

Test(schedule, forwards_alone) {
  check_forwards(ZP_SCHEDULE_ZB_V, 2);
  check_forwards(ZP_SCHEDULE_DUALPIPEV, 2);
  for (int v = 2; v <= MAX_V; v++) check_forwards(ZP_SCHEDULE_INTERLEAVED, v);
}

Test(schedule, gpipe) { check_all(ZP_SCHEDULE_GPIPE, 1); }
Test(schedule, one_f_one_b) { check_all(ZP_SCHEDULE_1F1B, 1); }
Test(schedule, zb_h1) { check_all(ZP_SCHEDULE_ZB_H1, 1); }
Test(schedule, zb_h2) { check_all(ZP_SCHEDULE_ZB_H2, 1); }
Test(schedule, zb_v) { check_all(ZP_SCHEDULE_ZB_V, 2); }
Test(schedule, dualpipev) { check_all(ZP_SCHEDULE_DUALPIPEV, 2); }
Test(schedule, interleaved) {
  for (int v = 2; v <= MAX_V; v++) check_all(ZP_SCHEDULE_INTERLEAVED, v);
}

/* (p - 1)(F + B), whatever F : B is. */
Test(schedule, bubble_of_gpipe_and_1f1b) {
  for (int p = 1; p <= MAX_P; p++)
    for (int64_t m = p; m <= MAX_M; m += 5)
      for (int64_t b = 1; b <= 3; b++) {
        lengths t = {2, b, b};
        int64_t bubble = (p - 1) * (2 + 2 * b);
        played gpipe = play(choice_of(ZP_SCHEDULE_GPIPE, p, 1), m, t),
               one = play(choice_of(ZP_SCHEDULE_1F1B, p, 1), m, t);
        cr_assert_eq(gpipe.makespan - gpipe.work, bubble);
        cr_assert_eq(one.makespan - one.work, bubble);
      }
}

/* (p - 1)(F + B) / v of whole stages: chunks are v times shorter. */
Test(schedule, bubble_of_interleaved) {
  for (int p = 2; p <= MAX_P; p++)
    for (int v = 2; v <= MAX_V; v++)
      for (int64_t m = p; m <= 3 * p; m += p) {
        played r = play(choice_of(ZP_SCHEDULE_INTERLEAVED, p, v), m, (lengths){1, 1, 1});
        cr_assert_eq(r.makespan - r.work, (p - 1) * 3, "p %d v %d m %d: %d", p, v, (int)m, (int)(r.makespan - r.work));
      }
}

/* (p - 1)(F + BI - BW) with F = BI = BW. */
Test(schedule, bubble_of_zb_h1) {
  for (int p = 1; p <= MAX_P; p++)
    for (int64_t m = p; m <= MAX_M; m++) {
      played r = play(choice_of(ZP_SCHEDULE_ZB_H1, p, 1), m, (lengths){1, 1, 1});
      cr_assert_eq(r.makespan - r.work, p - 1);
    }
}

/* No stage waits between its first and its last action; the last one starts p - 1 late. */
Test(schedule, bubble_of_zb_h2) {
  for (int p = 1; p <= MAX_P; p++)
    for (int64_t m = 2 * p - 1; m <= MAX_M; m++) {
      played r = play(choice_of(ZP_SCHEDULE_ZB_H2, p, 1), m, (lengths){1, 1, 1});
      cr_assert_eq(r.idle_inside, 0);
      cr_assert_eq(r.makespan - r.work, p - 1);
    }
}

/* Nothing is shorter than 6 m + p - 1: the deepest stage starts p - 1 late. A few chunk passes are lost. */
Test(schedule, bubble_of_zb_v) {
  for (int p = 2; p <= MAX_P; p++)
    for (int64_t m = 2 * p; m <= 3 * p; m++) {
      played r = play(choice_of(ZP_SCHEDULE_ZB_V, p, 2), m, (lengths){1, 1, 1});
      cr_assert(r.makespan >= 6 * m + p - 1 && r.makespan <= 6 * m + p - 1 + 6, "p %d m %d: %d", p, (int)m,
                (int)(r.makespan - 6 * m - p + 1));
    }
}

/* The shortest possible. */
Test(schedule, bubble_of_dualpipev) {
  for (int p = 2; p <= MAX_P; p++)
    for (int64_t m = p; m <= 3 * p; m++) {
      played r = play(choice_of(ZP_SCHEDULE_DUALPIPEV, p, 2), m, (lengths){1, 1, 1});
      cr_assert_eq(r.makespan, 6 * m + p - 1, "p %d m %d: %d", p, (int)m, (int)r.makespan);
    }
}

/* The order of the published example, 4 ranks and 10 micro-batches: rank 0's and rank 3's rows of its picture, whole
 * backwards written as a gradient of inputs and one of weights. */
Test(schedule, dualpipev_as_published) {
  static const char *const rows[] = {
      "F0F0F0F0F0F0F0F1I1W1F1I1W1F1I1W1F1F0I1W1F1I0W0F0I1W1F1I0W0F0I1W1F1I0W0"
      "I1W1F1I0W0I1W1F1I0W0I1W1F1I0W0I1W1I0W0I0W0I0W0I0W0",
      "F0F1F0F1F0F1F0F1F0I1W1F1I0W0F0I1W1F1I0W0F0I1W1F1I0W0F0I1W1F1I0W0F0I1W1F1I0W0F0I1W1F1I0W0"
      "I1W1I0W0I1W1I0W0I1I0I1I0W1W0W1W0"};
  zp_choice c = choice_of(ZP_SCHEDULE_DUALPIPEV, 4, 2);
  zp_action table[6 * 10];
  for (int i = 0; i < 2; i++) {
    char text[2 * 6 * 10 + 1] = "", name[] = {[ZP_ACT_F] = 'F', [ZP_ACT_BI] = 'I', [ZP_ACT_BW] = 'W'};
    cr_assert_eq(zp_order(&c, 3 * i, 10, table, NULL), 60);
    for (int k = 0; k < 60; k++) text[2 * k] = name[table[k].act], text[2 * k + 1] = (char)('0' + table[k].chunk);
    cr_expect_str_eq(text, rows[i]);
  }
}

/* The published bound, p / 2 + 1 in whole numbers, which long tables reach. */
Test(schedule, zb_v_waiting_weight_gradients) {
  static const int most[] = {0, 1, 2, 2, 3, 3, 4, 4, 5}; /* by pipeline */
  for (int p = 2; p <= 8; p++) {
    int64_t m = 3 * p, top = 0;
    zp_choice c = choice_of(ZP_SCHEDULE_ZB_V, p, 2);
    zp_action table[6 * 3 * 8];
    for (int s = 0; s < p; s++) {
      int64_t n = zp_order(&c, s, m, table, NULL), waiting[2] = {0, 0};
      for (int64_t i = 0; i < n; i++) {
        waiting[table[i].chunk] += (table[i].act == ZP_ACT_BI) - (table[i].act == ZP_ACT_BW);
        if (waiting[table[i].chunk] > top) top = waiting[table[i].chunk];
      }
    }
    cr_expect_eq(top, most[p], "%d stages: %d wait", p, (int)top);
  }
}

Test(schedule, chunks_on_stages) {
  int chunk;
  zp_choice v = choice_of(ZP_SCHEDULE_ZB_V, 4, 2), i = choice_of(ZP_SCHEDULE_INTERLEAVED, 4, 3);
  cr_expect(zp_chunk_stage(&v, 3, &chunk) == 3 && chunk == 0);
  cr_expect(zp_chunk_stage(&v, 4, &chunk) == 3 && chunk == 1);
  cr_expect(zp_chunk_stage(&v, 7, &chunk) == 0 && chunk == 1);
  cr_expect(zp_chunk_stage(&i, 7, &chunk) == 3 && chunk == 1);
  cr_expect(zp_chunk_stage(&i, 8, &chunk) == 0 && chunk == 2);
}

Test(schedule, what_does_not_go_together) {
  zp_choice c = choice_of(ZP_SCHEDULE_INTERLEAVED, 4, 1);
  cr_expect_not_null(zp_schedule_refusal(&c));
  c = choice_of(ZP_SCHEDULE_INTERLEAVED, 1, 2);
  cr_expect_not_null(zp_schedule_refusal(&c));
  c = choice_of(ZP_SCHEDULE_ZB_V, 4, 3);
  cr_expect_not_null(zp_schedule_refusal(&c));
  c = choice_of(ZP_SCHEDULE_DUALPIPEV, 4, 1);
  cr_expect_not_null(zp_schedule_refusal(&c));
  c = choice_of(ZP_SCHEDULE_1F1B, 4, 2);
  cr_expect_not_null(zp_schedule_refusal(&c));
  c = choice_of(ZP_SCHEDULE_ZB_V, 4, 2);
  cr_expect_null(zp_schedule_refusal(&c));
}

Test(schedule, names) {
  for (int i = 0; i < ZP_SCHEDULE_COUNT; i++)
    cr_expect_eq(zp_schedule_by_name(zp_schedule_name((zp_schedule)i)), (zp_schedule)i);
  cr_expect_eq(zp_schedule_by_name("2f2b"), ZP_SCHEDULE_COUNT);
}

/* A large table costs what its entries cost: this test would not end otherwise. */
Test(schedule, thousand_stages) {
  zp_choice c = choice_of(ZP_SCHEDULE_INTERLEAVED, 1024, 4);
  cr_expect_eq(zp_in_flight(&c, 0, 8192), 2 * 1023 + 3 * 1024 + 1);
  cr_expect_eq(zp_in_flight_chunk(&c, 1023, 3, 8192), 1);
}
