/* Machines, training settings, plan limits and --set: what zp_load makes of the attribute blocks. */
#include "sema_fixture.h"

#define MODEL                                                                                                          \
  "use std.nn\nuse std.hw\n"                                                                                           \
  "model m(V = 64, S = 16, d = 8, layers = 2) {\n"                                                                     \
  "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param wte: [V, d]\n  x = embedding(tokens, wte)\n"          \
  "  repeat h in 0..layers { x = x + linear(layer_norm(x), d) }\n"                                                     \
  "  output loss = cross_entropy(matmul(x, transpose(wte)), labels)\n}\n"
#define CLUSTER "cluster c { nodes = 1  node = std.hw.cpu_generic(cores = 8, memory = 16GiB) }\n"
#define TRAIN "train { batch = 8  steps = 10  optimizer = adamw(lr = 1e-3)  data = synthetic(seed = 1) }\n"

static fixture load_with(const char *text, zp_load_options options) {
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  options.library_dir = ZPLAN_SOURCE_DIR "/frontend/library";
  zp_source_text source = {"folder/test.dz", text, strlen(text)};
  f.spec = zp_load(f.arena, f.diags, source.path, &source, 1, &options);
  return f;
}

static fixture good_with(const char *text, zp_load_options options) {
  fixture f = load_with(text, options);
  char *shown = f.spec ? NULL : printed(&f);
  cr_assert(f.spec, "%s", shown ? shown : "");
  return f;
}

static fixture good(const char *text) { return good_with(text, (zp_load_options){0}); }

static fixture good_set(const char *text, const char *const *set, int n) {
  return good_with(text, (zp_load_options){.set = set, .n_set = n});
}

/* ---- machines ---- */
Test(spec_machine, library_node) {
  fixture f =
      good(MODEL TRAIN "cluster big { nodes = 50  node = std.hw.dgx2  fabric { topology = \"fat_tree\"  latency = 2us "
                       "oversubscription = 2.0 }  price = 2.5 }\n");
  const zp_cluster *c = &f.spec->cluster;
  cr_expect_str_eq(c->name, "big");
  cr_expect_eq(c->nodes, 50);
  cr_expect_eq(c->ranks, 800);
  cr_expect_eq(c->node.devices, 16);
  cr_expect_str_eq(c->node.name, "dgx2");
  cr_expect_str_eq(c->node.device.name, "v100_sxm3_32");
  cr_expect_eq(c->node.device.memory_bytes, 32000000000);
  cr_expect_float_eq(c->node.device.flop_per_s_half, 125e12, 1);
  cr_expect_not(c->node.device.has_bf16);
  cr_expect_float_eq(c->node.device.eff_matmul, 0.75, 1e-12);
  cr_expect_str_eq(c->node.link.kind, "nvswitch");
  cr_expect_float_eq(c->node.link.bytes_per_s, 150e9, 1);
  cr_expect_eq(c->node.nics, 8);
  cr_expect_float_eq(c->node.nic.bytes_per_s, 12.5e9, 1);
  cr_expect_eq(c->node.host_memory_bytes, 1500000000000);
  cr_expect_float_eq(c->fabric_latency_s, 2e-6, 1e-15);
  cr_expect_float_eq(c->oversubscription, 2.0, 0);
  cr_expect_float_eq(c->price_per_gpu_hour, 2.5, 0);
  unload(&f);
}

