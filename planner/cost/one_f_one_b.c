/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B without order tables: the search simulates it more often than anything else.
 *
 * The table of stage s, with w = stages - 1 - s, is cut into turns: turn i is forward i + w and then backward i, where
 * there are such micro-batches. In one turn, stages from the last to the first, whatever an action waits for has been
 * run: backward i of stage s + 1 in the same turn, forward i + w of stage s - 1 in the turn before. At most one message
 * is under way in each direction between two stages, so the state is a few numbers a stage. Durations, messages and
 * buffers are those of pipeline.c, and so are the results, to the last bit. */
#include <assert.h>
#include <zplan/cost.h>

typedef struct turn_stage {
  double free_s; /* end of the last action */
  double forward_s, backward_s;
  double up_s, down_s;           /* messages to the next stage and to the one before; 0 where there is none */
  double up_free_s, down_free_s; /* when their buffers are free */
  double input_s;                /* arrival of the next forward's input */
} turn_stage;

static inline void run_forward(turn_stage *stage) {
  stage->free_s = zp_later(zp_later(stage->free_s, stage->up_free_s), stage->input_s) + stage->forward_s;
  stage->up_free_s = stage->free_s + stage->up_s;
  stage[1].input_s = stage->up_free_s;
}

/* Takes the gradient's arrival from the next stage, returns its arrival at the one before. */
static inline double run_backward(turn_stage *stage, double gradient_s) {
  stage->free_s = zp_later(zp_later(stage->free_s, stage->down_free_s), gradient_s) + stage->backward_s;
  stage->down_free_s = stage->free_s + stage->down_s;
  return stage->down_free_s;
}

/* Makes the first `known` stages, and one after that takes what they send. */
static turn_stage *make_stages(zp_arena *arena, const zp_pipeline_run *run, int known) {
  turn_stage *stages = ZP_NEW_ARRAY(arena, turn_stage, known + 1);
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

void zp_pipeline_1f1b(zp_arena *arena, const zp_pipeline_run *run) {
  assert(run->known >= 0 && run->known <= run->stages && run->microbatches >= 1);
  assert(run->chunks == 1 && run->buffers == 1);
  zp_arena_mark mark = zp_arena_get_mark(arena);
  int known = run->known ? run->known : run->stages;
  turn_stage *stages = make_stages(arena, run, known);
  int64_t m = run->microbatches;
  double *sent_s = known < run->stages ? ZP_NEW_ARRAY(arena, double, m) : NULL; /* arrivals after the known stages */
  for (int64_t turn = 1 - run->stages; turn < m; turn++) {
    int64_t forward = turn + run->stages - known; /* of the last stage; one more on every stage before it */
    int first = first_with_forward(forward, m, known);
    if (turn < 0) {
      for (int s = known - 1 + (forward < 0 ? (int)forward : 0); s >= first; s--) run_forward(&stages[s]);
      if (sent_s && forward >= 0 && first < known) sent_s[forward] = stages[known].input_s;
      continue;
    }
    double gradient_s = 0;
    int end = known;
    if (sent_s) {
      end--;
      if (first <= end) {
        run_forward(&stages[end]);
        sent_s[forward] = stages[known].input_s;
      }
      gradient_s = run_backward(&stages[end], sent_s[turn] + rest_of(run, turn));
    }
    for (int s = end - 1; s >= first; s--) {
      run_forward(&stages[s]);
      gradient_s = run_backward(&stages[s], gradient_s);
    }
    for (int s = (first < end ? first : end) - 1; s >= 0; s--) gradient_s = run_backward(&stages[s], gradient_s);
  }
  for (int s = 0; s < known; s++) run->end_s[s] = stages[s].free_s;
  zp_arena_rewind(arena, mark);
}
