/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by chain_branch.c, chain_root.c and chain_cost.c: the state of one branch and bound by chains. */
#ifndef ZPLAN_CUT_CHAIN_TREE_H
#define ZPLAN_CUT_CHAIN_TREE_H

#include "cut_space.h"

/* A chain of the tree. */
typedef struct zp_held_chain {
  zp_chain chain;
  double *rest_s, *sum_s; /* [ends] after; [places + 1] of the places fixed so far */
} zp_held_chain;

typedef struct zp_chain_tree {
  const zp_cut_problem *problem;
  const zp_cut_task *task;
  zp_cut_effort *effort;
  zp_arena *arena, *scratch; /* of the tree; of a call */
  int64_t stop_at;           /* of effort->work_left */
  bool spent;
  double target_s; /* cuts that take as long or longer are not looked for */
  double low_s;    /* no cut is faster */
  int places, stages;
  zp_cut_space *space;
  double *done_s; /* [ends]: room */

  /* chain_cost.c: the current cut */
  int64_t *cut;
  zp_cut_cost *cost;   /* [place] */
  const int *stage_of; /* [place] */
  int *last_place;     /* [stage] */
  double update_s;     /* of several chunks a stage, at least: what the update_s of costs leave out */
  double *message_s;   /* [place]: of the cut that was simulated last */
  double *end_s;       /* [stage]: room */

  /* chain_root.c */
  zp_cut_cost all; /* of all units */
  zp_chain *rows;  /* chains */
  int n_rows, most_rows;
  int64_t *cuts[ZP_MOST_SEEN];
  int n_cuts;
  zp_matrix_game *game;       /* rows against cuts */
  zp_chain mean;              /* of rows */
  double *share, *best_share; /* of rows */
  double *value;              /* of a row or a column: room */
  double *rest_s;             /* [ends]: room */
  double scale_s, seen_s;     /* of values; of the last cut that was seen */

  /* chain_branch.c */
  zp_held_chain chains[ZP_MOST_CHAINS];
  int order[ZP_MOST_CHAINS]; /* in which they are asked: what pruned last comes first */
  int n_chains;
} zp_chain_tree;

static inline bool zp_chain_chunked(const zp_chain_tree *t) { return t->places > t->stages; }

/* work: estimated low, so it counts twice. */
static inline void zp_chain_spend(zp_chain_tree *t, int64_t work) {
  t->effort->work_left -= 2 * work;
  t->spent |= t->effort->work_left < t->stop_at || !t->problem->may_grow(t->problem->user, 0);
}

static inline double zp_chain_seconds(const zp_chain *chain, int place, const zp_cut_cost *cost) {
  return zp_chain_of_edge(&chain->at[place], chain->reduce[place], chain->update[place], cost);
}

/* ---- chain_cost.c: what the current cut costs, and what it waits for ---- */
/* Requires: stage_of. */
void zp_chain_start_costs(zp_chain_tree *t);
/* Least costs of a place of the cut. */
const zp_cut_cost *zp_chain_edge(const zp_chain_tree *t, int place);
/* t->cost of a place, with its stage where it is the last one of it, or of the whole cut. False: it does not fit; of a
 * whole cut t->cost are the least costs then. */
bool zp_chain_fix_place(zp_chain_tree *t, int place);
bool zp_chain_fix_cut(zp_chain_tree *t);
/* Seconds of the chain for t->cost. */
double zp_chain_of_fixed(const zp_chain_tree *t, const zp_chain *chain);
/* What follows a chain that ends with this stage's last action, when the update of stage `updated` counts. */
void zp_chain_end(const zp_chain_tree *t, zp_chain *chain, int stage, int updated);
/* Simulates t->cost; adds the chain of what the step waits for. */
void zp_chain_simulate(zp_chain_tree *t, zp_chain *chain);
/* The current cut is a new best plan when it is below the target; the target follows. */
void zp_chain_found(zp_chain_tree *t);

/* ---- chain_root.c ---- */
/* Least seconds of a chain after every end; drops what misses the target by it. False: everything does. */
bool zp_chain_ask(zp_chain_tree *t, const zp_chain *chain, double *rest_s);
/* The first rows and cuts. False: no cut is below the target. */
bool zp_chain_start_root(zp_chain_tree *t);
/* Bounds all cuts by means of rows, which become better while it searches. False: no cut is below the target. */
bool zp_chain_search_root(zp_chain_tree *t);

#endif