Test(spec_machine, every_library_item_is_complete) {
  static const char *const devices[] = {"v100_sxm2_16", "v100_sxm2_32", "v100_sxm3_32", "v100_pcie_16", "v100_pcie_32",
                                        "a100_40",      "a100_80",      "rtx3090",      "rtx4090",      "h100_sxm",
                                        "h100_pcie",    "h200",         "b200"};
  static const char *const nodes[] = {"dgx1v", "dgx2", "p3dn", "dgx_a100", "dgx_h100", "workstation", "cpu_generic"};
  char text[2000];
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    snprintf(text, sizeof text, "%scluster c { nodes = 1  node = std.hw.workstation(devices = 2 * std.hw.%s) }\n",
             MODEL TRAIN, devices[i]);
    fixture f = good(text);
    const zp_device *d = &f.spec->cluster.node.device;
    cr_expect_str_eq(d->name, devices[i]);
    cr_expect(d->flop_per_s_fp64 > 0 && d->flop_per_s_half > d->flop_per_s_fp32 &&
              d->flop_per_s_fp32 > d->flop_per_s_fp64);
    cr_expect(d->context_bytes > 0 && d->launch_s > 0);
    cr_expect_eq(d->has_bf16, strncmp(devices[i], "v100", 4) != 0);
    cr_expect(d->arch && zp_is_gpu_arch(d->arch), "%s", devices[i]);
    cr_expect_eq(d->has_bf16, atoi(d->arch + 3) >= 80, "bf16 came with sm_80");
    unload(&f);
  }
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
    snprintf(text, sizeof text, "%scluster c { nodes = 1  node = std.hw.%s }\n", MODEL TRAIN, nodes[i]);
    fixture f = good(text);
    cr_expect_str_eq(f.spec->cluster.node.name, nodes[i]);
    cr_expect(f.spec->cluster.node.host_memory_bytes > 0 && f.spec->cluster.node.link.bytes_per_s > 0);
    unload(&f);
  }
}

Test(spec_machine, base_is_changed_in_place) {
  fixture f =
      good(MODEL TRAIN "device tuned { efficiency { matmul = 55% }  memory = 30GB  base = std.hw.v100_sxm3_32 }\n"
                       "node mine { base = std.hw.dgx2  devices = 4 * tuned  nic { count = 2 } }\n"
                       "cluster c { nodes = 2  node = mine }\n");
  const zp_node_type *n = &f.spec->cluster.node;
  cr_expect_eq(n->devices, 4);
  cr_expect_str_eq(n->device.name, "tuned");
  cr_expect_eq(n->device.memory_bytes, 30000000000, "`base` comes first wherever it stands");
  cr_expect_float_eq(n->device.eff_matmul, 0.55, 1e-12);
  cr_expect_float_eq(n->device.eff_attention, 0.45, 1e-12);
  cr_expect_eq(n->nics, 2);
  cr_expect_float_eq(n->nic.bytes_per_s, 12.5e9, 1);
  unload(&f);
}

Test(spec_machine, cpu_node) {
  fixture f = good(MODEL TRAIN CLUSTER);
  const zp_node_type *n = &f.spec->cluster.node;
  cr_expect(n->device.is_cpu);
  cr_expect_eq(n->device.cores, 8);
  cr_expect_eq(n->devices, 8);
  cr_expect_eq(n->device.memory_bytes, INT64_C(16) << 30);
  cr_expect_float_eq(n->device.flop_per_s_fp32, 800e9, 1);
  cr_expect_float_eq(n->device.flop_per_s_fp64, 400e9, 1);
  cr_expect_float_eq(f.spec->plans.data[0].memory_fraction, 0.8, 1e-12);
  unload(&f);
}

