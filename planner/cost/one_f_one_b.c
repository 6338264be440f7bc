/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B without order tables: the search simulates it more often than anything else.
 *
 * The table of stage s, with w = stages - 1 - s, is cut into turns: turn i is forward i + w and then backward i, where
 * there are such micro-batches. In one turn, stages from the last to the first, whatever an action waits for has been
 * run: backward i of stage s + 1 in the same turn, forward i + w of stage s - 1 in the turn before. At most one message
 * is under way in each direction between two stages, so the state is a few numbers a stage. Durations, messages and
 * buffers are those of pipeline.c, and so are the results, to the last bit.
 *
 * With many micro-batches and stages nearly all turns are whole, and every second stage runs at once
 * (one_f_one_b_wave.c). */
#include <assert.h>
#include <zplan/cost.h>
#include <zplan/lanes.h>
#include "one_f_one_b.h"

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
      gradient_s = run_next_backward(last, arrival_s[turn] + zp_run_rest(run, turn));
    }
    arrival_s[turn] =
        run_turn(all ? last : last - 1, &stages[first_with_forward(forward, m, known)], gradient_s, longer && turn > 0);
  }
  run_last_backwards(stages, run, all ? known : known - 1, arrival_s);
  for (int s = 0; s < known; s++) run->end_s[s] = stages[s].free_s;
}

enum { WAVE_STAGES = 16, WAVE_MICROBATCHES = 4 }; /* at least; micro-batches a stage */

void zp_pipeline_1f1b(zp_arena *arena, const zp_pipeline_run *run) {
  assert(run->known >= 0 && run->known <= run->stages && run->microbatches >= 1);
  assert(run->chunks == 1 && run->buffers == 1);
  zp_arena_mark mark = zp_arena_get_mark(arena);
  int known = run->known ? run->known : run->stages;
  bool many = known >= WAVE_STAGES && run->microbatches >= (int64_t)WAVE_MICROBATCHES * run->stages;
#if ZP_WIDE_LANES
  (!many ? run_turns : zp_has_wide_lanes() ? zp_run_wave_wide : zp_run_wave_narrow)(arena, run);
#else
  (many ? zp_run_wave_narrow : run_turns)(arena, run);
#endif
  zp_arena_rewind(arena, mark);
}
