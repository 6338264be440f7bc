/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound over cuts: its rules against the simulation, its answers against all cuts, the gap of models of real
 * size. Random instances from a fixed seed. */
#include <math.h>
#include "../../planner/cuts/cut_space.h"
#include "../../planner/cuts/labels.h"
#include "../../planner/cuts/provers.h"
#include "../../planner/search/bounds/cut_problem.h"
#include "../../planner/search/bounds/bound.h"
#include "../../planner/search/bounds/cut.h"
#include "../../planner/search/bounds/fit.h"
#include "../../planner/search/refine.h"
#include "../../planner/search/space/procedures.h"
#include "planner_models.h"
#include "sample.h"

enum { PLANS = 4000, INSTANCES = 1600, CHAINS = 1200 };

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(search_cuts, .init = setup, .fini = teardown, .timeout = 1200);

static uint64_t state;
static int64_t random_below(int64_t n) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int64_t)((state >> 33) % (uint64_t)n);
}

/* ---- random pipelines: links from much faster to much slower than the stages, few and many micro-batches ---- */

typedef struct trial {
  zp_search_progress progress;
  zp_point point;
} trial;

static zp_cluster random_cluster(int devices) {
  zp_cluster c = gpu_cluster(1);
  c.node.devices = random_below(2) ? devices : 1;
  c.nodes = devices / c.node.devices;
  c.node.device.context_bytes = 1000;
  c.node.device.flop_per_s_fp32 = 1e9 * (double)(1 + random_below(200));
  c.node.link.bytes_per_s = c.node.nic.bytes_per_s = 1e7 * exp(0.01 * (double)random_below(700));
  c.node.nic.latency_s = 1e-6 * (double)random_below(100);
  c.node.device.is_cpu = random_below(6) == 0;
  c.node.device.cores = 4;
  return c;
}

/* A point with one chunk a stage; false when the decisions do not go together. */
static bool random_trial(trial *t, int stages, int64_t layers) {
  static const model_style styles[] = {STYLE_GPT, STYLE_LLAMA, STYLE_PARALLEL};
  static const zp_schedule schedules[] = {ZP_SCHEDULE_1F1B, ZP_SCHEDULE_1F1B, ZP_SCHEDULE_GPIPE, ZP_SCHEDULE_ZB_H1,
                                          ZP_SCHEDULE_ZB_H2};
  int data = 1 + (int)random_below(3), devices = stages * data;
  model_size size = {.style = styles[random_below(3)],
                     .V = 40 + random_below(2000),
                     .S = 8,
                     .d = 16,
                     .layers = layers,
                     .heads = 2,
                     .kv_heads = 2,
                     .ff = 64,
                     .tied = random_below(2)};
  bool fine = size.style != STYLE_PARALLEL && size.V % 3 == 0; /* as many parts as there were layers */
  if (fine) size.layers = (layers + 1) / 2;
  zp_choice c = {.tensor = 1,
                 .fine = fine,
                 .pipeline = stages,
                 .data = data,
                 .microbatch = 1,
                 .schedule = schedules[random_below(5)],
                 .zero = data > 1 ? (int)random_below(4) : 0,
                 .recompute = (zp_recompute)random_below(3)};
  zp_cluster cluster = random_cluster(devices);
  zp_spec *spec = build_spec(arena, &size, cluster, data * (1 + random_below(random_below(2) ? 8 : 60)));
  name_every_schedule(spec);
  zp_machine *machine = ZP_NEW(arena, zp_machine);
  *machine = zp_machine_make(&spec->cluster, spec->train.precision, devices);
  zp_search_start(&t->progress, spec, machine, NULL);
  zp_mode_set modes = random_below(2) ? zp_set_of_mode(zp_stage_mode_of(c.recompute, false))
                                      : zp_set_of_mode(ZP_RECOMPUTE_NONE) | zp_set_of_mode(ZP_RECOMPUTE_SELECTIVE) |
                                            zp_set_of_mode(ZP_RECOMPUTE_FULL);
  if (zp_choice_refusal(&c, spec) || !zp_search_point(t->progress.s, &c, modes, &t->point)) return false;
  if (random_below(2))
    t->progress.s->limit_bytes = zp_memory_floor(t->progress.s, &t->point) * (10 + random_below(20)) / 10;
  zp_find_least_work(t->progress.s, &t->point, ZP_ASK_ALL);
  return zp_modes_are_ordered(t->progress.s, &t->point);
}

