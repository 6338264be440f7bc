/* SPDX-License-Identifier: Apache-2.0 */
/* Event simulation of one step's micro-batches over the stages' order tables.
 *
 * Messages behave as the runtime's: a send returns at once and the transfer goes on alongside whatever its sender does
 * next; a send buffer is free again when its message has arrived; a receive blocks. Neighbouring chunks on one stage
 * hand over without a message. Every stage runs its table in order; a stage is considered again whenever a neighbour
 * has sent it something, so the work is linear in the number of actions. One representative rank stands for all tensor
 * and data ranks of a stage.
 *
 * Places: the model's chunks in order, 0 .. stages * chunks - 1; place k talks to k - 1 and k + 1. The search spends
 * most of its time in run_stage: what an action needs stands together, in the order stage, chunk, direction. */
#include <assert.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>

/* What a chunk takes and hands on in one direction: 0 gradients downwards, 1 activations upwards. */
typedef struct way {
  double *arrival_s; /* [microbatch]: of the inputs, < 0 while under way; NULL: the action waits for nothing */
  double *next_s;    /* arrival_s of the next chunk; NULL: there is none */
  double *free_s;    /* [buffers]: when the buffers of messages to it are free; NULL: it is on the same stage */
  int64_t buffer;    /* of the next message */
  double message_s;
  int next_stage;
} way;

typedef struct place_state {
  way ways[2];
  double duration_s[ZP_ACT_BW + 1];
} place_state;

typedef struct stage_state {
  int64_t next;  /* index into the order table */
  double free_s; /* end of the last action */
} stage_state;

typedef struct simulation {
  const zp_pipeline_run *run;
  place_state *place; /* [stage * chunks + chunk] */
  stage_state *stages;
  int *work; /* stages to look at */
  int n_work;
  bool *queued;
  zp_on_event *on_event;
  void *user;
} simulation;

static void look_at(simulation *sim, int stage) {
  if (sim->queued[stage]) return;
  sim->queued[stage] = true;
  sim->work[sim->n_work++] = stage;
}

/* Hands the result of an action that ended at end_s to the next place in its direction, if there is one. */
static void hand_over(simulation *sim, way *to, int64_t microbatch, double end_s) {
  if (!to->next_s) return;
  double arrival = end_s;
  if (to->free_s) {
    arrival += to->message_s;
    to->free_s[to->buffer] = arrival;
    if (++to->buffer == sim->run->buffers) to->buffer = 0;
  }
  to->next_s[microbatch] = arrival;
  look_at(sim, to->next_stage);
}

/* When the input is there and the buffer of the output is free, not before `begin`; < 0: the input is not on its
 * way. */
static inline double earliest(const way *w, int64_t microbatch, double begin) {
  if (w->arrival_s) {
    double arrival = w->arrival_s[microbatch];
    if (arrival < 0) return arrival;
    if (arrival > begin) begin = arrival;
  }
  if (w->free_s && w->free_s[w->buffer] > begin) begin = w->free_s[w->buffer];
  return begin;
}

/* Runs the next actions of a stage as long as their inputs are there (or on their way). */
static void run_stage(simulation *sim, int s) {
  const zp_pipeline_run *run = sim->run;
  stage_state *stage = &sim->stages[s];
  place_state *places = &sim->place[s * run->chunks];
  for (; stage->next < run->actions[s]; stage->next++) {
    const zp_action *action = &run->order[s][stage->next];
    place_state *place = &places[action->chunk];
    way *w = action->act == ZP_ACT_BW ? NULL : &place->ways[action->forward];
    double begin = w ? earliest(w, action->microbatch, stage->free_s) : stage->free_s;
    if (begin < 0) return;
    stage->free_s = begin + place->duration_s[action->act];
    if (sim->on_event) sim->on_event(sim->user, &(zp_event){s, *action, begin, stage->free_s});
    if (w) hand_over(sim, w, action->microbatch, stage->free_s);
  }
}

static void set_durations(place_state *place, const zp_stage_time *time) {
  place->duration_s[ZP_ACT_F] = time->forward_s;
  place->duration_s[ZP_ACT_B] = time->backward_s;
  place->duration_s[ZP_ACT_BI] = time->backward_s - time->weights_s;
  place->duration_s[ZP_ACT_BW] = time->weights_s;
}

/* Gives the way into a chunk its arrivals and ties the way out of the chunk before it to them. */
static void connect(zp_arena *arena, const zp_pipeline_run *run, way *from, way *to, int from_stage, int to_stage) {
  to->arrival_s = ZP_ROOM_FOR(arena, double, run->microbatches);
  for (int64_t i = 0; i < run->microbatches; i++) to->arrival_s[i] = -1;
  from->next_s = to->arrival_s;
  from->next_stage = to_stage;
  if (from_stage != to_stage) from->free_s = ZP_NEW_ARRAY(arena, double, run->buffers);
}

static void make_places(zp_arena *arena, simulation *sim) {
  const zp_pipeline_run *run = sim->run;
  int places = run->stages * run->chunks, below_stage = 0;
  place_state *below = NULL;
  sim->place = ZP_NEW_ARRAY(arena, place_state, places);
  for (int k = 0; k < places; k++) {
    int chunk, stage = zp_chunk_stage(run->choice, k, &chunk), at = stage * run->chunks + chunk;
    place_state *place = &sim->place[at];
    set_durations(place, &run->time[at]);
    if (below) {
      below->ways[1].message_s = place->ways[0].message_s = run->message_s[k - 1];
      connect(arena, run, &below->ways[1], &place->ways[1], below_stage, stage);
      connect(arena, run, &place->ways[0], &below->ways[0], stage, below_stage);
    }
    below = place;
    below_stage = stage;
  }
}

void zp_pipeline_simulate(zp_arena *arena, const zp_pipeline_run *run, zp_on_event *on_event, void *user) {
  assert(run->stages >= 1 && run->chunks >= 1 && run->microbatches >= 1 && run->buffers >= 1);
  assert(run->known == 0 && run->time && run->message_s && run->end_s);
  zp_arena_mark mark = zp_arena_get_mark(arena);
  zp_pipeline_run with_order = *run;
  if (!run->order) {
    int64_t *actions = ZP_NEW_ARRAY(arena, int64_t, run->stages);
    with_order.order = zp_orders(arena, run->choice, run->microbatches, actions);
    with_order.actions = actions;
    run = &with_order;
  }
  simulation sim = {.run = run, .on_event = on_event, .user = user};
  make_places(arena, &sim);
  sim.stages = ZP_NEW_ARRAY(arena, stage_state, run->stages);
  sim.work = ZP_NEW_ARRAY(arena, int, run->stages);
  sim.queued = ZP_NEW_ARRAY(arena, bool, run->stages);
  for (int s = 0; s < run->stages; s++) look_at(&sim, s);
  while (sim.n_work) {
    int s = sim.work[--sim.n_work];
    sim.queued[s] = false;
    run_stage(&sim, s);
  }
  for (int s = 0; s < run->stages; s++) {
    assert(sim.stages[s].next == run->actions[s]); /* the order tables cannot deadlock */
    run->end_s[s] = sim.stages[s].free_s;
  }
  zp_arena_rewind(arena, mark);
}
