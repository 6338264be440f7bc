/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B: the best cut by labels (label_search.c). The graph of the stages that a plan below the target may
 * have gets smaller from round to round; every round also offers a cut, which is simulated. What rounds leave is
 * searched, arc by arc, with the simulation of the fixed stages: that knows more than labels, so with few arcs it ends
 * long before labels are exact. Numbers of labels are counted as parts of simulated actions. */
#include <assert.h>
#include <math.h>
#include "provers.h"
#include "tree.h"

/* The graph of all plans below the target. False: there are none. */
static bool plant_graph(zp_tree *t, double target_s) {
  const zp_cut_problem *p = t->problem;
  int stages = p->stages;
  const zp_pipe pipe = {.stages = stages,
                        .units = p->units,
                        .microbatches = p->microbatches,
                        .message_s = p->message_s,
                        .ties_s = p->ties_s,
                        .update_s = t->update_s[0]};
  t->graph = zp_stage_graph_new(t->scratch, p, &pipe, target_s);
  t->prefix = ZP_NEW_ARRAY(t->scratch, double *, stages + 1);
  for (int k = 0; k <= stages; k++) t->prefix[k] = ZP_NEW_ARRAY(t->scratch, double, zp_prefix_length(k));
  bool any = zp_stage_graph_narrow(t->graph, target_s);
  t->effort->work_left -= t->graph->work;
  return any;
}

/* False: no cut is left. */
static bool narrow(zp_tree *t, double target_s) {
  int64_t before = t->graph->work;
  bool any = zp_stage_graph_narrow(t->graph, target_s);
  t->effort->work_left -= t->graph->work - before;
  return any;
}

static zp_label_pass look_at_labels(zp_tree *t, int width) {
  int64_t before = zp_label_search_work(t->labels);
  zp_label_pass round = zp_label_search_pass(t->labels, width, t->target_s, t->reach);
  t->effort->work_left -= (zp_label_search_work(t->labels) - before) / ZP_LABEL_NUMBERS;
  t->effort->nodes++;
  if (!round.open && !round.spent) t->effort->pruned[ZP_CUT_WINDOW]++;
  return round;
}

/* ---- what rounds leave ---- */

/* How far the fixed stages are simulated. Most that labels allow do not miss the deadline, so the simulation comes
 * after 1, 2, 4, ... stages more, and when it misses, the first ones that do are looked for. */
typedef struct checked {
  int known; /* stages that do not miss it */
  int step;  /* stages to the next simulation */
} checked;

static zp_outcome visit(zp_tree *t, int fixed, checked so_far);

/* With many micro-batches windows of stages say most of a step (labels.c). */
static bool labels_say_most(const zp_cut_problem *p) {
  return p->microbatches >= (int64_t)ZP_LABELS_SAY_MOST * p->stages;
}

/* From t->cut on to faster cuts, unless it was just done, or the work allows few of them. ZP_FOUND: one is below the
 * target. */
static zp_outcome climb(zp_tree *t, int64_t work) {
  size_t bytes = sizeof *t->cut * (size_t)(t->problem->stages + 1);
  if (work < ZP_CLIMB_CUTS * t->problem->stages * t->problem->microbatches) return ZP_FOUND_NONE;
  if (memcmp(t->climbed, t->cut, bytes) == 0) return ZP_FOUND_NONE;
  memcpy(t->climbed, t->cut, bytes);
  if (zp_tree_climb(t, t->all, work) >= zp_tree_highest_target(t)) return ZP_FOUND_NONE;
  return t->task->on_cut(t->task->user, t->cut) < t->target_s ? ZP_FOUND : ZP_FOUND_NONE;
}

/* A plan below the target lowers it: what was ruled out before stays so. Then its first stages miss the new one, and so
 * may any of those that did not miss the old one. */