static bool random_1f1b(trial *t, int stages, int64_t layers) {
  return random_trial(t, stages, layers) && t->point.choice.schedule == ZP_SCHEDULE_1F1B;
}

static void random_cut(int64_t *cut, int stages, int64_t units) {
  cut[0] = 0, cut[stages] = units;
  for (int k = 1; k < stages; k++) {
    int64_t most = units - (stages - k) - cut[k - 1], mean = 2 * (units - cut[k - 1]) / (stages - k + 1);
    cut[k] = cut[k - 1] + 1 + random_below(mean < most ? mean : most);
  }
}

/* Step time of a cut into any number of chunks a stage; HUGE_VAL: does not fit. */
static double step_of(trial *t, int64_t *cut) {
  const zp_variant *own[32];
  zp_units part[ZP_MOST_CHUNKS];
  zp_limits limits = zp_search_limits(t->progress.s);
  for (int i = 0; i < t->point.choice.pipeline; i++) {
    zp_parts_of_stage(&t->point.choice, i, cut, part);
    own[i] = zp_stage_variant(t->progress.s, &t->point, i, part, &limits);
    if (!own[i]) return HUGE_VAL;
  }
  zp_arena *scratch = zp_arena_new("step");
  zp_choice c = zp_choice_of_cut(t->progress.s, &t->point, cut, own);
  double step = zp_cost_step(scratch, zp_search_program(scratch, t->progress.s, &c), &t->progress.s->machine);
  zp_arena_free(scratch);
  return step;
}

/* ---- 1F1B: no rule drops a cut that is below the target ---- */

Test(search_cuts, rules_never_drop_a_better_cut) {
  int64_t partial = 0;
  int refused = 0, plans = 0;
  state = 1;
  while (plans < sample_of(PLANS)) {
    int stages = 2 + (int)random_below(15);
    int64_t layers = stages + random_below(3 * stages), cut[32];
    trial t = {0};
    for (bool made = random_1f1b(&t, stages, layers); made && random_below(8);) {
      random_cut(cut, stages, zp_point_units(t.progress.s, &t.point));
      double step = step_of(&t, cut);
      if (!isfinite(step)) continue;
      plans++;
      const zp_cut_problem *problem = zp_cut_problem_of(t.progress.s->arena, t.progress.s, &t.point);
      int by = zp_cut_refusal(problem, cut, step * (1 + 1e-9));
      cr_assert(by < 0, "plan %d: of %d stages, zero %d: %.12g s is dropped after %d stages", plans, stages,
                t.point.choice.zero, step, by);
      by = zp_cut_refusal(problem, cut, step * (1 - 1e-6));
      cr_assert(by >= 0 || t.progress.in->spec->model == NULL, "plan %d: a cut that is too slow is kept", plans);
      refused += by < stages;
      partial += stages;
    }
    zp_search_end(&t.progress);
  }
  cr_expect(partial >= 8 * (int64_t)sample_of(PLANS), "%lld partial plans", (long long)partial);
  cr_expect(refused > sample_of(PLANS) / 2, "only %d of %d slow cuts are dropped before they are whole", refused,
            plans);
}

/* ---- what fits is what the layout says, in whatever order it is asked ---- */

