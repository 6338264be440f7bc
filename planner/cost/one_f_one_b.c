/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B without order tables: the search simulates it more often than anything else.
 *
 * The table of stage s, with w = stages - 1 - s, is cut into turns: turn i is forward i + w and then backward i, where
 * there are such micro-batches. In one turn, stages from the last to the first, whatever an action waits for has been
 * run: backward i of stage s + 1 in the same turn, forward i + w of stage s - 1 in the turn before. At most one message
 * is under way in each direction between two stages, so the state is a few numbers a stage. Durations, messages and
 * buffers are those of pipeline.c, and so are the results, to the last bit.
 *
 * With many micro-batches and stages nearly all turns are whole. Then two stages run at once: a turn waits for the one
 * before it on the same stage and on stage s - 1, and for the same one on stage s + 1, so all turns of one moment
 * 2 i - s wait for earlier moments alone, and every second stage has one of them. */
#include <assert.h>
#include <zplan/cost.h>
#include <zplan/pairs.h>

/* ---- turn by turn ---- */

typedef struct turn_stage {
  double free_s; /* end of the last action */
  double forward_s, backward_s;
  double up_s, down_s; /* messages to the next stage and to the one before; 0 where there is none */
  double down_free_s;  /* when the buffer of the last one down is free */
  double input_s;      /* arrival of the next forward's input; then the buffer that it came from is free */
} turn_stage;

static inline void run_next_forward(turn_stage *stage) {
  stage->free_s = zp_later(zp_later(stage->free_s, stage[1].input_s), stage->input_s) + stage->forward_s;
  stage[1].input_s = stage->free_s + stage->up_s;
}

/* Takes the gradient's arrival from the next stage, returns its arrival at the one before. */
static inline double run_next_backward(turn_stage *stage, double gradient_s) {
  stage->free_s = zp_later(zp_later(stage->free_s, stage->down_free_s), gradient_s) + stage->backward_s;
  stage->down_free_s = stage->free_s + stage->down_s;
  return stage->down_free_s;
}

/* Where the turn before was a whole one and messages take no longer than the stage works (takes_longer), both buffers
 * are free by the time that they are wanted: backward i - 1 took longer than message up, forward i longer than the one
 * down. Roundings are monotone, so the results are those of the functions above to the last bit. */
static inline double run_whole_turn(turn_stage *stage, double gradient_s) {
  double forward_s = zp_later(stage->free_s, stage->input_s) + stage->forward_s;
  stage[1].input_s = forward_s + stage->up_s;
  stage->free_s = zp_later(gradient_s, forward_s) + stage->backward_s;
  return stage->free_s + stage->down_s;
}

/* Does every one of the stages work longer, in either direction, than the message takes that it waits with? */
static bool takes_longer(const turn_stage *stages, int known) {
  bool longer = true;
  for (int s = 0; s < known && longer; s++)
    longer = stages[s].forward_s >= stages[s].down_s && stages[s].backward_s >= stages[s].up_s;
  return longer;
}

/* Makes the first `known` stages, and one after that takes what they send. Room before them, where turns end. */
static turn_stage *make_stages(zp_arena *arena, const zp_pipeline_run *run, int known) {
  turn_stage *stages = ZP_NEW_ARRAY(arena, turn_stage, known + 2) + 1;
  for (int s = 0; s < known; s++) {
    stages[s].forward_s = run->time[s].forward_s;
    stages[s].backward_s = run->time[s].backward_s;
    if (s > 0) stages[s].down_s = run->message_s[s - 1];
    if (s + 1 < run->stages) stages[s].up_s = run->message_s[s];
  }
  return stages;
}

static inline double rest_of(const zp_pipeline_run *run, int64_t microbatch) {
  if (microbatch == 0) return zp_later(run->rest_s, run->first_rest_s);
  return microbatch == run->microbatches - 1 ? zp_later(run->rest_s, run->last_rest_s) : run->rest_s;
}

/* The first stage that has a forward left in a turn; the one after the last when none has. */
static int first_with_forward(int64_t forward, int64_t m, int known) {
  int64_t first = forward + known - m;
  return first < 0 ? 0 : first < known ? (int)first : known;
}

