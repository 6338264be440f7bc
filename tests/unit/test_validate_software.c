/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of measured runs did otherwise than ours. */
#include "validate_testing.h"

TestSuite(validate_software, .init = setup, .fini = teardown);

#define LIKE(source, heads, tensor, pipeline, data, microbatch)                                                        \
  zp_format(arena, "x_a,%s,2021,24,4096,%d,51200,1024,A100-SXM4-80GB,8,300,3,%d,%d,%d,%d,%d,%d,full,0,1,fp16,",        \
            source, heads, (tensor) * (pipeline) * (data), tensor, pipeline, data, microbatch,                         \
            16 * (data) * (microbatch))

static double step_of(const char *line) {
  zp_prediction p = predict(line);
  cr_assert(p.predicted, "%s: %s", line, p.why_not);
  return p.estimate.step_s;
}

/* DeepSpeed's pipeline sends one piece a tensor rank; Megatron-LM of the time the whole message from each. */
Test(validate_software, partitioned_messages_are_faster) {
  double whole = step_of(LIKE("someone", 32, 8, 4, 1, 4)), pieces = step_of(LIKE("Megatron-DeepSpeed", 32, 8, 4, 1, 4));
  cr_expect(pieces < 0.97 * whole, "%g against %g", pieces, whole);
  cr_expect_float_eq(step_of(LIKE("someone", 32, 8, 1, 1, 4)), step_of(LIKE("Megatron-DeepSpeed", 32, 8, 1, 1, 4)), 0);
}

/* Until September 2021 its pipeline cut activations only: gradients crossed whole from each of 8 ranks. */
Test(validate_software, gradients_crossed_whole_in_2020) {
  double cut = step_of(LIKE("Megatron-DeepSpeed", 32, 8, 4, 1, 4)),
         whole = step_of(LIKE("Extreme-scale", 32, 8, 4, 1, 4));
  cr_expect(whole > 1.02 * cut, "%g against %g", whole, cut);
}

/* It keeps what stages have sent until backward, one buffer more than are in flight, in pieces, and one whole. */
Test(validate_software, sent_outputs_are_kept_in_pieces) {
  zp_prediction megatron = predict(LIKE("someone", 32, 8, 4, 1, 4)),
                deepspeed = predict(LIKE("Megatron-DeepSpeed", 32, 8, 4, 1, 4));
  cr_assert(megatron.predicted && deepspeed.predicted);
  double output = 2.0 * 4 * 1024 * 4096; /* half precision, micro-batch 4, sequence, width */
  /* and communicators: a second one of tensor ranks, one along the pipeline */
  double mib = 1048576, more = (256 + 24 * 2 * 12 + 2 * 2 * 20) * mib;
  expect_near((double)(deepspeed.peak_bytes - megatron.peak_bytes) - more, (4 + 1) * output / 8 + output, 1e-12,
              "outputs");
}

/* Two score matrices a rank do without the fused softmax that four have, although they hold half as much. */
Test(validate_software, two_heads_a_rank_lose_the_fused_softmax) {
  double two = step_of(LIKE("someone", 16, 8, 1, 1, 1)), four = step_of(LIKE("someone", 32, 8, 1, 1, 1));
  cr_expect(two > 1.05 * four, "%g against %g", two, four);
}

/* Megatron-Core clamps before its fused activation and turns YaRN's positions in single operations; modules that
 * backward computes again are those of the recipe. */
Test(validate_software, layers_of_megatron_core) {
  const zp_measured run = {.source = "Megatron-Bridge",
                           .shape.experts = 4,
                           .shape.layers = 4,
                           .pipeline = 1,
                           .shape.clamped = true,
                           .again = "layernorm moe_act"};
  bool named;
  const zp_software *software = zp_software_of(&run, &named), *with = zp_software_with_experts(arena, &run, software);
  cr_assert(named && !software->clamps_gates && software->splits_heads && software->weighs_gates);
  cr_expect(with->clamps_gates && with->single_rotary && with->again == (ZP_AGAIN_ACTIVATION | ZP_AGAIN_NORM));
  const zp_measured other = {.source = "AutoModel FSDP",
                             .program = "AutoModel",
                             .shape.experts = 4,
                             .shape.layers = 4,
                             .pipeline = 1,
                             .shape.clamped = true};
  with = zp_software_with_experts(arena, &other, zp_software_of(&other, &named));
  cr_expect(!with->clamps_gates && with->again == 0, "its gates are fused");
}

