/* SPDX-License-Identifier: Apache-2.0 */
/* What one cut costs in branch and bound by chains: exactly what the simulation uses, but for ties in the middle, and
 * what the step waits for. One chunk a stage: the edges of the cut say it (cut_space.c). Several: what a stage runs,
 * its reduction and its update are known with its last chunk, until then its chunks have the least costs of all modes,
 * of which the stage has at least the sum. */
#include <math.h>
#include "chain_tree.h"

const zp_cut_cost *zp_chain_edge(const zp_chain_tree *t, int place) {
  return &t->space->edges[zp_cut_edge(t->space, place, t->cut[place], t->cut[place + 1])];
}

/* What a stage costs whose chunks are all known. False: it does not fit, or misses the target whatever the others
 * do. */
static bool settle_stage(zp_chain_tree *t, int stage) {
  const zp_cut_problem *p = t->problem;
  zp_cut_cost own[ZP_CUT_MOST_CHUNKS];
  int64_t work = 0;
  bool fits = p->stage(p->user, stage, t->cut, own, &work);
  zp_chain_spend(t, work);
  for (int k = 0; k < p->chunks && fits; k++) fits = zp_chain_meets(own[k].step_s, t->target_s);
  if (!fits) return false;
  for (int k = 0; k < t->places; k++) {
    if (t->stage_of[k] != stage) continue;
    t->cost[k] = own[p->chunk_of[k]];
    t->cost[k].message_s = zp_chain_edge(t, k)->message_s;
    t->cost[k].update_s = fmax(0, t->cost[k].update_s - t->update_s);
  }
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
  return !zp_chain_chunked(t) && (stage == 0 || stage == t->stages - 1) ? t->problem->ties_s : 0;
}

void zp_chain_end(const zp_chain_tree *t, zp_chain *chain, int stage, int updated) {
  for (int k = 0; k < t->places; k++)
    if (t->stage_of[k] == stage) chain->reduce[k] = 1;
  chain->update[t->last_place[updated]] = 1;
  chain->constant_s = t->update_s + ties_of(t, stage);
}

static double reduce_of(const zp_chain_tree *t, int stage) {
  double sum = 0;
  for (int k = 0; k < t->places; k++)
    if (t->stage_of[k] == stage) sum += t->cost[k].reduce_s;
  return sum;
}

void zp_chain_simulate(zp_chain_tree *t, zp_chain *chain) {
  int last = 0, longest = 0;
  double end = -1;
  for (int k = 0; k < t->places; k++) t->message_s[k] = t->cost[k].message_s;
  const zp_cut_problem *p = t->problem;
  p->run(p->user, t->cost, t->end_s);
  zp_chain_spend(t, p->microbatches * t->places);
  for (int s = 0; s < t->stages; s++) {
    double over = t->end_s[s] + reduce_of(t, s) + ties_of(t, s);
    if (over > end) end = over, last = s;
    if (t->cost[t->last_place[s]].update_s > t->cost[t->last_place[longest]].update_s) longest = s;
  }
  p->chain(p->user, last, chain->at);
  zp_chain_end(t, chain, last, longest);
}

void zp_chain_found(zp_chain_tree *t) {
  t->task->on_cut(t->task->user, t->cut);
  t->target_s = fmin(t->target_s, t->task->limit_s(t->task->user) * (1 - ZP_BOUND_SLACK));
}

void zp_chain_start_costs(zp_chain_tree *t) {
  zp_arena *a = t->arena;
  t->cost = ZP_NEW_ARRAY(a, zp_cut_cost, t->places);
  t->message_s = ZP_NEW_ARRAY(a, double, t->places);
  t->end_s = ZP_NEW_ARRAY(a, double, t->stages);
  t->last_place = ZP_NEW_ARRAY(a, int, t->stages);
  for (int k = 0; k < t->places; k++) t->last_place[t->stage_of[k]] = k;
  zp_chain_spend(t, 3 * t->problem->microbatches * t->places); /* the orders */
}
