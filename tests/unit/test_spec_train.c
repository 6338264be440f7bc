/* SPDX-License-Identifier: Apache-2.0 */
/* Training settings: what zp_load makes of the train block. */
#include "spec_testing.h"

#include <zplan/buf.h>

Test(spec_train, all_keys) {
  fixture f = good(
      MODEL CLUSTER
      "train {\n  model = m(V = 128)\n  data = tokens(\"shard_*.bin\", order = \"shuffled\", seed = 7)\n  batch = 4\n  "
      "tokens = 1e6\n"
      "  precision = \"fp64\"\n  optimizer = adamw(lr = 6e-4, betas = [0.9, 0.95], eps = 1e-7, weight_decay = "
      "0.1, decay = \"all\")\n"
      "  schedule = wsd(warmup = 100, decay = 50, min_lr = 6e-5)\n  ema = 0.999\n  clip = 1.0\n  dropout = 10%\n  seed "
      "= 1337\n"
      "  validate { data = text(\"/abs/val.txt\")  every = 250  batches = 20 }\n"
      "  checkpoint { dir = \"out/m\"  every = 500  keep = 3  format = \"safetensors\" }\n"
      "  log { jsonl = \"out/log.jsonl\"  every = 5 }\n}\n");
  const zp_train *t = &f.spec->train;
  cr_expect_eq(t->data.kind, ZP_DATA_TOKENS);
  cr_expect_str_eq(t->data.path, "folder/shard_*.bin", "relative to the .dz file");
  cr_expect(t->data.shuffled && t->data.seed == 7);
  cr_expect_eq(t->batch, 4);
  cr_expect_eq(t->steps, 15625, "1e6 tokens / (4 x 16), found %lld", (long long)t->steps);
  cr_expect_eq(t->precision, ZP_PREC_F64);
  cr_expect_eq(t->optimizer, ZP_OPT_ADAMW);
  cr_expect(t->lr == 6e-4 && t->beta1 == 0.9 && t->beta2 == 0.95 && t->eps == 1e-7 && t->weight_decay == 0.1 &&
            t->decay_all);
  cr_expect(t->schedule == ZP_LR_WSD && t->warmup == 100 && t->decay_steps == 50 && t->min_lr == 6e-5);
  cr_expect(t->clip == 1.0 && t->seed == 1337 && t->ema == 0.999);
  cr_expect_float_eq(t->dropout, 0.1, 1e-12);
  cr_expect_eq(t->validate_data.kind, ZP_DATA_TEXT);
  cr_expect_str_eq(t->validate_data.path, "/abs/val.txt");
  cr_expect(t->validate_every == 250 && t->validate_batches == 20);
  cr_expect_str_eq(t->checkpoint_dir, "out/m", "relative to the current folder");
  cr_expect(t->checkpoint_every == 500 && t->checkpoint_keep == 3);
  cr_expect_str_eq(t->log_path, "out/log.jsonl");
  cr_expect_eq(t->log_every, 5);
  cr_expect_eq(f.spec->model->vocabulary, 128);
  unload(&f);
}

Test(spec_train, defaults) {
  fixture f = good(MODEL CLUSTER "train { batch = 8  steps = 10  optimizer = sgd(lr = 0.1, momentum = 0.9) }\n");
  const zp_train *t = &f.spec->train;
  cr_expect_eq(t->data.kind, ZP_DATA_NONE);
  cr_expect_eq(t->precision, ZP_PREC_F32);
  cr_expect(t->optimizer == ZP_OPT_SGD && t->momentum == 0.9 && t->weight_decay == 0);
  cr_expect(t->schedule == ZP_LR_CONSTANT && t->clip == 0 && t->dropout == 0 && t->ema == 0);
  cr_expect(!t->checkpoint_dir && !t->log_path && t->validate_every == 0 && t->log_every == 1);
  unload(&f);
}

