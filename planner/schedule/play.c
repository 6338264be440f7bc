/* SPDX-License-Identifier: Apache-2.0 */
/* Order tables of all stages, played at once with so many message buffers: does every stage come to its end, and what
 * does every chunk keep on the way? Where the stages wait for each other, the circle in which they do is said. */
#include <zplan/schedule.h>

#include <assert.h>

/* One chunk of the model. `count` counts forwards, gradients of inputs and of weights, which come in turn
 * (check_counts). A message is sent by every action of a place but the last kind, and taken when the neighbour begins
 * what needs it: as many are under way as the neighbour is behind. */
typedef struct place {
  int stage, chunk;
  int64_t count[3];
  int64_t in_flight, pending; /* most so far */
} place;

typedef struct play {
  zp_arena *arena;
  const zp_choice *choice;
  int chunks, places;
  place *place;  /* [-1 .. places]: those before the first and after the last have done everything */
  int *place_of; /* [stage * chunks + chunk] */
  zp_action *const *order;
  const int64_t *length;
  int64_t *next;
  int64_t *held; /* [stage]: micro-batches in flight, all chunks together */
  int64_t microbatches, messages;
  zp_played_order *out;
} play;

static bool has_done(const place *x, int what, int64_t microbatch) { return microbatch < x->count[what]; }

/* What keeps an action from running: something that a stage does later, maybe its own. */
typedef struct blocker {
  bool blocks;
  int stage;
  const char *why;
} blocker;

/* What keeps the next action of a place from running. Receiving needs the message; sending needs a free buffer, also
 * where the next chunk is on the same stage and copies. */
static inline blocker blocker_of(const play *p, int k, const zp_action *a) {
  bool forward = a->act == ZP_ACT_F;
  const place *x = &p->place[k], *from = x + (forward ? -1 : 1), *to = x + (forward ? 1 : -1);
  int what = forward ? 0 : 1;
  if (a->act == ZP_ACT_BW)
    return has_done(x, 1, a->microbatch) ? (blocker){0} : (blocker){true, x->stage, "its gradients of inputs"};
  if (!forward && !has_done(x, 0, a->microbatch)) return (blocker){true, x->stage, "its forward"};
  if (!has_done(from, what, a->microbatch)) return (blocker){true, from->stage, forward ? "values" : "gradients"};
  if (x->count[what] - to->count[what] >= p->messages) return (blocker){true, to->stage, "a free message buffer"};
  return (blocker){0};
}

static const zp_action *next_of(const play *p, int s) {
  return p->next[s] < p->length[s] ? &p->order[s][p->next[s]] : NULL;
}

static inline void keep_most(int64_t *most, int64_t value) {
  if (*most < value) *most = value;
}

/* Runs what comes next on a stage up to the first action that must wait. False: it must, or there is none. */
static bool run_stage(play *p, int s) {
  const zp_action *first = p->order[s] + p->next[s], *end = p->order[s] + p->length[s], *a = first;
  const int *place_of = p->place_of + s * p->chunks;
  int64_t held = p->held[s];
  for (; a < end && !blocker_of(p, place_of[a->chunk], a).blocks; a++) {
    place *x = &p->place[place_of[a->chunk]];
    if (a->act == ZP_ACT_F) {
      keep_most(&x->in_flight, ++x->count[0] - x->count[2]);
      keep_most(&p->out->pool[s], ++held);
      continue;
    }
    if (a->act != ZP_ACT_BW) x->count[1]++;
    if (a->act != ZP_ACT_BI) x->count[2]++, held--;
    keep_most(&x->pending, x->count[1] - x->count[2]);
  }
  p->held[s] = held;
  p->next[s] = a - p->order[s];
  return a > first;
}

