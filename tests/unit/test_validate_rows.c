/* SPDX-License-Identifier: Apache-2.0 */
/* What software profiles say about programs of LLaMA-like models: row kernels, copies, data-parallel sums. Expected
 * numbers by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <zplan/buf.h>
#include <zplan/constants.h>
#include <zplan/cost.h>
#include "../../planner/cost/software/software_cost.h"
#include "../../planner/validate/validate_internal.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(validate_rows, .init = setup, .fini = teardown);

/* ---- single kernels ---- */

/* The kernels of a fused group of the given ops, each on the one before it, forward or backward. */
static zp_row_kernels rows_of(const zp_software *software, const zp_op *ops, int n, bool grad) {
  zp_operand operands[] = {ZP_OPERAND_ROWS, ZP_OPERAND_ROWS};
  zp_fused fused = {.n_in = 2, .operand = operands};
  for (int i = 0; i < n; i++) {
    zp_fused_op op = {.op = ops[i], .arg = {i == 0 ? 0 : 1 + i, 1}, .n_arg = 2};
    zp_push(arena, &fused.ops, op);
  }
  zp_node node = {.fused = &fused};
  zp_step step = {.op = grad ? ZP_OP_FUSED_GRAD : ZP_OP_FUSED, .node = &node};
  return zp_software_rows(software, &step);
}

/* SiLU reads and writes, the product reads two and writes one: 5 passes for 3. Backward the product is two kernels of
 * 3, SiLU one of 3: 9 for 5; joining both gradients reads and writes two more each. */
Test(validate_rows, gates_are_separate_kernels) {
  static const zp_op gate[] = {ZP_OP_SILU, ZP_OP_MUL};
  const zp_software none = {0}, separate = {.separate_gates = true},
                    merged = {.separate_gates = true, .merged_products = true};
  cr_expect_eq(rows_of(&none, gate, 2, false).passes, 0);
  cr_expect_eq(rows_of(&separate, gate, 2, false).passes, 5 - 3);
  cr_expect_eq(rows_of(&separate, gate, 2, false).kernels, 1);
  cr_expect_eq(rows_of(&separate, gate, 2, true).passes, 9 - 5);
  cr_expect_eq(rows_of(&merged, gate, 2, true).passes, 9 - 5 + 4);
  cr_expect_eq(rows_of(&merged, gate, 2, true).kernels, 3);
}

/* In fp32, bytes an element: cast 6, square 8, mean 4, product 8, cast 6, weight 4; the kernel itself moves 4. A
 * rotation: casts 6 + 6, product 8. */
Test(validate_rows, norms_and_rotations_in_single_operations) {
  static const zp_op norm[] = {ZP_OP_RMS_NORM}, turn[] = {ZP_OP_ROPE};
  const zp_software fused = {0}, single = {.float_norms = true, .float_rotary = true};
  double forward = rows_of(&single, norm, 1, false).passes - rows_of(&fused, norm, 1, false).passes;
  cr_expect_eq(2 * forward, 6 + 8 + 4 + 8 + 6 + 4 - 4);
  cr_expect_eq(2 * rows_of(&single, turn, 1, false).passes, 6 + 6 + 8 - 4);
  cr_expect_eq(rows_of(&single, turn, 1, true).passes, rows_of(&single, turn, 1, false).passes);
  cr_expect_eq(rows_of(&single, turn, 1, false).mask_bytes, 0);
}

/* ---- whole runs ---- */

static const zp_device h100 = {.name = "h100_sxm",
                               .memory_bytes = INT64_C(80000000000),
                               .memory_bytes_per_s = 3.35e12,
                               .flop_per_s_fp32 = 67e12,
                               .flop_per_s_half = 989e12,
                               .eff_memory = 0.8,
                               .launch_s = 3e-6,
                               .cores = 132};
static const zp_device *only_h100(void *user, const char *name) {
  (void)user;
  return strcmp(name, "h100_sxm") == 0 ? &h100 : NULL;
}

enum { LAYERS = 8, HIDDEN = 4096, FFN = 14336, SEQUENCE = 4096 };