Test(search_cuts, remembered_fits_are_those_of_layouts) {
  int64_t asked = 0, laid_out = 0;
  int fitting = 0;
  state = 5;
  for (int i = 0; i < sample_of(INSTANCES);) {
    int stages = 2 + (int)random_below(5);
    trial t = {0};
    if (random_trial(&t, stages, stages + random_below(12))) {
      zp_limits limits = zp_search_limits(t.progress.s);
      zp_remember_fits(t.progress.s, &t.point, &limits);
      for (int k = 0; k < 100; k++) {
        int64_t units = zp_point_units(t.progress.s, &t.point), first = random_below(units);
        zp_units part = {first, 1 + random_below(units - first)};
        int stage = (int)random_below(stages), mode = (int)random_below(t.point.n_modes);
        const zp_lowered *lowered = t.progress.s->variants.data[t.point.modes[mode]].lowered;
        zp_limits of_arena = limits;
        of_arena.device -=
            zp_communicators_of(&t.progress.in->spec->cluster, &t.point.choice, lowered->ties).total_bytes;
        zp_memory need = zp_stage_footprint(lowered, &t.point.choice, stage, &part, NULL);
        bool fits =
            zp_memory_of_arena(&need) <= of_arena.device && need.host <= limits.host && need.nvme <= limits.nvme;
        bool found = zp_first_mode_that_fits(t.progress.s, &t.point, mode, mode + 1, stage, &part, &limits) == mode;
        cr_assert_eq(found, fits);
        fitting += fits;
        asked++;
      }
      laid_out += t.progress.s->memo.fits.laid_out;
      i++;
    }
    zp_search_end(&t.progress);
  }
  cr_expect(fitting > asked / 10 && fitting < asked * 9 / 10, "%d of %lld fit", fitting, (long long)asked);
  cr_expect(2 * laid_out < asked, "%lld of %lld stages were laid out", (long long)laid_out, (long long)asked);
}

/* What fits of several chunks a stage: each stage is asked for several times and laid out once. */
Test(search_cuts, remembered_fits_of_chunks_are_those_of_layouts) {
  int64_t asked = 0, laid_out = 0;
  int fitting = 0;
  state = 6;
  for (int i = 0; i < sample_of(INSTANCES);) {
    int stages = 2 + (int)random_below(3);
    trial t = {0};
    if (random_trial(&t, stages, 2 * stages + random_below(12)) &&
        zp_point_units(t.progress.s, &t.point) >= 2 * stages) {
      t.point.choice.schedule = ZP_SCHEDULE_INTERLEAVED;
      t.point.choice.chunks = 2;
      zp_limits limits = zp_search_limits(t.progress.s);
      zp_remember_fits(t.progress.s, &t.point, &limits);
      for (int k = 0; k < 100; k++) {
        zp_units part[2] = {{0, 1 + random_below(2)}, {zp_point_units(t.progress.s, &t.point) - 1, 1}};
        int stage = (int)random_below(stages), first = (int)random_below(t.point.n_modes), expected = -1;
        for (int mode = first; mode < t.point.n_modes && expected < 0; mode++) {
          const zp_lowered *lowered = t.progress.s->variants.data[t.point.modes[mode]].lowered;
          int64_t device =
              limits.device -
              zp_communicators_of(&t.progress.in->spec->cluster, &t.point.choice, lowered->ties).total_bytes;
          zp_memory need = zp_stage_footprint(lowered, &t.point.choice, stage, part, NULL);
          if (zp_memory_of_arena(&need) <= device && need.host <= limits.host && need.nvme <= limits.nvme)
            expected = mode;
        }
        cr_assert_eq(zp_first_mode_that_fits(t.progress.s, &t.point, first, t.point.n_modes, stage, part, &limits),
                     expected);
        fitting += expected >= 0;
        asked++;
      }
      laid_out += t.progress.s->memo.fits.laid_out;
      i++;
    }
    zp_search_end(&t.progress);
  }
  cr_expect(fitting > asked / 10 && fitting < asked * 9 / 10, "%d of %lld fit", fitting, (long long)asked);
  cr_expect(3 * laid_out < 2 * asked, "%lld of %lld stages were laid out", (long long)laid_out, (long long)asked);
}

/* ---- labels of first and last stages bound every plan that they belong to ---- */

typedef struct labelled_cut {
  int64_t cut[32];
  double step_s;
  zp_range_cost cost[32];
  double prefix[33][64], suffix[33][96];
} labelled_cut;

