/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of measured programs: reference formulas, and what autograd keeps. */
#include "../../planner/validate/memory/software_memory.h"
#include "validate_testing.h"

TestSuite(validate_memory, .init = setup, .fini = teardown);

/* ---- reference formulas: arXiv 2205.05198, figure 1, GiB ---- */

Test(validate_memory, activation_figures) {
  static const struct {
    double layers, hidden, heads, microbatch, pipeline, chunks, plain, selective;
  } models[] = {{48, 6144, 64, 4, 1, 1, 59.25, 9.5625},
                {96, 12288, 96, 1, 8, 3, 66.84375, 12.3515625},
                {105, 20480, 128, 1, 35, 3, 114.0234375, 23.076171875},
                {128, 25600, 160, 1, 64, 1, 131.25, 26.5625}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    double got[2];
    for (int c = 0; c < 2; c++)
      got[c] = activation_bytes((activation_case)c, models[i].layers, models[i].hidden, models[i].heads, 2048,
                                models[i].microbatch, 8, models[i].pipeline, models[i].chunks) /
               1073741824.0;
    expect_near(got[0], models[i].plain, 1e-4, "tensor parallel");
    expect_near(got[1], models[i].selective, 1e-4, "sequence parallel and selective");
  }
}

/* ---- what autograd keeps ---- */

static const zp_graph *layer_of(zp_measured *run, int tensor, bool sequence) {
  const char *why = NULL;
  zp_cluster cluster = {.name = "x", .nodes = 1, .oversubscription = 1, .ranks = tensor};
  cluster.node.device = (zp_device){.name = "x",
                                    .memory_bytes_per_s = 1e12,
                                    .flop_per_s_half = 1e14,
                                    .eff_matmul = 1,
                                    .eff_attention = 1,
                                    .eff_memory = 1,
                                    .cores = 100};
  cluster.node.devices = tensor;
  cluster.node.link = (zp_link){"nvswitch", 3e11, 1e-6};
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_MIXED_BF16, tensor);
  zp_sharding *sharding =
      zp_shard(arena, zp_run_model(arena, run, &(zp_run_library){0}), &machine, tensor, 1, sequence, &why);
  cr_assert(sharding, "%s", why);
  return sharding->local[1];
}

static int64_t kept_by_layer(zp_measured *run, int tensor, bool sequence, bool by_operations) {
  return zp_autograd_kept_bytes(arena, layer_of(run, tensor, sequence), run->microbatch, 2, by_operations);
}

/* arXiv 2205.05198, equations 1, 2 and 4, less dropout's masks (2 s b h) and what FlashAttention does not keep (5 a s^2
 * b), and its log-sum-exp of 4 a s b: 32 s b h, s b h (8 + 24 / t), 32 s b h / t. The first counts the output of
 * dropout after the softmax with the scores. */
Test(validate_memory, autograd_keeps_what_korthikanti_counts) {
  zp_measured run = {.shape.layers = 2,
                     .shape.hidden = 256,
                     .shape.heads = 8,
                     .shape.kv_heads = 8,
                     .shape.ffn = 1024,
                     .shape.vocab = 512,
                     .seq = 64,
                     .microbatch = 3};
  double sbh = 64 * 3 * 256, lse = 4 * 8 * 64 * 3;
  expect_near((double)kept_by_layer(&run, 1, false, false), 32 * sbh + lse, 1e-12, "one rank");
  expect_near((double)kept_by_layer(&run, 4, false, false), (8 + 24.0 / 4) * sbh + lse / 4, 1e-12, "tensor 4");
  expect_near((double)kept_by_layer(&run, 4, true, false), 32.0 / 4 * sbh + lse / 4, 1e-12, "sequence split");
}

/* The most is held when the gradient of GELU's input has just been made: in s b h, 24 of the 32 that were kept, dy's 2
 * and twice the gradient of 4 h columns; the residual's gradient is dy itself. As much before down's weight is reached,
 * whose gradient may come on top. Scores in device memory wait until attention. */
Test(validate_memory, backward_holds_gradients_and_what_is_left) {
  zp_measured run = {.shape.layers = 2,
                     .shape.hidden = 256,
                     .shape.heads = 8,
                     .shape.kv_heads = 8,
                     .shape.ffn = 1024,
                     .shape.vocab = 512,
                     .seq = 64,
                     .microbatch = 3};
  double sbh = 64 * 3 * 256, lse = 4 * 8 * 64 * 3;
  zp_autograd_scores none = {0, 0}, some = {1000, 400};
  const zp_graph *layer = layer_of(&run, 1, false);
  expect_near((double)zp_autograd_backward_bytes(arena, layer, 3, 2, &none, false), 42 * sbh + lse, 1e-12, "one rank");
  expect_near((double)zp_autograd_backward_bytes(arena, layer, 3, 2, &some, false), 42 * sbh + lse + 1000, 1e-12,
              "scores");
  double matrix = 2.0 * 256 * 1024; /* the gradient of down's weight, alongside GELU's output and its gradient */
  expect_near((double)zp_autograd_backward_bytes(arena, layer, 3, 2, &none, true), 42 * sbh + lse + matrix, 1e-12,
              "fresh gradients");
  expect_near((double)zp_autograd_joint_bytes(layer, 3, 2), 2 * 2 * sbh, 1e-12, "keys and values");
  run.shape.kv_heads = 2;
  run.shape.gated = run.shape.rotary = true;
  cr_expect_eq(zp_autograd_joint_bytes(layer_of(&run, 1, false), 3, 2), 0);
}

/* torchtitan's list for a Llama layer: its input, wq, wv, w1, w2 and attention, of h, h, kv, f, h and h columns. */
Test(validate_memory, operations_on_the_list_are_kept) {
  zp_measured run = {.shape.layers = 2,
                     .shape.hidden = 256,
                     .shape.heads = 8,
                     .shape.kv_heads = 2,
                     .shape.ffn = 896,
                     .shape.vocab = 512,
                     .seq = 64,
                     .microbatch = 2,
                     .shape.gated = true,
                     .shape.rotary = true};
  double tokens = 64 * 2, columns = 4 * 256 + 64 + 896;
  expect_near((double)kept_by_layer(&run, 1, false, true), tokens * (2 * columns + 4 * 8), 1e-12, "selective");
  double all = 8 * 256 - 2 * (256 - 64) + 4 * 896;
  expect_near((double)kept_by_layer(&run, 1, false, false), tokens * (2 * all + 4 * 8), 1e-12, "everything");
}