static zp_prediction predict_ranks(const char *source, int tensor, int data, int zero, const char *notes) {
  const char *error = NULL;
  const char *text =
      zp_format(arena,
                "id,source,year,layers,hidden,heads,ffn,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,"
                "inter_bw_GBps_per_gpu,n_gpus,tp,pp,dp,seq_parallel,micro_batch,global_batch,recompute,"
                "zero_stage,measured_iter_s,precision,notes\n"
                "x_a,%s,2024,%d,%d,32,%d,32768,%d,H100-SXM5-80GB,8,450,50,%d,%d,1,%d,%d,2,%d,none,%d,1,"
                "bf16,SwiGLU %s\n",
                source, LAYERS, HIDDEN, FFN, SEQUENCE, tensor * data, tensor, data, tensor > 1, 2 * data, zero, notes);
  zp_measured_table *table = zp_measured_read(arena, text, strlen(text), "runs", &error);
  cr_assert(table && table->runs.len == 1, "%s", error ? error : "malformed");
  zp_prediction p = zp_predict_run(arena, table, &table->runs.data[0], &(zp_run_library){.device = only_h100});
  cr_assert(p.predicted, "%s", p.why_not);
  return p;
}

static zp_prediction predict(const char *source, int data, int zero, const char *notes) {
  return predict_ranks(source, 1, data, zero, notes);
}

/* torch.compile fuses rows. Without it, per layer: two norms (36 + 76 bytes an element, fused and compiled at most 12),
 * a gate (28, for 16), rotations of queries and keys (80, for 16), of the hidden width. */
Test(validate_rows, compiled_layers_move_less) {
  zp_prediction eager = predict("torchtitan", 1, 0, ""), compiled = predict("torchtitan", 1, 0, "torch.compile");
  cr_expect_str_eq(eager.software, "fsdp");
  cr_expect_str_eq(compiled.software, "fsdp-compiled");
  cr_expect_str_eq(predict("torchtitan asyncTP_llama3", 1, 0, "").software, "fsdp-compiled");
  double tokens = 2 * SEQUENCE, rate = 0.8 * 3.35e12;
  double least = LAYERS * tokens * (2 * (36 + 76 - 12) * HIDDEN + (28 - 16) * FFN + (80 - 16) * HIDDEN) / rate;
  double more = eager.estimate.step_s - compiled.estimate.step_s;
  cr_expect(more > least && more < 1.25 * least, "%g, at least %g", more, least);
}

/* nanotron with ZeRO 1 sums whole fp32 gradients after backward, twice 15/16 of 4 bytes over the cards, and gathers
 * half that many bytes in lists, 20 us for each of 16 ranks and of 6 tensors a layer and 3 more.
 * DistributedDataParallel hides its sums. */
Test(validate_rows, nanotron_waits_for_its_sums_with_zero_1) {
  zp_prediction hidden = predict("nanotron", 16, 0, ""), waits = predict("nanotron", 16, 1, "");
  double parameters = LAYERS * (4.0 * HIDDEN * HIDDEN + 3.0 * HIDDEN * FFN) + 2.0 * 32768 * HIDDEN;
  double ring = 8 * 50e9 * zp_cost_constant(ZP_COST_NETWORK_PAYLOAD), lists = (6 * LAYERS + 3) * 16 * 20e-6;
  double sums = 2 * 15.0 / 16 * 4 * parameters / ring, all = sums + sums / 4 + lists;
  cr_expect(waits.estimate.data_comm_s > all && waits.estimate.data_comm_s < 1.05 * all, "%g, at least %g",
            waits.estimate.data_comm_s, all);
  cr_expect(hidden.estimate.data_comm_s < 0.5 * sums, "%g against %g", hidden.estimate.data_comm_s, sums);
}

/* nanotron's collectives between two tensor ranks. A layer's scatters wait forward and are hidden alongside weight
 * gradients backward; gathers run alongside own rows, those of operands for weight gradients alongside the whole
 * gradient of the operand. What is hidden costs the products the share of the multiprocessors that it takes. Own rows
 * of the attention's last product are too few to hide theirs backward. At the ends: the embedding's two alongside
 * nothing, the head's three alongside its products. */
Test(validate_rows, nanotron_hides_collectives_alongside_whole_products) {
  double taken = zp_cost_constant(ZP_COST_LINK_BLOCKS) / h100.cores, copy = zp_cost_constant(ZP_COST_LINK_COPY);
  double rows = 2.0 * SEQUENCE, latency = zp_cost_constant(ZP_COST_LINK_LATENCY_S);
  double one = zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S) + latency + rows * HIDDEN * 2 / 2 / (450e9 / (1 + copy));
  double own = 2 * rows / 2 * HIDDEN * HIDDEN / 2 / 989e12;
  double layer = (2 + 7 * taken) * one + one - (1 - taken) * own;
  double expected = LAYERS * layer + (2 + 3 * taken) * one;
  double got = predict_ranks("nanotron", 2, 1, 0, "").estimate.tensor_comm_s;
  cr_expect(fabs(got / expected - 1) < 0.03, "%g, expected %g", got, expected);
}