static void price_stages(trial *t, zp_stage_costs *costs, labelled_cut *c) {
  zp_limits limits = zp_search_limits(t->progress.s);
  for (int i = 0; i < t->point.choice.pipeline; i++) {
    zp_units part = {c->cut[i], c->cut[i + 1] - c->cut[i]};
    const zp_variant *own = zp_stage_variant(t->progress.s, &t->point, i, &part, &limits);
    zp_stage_cost cost = zp_stage_cost_of(costs, own->lowered, i, c->cut[i], c->cut[i + 1]);
    c->cost[i] = (zp_range_cost){cost.time.forward_s, cost.time.backward_s, cost.reduce_s,
                                 cost.update_s + cost.offload_s, cost.apart_s};
  }
}

static bool random_labelled_cut(trial *t, zp_stage_costs *costs, zp_labels *labels, labelled_cut *c) {
  int stages = t->point.choice.pipeline;
  random_cut(c->cut, stages, zp_point_units(t->progress.s, &t->point));
  c->step_s = step_of(t, c->cut);
  if (!isfinite(c->step_s)) return false;
  price_stages(t, costs, c);
  zp_prefix_start(labels, c->prefix[0]);
  for (int i = 0; i < stages; i++) zp_prefix_extend(labels, c->prefix[i], i, &c->cost[i], c->prefix[i + 1]);
  for (int i = stages; i-- > 0;) zp_suffix_extend(labels, c->suffix[i + 1], i, &c->cost[i], c->suffix[i]);
  return true;
}

static bool joins(zp_labels *labels, const labelled_cut *c, int stage, double target_s) {
  zp_prefix_view prefix = zp_prefix_view_of(labels, c->prefix[stage], stage);
  return zp_labels_join(labels, &prefix, c->suffix[stage], stage, target_s);
}

/* Alone, and merged with labels of another cut. */
static void check_labels(zp_labels *labels, labelled_cut *c, const labelled_cut *other, int stages) {
  double target = c->step_s * (1 + 1e-9);
  for (int k = 0; k <= stages; k++) {
    cr_assert(joins(labels, c, k, target), "%d of %d stages", k, stages);
    zp_label_merge(c->prefix[k], other->prefix[k], zp_prefix_length(k));
    zp_label_merge(c->suffix[k], other->suffix[k], k < stages ? zp_suffix_length(stages - k) : 0);
    cr_assert(joins(labels, c, k, target), "merged, %d of %d", k, stages);
  }
}

Test(search_cuts, labels_are_below_the_simulation) {
  int plans = 0, close = 0;
  state = 6;
  while (plans < sample_of(PLANS)) {
    int stages = 2 + (int)random_below(15);
    trial t = {0};
    if (random_1f1b(&t, stages, stages + random_below(3 * stages))) {
      const zp_pipe pipe = {stages,
                            zp_point_units(t.progress.s, &t.point),
                            zp_microbatches(t.progress.in->spec, &t.point.choice),
                            zp_least_message(t.progress.s, &t.point),
                            zp_least_ties(t.progress.s->arena, t.progress.s, &t.point),
                            0};
      zp_labels *labels = zp_labels_new(t.progress.s->arena, &pipe);
      zp_stage_costs *costs = zp_stage_costs_new(t.progress.s->arena, t.progress.s, &t.point);
      static labelled_cut c, other;
      bool fits = random_labelled_cut(&t, costs, labels, &other);
      for (int i = 0; i < 8 && fits && random_labelled_cut(&t, costs, labels, &c); i++) {
        double bound = zp_prefix_bound(c.prefix[stages]);
        cr_assert(bound <= c.step_s, "plan %d: %.12g of %.12g", plans, bound, c.step_s);
        close += bound > c.step_s * (1 - 1e-3);
        check_labels(labels, &c, &other, stages);
        plans++;
      }
    }
    zp_search_end(&t.progress);
  }
  cr_expect(close > sample_of(PLANS) / 2, "only %d of %d whole cuts are bounded within a thousandth", close, plans);
}

