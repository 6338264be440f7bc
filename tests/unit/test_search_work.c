/* SPDX-License-Identifier: Apache-2.0 */
/* How much the search does for a few models: limits in counts, which are the same on every machine, a little above what
 * is needed today. Seconds are benchmarks (tests/bench/search_speed.sh). */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <zplan/plan.h>
#include "../support/turn.h"
#include "../support/user_spec.h"

typedef struct search_work {
  const char *file; /* of examples/; with a slash: of tests/ */
  int gpus;
  const char *set[4]; /* NULL: nothing */
  int top;
  int64_t most_priced, most_simulated, most_nodes, most_work, most_laid_out; /* as in zp_certificate */
  int64_t most_held;       /* bytes of the search; 0: does not matter */
  int64_t most_candidates; /* families of homes that are opened become many; 0: does not matter */
  double most_gap;         /* of what is searched, of the best plan; 0: it is proven */
} search_work;

#define TIERS " in [\"none\", \"cpu\", \"nvme\"]"
#define OFFLOAD                                                                                                        \
  "offload[optimizer]" TIERS, "offload[gradients]" TIERS, "offload[params]" TIERS, "offload[activations]" TIERS
#define UNIFORM "zero<=1", "schedule=\"1f1b\"", "sequence=false"

/* Two of them are tight: 0.46 and 0.50 % are left. */
static const search_work searches[] = {
    {"gpt1t", 800, {NULL}, 0, 4, 5, 0, 0, 16000, 0, 0, 0},
    {"gpt1t", 800, {"idle=0"}, 3, 4, 7, 0, 0, 2150, 0, 0, 0},
    {"gpt1t", 1024, {NULL}, 0, 21, 19, 6, 1130000, 93000, 0, 0, 0},
    {"gpt1t", 1024, {UNIFORM, "cut=\"layer\""}, 0, 36, 70, 170, 10000000, 3500, 0, 0, 0},
    {"gpt1t", 4096, {UNIFORM}, 0, 113, 63, 770, 23600000, 40000, 0, 0, 0},
    {"gpt1t", 16384, {"schedule=\"1f1b\""}, 0, 84, 150, 146000, 315000000, 54000, 0, 0, 0.0055},
    {"gpt1t", 16384, {"idle=0"}, 3, 99, 92, 0, 0, 156000, 0, 0, 0},
    {"gpt1t", 1024, {OFFLOAD}, 0, 76, 86, 5, 355000, 170000, 113000000, 440000, 0},
    {"data/moe_235b", 1024, {NULL}, 0, 79, 31, 0, 6800000, 620000, 282000000, 0, 0},
    {"gpt1t", 16384, {UNIFORM}, 0, 96, 64, 590000, 315000000, 123000, 0, 0, 0.005},
    {"gpt1t", 4096, {OFFLOAD}, 0, 52, 88, 0, 0, 285000, 0, 365000, 0},
};
enum { SEARCHES = sizeof searches / sizeof *searches, WHEN_LONG = 2 }; /* the last ones: a part of tests/long.sh */

static zp_spec *load(zp_arena *arena, const search_work *w) {
  const char *folder = strchr(w->file, '/') ? "tests" : "examples";
  const char *path = zp_format(arena, ZPLAN_SOURCE_DIR "/%s/%s.dz", folder, w->file);
  zp_spec *spec = user_spec_on(arena, path, w->gpus, w->set, 4);
  cr_assert(spec, "%s does not load", w->file);
  return spec;
}

static void expect_at_most(const search_work *w, const char *what, int64_t found, int64_t most) {
  cr_expect(found <= most, "%s on %d GPUs, %s: %lld %s, limit %lld", w->file, w->gpus,
            w->set[0] ? w->set[0] : "everything", (long long)found, what, (long long)most);
}

static void check(const search_work *w) {
  zp_arena *arena = zp_arena_new("work");
  const zp_plan *plan = zp_search(arena, load(arena, w), w->gpus, &(zp_search_options){.top = w->top});
  const zp_certificate *c = &plan->certificate;
  cr_assert(plan->feasible);
  const double gap = (c->best_s - c->searched_s) / c->best_s;
  cr_expect(gap <= w->most_gap, "%s on %d GPUs: a gap of %.3g %% is left, limit %.3g %%", w->file, w->gpus, 100 * gap,
            100 * w->most_gap);
  expect_at_most(w, "priced points", c->priced, w->most_priced);
  expect_at_most(w, "simulated cuts", c->simulated, w->most_simulated);
  expect_at_most(w, "nodes of branch and bound", c->cut_nodes, w->most_nodes);
  expect_at_most(w, "actions of branch and bound", c->cut_work, w->most_work);
  expect_at_most(w, "stages laid out", c->laid_out, w->most_laid_out);
  if (w->most_held) expect_at_most(w, "bytes", c->held_bytes, w->most_held);
  if (w->most_candidates) expect_at_most(w, "candidates", c->candidates, w->most_candidates);
  zp_arena_free(arena);
}

