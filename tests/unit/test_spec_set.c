/* SPDX-License-Identifier: Apache-2.0 */
/* --set: what the command line changes, and which settings contradict each other. */
#include "spec_testing.h"

Test(spec_set, command_line_wins) {
  const char *text =
      MODEL CLUSTER "train { model = m  batch = 8  tokens = 1e6  optimizer = adamw(lr = 1e-3)  data = text(\"a.txt\")  "
                    "checkpoint { dir = \"x\"  every = 5 } }\nplan { tensor >= 4  zero = 0 }\n";
  static const char *const set[] = {"tensor=2",
                                    "zero<=1",
                                    "offload[optimizer]=cpu",
                                    "sequence=true",
                                    "steps=50",
                                    "precision=fp64",
                                    "model.layers=3",
                                    "optimizer.lr=0.5",
                                    "data=text(\"b.txt\")",
                                    "data=4",
                                    "checkpoint.dir=out",
                                    "log.jsonl=\"l.jsonl\"",
                                    "schedule=cosine(warmup = 5)",
                                    "schedule=\"1f1b\"",
                                    "train.batch=32",
                                    "cluster.price=3",
                                    "memory<=50%"};
  fixture f = good_set(text, set, sizeof set / sizeof *set);
  const zp_train *t = &f.spec->train;
  const zp_constraints *p = only_plan(&f);
  cr_expect(zp_limit_allows(&p->tensor, 2) && !zp_limit_allows(&p->tensor, 4), "tensor >= 4 of the file is gone");
  cr_expect(zp_limit_allows(&p->zero, 1) && zp_limit_allows(&p->zero, 0));
  cr_expect(zp_limit_allows(&p->data, 4) && !zp_limit_allows(&p->data, 2));
  cr_expect_eq(allowed(&p->offload[ZP_STATE_OPTIMIZER]), BIT(ZP_TIER_HOST));
  cr_expect_eq(allowed(&p->sequence), BIT(1));
  cr_expect_float_eq(p->memory_fraction, 0.5, 1e-12);
  cr_expect(t->steps == 50 && t->tokens == 0, "steps takes the place of tokens");
  cr_expect_eq(t->batch, 32);
  cr_expect_eq(t->precision, ZP_PREC_F64);
  cr_expect_float_eq(t->lr, 0.5, 0);
  cr_expect(t->schedule == ZP_LR_COSINE && t->warmup == 5);
  cr_expect_str_eq(t->data.path, "b.txt", "relative to the current folder");
  cr_expect_str_eq(t->checkpoint_dir, "out");
  cr_expect_eq(t->checkpoint_every, 5, "the rest of the block stays");
  cr_expect_str_eq(t->log_path, "l.jsonl", "a block that the file does not have");
  cr_expect_eq(f.spec->model->segments.data[1].count, 3);
  cr_expect_float_eq(f.spec->cluster.price_per_gpu_hour, 3, 0);
  unload(&f);
}

Test(spec_set, several_limits_add_up) {
  static const char *const set[] = {"tensor>=2", "tensor<=4"};
  fixture f = good_set(MODEL CLUSTER TRAIN "plan { tensor = 8 }\n", set, 2);
  cr_expect(zp_limit_allows(&only_plan(&f)->tensor, 3) && !zp_limit_allows(&only_plan(&f)->tensor, 8));
  cr_expect_not(zp_limit_allows(&only_plan(&f)->tensor, 1));
  unload(&f);
}

Test(spec_set, model_argument_without_a_train_block) {
  static const char *const set[] = {"model.layers=5"};
  fixture f = good_with(MODEL, (zp_load_options){.set = set, .n_set = 1, .model_only = true});
  cr_expect_eq(f.spec->model->segments.data[1].count, 5);
  unload(&f);
}

Test(spec_set, errors) {
  static const struct {
    const char *set, *words;
  } cases[] = {
      {"tensr=8", "Z0301|--set:1:1|did you mean `tensor`"},
      {"tensor=", "Z0101|--set"},
      {"steps=many", "Z0203|many"},
      {"precision=fp46", "Z0308|fp46|did you mean `fp64`"},
      {"tp=8", "here it is called `tensor`"},
      {"checkpoint.foo=1", "Z0301|`checkpoint`"},
      {"model.nosuch=1", "nosuch"},
      {"zero=7", "Z0621"},
      {"sequence=7", "Z0304"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f = load_with(MODEL CLUSTER TRAIN, (zp_load_options){.set = &cases[i].set, .n_set = 1});
    check_failure(cases[i].set, &f, 1, cases[i].words);
    unload(&f);
  }
}

/* Two settings of one command line are two lines of one block: nothing is dropped without a word. */
Test(spec_set, settings_contradict_each_other) {
  static const struct {
    const char *set[2], *words;
  } cases[] = {
      {{"tensor=8", "tensor=4"}, "Z0620|--set:1:1|tensor=8|tensor=4"},
      {{"tensor=8", "plan.tensor<=4"}, "Z0620"},
      {{"schedule=1f1b", "schedule=gpipe"}, "Z0620"},
      {{"batch=4", "train.batch=8"}, "Z0310|`batch` is given twice"},
      {{"model.layers=3", "model.layers=4"}, "Z0310|`model.layers` is given twice"},
      {{"steps=4", "tokens=1e6"}, "Z0503"},
      {{"memory<=50%", "memory<=60%"}, "Z0310"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f = load_with(MODEL CLUSTER TRAIN, (zp_load_options){.set = cases[i].set, .n_set = 2});
    check_failure(cases[i].set[1], &f, 1, cases[i].words);
    unload(&f);
  }
}

Test(spec_set, words_need_no_quotes) {
  static const char *const set[] = {"schedule in [1f1b, zb_h1]"};
  fixture f = good_set(MODEL CLUSTER TRAIN, set, 1);
  cr_expect_eq(allowed(&only_plan(&f)->schedule), BIT(ZP_SCHEDULE_1F1B) | BIT(ZP_SCHEDULE_ZB_H1));
  unload(&f);
}

Test(spec_set, wishes_are_decisions_of_a_plan) {
  static const struct {
    const char *set, *words;
  } cases[] = {
      {"batch=4", "Z0626|`batch` is no decision|--why-not:1:1|--set 'batch=4'"},
      {"train.steps=4", "Z0626"},
      {"model.layers=4", "Z0626|`model.layers`"},
      {"cluster.nodes=4", "Z0626"},
      {"precision=fp64", "Z0626"},
      {"tensr=4", "Z0301|--why-not|did you mean `tensor`"},
      {"tensor=0", "Z0621|--why-not"},
      {"schedule=cosine()", "Z0308"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f = load_with(MODEL CLUSTER TRAIN, (zp_load_options){.set = &cases[i].set, .n_set = 1, .n_wishes = 1});
    check_failure(cases[i].set, &f, 1, cases[i].words);
    unload(&f);
  }
}
