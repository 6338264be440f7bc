/* Pricing: points in the order of their bounds (frontier.c); a point that can still enter the ranking is looked at in
 * steps that take ever longer: what memory forces on it, its homes, its cuts simulated. After every step it waits until
 * its bound, raised by then, is the least one again. Where the ways to cut are few, all of them are looked at and the
 * point is settled. Where they are many, the cut with the least bound and the two extreme ones with the shortest
 * longest stage are simulated, and the point stays open down to its bound over all cuts. Points that are open below the
 * best plan of all go to the provers of planner/cuts. Stated cuts of several chunks a stage are few
 * (chunk_cut.c): settled. */
#include <math.h>
#include <stdlib.h>
#include <zplan/cost.h>
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "budget.h"
#include "cut.h"
#include "cut_problem.h"
#include "fit.h"
#include "frontier.h"
#include "procedures.h"
#include "space.h"

typedef struct pricing {
  zp_search_run *run;
  zp_arena *scratch;
  zp_point *point;
  zp_ranking *ranking;
  const zp_variant **own; /* [pipeline]: what the stages of the cut at hand run */
  double least_s;         /* of all cuts of the point: simulated, or bounded where that sufficed */
  int simulated;          /* cuts of the point */
} pricing;

static double cutoff(const pricing *p) { return zp_cutoff(p->ranking, &p->point->choice); }

const zp_program *zp_search_program(zp_arena *arena, zp_search_cache *s, const zp_choice *choice) {
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  const zp_program *program = zp_program_make_priced(arena, zp_search_stages(s, choice), choice);
  if (arena != s->arena) zp_arena_rewind(s->arena, mark);
  return program;
}

/* Order tables and what runs them, at most; 1F1B needs none. */
enum { BYTES_AN_ACTION = 40 };

static size_t simulation_bytes(const pricing *p) {
  const zp_choice *c = &p->point->choice;
  size_t actions = (zp_schedule_splits(c->schedule) ? 3 : 2) * (size_t)zp_model_chunks(c);
  return c->schedule == ZP_SCHEDULE_1F1B ? 0 : actions * (size_t)zp_microbatches(p->run->in->spec, c) * BYTES_AN_ACTION;
}

/* Requires: p->own is what the stages of this cut run. */
static double simulate_cut(pricing *p, int64_t *cut) {
  zp_arena_mark mark = zp_arena_get_mark(p->scratch);
  zp_candidate candidate = {.choice = zp_choice_of_cut(p->run->s, p->point, cut, p->own)};
  const zp_program *program = zp_search_program(p->scratch, p->run->s, &candidate.choice);
  candidate.estimate.step_s = zp_cost_step(p->scratch, program, &p->run->s->machine);
  zp_rank(p->run->s, p->ranking, &candidate);
  zp_arena_rewind(p->scratch, mark);
  p->simulated++;
  p->run->certificate.simulated++;
  return candidate.estimate.step_s;
}

/* Seconds of a step from below, without order tables. Beside zp_bound_of_cut it knows transfers and messages. */
static double bound_program(const pricing *p, int64_t *cut) {
  zp_arena_mark mark = zp_arena_get_mark(p->scratch), own = zp_arena_get_mark(p->run->s->arena);
  zp_choice choice = zp_choice_of_cut(p->run->s, p->point, cut, p->own);
  const zp_program *program = zp_program_make_stages(p->scratch, zp_search_stages(p->run->s, &choice), &choice);
  double seconds = zp_cost_step_least(p->scratch, program, &p->run->s->machine);
  zp_arena_rewind(p->run->s->arena, own);
  zp_arena_rewind(p->scratch, mark);
  return seconds;
}

/* One cut is enough for points that can only become alternatives, when these need not be exact. */
static bool is_worth_it(const pricing *p, double bound_s) {
  const zp_ranking *r = p->ranking;
  if (bound_s >= cutoff(p)) return false;
  return r->exact || p->simulated == 0 || r->len == 0 || bound_s < r->best[0].estimate.step_s;
}

static void bound_cut(void *user, int64_t *cut) {
  pricing *p = user;
  zp_limits limits = zp_search_limits(p->run->s);
  if (!zp_cut_variants(p->run->s, p->point, &limits, cut, p->own)) return;
  p->least_s = fmin(p->least_s, zp_bound_of_cut(p->run->s, p->point, cut, p->own));
}

