/* SPDX-License-Identifier: Apache-2.0 */
/* The library of cuts on random numbers: no model, costs and orders of its own, every cut tried. The simulation here is
 * another one than the planner's: a fixed point over explicit orders, with messages that hold no buffers. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <zplan/cuts.h>

#ifdef __SANITIZE_ADDRESS__
enum { TRIALS = 60 };
#else
enum { TRIALS = 1500 };
#endif

enum { MOST_UNITS = 12, MOST_STAGES = 5, MOST_PLACES = 10, MOST_MICROBATCHES = 9, KINDS = 3 };
enum { MOST_ACTIONS = KINDS * 2 * MOST_MICROBATCHES };

static uint64_t state;
static int64_t random_below(int64_t n) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int64_t)((state >> 33) % (uint64_t)n);
}
static double random_s(double most) { return most * (double)(1 + random_below(1000)) / 1000; }

typedef enum kind { FORWARD, BACKWARD, WEIGHTS } kind;
typedef struct action {
  kind kind;
  int place, microbatch;
  double end_s;
  const struct action *waited_for; /* NULL: it began at 0 */
  bool by_message;
} action;

/* ---- random rows of units ---- */

typedef struct row {
  zp_cut_problem problem;
  int n[MOST_STAGES];
  action order[MOST_STAGES][MOST_ACTIONS];
  double forward_s[MOST_UNITS], input_s[MOST_UNITS], weights_s[MOST_UNITS], message_s[MOST_UNITS + 1];
  double bytes[MOST_UNITS], elements[MOST_UNITS], capacity[MOST_STAGES];
  double forward_before_s[MOST_UNITS + 1], input_before_s[MOST_UNITS + 1], work_before_s[MOST_UNITS + 1];
  int stage_of[MOST_PLACES], chunk_of[MOST_PLACES];
  double update_s_an_element, host_s_an_element; /* host: of an update alongside the next step; 0: there is none */
  bool uniform;                                  /* all units but the first and the last one */
  /* of the search */
  double best_s, limit_s;
  int offered;
} row;

static double sum_of(const double *of_unit, int64_t first, int64_t end) {
  double sum = 0;
  for (int64_t u = first; u < end; u++) sum += of_unit[u];
  return sum;
}

/* A stage that is short of room keeps less and takes longer backward. */
static const double SHRINK = 0.6, SLOWER = 1.3;

static double slowness(const row *r, int stage, double bytes) { return bytes <= r->capacity[stage] ? 1 : SLOWER; }
static bool has_room(const row *r, int stage, double bytes) { return bytes * SHRINK <= r->capacity[stage]; }

static zp_cut_cost cost_of(const row *r, int place, int64_t first, int64_t end, double slow) {
  zp_cut_cost cost = {.forward_s = sum_of(r->forward_s, first, end),
                      .backward_s = sum_of(r->input_s, first, end) * slow,
                      .weights_s = sum_of(r->weights_s, first, end)};
  if (place + 1 < zp_cut_places(&r->problem)) cost.message_s = r->message_s[end];
  return cost;
}

static bool may_grow(void *user, size_t bytes) { return (void)user, (void)bytes, true; }

static bool fits(void *user, int place, int64_t first, int64_t end, double *work_s) {
  const row *r = user;
  int stage = r->stage_of[place];
  double bytes = sum_of(r->bytes, first, end);
  if (!has_room(r, stage, bytes)) return false;
  zp_cut_cost cost = cost_of(r, place, first, end, slowness(r, stage, bytes));
  *work_s = (cost.forward_s + cost.backward_s + cost.weights_s) * (1 - 1e-12); /* at least, however it is summed */
  return true;
}

static double growing_update_s(void *user, int stage, int64_t first, int64_t end) {
  const row *r = user;
  (void)stage;
  return r->update_s_an_element * sum_of(r->elements, first, end);
}

static void set_end(const row *r, zp_cut_cost *cost, double elements) {
  cost->reduce_s = elements * 2 * r->update_s_an_element;
  cost->update_s = elements * r->update_s_an_element * 1.5;
  cost->step_s = elements * r->host_s_an_element + (fmod(elements, 0.1) < 0.05 ? 0.1 : 0) * r->host_s_an_element;
}

static zp_cut_cost cost(void *user, int place, int64_t first, int64_t end) {
  const row *r = user;
  zp_cut_cost cost = cost_of(r, place, first, end, slowness(r, place, sum_of(r->bytes, first, end)));
  set_end(r, &cost, sum_of(r->elements, first, end));
  return cost;
}

