/* SPDX-License-Identifier: Apache-2.0 */
/* A less exposed plan in the place of the fastest one. */
#include "sema_fixture.h"
#include <zplan/plan_file.h>
#include <zplan/proof.h>
#include <zplan/report.h>

static const char TEXT[] =
    "use std.nn\nuse std.hw\n"
    "model m(V = 512, S = 512, d = 1024, layers = 4) {\n"
    "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param wte: [V, d]\n  x = embedding(tokens, wte)\n"
    "  repeat h in 0..layers { x = x + linear(layer_norm(x), d) }\n"
    "  output loss = cross_entropy(matmul(x, transpose(wte)), labels)\n}\n"
    "train { batch = 4096  steps = 10  optimizer = adamw(lr = 1e-3)  data = synthetic(seed = 1) }\n"
    "cluster c { nodes = 16  node = std.hw.dgx_a100 }\n"
    "plan { zero = 1  tensor in [1, 2]  pipeline = 1  schedule = \"1f1b\" }\n";

static fixture load_robust(const char *robust) {
  const char *sets[] = {robust, "idle=0"};
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  zp_load_options options = {.library_dir = ZPLAN_SOURCE_DIR "/frontend/library", .set = sets, .n_set = 2};
  zp_source_text source = {"test.dz", TEXT, strlen(TEXT), false};
  f.spec = zp_load(f.arena, f.diags, "test.dz", &source, 1, &options);
  cr_assert(f.spec, "%s", printed(&f));
  return f;
}

static zp_plan *plan_of(const fixture *f) { return zp_search(f->arena, f->spec, (int)f->spec->cluster.ranks, NULL); }

/* The fastest has 128 ranks with one state, the other one 64: it is taken where as much time is allowed as it takes
 * more, and only there. */
Test(search_robust, takes_the_less_exposed_plan_within_what_is_allowed) {
  fixture plain = load_robust("robust=0"), half = load_robust("plan.data<=64");
  const zp_plan *fastest = plan_of(&plain), *other = plan_of(&half);
  cr_assert(fastest->feasible && other->feasible);
  cr_assert_eq(zp_choice_exposure(&fastest->best.choice), 128);
  cr_assert_eq(zp_choice_exposure(&other->best.choice), 64);
  cr_expect_null(fastest->fastest);
  double more = other->best.estimate.step_s / fastest->best.estimate.step_s - 1;
  cr_assert_gt(more, 0);
  for (int takes = 0; takes < 2; takes++) {
    char set[60];
    snprintf(set, sizeof set, "robust=%.9f", more * (takes ? 1.01 : 0.99));
    fixture f = load_robust(set);
    const zp_plan *plan = plan_of(&f);
    cr_assert(plan->feasible);
    cr_expect_eq(plan->fastest != NULL, takes == 1, "%s", set);
    const zp_plan *same = takes ? other : fastest;
    cr_expect_eq(plan->best.estimate.step_s, same->best.estimate.step_s);
    cr_expect_str_eq(zp_plan_hash(f.arena, plan->program), zp_plan_hash(f.arena, same->program));
    cr_expect_eq(plan->certificate.best_s, plan->best.estimate.step_s);
    cr_expect_eq(plan->certificate.bound_s, fastest->certificate.bound_s);
    if (takes) cr_expect_eq(plan->fastest->estimate.step_s, fastest->best.estimate.step_s);
    unload(&f);
  }
  unload(&plain);
  unload(&half);
}

/* It is a plan like others, and says what it was preferred to. */
Test(search_robust, preferred_plans_are_sound_and_say_so) {
  fixture f = load_robust("robust=90%");
  const zp_plan *plan = plan_of(&f);
  cr_assert(plan->feasible && plan->fastest);
  zp_json *json = zp_plan_to_json(f.arena, plan);
  const zp_json *degrees = zp_json_get(zp_json_get(json, "fastest"), "degrees");
  cr_expect_eq(zp_json_get_int(degrees, "data", 0), 128);
  zp_strings findings = {0};
  zp_verify(f.arena, f.spec, json, &findings);
  cr_expect_eq(findings.len, 0, "%s", findings.len ? findings.data[0] : "");
  const char *summary = zp_report_summary(f.arena, plan);
  cr_expect(strstr(summary, "preferred      to the fastest plan (tensor 1 pipeline 1 data 128 zero 1)"), "%s", summary);
  zp_json_free(json);
  unload(&f);
}

/* A search for any plan within a gap prefers none. */
Test(search_robust, gaps_that_are_asked_for_are_enough) {
  fixture f = load_robust("robust=90%");
  const zp_plan *plan = zp_search(f.arena, f.spec, (int)f.spec->cluster.ranks, &(zp_search_options){.gap = 0.01});
  cr_expect_null(plan->fastest);
  unload(&f);
}