/* ---- equal to all cuts: labels for 1F1B, chains for the other schedules, as in settle.c ---- */

typedef struct best_cut {
  trial *t;
  double best_s;
} best_cut;

static void see_cut(void *user, int64_t *cut) {
  best_cut *b = user;
  b->best_s = fmin(b->best_s, step_of(b->t, cut));
}
static double limit_of(void *user) { return ((best_cut *)user)->best_s; }
static double price_of(void *user, int64_t *cut) {
  best_cut *b = user;
  double step = step_of(b->t, cut);
  b->best_s = fmin(b->best_s, step);
  return step;
}

static double branch(trial *t, best_cut *found) {
  const zp_cut_task task = {limit_of, price_of, found};
  const zp_cut_problem *problem = zp_cut_problem_of(t->progress.s->arena, t->progress.s, &t->point);
  return (problem->run_first ? zp_prove_by_labels : zp_prove_by_chains)(problem, &task, &t->progress.effort.cuts,
                                                                        ZP_CUT_DEEP)
      .bound_s;
}

Test(search_cuts, equal_to_all_cuts) {
  int improved = 0;
  state = 2;
  for (int i = 0; i < sample_of(INSTANCES);) {
    int stages = 2 + (int)random_below(5);
    int64_t layers = stages + random_below(7), cut[16];
    trial t = {0};
    if (random_trial(&t, stages, layers)) {
      best_cut all = {&t, HUGE_VAL}, found = {&t, HUGE_VAL};
      cr_assert(zp_cut_all(t.progress.s, &t.point, see_cut, &all));
      random_cut(cut, stages, zp_point_units(t.progress.s, &t.point));
      if (isfinite(all.best_s)) found.best_s = fmin(fmax(step_of(&t, cut), all.best_s * 1.5), all.best_s * 3);
      double first = found.best_s;
      t.point.bound_s = zp_bound(t.progress.s, &t.point);
      double bound = isfinite(first) ? branch(&t, &found) : 0;
      if (isfinite(first)) {
        cr_assert(fabs(found.best_s / all.best_s - 1) < 1e-9, "instance %d: found %.12g, optimum %.12g", i,
                  found.best_s, all.best_s);
        cr_assert(bound <= all.best_s && bound >= all.best_s * (1 - ZP_GAP_TOLERANCE),
                  "instance %d: bound %.12g of %.12g", i, bound, all.best_s);
        improved += found.best_s < first;
      }
      i++;
    }
    zp_search_end(&t.progress);
  }
  /* Not all fit: random memory leaves some without a cut, and some cuts are the best as drawn. */
  cr_expect(improved > sample_of(INSTANCES) * 2 / 5, "%d instances had a cut to find", improved);
}

/* ---- the same by chains, for every schedule and any number of chunks ---- */

typedef struct every_cut {
  best_cut *best;
  int64_t *cut, units;
  int chunks;
} every_cut;

static void see_chunks(every_cut *e, int chunk) {
  if (chunk == e->chunks) {
    e->best->best_s = fmin(e->best->best_s, step_of(e->best->t, e->cut));
    return;
  }
  int64_t most = e->units - (e->chunks - 1 - chunk);
  for (int64_t end = chunk == e->chunks - 1 ? most : e->cut[chunk] + 1; end <= most; end++) {
    e->cut[chunk + 1] = end;
    see_chunks(e, chunk + 1);
  }
}

/* All schedules; of a one-chunk point the trial may be made into one of several chunks. */
static void make_chunks(trial *t, zp_point *point) {
  static const zp_schedule schedules[] = {ZP_SCHEDULE_INTERLEAVED, ZP_SCHEDULE_ZB_V, ZP_SCHEDULE_DUALPIPEV};
  zp_choice c = point->choice;
  c.schedule = schedules[random_below(3)];
  c.chunks = 2;
  zp_mode_set modes = 0;
  for (int i = 0; i < point->n_modes; i++) modes |= zp_set_of_mode(t->progress.s->variants.data[point->modes[i]].mode);
  zp_point chunked;
  if (zp_point_units(t->progress.s, point) < 2 * c.pipeline || zp_choice_refusal(&c, t->progress.in->spec) ||
      !zp_search_point(t->progress.s, &c, modes, &chunked))
    return;
  zp_find_least_work(t->progress.s, &chunked, ZP_ASK_ALL);
  *point = chunked;
}