static void visit_leaf(zp_tree *t, int known) {
  int stages = t->problem->stages;
  if (!zp_tree_visit_leaf(t, known)) return;
  memcpy(t->leaf, t->cut, sizeof *t->cut * (size_t)(stages + 1));
  climb(t, (t->effort->work_left - t->stop_at) / ZP_IMPROVE_PART);
  t->target_s = zp_tree_highest_target(t);
  memcpy(t->cut, t->leaf, sizeof *t->cut * (size_t)(stages + 1));
  zp_tree_time_of_cut(t); /* its stages are the fixed ones again */
  if (zp_tree_misses(t, stages)) t->miss = zp_tree_first_miss(t, 0, stages);
}

static zp_outcome visit_arcs(zp_tree *t, int fixed, checked so_far) {
  const zp_stage_node *node = zp_stage_node_at(t->graph, fixed, t->cut[fixed]);
  for (int i = node->n; i-- > 0;) {
    const zp_stage_arc *arc = &node->arcs[i];
    zp_prefix_extend(zp_label_search_labels(t->labels), t->prefix[fixed], fixed, &t->graph->cost.data[arc->cost],
                     t->prefix[fixed + 1]);
    if (!zp_label_search_may_follow(t->labels, t->prefix[fixed + 1], fixed + 1, arc->end)) {
      t->effort->pruned[ZP_CUT_WINDOW]++;
      continue;
    }
    zp_tree_fix(t, fixed, arc->end);
    zp_outcome found = visit(t, fixed + 1, so_far);
    if (found != ZP_FOUND_NONE || t->miss <= fixed) return found;
    so_far.step = 1; /* what follows a miss is likely to miss, too */
  }
  t->miss = fixed;
  return ZP_FOUND_NONE;
}

static zp_outcome visit(zp_tree *t, int fixed, checked so_far) {
  int stages = t->problem->stages;
  t->effort->nodes++;
  t->effort->work_left -= 2 * stages; /* what its label takes */
  if (t->effort->work_left < t->stop_at) return ZP_SPENT;
  if (fixed == stages) {
    visit_leaf(t, so_far.known);
    return ZP_FOUND_NONE;
  }
  if (fixed >= so_far.known + so_far.step) {
    if (zp_tree_misses(t, fixed)) {
      t->miss = zp_tree_first_miss(t, so_far.known, fixed);
      return ZP_FOUND_NONE;
    }
    so_far = (checked){fixed, 2 * so_far.step};
  }
  return visit_arcs(t, fixed, so_far);
}

/* ---- rounds ---- */

/* Simulates t->reach. */
static zp_outcome try_cut(zp_tree *t) {
  memcpy(t->cut, t->reach, sizeof *t->reach * (size_t)(t->problem->stages + 1));
  if (zp_tree_time_of_cut(t) >= t->target_s) return ZP_FOUND_NONE;
  return t->task->on_cut(t->task->user, t->cut) < t->target_s ? ZP_FOUND : ZP_FOUND_NONE;
}

static zp_outcome note_spent(zp_tree *t) {
  t->short_of_memory = true;
  return ZP_SPENT;
}

/* Searches what rounds left, in so much work at most, below the target, which plans that it finds lower. Needs no exact
 * labels: merged ones prune less. */
static zp_outcome visit_within(zp_tree *t, int64_t work) {
  int64_t stop_at = t->stop_at, left = t->effort->work_left;
  if (!narrow(t, t->target_s)) return ZP_FOUND_NONE;
  zp_prefix_start(zp_label_search_labels(t->labels), t->prefix[0]);
  if (left - work > stop_at) t->stop_at = left - work;
  zp_outcome found = visit(t, 0, (checked){0, 1});
  t->stop_at = stop_at;
  return found;
}

/* Is the bound of a wide round that far below the target? */
static bool is_far(const zp_tree *t, int width, double low) {
  return width >= ZP_WIDER && t->target_s - low > t->near * t->target_s;
}

/* Rounds take stages away until none are left or a plan is found. When a round takes few, what is left is searched in
 * the work that a wider round would take; whatever the work once labels did not merge. *far: neither said anything, and
 * the bound is far below the target. Where labels say most, a lower target takes more away for less than that. */
