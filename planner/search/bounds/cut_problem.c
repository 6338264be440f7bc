/* SPDX-License-Identifier: Apache-2.0 */
/* The cuts of one point as plain numbers: callbacks that ask the layout, the memory limits, the cost model and the
 * order tables of the point. Stages take the fastest mode that fits (modes.c). */
#include <math.h>
#include <zplan/cost.h>
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "budget.h"
#include "cut_problem.h"
#include "procedures.h"

/* What was asked for last: whether a range fits is asked before what it costs. */
typedef struct last_range {
  int place;
  int64_t first, end;
  const zp_variant *own;
} last_range;

/* What stages of several chunks cost that were asked for before: of known chunks, whatever the others are. */
enum { STAGE_SLOTS = 4096 };
typedef struct known_stage {
  int64_t key[1 + 2 * ZP_CUT_MOST_CHUNKS]; /* the stage, and units of each chunk; all zero: empty */
  bool fits;
  zp_cut_cost cost[ZP_CUT_MOST_CHUNKS];
} known_stage;

typedef struct asked {
  zp_arena *arena;
  zp_search_cache *s;
  const zp_point *point;
  const zp_variant *v; /* the least of all modes */
  zp_cut_problem problem;
  zp_limits limits;
  const double *sums_s;  /* of gradients, before each unit; NULL: nothing is known */
  zp_group_link link;    /* between stages */
  zp_stage_costs *costs; /* NULL: several chunks a stage, and some state is offloaded */
  last_range last;
  known_stage *known;      /* [STAGE_SLOTS]; NULL: nothing was asked for yet */
  zp_choice choice;        /* of runs; cut: room */
  zp_pipeline_run run;     /* of all stages, or of the first ones */
  zp_stage_time *time;     /* run.time */
  double *message_s;       /* run.message_s */
  int *at;                 /* [place]: its times in run.time */
  zp_order_graph *graph;   /* NULL: not asked for yet */
  zp_place_weights *chain; /* [places]: room */
} asked;

static bool may_grow(void *user, size_t bytes) { return zp_may_grow(((asked *)user)->s, ZP_GROW_CUTS, bytes); }

/* What the place runs alone; NULL: it does not fit. */
static const zp_variant *variant_of(asked *a, int place, int64_t first, int64_t end) {
  last_range *last = &a->last;
  if (last->end == end && last->first == first && last->place == place) return last->own;
  zp_units part[ZP_MOST_CHUNKS] = {0};
  part[a->problem.chunk_of[place]] = (zp_units){first, end - first};
  *last =
      (last_range){place, first, end, zp_stage_variant(a->s, a->point, a->problem.stage_of[place], part, &a->limits)};
  return last->own;
}

static bool fits(void *user, int place, int64_t first, int64_t end, double *work_s) {
  const zp_variant *own = variant_of(user, place, first, end);
  if (own) *work_s = zp_stage_work(own, first, end);
  return own != NULL;
}

static double message_after_s(void *user, int64_t end) {
  const asked *a = user;
  const zp_lowered *l = a->v->lowered;
  int segment;
  int64_t iteration;
  if (!a->s->in->floor.messages) return 0;
  zp_unit(l, end - 1, &segment, &iteration);
  return zp_cost_message(&a->link, (double)l->segments[segment].carry_out_elements * l->compute_bytes);
}

static zp_cut_cost cost_of_time(const asked *a, const zp_stage_time *time) {
  double weights = a->problem.split ? time->weights_s : 0;
  return (zp_cut_cost){.forward_s = time->forward_s, .backward_s = time->backward_s - weights, .weights_s = weights};
}

static zp_cut_cost cost(void *user, int place, int64_t first, int64_t end) {
  asked *a = user;
  zp_stage_cost stage = zp_stage_cost_of(a->costs, variant_of(a, place, first, end)->lowered, place, first, end);
  zp_cut_cost cost = cost_of_time(a, &stage.time);
  cost.reduce_s = stage.reduce_s;
  cost.update_s = stage.update_s + stage.offload_s;
  cost.step_s = stage.apart_s;
  if (place + 1 < a->problem.stages) cost.message_s = message_after_s(a, end);
  return cost;
}

