/* SPDX-License-Identifier: Apache-2.0 */
/* Chrome trace of the simulated step, and of a measured one where a profile has it: one process per pipeline stage (one
 * rank stands for its tensor and data ranks), with lanes for micro-batches, the end of the step, the host, messages and
 * every queue that something moves on, and a counter of memory. Long steps: the first micro-batches only, which the
 * trace's metadata says; a viewer cannot show more anyway.
 *
 * Format: "Trace Event Format" of Chrome, which Perfetto reads: complete events X, metadata M, counters C.
 * Events of one lane do not overlap. */
#include <zplan/cost.h>

#include <assert.h>
#include <math.h>
#include "trace_internal.h"

enum { MOST_ACTIONS = 8000 }; /* each is four events or more */

/* Threads of a stage's process; a queue's is LANE_QUEUES + its number. */
enum { LANE_ACTIONS, LANE_END, LANE_HOST, LANE_UP, LANE_DOWN, LANE_QUEUES };

typedef struct lane_times {
  double of[LANE_QUEUES + ZP_QUEUE_COUNT];
} lane_times;

typedef struct tracer {
  zp_buf out;
  const zp_plan *plan;
  const zp_pipeline_run *run;
  int64_t microbatches; /* shown */
  bool first;
  zp_stage_lanes *lanes;    /* [stage] */
  lane_times *free_s;       /* [stage]: end of the lane's last event */
  int64_t *saved, *pending; /* [stage]: bytes held */
} tracer;

static void separate(tracer *t) {
  zp_buf_puts(&t->out, t->first ? "\n" : ",\n");
  t->first = false;
}

/* A complete event without its end, so that arguments may follow. */
static void open_box(tracer *t, int pid, int tid, const char *name, const char *category, double begin_s,
                     double end_s) {
  separate(t);
  zp_buf_printf(&t->out,
                "{\"name\": %s, \"cat\": %s, \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f, \"pid\": %d, \"tid\": %d",
                zp_quote_json(t->out.arena, name), zp_quote_json(t->out.arena, category), begin_s * 1e6,
                (end_s - begin_s) * 1e6, pid, tid);
}

static void put_box(tracer *t, int pid, int tid, const char *name, const char *category, double begin_s, double end_s) {
  open_box(t, pid, tid, name, category, begin_s, end_s);
  zp_buf_puts(&t->out, "}");
}

/* ---- micro-batches ---- */

static const char act_letter[] = {[ZP_ACT_F] = 'F', [ZP_ACT_B] = 'B', [ZP_ACT_BI] = 'I', [ZP_ACT_BW] = 'W'};
static const char *const act_category[] = {
    [ZP_ACT_F] = "forward", [ZP_ACT_B] = "backward", [ZP_ACT_BI] = "backward", [ZP_ACT_BW] = "weights"};

static const char *action_name(const tracer *t, const zp_action *a) {
  if (t->run->chunks == 1) return zp_format(t->out.arena, "%c%lld", act_letter[a->act], (long long)a->microbatch);
  return zp_format(t->out.arena, "%c%lld.%d", act_letter[a->act], (long long)a->microbatch, a->chunk);
}

/* Queues begin with the action, or when they are done with the one before. */
static void put_queues(tracer *t, const zp_event *e, const char *name) {
  const zp_action_lanes *lanes = zp_trace_action_lanes(&t->lanes[e->stage], &e->action);
  for (int q = 0; q < ZP_QUEUE_COUNT; q++) {
    if (lanes->busy_s[q] <= 0) continue;
    double *free_s = &t->free_s[e->stage].of[LANE_QUEUES + q], begin = fmax(e->begin_s, *free_s);
    *free_s = begin + lanes->busy_s[q];
    open_box(t, e->stage, LANE_QUEUES + q, name, "queue", begin, *free_s);
    if (lanes->bytes[q] > 0) zp_buf_printf(&t->out, ", \"args\": {\"bytes\": %lld}", (long long)lanes->bytes[q]);
    zp_buf_puts(&t->out, "}");
  }
}

/* The message that an action ends with, on its way. */
static void put_message(tracer *t, const zp_event *e, const char *name) {
  int64_t place = zp_model_chunk(t->run->choice, e->stage, e->action.chunk);
  int64_t to = e->action.forward ? place + 1 : place - 1, between = e->action.forward ? place : to;
  if (e->action.act == ZP_ACT_BW || to < 0 || to >= (int64_t)t->run->stages * t->run->chunks) return;
  int stage = zp_chunk_stage(t->run->choice, to, NULL), lane = e->action.forward ? LANE_UP : LANE_DOWN;
  if (stage == e->stage) return;
  double *free_s = &t->free_s[e->stage].of[lane], arrival = e->end_s + t->run->message_s[between];
  double begin = fmax(e->end_s, *free_s);
  *free_s = fmax(begin, arrival);
  open_box(t, e->stage, lane, zp_format(t->out.arena, "%s to stage %d", name, stage), "message", begin, *free_s);
  zp_buf_printf(&t->out, ", \"args\": {\"bytes\": %lld}}", (long long)zp_cost_message_bytes(t->plan->program, between));
}