static void price_cut(void *user, int64_t *cut) {
  pricing *p = user;
  zp_limits limits = zp_search_limits(p->run->s);
  if (!zp_cut_variants(p->run->s, p->point, &limits, cut, p->own)) return;
  double seconds = zp_bound_of_cut(p->run->s, p->point, cut, p->own);
  bool long_tables = zp_chunks(&p->point->choice) > 1;
  if (long_tables && is_worth_it(p, seconds)) seconds = fmax(seconds, bound_program(p, cut));
  if (is_worth_it(p, seconds) && zp_may_grow(p->run->s, ZP_GROW_CUTS, simulation_bytes(p)))
    seconds = simulate_cut(p, cut);
  else if (is_worth_it(p, seconds))
    zp_leave_out(p->run, seconds);
  p->least_s = fmin(p->least_s, seconds);
}

/* The least bound of the stated cuts, whatever their memory and homes. Points that differ in these ask for the same. */
static double bound_stated_cuts(const pricing *p) {
  zp_search_run *run = p->run;
  const zp_choice *c = &p->point->choice;
  const int64_t key[] = {p->point->variant, (int64_t)c->schedule, zp_chunks(c), c->pipeline, c->data};
  zp_stated_bound_memo *memo =
      &run->s->memo.stated_bound[zp_hash(ZP_HASH_START, key, sizeof key) % ZP_STATED_BOUND_SLOTS];
  if (memo->known && memcmp(memo->key, key, sizeof key) == 0) return memo->seconds;
  zp_arena_mark mark = zp_arena_get_mark(run->s->arena);
  zp_stated_cuts stated = zp_state_cuts(run->s->arena, run->s, p->point);
  for (int k = 0; k < c->pipeline; k++) p->own[k] = zp_variant_of(run->s, p->point);
  double least = HUGE_VAL;
  for (int i = 0; i < stated.n; i++) least = fmin(least, zp_bound_of_chunks(run->s, p->point, stated.cut[i], p->own));
  zp_arena_rewind(run->s->arena, mark);
  memo->known = true;
  memcpy(memo->key, key, sizeof key);
  memo->seconds = least;
  return least;
}

/* Calls on_cut for the stated cuts that fit into memory. */
static void each_stated_cut(pricing *p, zp_on_cut *on_cut) {
  zp_limits limits = zp_search_limits(p->run->s);
  zp_stated_cuts stated = zp_state_cuts(p->scratch, p->run->s, p->point);
  for (int i = 0; i < stated.n; i++)
    if (zp_chunks_fit(p->run->s, p->point, &limits, stated.cut[i])) on_cut(p, stated.cut[i]);
}

/* A point with every cut: no plan is known yet when no stated cut fits. False: no cut fits. */
static bool price_any_chunks(pricing *p) {
  int64_t *cut = ZP_NEW_ARRAY(p->scratch, int64_t, zp_model_chunks(&p->point->choice) + 1);
  each_stated_cut(p, price_cut);
  if (zp_point_units(p->run->s, p->point) == zp_model_chunks(&p->point->choice))
    p->point->bound_s = p->least_s; /* one way */
  if (isfinite(p->least_s)) return true;
  zp_any_cut found = zp_find_chunk_cut(p->run->s, p->point, cut);
  if (found == ZP_ANY_CUT) price_cut(p, cut);
  return found != ZP_NO_CUT;
}

/* The bound over all cuts, and a cut that comes close to it: simulated. False when no cut can enter the ranking. */
static bool price_least_bound(pricing *p) {
  zp_search_run *run = p->run;
  int64_t *cut = ZP_NEW_ARRAY(p->scratch, int64_t, p->point->choice.pipeline + 1);
  double end = zp_bound_step_end(run->s, p->point), limit = cutoff(p);
  zp_cut_rule rule = {.stage_s = HUGE_VAL, .total_s = limit - end, .limits = zp_search_limits(run->s)};
  if (!zp_cut_within(run->s, p->point, &rule, cut)) {
    p->point->bound_s = fmax(p->point->bound_s, limit);
    return false;
  }
  zp_cut_variants(run->s, p->point, &rule.limits, cut, p->own);
  double high = zp_bound_of_cut(run->s, p->point, cut, p->own) - end, low = fmin(p->point->bound_s - end, high);
  double least = zp_cut_least_bound(run->s, p->point, low, high, cut);
  p->point->bound_s = fmax(p->point->bound_s, (least + end) * (1 - ZP_BOUND_SLACK));
  price_cut(p, cut);
  return p->point->bound_s < cutoff(p);
}

