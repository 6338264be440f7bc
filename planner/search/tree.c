/* The first stages of a cut that are fixed: what they cost, and when they are done at the earliest, simulated with a
 * rest that answers as fast as any can. Exact for whole cuts but for ties in the middle; equal ranges
 * of a repeat are one and the same stage (stage_cost.c). */
#include <math.h>
#include "cost.h"
#include "schedule.h"
#include "tree.h"

/* What the stage runs; NULL when it does not fit. */
static const zp_variant *variant_of(const zp_tree *t, int stage, int64_t first, int64_t end) {
  return zp_stage_variant(t->s, t->point, stage, &(zp_units){first, end - first}, &t->limits);
}

void zp_tree_fix(zp_tree *t, int stage, int64_t end) {
  zp_units part = {t->choice.cut[stage], end - t->choice.cut[stage]};
  const zp_variant *own = variant_of(t, stage, part.first, end);
  zp_stage_cost cost = zp_stage_cost_of(t->costs, own->lowered, stage, part.first, end);
  t->choice.cut[stage + 1] = end;
  t->cost[stage] = cost;
  t->update_s[stage + 1] = fmax(t->update_s[stage], cost.update_s + cost.offload_s);
  t->time[stage] = cost.time;
  if (stage + 1 == t->choice.pipeline) return;
  if (!t->s->floor.messages) return; /* they stay 0 */
  double elements = (double)zp_cost_carry_elements(t->v->lowered, &t->choice, stage);
  t->messages_s[stage] = zp_cost_message(&t->link, elements * t->v->lowered->compute_bytes);
}

/* What the stages behind the fixed ones take at least to answer an activation with its gradient, and the message back.
 */
static void set_rest(zp_tree *t, int fixed) {
  const zp_stage_node *node = zp_stage_node_at(t->graph, fixed, t->choice.cut[fixed]);
  double message = t->messages_s[fixed - 1];
  t->run.rest_s = node->after_s + message;
  t->run.first_rest_s = node->answer_s[ZP_FIRST_TURN] + message;
  t->run.last_rest_s = node->answer_s[ZP_LAST_TURN] + message;
}

/* End of the last reduction among the fixed stages, at least; exact when all are fixed, but for ties in the middle. */
static double simulate_fixed(zp_tree *t, int fixed) {
  int stages = t->choice.pipeline;
  double end = 0;
  t->effort->work_left -= fixed * t->microbatches;
  t->run.known = fixed;
  if (fixed < stages) set_rest(t, fixed);
  zp_cost_microbatches(t->scratch, &t->run);
  for (int s = 0; s < fixed; s++)
    end = fmax(end, t->run.end_s[s] + t->cost[s].reduce_s + (s == 0 || s == stages - 1 ? t->ties_s : 0));
  return end;
}

