/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B: from a cut to faster ones, a unit at a time, until no unit that goes from one stage to another makes the step
 * faster. Where labels are far from the best plan, branch and bound spends most of its work below targets that no plan
 * meets, because it knows no plan that is as good as the best one; this finds one for the work of a round. It proves
 * nothing: cuts that it does not see are left to the provers, and those that it finds are simulated like all others.
 *
 * Moves that labels rule out are not simulated: of the stages between the two that change the label is made anew, and
 * held against the one of the stages after them. Stages that no plan below the ceiling has are not in the graph. */
#include <assert.h>
#include <math.h>
#include "tree.h"

typedef struct climber {
  zp_tree *t;
  const zp_stage_graph *graph; /* of the plans below the ceiling */
  zp_labels *labels;
  double **prefix, **suffix; /* [stages + 1]: labels of the stages before it, of those from it on */
  double *longer[2];         /* labels on the way through the stages that a move changes */
  zp_cut_cost *cost;         /* [stages]: of t->cost, before the move */
  double seconds;            /* of t->cut */
} climber;

static zp_range_cost range_of(const zp_cut_cost *cost) {
  return (zp_range_cost){cost->forward_s, cost->backward_s, cost->reduce_s, cost->update_s, cost->step_s};
}

static void find_labels(climber *c) {
  int stages = c->t->problem->stages;
  zp_prefix_start(c->labels, c->prefix[0]);
  for (int k = 0; k < stages; k++) {
    zp_range_cost own = range_of(&c->t->cost[k]);
    zp_prefix_extend(c->labels, c->prefix[k], k, &own, c->prefix[k + 1]);
  }
  for (int k = stages - 1; k >= 0; k--) {
    zp_range_cost own = range_of(&c->t->cost[k]);
    zp_suffix_extend(c->labels, c->suffix[k + 1], k, &own, c->suffix[k]);
  }
}

static climber start(zp_tree *t, const zp_stage_graph *graph) {
  int stages = t->problem->stages;
  climber c = {.t = t,
               .graph = graph,
               .labels = zp_label_search_labels(t->labels),
               .prefix = ZP_NEW_ARRAY(t->scratch, double *, stages + 1),
               .suffix = ZP_NEW_ARRAY(t->scratch, double *, stages + 1),
               .cost = ZP_NEW_ARRAY(t->scratch, zp_cut_cost, stages)};
  for (int k = 0; k <= stages; k++) {
    c.prefix[k] = ZP_NEW_ARRAY(t->scratch, double, zp_prefix_length(k));
    c.suffix[k] = ZP_NEW_ARRAY(t->scratch, double, zp_suffix_length(stages - k));
  }
  for (int i = 0; i < 2; i++) c.longer[i] = ZP_NEW_ARRAY(t->scratch, double, zp_prefix_length(stages));
  return c;
}

/* May the cut be faster than the one before the move, which changed stages low .. high? */
static bool labels_allow(climber *c, int low, int high) {
  int stages = c->t->problem->stages;
  const int64_t *cut = c->t->cut;
  const double *label = c->prefix[low];
  double target_s = c->seconds * (1 - ZP_BOUND_SLACK);
  for (int k = low; k <= high; k++) {
    const zp_stage_arc *arc = zp_stage_graph_find(c->graph, k, cut[k], cut[k + 1]);
    if (!arc) return false;
    zp_prefix_extend(c->labels, label, k, &c->graph->cost.data[arc->cost], c->longer[k % 2]);
    label = c->longer[k % 2];
    if (zp_prefix_bound(label) >= target_s) return false;
  }
  zp_prefix_view view = zp_prefix_view_of(c->labels, label, high + 1);
  return zp_labels_join(c->labels, &view, high + 1 < stages ? c->suffix[high + 1] : NULL, high + 1, target_s);
}

/* Moves the ends between two stages by one unit. */
static void move_unit(const zp_tree *t, int from, int to) {
  for (int k = from + 1; k <= to; k++) t->cut[k]--;
  for (int k = to + 1; k <= from; k++) t->cut[k]++;
}

/* Is the cut faster by that? Else it is as it was. */
static bool try_move(climber *c, int from, int to) {
  zp_tree *t = c->t;
  int low = from < to ? from : to, high = from < to ? to : from, n = high - low + 1;
  int64_t before = zp_labels_work(c->labels);
  move_unit(t, from, to);
  bool allowed = labels_allow(c, low, high);
  t->effort->work_left -= 1 + (zp_labels_work(c->labels) - before) / ZP_LABEL_NUMBERS;
  if (allowed) {
    memcpy(c->cost, t->cost + low, sizeof *c->cost * (size_t)n);
    double seconds = zp_tree_time_of_cut(t);
    if (seconds < c->seconds * (1 - ZP_BOUND_SLACK)) {
      c->seconds = seconds;
      find_labels(c);
      return true;
    }
    memcpy(t->cost + low, c->cost, sizeof *c->cost * (size_t)n);
  }
  move_unit(t, to, from);
  return false;
}

double zp_tree_climb(zp_tree *t, const zp_stage_graph *graph, int64_t work) {
  assert(work >= 0);
  int stages = t->problem->stages, moves = 2 * stages * (stages - 1), since = 0;
  int64_t stop_at = t->effort->work_left - work;
  zp_arena_mark mark = zp_arena_get_mark(t->scratch);
  climber c = start(t, graph);
  c.seconds = zp_tree_time_of_cut(t);
  if (isfinite(c.seconds)) find_labels(&c);
  /* Neighbours first: their labels take least. */
  for (int i = 0; since < moves && isfinite(c.seconds) && t->effort->work_left > stop_at;
       i = (i + 1) % moves, since++) {
    int distance = 1 + i / (2 * stages), from = i / 2 % stages, to = i % 2 ? from + distance : from - distance;
    if (to >= 0 && to < stages && try_move(&c, from, to)) since = 0;
  }
  zp_arena_rewind(t->scratch, mark);
  return c.seconds;
}
