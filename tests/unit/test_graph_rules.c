/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules: what fits, and the message and code when it does not. */
#include "graph_testing.h"

/* The diagnostics of a kit as one text. */
static const char *report_of(kit *k) {
  char *text = NULL;
  size_t len = 0;
  FILE *file = open_memstream(&text, &len);
  zp_diags_print(k->diags, file, false);
  fclose(file);
  const char *copy = zp_strdup(k->arena, text);
  free(text);
  return copy;
}

static void expect_error(kit *k, int result, const char *code, const char *words) {
  cr_assert_eq(result, -1);
  cr_assert_eq(zp_diags_errors(k->diags), 1);
  const char *text = report_of(k);
  cr_assert(strstr(text, code), "expected %s in:\n%s", code, text);
  cr_assert(strstr(text, words), "expected \"%s\" in:\n%s", words, text);
  kit_free(k);
}

static int carry(const kit *k) { return k->graph->carry_in.data[0]; }

Test(rules, shapes_that_come_out) {
  kit k = kit_new(4, 1, 12);
  zp_shape want = shape3(ZP_DIM_B, 4, 20);
  cr_assert(zp_shape_equal(&k.graph->tensors.data[linear(&k, "w", carry(&k), 20, true)].shape, &want));
  int o = apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 3}, "a", carry(&k), carry(&k), carry(&k));
  want.dim[2] = 3;
  cr_assert(zp_shape_equal(&k.graph->tensors.data[o + 1].shape, &want));
  cr_assert_eq(k.graph->tensors.data[o + 1].element, ZP_ELEM_STAT);
  const zp_op_attr *attr = &k.graph->nodes.data[k.graph->tensors.data[o].producer].attr;
  cr_assert_eq(attr->head_size, 4);
  cr_assert_eq(attr->kv_heads, 3);
  cr_assert_float_eq(attr->scale, 0.5, 1e-15);
  must_be_sound(&k, k.graph);
  kit_free(&k);
}

Test(rules, dropout_of_nothing_is_the_tensor_itself) {
  kit k = kit_new(4, 1, 12);
  cr_assert_eq(dropout(&k, "d", carry(&k), 0), carry(&k));
  cr_assert_eq(k.graph->nodes.len, 0);
  kit_free(&k);
}

Test(rules, params_and_inputs_have_one_tensor) {
  kit k = kit_new(4, 1, 12);
  int a = zp_graph_input(k.graph, k.model, 1);
  cr_assert_eq(a, zp_graph_input(k.graph, k.model, 1));
  int w = param(&k, "w", shape1(3));
  cr_assert_eq(w, zp_graph_param(k.graph, k.model, 0));
  cr_assert_eq(k.graph->params.len, 1);
  kit_free(&k);
}

Test(rules, matmul_needs_fitting_sizes) {
  kit k = kit_new(1024, 1, 768);
  int w = param(&k, "w", shape2(512, 3072));
  expect_error(&k, op2(&k, ZP_OP_MATMUL, carry(&k), w), "Z0204",
               "cannot multiply `x` [B, 1024, 768] by `w` [512, 3072]: 768 columns meet 512 rows");
}

Test(rules, matmul_transposed_names_the_transpose) {
  kit k = kit_new(4, 1, 8);
  int w = param(&k, "w", shape2(8, 9));
  expect_error(&k, apply(&k, ZP_OP_MATMUL, (zp_op_attr){.trans = true}, "y", carry(&k), w, -1), "Z0204",
               "the transpose of `w` [8, 9]: 8 columns meet 9 rows");
}

Test(rules, addition_of_other_shapes) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, op2(&k, ZP_OP_ADD, carry(&k), param(&k, "b", shape1(9))), "Z0204",
               "the shapes of `x` [B, 4, 8] and `b` [9] do not fit for `+`");
}

Test(rules, division_of_the_small_one) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, op2(&k, ZP_OP_DIV, param(&k, "b", shape1(8)), carry(&k)), "Z0204",
               "cannot divide the smaller `b` [8] by `x` [B, 4, 8]");
}