static int64_t alike(void *user, int64_t first, int64_t end) {
  const row *r = user;
  return r->uniform && first >= 1 && end < r->problem.units ? 1 : first;
}

static double message_after_s(void *user, int64_t end) { return ((const row *)user)->message_s[end]; }

/* A little less than the sum that a stage with these units has to reduce: below zero where they have few elements. */
static zp_cut_cost least(void *user, int64_t first, int64_t end) {
  const row *r = user;
  zp_cut_cost least = cost_of(r, zp_cut_places(&r->problem) - 1, first, end, 1);
  set_end(r, &least, sum_of(r->elements, first, end));
  least.reduce_s -= r->update_s_an_element * 0.1;
  least.update_s = least.step_s = 0;
  return least;
}

static bool stage_cost(void *user, int stage, const int64_t *cut, zp_cut_cost *cost, int64_t *work) {
  const row *r = user;
  *work = 1;
  double bytes = 0, elements = 0;
  int last = 0;
  for (int k = stage; k < zp_cut_places(&r->problem); k += r->problem.stages) {
    bytes += sum_of(r->bytes, cut[k], cut[k + 1]);
    elements += sum_of(r->elements, cut[k], cut[k + 1]);
    last = r->chunk_of[k];
  }
  if (!has_room(r, stage, bytes)) return false;
  for (int k = stage; k < zp_cut_places(&r->problem); k += r->problem.stages)
    cost[r->chunk_of[k]] = cost_of(r, k, cut[k], cut[k + 1], slowness(r, stage, bytes));
  set_end(r, &cost[last], elements);
  return true;
}

/* ---- running orders ---- */

static action *find(row *r, kind what, int place, int microbatch) {
  int stage = r->stage_of[place];
  for (int i = 0; i < r->n[stage]; i++) {
    action *a = &r->order[stage][i];
    if (a->kind == what && a->place == place && a->microbatch == microbatch) return a;
  }
  cr_assert_fail("no such action");
  return NULL;
}

static double duration_of(const zp_cut_cost *cost, kind what) {
  return what == FORWARD ? cost->forward_s : what == BACKWARD ? cost->backward_s : cost->weights_s;
}

/* When the rest of the pipeline answers, instead of the stages after the first ones. */
static double answer_s(const zp_cut_first *first, int64_t microbatches, int microbatch) {
  double rest = first->rest_s;
  if (microbatch == 0) rest = fmax(rest, first->first_rest_s);
  if (microbatch == microbatches - 1) rest = fmax(rest, first->last_rest_s);
  return rest;
}

/* One action; false: nothing changed. first: NULL, or what is known of the stages. */
static bool run_action(row *r, const zp_cut_cost *cost, const zp_cut_first *first, int stage, int i) {
  action *a = &r->order[stage][i];
  const action *before = i > 0 ? a - 1 : NULL, *input = NULL;
  int last = first ? first->known - 1 : zp_cut_places(&r->problem) - 1;
  double begin = before ? before->end_s : 0, message = 0, other = 0;
  if (a->kind == FORWARD && a->place > 0)
    input = find(r, FORWARD, a->place - 1, a->microbatch), message = cost[a->place - 1].message_s;
  if (a->kind == BACKWARD && a->place < last)
    input = find(r, BACKWARD, a->place + 1, a->microbatch), message = cost[a->place].message_s;
  if (a->kind == BACKWARD && a->place == last && last + 1 < zp_cut_places(&r->problem))
    other = find(r, FORWARD, last, a->microbatch)->end_s + cost[last].message_s +
            answer_s(first, r->problem.microbatches, a->microbatch);
  a->waited_for = before;
  a->by_message = input && input->end_s + message > begin;
  if (a->by_message) begin = input->end_s + message, a->waited_for = input;
  double end = fmax(begin, other) + duration_of(&cost[a->place], a->kind);
  bool changed = end != a->end_s;
  a->end_s = end;
  return changed;
}

static void run_stages(row *r, const zp_cut_cost *cost, const zp_cut_first *first, double *end_s) {
  int stages = first ? first->known : r->problem.stages;
  for (int s = 0; s < stages; s++)
    for (int i = 0; i < r->n[s]; i++) r->order[s][i].end_s = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (int s = 0; s < stages; s++)
      for (int i = 0; i < r->n[s]; i++) changed |= run_action(r, cost, first, s, i);
  }
  for (int s = 0; s < stages; s++) end_s[s] = r->order[s][r->n[s] - 1].end_s;
}