/* A stage's actions in one direction in a row, each of which waits for an arrival and for the buffer of the message
 * before, which is free no sooner than the stage: sent_s. Arrivals become those at the next stage. Returns the end of
 * the last action. Two at a time, because loops cost as much as sums. */
static double run_in_a_row(double *arrival_s, int64_t n, double free_s, double sent_s, double work_s,
                           double message_s) {
  int64_t i = 0;
  for (; i + 1 < n; i += 2) {
    arrival_s[i] = sent_s = zp_later(sent_s, arrival_s[i]) + work_s + message_s;
    free_s = zp_later(sent_s, arrival_s[i + 1]) + work_s;
    arrival_s[i + 1] = sent_s = free_s + message_s;
  }
  if (i == n) return free_s;
  free_s = zp_later(sent_s, arrival_s[i]) + work_s;
  arrival_s[i] = free_s + message_s;
  return free_s;
}

/* Forwards before turn 0, all of a stage and then those of the next: they wait for stages before them alone. Leaves
 * arrivals after the last stage. */
static void run_first_forwards(turn_stage *stages, const zp_pipeline_run *run, int known, double *arrival_s) {
  for (int s = 0; s < known; s++) {
    turn_stage *stage = &stages[s];
    int64_t behind = run->stages - 1 - s, n = behind < run->microbatches ? behind : run->microbatches;
    stage->free_s = run_in_a_row(arrival_s, n, 0, 0, stage->forward_s, stage->up_s);
    if (n > 0) stage[1].input_s = arrival_s[n - 1];
  }
}

/* Backwards after the last forward, all of a stage and then those of the one before. arrival_s: of the gradients of
 * every turn at the stage behind which all had a forward. */
static void run_last_backwards(turn_stage *stages, const zp_pipeline_run *run, int n, double *arrival_s) {
  int64_t m = run->microbatches;
  for (int s = n - 1; s >= 0; s--) {
    turn_stage *stage = &stages[s];
    int64_t behind = run->stages - 1 - s, first = behind < m ? m - behind : 0;
    double sent_s = first > 0 ? stage->free_s + stage->down_s : stage->free_s; /* after a backward or a forward */
    stage->free_s = run_in_a_row(arrival_s + first, m - first, stage->free_s, sent_s, stage->backward_s, stage->down_s);
  }
}

/* Turns on stages that have a forward left, from the last one on. Returns the gradient's arrival before the first. */
static inline double run_turn(turn_stage *last, const turn_stage *first, double gradient_s, bool longer) {
  turn_stage *stage = last;
  if (longer) {
    for (; stage > first; stage -= 2) gradient_s = run_whole_turn(stage - 1, run_whole_turn(stage, gradient_s));
    return stage == first ? run_whole_turn(stage, gradient_s) : gradient_s;
  }
  for (; stage >= first; stage--) {
    run_next_forward(stage);
    gradient_s = run_next_backward(stage, gradient_s);
  }
  return gradient_s;
}

static void run_turns(zp_arena *arena, const zp_pipeline_run *run) {
  int known = run->known ? run->known : run->stages;
  turn_stage *stages = make_stages(arena, run, known), *last = &stages[known - 1];
  int64_t m = run->microbatches;
  bool all = known == run->stages;
  bool longer = m >= run->stages && takes_longer(stages, known); /* then turn 0 is whole on every stage */
  double *arrival_s = ZP_NEW_ARRAY(arena, double, m); /* after the known stages; of gradients in turns that were run */
  run_first_forwards(stages, run, known, arrival_s);
  for (int64_t turn = 0; turn < m; turn++) {
    int64_t forward = turn + run->stages - known; /* of the last stage; one more on every stage before it */
    double gradient_s = 0;
    if (!all) {
      if (forward < m) {
        run_next_forward(last);
        arrival_s[forward] = last[1].input_s;
      }
      gradient_s = run_next_backward(last, arrival_s[turn] + rest_of(run, turn));
    }
    arrival_s[turn] =
        run_turn(all ? last : last - 1, &stages[first_with_forward(forward, m, known)], gradient_s, longer && turn > 0);
  }
  run_last_backwards(stages, run, all ? known : known - 1, arrival_s);
  for (int s = 0; s < known; s++) run->end_s[s] = stages[s].free_s;
}