Test(rules, norm_weight_of_another_width) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_RMS_NORM, (zp_op_attr){.eps = 1e-5}, "n", carry(&k), param(&k, "w", shape1(7)), -1),
               "Z0204", "the weight of `rms_norm` needs 8 elements");
}

Test(rules, labels_for_every_row) {
  kit k = kit_new(4, 1, 8);
  zp_model_add_input(k.model, "short", shape2(ZP_DIM_B, 3), ZP_NO_SPAN);
  expect_error(&k, op2(&k, ZP_OP_CROSS_ENTROPY, carry(&k), zp_graph_input(k.graph, k.model, 2)), "Z0204",
               "needs one label per row");
}

Test(rules, keys_and_values_alike) {
  kit k = kit_new(4, 1, 8);
  int kv = linear(&k, "k", carry(&k), 4, false);
  expect_error(&k, apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 4, .kv_heads = 2}, "a", carry(&k), kv, carry(&k)),
               "Z0204", "operands 2 and 3 of `attention` must have one shape");
}

Test(rules, heads_divide_columns) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 3}, "a", carry(&k), carry(&k), carry(&k)), "Z0205",
               "3 heads do not divide the 8 columns of `x` [B, 4, 8]");
}

Test(rules, kv_heads_divide_heads) {
  kit k = kit_new(4, 1, 8);
  int kv = linear(&k, "k", carry(&k), 6, false);
  expect_error(&k, apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 4, .kv_heads = 3}, "a", carry(&k), kv, kv), "Z0205",
               "kv_heads 3 does not divide heads 4");
}

Test(rules, key_heads_have_the_size_of_query_heads) {
  kit k = kit_new(4, 1, 8);
  int kv = linear(&k, "k", carry(&k), 6, false);
  expect_error(&k, apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 4, .kv_heads = 2}, "a", carry(&k), kv, kv), "Z0205",
               "has 6 columns, not 2 kv_heads of 2");
}

Test(rules, rope_needs_pairs) {
  kit k = kit_new(4, 1, 9);
  expect_error(&k, apply(&k, ZP_OP_ROPE, (zp_op_attr){.heads = 3, .theta = 10}, "r", carry(&k), -1, -1), "Z0205",
               "have 3 columns each");
}

Test(rules, split_into_equal_parts) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_SPLIT, (zp_op_attr){.parts = 3}, "s", carry(&k), -1, -1), "Z0205",
               "cannot split the 8 columns of `x` [B, 4, 8] into 3 equal parts");
}

Test(rules, ids_are_not_numbers) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, op1(&k, ZP_OP_TANH, zp_graph_input(k.graph, k.model, 0)), "Z0206",
               "must hold floating point values, but `tokens` holds i32 ids");
}

Test(rules, numbers_are_not_ids) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, op2(&k, ZP_OP_EMBEDDING, carry(&k), param(&k, "t", shape2(9, 8))), "Z0206", "must hold i32 ids");
}

Test(rules, matrices_are_parameters) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, op2(&k, ZP_OP_MATMUL, carry(&k), carry(&k)), "Z0207", "must be a parameter, but `x` is computed");
}

Test(rules, first_operand_is_an_activation) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, op1(&k, ZP_OP_TANH, param(&k, "w", shape2(4, 8))), "Z0207",
               "must be an activation, but `w` [4, 8] is a parameter");
}

Test(rules, attributes_in_range) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, dropout(&k, "d", carry(&k), 1), "Z0208", "must be at least 0 and below 1, not 1");
  k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_LEAKY_RELU, (zp_op_attr){.value = -0.1}, "l", carry(&k), -1, -1), "Z0208",
               "`negative_slope` of `leaky_relu` must be at least 0 and finite, not -0.1");
  k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_LEAKY_RELU, (zp_op_attr){.value = INFINITY}, "l", carry(&k), -1, -1), "Z0208",
               "must be at least 0 and finite, not inf");
  k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_ROPE, (zp_op_attr){.theta = 10}, "r", carry(&k), -1, -1), "Z0208",
               "`heads` of `rope` must be positive");
  k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_L2_NORM, (zp_op_attr){.eps = -1}, "n", carry(&k), -1, -1), "Z0208",
               "`eps` of `l2_norm` must be positive");
  k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_RMS_NORM, (zp_op_attr){.eps = -1}, "n", carry(&k), param(&k, "w", shape1(8)), -1),
               "Z0208", "`eps` of `rms_norm` must be positive");
}

