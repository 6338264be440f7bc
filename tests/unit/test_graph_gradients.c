/* SPDX-License-Identifier: Apache-2.0 */
/* Every op's derivative against central differences, through localize, fuse, differentiate and the interpreter. */
#include "graph_testing.h"
#include <zplan/sparse.h>

enum { S = 5, D = 8 };

/* y = f(x) alone: nothing but the op's own rule decides what is saved. */
static void check_alone(zp_op op, zp_op_attr attr) {
  kit k = kit_new(S, 1, D);
  carry_out(&k, apply(&k, op, attr, zp_op_name(op), k.graph->carry_in.data[0], -1, -1));
  check_gradients(&k, 10, 0.3);
  kit_free(&k);
}

/* y = f(x + bias) scaled by a weight: inputs, columns and the op's own rule in one group. */
static void check_function(zp_op op, zp_op_attr attr, bool positive) {
  if (!positive) check_alone(op, attr);
  kit k = kit_new(S, 1, D);
  int x = op2(&k, ZP_OP_ADD, k.graph->carry_in.data[0], param(&k, "bias", shape1(D)));
  if (positive) x = apply(&k, ZP_OP_ADD_CONST, (zp_op_attr){.value = 0.5}, "shift", op1(&k, ZP_OP_EXP, x), -1, -1);
  int y = apply(&k, op, attr, zp_op_name(op), x, -1, -1);
  carry_out(&k, op2(&k, ZP_OP_MUL, y, param(&k, "scale", shape1(D))));
  check_gradients(&k, 10, 0.3);
  kit_free(&k);
}

Test(gradients, functions) {
  check_function(ZP_OP_ADD_CONST, (zp_op_attr){.value = 1.5}, false);
  check_function(ZP_OP_MUL_CONST, (zp_op_attr){.value = -2.5}, false);
  check_function(ZP_OP_EXP, (zp_op_attr){0}, false);
  check_function(ZP_OP_LOG, (zp_op_attr){0}, true);
  check_function(ZP_OP_SQRT, (zp_op_attr){0}, true);
  check_function(ZP_OP_RSQRT, (zp_op_attr){0}, true);
  check_function(ZP_OP_TANH, (zp_op_attr){0}, false);
  check_function(ZP_OP_SIGMOID, (zp_op_attr){0}, false);
  check_function(ZP_OP_RELU, (zp_op_attr){0}, false);
  check_function(ZP_OP_LEAKY_RELU, (zp_op_attr){.value = 0.3}, false);
  check_function(ZP_OP_LEAKY_RELU, (zp_op_attr){.value = 2}, false);
  check_function(ZP_OP_SILU, (zp_op_attr){0}, false);
  check_function(ZP_OP_GELU, (zp_op_attr){.tanh_form = true}, false);
  check_function(ZP_OP_GELU, (zp_op_attr){.tanh_form = false}, false);
  check_function(ZP_OP_SOFTMAX, (zp_op_attr){0}, false);
}

static void check_binary(zp_op op, int kind) {
  kit k = kit_new(S, 2, D);
  int a = k.graph->carry_in.data[0], b = k.graph->carry_in.data[1];
  if (kind == 0) b = op1(&k, ZP_OP_EXP, b); /* away from zero for the division */
  if (kind == 1) b = param(&k, "columns", shape1(D));
  if (kind == 2) b = param(&k, "position", shape2(S, D));
  if (kind == 3) b = a = op1(&k, ZP_OP_EXP, a); /* both operands the same value */
  carry_out(&k, op1(&k, ZP_OP_TANH, op2(&k, op, a, b)));
  check_gradients(&k, 10, 1.2);
  kit_free(&k);
}

Test(gradients, binary_operators) {
  for (int kind = 0; kind < 4; kind++) {
    check_binary(ZP_OP_ADD, kind);
    check_binary(ZP_OP_SUB, kind);
    check_binary(ZP_OP_MUL, kind);
    check_binary(ZP_OP_DIV, kind);
  }
}

/* The first reader of x hands its gradient on unchanged, the second one does not. */
Test(gradients, value_added_and_multiplied) {
  kit k = kit_new(S, 2, D);
  int x = k.graph->carry_in.data[0];
  carry_out(&k, op2(&k, ZP_OP_MUL, op2(&k, ZP_OP_ADD, x, k.graph->carry_in.data[1]), x));
  check_gradients(&k, 10, 1);
  kit_free(&k);
}