Test(spec_train, muon) {
  fixture f = good(MODEL CLUSTER "train { batch = 8  steps = 10  optimizer = muon(lr = 0.1) }\n");
  const zp_train *t = &f.spec->train;
  cr_expect(t->optimizer == ZP_OPT_MUON && t->momentum == 0.95 && t->beta1 == 0.9 && t->beta2 == 0.95 &&
            t->eps == 1e-8);
  unload(&f);
  f = good(MODEL CLUSTER
           "train { batch = 8  steps = 10  optimizer = muon(lr = 0.1, momentum = 0, betas = [0.8, 0.9]) }\n");
  t = &f.spec->train;
  cr_expect(t->momentum == 0 && t->beta1 == 0.8 && t->beta2 == 0.9);
  unload(&f);
}

Test(spec_train, factors_of_one_bit_lamb) {
  fixture f = good(MODEL CLUSTER "train { batch = 8  steps = 10  optimizer = lamb(lr = 0.1) }\n");
  const zp_train *t = &f.spec->train;
  cr_expect(t->coeff_beta == 0.9 && t->factor_min == 0.5 && t->factor_max == 4 && t->factor_threshold == 0.1);
  unload(&f);
  f = good(MODEL CLUSTER "train { batch = 8  steps = 10  optimizer = lamb(lr = 0.1, coeff_beta = 0.8, factor_min = 1, "
                         "factor_max = 1, factor_threshold = 0) }\n");
  t = &f.spec->train;
  cr_expect(t->coeff_beta == 0.8 && t->factor_min == 1 && t->factor_max == 1 && t->factor_threshold == 0);
  unload(&f);
}

/* Checks what the block `train { ... settings }` gives. */
static void check_loss_scale(const char *settings, int64_t scale, int64_t window) {
  char text[1500];
  snprintf(text, sizeof text, "%strain { batch = 8  steps = 10  optimizer = adamw(lr = 0.1)  %s }\n", MODEL CLUSTER,
           settings);
  fixture f = good(text);
  cr_expect_eq(f.spec->train.loss_scale, scale, "%s: %lld", settings, (long long)f.spec->train.loss_scale);
  cr_expect_eq(f.spec->train.scale_window, window, "%s: %lld", settings, (long long)f.spec->train.scale_window);
  unload(&f);
}

Test(spec_train, loss_scale) {
  check_loss_scale("precision = \"mixed_fp16\"", 65536, 2000);
  check_loss_scale("precision = \"mixed_fp16\" loss_scale = dynamic()", 65536, 2000);
  check_loss_scale("precision = \"mixed_fp16\" loss_scale = dynamic(initial = 1024)", 1024, 2000);
  check_loss_scale("loss_scale = dynamic(window = 50) precision = \"mixed_fp16\"", 65536, 50);
  check_loss_scale("precision = \"mixed_fp16\" loss_scale = 128", 128, 0);
  check_loss_scale("precision = \"fp32\"", 0, 0);
}

Test(spec_train, sums_that_are_rounded) {
  static const struct {
    const char *settings;
    int rounds;
  } cases[] = {{"", 0}, {"reduce_dtype = \"fp32\"", 0}, {"reduce_dtype = \"bf16\"  precision = \"mixed_fp16\"", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%strain { batch = 8  steps = 10  optimizer = adamw(lr = 0.1)  %s }\n", MODEL CLUSTER,
             cases[i].settings);
    fixture f = good(text);
    cr_expect_eq(f.spec->train.rounds_sums, cases[i].rounds, "%s", cases[i].settings);
    cr_expect_eq(f.spec->cluster.rounds_sums, cases[i].rounds, "%s", cases[i].settings);
    unload(&f);
  }
}