/* The least of all modes of the point, whatever memory allows. */
static zp_cut_cost least_of_sums(const asked *a, int64_t first, int64_t end) {
  zp_part_seconds all = zp_stage_seconds(a->v, first, end);
  double input = a->problem.split ? all.input : all.work;
  return (zp_cut_cost){.forward_s = all.forward, .backward_s = input - all.forward, .weights_s = all.work - input};
}

/* With what moves alongside the units. A sum of gradients is, alongside the last backward, where it is split alongside
 * the weights' part, no shorter than all of it less all of that (zp_cost_exposed_reduce): in the slowest mode. */
static zp_cut_cost least(void *user, int64_t first, int64_t end) {
  asked *a = user;
  if (!a->costs) return least_of_sums(a, first, end);
  zp_cut_cost cost = {.forward_s = HUGE_VAL, .backward_s = HUGE_VAL, .weights_s = HUGE_VAL};
  double hidden = 0;
  for (int i = 0; i < a->point->n_modes; i++) {
    const zp_lowered *lowered = a->s->variants.data[a->point->modes[i]].lowered;
    zp_stage_time time = zp_stage_cost_of(a->costs, lowered, 0, first, end).time;
    zp_cut_cost own = cost_of_time(a, &time);
    cost.forward_s = fmin(cost.forward_s, own.forward_s);
    cost.backward_s = fmin(cost.backward_s, own.backward_s);
    cost.weights_s = fmin(cost.weights_s, own.weights_s);
    hidden = fmax(hidden, zp_cost_overlapped(&a->choice, &time));
  }
  if (a->sums_s) cost.reduce_s = a->sums_s[end] - a->sums_s[first] - hidden;
  return cost;
}

static int64_t alike(void *user, int64_t first, int64_t end) {
  return zp_stage_canonical(((asked *)user)->v->lowered, first, end);
}

static double growing_update_s(void *user, int stage, int64_t first, int64_t end) {
  asked *a = user;
  return zp_stage_cost_of(a->costs, a->v->lowered, stage, first, end).update_s;
}

static bool cost_of_stage(asked *a, int stage, const zp_units *part, zp_cut_cost *cost) {
  int chunks = a->problem.chunks, last = 0;
  const zp_variant *own = zp_stage_variant(a->s, a->point, stage, part, &a->limits);
  if (!own) return false;
  zp_stage_time time[ZP_MOST_CHUNKS];
  zp_step_end end = zp_chunks_cost(a->arena, a->s, &a->choice, own->lowered, stage, time);
  for (int k = 0; k < chunks; k++) cost[k] = cost_of_time(a, &time[k]);
  for (int k = 0; k < zp_cut_places(&a->problem); k++)
    if (a->problem.stage_of[k] == stage) last = a->problem.chunk_of[k];
  cost[last].reduce_s = end.reduce_s;
  cost[last].update_s = end.optimizer_s + end.offload_s + end.gather_s;
  cost[last].step_s = zp_cost_delayed_step(&end);
  return true;
}

static bool stage(void *user, int stage, const int64_t *cut, zp_cut_cost *cost, int64_t *work) {
  asked *a = user;
  zp_units part[ZP_MOST_CHUNKS];
  int64_t key[1 + 2 * ZP_CUT_MOST_CHUNKS] = {stage + 1};
  int chunks = a->problem.chunks;
  memcpy(a->choice.cut, cut, sizeof *cut * (size_t)(zp_cut_places(&a->problem) + 1));
  zp_parts_of_stage(&a->choice, stage, cut, part);
  for (int k = 0; k < chunks; k++) key[1 + 2 * k] = part[k].first, key[2 + 2 * k] = part[k].count;
  if (!a->known) a->known = ZP_NEW_ARRAY(a->arena, known_stage, STAGE_SLOTS);
  known_stage *at = &a->known[zp_hash_numbers(key, 1 + 2 * (size_t)chunks) % STAGE_SLOTS];
  bool known = memcmp(at->key, key, sizeof key) == 0;
  if (!known) {
    memcpy(at->key, key, sizeof key);
    at->fits = cost_of_stage(a, stage, part, at->cost);
  }
  *work = known ? ZP_CHUNKS_KNOWN : at->fits ? ZP_CHUNKS_WORK : ZP_CHUNKS_MISSED;
  if (at->fits) memcpy(cost, at->cost, sizeof *cost * (size_t)chunks);
  return at->fits;
}