Test(gradients, small_first_operand_is_swapped_or_composed) {
  kit k = kit_new(S, 1, D);
  int x = k.graph->carry_in.data[0];
  int y = op2(&k, ZP_OP_SUB, param(&k, "position", shape2(S, D)), x);
  y = op2(&k, ZP_OP_MUL, param(&k, "scale", shape1(D)), y);
  carry_out(&k, op2(&k, ZP_OP_ADD, param(&k, "bias", shape1(D)), y));
  check_gradients(&k, 10, 1);
  kit_free(&k);
}

Test(gradients, norms) {
  kit k = kit_new(S, 1, D);
  carry_out(&k, rms_norm(&k, "rms", layer_norm(&k, "ln", k.graph->carry_in.data[0])));
  check_gradients(&k, 10, 1);
  kit_free(&k);
}

Test(gradients, dropout) {
  kit k = kit_new(S, 1, D);
  int x = dropout(&k, "a", k.graph->carry_in.data[0], 0.4);
  carry_out(&k, op2(&k, ZP_OP_MUL, x, dropout(&k, "b", x, 0.25)));
  zp_graph *graph = check_gradients(&k, 10, 1);
  zp_interpreter *in = zp_interpreter_new(k.arena, graph, TEST_BATCH);
  fill_outside(in, 10, 1);
  zp_interpret(in, 0, graph->nodes.len);
  int zeros = 0;
  for (int i = 0; i < TEST_BATCH * S * D; i++) zeros += in->value[graph->grad_out.data[0]][i] == 0;
  cr_assert(zeros > 20 && zeros < 70, "%d of 80 gradients dropped at rates 0.4 and 0.25", zeros);
  kit_free(&k);
}

static void check_rope(bool interleaved) {
  kit k = kit_new(S, 1, D);
  zp_op_attr attr = {.heads = 2, .theta = 100, .interleaved = interleaved};
  carry_out(&k, op1(&k, ZP_OP_TANH, apply(&k, ZP_OP_ROPE, attr, "rope", k.graph->carry_in.data[0], -1, -1)));
  check_gradients(&k, 10, 1);
  kit_free(&k);
}

Test(gradients, rope) {
  check_rope(false);
  check_rope(true);
}