Test(spec_train, sums_that_are_16_bits) {
  static const char *const settings[] = {"precision = \"mixed_bf16\"",
                                         "precision = \"mixed_bf16\"  gradient_sums = \"fp32\"",
                                         "precision = \"mixed_fp16\"  gradient_sums = \"bf16_stochastic\""};
  for (int i = 0; i < 3; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%strain { batch = 8  steps = 10  optimizer = adamw(lr = 0.1)  %s }\n", MODEL CLUSTER,
             settings[i]);
    fixture f = good(text);
    cr_expect_eq(f.spec->train.stochastic_sums, i == 2, "%s", settings[i]);
    unload(&f);
  }
}

Test(spec_train, errors) {
  static const struct {
    const char *body;
    int errors;
    const char *words;
  } cases[] = {
      {"batch = 8 optimizer = adamw(lr = 1)", 1, "Z0502|neither `steps` nor `tokens`"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) gradient_sums = \"fp16\"", 1, "Z0308"},
      {"steps = 8", 2, "`train` does not say `batch`|`train` does not say `optimizer`"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) ema = 1.5", 1,
       "Z0306|`ema` must be above 0 and below 1, not 1.5|leaves of the average"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) ema = 0", 1, "Z0306|`ema` must be above 0 and below 1"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) ema = 1", 1, "Z0306|`ema` must be above 0 and below 1"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) ema = 99%", 1, "Z0303|a number without unit"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) ema <= 0.9", 1, "Z0305|set with `=`"},
      {"batch = 8 step = 5 optimizer = adamw(lr = 1)", 1, "Z0301|did you mean `steps`"},
      {"batch = 8 steps = 5 tokens = 5 optimizer = adamw(lr = 1)", 1, "Z0503|already"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1, betas = [0.9])", 1, "Z0304|a list of two numbers"},
      {"batch = 8 steps = 5 optimizer = adamw(0.1)", 1, "Z0311|`lr = ...`"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1, freeze = auto(), freeze_step = 3)", 1,
       "Z0304|both say when the variance freezes"},
      {"batch = 8 steps = 5 optimizer = adam(lr = 1, weight_decay = 0.1, freeze = auto())", 1,
       "Z0304|does not go with `adam` and `weight_decay`"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1, freeze = auto(threshold = 0))", 1, "Z0306|threshold"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1, freeze = 0.96)", 1, "Z0304|written like a call"},
      {"batch = 8 steps = 5 optimizer = lamb(lr = 1, factor_max = 0.25)", 1,
       "Z0304|`factor_min` is 0.5 and `factor_max` is 0.25|keeps between the two"},
      {"batch = 8 steps = 5 optimizer = lamb(lr = 1, factor_min = 0)", 1, "Z0306|`factor_min` must be greater than 0"},
      {"batch = 8 steps = 5 optimizer = lamb(lr = 1, factor_threshold = 1)", 1, "Z0306|factor_threshold"},
      {"batch = 8 steps = 5 optimizer = lamb(lr = 1, coeff_beta = 1)", 1, "Z0306|coeff_beta"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1, factor_max = 2)", 1, "Z0301|factor_max"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) data = tokens()", 1, "Z0307|needs a path"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) data = tokens(\"a\", order = \"random\")", 1,
       "Z0308|\"shuffled\""},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) schedule = \"1f1b\"", 1, "Z0304|belongs in a `plan` block"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) schedule = wsd(warmup = 1)", 1, "Z0307|last phase"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1e-3) schedule = cosine(min_lr = 1)", 1,
       "Z0306|above the learning rate"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) validate { every = 5 }", 1,
       "Z0502|`validate` does not say `data`"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) checkpoint { every = 5 }", 1,
       "Z0502|`checkpoint` does not say `dir`"},
      {"batch = 1e30 steps = 5 optimizer = adamw(lr = 1)", 1, "Z0306|below 2^53"},
      {"batch = true steps = 5 optimizer = adamw(lr = 1)", 1, "Z0304|not true or false"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) precision = \"mixed_fp16\" loss_scale = 1000", 1,
       "Z0306|a power of two from 1 to 1073741824"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) precision = \"mixed_fp16\" loss_scale = 2147483648", 1,
       "Z0306|a power of two from 1 to 1073741824"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) precision = \"mixed_fp16\" loss_scale = 1.5", 1,
       "Z0306|a power of two"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) precision = \"mixed_fp16\" loss_scale = dynamic(initial = 3)", 1,
       "Z0306|a power of two"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1) precision = \"mixed_fp16\" loss_scale = dynamic(window = 0)", 1,
       "Z0306|window"},
      {"batch[1] = 8 steps = 5 optimizer = adamw(lr = 1)", 0, "error"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%strain { %s }\n", MODEL CLUSTER, cases[i].body);
    fixture f = load_with(text, (zp_load_options){0});
    check_failure(cases[i].body, &f, cases[i].errors, cases[i].words);
    unload(&f);
  }
}