/* ---- running the point's schedule ---- */

static void set_place(asked *a, int place, const zp_cut_cost *cost) {
  a->time[a->at[place]] = (zp_stage_time){
      .forward_s = cost->forward_s, .backward_s = cost->backward_s + cost->weights_s, .weights_s = cost->weights_s};
  a->message_s[place] = cost->message_s;
}

static void run_first(void *user, const zp_cut_first *first, double *end_s) {
  asked *a = user;
  for (int k = 0; k < first->known; k++) set_place(a, k, &first->cost[k]);
  a->run.known = first->known;
  a->run.rest_s = first->rest_s;
  a->run.first_rest_s = first->first_rest_s;
  a->run.last_rest_s = first->last_rest_s;
  a->run.end_s = end_s;
  zp_cost_microbatches(a->arena, &a->run);
  a->run.known = 0;
}

/* The order tables go again, their graph stays. */
static zp_order_graph *graph_of(asked *a) {
  if (a->graph) return a->graph;
  int64_t m = a->problem.microbatches, *actions = ZP_NEW_ARRAY(a->arena, int64_t, a->problem.stages);
  zp_arena *tables = zp_arena_new_alongside("orders", a->arena);
  a->run.order = zp_orders(tables, &a->choice, m, actions);
  a->run.actions = actions;
  a->graph = zp_order_graph_new(a->arena, &a->run);
  a->run.order = NULL;
  zp_arena_free(tables);
  return a->graph;
}

static void run(void *user, const zp_cut_cost *cost, double *end_s) {
  asked *a = user;
  zp_order_graph *graph = graph_of(a);
  for (int k = 0; k < zp_cut_places(&a->problem); k++) set_place(a, k, &cost[k]);
  a->run.end_s = end_s;
  zp_order_graph_run(graph);
}

static void add_weights(const asked *a, zp_cut_weights *weights) {
  for (int k = 0; k < zp_cut_places(&a->problem); k++) {
    weights[k].forwards += a->chain[k].forwards;
    weights[k].backwards += a->chain[k].backwards;
    weights[k].weights += a->chain[k].weights;
    weights[k].messages += a->chain[k].messages;
  }
}

static void forget_chain(const asked *a) { memset(a->chain, 0, sizeof *a->chain * (size_t)zp_cut_places(&a->problem)); }

static void chain(void *user, int stage, zp_cut_weights *weights) {
  asked *a = user;
  forget_chain(a);
  zp_order_graph_chain(graph_of(a), stage, a->chain);
  add_weights(a, weights);
}

static void through(void *user, int end, int stage, zp_cut_weights *weights) {
  asked *a = user;
  forget_chain(a);
  zp_order_graph_through(graph_of(a), end, stage, a->chain);
  add_weights(a, weights);
}

/* ---- making ---- */

static void set_places(asked *a, int *stage_of, int *chunk_of) {
  for (int k = 0; k < zp_cut_places(&a->problem); k++) {
    stage_of[k] = zp_chunk_stage(&a->choice, k, &chunk_of[k]);
    a->at[k] = stage_of[k] * a->problem.chunks + chunk_of[k];
  }
  a->problem.stage_of = stage_of;
  a->problem.chunk_of = chunk_of;
}