/* Every head by itself, between other row ops; the weight is shared by the heads. */
static void check_head_norm(int64_t heads, double offset) {
  kit k = kit_new(S, 1, D);
  int x = op1(&k, ZP_OP_TANH, linear(&k, "x", k.graph->carry_in.data[0], D, false));
  zp_op_attr attr = {.heads = heads, .eps = 1e-3, .value = offset};
  int y = apply(&k, ZP_OP_RMS_NORM, attr, "norm", x, param(&k, "w", shape1(D / heads)), -1);
  zp_op_attr rope = {.heads = heads, .theta = 100};
  carry_out(&k, op2(&k, ZP_OP_ADD, apply(&k, ZP_OP_ROPE, rope, "rope", y, -1, -1), x));
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

Test(gradients, norm_of_heads) {
  check_head_norm(4, 0);
  check_head_norm(2, 1);
  check_head_norm(1, 1);
}

static void check_l2_norm(int64_t heads) {
  kit k = kit_new(S, 1, D);
  int x = op1(&k, ZP_OP_TANH, linear(&k, "x", k.graph->carry_in.data[0], D, false));
  int y = apply(&k, ZP_OP_L2_NORM, (zp_op_attr){.heads = heads, .eps = 1e-3}, "unit", x, -1, -1);
  carry_out(&k, op2(&k, ZP_OP_MUL, op2(&k, ZP_OP_ADD, y, x), param(&k, "scale", shape1(D))));
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

Test(gradients, l2_norm_of_rows_and_of_heads) {
  check_l2_norm(0);
  check_l2_norm(4);
  check_l2_norm(1);
}

Test(gradients, matmul_plain_and_transposed) {
  kit k = kit_new(S, 1, D);
  int h = op2(&k, ZP_OP_MATMUL, k.graph->carry_in.data[0], param(&k, "w", shape2(D, 6)));
  carry_out(&k, linear(&k, "out", h, 7, false));
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

static void check_attention(int64_t heads, int64_t kv_heads, bool causal) {
  kit k = kit_new(S, 1, D);
  int x = k.graph->carry_in.data[0];
  int64_t kv = D / heads * kv_heads;
  zp_op_attr attr = {.heads = heads, .kv_heads = kv_heads, .causal = causal};
  carry_out(&k, apply(&k, ZP_OP_ATTENTION, attr, "y", linear(&k, "q", x, D, false), linear(&k, "k", x, kv, false),
                      linear(&k, "v", x, kv, false)));
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

Test(gradients, attention) {
  check_attention(2, 2, true);
  check_attention(4, 2, true);
  check_attention(4, 1, false);
}

/* Four heads that share two of keys and values. */
static void check_grouped(zp_op_attr attr) {
  kit k = kit_new(S, 1, D);
  int x = k.graph->carry_in.data[0];
  attr.heads = 4;
  attr.kv_heads = 2;
  carry_out(&k, apply(&k, ZP_OP_ATTENTION, attr, "y", linear(&k, "q", x, D, false), linear(&k, "k", x, D / 2, false),
                      linear(&k, "v", x, D / 2, false)));
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

Test(gradients, attention_in_windows) {
  check_grouped((zp_op_attr){.window = 2, .causal = true});
  check_grouped((zp_op_attr){.window = 3});
}

Test(gradients, attention_with_bent_scores) {
  check_grouped((zp_op_attr){.softcap = 0.3, .causal = true});
  check_grouped((zp_op_attr){.alibi_heads = 4});
  check_grouped((zp_op_attr){.softcap = 2, .alibi_heads = 4, .causal = true});
}

/* The mask is a function of the place: slopes are of one and the same function. */
Test(gradients, attention_with_dropout) {
  check_grouped((zp_op_attr){.rate = 0.4, .stream = 0x8000, .causal = true});
  check_grouped((zp_op_attr){.rate = 0.4, .stream = 0x8000});
  check_grouped((zp_op_attr){.rate = 0.2, .stream = 0x8001, .window = 3, .softcap = 0.7});
}

static void check_sparse(zp_sparse sparse, int heads, bool causal) {
  enum { POSITIONS = 64, COLUMNS = 4 };
  kit k = kit_new(POSITIONS, 1, COLUMNS);
  int x = k.graph->carry_in.data[0];
  zp_op_attr attr = {.heads = heads, .kv_heads = heads / 2, .causal = causal, .sparse = &sparse};
  carry_out(&k, apply(&k, ZP_OP_ATTENTION, attr, "y", linear(&k, "q", x, COLUMNS, false),
                      linear(&k, "k", x, COLUMNS / 2, false), linear(&k, "v", x, COLUMNS / 2, false)));
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

Test(gradients, sparse_attention) {
  check_sparse((zp_sparse){.kind = ZP_SPARSE_SLIDING, .block = 16, .window = 3}, 2, true);
  check_sparse((zp_sparse){.kind = ZP_SPARSE_FIXED, .block = 16, .local = 2, .global = 1, .patterns = 1}, 2, false);
  zp_sparse sets = {.kind = ZP_SPARSE_FIXED, .block = 16, .local = 2, .global = 1, .patterns = 2, .horizontal = true};
  check_sparse(sets, 4, false);
}

/* Samples of 1 to all positions: what stands after them is 0, and has no gradient. sparse: NULL, or in blocks of
 * 16. */
static void check_lengths(const zp_sparse *sparse, bool causal) {
  int positions = sparse ? 48 : S;
  kit k = kit_new(positions, 1, D);
  int lengths = zp_model_add_input(k.model, "lengths", shape1(ZP_DIM_B), ZP_NO_SPAN);
  int x = k.graph->carry_in.data[0];
  int in[4] = {linear(&k, "q", x, D, false), linear(&k, "k", x, D / 2, false), linear(&k, "v", x, D / 2, false),
               zp_graph_input(k.graph, k.model, lengths)};
  zp_op_attr attr = {.heads = 4, .kv_heads = 2, .causal = causal, .sparse = sparse};
  int y = zp_graph_apply(k.graph, k.diags, ZP_OP_ATTENTION, in, 4, attr, "y", ZP_NO_SPAN);
  cr_assert_geq(y, 0);
  carry_out(&k, y);
  zp_graph *graph = check_gradients(&k, 10, 0);
  zp_interpreter *interpreter = zp_interpreter_new(k.arena, graph, TEST_BATCH);
  fill_outside(interpreter, 10, 1);
  zp_interpret(interpreter, 0, graph->nodes.len);
  int behind = 0;
  for (int sample = 0; sample < TEST_BATCH; sample++)
    for (int64_t i = (int64_t)interpreter->value[in[3]][sample]; i < positions; i++, behind++)
      for (int c = 0; c < D; c++) {
        int64_t at = (sample * positions + i) * D + c;
        cr_expect_eq(interpreter->value[graph->carry_out.data[0]][at], 0);
        cr_expect_eq(interpreter->value[graph->grad_out.data[0]][at], 0);
      }
  cr_expect_gt(behind, 0);
  kit_free(&k);
}

Test(gradients, attention_of_samples_with_lengths) {
  check_lengths(NULL, false);
  check_lengths(NULL, true);
  zp_sparse sets = {.kind = ZP_SPARSE_FIXED, .block = 16, .local = 2, .global = 1, .patterns = 2, .horizontal = true};
  check_lengths(&sets, false);
}

/* Documents of a sample: a query's gradient is of its own alone, and of what is after them none. */
static void check_documents(zp_op_attr attr, bool bias) {
  kit k = kit_new(S, 1, D);
  int documents = zp_model_add_input(k.model, "documents", shape2(ZP_DIM_B, S), ZP_NO_SPAN);
  int x = k.graph->carry_in.data[0];
  int in[5] = {linear(&k, "q", x, D, false), linear(&k, "k", x, D / 2, false), linear(&k, "v", x, D / 2, false),
               zp_graph_input(k.graph, k.model, documents)};
  if (bias) in[4] = param(&k, "table", shape2(8, 4));
  attr.heads = 4, attr.kv_heads = 2, attr.documents = true, attr.max_distance = bias ? 5 : 0;
  int y = zp_graph_apply(k.graph, k.diags, ZP_OP_ATTENTION, in, bias ? 5 : 4, attr, "y", ZP_NO_SPAN);
  cr_assert_geq(y, 0);
  carry_out(&k, y);
  zp_graph *graph = check_gradients(&k, 10, 0);
  zp_interpreter *interpreter = zp_interpreter_new(k.arena, graph, TEST_BATCH);
  fill_outside(interpreter, 10, 1);
  zp_interpret(interpreter, 0, graph->nodes.len);
  const double *number = interpreter->value[in[3]], *out = interpreter->value[graph->carry_out.data[0]];
  double *first = interpreter->value[graph->carry_in.data[0]], before[S * D];
  memcpy(before, out, sizeof before);
  for (int c = 0; c < D; c++) first[c] += 1; /* of the first document of the first sample */
  zp_interpret(interpreter, 0, graph->nodes.len);
  for (int64_t i = 0; i < S * D; i++) {
    bool same = number[i / D] == number[0];
    if (!same || attr.rate == 0) /* what is dropped does not change */
      cr_expect_eq(out[i] == before[i], !same, "position %lld", (long long)(i / D));
    if (number[i / D] < 0) cr_expect_eq(out[i], 0);
  }
  kit_free(&k);
}

Test(gradients, attention_within_documents) {
  check_documents((zp_op_attr){0}, false);
  check_documents((zp_op_attr){.causal = true, .window = 2, .softcap = 0.8}, false);
  check_documents((zp_op_attr){.causal = true, .rate = 0.2, .stream = 0x8003}, false);
  check_documents((zp_op_attr){0}, true);
}

/* Keys of another sequence, of three times as many positions as there are queries, with lengths. */
static void check_cross(bool lengths) {
  kit k = kit_new(S, 1, D);
  int in[4] = {linear(&k, "q", k.graph->carry_in.data[0], D, false)};
  zp_tensor source = k.graph->tensors.data[k.graph->carry_in.data[0]];
  source.shape.dim[1] = 3 * S;
  int other = zp_graph_add_carry(k.graph, &source);
  in[1] = linear(&k, "k", other, D / 2, false);
  in[2] = linear(&k, "v", other, D / 2, false);
  if (lengths)
    in[3] = zp_graph_input(k.graph, k.model, zp_model_add_input(k.model, "lengths", shape1(ZP_DIM_B), ZP_NO_SPAN));
  zp_op_attr attr = {.heads = 4, .kv_heads = 2, .cross = true};
  int y = zp_graph_apply(k.graph, k.diags, ZP_OP_ATTENTION, in, lengths ? 4 : 3, attr, "y", ZP_NO_SPAN);
  cr_assert_geq(y, 0);
  carry_out(&k, y);
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

Test(gradients, cross_attention) {
  check_cross(false);
  check_cross(true);
}

static void check_relative_bias(bool causal, bool lengths, double softcap) {
  kit k = kit_new(S, 1, D);
  int x = k.graph->carry_in.data[0], n = 3;
  int in[5] = {linear(&k, "q", x, D, false), linear(&k, "k", x, D / 2, false), linear(&k, "v", x, D / 2, false)};
  if (lengths)
    in[n++] = zp_graph_input(k.graph, k.model, zp_model_add_input(k.model, "lengths", shape1(ZP_DIM_B), ZP_NO_SPAN));
  in[n++] = param(&k, "table", shape2(8, 4));
  zp_op_attr attr = {.heads = 4, .kv_heads = 2, .causal = causal, .max_distance = 5, .softcap = softcap};
  int y = zp_graph_apply(k.graph, k.diags, ZP_OP_ATTENTION, in, n, attr, "y", ZP_NO_SPAN);
  cr_assert_geq(y, 0);
  carry_out(&k, y);
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

Test(gradients, relative_bias) {
  check_relative_bias(true, false, 0);
  check_relative_bias(false, true, 0);
  check_relative_bias(false, false, 0.7);
}

/* q, k and v one and the same tensor: three contributions to one gradient. */
Test(gradients, attention_of_one_tensor) {
  kit k = kit_new(S, 1, D);
  int x = k.graph->carry_in.data[0];
  carry_out(&k, apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 2}, "y", x, x, x));
  check_gradients(&k, 10, 0);
  kit_free(&k);
}

/* ---- whole layers ---- */

Test(gradients, gpt_layer) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, 2, 0.1);
  zp_graph *graph = check_gradients(&k, 10, 0.2);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED), 5, "no sums alongside the five forward groups");
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED_GRAD), 5);
  kit_free(&k);
}