/* OneFlow's data-parallel sums hide behind backward only without tensor parallelism. */
Test(validate_software, oneflow_overlaps_without_tensor_ranks) {
  zp_prediction alone = predict(LIKE("OneFlow", 32, 1, 1, 16, 8)),
                alongside = predict(LIKE("OneFlow", 32, 2, 1, 16, 8));
  cr_assert(alone.predicted && alongside.predicted);
  cr_expect_str_eq(alone.software, "oneflow");
  cr_expect_str_eq(alongside.software, "oneflow-tensor");
  cr_expect(alone.estimate.data_comm_s < 0.5 * alongside.estimate.data_comm_s, "%g against %g",
            alone.estimate.data_comm_s, alongside.estimate.data_comm_s);
}

/* Sources that are not known get a profile by year, and the row says so. */
Test(validate_software, unknown_software_is_stated) {
  cr_expect(strstr(predict(LIKE("someone", 32, 8, 1, 1, 4)).assumed, "software `megatron`, by the year"));
  const char *assumed = predict(LIKE("arXiv 2205.05198", 32, 8, 1, 1, 4)).assumed;
  cr_expect(!assumed || !strstr(assumed, "software"), "%s", assumed);
}

/* nanotron: 16 layers of 67.1 million weights and a head of 268.4; half of all products end with layer 10. */
Test(validate_software, nanotron_cuts_by_products) {
  zp_measured run = {.source = "nanotron",
                     .shape.layers = 16,
                     .shape.hidden = 2048,
                     .shape.heads = 32,
                     .shape.kv_heads = 32,
                     .shape.ffn = 8192,
                     .shape.vocab = 131072,
                     .seq = 64,
                     .shape.gated = true,
                     .shape.rotary = true};
  const zp_model *model = zp_run_model(arena, &run, &(zp_run_library){0});
  bool named;
  int64_t *cut = zp_software_cut(arena, model, zp_software_of(&run, &named), 2);
  cr_expect(cut[0] == 0 && cut[1] == 11 && cut[2] == 18, "%lld %lld", (long long)cut[1], (long long)cut[2]);
  cut = zp_software_cut(arena, model, zp_software_of(&run, &named), 18); /* a unit each */
  for (int k = 0; k <= 18; k++) cr_expect_eq(cut[k], k);
}

#define LLAMA(source, tensor, data, zero, precision, notes)                                                            \
  zp_format(arena, "x_a," source ",2023,24,4096,32,51200,1024,A100-SXM4-80GB,8,300,3,%d,%d,1,%d,2,%d,none,%d,1,%s,%s", \
            (tensor) * (data), tensor, data, 4 * (data), zero, precision, notes)

/* InternEvo's weights go from every owner to all, one after the other: at the end of a step nothing hides a byte of
 * them, and the hops grow with the square of the ranks. */
Test(validate_software, broadcasts_grow_with_the_ranks) {
  zp_prediction small = predict(LLAMA("InternEvo", 1, 64, 1, "bf16", "SwiGLU")),
                large = predict(LLAMA("InternEvo", 1, 1024, 1, "bf16", "SwiGLU"));
  cr_assert(small.predicted && large.predicted);
  cr_expect_str_eq(small.software, "internevo");
  cr_expect(large.estimate.data_comm_s > small.estimate.data_comm_s + 0.3, "%g after %g", large.estimate.data_comm_s,
            small.estimate.data_comm_s);
}

/* Sailor's tables print no precision and its scripts ask for none: fp32 with products in TF32, twice the bytes. */
Test(validate_software, open_precision_is_that_of_the_scripts) {
  zp_prediction assumed = predict(LLAMA("eth-easl/sailor", 4, 2, 0, "fp16", "precision assumed")),
                half = predict(LLAMA("eth-easl/sailor", 4, 2, 0, "fp16", ""));
  cr_assert(assumed.predicted && half.predicted);
  cr_expect_str_eq(assumed.software, "sailor");
  cr_expect(assumed.estimate.step_s > 1.7 * half.estimate.step_s && assumed.estimate.step_s < 3 * half.estimate.step_s,
            "%g against %g", assumed.estimate.step_s, half.estimate.step_s);
  zp_prediction single = predict(LLAMA("eth-easl/sailor", 4, 2, 0, "fp32", "")),
                tensor_cores = predict(LLAMA("eth-easl/sailor", 4, 2, 0, "tf32", ""));
  cr_expect(single.estimate.compute_s > 1.5 * tensor_cores.estimate.compute_s);
}