static void run_first(void *user, const zp_cut_first *first, double *end_s) {
  run_stages(user, first->cost, first, end_s);
}

static void run(void *user, const zp_cut_cost *cost, double *end_s) { run_stages(user, cost, NULL, end_s); }

static void count(zp_cut_weights *weights, const action *a) {
  zp_cut_weights *w = &weights[a->place];
  *(a->kind == FORWARD ? &w->forwards : a->kind == BACKWARD ? &w->backwards : &w->weights) += 1;
}

static void chain(void *user, int stage, zp_cut_weights *weights) {
  row *r = user;
  for (const action *a = &r->order[stage][r->n[stage] - 1]; a; a = a->waited_for) {
    count(weights, a);
    if (a->by_message) weights[a->kind == FORWARD ? a->place - 1 : a->place].messages += 1;
  }
}

static void through(void *user, int end, int stage, zp_cut_weights *weights) {
  row *r = user;
  for (int k = 0; k < stage; k++) weights[k].forwards += 1, weights[k].messages += 1;
  int last = r->n[stage] - 1; /* the last gradient that is handed on */
  if (end != stage)
    while (r->order[stage][last].kind != BACKWARD) last--;
  for (int i = 0; i <= last; i++) count(weights, &r->order[stage][i]);
  for (int k = stage; end != stage && k-- > 0;) weights[k].backwards += 1, weights[k].messages += 1;
}

/* ---- making rows ---- */

static void add(row *r, int stage, kind what, int chunk, int microbatch) {
  r->order[stage][r->n[stage]++] =
      (action){.kind = what, .place = chunk * r->problem.stages + stage, .microbatch = microbatch};
}

static void add_backward(row *r, int stage, int chunk, int microbatch) {
  add(r, stage, BACKWARD, chunk, microbatch);
  if (r->problem.split && microbatch % 2 == 0) add(r, stage, WEIGHTS, chunk, microbatch); /* the others come last */
}

/* 1F1B with one chunk a stage; with several all forwards, then all backwards. */
static void make_orders(row *r) {
  const zp_cut_problem *p = &r->problem;
  int m = (int)p->microbatches;
  for (int s = 0; s < p->stages; s++) {
    int warmup = p->chunks > 1 || p->stages - 1 - s > m ? m : p->stages - 1 - s;
    for (int c = 0; c < p->chunks; c++)
      for (int i = 0; i < (p->chunks > 1 ? m : warmup); i++) add(r, s, FORWARD, c, i);
    for (int i = warmup; i < m; i++) {
      add(r, s, FORWARD, 0, i);
      add_backward(r, s, 0, i - warmup);
    }
    for (int c = p->chunks; c-- > 0;)
      for (int i = p->chunks > 1 ? 0 : m - warmup; i < m; i++) add_backward(r, s, c, i);
    for (int c = 0; c < p->chunks && p->split; c++)
      for (int i = 1; i < m; i += 2) add(r, s, WEIGHTS, c, i);
  }
}

static void make_units(row *r) {
  int64_t units = r->problem.units;
  double message = random_s(0.5);
  r->problem.message_s = message;
  for (int64_t u = 0; u < units; u++) {
    r->message_s[u + 1] = message + random_s(0.2);
    if (r->uniform && u > 1 && u + 1 < units) {
      r->forward_s[u] = r->forward_s[1], r->input_s[u] = r->input_s[1], r->weights_s[u] = r->weights_s[1];
      r->bytes[u] = r->bytes[1], r->elements[u] = r->elements[1], r->message_s[u + 1] = r->message_s[2];
      continue;
    }
    r->forward_s[u] = random_s(1), r->input_s[u] = random_s(2);
    r->weights_s[u] = r->problem.split ? random_s(1) : 0;
    r->bytes[u] = random_s(1), r->elements[u] = random_s(1);
  }
  for (int64_t u = 0; u < units; u++) {
    r->forward_before_s[u + 1] = r->forward_before_s[u] + r->forward_s[u];
    r->input_before_s[u + 1] = r->input_before_s[u] + r->forward_s[u] + r->input_s[u];
    r->work_before_s[u + 1] = r->work_before_s[u] + r->forward_s[u] + r->input_s[u] + r->weights_s[u];
  }
}

