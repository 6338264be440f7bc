/* SPDX-License-Identifier: Apache-2.0 */
/* Plan limits: what zp_load makes of plan blocks. */
#include "spec_testing.h"

Test(spec_plan, modes_of_stages_pin_the_pipeline) {
  fixture f =
      good(MODEL CLUSTER TRAIN "plan { tensor <= 2  stage_recompute = [\"full/tensor\", \"selective\", \"none\"] }\n");
  const zp_constraints *p = only_plan(&f);
  cr_assert_eq(p->stage_recompute.len, 3);
  cr_expect_eq(p->stage_recompute.data[0], ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT);
  cr_expect_eq(p->stage_recompute.data[1], ZP_RECOMPUTE_SELECTIVE);
  cr_expect_eq(p->stage_recompute.data[2], ZP_RECOMPUTE_NONE);
  cr_expect(zp_limit_allows(&p->pipeline, 3) && !zp_limit_allows(&p->pipeline, 2));
  unload(&f);
}

Test(spec_plan, limits_become_sets) {
  fixture f = good(MODEL CLUSTER TRAIN
                   "plan {\n  tensor <= 16\n  tensor > 1\n  pipeline = 3\n  microbatch in [1, 2, 4]\n  microbatch < 4\n"
                   "  zero <= 2\n  recompute = \"auto\"\n  recompute_shard in [\"none\", \"tensor\"]\n  memory <= 92%\n"
                   "  schedule in [\"1f1b\"]\n  offload[optimizer] = \"none\"\n  objective = minimize(step_time)\n"
                   "  search { budget = 60s  keep = 32 }\n}\n");
  const zp_constraints *p = only_plan(&f);
  cr_expect(!zp_limit_allows(&p->tensor, 1) && zp_limit_allows(&p->tensor, 2) && zp_limit_allows(&p->tensor, 16));
  cr_expect_not(zp_limit_allows(&p->tensor, 17));
  cr_expect(zp_limit_allows(&p->pipeline, 3) && !zp_limit_allows(&p->pipeline, 2));
  cr_expect(zp_limit_allows(&p->microbatch, 2) && !zp_limit_allows(&p->microbatch, 4) &&
            !zp_limit_allows(&p->microbatch, 3));
  cr_expect(zp_limit_allows(&p->zero, 0) && zp_limit_allows(&p->zero, 1));
  cr_expect(zp_limit_allows(&p->recompute, ZP_RECOMPUTE_NONE) && zp_limit_allows(&p->recompute, ZP_RECOMPUTE_FULL));
  cr_expect(zp_limit_allows(&p->recompute_shard, 1));
  cr_expect_not(p->data.set);
  cr_expect(zp_limit_allows(&p->data, 12345), "not mentioned: free");
  cr_expect_float_eq(p->memory_fraction, 0.92, 1e-12);
  unload(&f);
}

