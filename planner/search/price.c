/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a point: looks at it that take ever longer. What memory forces on it, its homes, its cuts simulated.
 * Where the ways to cut are few, all of them are considered and the point is settled. Where they are many, the cut with
 * the least bound and the two extreme ones with the shortest longest stage are simulated, and the point stays open down
 * to its bound over all cuts (settle.c). Stated cuts of several chunks a stage are few (chunk_cut.c): settled. */
#include <math.h>
#include <zplan/cost.h>
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "budget.h"
#include "cut.h"
#include "cut_problem.h"
#include "fit.h"
#include "procedures.h"
#include "refine.h"

const zp_program *zp_search_program(zp_arena *arena, zp_search_cache *s, const zp_choice *choice) {
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  const zp_program *program = zp_program_make_priced(arena, zp_search_stages(s, choice), choice);
  if (arena != s->arena) zp_arena_rewind(s->arena, mark);
  return program;
}

/* Order tables and what runs them, at most; 1F1B needs none. */
enum { BYTES_AN_ACTION = 40 };

static size_t simulation_bytes(const zp_refiner *x) {
  const zp_choice *c = &x->point->choice;
  size_t actions = (zp_schedule_splits(c->schedule) ? 3 : 2) * (size_t)zp_model_chunks(c);
  return c->schedule == ZP_SCHEDULE_1F1B
             ? 0
             : actions * (size_t)zp_microbatches(x->progress->in->spec, c) * BYTES_AN_ACTION;
}

/* Seconds of the step; the plan may enter the ranking. */
static double simulate_program(zp_refiner *x, zp_candidate *candidate, const zp_program *program) {
  candidate->estimate.step_s = zp_cost_step(x->scratch, program, &x->progress->s->machine);
  zp_rank(x->progress->s, x->ranking, candidate);
  x->simulated++;
  x->progress->certificate.simulated++;
  return candidate->estimate.step_s;
}

/* The program of a cut, for its price alone: order tables are those of the memo, until others take their place. */
static const zp_program *priced_program(zp_refiner *x, const zp_choice *choice) {
  zp_search_cache *s = x->progress->s;
  zp_order_memo *memo = &s->memo.orders;
  if (choice->own_order) return zp_search_program(x->scratch, s, choice);
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  zp_program *program = zp_program_make_stages(x->scratch, zp_search_stages(s, choice), choice);
  zp_arena_rewind(s->arena, mark);
  if (choice->schedule == ZP_SCHEDULE_1F1B) return program;
  const int64_t key[] = {(int64_t)choice->schedule, choice->pipeline, zp_chunks(choice), program->microbatches};
  if (memcmp(memo->key, key, sizeof key) != 0) {
    zp_arena_rewind(memo->arena, memo->none);
    memcpy(memo->key, key, sizeof key);
    memo->actions = ZP_NEW_ARRAY(memo->arena, int64_t, choice->pipeline);
    memo->order = zp_orders(memo->arena, choice, program->microbatches, memo->actions);
  }
  program->order = memo->order;
  program->actions = memo->actions;
  return program;
}

/* Requires: x->own is what the stages of this cut run. */
double zp_simulate_cut(zp_refiner *x, int64_t *cut) {
  zp_arena_mark mark = zp_arena_get_mark(x->scratch);
  zp_candidate candidate = {.choice = zp_choice_of_cut(x->progress->s, x->point, cut, x->own)};
  double seconds = simulate_program(x, &candidate, priced_program(x, &candidate.choice));
  zp_arena_rewind(x->scratch, mark);
  return seconds;
}

/* One cut is enough for points that can only become alternatives, when these need not be exact. Further cuts of a point
 * that are as close to a plan as can be told are no better. */
static bool is_worth_it(const zp_refiner *x, double bound_s) {
  const zp_ranking *r = x->ranking;
  if (bound_s >= zp_point_cutoff(x) * (x->simulated ? 1 - ZP_GAP_TOLERANCE : 1)) return false;
  return r->exact || x->simulated == 0 || r->len == 0 || bound_s < r->best[0].estimate.step_s;
}

static void bound_cut(void *user, int64_t *cut) {
  zp_refiner *x = user;
  zp_limits limits = zp_search_limits(x->progress->s);
  if (!zp_cut_variants(x->progress->s, x->point, &limits, cut, x->own)) return;
  x->least_s = fmin(x->least_s, zp_bound_of_cut(x->progress->s, x->point, cut, x->own, HUGE_VAL));
}

