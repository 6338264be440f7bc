/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B, every second stage at once: with many micro-batches and stages nearly all turns (one_f_one_b.c) are whole. A
 * turn waits for the one before it on the same stage and on stage s - 1, and for the same one on stage s + 1, so all
 * turns of one moment 2 i - s wait for earlier moments alone, and every second stage has one of them. Compiled twice
 * (lanes.h). */
#include <zplan/lanes.h>
#include "one_f_one_b.h"

/* Every second stage: stage 2 j + 0 or 2 j + 1 at j. With room at both ends for neighbours that there are not. */
typedef struct every_second {
  double *free_s; /* end of the last action */
  double *forward_s, *backward_s;
  double *up_s, *down_s;                 /* messages to the next stage and to the one before; 0 where there is none */
  double *up_arrival_s, *down_arrival_s; /* of the last ones */
} every_second;

typedef struct wave {
  const zp_pipeline_run *run;
  int known;
  every_second of[2];
  double *sent_s; /* [microbatches]: arrivals after the known stages; NULL: all are known */
} wave;

/* Aligned to 16 bytes. */
static double *numbers_with_room(zp_arena *arena, int n) { return ZP_NEW_ARRAY(arena, double, n + 4) + 2; }

static every_second make_every_second(zp_arena *arena, int n) {
  return (every_second){numbers_with_room(arena, n), numbers_with_room(arena, n), numbers_with_room(arena, n),
                        numbers_with_room(arena, n), numbers_with_room(arena, n), numbers_with_room(arena, n),
                        numbers_with_room(arena, n)};
}

static wave make_wave(zp_arena *arena, const zp_pipeline_run *run) {
  wave w = {.run = run, .known = run->known ? run->known : run->stages};
  for (int i = 0; i < 2; i++) w.of[i] = make_every_second(arena, w.known / 2 + 1);
  if (w.known < run->stages) w.sent_s = ZP_ROOM_FOR(arena, double, run->microbatches);
  for (int s = 0; s < w.known; s++) {
    const every_second *x = &w.of[s % 2];
    x->forward_s[s / 2] = run->time[s].forward_s;
    x->backward_s[s / 2] = run->time[s].backward_s;
    if (s > 0) x->down_s[s / 2] = run->message_s[s - 1];
    if (s + 1 < run->stages) x->up_s[s / 2] = run->message_s[s];
  }
  return w;
}

static inline void run_forward(const every_second *x, int j, double input_s) {
  x->free_s[j] = zp_later(zp_later(x->free_s[j], x->up_arrival_s[j]), input_s) + x->forward_s[j];
  x->up_arrival_s[j] = x->free_s[j] + x->up_s[j];
}

static inline void run_backward(const every_second *x, int j, double gradient_s) {
  x->free_s[j] = zp_later(zp_later(x->free_s[j], x->down_arrival_s[j]), gradient_s) + x->backward_s[j];
  x->down_arrival_s[j] = x->free_s[j] + x->down_s[j];
}

/* run_forward and run_backward of several stages; j is a multiple of theirs. */
static inline void run_lanes(const every_second *x, int j, const double *input_s, const double *gradient_s) {
  zp_lanes free = zp_lanes_later(zp_lanes_at_aligned(x->free_s + j), zp_lanes_at_aligned(x->up_arrival_s + j));
  free = zp_lanes_add(zp_lanes_later(free, zp_lanes_at(input_s + j)), zp_lanes_at_aligned(x->forward_s + j));
  zp_lanes_put(x->up_arrival_s + j, zp_lanes_add(free, zp_lanes_at_aligned(x->up_s + j)));
  free = zp_lanes_later(free, zp_lanes_at_aligned(x->down_arrival_s + j));
  free = zp_lanes_add(zp_lanes_later(free, zp_lanes_at(gradient_s + j)), zp_lanes_at_aligned(x->backward_s + j));
  zp_lanes_put(x->free_s + j, free);
  zp_lanes_put(x->down_arrival_s + j, zp_lanes_add(free, zp_lanes_at_aligned(x->down_s + j)));
}

static void run_whole_turns(const every_second *own, int j, int end, const double *input_s, const double *gradient_s) {
  const every_second x = *own;
  for (; j < end && j % ZP_LANES; j++) {
    run_forward(&x, j, input_s[j]);
    run_backward(&x, j, gradient_s[j]);
  }
  for (; j + ZP_LANES <= end; j += ZP_LANES) run_lanes(&x, j, input_s, gradient_s);
  for (; j < end; j++) {
    run_forward(&x, j, input_s[j]);
    run_backward(&x, j, gradient_s[j]);
  }
}

/* The turn of the last known stage, which the rest answers. */
static void run_last(const wave *w, int64_t turn, bool forward, bool backward, const double *input_s) {
  int j = (w->known - 1) / 2;
  const every_second *x = &w->of[(w->known - 1) % 2];
  if (forward) {
    run_forward(x, j, input_s[j]);
    w->sent_s[turn + w->run->stages - w->known] = x->up_arrival_s[j];
  }
  if (backward) run_backward(x, j, w->sent_s[turn] + zp_run_rest(w->run, turn));
}

static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

/* The stages that have a turn then, which is not before their first forward nor after their last backward. */
static void run_moment(const wave *w, int64_t moment) {
  int64_t m = w->run->microbatches, stages = w->run->stages;
  int odd = (int)(moment & 1), known = w->known;
  int64_t last = at_most(known - 1, at_most(moment + 2 * stages - 2, 2 * m - 2 - moment));
  int64_t with_forward = at_least(0, moment - 2 * (m - stages)),
          with_backward = at_least(0, -moment); /* from there on */
  const every_second *own = &w->of[odd], *others = &w->of[1 - odd];
  const double *input_s = others->up_arrival_s + odd - 1, *gradient_s = others->down_arrival_s + odd;
  last -= (last ^ odd) & 1;
  if (w->sent_s && last == known - 1) {
    run_last(w, (moment + last) / 2, last >= with_forward, last >= with_backward, input_s);
    last -= 2;
  }
  int forward = (int)((with_forward + 1 - odd) / 2), backward = (int)((with_backward + 1 - odd) / 2),
      end = (int)((last - odd) / 2 + 1);
  for (int j = forward; j < end && j < backward; j++) run_forward(own, j, input_s[j]);
  for (int j = backward; j < end && j < forward; j++) run_backward(own, j, gradient_s[j]);
  run_whole_turns(own, forward > backward ? forward : backward, end, input_s, gradient_s);
}

void ZP_LANED(zp_run_wave)(zp_arena *arena, const zp_pipeline_run *run) {
  wave w = make_wave(arena, run);
  for (int64_t moment = 2 - 2 * (int64_t)run->stages; moment <= 2 * run->microbatches - 2; moment++)
    run_moment(&w, moment);
  for (int s = 0; s < w.known; s++) run->end_s[s] = w.of[s % 2].free_s[s / 2];
}