Test(gradients, gpt_layer_without_dropout) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, 2, 0);
  check_gradients(&k, 10, 0.2);
  kit_free(&k);
}

Test(gradients, llama_layer) {
  kit k = kit_new(S, 1, D);
  llama_layer(&k, 4, 2, 12);
  zp_graph *graph = check_gradients(&k, 10, 0.2);
  for (int i = graph->n_forward; i < graph->nodes.len; i++)
    cr_assert_neq(graph->nodes.data[i].op, ZP_OP_FUSED, "sums belong into the groups' own derivatives");
  kit_free(&k);
}

/* Embedding and head with one table, positions, dropout, loss: the whole model in one segment. */
Test(gradients, tied_embedding_and_head) {
  enum { V = 11 };
  kit k = kit_new(S, 0, D);
  int wte = param(&k, "wte", shape2(V, D)), wpe = param(&k, "wpe", shape2(S, D));
  int tokens = zp_graph_input(k.graph, k.model, 0), labels = zp_graph_input(k.graph, k.model, 1);
  int x = op2(&k, ZP_OP_ADD, op2(&k, ZP_OP_EMBEDDING, tokens, wte), wpe);
  x = layer_norm(&k, "ln_f", dropout(&k, "drop", x, 0.2));
  int logits = apply(&k, ZP_OP_MATMUL, (zp_op_attr){.trans = true}, "logits", x, wte, -1);
  zp_graph_add_loss(k.graph, op2(&k, ZP_OP_CROSS_ENTROPY, logits, labels), 1);
  zp_graph *graph = check_gradients(&k, V, 0.2);
  int uses = 0;
  for (int i = 0; i < graph->nodes.len; i++)
    for (int p = 0; p < graph->nodes.data[i].param_grad.len; p++) uses += graph->nodes.data[i].param_grad.data[p] == 0;
  cr_assert_eq(uses, 2, "both uses of the tied table accumulate");
  kit_free(&k);
}