/* Four collectives a layer and direction wait for the host and two streams; alongside products they do not. */
Test(validate_software, collectives_of_eager_programs_wait) {
  double eager = predict(LIKE("someone", 32, 8, 1, 1, 1)).estimate.tensor_comm_s;
  cr_expect(eager > 24 * 6 * 16 * 24e-6, "%g", eager); /* 24 layers, two forward, two replayed, two back, 16 times */
}

static zp_step_range range_of(const char *program, const char *device, bool several) {
  zp_cluster cluster = {.name = "c", .node.device = {.name = device, .has_bf16 = true}};
  cr_assert(zp_software_find(program, &cluster.trainer, &cluster.software));
  return zp_software_range(arena, &cluster, several, 100);
}

/* Products in 8 or 4 bits on devices by their architecture: kept bytes of a weight's cast, or why there are none. */
static zp_cluster cluster_of(const char *program, const char *arch) {
  zp_cluster cluster = {.name = "c", .node.device = {.name = "h100_sxm", .arch = arch, .has_bf16 = true}};
  cr_assert(zp_software_find(program, &cluster.trainer, &cluster.software));
  return cluster;
}

Test(validate_software, recipes_of_devices) {
  static const struct {
    const char *recipe, *arch;
    double kept; /* 0: the device has none */
  } rows[] = {{"fp8", "sm_80", 0},          {"fp8", "sm_89", 2},    {"fp8_current", "sm_90", 2},
              {"fp8_current", "sm_100", 1}, {"fp8", "sm_120", 1},   {"mxfp8", "sm_90", 0},
              {"mxfp8", "sm_103", 2.0625},  {"mxfp8", "sm_120", 0}, {"nvfp4", "sm_100", 1.125},
              {"nvfp4", "sm_120", 0},       {"bf16", "sm_70", -1} /* no recipe */};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    zp_cluster cluster = cluster_of("megatron", rows[i].arch);
    const zp_software *before = cluster.software;
    const char *why = zp_software_with_recipe(arena, rows[i].recipe, &cluster, &cluster.software);
    cr_expect_eq(why != NULL, rows[i].kept == 0, "%s on %s: %s", rows[i].recipe, rows[i].arch, why ? why : "");
    cr_expect_eq(cluster.software == before, rows[i].kept <= 0);
    cr_expect_eq(zp_software_weight_32nds(cluster.software), rows[i].kept > 0 ? (int)(32 * rows[i].kept) : 0);
  }
}

/* Casts stand alone where ranks share the optimizer's state and it is on the device; with delayed scaling elsewhere,
 * too. */
