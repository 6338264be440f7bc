/* SPDX-License-Identifier: Apache-2.0 */
/* Refining what is decided so far, until plans are left of it: the search itself (refine.c), and what its rows ask. */
#ifndef ZPLAN_SEARCH_REFINE_H
#define ZPLAN_SEARCH_REFINE_H

#include <math.h>
#include "frontier.h"
#include "ranking.h"

/* What a refinement returns. */
typedef enum zp_outcome {
  ZP_BETTER_BOUND, /* the node waits again, with a bound that is not lower */
  ZP_CHILDREN,     /* others wait in its place; those that do not were counted where they were refused */
  ZP_PLANS,        /* its plans are in the ranking; what is left of it is open down to its bound */
  ZP_REFUSED       /* none of its plans can be had, or can win: x->why */
} zp_outcome;

typedef struct zp_refiner {
  zp_search_progress *progress;
  zp_ranking *ranking;
  zp_frontier *frontier;
  zp_arena *scratch;      /* of one turn */
  zp_degrees *degrees;    /* the current node is one of these two, the other one is NULL */
  zp_point *point;        /* a point, or a family of points */
  zp_rejection why;       /* of ZP_REFUSED */
  const zp_variant **own; /* [most stages]: what the stages of the current cut run */
  double least_s;         /* of all cuts of the point: simulated, or bounded where that sufficed */
  int simulated;          /* cuts of the point */
} zp_refiner;

/* Plans of the point that are slower cannot enter the ranking. */
static inline double zp_point_cutoff(const zp_refiner *x) { return zp_cutoff(x->ranking, &x->point->choice); }
static inline void zp_raise_bound(const zp_refiner *x, double bound_s) {
  x->point->bound_s = fmax(x->point->bound_s, bound_s);
}
static inline zp_outcome zp_refuse(zp_refiner *x, zp_rejection why) {
  x->why = why;
  return ZP_REFUSED;
}
/* Are the stated cuts considered, and no others? */
static inline bool zp_only_stated_cuts(const zp_refiner *x) {
  return x->progress->in->pinned_cut || (zp_chunks(&x->point->choice) > 1 && !x->point->every_cut);
}
/* Are stated cuts bounded before memory is checked? With one chunk a stage other bounds know as much. */
static inline bool zp_bounds_stated_cuts(const zp_refiner *x) {
  return zp_chunks(&x->point->choice) > 1 && zp_only_stated_cuts(x);
}

/* ---- refine.c ---- */
/* The best plans of the space, and in the certificate what is proven of all others. */
void zp_refine_all(zp_search_progress *progress, zp_ranking *r);

/* ---- price.c: the rows of a point; x->own has room for its stages ---- */
/* What memory forces on its stages, and the stated cuts whatever their memory. */
zp_outcome zp_price_work(zp_refiner *x);
/* Some cut fits, and then the stated cuts in the modes that fit; with every cut a bound by chains. */
zp_outcome zp_price_memory(zp_refiner *x);
/* Simulates its cuts: all of them, stated ones, or those that bounds name. */
zp_outcome zp_price_cuts(zp_refiner *x);
/* The least bound of the stated cuts, whatever their memory and homes. Points that differ in these ask for the same. */
double zp_bound_stated_cuts(const zp_refiner *x);
/* Seconds of the step; the plan may enter the ranking. Requires: x->own is what the stages of this cut run. */
double zp_simulate_cut(zp_refiner *x, int64_t *cut);
/* All that its price needs; without order tables where that takes none. */
const zp_program *zp_search_program(zp_arena *arena, zp_search_cache *s, const zp_choice *choice);

/* ---- settle.c: what is left open below the best plan ---- */
typedef ZP_VEC(zp_point) zp_open_points;
/* The current point waits in `open` for the provers, if it may still have a plan that is faster than the best one. */
void zp_keep_open(zp_refiner *x, zp_open_points *open);
/* The provers of planner/cuts, as far as the work goes. The least bound of what is open then, up to bound_s; points
 * with many cuts of several chunks count in progress->unsearched_s. Requires: a plan is known. */
double zp_settle(zp_refiner *x, const zp_open_points *open, double bound_s);

#endif