static row *random_row(zp_arena *arena) {
  row *r = ZP_NEW(arena, row);
  zp_cut_problem *p = &r->problem;
  int stages = 2 + (int)random_below(4), chunks = stages < 4 && random_below(3) == 0 ? 2 : 1;
  int places = stages * chunks;
  *p = (zp_cut_problem){.stages = stages,
                        .chunks = chunks,
                        .units = places + random_below(MOST_UNITS - places + 1),
                        .microbatches = 1 + random_below(MOST_MICROBATCHES),
                        .split = random_below(2),
                        .stage_of = r->stage_of,
                        .chunk_of = r->chunk_of,
                        .forward_s = r->forward_before_s,
                        .input_s = r->input_before_s,
                        .work_s = r->work_before_s,
                        .ties_s = chunks == 1 ? random_s(0.5) : 0,
                        .alongside = arena,
                        .user = r,
                        .may_grow = may_grow,
                        .fits = fits,
                        .cost = cost,
                        .alike = alike,
                        .growing_update_s = growing_update_s,
                        .message_after_s = message_after_s,
                        .stage = stage_cost,
                        .run = run,
                        .chain = chain,
                        .through = through};
  if (!p->split && chunks == 1) p->run_first = run_first;
  if (chunks > 1 && random_below(2)) p->least = least;
  for (int k = 0; k < places; k++) r->stage_of[k] = k % stages, r->chunk_of[k] = k / stages;
  r->uniform = random_below(2);
  r->update_s_an_element = random_s(0.5);
  make_units(r);
  double bytes = sum_of(r->bytes, 0, p->units), elements = sum_of(r->elements, 0, p->units);
  for (int s = 0; s < stages; s++) r->capacity[s] = bytes / stages * (0.7 + random_s(1));
  /* One stage has at least the mean of the elements. */
  if (random_below(2)) r->host_s_an_element = random_s(2) * (double)p->microbatches * p->work_s[p->units] / elements;
  p->update_s = p->end_s = r->update_s_an_element * 1.5 * elements / stages * (1 - 1e-9);
  make_orders(r);
  return r;
}

/* ---- every cut ---- */

static int64_t apart_cuts; /* cuts whose longest update alongside the next step decides */

static double step_of(row *r, const int64_t *cut) {
  const zp_cut_problem *p = &r->problem;
  zp_cut_cost all[MOST_PLACES], own[ZP_CUT_MOST_CHUNKS];
  double end_s[MOST_STAGES], reduce_s[MOST_STAGES] = {0}, update = 0, step = 0, apart = 0;
  for (int s = 0; s < p->stages; s++) {
    int64_t work;
    if (!stage_cost(r, s, cut, own, &work)) return HUGE_VAL;
    for (int k = s; k < zp_cut_places(p); k += p->stages) {
      all[k] = own[r->chunk_of[k]];
      reduce_s[s] += all[k].reduce_s;
      update = fmax(update, all[k].update_s);
      apart = fmax(apart, all[k].step_s);
    }
  }
  run_stages(r, all, NULL, end_s);
  for (int s = 0; s < p->stages; s++)
    step = fmax(step, end_s[s] + reduce_s[s] + (s == 0 || s == p->stages - 1 ? p->ties_s : 0));
  if (apart > step + update) apart_cuts++;
  return fmax(step + update, apart);
}

typedef void on_cut(row *r, const int64_t *cut, double step_s);

static void each_cut(row *r, int64_t *cut, int place, on_cut *see) {
  int places = zp_cut_places(&r->problem);
  if (place == places) {
    see(r, cut, step_of(r, cut));
    return;
  }
  int64_t most = r->problem.units - (places - 1 - place);
  for (int64_t end = place == places - 1 ? most : cut[place] + 1; end <= most; end++) {
    cut[place + 1] = end;
    each_cut(r, cut, place + 1, see);
  }
}

static void note_best(row *r, const int64_t *cut, double step_s) {
  (void)cut;
  r->best_s = fmin(r->best_s, step_s);
}

static double find_best(row *r) {
  int64_t cut[MOST_PLACES + 1] = {0};
  r->best_s = HUGE_VAL;
  each_cut(r, cut, 0, note_best);
  return r->best_s;
}

/* ---- what provers are told and tell ---- */

static double limit_s(void *user) { return ((const row *)user)->limit_s; }

static double take_cut(void *user, int64_t *cut) {
  row *r = user;
  int places = zp_cut_places(&r->problem);
  r->offered++;
  cr_assert(cut[0] == 0 && cut[places] == r->problem.units);
  for (int k = 0; k < places; k++) cr_assert_lt(cut[k], cut[k + 1]);
  double step = step_of(r, cut);
  r->limit_s = fmin(r->limit_s, step);
  return step;
}

