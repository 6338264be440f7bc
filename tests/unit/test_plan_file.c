/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: what is written is sound, reads back as the same choice and has a name of its own. test_verify.c has the
 * files that are not sound. */
#include "verify_testing.h"

TestSuite(plan_file, .init = setup, .fini = teardown);

static const model_size LLAMA = {STYLE_LLAMA, 1000, 16, 96, 6, 6, 2, 256, false};

/* ---- sound plans ---- */

Test(plan_file, plans_of_lowering_are_sound) {
  static const struct {
    int tensor, pipeline, data, zero;
    int64_t microbatch;
  } row[] = {{1, 1, 1, 0, 1}, {2, 1, 1, 0, 2}, {3, 2, 1, 0, 1}, {1, 4, 2, 1, 3},
             {2, 3, 2, 1, 2}, {1, 2, 3, 0, 4}, {1, 8, 1, 0, 24}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    for (int style = 0; style < 2; style++)
      for (int keep = 0; keep < 3; keep++) {
        zp_arena_mark mark = zp_arena_get_mark(arena);
        zp_spec *spec = build_spec(arena, style ? &LLAMA : &GPT, cpu_cluster(), BATCH);
        int64_t units = style ? 8 : 9, *cut = ZP_NEW_ARRAY(arena, int64_t, row[i].pipeline + 1);
        for (int s = 1; s <= row[i].pipeline; s++) cut[s] = units * s / row[i].pipeline;
        expect_sound(plan_of(spec, choice_of(row[i].tensor, row[i].pipeline, row[i].data, row[i].zero,
                                             row[i].microbatch, keep > 0, keep == 2, cut)));
        zp_arena_rewind(arena, mark);
      }
}

Test(plan_file, other_precisions_and_optimizers_are_sound) {
  static const zp_precision precision[] = {ZP_PREC_F64, ZP_PREC_F32, ZP_PREC_MIXED_FP16, ZP_PREC_MIXED_BF16};
  for (int i = 0; i < 4; i++)
    for (int sgd = 0; sgd < 3; sgd++) {
      zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
      spec->train.precision = precision[i];
      if (sgd) spec->train.optimizer = ZP_OPT_SGD, spec->train.momentum = sgd == 2 ? 0.9 : 0;
      expect_sound(plan_of(spec, choice_of(2, 2, 2, 1, 1, true, true, (int64_t[]){0, 5, 9})));
    }
}

Test(plan_file, what_the_search_finds_is_sound) {
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), 8);
  expect_sound(zp_search(arena, spec, 4, NULL));
}

/* ---- the file ---- */

Test(plan_file, text_is_the_same_twice) {
  const char *text[2];
  for (int i = 0; i < 2; i++) {
    zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
    zp_json *json = zp_plan_to_json(arena, plan_of(spec, choice_of(2, 2, 2, 1, 2, true, true, (int64_t[]){0, 4, 9})));
    text[i] = zp_json_text(arena, json, true);
    zp_json_free(json);
  }
  cr_expect_str_eq(text[0], text[1]);
}

/* The choice read from the written text makes the same file again. */
Test(plan_file, choice_round_trips) {
  zp_spec *spec = build_spec(arena, &LLAMA, cpu_cluster(), BATCH);
  zp_json *json = zp_plan_to_json(arena, plan_of(spec, choice_of(3, 2, 2, 1, 4, true, true, (int64_t[]){0, 5, 8})));
  const char *text = zp_json_text(arena, json, true), *error = NULL;
  zp_json *parsed = zp_json_parse(arena, text, strlen(text), &error);
  cr_assert(parsed, "%s", error);
  zp_choice c;
  int devices;
  cr_assert(zp_plan_choice_from_json(arena, spec, parsed, &c, &devices, &error), "%s", error);
  cr_expect(c.tensor == 3 && c.pipeline == 2 && c.data == 2 && c.zero == 1 && c.microbatch == 4 &&
            c.recompute == ZP_RECOMPUTE_FULL && c.recompute_shard && c.cut[0] == 0 && c.cut[1] == 5 && c.cut[2] == 8);
  zp_json *again = zp_plan_to_json(arena, plan_of(spec, c));
  cr_expect_str_eq(zp_json_text(arena, again, true), text);
  zp_json_free(json), zp_json_free(parsed), zp_json_free(again);
}

Test(plan_file, hash_follows_the_decisions) {
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
  const zp_choice choices[] = {choice_of(1, 2, 2, 0, 2, false, false, (int64_t[]){0, 4, 9}),
                               choice_of(1, 2, 2, 0, 2, false, false, (int64_t[]){0, 5, 9}),
                               choice_of(1, 2, 2, 1, 2, false, false, (int64_t[]){0, 4, 9}),
                               choice_of(1, 2, 2, 0, 1, false, false, (int64_t[]){0, 4, 9}),
                               choice_of(1, 2, 2, 0, 2, true, false, (int64_t[]){0, 4, 9}),
                               choice_of(2, 2, 1, 0, 2, false, false, (int64_t[]){0, 4, 9}),
                               fine_choice((int64_t[]){0, 4, 16}),
                               fine_choice((int64_t[]){0, 5, 16})};
  const char *hash[8];
  for (int i = 0; i < 8; i++) {
    hash[i] = zp_plan_hash(arena, plan_of(spec, choices[i])->program);
    cr_expect_eq(strlen(hash[i]), 16);
    cr_expect_str_eq(hash[i], zp_plan_hash(arena, plan_of(spec, choices[i])->program));
    for (int k = 0; k < i; k++) cr_expect_str_neq(hash[i], hash[k]);
  }
}

/* bf16 and fp16 take the same bytes everywhere. */
Test(plan_file, hash_follows_the_precision) {
  static const zp_precision precision[] = {ZP_PREC_F64, ZP_PREC_F32, ZP_PREC_MIXED_FP16, ZP_PREC_MIXED_BF16};
  const char *hash[4];
  for (int i = 0; i < 4; i++) {
    zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
    spec->train.precision = precision[i];
    hash[i] = zp_plan_hash(arena, plan_of(spec, choice_of(1, 2, 2, 0, 2, false, false, (int64_t[]){0, 4, 9}))->program);
    for (int k = 0; k < i; k++) cr_expect_str_neq(hash[i], hash[k]);
  }
}

Test(plan_file, infeasible_plans_say_so) {
  zp_cluster tiny = cpu_cluster();
  tiny.node.device.memory_bytes = 60000000;
  zp_spec *spec = build_spec(arena, &GPT, tiny, BATCH);
  zp_plan *plan = zp_search(arena, spec, 2, NULL);
  cr_assert_not(plan->feasible);
  zp_json *json = zp_plan_to_json(arena, plan);
  cr_expect_not(zp_json_get_bool(json, "feasible", true));
  cr_expect_null(zp_json_get(json, "stages"));
  zp_strings findings = findings_of(spec, json);
  cr_assert_eq(findings.len, 1);
  cr_expect_str_eq(findings.data[0], "the file says that nothing fits: there is no plan to verify");
  zp_json_free(json);
}
