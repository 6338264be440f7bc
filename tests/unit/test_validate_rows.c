/* What software profiles say about programs of LLaMA-like models: row kernels, copies, data-parallel sums. Expected
 * numbers by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <zplan/buf.h>
#include "../../planner/cost/constants.h"
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

static zp_prediction predict(const char *source, int data, int zero, const char *notes) {
  const char *error = NULL;
  const char *text = zp_format(arena,
                               "id,source,year,layers,hidden,heads,ffn,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,"
                               "inter_bw_GBps_per_gpu,n_gpus,tp,pp,dp,micro_batch,global_batch,recompute,zero_stage,"
                               "measured_iter_s,precision,notes\n"
                               "x_a,%s,2024,%d,%d,32,%d,32768,%d,H100-SXM5-80GB,8,450,50,%d,1,1,%d,2,%d,none,%d,1,bf16,"
                               "SwiGLU %s\n",
                               source, LAYERS, HIDDEN, FFN, SEQUENCE, data, data, 2 * data, zero, notes);
  zp_measured_table *table = zp_measured_read(arena, text, strlen(text), "runs", &error);
  cr_assert(table && table->runs.len == 1, "%s", error ? error : "malformed");
  zp_prediction p = zp_predict_run(arena, table, &table->runs.data[0], only_h100, NULL);
  cr_assert(p.predicted, "%s", p.why_not);
  return p;
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