Test(spec_plan, words_and_flags) {
  static const struct {
    const char *body;
    size_t offset;
    unsigned want;
  } cases[] = {
#define LIMIT_OF(field) offsetof(zp_constraints, field)
      {"schedule = \"1f1b\"", LIMIT_OF(schedule), BIT(ZP_SCHEDULE_1F1B)},
      {"schedule in [\"gpipe\", \"interleaved\"]", LIMIT_OF(schedule),
       BIT(ZP_SCHEDULE_GPIPE) | BIT(ZP_SCHEDULE_INTERLEAVED)},
      {"schedule = \"zb_h2\"", LIMIT_OF(schedule), BIT(ZP_SCHEDULE_ZB_H2)},
      {"schedule = \"zero_bubble\"", LIMIT_OF(schedule),
       BIT(ZP_SCHEDULE_ZB_H1) | BIT(ZP_SCHEDULE_ZB_H2) | BIT(ZP_SCHEDULE_ZB_V)},
      {"schedule = \"zero_bubble\" schedule in [\"zb_v\", \"1f1b\"]", LIMIT_OF(schedule), BIT(ZP_SCHEDULE_ZB_V)},
      {"chunks in [2, 4]", LIMIT_OF(chunks), BIT(2) | BIT(4)},
      {"zero >= 2", LIMIT_OF(zero), BIT(2) | BIT(3)},
      {"recompute = \"selective\"", LIMIT_OF(recompute), BIT(ZP_RECOMPUTE_SELECTIVE)},
      {"recompute in [\"none\", \"attention\"]", LIMIT_OF(recompute),
       BIT(ZP_RECOMPUTE_NONE) | BIT(ZP_RECOMPUTE_SELECTIVE)},
      {"recompute = \"auto\"", LIMIT_OF(recompute),
       BIT(ZP_RECOMPUTE_NONE) | BIT(ZP_RECOMPUTE_SELECTIVE) | BIT(ZP_RECOMPUTE_FULL)},
      {"cut = \"layer\"", LIMIT_OF(cut), BIT(0)},
      {"cut = \"block\"", LIMIT_OF(cut), BIT(1)},
      {"cut = \"auto\"", LIMIT_OF(cut), BIT(0) | BIT(1)},
      {"sequence = true", LIMIT_OF(sequence), BIT(1)},
      {"sequence in [true, false]", LIMIT_OF(sequence), BIT(0) | BIT(1)},
      {"compress = true", LIMIT_OF(compress), BIT(1)},
      {"offload[optimizer] = \"cpu\"", LIMIT_OF(offload[ZP_STATE_OPTIMIZER]), BIT(ZP_TIER_HOST)},
      {"offload[params] in [\"none\", \"nvme\"]", LIMIT_OF(offload[ZP_STATE_PARAMS]),
       BIT(ZP_TIER_DEVICE) | BIT(ZP_TIER_NVME)},
      {"offload[params] = \"cpu\"", LIMIT_OF(offload[ZP_STATE_GRADIENTS]), BIT(ZP_TIER_DEVICE)},
      {"offload[activations] = \"cpu\"", LIMIT_OF(offload[ZP_STATE_ACTIVATIONS]), BIT(ZP_TIER_HOST)},
      {"", LIMIT_OF(schedule), 0xff},
      {"", LIMIT_OF(sequence), BIT(0)}, /* a CPU cluster */
      {"", LIMIT_OF(compress), BIT(0)},
      {"", LIMIT_OF(offload[ZP_STATE_OPTIMIZER]), BIT(ZP_TIER_DEVICE)},
#undef LIMIT_OF
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%splan { %s }\n", MODEL CLUSTER TRAIN, cases[i].body);
    fixture f = good(text);
    unsigned got = allowed((const zp_limit *)((const char *)only_plan(&f) + cases[i].offset));
    cr_expect_eq(got, cases[i].want, "%s (case %zu): %x, not %x", cases[i].body, i, got, cases[i].want);
    unload(&f);
  }
}

Test(spec_plan, sequence_is_free_on_gpu_clusters) {
  fixture f = good(MODEL TRAIN "cluster c { nodes = 1  node = std.hw.dgx2 }\n");
  cr_expect_eq(allowed(&only_plan(&f)->sequence) & 3, 3);
  cr_expect_eq(allowed(&only_plan(&f)->compress), 1);
  unload(&f);
}

Test(spec_plan, choice_of_the_plan) {
  const char *text = MODEL CLUSTER TRAIN "plan wide { tensor = 8 }\nplan { tensor = 2 }\nplan deep { pipeline = 4 }\n";
  fixture f = good(text);
  cr_expect_eq(f.spec->plans.len, 3);
  cr_expect_eq(f.spec->plan, 1, "the unnamed plan is the default");
  unload(&f);
  f = good_with(text, (zp_load_options){.plan = "deep"});
  cr_expect_eq(f.spec->plan, 2);
  unload(&f);
  f = load_with(text, (zp_load_options){.plan = "deeep"});
  check_failure("unknown", &f, 1, "Z0625|did you mean `deep`");
  unload(&f);
  f = good(MODEL CLUSTER TRAIN);
  cr_expect_eq(f.spec->plans.len, 1, "without a plan block everything is free");
  unload(&f);
}

