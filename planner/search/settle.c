/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound over the cuts of points that are open below the best plan of all: the provers of planner/cuts. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include "cut.h"
#include "cut_problem.h"
#include "fit.h"
#include "procedures.h"
#include "refine.h"

/* Plans that are not faster need not be found: they would be no better alternatives, or nobody asked for the best. */
static double branch_limit(void *user) {
  const zp_refiner *x = user;
  const zp_ranking *r = x->ranking;
  return fmin(zp_point_cutoff(x), r->best[0].estimate.step_s / r->closer);
}

/* Faster plans of the point are not looked for, or cannot be. */
static bool is_settled(zp_refiner *x) { return x->point->bound_s >= branch_limit(x) * (1 - ZP_GAP_TOLERANCE); }

static double branch_cut(void *user, int64_t *cut) {
  zp_refiner *x = user;
  zp_limits limits = zp_search_limits(x->progress->s);
  if (!zp_cut_variants(x->progress->s, x->point, &limits, cut, x->own)) return HUGE_VAL;
  return zp_simulate_cut(x, cut);
}

/* Several chunks a stage that can be cut in many ways. */
static bool is_wide(const zp_search_cache *s, const zp_point *point) {
  return point->every_cut && !zp_few_chunk_cuts(s, point);
}

/* own_work: takes the work from there; NULL: from what all points share. */
static void prove(zp_refiner *x, zp_cut_problem *problem, const zp_cut_prover *prover, zp_cut_depth turn,
                  int64_t *own_work) {
  const zp_cut_task task = {branch_limit, branch_cut, x};
  zp_effort *effort = &x->progress->effort;
  int64_t others = effort->cuts.work_left;
  zp_limits limits = zp_search_limits(x->progress->s);
  zp_remember_fits(x->progress->s, x->point, &limits);
  if (own_work) effort->cuts.work_left = *own_work;
  zp_cut_proof proof = prover->prove(problem, &task, &effort->cuts, turn);
  x->point->bound_s = problem->bound_s = proof.bound_s;
  x->progress->s->short_of_memory |= proof.short_of_memory;
  if (!own_work) return;
  *own_work = effort->cuts.work_left;
  effort->cuts.work_left = others;
}

/* First what takes little of every point, then what is left. Provers take equal ranges of a repeat for one stage, which
 * they are not on different node types: these points stay open down to their bounds. */
static void settle(zp_refiner *x, zp_cut_depth turn, int64_t *own_work) {
  if (zp_has_types(x->progress->s) || zp_only_stated_cuts(x) || is_settled(x)) return;
  zp_arena *arena = zp_arena_new_alongside("cut_problem", x->progress->s->arena);
  zp_cut_problem *problem = zp_cut_problem_of(arena, x->progress->s, x->point);
  for (int i = 0; i < ZP_CUT_PROVERS && !is_settled(x); i++)
    if (zp_prover_applies(x->progress->in, problem, i, turn)) prove(x, problem, &zp_cut_provers[i], turn, own_work);
  zp_arena_free(arena);
}

void zp_keep_open(zp_refiner *x, zp_open_points *open) {
  zp_search_progress *progress = x->progress;
  if (x->ranking->len && is_settled(x))
    progress->left_out_s = fmin(progress->left_out_s, x->point->bound_s);
  else
    zp_push(progress->s->arena, open, *x->point);
}

/* Those with many cuts of several chunks a stage last, and of these the ones with the best plans so far first. */
static int by_promise(const void *a, const void *b) {
  const zp_point *x = *(const zp_point *const *)a, *y = *(const zp_point *const *)b;
  if (x->seen_s != y->seen_s) return x->seen_s < y->seen_s ? -1 : 1;
  return x < y ? -1 : x > y;
}

/* Those that keep the certificate's bound lowest first: the work may not reach the others. */
static int by_bound(const void *a, const void *b) {
  const zp_point *x = *(const zp_point *const *)a, *y = *(const zp_point *const *)b;
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s ? -1 : 1;
  return x < y ? -1 : x > y;
}