Test(search_cuts, chains_equal_to_all_cuts) {
  int improved = 0, chunked = 0, closed = 0;
  state = 77; /* the 2,643rd needs least times of each kind of work by itself */
  for (int i = 0; i < sample_of(CHAINS);) {
    int stages = 2 + (int)random_below(4);
    int64_t layers = stages + random_below(6), cut[32] = {0};
    trial t = {0};
    if (random_trial(&t, stages, layers)) {
      if (random_below(2)) make_chunks(&t, &t.point);
      best_cut all = {&t, HUGE_VAL}, found = {&t, HUGE_VAL};
      see_chunks(&(every_cut){&all, cut, zp_point_units(t.progress.s, &t.point), zp_model_chunks(&t.point.choice)}, 0);
      if (isfinite(all.best_s)) found.best_s = all.best_s * (1.2 + 0.01 * (double)random_below(100));
      double first = found.best_s;
      t.point.bound_s = 0;
      t.progress.effort.cuts.work_left = 1 << 28;
      const zp_cut_task task = {limit_of, price_of, &found};
      const zp_cut_problem *problem = zp_cut_problem_of(t.progress.s->arena, t.progress.s, &t.point);
      double bound =
          isfinite(first) ? zp_prove_by_chains(problem, &task, &t.progress.effort.cuts, ZP_CUT_DEEP).bound_s : 0;
      if (isfinite(first)) {
        cr_assert(bound <= all.best_s * (1 + 1e-15), "instance %d: %s, bound %.12g of %.12g", i,
                  zp_schedule_name(t.point.choice.schedule), bound, all.best_s);
        cr_assert(fabs(found.best_s / all.best_s - 1) < 1e-9 || bound < all.best_s * (1 - ZP_GAP_TOLERANCE),
                  "instance %d: %s, found %.12g, optimum %.12g", i, zp_schedule_name(t.point.choice.schedule),
                  found.best_s, all.best_s);
        cr_assert(bound >= all.best_s * (1 - ZP_GAP_TOLERANCE), "instance %d: %s, bound %.12g of %.12g", i,
                  zp_schedule_name(t.point.choice.schedule), bound, all.best_s);
        improved += found.best_s < first;
        closed++;
        chunked += t.point.choice.chunks > 1;
      }
      i++;
    }
    zp_search_end(&t.progress);
  }
  cr_expect(improved == closed && chunked > sample_of(CHAINS) / 20, "%d improved of %d, %d with chunks", improved,
            closed, chunked);
}

/* ---- shares of chains ---- */

static double value_of_game(const double *value, int rows, int columns, bool other) {
  zp_arena *scratch = zp_arena_new("game");
  int known = columns / 3;
  zp_matrix_game *game = zp_matrix_game_new(scratch, rows, columns, known);
  double *share = ZP_NEW_ARRAY(scratch, double, rows), *line = ZP_NEW_ARRAY(scratch, double, rows + columns);
#define VALUE(r, c) (other ? 3 - value[(c)*rows + (r)] : value[(r)*columns + (c)])
  int played = 0, seen = known;
  while (played < rows || seen < columns) { /* rows and columns in turn */
    if (played < rows) {
      for (int c = 0; c < seen; c++) line[c] = VALUE(played, c);
      zp_matrix_game_add_row(game, line);
      played++;
    }
    if (seen < columns) {
      for (int r = 0; r < played; r++) line[r] = VALUE(r, seen);
      zp_matrix_game_add_column(game, line);
      seen++;
    }
  }
  zp_matrix_game_shares(game, share);
  double least = HUGE_VAL;
  for (int c = 0; c < columns; c++) {
    double sum = 0;
    for (int r = 0; r < rows; r++) sum += share[r] * VALUE(r, c);
    least = fmin(least, sum);
  }
#undef VALUE
  zp_arena_free(scratch);
  return least;
}