/* The first segment of a GPT: the incoming gradient is the gradient of both tables, so no group is left. */
Test(gradients, identity_needs_no_kernel) {
  kit k = kit_new(S, 0, D);
  int wte = param(&k, "wte", shape2(9, D)), wpe = param(&k, "wpe", shape2(S, D));
  int tokens = zp_graph_input(k.graph, k.model, 0);
  carry_out(&k, op2(&k, ZP_OP_ADD, op2(&k, ZP_OP_EMBEDDING, tokens, wte), wpe));
  zp_graph *graph = check_gradients(&k, 9, 0);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED_GRAD), 0);
  cr_assert_eq(count_nodes(graph, ZP_OP_POSITION_GRAD), 1);
  cr_assert_eq(count_nodes(graph, ZP_OP_EMBEDDING_GRAD), 1);
  kit_free(&k);
}

/* ---- positions of samples ---- */

static int slice(kit *k, const char *name, int x, int64_t begin, int64_t count) {
  return apply(k, ZP_OP_SLICE, (zp_op_attr){.begin = begin, .count = count}, name, x, -1, -1);
}

/* Every op alone: nothing but its own rule decides what flows back. */
Test(gradients, one_operation_on_positions) {
  check_alone(ZP_OP_MEAN, (zp_op_attr){0});
  check_alone(ZP_OP_SLICE, (zp_op_attr){.begin = 2});
  check_alone(ZP_OP_SLICE, (zp_op_attr){.begin = 1, .count = 3});
  check_alone(ZP_OP_SLICE, (zp_op_attr){.count = S});
  check_alone(ZP_OP_COLUMN, (zp_op_attr){0});
  check_alone(ZP_OP_COLUMN, (zp_op_attr){.begin = D - 1});
}

