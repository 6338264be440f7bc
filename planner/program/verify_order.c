/* The schedule of a plan file: 1F1B in words of its own is played on all stages at once, with one message buffer for
 * each direction. */
#include "verify_internal.h"

typedef struct player {              /* one stage */
  int64_t warmup, forward, backward; /* next micro-batches; messages received and sent */
  int64_t up_taken, down_taken;      /* by the neighbour, of what this stage sent */
} player;

/* 1F1B in its own words: which way the stage goes next. */
static bool goes_forward(const player *p, int64_t m) { return p->forward < m && p->forward - p->backward <= p->warmup; }

/* May stage s take its next action? Receiving needs the message; sending needs the buffer of the message before. */
static bool step_stage(zp_verifier *v, player *p, int s) {
  int64_t m = v->microbatches;
  player *me = &p[s];
  if (me->backward == m) return false;
  if (goes_forward(me, m)) {
    if (s > 0 && p[s - 1].forward <= me->forward) return false; /* nothing to receive yet */
    if (s + 1 < v->choice.pipeline && me->up_taken < me->forward)
      return false; /* the last message still in its buffer */
    if (s > 0) p[s - 1].up_taken++;
    me->forward++;
    return true;
  }
  if (me->forward <= me->backward) return false;
  if (s + 1 < v->choice.pipeline && p[s + 1].backward <= me->backward) return false;
  if (s > 0 && me->down_taken < me->backward) return false;
  if (s + 1 < v->choice.pipeline) p[s + 1].down_taken++;
  me->backward++;
  return true;
}

void zp_verify_order(zp_verifier *v) {
  player *p = ZP_NEW_ARRAY(v->arena, player, v->choice.pipeline);
  for (int s = 0; s < v->choice.pipeline; s++) p[s].warmup = v->choice.pipeline - 1 - s;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < v->choice.pipeline; s++) {
      while (step_stage(v, p, s)) {
        moved = true;
        int64_t slots = zp_claim(zp_json_get(zp_json_at(v->stages, s), "arena"), "slots");
        if (p[s].forward - p[s].backward > slots) {
          zp_find(v, "stage %d has %lld micro-batches in flight and %lld slots", s,
                  (long long)(p[s].forward - p[s].backward), (long long)slots);
          return;
        }
      }
    }
  }
  for (int s = 0; s < v->choice.pipeline; s++)
    if (p[s].backward != v->microbatches)
      zp_find(v, "deadlock: stage %d stops after %lld forwards and %lld backwards", s, (long long)p[s].forward,
              (long long)p[s].backward);
}