static void price_extremes(pricing *p) {
  zp_search_run *run = p->run;
  int stages = p->point->choice.pipeline;
  zp_cut_rule rule = {.total_s = HUGE_VAL, .limits = zp_search_limits(run->s)};
  rule.stage_s = zp_cut_bottleneck(run->s, p->point) * (1 + ZP_FILL_SLACK);
  int64_t *front = ZP_NEW_ARRAY(p->scratch, int64_t, stages + 1), *back = ZP_NEW_ARRAY(p->scratch, int64_t, stages + 1);
  bool first = zp_cut_within(run->s, p->point, &rule, front);
  if (first) price_cut(p, front);
  rule.from_back = true;
  if (zp_cut_within(run->s, p->point, &rule, back) &&
      !(first && memcmp(front, back, sizeof *front * (size_t)(stages + 1)) == 0))
    price_cut(p, back);
}

/* ---- a point is looked at in steps, each when its bound is the least one ---- */

static void raise_bound(pricing *p, double bound_s) { p->point->bound_s = fmax(p->point->bound_s, bound_s); }

/* Are the stated cuts looked at, and no others? */
static bool has_stated_cuts(const pricing *p) { return zp_chunks(&p->point->choice) > 1 && !p->point->every_cut; }

/* What memory forces on its stages, and the stated cuts whatever their memory. */
static zp_rejection look_at_work(pricing *p) {
  if (!p->point->choice.fine) { /* else space.c knew all of it */
    zp_find_least_work(p->run->s, p->point, ZP_ASK_ALL);
    raise_bound(p, zp_bound(p->run->s, p->point));
  }
  if (p->point->every_cut) {
    double end = zp_bound_step_end(p->run->s, p->point);
    raise_bound(p, zp_bound_any_chunks(p->run->s, p->point, true, cutoff(p) - end) + end);
  }
  if (has_stated_cuts(p) && p->point->cut_s == 0) {
    p->point->cut_s = bound_stated_cuts(p);
    raise_bound(p, zp_bound(p->run->s, p->point));
  }
  return ZP_REJECT_NONE;
}

/* Some cut fits, and then the stated cuts in the modes that fit. With every cut all is on the device. */
static zp_rejection look_at_memory(pricing *p) {
  zp_rejection why;
  if (p->point->every_cut) {
    raise_bound(p, zp_bound_before_cuts(p->scratch, p->run->s, p->point, cutoff(p)));
    return ZP_REJECT_NONE;
  }
  if (!zp_point_fits(p->run->s, p->point, &why)) return why;
  if (!has_stated_cuts(p)) return ZP_REJECT_NONE;
  p->least_s = HUGE_VAL;
  each_stated_cut(p, bound_cut);
  raise_bound(p, p->least_s);
  return ZP_REJECT_NONE;
}

static zp_rejection simulate(pricing *p) {
  p->least_s = HUGE_VAL;
  p->simulated = 0;
  if (p->point->every_cut) {
    if (!price_any_chunks(p)) return ZP_REJECT_MEMORY;
    p->point->seen_s = p->least_s;
  } else if (has_stated_cuts(p)) {
    each_stated_cut(p, price_cut);
    p->point->bound_s = p->least_s;
  } else if (zp_cut_all(p->run->s, p->point, price_cut, p)) {
    p->point->bound_s = p->least_s;
  } else {
    if (!price_least_bound(p)) return ZP_REJECT_BOUND;
    price_extremes(p);
  }
  return ZP_REJECT_NONE;
}

static void count_behind(const pricing *p) {
  zp_ranking *r = p->ranking;
  r->behind += p->point->looks > 0 && r->len && p->point->bound_s >= r->best[0].estimate.step_s;
}