/* Likewise along either axis, to other shapes, and on columns of heads, zeros alongside them included. */
Test(gradients, one_operation_on_an_axis) {
  for (int reduction = ZP_REDUCE_SUM; reduction <= ZP_REDUCE_LOG_SUM_EXP; reduction++) {
    zp_op_attr attr = {.value = reduction == ZP_REDUCE_SUM ? -1.5 : 0, .reduction = (zp_reduction)reduction};
    check_alone(ZP_OP_REDUCE_COLUMNS, attr);
    if (reduction != ZP_REDUCE_SUM) check_alone(ZP_OP_REDUCE, attr);
  }
  check_alone(ZP_OP_RESHAPE, (zp_op_attr){.to = {S * 2, D / 2}});
  check_alone(ZP_OP_RESHAPE, (zp_op_attr){.to = {S * D}});
  check_alone(ZP_OP_TRANSPOSE, (zp_op_attr){0});
  check_alone(ZP_OP_RESHAPE, (zp_op_attr){.to = {S, 4, 2}});
  check_alone(ZP_OP_COLUMNS, (zp_op_attr){.heads = 2, .begin = 1, .count = 2});
  check_alone(ZP_OP_COLUMNS, (zp_op_attr){.heads = 2, .begin = -1, .count = 7});
  check_alone(ZP_OP_COLUMNS, (zp_op_attr){.heads = 1, .begin = 5, .count = 3});
  check_alone(ZP_OP_REPEAT_COLUMNS, (zp_op_attr){.heads = 3});
}

/* Windows that overlap, that leave positions out, that reach over the edges; in one dimension and in two. */
Test(gradients, windows_over_positions) {
  static const zp_windows some[] = {
      {.size = {1, S}, .kernel = {1, 3}, .stride = {1, 1}, .padding = {0, 1}},
      {.size = {1, S}, .kernel = {1, 2}, .stride = {1, 3}, .padding = {0, 0}},
      {.size = {1, S}, .kernel = {1, S}, .stride = {1, 2}, .padding = {0, S - 1}},
      {.size = {S, 1}, .kernel = {1, 1}, .stride = {1, 1}, .padding = {0, 0}},
  };
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) check_alone(ZP_OP_UNFOLD, (zp_op_attr){.windows = &some[i]});
  enum { ROWS = 3, LONG = 4 };
  kit k = kit_new(ROWS * LONG, 1, D);
  zp_windows first = {.size = {ROWS, LONG}, .kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}};
  int x = apply(&k, ZP_OP_UNFOLD, (zp_op_attr){.windows = &first}, "first", k.graph->carry_in.data[0], -1, -1);
  cr_assert_eq(k.graph->tensors.data[x].shape.dim[1], 4 * 2);
  cr_assert_eq(k.graph->tensors.data[x].shape.dim[2], D * 6);
  x = op1(&k, ZP_OP_TANH, linear(&k, "w", x, 3, true));
  zp_windows second = {.size = {4, 2}, .kernel = {2, 2}, .stride = {2, 1}, .padding = {0, 0}};
  x = apply(&k, ZP_OP_UNFOLD, (zp_op_attr){.windows = &second}, "second", x, -1, -1);
  carry_out(&k, linear(&k, "v", x, 2, true));
  zp_graph *graph = check_gradients(&k, 10, 0.3);
  cr_expect_eq(count_nodes(graph, ZP_OP_UNFOLD_GRAD), 2);
  kit_free(&k);
}