static zp_cut_proof prove(row *r, const zp_cut_prover *prover, int64_t work, zp_cut_depth turn) {
  const zp_cut_task task = {limit_s, take_cut, r};
  zp_cut_effort effort = {.work_left = work};
  r->offered = 0;
  return prover->prove(&r->problem, &task, &effort, turn);
}

/* Sums of the same seconds in another order. */
static const double ROUNDING = 1e-12;

static void check_prover(row *r, const zp_cut_prover *prover, double best, int *closed) {
  bool before = prover->applies(&r->problem, ZP_CUT_BEFORE);
  r->limit_s = isfinite(best) ? best * (1.05 + random_s(1)) : 1000;
  double limit = r->limit_s;
  if (before) {
    double bound = prove(r, prover, 0, ZP_CUT_BEFORE).bound_s;
    cr_assert(bound <= best * (1 + ROUNDING) && bound > 0, "%s: bound %.12g of %.12g", prover->name, bound, best);
    return;
  }
  double bound = prove(r, prover, 1 << 24, ZP_CUT_DEEP).bound_s;
  cr_assert(bound <= fmin(best, limit) * (1 + ROUNDING), "%s: bound %.12g of %.12g", prover->name, bound, best);
  cr_assert(bound >= fmin(best, limit) * (1 - 2e-9), "%s: bound %.12g of %.12g", prover->name, bound, best);
  cr_assert(fabs(r->limit_s - fmin(best, limit)) <= 1e-9 * limit, "%s: found %.12g, the best takes %.12g", prover->name,
            r->limit_s, best);
  *closed += isfinite(best) && r->offered > 0;
  /* with next to no work: less is known, nothing wrong */
  r->limit_s = limit;
  bound = prove(r, prover, 1 + random_below(2000), ZP_CUT_SHALLOW).bound_s;
  cr_assert(bound <= fmin(best, limit) * (1 + ROUNDING), "%s, little work: bound %.12g of %.12g", prover->name, bound,
            best);
  cr_assert(r->limit_s >= fmin(best, limit));
}

Test(cuts, provers_agree_with_every_cut) {
  int closed[ZP_CUT_PROVERS] = {0}, used[ZP_CUT_PROVERS] = {0}, infeasible = 0;
  state = 1;
  for (int i = 0; i < TRIALS; i++) {
    zp_arena *arena = zp_arena_new("row");
    row *r = random_row(arena);
    double best = find_best(r);
    infeasible += !isfinite(best);
    for (int k = 0; k < ZP_CUT_PROVERS; k++) {
      const zp_cut_prover *prover = &zp_cut_provers[k];
      if (!prover->applies(&r->problem, ZP_CUT_BEFORE) && !prover->applies(&r->problem, ZP_CUT_DEEP)) continue;
      used[k]++;
      check_prover(r, prover, best, &closed[k]);
    }
    zp_arena_free(arena);
  }
  for (int k = 0; k < ZP_CUT_PROVERS; k++)
    cr_expect(used[k] >= TRIALS / 50, "%s: %d rows, %d with a cut to find", zp_cut_provers[k].name, used[k], closed[k]);
  cr_expect(apart_cuts > 0);
  cr_expect(infeasible > 0 && infeasible < TRIALS / 2, "%d of %d rows have no cut that fits", infeasible, TRIALS);
}

/* ---- no rule of 1F1B drops a cut that is below the target ---- */

static int refused, asked;

static void check_refusal(row *r, const int64_t *cut, double step_s) {
  if (!isfinite(step_s) || random_below(8)) return;
  asked++;
  int by = zp_cut_refusal(&r->problem, cut, step_s * (1 + 1e-9));
  cr_assert(by < 0, "a cut that takes %.12g s is dropped after %d of %d stages", step_s, by, r->problem.stages);
  refused += zp_cut_refusal(&r->problem, cut, step_s * (1 - 1e-6)) >= 0;
}

Test(cuts, rules_never_drop_a_better_cut) {
  state = 2, refused = asked = 0;
  int rows = 0;
  for (; asked < TRIALS / 2 && rows < 8 * TRIALS; rows++) {
    zp_arena *arena = zp_arena_new("row");
    row *r = random_row(arena);
    int64_t cut[MOST_PLACES + 1] = {0};
    if (r->problem.run_first) each_cut(r, cut, 0, check_refusal);
    zp_arena_free(arena);
  }
  cr_expect(asked >= TRIALS / 2, "%d rows have %d cuts to ask about", rows, asked);
  cr_expect(refused == asked, "%d of %d cuts that are too slow are dropped", refused, asked);
}
