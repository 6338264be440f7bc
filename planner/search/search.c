/* zp_search: enumerate (space.c), order by lower bound (bound.c), cut and simulate the points that can still win, and
 * certify. No point is dropped unless it violates a rule, does not fit, or its proven lower bound exceeds the best
 * plan. Where the ways to cut are few, all of them are looked at and the answer is the optimum; where only two are
 * simulated, what is left open is the gap between the best plan and the smallest bound. */
#include <stdlib.h>
#include "cost.h"
#include "search_internal.h"

enum { DEFAULT_TOP = 3 };

/* Fixed order of points that are equally fast: fewer tensor ranks, then fewer stages, and so on. */
static int by_choice(const zp_choice *a, const zp_choice *b) {
  const int64_t difference[] = {a->tensor - b->tensor,
                                a->pipeline - b->pipeline,
                                a->data - b->data,
                                a->zero - b->zero,
                                a->microbatch - b->microbatch,
                                (int64_t)a->recompute - (int64_t)b->recompute,
                                a->recompute_shard - b->recompute_shard};
  for (size_t i = 0; i < sizeof difference / sizeof *difference; i++)
    if (difference[i]) return difference[i] < 0 ? -1 : 1;
  return 0;
}

static int by_bound(const void *a, const void *b) {
  const zp_point *x = a, *y = b;
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s ? -1 : 1;
  return by_choice(&x->choice, &y->choice);
}

static bool faster(const zp_candidate *a, const zp_candidate *b) {
  double x = a->estimate.step_s, y = b->estimate.step_s;
  if (x < y * (1 - 1e-12)) return true;
  return x <= y * (1 + 1e-12) && by_choice(&a->choice, &b->choice) < 0;
}

static bool same_degrees(const zp_choice *a, const zp_choice *b) {
  return a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data;
}

/* ---- the best plans, one per triple of degrees, ascending ---- */

typedef struct ranking {
  zp_candidate *best;
  int len, cap;
} ranking;

static void remove_at(ranking *r, int i) {
  memmove(&r->best[i], &r->best[i + 1], sizeof *r->best * (size_t)(--r->len - i));
}

static void rank(zp_searcher *s, ranking *r, const zp_candidate *candidate) {
  for (int i = 0; i < r->len; i++)
    if (same_degrees(&r->best[i].choice, &candidate->choice)) {
      if (!faster(candidate, &r->best[i])) return;
      remove_at(r, i);
      break;
    }
  int at = r->len;
  while (at > 0 && faster(candidate, &r->best[at - 1])) at--;
  if (at == r->cap) return;
  if (r->len == r->cap) r->len--;
  memmove(&r->best[at + 1], &r->best[at], sizeof *r->best * (size_t)(r->len - at));
  r->len++;
  r->best[at] = *candidate;
  int64_t *cut = ZP_NEW_ARRAY(s->arena, int64_t, candidate->choice.pipeline + 1);
  r->best[at].choice.cut = memcpy(cut, candidate->choice.cut, sizeof *cut * (size_t)(candidate->choice.pipeline + 1));
  r->best[at].estimate.stage_forward_s = r->best[at].estimate.stage_backward_s = NULL; /* of the scratch memory */
}

/* Nothing slower with these degrees can enter the ranking. */
static double cutoff(const ranking *r, const zp_choice *choice) {
  for (int i = 0; i < r->len; i++)
    if (same_degrees(&r->best[i].choice, choice)) return r->best[i].estimate.step_s;
  return r->len < r->cap ? 1e300 : r->best[r->len - 1].estimate.step_s;
}

/* ---- pricing points ---- */

typedef struct pricing {
  zp_searcher *s;
  zp_arena *scratch;
  zp_point *point;
  ranking *ranking;
  double least_s; /* of all cuts of the point: simulated, or bounded where that sufficed */
} pricing;

static double simulate_cut(pricing *p, int64_t *cut) {
  zp_arena_mark mark = zp_arena_get_mark(p->scratch);
  zp_candidate candidate = {.choice = p->point->choice};
  candidate.choice.cut = cut;
  const zp_program *program =
      zp_program_make(p->scratch, p->s->variants.data[p->point->variant].lowered, &candidate.choice);
  candidate.estimate = zp_simulate(p->scratch, program, &p->s->machine);
  rank(p->s, p->ranking, &candidate);
  zp_arena_rewind(p->scratch, mark);
  return candidate.estimate.step_s;
}

static void price_cut(void *user, int64_t *cut) {
  pricing *p = user;
  double seconds = zp_bound_of_cut(p->s, p->point, cut);
  if (seconds < cutoff(p->ranking, &p->point->choice)) seconds = simulate_cut(p, cut);
  if (seconds < p->least_s) p->least_s = seconds;
}

/* All cuts where they are few: then the point is settled. Otherwise the two extreme cuts with the shortest longest
 * stage. */
static void price_point(pricing *p, double bottleneck_s) {
  zp_searcher *s = p->s;
  int stages = p->point->choice.pipeline;
  double limit = bottleneck_s * (1 + 1e-9);
  s->certificate.priced++;
  p->least_s = 1e300;
  if (zp_cut_all(s, p->point, price_cut, p)) {
    p->point->bound_s = p->least_s;
    return;
  }
  int64_t *front = ZP_NEW_ARRAY(s->arena, int64_t, stages + 1), *back = ZP_NEW_ARRAY(s->arena, int64_t, stages + 1);
  if (zp_cut_within(s, p->point, limit, s->limit_bytes, false, front)) simulate_cut(p, front);
  if (zp_cut_within(s, p->point, limit, s->limit_bytes, true, back) &&
      memcmp(front, back, sizeof *front * (size_t)(stages + 1)) != 0)
    simulate_cut(p, back);
}