Test(spec_plan, errors) {
  static const struct {
    const char *body;
    int errors;
    const char *words;
  } cases[] = {
      {"tensor >= 4 tensor = 2", 1, "Z0620|contradicts|the other limit"},
      {"tensor in [1, 2] tensor in [4, 8]", 1, "Z0620"},
      {"tensor >= 3 tensor <= 5 tensor in [2, 8]", 1, "Z0620"},
      {"recompute = \"none\" recompute = \"layer\"", 1, "Z0620"},
      {"stage_recompute = [\"full\", \"nne\"]", 1, "Z0308|did you mean `none`"},
      {"stage_recompute = \"full\"", 1, "Z0622|one mode a stage"},
      {"stage_recompute in [\"full\"]", 1, "Z0622|one mode a stage"},
      {"stage_recompute = [\"full\", 1]", 1, "Z0304"},
      {"pipeline = 3 stage_recompute = [\"full\", \"none\"]", 1, "Z0620|lists 2 stages"},
      {"recompute = \"full\" stage_recompute = [\"full\", \"none\"]", 1, "Z0620|stage 1 is \"none\""},
      {"recompute_shard = \"none\" stage_recompute = [\"full/tensor\"]", 1, "Z0620|stage 0 is \"full/tensor\""},
      {"recompute_layers = -1", 1, "Z0306"},
      {"recompute_layers <= 3", 1, "Z0622|one for every stage"},
      {"recompute = \"none\" recompute_layers = 3", 1, "Z0620|that none may"},
      {"stage_recompute = [\"none\", \"none\"] recompute_layers = 3", 1, "Z0620|that none do"},
      {"pipeline = 3 recompute_layers = [1, 2]", 1, "Z0620|lists 2 stages"},
      {"recompute_rest = \"none\"", 1, "Z0622|there is none"},
      {"recompute_layers = 1 recompute_rest = \"full\"", 1, "Z0308|cannot be \"full\""},
      {"tensor <= 0", 1, "Z0621|no value"},
      {"tensor = -2", 1, "Z0621|cannot be -2"},
      {"tensor = 8GB", 1, "Z0303"},
      {"tensor = \"8\"", 1, "Z0304"},
      {"tensor in []", 1, "Z0622|in [1, 2, 4]"},
      {"tensor in 4", 1, "Z0622|needs a list"},
      {"zero = 4", 1, "Z0621|from 0 to 3"},
      {"zero in [0, 1, 5]", 1, "Z0621|cannot be 5"},
      {"chunks = 0", 1, "Z0621|from 1 to"},
      {"schedule = \"zero_buble\"", 1, "Z0308|did you mean `zero_bubble`"},
      {"cut = \"blok\"", 1, "Z0308|did you mean `block`"},
      {"schedule >= \"gpipe\"", 1, "Z0622|schedule = \"1f1b\""},
      {"schedule = \"gpipe\" schedule = \"zero_bubble\"", 1, "Z0620"},
      {"recompute = \"atention\"", 1, "Z0308|did you mean `attention`"},
      {"sequence = 1", 1, "Z0304|`true` or `false`"},
      {"sequence >= true", 1, "Z0622|sequence = true"},
      {"sequence = true sequence = false", 1, "Z0620"},
      {"compress = \"1bit\"", 1, "Z0304"},
      {"offload[params] = \"disk\"", 1, "Z0308|\"nvme\""},
      {"offload[params] = \"cpu\" offload[params] = \"nvme\"", 1, "Z0620"},
      {"offload = \"none\"", 1, "Z0305|must say what"},
      {"offload[optimiser] = \"none\"", 1, "did you mean `optimizer`"},
      {"tensor[a] = 2", 1, "Z0305|takes no"},
      {"memory <= 30GB", 1, "Z0303|92%"},
      {"memory <= 120%", 1, "Z0306"},
      {"objective = minimize(memory)", 1, "Z0623|minimize(step_time)"},
      {"objective = minimize(cost)", 1, "Z0629|price = 2.5"},
      {"budget = 100", 1, "Z0629|price = 2.5"},
      {"deadline = 30", 1, "`deadline` needs a unit"},
      {"deadline = 0s", 1, "Z0306|greater than 0"},
      {"tp = 4", 1, "here it is called `tensor`"},
      {"ep = 4", 1, "here it is called `expert`"},
      {"mp_size = 4", 1, "here it is called `tensor`"},
      {"gradient_accumulation_steps = 4", 1, "derived: batch / (data x microbatch)"},
      {"rank_order = \"x\"", 1, "Z0308|\"tpd\""},
      {"tensr = 4", 1, "did you mean `tensor`"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%splan { %s }\n", MODEL CLUSTER TRAIN, cases[i].body);
    fixture f = load_with(text, (zp_load_options){0});
    check_failure(cases[i].body, &f, cases[i].errors, cases[i].words);
    unload(&f);
  }
}