bool zp_tree_misses(zp_tree *t, int fixed) {
  return simulate_fixed(t, fixed) * (1 - 1e-12) >= zp_tree_deadline(t, fixed);
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

zp_outcome zp_tree_visit_leaf(zp_tree *t, int known) {
  int stages = t->choice.pipeline;
  if (zp_tree_misses(t, stages)) {
    t->miss = zp_tree_first_miss(t, known, stages);
    return ZP_FOUND_NONE;
  }
  t->miss = stages; /* ties between other stages */
  return t->task->on_cut(t->task->user, t->choice.cut) < t->target_s ? ZP_FOUND : ZP_FOUND_NONE;
}

double zp_tree_time_of_cut(zp_tree *t) {
  int stages = t->choice.pipeline;
  for (int k = 0; k < stages; k++) {
    int64_t first = t->choice.cut[k], end = t->choice.cut[k + 1];
    if (end <= first || !variant_of(t, k, first, end)) return HUGE_VAL;
    zp_tree_fix(t, k, end);
  }
  return simulate_fixed(t, stages) + t->update_s[stages];
}

/* ---- planting ---- */

static double update_of(const zp_tree *t, int stage, int64_t first, int64_t end) {
  return zp_stage_cost_of(t->costs, t->v->lowered, stage, first, end).update_s;
}

static bool may_update_within(const zp_tree *t, int stage, int64_t first, int64_t end, double update_s) {
  return variant_of(t, stage, first, end) && update_of(t, stage, first, end) <= update_s;
}

/* Updates of a cut that was tried: the longest one that was taken, the least one that was not. */
typedef struct tried {
  double taken_s, refused_s;
} tried;

/* Where a stage ends at most; neighbours have about as many units: first the one before is asked. */
static int64_t furthest(const zp_tree *t, int stage, int64_t first, int64_t guess, double update_s, tried *updates) {
  int64_t low = first, most = t->units - (t->choice.pipeline - 1 - stage), high = most;
  for (int64_t end = first + guess; low < high; end = low + (high - low + 1) / 2) {
    if (end > low && end <= high && may_update_within(t, stage, first, end, update_s)) {
      low = end;
      if (low < high && !may_update_within(t, stage, first, low + 1, update_s)) high = low;
    } else if (end <= high) {
      high = end - 1;
    }
  }
  if (low > first) updates->taken_s = zp_later(updates->taken_s, update_of(t, stage, first, low));
  if (low < most && variant_of(t, stage, first, low + 1))
    updates->refused_s = zp_sooner(updates->refused_s, update_of(t, stage, first, low + 1));
  return low;
}

/* A cut whose longest update is at most this long, anyhow? Every stage goes as far as it can. */
static bool can_update_within(const zp_tree *t, double update_s, tried *updates) {
  int64_t at = 0, units = t->units / t->choice.pipeline;
  *updates = (tried){0, HUGE_VAL};
  for (int k = 0; k < t->choice.pipeline; k++) {
    int64_t end = furthest(t, k, at, units, update_s, updates);
    if (end == at) return false;
    units = end - at;
    at = end;
  }
  return at == t->units;
}

/* The shortest possible longest update, or a little less. Both a success and a failure jump to a value that occurs. */
static double least_update(const zp_tree *t) {
  double low = 0, high = update_of(t, 0, 0, t->units);
  for (bool middle = true; high - low > 1e-7 * high; middle = !middle) {
    tried updates;
    double limit = middle ? low + (high - low) / 2 : low * (1 + 1e-12);
    if (can_update_within(t, limit, &updates))
      high = zp_sooner(limit, updates.taken_s);
    else
      low = zp_later(limit, updates.refused_s);
  }
  return zp_sooner(low, high);
}

static void set_run(zp_tree *t) {
  zp_arena *a = t->scratch;
  int stages = t->choice.pipeline;
  t->time = ZP_NEW_ARRAY(a, zp_stage_time, stages);
  t->messages_s = ZP_NEW_ARRAY(a, double, stages);
  t->run = (zp_pipeline_run){.stages = stages,
                             .chunks = 1,
                             .choice = &t->choice,
                             .microbatches = t->microbatches,
                             .buffers = zp_message_buffers(&t->choice, t->microbatches),
                             .time = t->time,
                             .message_s = t->messages_s,
                             .end_s = ZP_NEW_ARRAY(a, double, stages)};
}

void zp_tree_plant(zp_tree *t, zp_searcher *s, const zp_point *point, const zp_branching *task) {
  zp_arena *a = t->scratch;
  const zp_choice *c = &point->choice;
  t->s = s;
  t->point = point;
  t->task = task;
  t->effort = &s->effort;
  t->choice = *c;
  t->v = zp_variant_of(s, point);
  t->units = zp_point_units(s, point);
  t->limits = zp_search_limits(s);
  t->costs = zp_stage_costs_new(a, s, point);
  t->link = zp_machine_pipeline_link(&s->machine, c->tensor, c->pipeline, c->data, c->order);
  t->ties_s = zp_least_ties(a, s, point);
  t->choice.cut = ZP_NEW_ARRAY(a, int64_t, c->pipeline + 1);
  t->reach = ZP_NEW_ARRAY(a, int64_t, c->pipeline + 1);
  t->update_s = ZP_NEW_ARRAY(a, double, c->pipeline + 1);
  t->cost = ZP_NEW_ARRAY(a, zp_stage_cost, c->pipeline);
  t->microbatches = zp_microbatches(s->spec, c);
  t->message_s = zp_least_message(s, point);
  set_run(t);
  t->update_s[0] = least_update(t);
}