Test(validate_software, casts_stand_alone_where_the_program_can) {
  static const struct {
    const char *program, *recipe;
    zp_precision precision;
    int zero, bf16_weights;
    zp_tier optimizer;
    bool alone;
    int least, gathered;
  } rows[] = {{"megatron", "fp8_current", ZP_PREC_MIXED_FP8, 1, 0, ZP_TIER_DEVICE, true, 1, 8},
              {"megatron", "fp8_current", ZP_PREC_MIXED_FP8, 3, 0, ZP_TIER_DEVICE, true, 1, 8},
              {"megatron", "fp8_current", ZP_PREC_MIXED_FP8, 0, 0, ZP_TIER_DEVICE, false, 1, 16},
              {"megatron", "fp8_current", ZP_PREC_MIXED_FP8, 1, 1, ZP_TIER_DEVICE, false, 2, 16},
              {"megatron", "fp8_current", ZP_PREC_MIXED_FP8, 1, 0, ZP_TIER_HOST, false, 1, 16},
              {"megatron", "fp8", ZP_PREC_MIXED_FP8_DELAYED, 1, 0, ZP_TIER_HOST, true, 1, 8},
              {"megatron-bridge", "mxfp8", ZP_PREC_MIXED_MXFP8, 1, 0, ZP_TIER_DEVICE, true, 2, 16},
              {"megatron-bridge", "mxfp8", ZP_PREC_MIXED_MXFP8, 3, 0, ZP_TIER_DEVICE, true, 2, 8},
              {"megatron", "nvfp4", ZP_PREC_MIXED_NVFP4, 1, 0, ZP_TIER_DEVICE, true, 1, 4},
              {"megatron", "nvfp4", ZP_PREC_MIXED_NVFP4, 3, 0, ZP_TIER_DEVICE, false, 1, 16},
              {"megatron-core-2025", "nvfp4", ZP_PREC_MIXED_NVFP4, 1, 0, ZP_TIER_DEVICE, false, 2, 16},
              {"megatron", "bf16", ZP_PREC_MIXED_BF16, 1, 0, ZP_TIER_DEVICE, false, 2, 16}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    zp_cluster cluster = cluster_of(rows[i].program, "sm_100");
    cr_assert_null(zp_software_with_recipe(arena, rows[i].recipe, &cluster, &cluster.software));
    zp_train train = {.precision = rows[i].precision, .bf16_weights = rows[i].bf16_weights};
    zp_choice c = {.tensor = 1, .pipeline = 1, .data = 2, .zero = rows[i].zero};
    c.home[ZP_STATE_OPTIMIZER] = (zp_home){rows[i].optimizer, rows[i].optimizer == ZP_TIER_DEVICE ? 0 : 8};
    cr_expect_eq(zp_software_casts_alone(cluster.software, &train, &c), rows[i].alone, "row %zu", i);
    cr_expect_eq(zp_software_gathered_bits(cluster.software, &train, &c), rows[i].gathered, "row %zu", i);
    cr_expect_eq(zp_software_least_weight_bytes(cluster.software, &train, 2), rows[i].least, "row %zu", i);
  }
}

/* Every node's device has them, and the one that keeps most counts. */
Test(validate_software, recipes_of_mixed_clusters) {
  zp_cluster cluster = cluster_of("megatron", "sm_100");
  for (int i = 0; i < 2; i++) {
    zp_node_group group = {.nodes = 1, .type = cluster.node};
    if (i > 0) group.type.device.arch = "sm_90";
    zp_push(arena, &cluster.groups, group);
  }
  const zp_software *software = cluster.software;
  cr_expect_null(zp_software_with_recipe(arena, "fp8", &cluster, &software));
  cr_expect_eq(zp_software_weight_32nds(software), 64);
  software = cluster.software;
  cr_expect(zp_software_with_recipe(arena, "mxfp8", &cluster, &software));
}

/* Runs of the program with such products were measured for one profile alone. */
Test(validate_software, ranges_with_recipes_are_of_runs_that_had_them) {
  zp_cluster core = cluster_of("megatron-core", "sm_90"), bridge = cluster_of("megatron-bridge", "sm_90");
  zp_step_range sixteen = zp_software_range(arena, &core, true, 100);
  cr_assert_null(zp_software_with_recipe(arena, "fp8", &core, &core.software));
  cr_assert_null(zp_software_with_recipe(arena, "fp8", &bridge, &bridge.software));
  zp_step_range eight = zp_software_range(arena, &core, true, 100), own = zp_software_range(arena, &bridge, true, 100);
  cr_expect(sixteen.runs < 100 && eight.runs > 300, "%s, %s", sixteen.source, eight.source);
  cr_expect(own.runs < 100 && strstr(own.family, "bridge"), "%s", own.source);
}

/* Runs of the program on the GPU; where there are fewer than five, those of all programs; of another maker none. */
Test(validate_software, ranges_are_of_measured_runs) {
  zp_step_range own = range_of("megatron-bridge", "gb200", false), pool = range_of("megatron", "v100_sxm2_32", true),
                few = range_of("megatron-deepspeed-bf16", "a100_80", true);
  cr_expect(own.known && own.runs >= 5 && strstr(own.family, "bridge"), "%s", own.source);
  cr_expect(pool.known && pool.runs > 300 && pool.low_s < 100 && pool.high_s > 130, "%s", pool.source);
  cr_expect(few.known && few.runs == pool.runs, "%s", few.source);
  cr_expect(!range_of("megatron", "mi300x", true).known);
}
