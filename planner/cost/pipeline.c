/* Event simulation of one step's micro-batches over the stages' order tables.
 *
 * Messages behave as the runtime's: a send returns at once and the transfer goes on beside whatever its sender does
 * next; the send buffer of a direction is free again when the message has arrived; a receive blocks. Every stage runs
 * its table in order; a stage is looked at again whenever a neighbour has sent it something, so the work is linear in
 * the number of actions. One representative rank stands for all tensor and data ranks of a stage. */
#include <assert.h>
#include "cost.h"

typedef struct stage_state {
  int64_t next;         /* index into the order table */
  double free_s;        /* end of the last action */
  double sent_s[2];     /* when the send buffer is free: [0] to the previous stage, [1] to the next */
  double *arrival_s[2]; /* [microbatch], < 0 while under way: [0] gradient from above, [1] input from below */
} stage_state;

typedef struct simulation {
  const zp_pipeline_run *run;
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

/* Sends the result of an action that ended at end_s, if there is a neighbour in its direction. */
static void send(simulation *sim, int from, zp_action action, double end_s) {
  const zp_pipeline_run *run = sim->run;
  int to = action.forward ? from + 1 : from - 1;
  if (to < 0 || to >= run->stages) return;
  double arrival = end_s + run->message_s[action.forward ? from : to];
  sim->stages[from].sent_s[action.forward] = arrival;
  sim->stages[to].arrival_s[action.forward][action.microbatch] = arrival;
  look_at(sim, to);
}

/* Runs the next action of a stage if its input is there (or on its way). */
static bool run_next(simulation *sim, int s) {
  const zp_pipeline_run *run = sim->run;
  stage_state *stage = &sim->stages[s];
  if (stage->next == 2 * run->microbatches) return false;
  zp_action action = run->order[s][stage->next];
  bool receives = action.forward ? s > 0 : s + 1 < run->stages;
  double arrival = receives ? stage->arrival_s[action.forward][action.microbatch] : 0;
  if (receives && arrival < 0) return false;
  double begin = stage->free_s > stage->sent_s[action.forward] ? stage->free_s : stage->sent_s[action.forward];
  if (arrival > begin) begin = arrival;
  double end = begin + (action.forward ? run->forward_s[s] : run->backward_s[s]);
  stage->free_s = end;
  stage->next++;
  if (sim->on_event) sim->on_event(sim->user, &(zp_event){s, action, begin, end});
  send(sim, s, action, end);
  return true;
}

static double *no_arrivals(zp_arena *arena, int64_t n) {
  double *times = ZP_NEW_ARRAY(arena, double, n);
  for (int64_t i = 0; i < n; i++) times[i] = -1;
  return times;
}

void zp_pipeline_simulate(zp_arena *arena, const zp_pipeline_run *run, zp_on_event *on_event, void *user) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  simulation sim = {.run = run, .on_event = on_event, .user = user};
  sim.stages = ZP_NEW_ARRAY(arena, stage_state, run->stages);
  sim.work = ZP_NEW_ARRAY(arena, int, run->stages);
  sim.queued = ZP_NEW_ARRAY(arena, bool, run->stages);
  for (int s = 0; s < run->stages; s++) {
    for (int way = 0; way < 2; way++) sim.stages[s].arrival_s[way] = no_arrivals(arena, run->microbatches);
    look_at(&sim, s);
  }
  while (sim.n_work) {
    int s = sim.work[--sim.n_work];
    sim.queued[s] = false;
    while (run_next(&sim, s)) continue;
  }
  for (int s = 0; s < run->stages; s++) {
    assert(sim.stages[s].next == 2 * run->microbatches); /* the order tables cannot deadlock */
    run->end_s[s] = sim.stages[s].free_s;
  }
  zp_arena_rewind(arena, mark);
}