/* Saved values are there from forward to the last part of backward; weight gradients that wait from BI to BW. */
static void put_memory(tracer *t, const zp_event *e) {
  const zp_stage *stage = &t->plan->program->stages[e->stage];
  const zp_chunk *chunk = &stage->chunks[e->action.chunk];
  bool splits = zp_schedule_splits(t->run->choice->schedule);
  zp_act last = splits ? ZP_ACT_BW : ZP_ACT_B;
  int64_t slot = stage->pooled ? stage->slot_stride : chunk->slot_stride;
  if (e->action.act == ZP_ACT_F) t->saved[e->stage] += slot;
  if (e->action.act == last) t->saved[e->stage] -= slot;
  if (e->action.act == ZP_ACT_BI) t->pending[e->stage] += chunk->pending_stride;
  if (e->action.act == ZP_ACT_BW) t->pending[e->stage] -= chunk->pending_stride;
  separate(t);
  zp_buf_printf(&t->out,
                "{\"name\": \"saved values\", \"ph\": \"C\", \"ts\": %.3f, \"pid\": %d, \"args\": {\"saved\": %lld",
                (e->action.act == ZP_ACT_F ? e->begin_s : e->end_s) * 1e6, e->stage, (long long)t->saved[e->stage]);
  if (splits) zp_buf_printf(&t->out, ", \"waiting for weight gradients\": %lld", (long long)t->pending[e->stage]);
  zp_buf_puts(&t->out, "}}");
}

static void put_event(void *user, const zp_event *e) {
  tracer *t = user;
  if (e->action.microbatch >= t->microbatches) return;
  const char *name = action_name(t, &e->action);
  open_box(t, e->stage, LANE_ACTIONS, name, act_category[e->action.act], e->begin_s, e->end_s);
  zp_buf_printf(&t->out, ", \"args\": {\"microbatch\": %lld, \"chunk\": %d}}", (long long)e->action.microbatch,
                e->action.chunk);
  put_queues(t, e, name);
  put_message(t, e, name);
  put_memory(t, e);
}

/* ---- names ---- */

/* tid < 0: of the process. */
static void put_name(tracer *t, int pid, int tid, const char *name) {
  separate(t);
  zp_buf_printf(&t->out, "{\"name\": \"%s\", \"ph\": \"M\", \"pid\": %d", tid < 0 ? "process_name" : "thread_name",
                pid);
  if (tid >= 0) zp_buf_printf(&t->out, ", \"tid\": %d", tid);
  zp_buf_printf(&t->out, ", \"args\": {\"name\": %s}}", zp_quote_json(t->out.arena, name));
}

static void put_order(tracer *t, int pid) {
  separate(t);
  zp_buf_printf(&t->out,
                "{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"sort_index\": %d}}", pid,
                pid);
}

static const char *queue_name(int queue) {
#define ZP_QUEUE_NAME(name, text) [ZP_QUEUE_##name] = text,
  static const char *const names[] = {ZP_MOVE_QUEUES(ZP_QUEUE_NAME)};
#undef ZP_QUEUE_NAME
  return queue == ZP_QUEUE_COMPUTE ? "collectives in units" : names[queue];
}

static void put_lane_names(tracer *t, int stage) {
  put_name(t, stage, LANE_ACTIONS, "micro-batches");
  put_name(t, stage, LANE_END, "end of the step");
  if (t->plan->spec->train.delayed) put_name(t, stage, LANE_HOST, "host");
  if (t->run->stages > 1) put_name(t, stage, LANE_UP, "activations sent");
  if (t->run->stages > 1) put_name(t, stage, LANE_DOWN, "gradients sent");
  for (int q = 0; q < ZP_QUEUE_COUNT; q++)
    if (t->lanes[stage].has[q]) put_name(t, stage, LANE_QUEUES + q, queue_name(q));
}

/* What stays as it is during the step. */
static void put_state(tracer *t, int stage) {
  zp_memory m = zp_stage_memory(t->plan, stage);
  separate(t);
  zp_buf_printf(
      &t->out,
      "{\"name\": \"state and buffers\", \"ph\": \"C\", \"ts\": 0, \"pid\": %d, \"args\": {\"weights\": %lld, "
      "\"gradients\": %lld, \"optimizer\": %lld, \"buffers\": %lld, \"context\": %lld}}",
      stage, (long long)m.weights, (long long)m.gradients, (long long)m.optimizer, (long long)m.buffers,
      (long long)(m.context + m.communicators));
}

