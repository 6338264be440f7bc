/* Event simulation of one step's micro-batches over the stages' order tables.
 *
 * Messages behave as the runtime's: a send returns at once and the transfer goes on beside whatever its sender does
 * next; a send buffer is free again when its message has arrived; a receive blocks. Neighbouring chunks on one stage
 * hand over without a message. Every stage runs its table in order; a stage is looked at again whenever a neighbour has
 * sent it something, so the work is linear in the number of actions. One representative rank stands for all tensor and
 * data ranks of a stage.
 *
 * Places: the model's chunks in order, 0 .. stages * chunks - 1; place k talks to k - 1 and k + 1. */
#include <assert.h>
#include "cost.h"
#include "schedule.h"

typedef struct place_state {
  int stage;
  double *arrival_s[2]; /* [microbatch], < 0 while under way: [0] gradient from above, [1] input from below */
  double *free_s[2];    /* [buffers]: when the buffers of messages [0] downwards, [1] upwards are free */
  int64_t sent[2];
} place_state;

typedef struct stage_state {
  int64_t next;  /* index into the order table */
  double free_s; /* end of the last action */
} stage_state;

typedef struct simulation {
  const zp_pipeline_run *run;
  int places;
  place_state *place;
  int *place_of; /* [stage * chunks + chunk] */
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

/* The buffer that a place's next message goes through, NULL when there is no message. */
static double *send_buffer(const simulation *sim, int k, bool forward) {
  int to = forward ? k + 1 : k - 1;
  place_state *place = &sim->place[k];
  if (to < 0 || to >= sim->places || sim->place[to].stage == place->stage) return NULL;
  return &place->free_s[forward][place->sent[forward] % sim->run->buffers];
}

/* Hands the result of an action that ended at end_s to the next place in its direction, if there is one. */
static void hand_over(simulation *sim, int k, const zp_action *action, double end_s) {
  int to = action->forward ? k + 1 : k - 1;
  if (to < 0 || to >= sim->places) return;
  double *buffer = send_buffer(sim, k, action->forward), arrival = end_s;
  if (buffer) {
    arrival += sim->run->message_s[action->forward ? k : to];
    *buffer = arrival;
    sim->place[k].sent[action->forward]++;
  }
  sim->place[to].arrival_s[action->forward][action->microbatch] = arrival;
  look_at(sim, sim->place[to].stage);
}

static double duration(const zp_stage_time *time, zp_act act) {
  switch (act) {
  case ZP_ACT_F: return time->forward_s;
  case ZP_ACT_B: return time->backward_s;
  case ZP_ACT_BI: return time->backward_s - time->weights_s;
  case ZP_ACT_BW: return time->weights_s;
  }
  return 0;
}

/* Runs the next action of a stage if its input is there (or on its way). */
static bool run_next(simulation *sim, int s) {
  const zp_pipeline_run *run = sim->run;
  stage_state *stage = &sim->stages[s];
  if (stage->next == run->actions[s]) return false;
  const zp_action *action = &run->order[s][stage->next];
  int at = s * run->chunks + action->chunk, k = sim->place_of[at];
  double begin = stage->free_s;
  if (action->act != ZP_ACT_BW) {
    bool receives = action->forward ? k > 0 : k + 1 < sim->places;
    double arrival = receives ? sim->place[k].arrival_s[action->forward][action->microbatch] : 0;
    if (receives && arrival < 0) return false;
    const double *buffer = send_buffer(sim, k, action->forward);
    if (buffer && *buffer > begin) begin = *buffer;
    if (arrival > begin) begin = arrival;
  }
  double end = begin + duration(&run->time[at], action->act);
  stage->free_s = end;
  stage->next++;
  if (sim->on_event) sim->on_event(sim->user, &(zp_event){s, *action, begin, end});
  if (action->act != ZP_ACT_BW) hand_over(sim, k, action, end);
  return true;
}

static double *no_arrivals(zp_arena *arena, int64_t n) {
  double *times = ZP_NEW_ARRAY(arena, double, n);
  for (int64_t i = 0; i < n; i++) times[i] = -1;
  return times;
}

static void make_places(zp_arena *arena, simulation *sim) {
  const zp_pipeline_run *run = sim->run;
  sim->places = run->stages * run->chunks;
  sim->place = ZP_NEW_ARRAY(arena, place_state, sim->places);
  sim->place_of = ZP_NEW_ARRAY(arena, int, sim->places);
  for (int k = 0; k < sim->places; k++) {
    int chunk;
    place_state *place = &sim->place[k];
    place->stage = zp_chunk_stage(run->choice, k, &chunk);
    sim->place_of[place->stage * run->chunks + chunk] = k;
    for (int way = 0; way < 2; way++) {
      place->arrival_s[way] = no_arrivals(arena, run->microbatches);
      place->free_s[way] = ZP_NEW_ARRAY(arena, double, run->buffers);
    }
  }
}

void zp_pipeline_simulate(zp_arena *arena, const zp_pipeline_run *run, zp_on_event *on_event, void *user) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  simulation sim = {.run = run, .on_event = on_event, .user = user};
  make_places(arena, &sim);
  sim.stages = ZP_NEW_ARRAY(arena, stage_state, run->stages);
  sim.work = ZP_NEW_ARRAY(arena, int, run->stages);
  sim.queued = ZP_NEW_ARRAY(arena, bool, run->stages);
  for (int s = 0; s < run->stages; s++) look_at(&sim, s);
  while (sim.n_work) {
    int s = sim.work[--sim.n_work];
    sim.queued[s] = false;
    while (run_next(&sim, s)) continue;
  }
  for (int s = 0; s < run->stages; s++) {
    assert(sim.stages[s].next == run->actions[s]); /* the order tables cannot deadlock */
    run->end_s[s] = sim.stages[s].free_s;
  }
  zp_arena_rewind(arena, mark);
}