/* Numbers that the precision cannot compute with: a least one is as small as it can be, so next to it. */
Test(spec_train, least_eps) {
  static const char adam[] = "adamw(lr = 1, eps = %s)", adafactor[] = "adafactor(eps = [%s, 1e-3])";
  static const struct {
    const char *optimizer, *precision, *good, *bad, *words;
  } cases[] = {
      {adam, "fp32", "1e-18", "9e-19", "Z0306|`eps` of `adamw` must be between 1e-18|steps of many learning rates"},
      {adam, "mixed_fp16", "3e38", "4e38", "Z0306|between 1e-18 and 3.4e+38 in precision \"mixed_fp16\", not 4e+38"},
      {adam, "fp64", "1e-153", "9e-154", "Z0306|in precision \"fp64\""},
      {"muon(lr = 1, eps = %s)", "fp32", "1e-18", "1e-38", "Z0306|`eps` of `muon`"},
      {adafactor, "fp32", "1e-30", "9e-31", "Z0306|`eps` of `adafactor`|rows and columns whose gradients are zero"},
      {adafactor, "fp64", "1e-290", "9e-291", "Z0306|1e-290"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int bad = 0; bad < 2; bad++) {
      char optimizer[100], text[1500];
      snprintf(optimizer, sizeof optimizer, cases[i].optimizer, bad ? cases[i].bad : cases[i].good);
      snprintf(text, sizeof text, "%strain { batch = 8  steps = 5  precision = \"%s\"  optimizer = %s }\n",
               MODEL CLUSTER, cases[i].precision, optimizer);
      fixture f = load_with(text, (zp_load_options){0});
      if (bad) check_failure(optimizer, &f, 1, cases[i].words);
      cr_expect(bad || f.spec, "%s", optimizer);
      unload(&f);
    }
}

/* A number stands before a source as before a device; percentages as everywhere, none is 1. */
Test(spec_train, mixtures) {
  fixture f = good(MODEL CLUSTER
                   "train { batch = 8  steps = 10  optimizer = sgd(lr = 0.1)\n"
                   "  data = mix(70% * tokens(\"a_*.bin\", order = \"shuffled\", seed = 3), 0.3 * text(\"b.txt\"),\n"
                   "    synthetic(seed = 2)) }\n");
  const zp_data *d = &f.spec->train.data;
  cr_assert(d->kind == ZP_DATA_MIX && d->n_parts == 3);
  cr_expect_float_eq(d->weights[0], 0.7, 1e-12);
  cr_expect(d->weights[1] == 0.3 && d->weights[2] == 1);
  cr_expect(d->parts[0].kind == ZP_DATA_TOKENS && d->parts[0].shuffled && d->parts[0].seed == 3);
  cr_expect_str_eq(d->parts[1].path, "folder/b.txt");
  cr_expect(d->parts[2].kind == ZP_DATA_SYNTHETIC && d->parts[2].seed == 2);
  cr_expect_not(zp_data_is_arrays(d));
  unload(&f);
}

#define ENCODER_DECODER                                                                                                \
  "use std.hw\nmodel m(V = 64, S = 16, T = 8, d = 8) {\n  input source: i32[B, S]\n  input target: i32[B, T]\n"        \
  "  input labels: i32[B, T]\n  param wte: [V, d]\n  x = embedding(source, wte)\n  y = embedding(target, wte)\n"       \
  "  z = y + attention(y, x, x, heads = 2, causal = false, cross = true)\n"                                            \
  "  output loss = cross_entropy(matmul(z, transpose(wte)), labels)\n}\n"

/* Sentinels begin at the end of the vocabulary unless they are said to begin elsewhere. */
Test(spec_train, spans) {
  fixture f = good(ENCODER_DECODER CLUSTER
                   "train { batch = 8  steps = 10  optimizer = sgd(lr = 0.1)\n"
                   "  data = spans(mix(2 * text(\"a\"), lines(\"b\")), rate = 25%, length = 2.5, seed = 4) "
                   "}\n");
  const zp_data *d = &f.spec->train.data;
  cr_expect(d->kind == ZP_DATA_MIX && d->weights[0] == 2 && d->spans.rate == 0.25 && d->spans.mean == 2.5);
  cr_expect(d->spans.sentinel == 63 && d->spans.eos == 1 && d->spans.start == 0 && d->spans.seed == 4);
  unload(&f);
}

/* Products in fp8, by the names of their parameters. */
static const char *in_float8(const fixture *f) {
  zp_buf names = zp_buf_new(f->arena);
  const zp_model *model = f->spec->model;
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_node *node = &graph->nodes.data[n];
      if ((node->op == ZP_OP_MATMUL || node->op == ZP_OP_BATCHED_MATMUL) && node->attr.float8)
        zp_buf_printf(&names, "%s ", graph->tensors.data[node->in.data[1]].name);
    }
  }
  return names.len ? names.data : "";
}