Test(rules, matrices_have_two_dimensions) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, op2(&k, ZP_OP_MATMUL, carry(&k), param(&k, "w", shape1(8))), "Z0209",
               "must have 2 dimensions, but `w` is [8]");
}

Test(rules, shares_of_the_positions_are_equal) {
  kit k = kit_new(4, 1, 8);
  zp_op_attr two = {.parts = 2};
  int part = apply(&k, ZP_OP_REDUCE_SCATTER_SEQ, two, "part", carry(&k), -1, -1);
  cr_assert_eq(k.graph->tensors.data[part].shape.dim[1], 2);
  int whole = apply(&k, ZP_OP_ALL_GATHER_SEQ, two, "whole", part, -1, -1);
  cr_assert_eq(k.graph->tensors.data[whole].shape.dim[1], 4);
  must_be_sound(&k, k.graph);
  expect_error(&k, apply(&k, ZP_OP_REDUCE_SCATTER_SEQ, (zp_op_attr){.parts = 3}, "s", carry(&k), -1, -1), "Z0205",
               "3 ranks do not divide the 4 positions of `x` [B, 4, 8]");
}

/* ---- the checker ---- */

Test(check, finds_what_is_wrong) {
  kit k = kit_new(4, 1, 8);
  int y = linear(&k, "w", carry(&k), 6, false);
  carry_out(&k, op1(&k, ZP_OP_TANH, y));
  must_be_sound(&k, k.graph);
  k.graph->tensors.data[y].shape.dim[2] = 5;
  cr_assert_not_null(strstr(zp_graph_check(k.arena, k.graph), "`w` is [B, 4, 5], not [B, 4, 6]"));
  k.graph->tensors.data[y].shape.dim[2] = 6;
  k.graph->tensors.data[y].producer = 1;
  cr_assert_not_null(strstr(zp_graph_check(k.arena, k.graph), "not an output of its producer"));
  k.graph->tensors.data[y].producer = 0;
  k.graph->nodes.data[0].in.data[0] = k.graph->carry_out.data[0];
  cr_assert_not_null(strstr(zp_graph_check(k.arena, k.graph), "before it is made"));
  kit_free(&k);
}

Test(check, views_lie_in_their_base) {
  kit k = kit_new(4, 1, 8);
  int v = apply(&k, ZP_OP_SPLIT, (zp_op_attr){.parts = 2}, "s", linear(&k, "w", carry(&k), 6, false), -1, -1);
  must_be_sound(&k, k.graph);
  k.graph->tensors.data[v + 1].column = 4;
  cr_assert_not_null(strstr(zp_graph_check(k.arena, k.graph), "does not lie in"));
  kit_free(&k);
}

Test(rules, positions_that_are_there) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_SLICE, (zp_op_attr){.begin = 2, .count = 3}, "s", carry(&k), -1, -1), "Z0208",
               "`x` has positions 0 to 3, not 2 to 4");
  k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_SLICE, (zp_op_attr){.begin = 4}, "s", carry(&k), -1, -1), "Z0208", "not 4 to 4");
  k = kit_new(4, 1, 8);
  expect_error(&k, op2(&k, ZP_OP_CONCAT, param(&k, "w", shape2(1, 7)), carry(&k)), "Z0204",
               "cannot put `w` [1, 7] and `x` [B, 4, 8] one after the other");
  k = kit_new(4, 1, 8);
  expect_error(&k, op2(&k, ZP_OP_CONCAT, param(&k, "w", shape2(1, 8)), param(&k, "v", shape2(1, 8))), "Z0207",
               "must be an activation, but `v` [1, 8] is a parameter");
  k = kit_new(4, 1, 8);
  expect_error(&k, op1(&k, ZP_OP_MEAN, op1(&k, ZP_OP_MEAN, carry(&k))), "Z0209", "must have 3 dimensions");
  k = kit_new(4, 1, 8);
  int halves = apply(&k, ZP_OP_SPLIT, (zp_op_attr){.parts = 2}, "halves", carry(&k), -1, -1);
  expect_error(&k, op1(&k, ZP_OP_MEAN, halves), "Z0216", "a part of a split");
}