static void put_names(tracer *t, const char *predicted) {
  const zp_program *program = t->plan->program;
  for (int s = 0; s < program->choice.pipeline; s++) {
    put_name(t, s, -1,
             zp_format(t->out.arena, "stage %d%s: %s", s, predicted,
                       zp_words_stage(t->out.arena, program->lowered, &program->stages[s])));
    put_order(t, s);
    put_lane_names(t, s);
    put_state(t, s);
  }
}

/* ---- measured ---- */

/* Stage s of the measured step is process `pipeline` + s: its micro-batches in thread 0, everything else in thread 1.
 * Every stage's time begins with its own step; they begin when all have met for the norm of the step before. */
static void put_measured(tracer *t, const zp_profile *profile) {
  int stages = t->run->stages;
  for (int s = 0; s < stages; s++) {
    put_name(t, stages + s, -1, zp_format(t->out.arena, "stage %d, measured", s));
    put_order(t, stages + s);
    put_name(t, stages + s, LANE_ACTIONS, "micro-batches");
    put_name(t, stages + s, LANE_END, "everything else");
  }
  for (int i = 0; i < profile->spans.len; i++) {
    const zp_profile_span *span = &profile->spans.data[i];
    char first = span->name[0];
    bool action = first && strchr("FBIW", first) && span->name[1] >= '0' && span->name[1] <= '9';
    const char *category = !action ? "other" : first == 'F' ? "forward" : first == 'W' ? "weights" : "backward";
    put_box(t, stages + span->stage, !action, span->name, category, span->begin_ms / 1e3, span->end_ms / 1e3);
  }
}

/* ---- the end of the step ---- */

/* Reduction and update of every stage, at the times that zp_simulate gives them. A delayed update begins with the
 * step's own gather of weights, here with the step, and ends before the exchange. */
static void put_step_end(tracer *t) {
  const zp_program *p = t->plan->program;
  const zp_pipeline_run *run = t->run;
  double ready = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int s = 0; s < run->stages; s++) {
      zp_stage_time time = zp_cost_stage_time(run, s);
      zp_step_end end = zp_cost_stage_end(p, &t->plan->machine, s, zp_cost_overlapped(&p->choice, &time));
      double reduced = run->end_s[s] + end.reduce_s;
      if (pass == 0) {
        if (reduced > ready) ready = reduced;
        if (reduced > run->end_s[s]) put_box(t, s, LANE_END, "reduce gradients", "data", run->end_s[s], reduced);
        continue;
      }
      double updated = ready + end.optimizer_s;
      put_box(t, s, LANE_END, "optimizer", "optimizer", ready, updated);
      if (end.delayed_s > end.gather_s) {
        double delayed = end.delayed_s - end.gather_s;
        put_box(t, s, LANE_HOST, "update of the step before", "host", 0, delayed);
        updated = fmax(updated, delayed);
      }
      if (end.offload_s > 0)
        put_box(t, s, LANE_END, end.delayed_s > 0 ? "exchange with the host" : "update on the host", "host", updated,
                updated + end.offload_s);
      updated += end.offload_s;
      if (end.gather_s > 0) put_box(t, s, LANE_END, "gather weights", "data", updated, updated + end.gather_s);
    }
}

const char *zp_report_trace(zp_arena *arena, const zp_plan *plan, const zp_profile *profile) {
  assert(plan->feasible);
  const zp_program *p = plan->program;
  const int stages = p->choice.pipeline;
  zp_pipeline_run run = zp_cost_pipeline(arena, p, &plan->machine);
  tracer t = {.out = zp_buf_new(arena), .plan = plan, .run = &run, .first = true};
  int64_t room = MOST_ACTIONS / (2 * stages);
  t.microbatches = p->microbatches < room ? p->microbatches : room > 0 ? room : 1;
  t.lanes = ZP_NEW_ARRAY(arena, zp_stage_lanes, stages);
  t.free_s = ZP_NEW_ARRAY(arena, lane_times, stages);
  t.saved = ZP_NEW_ARRAY(arena, int64_t, stages);
  t.pending = ZP_NEW_ARRAY(arena, int64_t, stages);
  for (int s = 0; s < stages; s++) t.lanes[s] = zp_trace_lanes(arena, plan, s);
  zp_buf_puts(
      &t.out,
      profile ? "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"source\": \"zplan, simulated step (estimate), and the "
                "last measured step of a run\", "
              : "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"source\": \"zplan, simulated step (estimate)\", ");
  zp_buf_printf(&t.out, "\"microbatches\": %lld, \"microbatches_shown\": %lld}, \"traceEvents\": [",
                (long long)p->microbatches, (long long)t.microbatches);
  put_names(&t, profile ? ", predicted" : "");
  zp_arena *scratch = zp_arena_new("trace"); /* of its own: events are written to `arena` while it runs */
  zp_pipeline_simulate(scratch, &run, put_event, &t);
  zp_arena_free(scratch);
  put_step_end(&t);
  if (profile) put_measured(&t, profile);
  zp_buf_puts(&t.out, "\n]}\n");
  return t.out.data;
}