/* Runs the next action of the only chunk of a stage, unless it must wait: blocker_of without what it would say. */
static inline bool run_only(place *x, zp_act act, int64_t messages) {
  int64_t *count = x->count;
  if (act == ZP_ACT_F) {
    if (count[0] >= x[-1].count[0] || count[0] - x[1].count[0] >= messages) return false;
    keep_most(&x->in_flight, ++count[0] - count[2]);
    return true;
  }
  if (act == ZP_ACT_BW) {
    if (count[2] >= count[1]) return false;
    count[2]++;
    return true;
  }
  if (count[1] >= count[0] || count[1] >= x[1].count[1] || count[1] - x[-1].count[1] >= messages) return false;
  count[1]++;
  if (act == ZP_ACT_B) count[2]++;
  keep_most(&x->pending, count[1] - count[2]);
  return true;
}

/* run_stage of all stages in turn, where each has one chunk. */
static bool run_all(play *p) {
  const int64_t messages = p->messages;
  bool moved = false;
  for (int s = 0; s < p->places; s++) {
    const zp_action *first = p->order[s] + p->next[s], *end = p->order[s] + p->length[s], *a = first;
    while (a < end && run_only(&p->place[s], a->act, messages)) a++;
    if (a == first) continue;
    p->next[s] += a - first;
    moved = true;
  }
  return moved;
}

/* False: nothing moves any more. */
static bool run_stages(play *p) {
  bool moved = false;
  if (p->chunks == 1) return run_all(p);
  for (int s = 0; s < p->choice->pipeline; s++) moved |= run_stage(p, s);
  return moved;
}

static void note_counts(const play *p) {
  for (int k = 0; k < p->places; k++) {
    const place *x = &p->place[k];
    p->out->in_flight[x->stage * p->chunks + x->chunk] = x->in_flight;
    p->out->pending[x->stage * p->chunks + x->chunk] = x->pending;
    if (p->chunks == 1) p->out->pool[x->stage] = x->in_flight;
  }
}

static play set_up(zp_arena *arena, const zp_choice *c, int64_t microbatches) {
  play p = {.arena = arena, .choice = c, .chunks = zp_chunks(c), .microbatches = microbatches};
  p.places = c->pipeline * p.chunks;
  p.place = ZP_NEW_ARRAY(arena, place, p.places + 2) + 1;
  p.place[-1] = p.place[p.places] = (place){.stage = -1, .count = {microbatches, microbatches, microbatches}};
  p.place_of = ZP_NEW_ARRAY(arena, int, p.places);
  for (int k = 0; k < p.places; k++) {
    place *x = &p.place[k];
    x->stage = zp_chunk_stage(c, k, &x->chunk);
    p.place_of[x->stage * p.chunks + x->chunk] = k;
  }
  p.next = ZP_NEW_ARRAY(arena, int64_t, c->pipeline);
  p.held = ZP_NEW_ARRAY(arena, int64_t, c->pipeline);
  return p;
}

/* ---- what is wrong, in words ---- */

/* What is wrong with how often a stage does something, the worse first. */
typedef enum fault { NO_SUCH_ACTION, MISSING, TOO_MANY, FAULTS } fault;

static void say_count(play *p, int s, zp_action action, int64_t found, fault kind, zp_strings *findings) {
  const char *effect = kind == NO_SUCH_ACTION    ? ", and the schedule has no such action"
                       : kind == TOO_MANY        ? ""
                       : action.act == ZP_ACT_BW ? ": gradients of weights are missing"
                                                 : ": a message that its neighbour waits for is never sent";
  zp_push(p->arena, findings,
          zp_format(p->arena, "stage %d does %s %lld times, there are %lld micro-batches%s", s,
                    zp_action_text(p->arena, &action, p->chunks), (long long)found, (long long)p->microbatches,
                    effect));
}

static void check_stage_counts(play *p, int s, const int64_t *done, fault kind, zp_strings *findings) {
  bool splits = zp_schedule_splits(p->choice->schedule);
  for (int act = 0; act <= ZP_ACT_BW; act++)
    for (int k = 0; k < p->chunks; k++) {
      bool wanted = act == ZP_ACT_F || (act == ZP_ACT_B ? !splits : splits);
      int64_t found = done[act * p->chunks + k];
      bool at_fault = kind == NO_SUCH_ACTION ? !wanted && found > 0
                      : kind == MISSING      ? wanted && found < p->microbatches
                                             : wanted && found > p->microbatches;
      if (at_fault) say_count(p, s, zp_act_of((zp_act)act, k, 0), found, kind, findings);
    }
}

