/* What one cut costs in branch and bound by chains: exactly what the simulation uses, but for ties in the middle, and
 * what the step waits for. One chunk a stage: the edges of the cut say it (cut_space.c). Several: what a stage runs,
 * its reduction and its update are known with its last chunk, until then its chunks have the least costs of all modes.
 */
#include <math.h>
#include "chain_tree.h"
#include "schedule.h"

/* Laying out and pricing a stage takes as long as so many simulated actions. */
enum { STAGE_WORK = 512 };

const zp_edge_cost *zp_chain_edge(const zp_chain_tree *t, int place) {
  return &t->space->edges[zp_cut_edge(t->space, place, t->choice.cut[place], t->choice.cut[place + 1])];
}

/* What a stage costs whose chunks are all known. False: it does not fit. */
static bool settle_stage(zp_chain_tree *t, int stage) {
  zp_units part[ZP_MOST_CHUNKS];
  zp_parts_of_stage(&t->choice, stage, t->choice.cut, part);
  const zp_variant *own = zp_stage_variant(t->s, t->point, stage, part, &t->limits);
  if (!own) return false;
  zp_stage_time time[ZP_MOST_CHUNKS];
  zp_chain_spend(t, STAGE_WORK);
  zp_step_end end = zp_chunks_cost(t->scratch, t->s, &t->choice, own->lowered, stage, time);
  for (int k = 0; k < t->places; k++) {
    if (t->stage_of[k] != stage) continue;
    zp_edge_cost cost =
        zp_edge_cost_of_time(&time[t->at[k] - stage * t->run.chunks], zp_schedule_splits(t->choice.schedule));
    cost.message_s = zp_chain_edge(t, k)->message_s;
    t->cost[k] = cost;
  }
  zp_edge_cost *last = &t->cost[t->last_place[stage]];
  last->reduce_s = end.reduce_s;
  last->update_s = fmax(0, end.optimizer_s + end.offload_s + end.gather_s - t->update_s);
  return true;
}

bool zp_chain_fix_place(zp_chain_tree *t, int place) {
  int stage = t->stage_of[place];
  t->cost[place] = *zp_chain_edge(t, place);
  return !zp_chain_chunked(t) || t->last_place[stage] != place || settle_stage(t, stage);
}

bool zp_chain_fix_cut(zp_chain_tree *t) {
  bool fits = true;
  for (int k = 0; k < t->places; k++) t->cost[k] = *zp_chain_edge(t, k);
  for (int s = 0; s < t->stages && zp_chain_chunked(t) && fits; s++) fits = settle_stage(t, s);
  for (int k = 0; k < t->places && !fits; k++) t->cost[k] = *zp_chain_edge(t, k);
  return fits;
}

double zp_chain_of_fixed(const zp_chain_tree *t, const zp_chain *chain) {
  double seconds = chain->constant_s;
  for (int k = 0; k < t->places; k++) seconds += zp_chain_seconds(chain, k, &t->cost[k]);
  return seconds;
}

static double ties_of(const zp_chain_tree *t, int stage) {
  return !zp_chain_chunked(t) && (stage == 0 || stage == t->stages - 1) ? t->ties_s : 0;
}

void zp_chain_end(const zp_chain_tree *t, zp_chain *chain, int stage, int updated) {
  chain->reduce[t->last_place[stage]] = chain->update[updated] = 1;
  chain->constant_s = t->update_s + ties_of(t, stage);
}

void zp_chain_simulate(zp_chain_tree *t, zp_chain *chain) {
  int last = 0, longest = 0;
  double end = -1;
  for (int k = 0; k < t->places; k++) {
    const zp_edge_cost *cost = &t->cost[k];
    t->time[t->at[k]] = (zp_stage_time){
        .forward_s = cost->forward_s, .backward_s = cost->backward_s + cost->weights_s, .weights_s = cost->weights_s};
    t->message_s[k] = cost->message_s;
    if (cost->update_s > t->cost[longest].update_s) longest = k;
  }
  zp_order_graph_run(t->graph);
  zp_chain_spend(t, t->run.microbatches * t->places);
  for (int s = 0; s < t->stages; s++) {
    double over = t->run.end_s[s] + t->cost[t->last_place[s]].reduce_s + ties_of(t, s);
    if (over > end) end = over, last = s;
  }
  zp_order_graph_chain(t->graph, last, chain->at);
  zp_chain_end(t, chain, last, longest);
}

void zp_chain_found(zp_chain_tree *t) {
  t->task->on_cut(t->task->user, t->choice.cut);
  t->target_s = fmin(t->target_s, t->task->limit_s(t->task->user) * (1 - ZP_CHAIN_CLOSED));
}

static void make_graph(zp_chain_tree *t) {
  zp_arena *a = t->arena;
  const zp_choice *c = &t->choice;
  int64_t m = zp_microbatches(t->s->spec, c), *actions = ZP_NEW_ARRAY(a, int64_t, t->stages);
  t->time = ZP_NEW_ARRAY(a, zp_stage_time, t->places);
  t->message_s = ZP_NEW_ARRAY(a, double, t->places);
  zp_arena *tables = zp_arena_new_beside("orders", t->arena);
  zp_action **order = zp_orders(tables, c, m, actions);
  t->run = (zp_pipeline_run){.stages = t->stages,
                             .chunks = zp_chunks(c),
                             .choice = c,
                             .microbatches = m,
                             .buffers = zp_message_buffers(c, m),
                             .order = order,
                             .actions = actions,
                             .time = t->time,
                             .message_s = t->message_s,
                             .end_s = ZP_NEW_ARRAY(a, double, t->stages)};
  t->graph = zp_order_graph_new(a, &t->run);
  zp_chain_spend(t, 3 * m * t->places);
  t->run.order = NULL;
  zp_arena_free(tables);
}

static void find_places(zp_chain_tree *t) {
  t->stage_of = ZP_NEW_ARRAY(t->arena, int, t->places);
  t->at = ZP_NEW_ARRAY(t->arena, int, t->places);
  t->last_place = ZP_NEW_ARRAY(t->arena, int, t->stages);
  for (int k = 0; k < t->places; k++) {
    int chunk;
    t->stage_of[k] = zp_chunk_stage(&t->choice, k, &chunk);
    t->at[k] = t->stage_of[k] * zp_chunks(&t->choice) + chunk;
    t->last_place[t->stage_of[k]] = k;
  }
}

void zp_chain_start_costs(zp_chain_tree *t) {
  t->cost = ZP_NEW_ARRAY(t->arena, zp_edge_cost, t->places);
  find_places(t);
  make_graph(t);
}