/* Sixteen experts: the gate's matrix has sizes that kernels of 8 bits take. */
Test(spec_train, products_in_fp8_are_those_of_layers_but_of_gates_and_adapters) {
  static const char model[] = "use std.nn\nuse std.models\nuse std.hw\n"
                              "model m(V = 64, S = 16, d = 32, odd = 32, layers = 2) {\n"
                              "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param wte: [V, d]\n"
                              "  x = embedding(tokens, wte)\n"
                              "  repeat h in 0..layers {\n"
                              "    param up: [odd, d]\n    param down: [d, odd]\n"
                              "    x = x + matmul(relu(matmul(x, transpose(up))), transpose(down))\n"
                              "    x = mixtral_layer(x, heads = 2, kv_heads = 2, head = 16, experts = 16, top_k = 2, "
                              "ff = 16, window = 16)\n  }\n"
                              "  output loss = cross_entropy(matmul(x, transpose(wte)), labels)\n}\n" CLUSTER;
#define ALWAYS                                                                                                         \
  "h.{}.self_attn.q_proj.weight h.{}.self_attn.k_proj.weight h.{}.self_attn.v_proj.weight "                            \
  "h.{}.self_attn.o_proj.weight h.{}.block_sparse_moe.w1 h.{}.block_sparse_moe.w3 h.{}.block_sparse_moe.w2 "
  static const struct {
    const char *more, *products;
  } rows[] = {
      {"precision = \"mixed_fp8\"", "h.{}.up h.{}.down " ALWAYS},
      {"precision = \"mixed_fp8\"  model = m(odd = 24)", ALWAYS},
      {"precision = \"mixed_fp8\"  adapt = lora(rank = 16, alpha = 16, of = [\"*up\"])", "h.{}.up h.{}.down " ALWAYS},
      {"precision = \"mixed_bf16\"", ""}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[4096];
    snprintf(text, sizeof text, "%strain { batch = 8  steps = 10  optimizer = adamw(lr = 1e-3)  %s }\n", model,
             rows[i].more);
    fixture f = good(text);
    cr_expect_str_eq(in_float8(&f), rows[i].products, "%s: %s", rows[i].more, in_float8(&f));
    unload(&f);
  }
}