/* True when the point may still enter the ranking; tightens its bound by the shortest possible longest stage. */
static bool open_point(zp_searcher *s, zp_point *point, const ranking *r, double *bottleneck_s) {
  if (point->bound_s >= cutoff(r, &point->choice)) return false;
  *bottleneck_s = zp_cut_bottleneck(s, point);
  point->bound_s = zp_bound(s, point, *bottleneck_s * (1 - 1e-11));
  return point->bound_s < cutoff(r, &point->choice);
}

static void price_points(zp_searcher *s, ranking *r) {
  pricing p = {.s = s, .scratch = zp_arena_new("simulate"), .ranking = r};
  s->certificate.bound_s = s->points.len ? 1e300 : 0;
  if (s->points.len) qsort(s->points.data, (size_t)s->points.len, sizeof *s->points.data, by_bound);
  for (int i = 0; i < s->points.len; i++) {
    double bottleneck;
    p.point = &s->points.data[i];
    if (open_point(s, p.point, r, &bottleneck))
      price_point(&p, bottleneck);
    else
      s->certificate.rejected[ZP_REJECT_BOUND]++;
    if (p.point->bound_s < s->certificate.bound_s) s->certificate.bound_s = p.point->bound_s;
  }
  zp_arena_free(p.scratch);
}

/* ---- the result ---- */

static zp_choice copy_choice(zp_arena *arena, const zp_choice *from) {
  zp_choice choice = *from;
  if (!from->cut) return choice;
  choice.cut = ZP_NEW_ARRAY(arena, int64_t, from->pipeline + 1);
  memcpy(choice.cut, from->cut, sizeof *choice.cut * (size_t)(from->pipeline + 1));
  return choice;
}

/* The winner is derived once more in the plan's own arena; the search's memory goes. */
static void adopt(zp_plan *plan, const zp_choice *winner) {
  const char *reason = NULL;
  zp_choice c = copy_choice(plan->arena, winner);
  zp_sharding *sharding = zp_shard(plan->arena, plan->spec->model, &plan->machine, c.tensor, 1, c.sequence, &reason);
  zp_lowered *lowered =
      zp_lower(plan->arena, plan->spec, sharding, c.microbatch, c.recompute, c.recompute_shard, &reason);
  zp_price(lowered, &plan->machine, c.tensor, c.pipeline, c.data);
  plan->feasible = true;
  plan->program = zp_program_make(plan->arena, lowered, &c);
  plan->best = (zp_candidate){c, zp_simulate(plan->arena, plan->program, &plan->machine)};
}

static const char *explain_empty(zp_arena *arena, const zp_searcher *s, const char *reason) {
  static const zp_rejection order[] = {ZP_REJECT_SPLIT, ZP_REJECT_UNITS, ZP_REJECT_BATCH, ZP_REJECT_NODE,
                                       ZP_REJECT_CONSTRAINT};
  const int64_t *rejected = s->certificate.rejected;
  if (rejected[ZP_REJECT_SPLIT] && reason) return zp_strdup(arena, reason);
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    if (rejected[order[i]])
      return zp_format(arena, "none of the %lld candidates is legal; one reason: %s",
                       (long long)s->certificate.candidates, zp_rejection_text(order[i]));
  return "there is nothing to choose from";
}

static void fill_plan(zp_plan *plan, zp_searcher *s, const ranking *r) {
  plan->certificate = s->certificate;
  if (r->len == 0) {
    if (s->miss_ratio > 0) {
      plan->miss = s->miss;
      plan->miss.choice = copy_choice(plan->arena, &s->miss.choice);
    } else {
      plan->why_not = explain_empty(plan->arena, s, s->reason);
    }
    return;
  }
  adopt(plan, &r->best[0].choice);
  plan->certificate.best_s = plan->best.estimate.step_s;
  if (plan->certificate.bound_s > plan->certificate.best_s * (1 - 2e-9))
    plan->certificate.bound_s = plan->certificate.best_s;
  for (int i = 1; i < r->len; i++) {
    zp_candidate other = {copy_choice(plan->arena, &r->best[i].choice), r->best[i].estimate};
    zp_push(plan->arena, &plan->alternatives, other);
  }
}

static void start(zp_searcher *s, const zp_spec *spec, const zp_machine *machine) {
  s->spec = spec;
  s->constraints = &spec->plans.data[spec->plan];
  s->machine = *machine;
  s->limit_bytes = (int64_t)(s->constraints->memory_fraction * (double)machine->memory_bytes) - machine->context_bytes;
  for (int i = 0; i < spec->model->segments.len; i++) s->n_units += spec->model->segments.data[i].count;
  s->sharding = ZP_NEW_ARRAY(s->arena, zp_sharding *, machine->devices + 1);
  s->sharding_tried = ZP_NEW_ARRAY(s->arena, bool, machine->devices + 1);
}

zp_plan *zp_search(zp_arena *arena, const zp_spec *spec, int devices, const zp_search_options *options) {
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  plan->arena = arena;
  plan->spec = spec;
  plan->machine = zp_machine_make(&spec->cluster, spec->train.precision, devices);
  zp_searcher s = {.arena = zp_arena_new("search")};
  start(&s, spec, &plan->machine);
  zp_search_enumerate(&s);
  ranking r = {.cap = 1 + (options && options->top > 0 ? options->top : DEFAULT_TOP)};
  r.best = ZP_NEW_ARRAY(s.arena, zp_candidate, r.cap + 1);
  price_points(&s, &r);
  fill_plan(plan, &s, &r);
  zp_arena_free(s.arena);
  return plan;
}
