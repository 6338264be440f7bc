/* SPDX-License-Identifier: Apache-2.0 */
/* The first stages of a cut that are fixed: what they cost, and when they are done at the earliest, simulated with a
 * rest that answers as fast as any can. Exact for whole cuts but for ties in the middle; equal ranges
 * of units that are alike are one and the same stage. */
#include <math.h>
#include "tree.h"

static bool fits(const zp_tree *t, int stage, int64_t first, int64_t end) {
  double work_s;
  return t->problem->fits(t->problem->user, stage, first, end, &work_s);
}

void zp_tree_fix(zp_tree *t, int stage, int64_t end) {
  t->cost[stage] = t->problem->cost(t->problem->user, stage, t->cut[stage], end);
  t->cut[stage + 1] = end;
  t->update_s[stage + 1] = fmax(t->update_s[stage], t->cost[stage].update_s);
}

/* What the stages after the fixed ones take at least to answer an activation with its gradient, and the message
 * back. */
static void set_rest(zp_tree *t, int fixed) {
  const zp_stage_node *node = zp_stage_node_at(t->graph, fixed, t->cut[fixed]);
  double message = t->cost[fixed - 1].message_s;
  t->first.rest_s = node->after_s + message;
  t->first.first_rest_s = node->answer_s[ZP_FIRST_TURN] + message;
  t->first.last_rest_s = node->answer_s[ZP_LAST_TURN] + message;
}

/* End of the last reduction among the fixed stages, at least; exact when all are fixed, but for ties in the middle. */
static double simulate_fixed(zp_tree *t, int fixed) {
  const zp_cut_problem *p = t->problem;
  int stages = p->stages;
  double end = 0;
  t->effort->work_left -= fixed * p->microbatches;
  t->first.known = fixed;
  if (fixed < stages) set_rest(t, fixed);
  p->run_first(p->user, &t->first, t->end_s);
  for (int s = 0; s < fixed; s++)
    end = fmax(end, t->end_s[s] + t->cost[s].reduce_s + (s == 0 || s == stages - 1 ? p->ties_s : 0));
  return end;
}

bool zp_tree_misses(zp_tree *t, int fixed) {
  return simulate_fixed(t, fixed) * (1 - ZP_ROUNDING) >= zp_tree_deadline(t, fixed);
}

int zp_tree_first_miss(zp_tree *t, int known, int fixed) {
  int low = known, high = fixed; /* invariant: high stages miss, low do not */
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (zp_tree_misses(t, middle))
      high = middle;
    else
      low = middle;
  }
  t->effort->pruned[ZP_CUT_PREFIX]++;
  return high;
}

bool zp_tree_visit_leaf(zp_tree *t, int known) {
  int stages = t->problem->stages;
  if (zp_tree_misses(t, stages)) {
    t->miss = zp_tree_first_miss(t, known, stages);
    return false;
  }
  t->miss = stages; /* ties between other stages */
  return t->task->on_cut(t->task->user, t->cut) < t->target_s;
}

double zp_tree_time_of_cut(zp_tree *t) {
  int stages = t->problem->stages;
  for (int k = 0; k < stages; k++) {
    int64_t first = t->cut[k], end = t->cut[k + 1];
    if (end <= first || !fits(t, k, first, end)) return HUGE_VAL;
    zp_tree_fix(t, k, end);
  }
  double step = simulate_fixed(t, stages) + t->update_s[stages];
  for (int k = 0; k < stages; k++) step = fmax(step, t->cost[k].step_s);
  return step;
}

/* ---- planting ---- */

static double update_of(const zp_tree *t, int stage, int64_t first, int64_t end) {
  return t->problem->growing_update_s(t->problem->user, stage, first, end);
}

static bool may_update_within(const zp_tree *t, int stage, int64_t first, int64_t end, double update_s) {
  return fits(t, stage, first, end) && update_of(t, stage, first, end) <= update_s;
}

/* Updates of a cut that was tried: the longest one that was taken, the least one that was not. */
typedef struct tried {
  double taken_s, refused_s;
} tried;

/* Where a stage ends at most; neighbours have about as many units: first the one before is asked. */
static int64_t furthest(const zp_tree *t, int stage, int64_t first, int64_t guess, double update_s, tried *updates) {
  int64_t low = first, most = t->problem->units - (t->problem->stages - 1 - stage), high = most;
  for (int64_t end = first + guess; low < high; end = low + (high - low + 1) / 2) {
    if (end > low && end <= high && may_update_within(t, stage, first, end, update_s)) {
      low = end;
      if (low < high && !may_update_within(t, stage, first, low + 1, update_s)) high = low;
    } else if (end <= high) {
      high = end - 1;
    }
  }
  if (low > first) updates->taken_s = zp_later(updates->taken_s, update_of(t, stage, first, low));
  if (low < most && fits(t, stage, first, low + 1))
    updates->refused_s = zp_sooner(updates->refused_s, update_of(t, stage, first, low + 1));
  return low;
}

/* A cut whose longest update is at most this long, anyhow? Every stage goes as far as it can. */
static bool can_update_within(const zp_tree *t, double update_s, tried *updates) {
  int stages = t->problem->stages;
  int64_t at = 0, units = t->problem->units / stages;
  *updates = (tried){0, HUGE_VAL};
  for (int k = 0; k < stages; k++) {
    int64_t end = furthest(t, k, at, units, update_s, updates);
    while (end == at && at > k)
      at--, end = furthest(t, k, at, units, update_s, updates); /* room for it is further on */
    if (end == at) return false;
    units = end - at;
    at = end;
  }
  return at == t->problem->units;
}

/* The shortest possible longest update, or a little less. Both a success and a failure jump to a value that occurs. */
static double least_update(const zp_tree *t) {
  double low = 0, high = update_of(t, 0, 0, t->problem->units);
  for (bool middle = true; high - low > ZP_UPDATE_STEP * high; middle = !middle) {
    tried updates;
    double limit = middle ? low + (high - low) / 2 : low * (1 + ZP_ROUNDING);
    if (can_update_within(t, limit, &updates))
      high = zp_sooner(limit, updates.taken_s);
    else
      low = zp_later(limit, updates.refused_s);
  }
  return zp_sooner(low, high);
}

void zp_tree_plant(zp_tree *t) {
  zp_arena *a = t->scratch;
  int stages = t->problem->stages;
  t->cut = ZP_NEW_ARRAY(a, int64_t, stages + 1);
  t->leaf = ZP_NEW_ARRAY(a, int64_t, stages + 1);
  t->climbed = ZP_NEW_ARRAY(a, int64_t, stages + 1);
  t->reach = ZP_NEW_ARRAY(a, int64_t, stages + 1);
  t->update_s = ZP_NEW_ARRAY(a, double, stages + 1);
  t->cost = ZP_NEW_ARRAY(a, zp_cut_cost, stages);
  t->end_s = ZP_NEW_ARRAY(a, double, stages);
  t->first.cost = t->cost;
  t->update_s[0] = least_update(t);
}
