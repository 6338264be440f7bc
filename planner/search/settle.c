/* Branch and bound over the cuts of points that are open below the best plan of all: the provers of planner/cuts. */
#include <assert.h>
#include <stdlib.h>
#include "budget.h"
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
  zp_limits limits = zp_search_limits(x->run->s);
  if (!zp_cut_variants(x->run->s, x->point, &limits, cut, x->own)) return HUGE_VAL;
  return zp_simulate_cut(x, cut);
}

/* Several chunks a stage that can be cut in many ways. */
static bool is_wide(const zp_search_cache *s, const zp_point *point) {
  return point->every_cut && !zp_few_chunk_cuts(s, point);
}

static void prove(zp_refiner *x, zp_cut_problem *problem, const zp_cut_prover *prover, zp_cut_depth turn) {
  const zp_cut_task task = {branch_limit, branch_cut, x};
  zp_effort *effort = &x->run->effort;
  int64_t all = effort->cuts.work_left, kept = is_wide(x->run->s, x->point) && all > effort->chunk_work_left
                                                   ? all - effort->chunk_work_left
                                                   : 0; /* for others */
  zp_limits limits = zp_search_limits(x->run->s);
  zp_remember_fits(x->run->s, x->point, &limits);
  effort->cuts.work_left -= kept;
  zp_cut_proof proof = prover->prove(problem, &task, &effort->cuts, turn);
  x->point->bound_s = problem->bound_s = proof.bound_s;
  x->run->s->short_of_memory |= proof.short_of_memory;
  effort->cuts.work_left += kept;
  if (is_wide(x->run->s, x->point)) effort->chunk_work_left -= all - effort->cuts.work_left;
}

/* First what takes little of every point, then what is left. Provers take equal ranges of a repeat for one stage, which
 * they are not on different node types: these points stay open down to their bounds. */
static void settle(zp_refiner *x, zp_cut_depth turn) {
  if (zp_has_types(x->run->s) || zp_only_stated_cuts(x) || is_settled(x)) return;
  zp_arena *arena = zp_arena_new_beside("cut_problem", x->run->s->arena);
  zp_cut_problem *problem = zp_cut_problem_of(arena, x->run->s, x->point);
  for (int i = 0; i < ZP_CUT_PROVERS && !is_settled(x); i++)
    if (zp_prover_applies(x->run->in, problem, i, turn)) prove(x, problem, &zp_cut_provers[i], turn);
  zp_arena_free(arena);
}

void zp_keep_open(zp_refiner *x, zp_open_points *open) {
  zp_search_run *run = x->run;
  if (x->ranking->len && is_settled(x))
    run->left_out_s = fmin(run->left_out_s, x->point->bound_s);
  else
    zp_push(run->s->arena, open, *x->point);
}

/* Those with many cuts of several chunks a stage last, and of these the ones with the best plans so far first. */
static int by_promise(const void *a, const void *b) {
  const zp_point *x = *(const zp_point *const *)a, *y = *(const zp_point *const *)b;
  if (x->seen_s != y->seen_s) return x->seen_s < y->seen_s ? -1 : 1;
  return x < y ? -1 : x > y;
}

static void settle_points(zp_refiner *x, const zp_open_points *points) {
  zp_point **order = ZP_NEW_ARRAY(x->run->s->arena, zp_point *, points->len + 1);
  int wide = 0;
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < points->len; i++)
      if (is_wide(x->run->s, &points->data[i]) == (turn == 1)) order[wide++] = &points->data[i];
  wide = 0;
  while (wide < points->len && !is_wide(x->run->s, order[wide])) wide++;
  if (points->len > wide) qsort(order + wide, (size_t)(points->len - wide), sizeof *order, by_promise);
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < points->len; i++) {
      x->point = order[i];
      zp_search_use(x->run->s, zp_choice_ranks(&order[i]->choice));
      zp_arena_mark mark = zp_arena_get_mark(x->scratch);
      settle(x, turn == 0 ? ZP_CUT_SHALLOW : ZP_CUT_DEEP);
      zp_arena_rewind(x->scratch, mark);
    }
}

double zp_settle(zp_refiner *x, const zp_open_points *open, double bound_s) {
  assert(x->ranking->len > 0);
  settle_points(x, open);
  for (int i = 0; i < open->len; i++) {
    double *least_s = is_wide(x->run->s, &open->data[i]) ? &x->run->unsearched_s : &bound_s;
    *least_s = fmin(*least_s, open->data[i].bound_s);
  }
  return bound_s;
}
