/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of plan files share: models of odd sizes, plans of given choices, findings of the verifier. */
#ifndef ZPLAN_VERIFY_TESTING_H
#define ZPLAN_VERIFY_TESTING_H

#include "planner_models.h"

static zp_arena *arena; /* of one test */
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }

static const model_size GPT = {STYLE_GPT, 1001, 16, 60, 7, 5, 5, 240, true};
enum { BATCH = 24 };

static inline zp_choice choice_of(int tensor, int pipeline, int data, int zero, int64_t microbatch, bool full,
                                  bool shard, int64_t *cut) {
  return (zp_choice){.tensor = tensor,
                     .pipeline = pipeline,
                     .data = data,
                     .zero = zero,
                     .microbatch = microbatch,
                     .recompute = full ? ZP_RECOMPUTE_FULL : ZP_RECOMPUTE_NONE,
                     .recompute_shard = shard,
                     .cut = cut};
}

static inline zp_choice fine_choice(int64_t *cut) {
  zp_choice c = choice_of(1, 2, 2, 0, 2, false, false, cut);
  c.fine = true;
  return c;
}

/* What the search would make of the choice: lowered, priced, simulated. */
static inline zp_plan *plan_of(const zp_spec *spec, zp_choice c) {
  const char *reason = "none given";
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  plan->arena = arena, plan->spec = spec, plan->feasible = true;
  plan->machine = zp_machine_make(&spec->cluster, spec->train.precision, c.tensor * c.pipeline * c.data);
  plan->devices = plan->machine.devices;
  zp_sharding *sharding = zp_shard(arena, spec->model, &plan->machine, c.tensor, 1, false, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered **l = zp_lower_stages(arena, spec, sharding, &c, &reason);
  cr_assert(l, "%s", reason);
  plan->program = zp_program_make(arena, zp_price_stages(l, &plan->machine, &c), &c);
  plan->best = (zp_candidate){plan->program->choice, zp_simulate(arena, plan->program, &plan->machine)};
  return plan;
}

static inline zp_strings findings_of(const zp_spec *spec, const zp_json *json) {
  zp_strings findings = {0};
  zp_verify(arena, spec, json, &findings);
  return findings;
}

static inline void expect_sound(const zp_plan *plan) {
  zp_json *json = zp_plan_to_json(arena, plan);
  zp_strings findings = findings_of(plan->spec, json);
  cr_expect_eq(findings.len, 0, "%s", findings.len ? findings.data[0] : "");
  zp_json_free(json);
}

#endif