/* A bound that knows transfers and messages of this cut, unlike zp_bound_of_cut, says whether it is simulated. Order
 * tables are made only then. */
static double price_program(zp_refiner *x, int64_t *cut, double bound_s) {
  zp_search_cache *s = x->progress->s;
  zp_arena_mark mark = zp_arena_get_mark(x->scratch), own = zp_arena_get_mark(s->arena);
  zp_candidate candidate = {.choice = zp_choice_of_cut(s, x->point, cut, x->own)};
  zp_arena_mark stages = zp_arena_get_mark(s->arena);
  bool has_tables = candidate.choice.schedule != ZP_SCHEDULE_1F1B;
  const zp_program *program =
      zp_program_make_stages(x->scratch, zp_search_stages(s, &candidate.choice), &candidate.choice);
  zp_arena_rewind(s->arena, stages);
  double seconds = fmax(bound_s, zp_cost_step_least(x->scratch, program, &s->machine));
  bool worth_it = is_worth_it(x, seconds), may = worth_it && zp_may_grow(s, ZP_GROW_CUTS, simulation_bytes(x));
  if (may && !has_tables)
    seconds = simulate_program(x, &candidate, program);
  else
    zp_arena_rewind(s->arena, own);
  zp_arena_rewind(x->scratch, mark);
  if (may && has_tables) return zp_simulate_cut(x, cut);
  if (worth_it && !may) zp_leave_out(x->progress, seconds);
  return seconds;
}

static void price_cut(void *user, int64_t *cut) {
  zp_refiner *x = user;
  zp_limits limits = zp_search_limits(x->progress->s);
  if (!zp_cut_variants(x->progress->s, x->point, &limits, cut, x->own)) return;
  double seconds = zp_bound_of_cut(x->progress->s, x->point, cut, x->own, zp_point_cutoff(x));
  if (is_worth_it(x, seconds)) seconds = price_program(x, cut, seconds);
  x->least_s = fmin(x->least_s, seconds);
}

/* The least bound of the stated cuts, whatever their memory and homes. Points that differ in these ask for the same. */
double zp_bound_stated_cuts(const zp_refiner *x) {
  zp_search_progress *progress = x->progress;
  const zp_choice *c = &x->point->choice;
  const int64_t key[] = {x->point->variant, (int64_t)c->schedule, zp_chunks(c), c->pipeline, c->data};
  zp_stated_bound_memo *memo = &progress->s->memo.stated_bound[zp_hash_numbers(key, 5) % ZP_STATED_BOUND_SLOTS];
  if (memo->known && memcmp(memo->key, key, sizeof key) == 0) return memo->seconds;
  zp_arena_mark mark = zp_arena_get_mark(progress->s->arena);
  zp_stated_cuts stated = zp_state_cuts(progress->s->arena, progress->s, x->point);
  for (int k = 0; k < c->pipeline; k++) x->own[k] = zp_variant_of(progress->s, x->point);
  double least = HUGE_VAL;
  for (int i = 0; i < stated.n; i++)
    least = fmin(least, zp_bound_of_chunks(progress->s, x->point, stated.cut[i], x->own, least));
  zp_arena_rewind(progress->s->arena, mark);
  memo->known = true;
  memcpy(memo->key, key, sizeof key);
  memo->seconds = least;
  return least;
}

/* Calls on_cut for the stated cuts that fit into memory; of one chunk a stage modes that fit are found with the cut. */
static void each_stated_cut(zp_refiner *x, zp_on_cut *on_cut) {
  zp_limits limits = zp_search_limits(x->progress->s);
  zp_stated_cuts stated = zp_state_cuts(x->scratch, x->progress->s, x->point);
  for (int i = 0; i < stated.n; i++)
    if (zp_chunks(&x->point->choice) == 1 || zp_chunks_fit(x->progress->s, x->point, &limits, stated.cut[i]))
      on_cut(x, stated.cut[i]);
}

/* A point with every cut: no plan is known yet when no stated cut fits. False: no cut fits. */
static bool price_any_chunks(zp_refiner *x) {
  int64_t *cut = ZP_NEW_ARRAY(x->scratch, int64_t, zp_model_chunks(&x->point->choice) + 1);
  each_stated_cut(x, price_cut);
  if (zp_point_units(x->progress->s, x->point) == zp_model_chunks(&x->point->choice))
    x->point->bound_s = x->least_s; /* one way */
  if (isfinite(x->least_s)) return true;
  zp_any_cut found = zp_find_chunk_cut(x->progress->s, x->point, cut);
  if (found == ZP_ANY_CUT) price_cut(x, cut);
  return found != ZP_NO_CUT;
}