/* Queries and keys of another width than values, keys in part the same for all heads: latent attention. */
Test(gradients, columns_of_heads) {
  enum { HEADS = 2, TURNED = 2 };
  kit k = kit_new(S, 1, D);
  int x = k.graph->carry_in.data[0], y = linear(&k, "y", x, HEADS * 3, true);
  zp_op_attr heads = {.heads = HEADS}, turns = {.heads = 1, .theta = 100};
  int shared = apply(&k, ZP_OP_ROPE, turns, "rope", linear(&k, "shared", x, TURNED, true), -1, -1);
  int key = apply(&k, ZP_OP_JOIN_COLUMNS, heads, "key", y,
                  apply(&k, ZP_OP_REPEAT_COLUMNS, heads, "each", shared, -1, -1), -1);
  int value = apply(&k, ZP_OP_COLUMNS, (zp_op_attr){.heads = HEADS, .count = 5}, "value", y, -1, -1);
  cr_assert_eq(zp_shape_cols(&k.graph->tensors.data[key].shape), HEADS * 5);
  int query = linear(&k, "query", x, HEADS * 5, true);
  int o = apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = HEADS, .causal = true}, "o", query, key, value);
  carry_out(&k, apply(&k, ZP_OP_COLUMNS, (zp_op_attr){.heads = HEADS, .count = 3}, "out", o, -1, -1));
  zp_graph *graph = check_gradients(&k, 10, 0.3);
  cr_expect_eq(count_nodes(graph, ZP_OP_REPEAT_GRAD), 1);
  kit_free(&k);
}

/* Positions that are asked for more than once; a squared error of numbers of samples, and of every position. */
Test(gradients, positions_by_number_and_squared_errors) {
  kit k = kit_new(S, 1, D);
  int which = zp_model_add_array(k.model, "which", ZP_ELEM_I32, shape2(ZP_DIM_B, 3), ZP_NO_SPAN);
  int one = zp_model_add_array(k.model, "one", ZP_ELEM_I32, shape1(ZP_DIM_B), ZP_NO_SPAN);
  int target = zp_model_add_array(k.model, "target", ZP_ELEM_FLOAT, shape2(ZP_DIM_B, 2), ZP_NO_SPAN);
  int all = zp_model_add_array(k.model, "all", ZP_ELEM_FLOAT, shape3(ZP_DIM_B, 3, D), ZP_NO_SPAN);
  int x = op1(&k, ZP_OP_TANH, k.graph->carry_in.data[0]);
  int some = op2(&k, ZP_OP_GATHER, x, zp_graph_input(k.graph, k.model, which));
  int single = op2(&k, ZP_OP_GATHER, x, zp_graph_input(k.graph, k.model, one));
  int near =
      op2(&k, ZP_OP_SQUARED_ERROR, linear(&k, "head", single, 2, true), zp_graph_input(k.graph, k.model, target));
  zp_graph_add_loss(k.graph, near, 0.5);
  zp_graph_add_loss(k.graph, op2(&k, ZP_OP_SQUARED_ERROR, some, zp_graph_input(k.graph, k.model, all)), 2);
  zp_graph *graph = check_gradients(&k, S, 0.3);
  cr_expect_eq(count_nodes(graph, ZP_OP_GATHER_GRAD), 2);
  cr_expect_eq(count_nodes(graph, ZP_OP_SE_GRAD), 2);
  kit_free(&k);
}

/* Parameters before and after what is carried, both halves of it read apart, once more joined, and averaged. */
Test(gradients, joined_positions) {
  kit k = kit_new(S, 2, D);
  int x = k.graph->carry_in.data[0], y = k.graph->carry_in.data[1];
  int all = op2(&k, ZP_OP_CONCAT, param(&k, "first", shape2(2, D)), op1(&k, ZP_OP_TANH, x));
  all = op2(&k, ZP_OP_CONCAT, op2(&k, ZP_OP_CONCAT, all, y), param(&k, "last", shape2(1, D)));
  cr_assert_eq(k.graph->tensors.data[all].shape.dim[1], 2 * S + 3);
  all = op2(&k, ZP_OP_ADD, all, param(&k, "position", shape2(2 * S + 3, D)));
  int head = slice(&k, "head", all, 0, 3), tail = slice(&k, "tail", all, 2, 2 * S + 1);
  carry_out(&k, op1(&k, ZP_OP_MEAN, op2(&k, ZP_OP_MUL, tail, tail)));
  carry_out(&k, op2(&k, ZP_OP_CONCAT, op1(&k, ZP_OP_TANH, head), tail));
  carry_out(&k, slice(&k, "one", all, 1, 0));
  zp_graph *graph = check_gradients(&k, 10, 0.3);
  cr_expect_eq(count_nodes(graph, ZP_OP_POSITION_GRAD), 3, "two parameters that samples share, and the positions");
  cr_expect_eq(count_nodes(graph, ZP_OP_MEAN_GRAD), 1);
  kit_free(&k);
}