/* What rows can make sure of is what columns cannot be kept below (von Neumann 1928): the two games solved apart
 * meet. */
Test(search_cuts, games_have_a_value) {
  state = 6;
  for (int i = 0; i < 200; i++) {
    double value[900];
    int rows = 1 + (int)random_below(30), columns = 1 + (int)random_below(30);
    for (int k = 0; k < rows * columns; k++) value[k] = 0.5 + 0.001 * (double)random_below(random_below(2) ? 2 : 1500);
    double low = value_of_game(value, rows, columns, false), high = 3 - value_of_game(value, columns, rows, true);
    cr_assert(low <= high + 1e-9 && low > high - 1e-7, "game %d of %d x %d: %.12g and %.12g", i, rows, columns, low,
              high);
  }
}

/* ---- models of real size ---- */

static zp_spec *trillion(void) {
  model_size size = {STYLE_GPT, 51200, 2048, 17408, 298, 128, 128, 4 * 17408, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(64), 2048);
  spec->train.precision = ZP_PREC_MIXED_FP16;
  pin(&spec->plans.data[0].schedule, ZP_SCHEDULE_1F1B);
  pin(&spec->plans.data[0].sequence, 0);
  pin(&spec->plans.data[0].recompute, ZP_RECOMPUTE_FULL);
  pin(&spec->plans.data[0].recompute_shard, 1);
  pin(&spec->plans.data[0].cut, 0);
  return spec;
}

Test(search_cuts, a_trillion_parameters_without_a_gap) {
  const zp_plan *plan = zp_search(arena, trillion(), 1024, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->certificate.bound_s, plan->certificate.best_s);
  cr_expect(plan->certificate.cut_nodes > 0 && plan->certificate.cut_pruned[ZP_CUT_WINDOW] > 0);
}

/* Every stage chooses what it recomputes, and where in a layer it ends. */
Test(search_cuts, a_trillion_parameters_in_parts_without_a_gap) {
  zp_spec *spec = trillion();
  zp_constraints *c = &spec->plans.data[0];
  c->recompute = c->recompute_shard = c->cut = (zp_limit){0};
  pin(&c->cut, 1);
  const zp_plan *plan = zp_search(arena, spec, 1024, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->certificate.bound_s, plan->certificate.best_s);
}

/* Labels say little of pipelines that are never full. */
Test(search_cuts, few_micro_batches_without_a_gap) {
  for (int64_t batch = 2; batch <= 8; batch += 2) {
    model_size size = {STYLE_GPT, 2000, 8, 16, 46, 2, 2, 64, false};
    zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), batch);
    zp_constraints *c = &spec->plans.data[0];
    pin(&c->tensor, 1), pin(&c->pipeline, 12), pin(&c->data, 1), pin(&c->microbatch, 1), pin(&c->cut, 0);
    pin(&c->schedule, ZP_SCHEDULE_1F1B);
    const zp_plan *plan = zp_search(arena, spec, 12, NULL);
    cr_assert(plan->feasible);
    cr_expect_eq(plan->certificate.bound_s, plan->certificate.best_s, "%lld micro-batches: gap %g", (long long)batch,
                 plan->certificate.best_s / plan->certificate.bound_s - 1);
  }
}

/* Stops early, and says how far off it may be. */
Test(search_cuts, the_gap_of_the_plan_block) {
  zp_spec *spec = trillion();
  const zp_plan *exact = zp_search(arena, spec, 1024, NULL);
  spec->plans.data[0].search_gap = 0.05;
  const zp_plan *plan = zp_search(arena, spec, 1024, NULL);
  const zp_certificate *c = &plan->certificate;
  cr_expect(c->best_s <= 1.05 * c->bound_s * (1 + 1e-15), "gap %g", c->best_s / c->bound_s - 1);
  cr_expect(c->bound_s <= exact->certificate.best_s);
  cr_expect(c->cut_nodes < exact->certificate.cut_nodes, "nothing was left out");
}