static void set_run(asked *a) {
  int places = zp_cut_places(&a->problem);
  a->time = ZP_NEW_ARRAY(a->arena, zp_stage_time, places);
  a->message_s = ZP_NEW_ARRAY(a->arena, double, places);
  a->at = ZP_NEW_ARRAY(a->arena, int, places);
  a->chain = ZP_NEW_ARRAY(a->arena, zp_place_weights, places);
  a->choice.cut = ZP_NEW_ARRAY(a->arena, int64_t, places + 1);
  a->run = (zp_pipeline_run){.stages = a->problem.stages,
                             .chunks = a->problem.chunks,
                             .choice = &a->choice,
                             .microbatches = a->problem.microbatches,
                             .buffers = zp_message_buffers(&a->choice, a->problem.microbatches),
                             .time = a->time,
                             .message_s = a->message_s};
}

zp_cut_problem *zp_cut_problem_of(zp_arena *arena, zp_search_cache *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  asked *a = ZP_NEW(arena, asked);
  *a = (asked){.arena = arena, .s = s, .point = point, .v = zp_variant_of(s, point), .limits = zp_search_limits(s)};
  a->choice = *c;
  a->last.place = -1;
  a->link = zp_machine_pipeline_link(&s->machine, c->tensor, c->pipeline, c->data, c->order);
  bool whole = zp_chunks(c) == 1;
  /* With all on the device times of a chunk are the same whatever else its stage has. */
  if (whole || (zp_all_on_device(c) && !zp_has_types(s))) a->costs = zp_stage_costs_new(arena, s, point);
  if (!whole && a->costs) a->sums_s = zp_bound_sums_before(arena, s, point);
  a->problem = (zp_cut_problem){.stages = c->pipeline,
                                .chunks = zp_chunks(c),
                                .units = zp_point_units(s, point),
                                .microbatches = zp_microbatches(s->in->spec, c),
                                .split = zp_schedule_splits(c->schedule),
                                .forward_s = a->v->forward_s,
                                .input_s = a->v->input_s,
                                .work_s = a->v->prefix_s,
                                .message_s = zp_least_message(s, point),
                                .ties_s = whole ? zp_least_ties(arena, s, point) : 0,
                                .update_s = zp_bound_update(s, point),
                                .end_s = zp_bound_step_end(s, point),
                                .bound_s = point->bound_s,
                                .alongside = s->arena,
                                .user = a,
                                .may_grow = may_grow,
                                .fits = fits,
                                .cost = cost,
                                .alike = alike,
                                .growing_update_s = growing_update_s,
                                .least = least,
                                .message_after_s = message_after_s,
                                .stage = stage,
                                .run_first = c->schedule == ZP_SCHEDULE_1F1B ? run_first : NULL,
                                .run = run,
                                .chain = chain,
                                .through = through};
  set_run(a);
  set_places(a, ZP_NEW_ARRAY(arena, int, zp_cut_places(&a->problem)),
             ZP_NEW_ARRAY(arena, int, zp_cut_places(&a->problem)));
  /* Where backwards hide more than sums take, nothing is said of what is left of them. */
  if (a->sums_s && least(a, 0, a->problem.units).reduce_s <= 0) a->sums_s = NULL;
  return &a->problem;
}

bool zp_prover_applies(const zp_search_input *in, const zp_cut_problem *problem, int prover, zp_cut_depth turn) {
  return !(in->without >> prover & 1) && zp_cut_provers[prover].applies(problem, turn);
}

static double enough_of(void *user) { return *(const double *)user; }

double zp_bound_before_cuts(zp_arena *arena, zp_search_cache *s, const zp_point *point, double end_s, double enough_s) {
  const zp_cut_task task = {.limit_s = enough_of, .user = &enough_s};
  zp_cut_problem *problem = zp_cut_problem_of(arena, s, point);
  problem->end_s = end_s;
  double bound = problem->bound_s;
  for (int i = 0; i < ZP_CUT_PROVERS; i++)
    if (zp_prover_applies(s->in, problem, i, ZP_CUT_BEFORE))
      bound = zp_later(bound, zp_cut_provers[i].prove(problem, &task, NULL, ZP_CUT_BEFORE).bound_s);
  return bound;
}