/* Columns as logits over the positions, as many as a sample has; three losses, one of them of logits that another
 * reads. */
Test(gradients, spans) {
  kit k = kit_new(S, 1, D);
  int first = zp_model_add_array(k.model, "first", ZP_ELEM_I32, shape1(ZP_DIM_B), ZP_NO_SPAN);
  int last = zp_model_add_array(k.model, "last", ZP_ELEM_I32, shape1(ZP_DIM_B), ZP_NO_SPAN);
  int some = zp_model_add_array(k.model, "lengths", ZP_ELEM_I32, shape1(ZP_DIM_B), ZP_NO_SPAN);
  int lengths = zp_graph_input(k.graph, k.model, some), end = zp_graph_input(k.graph, k.model, last);
  int span = linear(&k, "span", layer_norm(&k, "norm", k.graph->carry_in.data[0]), 3, true);
  int starts = apply(&k, ZP_OP_COLUMN, (zp_op_attr){.begin = 2}, "starts", span, -1, -1);
  int ends = apply(&k, ZP_OP_COLUMN, (zp_op_attr){0}, "ends", span, -1, -1);
  int start_loss = apply(&k, ZP_OP_CROSS_ENTROPY, (zp_op_attr){0}, "start", starts,
                         zp_graph_input(k.graph, k.model, first), lengths);
  zp_graph_add_loss(k.graph, start_loss, 0.5);
  zp_graph_add_loss(k.graph, apply(&k, ZP_OP_CROSS_ENTROPY, (zp_op_attr){0}, "end", ends, end, lengths), 2);
  zp_graph_add_loss(k.graph, apply(&k, ZP_OP_CROSS_ENTROPY, (zp_op_attr){0}, "any_end", ends, end, -1), 0.25);
  zp_graph *graph = check_gradients(&k, S, 0.3);
  cr_expect_eq(count_nodes(graph, ZP_OP_CE_GRAD), 3);
  cr_expect_eq(count_nodes(graph, ZP_OP_COLUMN_GRAD), 2);
  kit_free(&k);
}

/* A model of images: numbers from outside are normalised and need no gradient; labels are of samples. */
Test(gradients, images_with_labels_of_samples) {
  enum { CLASSES = 7, PIXELS = 6 };
  kit k = kit_new(S, 0, D);
  int images = zp_model_add_array(k.model, "images", ZP_ELEM_FLOAT, shape3(ZP_DIM_B, S, PIXELS), ZP_NO_SPAN);
  int classes = zp_model_add_array(k.model, "classes", ZP_ELEM_I32, shape1(ZP_DIM_B), ZP_NO_SPAN);
  int x = zp_graph_input(k.graph, k.model, images);
  x = apply(&k, ZP_OP_MUL_CONST, (zp_op_attr){.value = 2}, "scaled", x, -1, -1);
  x = linear(&k, "patch", layer_norm(&k, "norm", x), D, true);
  x = op2(&k, ZP_OP_CONCAT, param(&k, "class_token", shape2(1, D)), x);
  x = layer_norm(&k, "ln", op2(&k, ZP_OP_ADD, x, param(&k, "position", shape2(S + 1, D))));
  int y = op2(&k, ZP_OP_ADD, slice(&k, "class", x, 0, 0), op1(&k, ZP_OP_MEAN, x));
  int logits = linear(&k, "head", dropout(&k, "drop", y, 0.2), CLASSES, true);
  zp_graph_add_loss(k.graph, op2(&k, ZP_OP_CROSS_ENTROPY, logits, zp_graph_input(k.graph, k.model, classes)), 1);
  zp_graph *graph = check_gradients(&k, CLASSES, 0.3);
  cr_expect_eq(count_nodes(graph, ZP_OP_MATMUL_DGRAD), 2, "the head's, and the patches' for the norm before them");
  kit_free(&k);
}