/* The next look; why the point was rejected, ZP_REJECT_NONE when it was not. */
static zp_rejection look_closer(pricing *p) {
  static zp_rejection (*const looks[ZP_LOOKS])(pricing * p) = {look_at_work, look_at_memory, simulate};
  if (p->point->bound_s >= cutoff(p)) return ZP_REJECT_BOUND;
  count_behind(p);
  p->own = ZP_NEW_ARRAY(p->scratch, const zp_variant *, p->point->choice.pipeline);
  return looks[p->point->looks++](p);
}

static void look_at(pricing *p, zp_point *point) {
  p->point = point;
  zp_search_use(p->run->s, zp_choice_ranks(&p->point->choice));
}

/* ---- families ---- */

static zp_rejection bound_homes(pricing *p) { return zp_bound_family(p->run, p->point); }

static zp_rejection bound_cuts_of_homes(pricing *p) {
  if (!has_stated_cuts(p)) return ZP_REJECT_NONE;
  p->own = ZP_NEW_ARRAY(p->scratch, const zp_variant *, p->point->choice.pipeline);
  p->point->cut_s = bound_stated_cuts(p);
  raise_bound(p, p->point->cut_s * (1 - ZP_BOUND_SLACK) + p->point->end_s);
  return ZP_REJECT_NONE;
}

static zp_rejection fit_homes(pricing *p) { return zp_fit_family(p->run, p->point); }

/* Looks at a family until its bound rises; after the last one, its points take its place. */
static void look_at_family(pricing *p, zp_frontier *frontier, int family) {
  static zp_rejection (*const looks[])(pricing * p) = {bound_homes, bound_cuts_of_homes, fit_homes};
  enum { LOOKS = sizeof looks / sizeof *looks };
  zp_rejection why = ZP_REJECT_NONE;
  double before_s = p->point->bound_s;
  count_behind(p);
  p->run->cutoff_s = cutoff(p);
  if (p->point->open == ZP_ALL_CLASSES) p->point->looks = LOOKS;
  while (why == ZP_REJECT_NONE && p->point->looks < LOOKS && p->point->bound_s <= before_s)
    why = looks[p->point->looks++](p);
  if (why != ZP_REJECT_NONE)
    zp_search_reject(p->run, why);
  else if (p->point->bound_s > before_s)
    zp_frontier_return(frontier, family);
  else
    zp_frontier_open(frontier, family, p->ranking);
}

/* ---- branch and bound over the cuts of what is left open ---- */

/* Plans that are not faster need not be found: they would be no better alternatives, or nobody asked for the best. */
static double branch_limit(void *user) {
  const pricing *p = user;
  const zp_ranking *r = p->ranking;
  return fmin(cutoff(p), r->best[0].estimate.step_s / r->closer);
}

/* Faster plans of the point are not looked for, or cannot be. */
static bool is_settled(pricing *p) { return p->point->bound_s >= branch_limit(p) * (1 - ZP_GAP_TOLERANCE); }

static double branch_cut(void *user, int64_t *cut) {
  pricing *p = user;
  zp_limits limits = zp_search_limits(p->run->s);
  if (!zp_cut_variants(p->run->s, p->point, &limits, cut, p->own)) return HUGE_VAL;
  return simulate_cut(p, cut);
}

/* Several chunks a stage that can be cut in many ways. */
static bool is_wide(const zp_search_cache *s, const zp_point *point) {
  return point->every_cut && !zp_few_chunk_cuts(s, point);
}

static void prove(pricing *p, zp_cut_problem *problem, const zp_cut_prover *prover, zp_cut_turn turn) {
  const zp_cut_task task = {branch_limit, branch_cut, p};
  zp_effort *effort = &p->run->effort;
  int64_t all = effort->cuts.work_left, kept = is_wide(p->run->s, p->point) && all > effort->chunk_work_left
                                                   ? all - effort->chunk_work_left
                                                   : 0; /* for others */
  p->own = ZP_NEW_ARRAY(p->scratch, const zp_variant *, p->point->choice.pipeline);
  zp_limits limits = zp_search_limits(p->run->s);
  zp_remember_fits(p->run->s, p->point, &limits);
  effort->cuts.work_left -= kept;
  zp_cut_proof proof = prover->prove(problem, &task, &effort->cuts, turn);
  p->point->bound_s = problem->bound_s = proof.bound_s;
  p->run->s->short_of_memory |= proof.short_of_memory;
  effort->cuts.work_left += kept;
  if (is_wide(p->run->s, p->point)) effort->chunk_work_left -= all - effort->cuts.work_left;
}

