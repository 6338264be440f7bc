/* SPDX-License-Identifier: Apache-2.0 */
/* ZB-V (arXiv 2405.15362, section 4): the model's first half goes down the stages, the second half comes back up, so
 * that every stage has an early and a late chunk and stage 0 both ends of the model. There is no closed form; the table
 * is made by a list scheduler on equal durations that stays within fixed caps:
 *   place k of the 2 p chunks has at most 2 p - k micro-batches in flight (as 1F1B on 2 p stages would), a stage 2 p;
 *   at most p / 2 + 1 weight gradients of a chunk wait.
 * Of what can run, a stage takes forwards of the late chunk first, then gradients of inputs, forwards of the early
 * chunk, and weight gradients when there is nothing else. Measured on equal durations: the step is at most 6 chunk
 * passes longer than 6 m + p - 1, the shortest possible, for p up to 12 and m >= 2 p. */
#include <assert.h>
#include <stdlib.h>
#include <zplan/schedule.h>

enum { F, BI, BW, ACTS };

typedef struct v_stage {
  int64_t done[ACTS][2]; /* per chunk */
  zp_action *next;       /* where its next action is written */
} v_stage;

typedef struct v_run {
  int pipeline;
  int64_t microbatches, now;
  int64_t *end[2]; /* F and BI: [place][micro-batch], when it is done; 0 before */
  v_stage *stages;
} v_run;

static int place_of(const v_run *run, int s, int chunk) { return chunk == 0 ? s : 2 * run->pipeline - 1 - s; }

static int64_t *end_of(v_run *run, int act, int place, int64_t microbatch) {
  return &run->end[act][place * run->microbatches + microbatch];
}

static bool is_done(v_run *run, int act, int place, int64_t microbatch) {
  int64_t end = *end_of(run, act, place, microbatch);
  return end > 0 && end <= run->now;
}

static bool can_run(v_run *run, int s, int act, int chunk) {
  v_stage *stage = &run->stages[s];
  int64_t n = stage->done[act][chunk], p = run->pipeline;
  int place = place_of(run, s, chunk);
  if (n == run->microbatches) return false;
  int64_t in_flight[2] = {stage->done[F][0] - stage->done[BW][0], stage->done[F][1] - stage->done[BW][1]};
  if (act == F)
    return in_flight[chunk] < zp_zb_v_flight(run->pipeline, s, chunk) && in_flight[0] + in_flight[1] < 2 * p &&
           (place == 0 || is_done(run, F, place - 1, n));
  if (act == BI)
    return stage->done[BI][chunk] - stage->done[BW][chunk] < zp_zb_v_pending(run->pipeline) &&
           is_done(run, F, place, n) && (place == 2 * p - 1 || is_done(run, BI, place + 1, n));
  return n < stage->done[BI][chunk];
}

/* The chunk whose weight gradient has waited longest. */
static int oldest_wait(v_run *run, int s) {
  const int64_t *done = run->stages[s].done[BW];
  int64_t end[2];
  for (int chunk = 0; chunk < 2; chunk++) {
    bool waits = done[chunk] < run->stages[s].done[BI][chunk];
    end[chunk] = waits ? *end_of(run, BI, place_of(run, s, chunk), done[chunk]) : INT64_MAX;
  }
  return end[1] < end[0];
}

static void take(v_run *run, int s, int act, int chunk) {
  static const zp_act name[ACTS] = {ZP_ACT_F, ZP_ACT_BI, ZP_ACT_BW};
  v_stage *stage = &run->stages[s];
  int64_t n = stage->done[act][chunk]++;
  if (act != BW) *end_of(run, act, place_of(run, s, chunk), n) = run->now + 1;
  *stage->next++ = zp_act_of(name[act], chunk, n);
}

/* One time unit of one stage; false when it has to wait. */
static bool step(v_run *run, int s) {
  int old = oldest_wait(run, s);
  const int choice[][2] = {{F, 1}, {BI, 0}, {BI, 1}, {F, 0}, {BW, old}, {BW, 1 - old}};
  for (size_t i = 0; i < sizeof choice / sizeof *choice; i++)
    if (can_run(run, s, choice[i][0], choice[i][1])) {
      take(run, s, choice[i][0], choice[i][1]);
      return true;
    }
  return false;
}

void zp_orders_zb_v(int pipeline, int64_t microbatches, zp_action *const *out) {
  assert(pipeline >= 1 && microbatches >= 1 && out);
  zp_arena *scratch = zp_arena_new("zb_v");
  v_run run = {.pipeline = pipeline, .microbatches = microbatches};
  for (int act = F; act <= BI; act++) run.end[act] = ZP_NEW_ARRAY(scratch, int64_t, 2 * pipeline * microbatches);
  run.stages = ZP_NEW_ARRAY(scratch, v_stage, pipeline);
  for (int s = 0; s < pipeline; s++) run.stages[s].next = out[s];
  for (int64_t left = 6 * microbatches * pipeline; left > 0; run.now++)
    for (int s = 0; s < pipeline; s++) left -= step(&run, s);
  zp_arena_free(scratch);
}