static zp_outcome rounds_below(zp_tree *t, double *low, bool *far) {
  int64_t work = 0; /* of the next round, about */
  for (int width = 1; t->effort->work_left - work > t->stop_at && t->problem->may_grow(t->problem->user, 0);) {
    int64_t arcs = zp_stage_graph_arcs(t->graph), before = t->effort->work_left;
    zp_label_pass round = look_at_labels(t, width);
    work = before - t->effort->work_left;
    if (round.spent) return note_spent(t);
    if (!round.open) return ZP_FOUND_NONE;
    *low = fmax(*low, round.bound_s);
    if (try_cut(t) == ZP_FOUND) return ZP_FOUND;
    if (!round.exact && 4 * zp_stage_graph_arcs(t->graph) <= 3 * arcs) continue;
    work *= ZP_WIDER;
    *far = !round.exact && labels_say_most(t->problem) && is_far(t, width, *low);
    if (*far) return ZP_FOUND_NONE;
    if (round.exact || width >= ZP_WIDER) {
      memcpy(t->cut, t->reach, sizeof *t->reach * (size_t)(t->problem->stages + 1));
      if (climb(t, work) == ZP_FOUND) return ZP_FOUND;
      zp_outcome found = visit_within(t, round.exact ? t->effort->work_left : work);
      if (round.exact || found != ZP_SPENT) return found;
    }
    *far = is_far(t, width, *low);
    if (*far) return ZP_FOUND_NONE;
    width *= ZP_WIDER;
  }
  return ZP_SPENT;
}

/* One suffix a node. */
static bool has_many_labels(const zp_stage_graph *graph) {
  int64_t numbers = 0;
  for (int k = 0; k < graph->pipe.stages; k++)
    numbers += zp_stage_graph_width(graph, k) * zp_suffix_length(graph->pipe.stages - k);
  return numbers > ZP_MOST_LABELS;
}

static zp_outcome labels_below(zp_tree *t, double target_s, double *low, bool *far) {
  t->target_s = target_s;
  *far = false;
  if (!narrow(t, target_s)) return ZP_FOUND_NONE;
  if (has_many_labels(t->graph)) return ZP_SPENT;
  t->labels = zp_label_search_new(t->scratch, t->graph);
  t->effort->work_left -= (int64_t)t->problem->stages * t->problem->stages; /* windows of stages are numbered */
  zp_outcome found = rounds_below(t, low, far);
  zp_label_search_free(t->labels);
  return found;
}

/* The next target's share of the way from the bound to the ceiling: all of it, once that is little. */
static double next_share(const zp_tree *t, double low, double ceiling, double share) {
  return ceiling - low < t->near * ceiling ? 1 : share;
}

/* Targets between the bound and the ceiling, below which all plans are in the graph: far below the best plan little is
 * left of it, and either outcome brings the two closer. A plan that is found lowers the ceiling, so the graph stays as
 * it is; where there is none, it is as it was before. Wide rounds are for targets near the bound: a target that would
 * need them is the next ceiling, and when nothing is below that, the graph is made anew. Where labels are weak that
 * ceiling is as near to the bound as wide rounds may be, so these reach further every time. */
static double search(zp_tree *t, double bound_s) {
  double low = bound_s, ceiling = 0, share = ZP_FIRST_TARGET;
  t->near = labels_say_most(t->problem) ? ZP_VERY_NEAR : ZP_NEAR; /* and wider every time that it was reached */
  while (low < zp_tree_highest_target(t) && t->effort->work_left > t->stop_at) {
    if (low >= ceiling) {
      if (t->all) t->near *= ZP_WIDER;
      ceiling = zp_tree_highest_target(t);
      if (!plant_graph(t, ceiling)) return ceiling;
      t->all = zp_stage_graph_copy(t->scratch, t->graph, NULL);
    }
    double target = low + share * (ceiling - low);
    int64_t nodes = t->effort->nodes;
    bool far;
    zp_outcome found = labels_below(t, target, &low, &far);
    if (found == ZP_SPENT) break;
    bool none = found == ZP_FOUND_NONE && !far, easy = none && t->effort->nodes <= nodes + 1; /* one round */
    if (none) low = t->target_s;
    if (none)
      zp_stage_graph_copy(t->scratch, t->all, t->graph);
    else
      zp_stage_graph_copy(t->scratch, t->graph, t->all);
    if (far) ceiling = t->target_s;
    ceiling = fmin(ceiling, zp_tree_highest_target(t));
    share = next_share(t, low, ceiling,
                       easy                ? fmin(2 * share, 1)
                       : found == ZP_FOUND ? ZP_FOUND_TARGET
                                           : ZP_FIRST_TARGET);
  }
  return low;
}