/* The bound over all cuts, and a cut that comes close to it: simulated. False when no cut can enter the ranking. */
static bool price_least_bound(zp_refiner *x) {
  zp_search_cache *s = x->progress->s;
  int64_t *cut = ZP_NEW_ARRAY(x->scratch, int64_t, x->point->choice.pipeline + 1);
  double end = zp_bound_step_end(s, x->point), limit = zp_point_cutoff(x);
  double least = zp_cut_least_bound(s, x->point, x->point->bound_s - end, limit - end, cut);
  if (!isfinite(least)) {
    zp_raise_bound(x, limit);
    return false;
  }
  zp_raise_bound(x, (least + end) * (1 - ZP_BOUND_SLACK));
  price_cut(x, cut);
  return x->point->bound_s < zp_point_cutoff(x);
}

static void price_extremes(zp_refiner *x) {
  zp_search_cache *s = x->progress->s;
  int stages = x->point->choice.pipeline;
  int64_t *front = ZP_NEW_ARRAY(x->scratch, int64_t, stages + 1), *back = ZP_NEW_ARRAY(x->scratch, int64_t, stages + 1);
  double longest = zp_cut_bottleneck(s, x->point, front) * (1 + ZP_FILL_SLACK);
  bool first = zp_cut_balanced_within(s, x->point, longest, ZP_FILL_FRONT, front);
  if (first) price_cut(x, front);
  if (zp_cut_balanced_within(s, x->point, longest, ZP_FILL_BACK, back) &&
      !(first && memcmp(front, back, sizeof *front * (size_t)(stages + 1)) == 0))
    price_cut(x, back);
}

/* ---- a point is considered in steps, each when its bound is the least one ---- */

/* What memory forces on its stages, and the stated cuts whatever their memory. */
zp_outcome zp_price_work(zp_refiner *x) {
  if (!x->point->choice.fine) { /* else space.c knew all of it */
    zp_find_least_work(x->progress->s, x->point, ZP_ASK_ALL);
    zp_raise_bound(x, zp_bound(x->progress->s, x->point));
  }
  if (x->point->every_cut) {
    double end = zp_bound_step_end(x->progress->s, x->point);
    zp_raise_bound(x, zp_bound_any_chunks(x->progress->s, x->point, true, zp_point_cutoff(x) - end) + end);
  }
  if (zp_bounds_stated_cuts(x) && x->point->cut_s == 0) {
    x->point->cut_s = zp_bound_stated_cuts(x);
    zp_raise_bound(x, zp_bound(x->progress->s, x->point));
  }
  return ZP_BETTER_BOUND;
}

/* Some cut fits, and then the stated cuts in the modes that fit. With every cut, chains before any memory is asked. */
zp_outcome zp_price_memory(zp_refiner *x) {
  zp_rejection why;
  if (x->point->every_cut) {
    double end = zp_bound_step_end(x->progress->s, x->point);
    zp_raise_bound(x, zp_bound_before_cuts(x->scratch, x->progress->s, x->point, end, zp_point_cutoff(x)));
    return ZP_BETTER_BOUND;
  }
  if (!zp_point_fits(x->progress->s, x->point, &why)) return zp_refuse(x, why);
  if (!zp_only_stated_cuts(x)) return ZP_BETTER_BOUND;
  x->least_s = HUGE_VAL;
  each_stated_cut(x, bound_cut);
  if (x->progress->in->pinned_cut && !isfinite(x->least_s)) return zp_refuse(x, ZP_REJECT_MEMORY);
  zp_raise_bound(x, x->least_s);
  return ZP_BETTER_BOUND;
}

zp_outcome zp_price_cuts(zp_refiner *x) {
  x->least_s = HUGE_VAL;
  x->simulated = 0;
  if (x->point->every_cut) {
    if (!price_any_chunks(x)) return zp_refuse(x, ZP_REJECT_MEMORY);
    x->point->seen_s = x->least_s;
  } else if (zp_only_stated_cuts(x)) {
    each_stated_cut(x, price_cut);
    x->point->bound_s = x->least_s;
  } else if (zp_cut_all(x->progress->s, x->point, price_cut, x)) {
    x->point->bound_s = x->least_s;
  } else {
    if (!price_least_bound(x)) return zp_refuse(x, ZP_REJECT_BOUND);
    price_extremes(x);
  }
  return ZP_PLANS;
}