/* First what takes little of every point, then what is left. Provers take equal ranges of a repeat for one stage, which
 * they are not on different node types: these points stay open down to their bounds. */
static void settle(pricing *p, zp_cut_turn turn) {
  if (zp_has_types(p->run->s) || has_stated_cuts(p) || is_settled(p)) return;
  zp_arena *arena = zp_arena_new_beside("cut_problem", p->run->s->arena);
  zp_cut_problem *problem = zp_cut_problem_of(arena, p->run->s, p->point);
  for (int i = 0; i < ZP_CUT_PROVERS && !is_settled(p); i++)
    if (zp_prover_applies(p->run->in, problem, i, turn)) prove(p, problem, &zp_cut_provers[i], turn);
  zp_arena_free(arena);
}

/* Points that have been looked at and may still have a plan that is faster than the best one. */
typedef ZP_VEC(zp_point) open_points;

/* Those that cannot are settled. */
static void keep_open(pricing *p, open_points *open) {
  zp_search_run *run = p->run;
  if (p->ranking->len && is_settled(p))
    run->left_out_s = fmin(run->left_out_s, p->point->bound_s);
  else
    zp_push(run->s->arena, open, *p->point);
}

/* Those with many cuts of several chunks a stage last, and of these the ones with the best plans so far first. */
static int by_promise(const void *a, const void *b) {
  const zp_point *x = *(const zp_point *const *)a, *y = *(const zp_point *const *)b;
  if (x->seen_s != y->seen_s) return x->seen_s < y->seen_s ? -1 : 1;
  return x < y ? -1 : x > y;
}

static void settle_points(pricing *p, const open_points *points) {
  zp_point **order = ZP_NEW_ARRAY(p->run->s->arena, zp_point *, points->len + 1);
  int wide = 0;
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < points->len; i++)
      if (is_wide(p->run->s, &points->data[i]) == (turn == 1)) order[wide++] = &points->data[i];
  wide = 0;
  while (wide < points->len && !is_wide(p->run->s, order[wide])) wide++;
  if (points->len > wide) qsort(order + wide, (size_t)(points->len - wide), sizeof *order, by_promise);
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < points->len; i++) {
      look_at(p, order[i]);
      zp_arena_mark mark = zp_arena_get_mark(p->scratch);
      settle(p, turn == 0 ? ZP_CUT_SHALLOW : ZP_CUT_DEEP);
      zp_arena_rewind(p->scratch, mark);
    }
}

void zp_price_points(zp_search_run *run, zp_ranking *r) {
  pricing p = {.run = run, .scratch = zp_arena_new_beside("simulate", run->s->arena), .ranking = r};
  zp_frontier frontier = zp_frontier_new(run);
  open_points open = {0};
  for (int i; (i = zp_frontier_next(&frontier, r)) >= 0;) {
    look_at(&p, &run->points.data[i]);
    zp_arena_mark mark = zp_arena_get_mark(p.scratch);
    if (p.point->open && p.point->bound_s < cutoff(&p)) {
      look_at_family(&p, &frontier, i);
      zp_arena_rewind(p.scratch, mark);
      continue;
    }
    zp_rejection why = look_closer(&p);
    zp_arena_rewind(p.scratch, mark);
    if (why == ZP_REJECT_NONE && p.point->looks < ZP_LOOKS) {
      zp_frontier_return(&frontier, i);
      continue;
    }
    if (why == ZP_REJECT_NONE)
      run->certificate.priced++;
    else
      run->certificate.rejected[why]++;
    if (why == ZP_REJECT_NONE || why == ZP_REJECT_BOUND) keep_open(&p, &open);
  }
  double bound = run->left_out_s;
  if (r->len) settle_points(&p, &open);
  for (int i = 0; i < open.len && r->len; i++) {
    double *least_s = is_wide(run->s, &open.data[i]) ? &run->unsearched_s : &bound;
    *least_s = fmin(*least_s, open.data[i].bound_s);
  }
  run->certificate.searched_s = r->len ? bound : 0;
  zp_arena_free(p.scratch);
}