zp_cut_proof zp_prove_by_labels(const zp_cut_problem *problem, const zp_cut_task *task, zp_cut_effort *effort,
                                zp_cut_depth turn) {
  assert(problem->run_first && zp_cut_problem_is_sound(problem));
  assert(task && effort);
  /* With few micro-batches windows of stages say little (labels.c): there labels get a small share at first. */
  bool deep = turn >= ZP_CUT_DEEP || problem->microbatches > 2 * problem->stages;
  zp_tree t = {.problem = problem, .task = task, .effort = effort};
  t.stop_at = effort->work_left -
              effort->work_left / (deep ? ZP_LABELS_DEEP_PART : ZP_LABELS_PART); /* others want their share */
  if (effort->work_left <= t.stop_at) return (zp_cut_proof){.bound_s = problem->bound_s};
  t.scratch = zp_arena_new_alongside("branch", problem->alongside);
  zp_tree_plant(&t);
  double low = search(&t, problem->bound_s);
  zp_arena_free(t.scratch);
  return (zp_cut_proof){low, t.short_of_memory};
}

/* ---- one cut ---- */

/* May the next stage end there, after a round that merges? */
static bool may_end(zp_tree *t, int stage, int64_t first, int64_t end) {
  const zp_stage_arc *arc = zp_stage_graph_find(t->graph, stage, first, end);
  if (!arc) return false;
  zp_prefix_extend(zp_label_search_labels(t->labels), t->prefix[stage], stage, &t->graph->cost.data[arc->cost],
                   t->prefix[stage + 1]);
  if (!zp_label_search_may_follow(t->labels, t->prefix[stage + 1], stage + 1, end)) return false;
  zp_tree_fix(t, stage, end);
  return !zp_tree_misses(t, stage + 1);
}

static int refusal(zp_tree *t, const int64_t *cut) {
  int stages = t->problem->stages, refused = -1;
  if (!plant_graph(t, t->target_s)) return 0;
  t->labels = zp_label_search_new(t->scratch, t->graph);
  zp_prefix_start(zp_label_search_labels(t->labels), t->prefix[0]);
  if (!look_at_labels(t, 2).open) refused = 0;
  for (int k = 0; k < stages && refused < 0; k++)
    if (!may_end(t, k, cut[k], cut[k + 1])) refused = k + 1;
  zp_label_search_free(t->labels);
  return refused;
}

static bool is_cut(const zp_cut_problem *p, const int64_t *cut) {
  if (cut[0] != 0 || cut[zp_cut_places(p)] != p->units) return false;
  for (int k = 0; k < zp_cut_places(p); k++)
    if (cut[k] >= cut[k + 1]) return false;
  return true;
}

int zp_cut_refusal(const zp_cut_problem *problem, const int64_t *cut, double target_s) {
  assert(problem->run_first && zp_cut_problem_is_sound(problem) && is_cut(problem, cut));
  zp_cut_effort effort = {0};
  zp_tree t = {.problem = problem, .effort = &effort, .target_s = target_s};
  t.scratch = zp_arena_new_alongside("branch", problem->alongside);
  zp_tree_plant(&t);
  int refused = refusal(&t, cut);
  zp_arena_free(t.scratch);
  return refused;
}