/* Every micro-batch once and in turn, by every kind of action that the schedule has, in every chunk. */
static bool check_counts(play *p, zp_strings *findings) {
  int kinds = (ZP_ACT_BW + 1) * p->chunks, before = findings->len;
  int64_t *done = ZP_NEW_ARRAY(p->arena, int64_t, (int64_t)kinds * p->choice->pipeline);
  for (int s = 0; s < p->choice->pipeline; s++)
    for (int64_t i = 0; i < p->length[s]; i++) {
      const zp_action *a = &p->order[s][i];
      int64_t *turn = &done[(int64_t)s * kinds + a->act * p->chunks + a->chunk];
      if (a->microbatch != *turn && findings->len == before)
        zp_push(p->arena, findings,
                zp_format(p->arena, "stage %d takes micro-batch %lld where %lld is next", s, (long long)a->microbatch,
                          (long long)*turn));
      ++*turn;
    }
  for (int kind = 0; kind < FAULTS; kind++)
    for (int s = 0; s < p->choice->pipeline; s++)
      check_stage_counts(p, s, &done[(int64_t)s * kinds], (fault)kind, findings);
  return findings->len == before;
}

/* "stage 0, B of micro-batch 2, waits for gradients from stage 1". */
static const char *wait_text(play *p, int s, const blocker *b) {
  const zp_action *a = next_of(p, s);
  const char *from =
      b->stage == s ? ", which comes later on the stage" : zp_format(p->arena, " from stage %d", b->stage);
  return zp_format(p->arena, "stage %d waits with %s of micro-batch %lld for %s%s", s,
                   zp_action_text(p->arena, a, p->chunks), (long long)a->microbatch, b->why, from);
}

static blocker blocker_of_stage(play *p, int s) {
  const zp_action *a = next_of(p, s);
  return blocker_of(p, p->place_of[s * p->chunks + a->chunk], a);
}

/* Follows who waits for whom from a stage that stands still to one that was met before, and says the circle. */
static void explain_deadlock(play *p, int stuck, zp_strings *findings) {
  bool *met = ZP_NEW_ARRAY(p->arena, bool, p->choice->pipeline);
  int s = stuck;
  while (!met[s] && next_of(p, s)) {
    met[s] = true;
    s = blocker_of_stage(p, s).stage;
  }
  const char *circle = "";
  int at = s;
  do {
    blocker b = blocker_of_stage(p, at);
    circle = zp_format(p->arena, "%s%s%s", circle, *circle ? "; " : "", wait_text(p, at, &b));
    at = b.stage;
  } while (at != s);
  zp_push(p->arena, findings, zp_format(p->arena, "deadlock: %s", circle));
}

zp_played_order zp_play_order(zp_arena *arena, const zp_choice *choice, int64_t microbatches, int64_t messages,
                              zp_action *const *order, const int64_t *length, zp_strings *findings) {
  assert(microbatches >= 1 && messages >= 1 && order && length && findings);
  play p = set_up(arena, choice, microbatches);
  zp_played_order out = {.in_flight = ZP_NEW_ARRAY(arena, int64_t, p.places),
                         .pending = ZP_NEW_ARRAY(arena, int64_t, p.places),
                         .pool = ZP_NEW_ARRAY(arena, int64_t, choice->pipeline)};
  p.order = order;
  p.length = length;
  p.messages = messages;
  p.out = &out;
  if (!check_counts(&p, findings)) return out;
  while (run_stages(&p)) continue;
  note_counts(&p);
  for (int s = 0; s < choice->pipeline; s++)
    if (next_of(&p, s)) {
      explain_deadlock(&p, s, findings);
      return out;
    }
  /* With one chunk a stage both ends of a channel take micro-batches in turn (check_counts). */
  if (p.chunks > 1 && !zp_messages_in_order(choice, order, length))
    zp_push(arena, findings, "a stage takes messages of its neighbour in another order than they are sent in");
  return out;
}
