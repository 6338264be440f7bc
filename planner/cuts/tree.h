/* SPDX-License-Identifier: Apache-2.0 */
/* Inside this folder: a search over the cuts of a problem of 1F1B, and its fixed first stages. */
#ifndef ZPLAN_CUT_TREE_H
#define ZPLAN_CUT_TREE_H

#include "labels.h"

typedef struct zp_tree {
  const zp_cut_problem *problem;
  const zp_cut_task *task;
  zp_cut_effort *effort;
  int64_t stop_at;         /* of effort->work_left */
  bool short_of_memory;    /* it ended a round */
  int64_t *cut;            /* the stages fixed so far */
  zp_stage_graph *graph;   /* of the plans below the target */
  zp_stage_graph *all;     /* of those below the ceiling */
  zp_label_search *labels; /* over the graph */
  double **prefix;         /* [fixed]: label of the fixed stages */
  zp_arena *scratch;       /* of the tree */
  double target_s;         /* cuts that take as long or longer are not looked for */
  double near;             /* gaps below this share of the target are closed in one search */
  double *update_s;        /* [fixed]: longest update of the fixed stages, and at least that of any cut */
  zp_cut_cost *cost;       /* [stage], fixed ones */
  int miss;                /* how many first stages are to blame for what was not found: no cut that starts like them is
                              below the target */
  int64_t *reach;          /* ends of the stages of the current cut */
  int64_t *leaf, *climbed; /* the last plan that the tree found; the last cut that single units were moved from */
  zp_cut_first first;      /* the fixed stages; cost: the above */
  double *end_s;           /* [stage]: room */
} zp_tree;

typedef enum zp_outcome { ZP_FOUND_NONE, ZP_FOUND, ZP_SPENT } zp_outcome;

/* ---- tree.c ---- */
/* Requires: the problem, the effort, scratch. */
void zp_tree_plant(zp_tree *t);
/* When the last reduction has to be over. */
static inline double zp_tree_deadline(const zp_tree *t, int fixed) { return t->target_s - t->update_s[fixed]; }
/* Requires: the stage fits, and those before it are fixed. */
void zp_tree_fix(zp_tree *t, int stage, int64_t end);
/* Requires: the graph. Do the fixed stages alone miss the deadline? More stages only ever take longer. */
bool zp_tree_misses(zp_tree *t, int fixed);
/* The fewest of the first stages that miss the deadline already. Requires: all `fixed` stages together do, `known` of
 * them do not. */
int zp_tree_first_miss(zp_tree *t, int known, int fixed);
/* Step time of t->cut, ties in the middle left out; HUGE_VAL when a stage does not fit. */
double zp_tree_time_of_cut(zp_tree *t);
/* Cuts that are not faster are not looked for. */
static inline double zp_tree_highest_target(const zp_tree *t) {
  return t->task->limit_s(t->task->user) * (1 - ZP_BOUND_SLACK);
}
/* All stages are fixed, of which `known` do not miss the deadline: true, a plan below the target, or who is to
 * blame. */
bool zp_tree_visit_leaf(zp_tree *t, int known);

/* ---- climb.c ---- */
/* Makes t->cut faster by moving single units, in so much work at most, more or less. graph: of the stages that it may
 * have. Its seconds; HUGE_VAL: it does not fit. Requires: t->labels. */
double zp_tree_climb(zp_tree *t, const zp_stage_graph *graph, int64_t work);

#endif