static void expect_no_windows(zp_windows w, const char *code, const char *words) {
  kit k = kit_new(12, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_UNFOLD, (zp_op_attr){.windows = &w}, "u", carry(&k), -1, -1), code, words);
}

Test(rules, windows_lie_over_positions) {
  zp_windows good = {.size = {3, 4}, .kernel = {2, 2}, .stride = {1, 1}}, w = good;
  w.size[0] = 5;
  expect_no_windows(w, "Z0205", "the 12 positions of `x` are no 5 rows of equal length");
  w = good, w.kernel[0] = 4;
  expect_no_windows(w, "Z0208", "a window of 4 rows is larger than `x`, which has 3");
  w = good, w.kernel[1] = 8, w.padding[1] = 1;
  expect_no_windows(w, "Z0208", "a window of 8 columns is larger than `x`, which has 4 and the padding on both sides");
  w = good, w.padding[1] = 2;
  expect_no_windows(w, "Z0208", "`padding` is 2, and a window has 2 columns");
  w = good, w.stride[1] = 0;
  expect_no_windows(w, "Z0208", "`stride` of `unfold` must be positive, not 0");
  w = (zp_windows){.size = {1, 12}, .kernel = {1, 13}, .stride = {1, 1}};
  expect_no_windows(w, "Z0208", "a window of 13 positions is larger than `x`");
}

Test(rules, columns_and_classes_of_samples) {
  kit k = kit_new(4, 1, 8);
  expect_error(&k, apply(&k, ZP_OP_COLUMN, (zp_op_attr){.begin = 8}, "c", carry(&k), -1, -1), "Z0208",
               "`x` has columns 0 to 7, not 8");
  k = kit_new(4, 1, 8);
  int labels = zp_graph_input(k.graph, k.model, zp_model_add_input(k.model, "l", shape1(ZP_DIM_B), ZP_NO_SPAN));
  int column = apply(&k, ZP_OP_COLUMN, (zp_op_attr){.begin = 7}, "c", carry(&k), -1, -1);
  cr_expect(k.graph->tensors.data[column].shape.rank == 2 && k.graph->tensors.data[column].shape.dim[1] == 4);
  int loss = apply(&k, ZP_OP_CROSS_ENTROPY, (zp_op_attr){0}, "loss", column, labels, labels);
  cr_expect_eq(k.graph->nodes.data[k.graph->tensors.data[loss].producer].attr.classes, 4);
  int tokens = zp_graph_input(k.graph, k.model, 0);
  expect_error(&k, apply(&k, ZP_OP_CROSS_ENTROPY, (zp_op_attr){0}, "loss", carry(&k), tokens, labels), "Z0209",
               "must have 2 dimensions");
  k = kit_new(4, 1, 8);
  labels = zp_graph_input(k.graph, k.model, zp_model_add_input(k.model, "l", shape1(ZP_DIM_B), ZP_NO_SPAN));
  column = apply(&k, ZP_OP_COLUMN, (zp_op_attr){0}, "c", carry(&k), -1, -1);
  expect_error(
      &k, apply(&k, ZP_OP_CROSS_ENTROPY, (zp_op_attr){0}, "loss", column, labels, zp_graph_input(k.graph, k.model, 0)),
      "Z0204", "lengths are an input i32[B]");
}

Test(rules, a_label_a_sample) {
  kit k = kit_new(4, 1, 8);
  int labels = zp_model_add_input(k.model, "classes", shape1(ZP_DIM_B), ZP_NO_SPAN);
  labels = zp_graph_input(k.graph, k.model, labels);
  cr_expect_geq(op2(&k, ZP_OP_CROSS_ENTROPY, op1(&k, ZP_OP_MEAN, carry(&k)), labels), 0);
  expect_error(&k, op2(&k, ZP_OP_CROSS_ENTROPY, carry(&k), labels), "Z0204", "needs one label per row");
}