/* A product that starts with the rank's own rows alongside a gather takes as long as its pieces: of the first of 8
 * ranks an eighth and seven, of the fourth also what lies before. The gather is hidden alongside the eighth. */
Test(validate_rows, products_alongside_whole_gathers_run_in_pieces) {
  enum { RANKS = 8, INNER = 4096, COLUMNS = 1024, HALF = 2 };
  zp_cluster cluster = {.nodes = 1, .ranks = RANKS, .node = {.device = h100, .devices = RANKS, .nics = RANKS}};
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_MIXED_BF16, RANKS);
  zp_graph graph = {0};
  zp_tensor tensors[] = {{.shape = {.rank = 3, .dim = {ZP_DIM_B, SEQUENCE, INNER}}},
                         {.shape = {.rank = 2, .dim = {COLUMNS, INNER}}}};
  zp_push(arena, &graph.tensors, tensors[0]);
  zp_push(arena, &graph.tensors, tensors[1]);
  zp_node gather = {.op = ZP_OP_ALL_GATHER_SEQ}, product = {.op = ZP_OP_MATMUL};
  for (int i = 0; i < 2; i++) zp_push(arena, &product.in, i);
  double whole = zp_cost_matmul(&machine, SEQUENCE, COLUMNS, INNER, HALF);
  zp_step steps[] = {{.op = gather.op, .node = &gather, .cost_s = 1},
                     {.op = product.op, .node = &product, .cost_s = whole}};
  zp_push(arena, &steps[0].out, 7);
  zp_push(arena, &steps[1].in, 7);
  zp_procedure procedure = {0};
  for (int i = 0; i < 2; i++) zp_push(arena, &procedure.steps, steps[i]);
  zp_sharding sharding = {.tensor = RANKS};
  zp_lowered lowered = {.sharding = &sharding, .microbatch = 1, .compute_bytes = HALF};
  zp_software software = {.overlaps_tensor = true, .whole_pieces = true};
  double kernels = zp_software_overlap_tensor(&procedure, &graph, &lowered, &machine, &software, 0.25, true);
  double pieces = procedure.steps.data[1].cost_s, eighth = zp_cost_matmul(&machine, 512, COLUMNS, INNER, HALF);
  double first = eighth + zp_cost_matmul(&machine, 3584, COLUMNS, INNER, HALF);
  double fourth = eighth + zp_cost_matmul(&machine, 1536, COLUMNS, INNER, HALF) +
                  zp_cost_matmul(&machine, 2048, COLUMNS, INNER, HALF);
  cr_expect(pieces > whole && pieces >= fmax(first, fourth) && pieces < 1.5 * fmax(first, fourth), "%g: %g, %g, %g",
            pieces, whole, first, fourth);
  cr_expect_float_eq(procedure.steps.data[0].cost_s, 1 - 0.75 * whole / RANKS, 1e-9);
  cr_expect_eq(kernels, 2);
}

/* ---- what a published rate means ---- */

/* FLOP a step that nanotron's runs published as MFU (of 989.5 TFLOP/s) and tokens a second and GPU together: 1.34B with
 * its tied table on one stage and on two, 8.86B with tables of its own (Ultra-Scale Playbook, benchmarks_interactive).
 * MFU is printed to 0.1 or 0.01 %. */
Test(validate_rows, nanotron_counts_tables_as_products) {
  static const struct {
    int layers, hidden, ffn, pipeline;
    double parameters, mfu, tokens_per_s;
  } runs[] = {{16, 2048, 8192, 1, 1.34e9, 0.392, 40150},
              {16, 2048, 8192, 2, 1.34e9, 0.4432, 38895},
              {32, 4096, 14336, 1, 8.86e9, 0.4394, 7290}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    zp_measured run = {.source = "huggingface/nanotron",
                       .shape.layers = runs[i].layers,
                       .shape.hidden = runs[i].hidden,
                       .shape.heads = 32,
                       .shape.kv_heads = 32,
                       .shape.ffn = runs[i].ffn,
                       .shape.vocab = 131072,
                       .seq = 4096,
                       .batch = 256,
                       .pipeline = runs[i].pipeline,
                       .parameters = runs[i].parameters,
                       .shape.gated = true};
    double flop = 256 * 4096 * runs[i].mfu * 989.5e12 / runs[i].tokens_per_s;
    cr_expect(fabs(zp_run_flop(&run, false) / flop - 1) < 0.002, "%zu: %g, published %g", i, zp_run_flop(&run, false),
              flop);
  }
}
