/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine, and how many of its devices: every choice is planned, so the answer is the best of all that were
 * listed. Money and time of a whole training are the step's times a number that all choices share, so a training of
 * unknown length ranks by its step. */
#include <assert.h>
#include "answers_internal.h"

/* Estimates that differ by less are alike: the other quantity decides, then the smaller machine. */
static const double ALIKE = 1e-9;

static zp_offer make_offer(zp_arena *arena, const zp_spec *spec, const zp_terms *terms, int machine, int devices) {
  zp_offer o = {.machine = machine, .size = zp_plan_size(arena, spec, devices)};
  o.hour_dollars = zp_cluster_price(&spec->cluster, devices);
  o.energy_dollars = zp_cluster_energy_price(&spec->cluster, devices);
  if (!o.size.feasible) return o;
  o.step_device_hours = o.size.best.estimate.step_s / 3600 * devices;
  o.step_dollars = o.step_device_hours * o.hour_dollars;
  o.run_s = (double)spec->train.steps * o.size.best.estimate.step_s;
  o.in_time = terms->deadline_s <= 0 || o.run_s <= terms->deadline_s;
  o.in_budget = terms->budget <= 0 || o.size.run_dollars <= terms->budget;
  return o;
}

static int compare(double a, double b) {
  double larger = a > b ? a : b;
  return a < b - ALIKE * larger ? -1 : a > b + ALIKE * larger;
}

/* Is a better than b? Both fit. Choices of one list are in its order, so that the first of equals stays. */
static bool is_better(zp_objective objective, const zp_offer *a, const zp_offer *b) {
  int cost = compare(a->step_dollars, b->step_dollars);
  int time = compare(a->size.best.estimate.step_s, b->size.best.estimate.step_s);
  int first = objective == ZP_MINIMIZE_COST ? cost : time, second = objective == ZP_MINIMIZE_COST ? time : cost;
  return first ? first < 0 : second ? second < 0 : a->size.devices < b->size.devices;
}

/* By which factor a choice is beyond the deadline or the budget, whichever it misses more. */
static double excess(const zp_terms *terms, const zp_offer *o) {
  double late = terms->deadline_s > 0 ? o->run_s / terms->deadline_s : 0;
  double dear = terms->budget > 0 ? o->size.run_dollars / terms->budget : 0;
  return late > dear ? late : dear;
}

typedef enum wanted { ALL_TERMS, IN_TIME, IN_BUDGET } wanted;

static bool meets(const zp_offer *o, wanted what) {
  return o->size.feasible && (what == IN_BUDGET || o->in_time) && (what == IN_TIME || o->in_budget);
}

static int best_of(const zp_purchase *p, zp_objective objective, wanted what, int but) {
  int best = -1;
  for (int i = 0; i < p->offers.len; i++)
    if (i != but && meets(&p->offers.data[i], what) &&
        (best < 0 || is_better(objective, &p->offers.data[i], &p->offers.data[best])))
      best = i;
  return best;
}

bool zp_offer_before(const zp_purchase *p, int a, int b) {
  const zp_offer *x = &p->offers.data[a], *y = &p->offers.data[b];
  assert(x->size.feasible && y->size.feasible);
  bool meets_x = meets(x, ALL_TERMS), meets_y = meets(y, ALL_TERMS);
  return meets_x != meets_y ? meets_x : is_better(p->terms.objective, x, y);
}

static int nearest_of(const zp_purchase *p) {
  int nearest = -1;
  for (int i = 0; i < p->offers.len; i++) {
    if (!p->offers.data[i].size.feasible) continue;
    if (nearest < 0 || compare(excess(&p->terms, &p->offers.data[i]), excess(&p->terms, &p->offers.data[nearest])) < 0)
      nearest = i;
  }
  return nearest;
}

zp_purchase zp_find_purchase(zp_arena *arena, const zp_spec *const *specs, const zp_ints *counts, int n) {
  assert(n >= 1);
  zp_purchase p = {.terms = specs[0]->plans.data[specs[0]->plan].terms};
  for (int m = 0; m < n; m++)
    for (int i = 0; i < counts[m].len; i++) {
      zp_offer offer = make_offer(arena, specs[m], &p.terms, m, counts[m].data[i]);
      zp_push(arena, &p.offers, offer);
      p.stopped += offer.size.stopped;
    }
  p.best = best_of(&p, p.terms.objective, ALL_TERMS, -1);
  p.next = p.best >= 0 ? best_of(&p, p.terms.objective, ALL_TERMS, p.best) : -1;
  p.nearest = p.best >= 0 ? -1 : nearest_of(&p);
  p.in_time = best_of(&p, ZP_MINIMIZE_COST, IN_TIME, -1);
  p.in_budget = best_of(&p, ZP_MINIMIZE_STEP_TIME, IN_BUDGET, -1);
  return p;
}