/* 64 MiB for a search that takes 129 MB: the sound plan that it has by then, a gap that says what is left open, and the
 * budget is kept. */
Test(search_work, keeps_its_budget, .timeout = 1200) {
  if (!has_turn(0, 3)) cr_skip_test("the turn of another search");
  const search_work w = {.file = "gpt1t", .gpus = 800};
  zp_arena *arena = zp_arena_new("budget");
  zp_spec *spec = load(arena, &w);
  const zp_plan *all = zp_search(arena, spec, 800, NULL);
  cr_expect(!all->certificate.short_of_memory && all->certificate.memory_bytes == ZP_SEARCH_MEMORY);
  spec->plans.data[spec->plan].search_memory = 64 << 20;
  const zp_plan *plan = zp_search(arena, spec, 800, NULL);
  const zp_certificate *c = &plan->certificate;
  cr_assert(plan->feasible && c->short_of_memory);
  cr_expect(c->held_bytes <= 64 << 20, "%lld bytes held", (long long)c->held_bytes);
  cr_expect(c->rejected[ZP_REJECT_BUDGET] > 0);
  cr_expect(c->bound_s <= all->best.estimate.step_s, "what was left open is in the gap");
  cr_expect(c->bound_s < c->best_s && plan->best.estimate.step_s >= all->best.estimate.step_s);
  zp_arena_free(arena);
}

/* Half of the work that the search takes: the sound plan that it has by then, and a gap that says what is left open. */
Test(search_work, ends_when_its_work_is_done, .timeout = 1200) {
  if (!has_turn(1, 3)) cr_skip_test("the turn of another search");
  const search_work w = {.file = "gpt1t", .gpus = 800};
  zp_arena *arena = zp_arena_new("budget");
  zp_spec *spec = load(arena, &w);
  const zp_plan *all = zp_search(arena, spec, 800, NULL);
  cr_expect(!all->certificate.short_of_work && all->certificate.work > 0);
  const int64_t given = all->certificate.work / 2;
  const zp_plan *plan = zp_search(arena, spec, 800, &(zp_search_options){.work = given});
  const zp_certificate *c = &plan->certificate;
  cr_assert(plan->feasible && c->short_of_work && !c->short_of_memory);
  cr_expect(c->work <= given + given / 4, "%lld units, given %lld", (long long)c->work, (long long)given);
  cr_expect(c->rejected[ZP_REJECT_BUDGET] > 0);
  cr_expect(c->bound_s <= all->best.estimate.step_s && plan->best.estimate.step_s >= all->best.estimate.step_s);
  plan = zp_search(arena, spec, 800, &(zp_search_options){.work = 1000});
  cr_expect(!plan->feasible && plan->stopped && strstr(plan->why_not, "all the work"));
  zp_arena_free(arena);
}

/* A schedule that needs too much memory: which point comes nearest took 22 million units once. */
Test(search_work, a_refusal_takes_little_more_than_a_plan, .timeout = 1200) {
  if (!has_turn(2, 3)) cr_skip_test("the turn of another search");
  const search_work w = {.file = "gpt1t", .gpus = 800, .set = {"schedule=\"zb_h1\""}};
  zp_arena *arena = zp_arena_new("refusal");
  const zp_plan *plan = zp_search(arena, load(arena, &w), 800, NULL);
  cr_assert(!plan->feasible && !plan->stopped);
  cr_expect(plan->miss.have_bytes > 0 && plan->miss.need_bytes > plan->miss.have_bytes && plan->miss.is_partial);
  cr_expect(plan->certificate.work <= 4000000, "%lld units", (long long)plan->certificate.work);
  zp_arena_free(arena);
}

/* Nothing is known when not even the first plan could be looked for: that is no "does not fit". */
Test(search_work, stops_without_a_plan, .timeout = 1200) {
  if (!has_turn(3, 3)) cr_skip_test("the turn of another search");
  const search_work w = {.file = "gpt1t", .gpus = 800};
  zp_arena *arena = zp_arena_new("budget");
  zp_spec *spec = load(arena, &w);
  spec->plans.data[spec->plan].search_memory = 1 << 20;
  const zp_plan *plan = zp_search(arena, spec, 800, NULL);
  cr_expect(!plan->feasible && plan->stopped && plan->miss.have_bytes == 0);
  cr_expect(plan->why_not && strstr(plan->why_not, "memory budget"));
  zp_arena_free(arena);
}

Test(search_work, counts, .timeout = 1200) {
  for (int i = 0; i < SEARCHES - (getenv("ZPLAN_LONG") ? 0 : WHEN_LONG); i++)
    if (has_turn(i, 3)) check(&searches[i]);
}