/* ---- every second stage at once ---- */

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

/* ---- turns ---- */

static inline void run_forward(const every_second *x, int j, double input_s) {
  x->free_s[j] = zp_later(zp_later(x->free_s[j], x->up_arrival_s[j]), input_s) + x->forward_s[j];
  x->up_arrival_s[j] = x->free_s[j] + x->up_s[j];
}

static inline void run_backward(const every_second *x, int j, double gradient_s) {
  x->free_s[j] = zp_later(zp_later(x->free_s[j], x->down_arrival_s[j]), gradient_s) + x->backward_s[j];
  x->down_arrival_s[j] = x->free_s[j] + x->down_s[j];
}

/* run_forward and run_backward of two stages; j is even. */
static inline void run_pair(const every_second *x, int j, const double *input_s, const double *gradient_s) {
  zp_pair free = zp_pair_later(zp_pair_at_aligned(x->free_s + j), zp_pair_at_aligned(x->up_arrival_s + j));
  free = zp_pair_add(zp_pair_later(free, zp_pair_at(input_s + j)), zp_pair_at_aligned(x->forward_s + j));
  zp_pair_put(x->up_arrival_s + j, zp_pair_add(free, zp_pair_at_aligned(x->up_s + j)));
  free = zp_pair_later(free, zp_pair_at_aligned(x->down_arrival_s + j));
  free = zp_pair_add(zp_pair_later(free, zp_pair_at(gradient_s + j)), zp_pair_at_aligned(x->backward_s + j));
  zp_pair_put(x->free_s + j, free);
  zp_pair_put(x->down_arrival_s + j, zp_pair_add(free, zp_pair_at_aligned(x->down_s + j)));
}

static void run_whole_turns(const every_second *own, int j, int end, const double *input_s, const double *gradient_s) {
  const every_second x = *own;
  for (; j < end && j % 2; j++) {
    run_forward(&x, j, input_s[j]);
    run_backward(&x, j, gradient_s[j]);
  }
  for (; j + 1 < end; j += 2) run_pair(&x, j, input_s, gradient_s);
  if (j >= end) return;
  run_forward(&x, j, input_s[j]);
  run_backward(&x, j, gradient_s[j]);
}

/* The turn of the last known stage, which the rest answers. */
static void run_last(const wave *w, int64_t turn, bool forward, bool backward, const double *input_s) {
  int j = (w->known - 1) / 2;
  const every_second *x = &w->of[(w->known - 1) % 2];
  if (forward) {
    run_forward(x, j, input_s[j]);
    w->sent_s[turn + w->run->stages - w->known] = x->up_arrival_s[j];
  }
  if (backward) run_backward(x, j, w->sent_s[turn] + rest_of(w->run, turn));
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

static void run_wave(zp_arena *arena, const zp_pipeline_run *run) {
  wave w = make_wave(arena, run);
  for (int64_t moment = 2 - 2 * (int64_t)run->stages; moment <= 2 * run->microbatches - 2; moment++)
    run_moment(&w, moment);
  for (int s = 0; s < w.known; s++) run->end_s[s] = w.of[s % 2].free_s[s / 2];
}

enum { WAVE_STAGES = 16, WAVE_MICROBATCHES = 4 }; /* at least; micro-batches a stage */

void zp_pipeline_1f1b(zp_arena *arena, const zp_pipeline_run *run) {
  assert(run->known >= 0 && run->known <= run->stages && run->microbatches >= 1);
  assert(run->chunks == 1 && run->buffers == 1);
  zp_arena_mark mark = zp_arena_get_mark(arena);
  int known = run->known ? run->known : run->stages;
  bool many = known >= WAVE_STAGES && run->microbatches >= (int64_t)WAVE_MICROBATCHES * run->stages;
  (many ? run_wave : run_turns)(arena, run);
  zp_arena_rewind(arena, mark);
}