Test(spec_machine, gpus_and_nodes_override) {
  static const struct {
    const char *node;
    int64_t gpus, nodes;
    int got_nodes, got_devices;
    int64_t ranks;
  } cases[] = {
      {"std.hw.dgx2", 0, 0, 3, 16, 48},
      {"std.hw.dgx2", 800, 0, 50, 16, 800},
      {"std.hw.dgx2", 7, 0, 1, 16, 7},
      {"std.hw.dgx2", 17, 0, 2, 16, 17},
      {"std.hw.dgx2", 0, 5, 5, 16, 80},
      {"std.hw.dgx2", 8, 2, 2, 4, 8},
      {"cpu_generic(cores = 4)", 0, 0, 3, 4, 12},
      {"cpu_generic(cores = 4)", 30, 0, 3, 10, 30},
      {"cpu_generic(cores = 4)", 2, 0, 2, 4, 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%scluster c { nodes = 3  node = %s }\n", MODEL TRAIN, cases[i].node);
    fixture f = good_with(text, (zp_load_options){.gpus = cases[i].gpus, .nodes = cases[i].nodes});
    cr_expect_eq(f.spec->cluster.nodes, cases[i].got_nodes, "case %zu: %d nodes", i, f.spec->cluster.nodes);
    cr_expect_eq(f.spec->cluster.node.devices, cases[i].got_devices, "case %zu: %d devices", i,
                 f.spec->cluster.node.devices);
    cr_expect_eq(f.spec->cluster.ranks, cases[i].ranks, "case %zu", i);
    unload(&f);
  }
}

Test(spec_machine, impossible_sizes) {
  const char *text = MODEL TRAIN "cluster c { nodes = 3  node = std.hw.dgx2 }\n";
  fixture many = load_with(text, (zp_load_options){.gpus = 40, .nodes = 2});
  check_failure("too many", &many, 1, "Z0405|2 nodes of `dgx2` have 32 devices, --gpus asks for 40");
  unload(&many);
  fixture uneven = load_with(text, (zp_load_options){.gpus = 7, .nodes = 2});
  check_failure("uneven", &uneven, 1, "Z0405|--gpus 7 cannot be spread evenly over --nodes 2");
  unload(&uneven);
}

/* ---- train ---- */
Test(spec_train, all_keys) {
  fixture f =
      good(MODEL CLUSTER
           "train {\n  model = m(V = 128)\n  data = tokens(\"shard_*.bin\", order = \"shuffled\")\n  batch = 4\n  "
           "tokens = 1e6\n"
           "  precision = \"fp64\"\n  optimizer = adamw(lr = 6e-4, betas = [0.9, 0.95], eps = 1e-7, weight_decay = "
           "0.1, decay = \"all\")\n"
           "  schedule = wsd(warmup = 100, decay = 50, min_lr = 6e-5)\n  clip = 1.0\n  dropout = 10%\n  seed = 1337\n"
           "  validate { data = text(\"/abs/val.txt\")  every = 250  batches = 20 }\n"
           "  checkpoint { dir = \"out/m\"  every = 500  keep = 3  format = \"safetensors\" }\n"
           "  log { jsonl = \"out/log.jsonl\"  every = 5 }\n}\n");
  const zp_train *t = &f.spec->train;
  cr_expect_eq(t->data.kind, ZP_DATA_TOKENS);
  cr_expect_str_eq(t->data.path, "folder/shard_*.bin", "relative to the .dz file");
  cr_expect(t->data.shuffled);
  cr_expect_eq(t->batch, 4);
  cr_expect_eq(t->steps, 15625, "1e6 tokens / (4 x 16), found %lld", (long long)t->steps);
  cr_expect_eq(t->precision, ZP_PREC_F64);
  cr_expect_eq(t->optimizer, ZP_OPT_ADAMW);
  cr_expect(t->lr == 6e-4 && t->beta1 == 0.9 && t->beta2 == 0.95 && t->eps == 1e-7 && t->weight_decay == 0.1 &&
            t->decay_all);
  cr_expect(t->schedule == ZP_LR_WSD && t->warmup == 100 && t->decay_steps == 50 && t->min_lr == 6e-5);
  cr_expect(t->clip == 1.0 && t->seed == 1337);
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
  cr_expect(t->schedule == ZP_LR_CONSTANT && t->clip == 0 && t->dropout == 0);
  cr_expect(!t->checkpoint_dir && !t->log_path && t->validate_every == 0 && t->log_every == 1);
  unload(&f);
}

/* Of the block `train { ... settings }`. */
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

Test(spec_train, errors) {
  static const struct {
    const char *body;
    int errors;
    const char *words;
  } cases[] = {
      {"batch = 8 optimizer = adamw(lr = 1)", 1, "Z0502|neither `steps` nor `tokens`"},
      {"steps = 8", 2, "`train` does not say `batch`|`train` does not say `optimizer`"},
      {"batch = 8 step = 5 optimizer = adamw(lr = 1)", 1, "Z0301|did you mean `steps`"},
      {"batch = 8 steps = 5 tokens = 5 optimizer = adamw(lr = 1)", 1, "Z0503|already"},
      {"batch = 8 steps = 5 optimizer = adamw(lr = 1, betas = [0.9])", 1, "Z0304|a list of two numbers"},
      {"batch = 8 steps = 5 optimizer = adamw(0.1)", 1, "Z0311|`lr = ...`"},
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

/* ---- plan ---- */
static const zp_constraints *only_plan(const fixture *f) { return &f->spec->plans.data[f->spec->plan]; }

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

/* The values that a limit allows among 0 .. 7, one bit each. */
static unsigned allowed(const zp_limit *limit) {
  unsigned bits = 0;
  for (int v = 0; v < 8; v++) bits |= (unsigned)zp_limit_allows(limit, v) << v;
  return bits;
}
#define BIT(v) (1u << (v))

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

/* ---- --set ---- */
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

/* ---- machines, wrong ---- */
Test(spec_machine, errors) {
  static const struct {
    const char *body;
    int errors;
    const char *words;
  } cases[] = {
      {"", 1, "Z0401|no `cluster` block"},
      {"cluster c { nodes = 2 }", 1, "Z0307|`node`"},
      {"cluster c { node = std.hw.dgx2 }", 1, "Z0307|`nodes`"},
      {"cluster c { nodes = 1 node = std.hw.dgx22 }", 1, "Z0402|did you mean `std.hw.dgx2`"},
      {"cluster c { nodes = 1 node = 4 }", 1, "Z0304|name of a node"},
      {"cluster c { nodes = 1 node { devices = 4 } }", 1, "Z0304|devices = 4 * std.hw.a100_80"},
      {"cluster c { nodes = 1 node { devices = 0 * a100_80 } }", 1, "Z0306|1 or more"},
      {"cluster c { nodes = 1 node { devices = 2 * a100_80 } }", 1, "Z0307|`link.bandwidth`"},
      {"cluster c { nodes = 1 node { host { memory = 1TB } } }", 1, "Z0307|`devices`"},
      {"cluster c { nodes = 1 node = workstation(memory = 12) }", 1, "Z0302|`memory` needs a unit"},
      {"cluster c { nodes = 1 node = workstation(devices = 1 * rtx4099) }", 0, "rtx4099"},
      {"cluster c { nodes = 1 node = workstation(memory = 1TB, memory = 2TB) }", 1, "Z0404|twice"},
      {"cluster c { nodes = 1 node = dgx2(1) }", 1, "Z0404|takes 0 arguments"},
      {"node n { base = n } cluster c { nodes = 1 node = n }", 1, "Z0403|defined by itself"},
      {"device d { base = a100_80 context = 90GB } cluster c { nodes = 1 node { devices = 1 * d } }", 1,
       "leaves nothing"},
      {"cluster c { nodes = 1 node = dgx2 fabric { topology = \"torus\" } }", 1, "Z0308|fat_tree"},
      {"cluster c { nodes = 1 node = dgx2 fabric { oversubscription = 0.5 } }", 1, "Z0306|1 or more"},
      {"device d { base = a100_80 memory = 1e30GB } cluster c { nodes = 1 node { devices = 1 * d } }", 1,
       "Z0306|`memory` is above|at most 400 TB"},
      {"device d { base = a100_80 memory_bandwidth = 1e-9GB/s } cluster c { nodes = 1 node { devices = 1 * d } }", 1,
       "Z0306|`memory_bandwidth` is below|1 KB/s to 1 PB/s"},
      {"device d { base = a100_80 half = 1e30TFLOPS } cluster c { nodes = 1 node { devices = 1 * d } }", 1,
       "Z0306|`half` is above"},
      {"cluster c { nodes = 1 node { base = dgx2 nic { count = 1 bandwidth = 1e-30GB/s } } }", 1,
       "Z0306|`bandwidth` is below"},
      {"node n(k) { devices = k * a100_80 } cluster c { nodes = 1 node = n }", 1, "Z0404|`n` needs `k`"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%s%s\n", MODEL TRAIN, cases[i].body);
    fixture f = load_with(text, (zp_load_options){0});
    check_failure(cases[i].body, &f, cases[i].errors, cases[i].words);
    unload(&f);
  }
}
