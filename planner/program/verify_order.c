/* The schedule of a plan file: the order tables of all stages are played at once, with the message buffers that the
 * layout has. Counts what every chunk has in flight on the way; verify_arena.c compares with the slots. */
#include "schedule.h"
#include "verify_internal.h"

/* One chunk of the model. `done` counts forwards, gradients of inputs and of weights; a message of a direction is taken
 * when the neighbour begins what needs it. */
typedef struct place {
  int stage, chunk;
  bool *done[3]; /* [microbatch] */
  int64_t count[3];
  int64_t sent[2], taken[2]; /* [0] gradients down, [1] values up */
} place;

typedef struct play {
  zp_verifier *v;
  int places;
  place *place;
  int *place_of; /* [stage * chunks + chunk] */
  zp_action **order;
  int64_t *length, *next;
  int64_t *held; /* [stage]: micro-batches in flight, all chunks together */
  int64_t messages;
} play;

static place *neighbour(play *p, int k, int step) {
  return k + step < 0 || k + step >= p->places ? NULL : &p->place[k + step];
}

static void note_counts(play *p, const place *x) {
  zp_verifier *v = p->v;
  int at = x->stage * v->chunks + x->chunk;
  int64_t in_flight = x->count[0] - x->count[2], pending = x->count[1] - x->count[2];
  if (v->in_flight[at] < in_flight) v->in_flight[at] = in_flight;
  if (v->pending[at] < pending) v->pending[at] = pending;
  if (v->pool[x->stage] < p->held[x->stage]) v->pool[x->stage] = p->held[x->stage];
}

static void finish(play *p, place *x, int what, int64_t microbatch) {
  if (x->done[what][microbatch])
    zp_find(p->v, "stage %d: micro-batch %lld is done twice", x->stage, (long long)microbatch);
  x->done[what][microbatch] = true;
  x->count[what]++;
  p->held[x->stage] += what == 0 ? 1 : what == 2 ? -1 : 0;
}

/* May the action run, as far as its own stage is concerned? Receiving needs the message; sending needs a free buffer,
 * also where the next chunk is on the same stage and copies. */
static bool ready(play *p, int k, const zp_action *a) {
  bool forward = a->act == ZP_ACT_F;
  place *x = &p->place[k], *from = neighbour(p, k, forward ? -1 : 1), *to = neighbour(p, k, forward ? 1 : -1);
  int what = forward ? 0 : 1;
  if (a->act == ZP_ACT_BW) return x->done[1][a->microbatch];
  if (!forward && !x->done[0][a->microbatch]) return false;
  if (from && !from->done[what][a->microbatch]) return false;
  return !to || x->sent[forward] - x->taken[forward] < p->messages;
}

static bool step_stage(play *p, int s) {
  if (p->next[s] == p->length[s]) return false;
  const zp_action *a = &p->order[s][p->next[s]];
  int k = p->place_of[s * p->v->chunks + a->chunk];
  bool forward = a->act == ZP_ACT_F;
  if (!ready(p, k, a)) return false;
  place *x = &p->place[k], *from = neighbour(p, k, forward ? -1 : 1);
  if (a->act != ZP_ACT_BW) {
    if (from) from->taken[forward]++;
    x->sent[forward]++;
    finish(p, x, forward ? 0 : 1, a->microbatch);
  }
  if (a->act == ZP_ACT_BW || a->act == ZP_ACT_B) finish(p, x, 2, a->microbatch);
  note_counts(p, x);
  p->next[s]++;
  return true;
}

static play set_up(zp_verifier *v) {
  zp_arena *arena = v->arena;
  play p = {.v = v, .places = v->choice.pipeline * v->chunks};
  p.messages = zp_message_buffers(&v->choice, v->microbatches);
  p.place = ZP_NEW_ARRAY(arena, place, p.places);
  p.place_of = ZP_NEW_ARRAY(arena, int, p.places);
  for (int k = 0; k < p.places; k++) {
    place *x = &p.place[k];
    x->stage = zp_chunk_stage(&v->choice, k, &x->chunk);
    p.place_of[x->stage * v->chunks + x->chunk] = k;
    for (int i = 0; i < 3; i++) x->done[i] = ZP_NEW_ARRAY(arena, bool, v->microbatches);
  }
  p.length = ZP_NEW_ARRAY(arena, int64_t, v->choice.pipeline);
  p.next = ZP_NEW_ARRAY(arena, int64_t, v->choice.pipeline);
  p.held = ZP_NEW_ARRAY(arena, int64_t, v->choice.pipeline);
  p.order = zp_orders(arena, &v->choice, v->microbatches, p.length);
  v->in_flight = ZP_NEW_ARRAY(arena, int64_t, p.places);
  v->pending = ZP_NEW_ARRAY(arena, int64_t, p.places);
  v->pool = ZP_NEW_ARRAY(arena, int64_t, v->choice.pipeline);
  return p;
}

void zp_verify_order(zp_verifier *v) {
  play p = set_up(v);
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < v->choice.pipeline; s++)
      while (step_stage(&p, s)) moved = true;
  }
  for (int s = 0; s < v->choice.pipeline; s++)
    if (p.next[s] != p.length[s])
      zp_find(v, "deadlock: stage %d stops after %lld of %lld actions", s, (long long)p.next[s],
              (long long)p.length[s]);
  if (!zp_messages_in_order(&v->choice, p.order, p.length))
    zp_find(v, "a stage takes messages of its neighbour in another order than they are sent in");
  for (int k = 0; k < p.places; k++)
    if (p.place[k].count[0] != v->microbatches || p.place[k].count[2] != v->microbatches)
      zp_find(v, "stage %d runs %lld forwards and %lld backwards", p.place[k].stage, (long long)p.place[k].count[0],
              (long long)p.place[k].count[2]);
}