static void settle_point(zp_refiner *x, zp_point *point, zp_cut_depth turn, int64_t *own_work) {
  x->point = point;
  zp_search_use(x->progress->s, zp_choice_ranks(&point->choice));
  zp_arena_mark mark = zp_arena_get_mark(x->scratch);
  settle(x, turn, own_work);
  zp_arena_rewind(x->scratch, mark);
}

static void settle_points(zp_refiner *x, const zp_open_points *points) {
  zp_point **order = ZP_NEW_ARRAY(x->progress->s->arena, zp_point *, points->len + 1);
  int wide = 0;
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < points->len; i++)
      if (is_wide(x->progress->s, &points->data[i]) == (turn == 1)) order[wide++] = &points->data[i];
  wide = 0;
  while (wide < points->len && !is_wide(x->progress->s, order[wide])) wide++;
  if (points->len > wide) qsort(order + wide, (size_t)(points->len - wide), sizeof *order, by_promise);
  for (int turn = 0; turn < 2; turn++) {
    if (turn == 1) qsort(order, (size_t)wide, sizeof *order, by_bound);
    for (int i = 0; i < points->len; i++) {
      int64_t *own_work = is_wide(x->progress->s, order[i]) ? &x->progress->effort.chunk_work_left : NULL;
      settle_point(x, order[i], turn == 0 ? ZP_CUT_SHALLOW : ZP_CUT_DEEP, own_work);
    }
  }
}

/* The point with the least bound, and whether it is the only one that is not settled; NULL: all are. */
static zp_point *least_open(zp_refiner *x, const zp_open_points *points, bool *alone) {
  zp_point *least = NULL;
  int open = 0;
  for (int i = 0; i < points->len; i++) {
    x->point = &points->data[i];
    if (is_settled(x)) continue;
    open++;
    if (!least || x->point->bound_s < least->bound_s) least = x->point;
  }
  *alone = open == 1;
  return least;
}

/* Cuts that nobody looks at keep their part of the gap: is more of it the point's? */
static bool is_worth_raising(const zp_refiner *x, const zp_point *least) {
  double best_s = x->ranking->best[0].estimate.step_s, most_s = fmin(x->progress->unsearched_s, best_s);
  return most_s - least->bound_s > best_s - most_s;
}

/* 1F1B had labels from what all points share, and more of the same seldom says much more. */
static int64_t *work_to_raise(zp_effort *effort, const zp_point *point) {
  return point->choice.schedule == ZP_SCHEDULE_1F1B ? &effort->label_work_left : &effort->least_work_left;
}

/* More work for the point that the certificate's bound hangs on, as long as that raises it, and as long as there are
 * others first a share of what there is: the bound may hang on them next. */
static void raise_least(zp_refiner *x, const zp_open_points *points) {
  bool alone;
  for (zp_point *least; (least = least_open(x, points, &alone)) && is_worth_raising(x, least);) {
    double before_s = least->bound_s;
    int64_t *work = work_to_raise(&x->progress->effort, least);
    if (!alone) settle_point(x, least, ZP_CUT_DEEP, work);
    if (least->bound_s <= before_s) settle_point(x, least, ZP_CUT_WHOLE, work);
    x->progress->proven.any = alone;
    zp_decisions_of(&least->choice, x->progress->proven.decisions);
    if (least->bound_s <= before_s) return;
  }
}

double zp_settle(zp_refiner *x, const zp_open_points *open, double bound_s) {
  assert(x->ranking->len > 0);
  settle_points(x, open);
  raise_least(x, open);
  for (int i = 0; i < open->len; i++) {
    double *least_s = is_wide(x->progress->s, &open->data[i]) ? &x->progress->unsearched_s : &bound_s;
    *least_s = fmin(*least_s, open->data[i].bound_s);
  }
  return bound_s;
}
