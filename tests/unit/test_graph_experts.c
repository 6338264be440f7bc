/* SPDX-License-Identifier: Apache-2.0 */
/* Experts in the graph: what routing decides, shape rules, and derivatives against central differences. */
#include "graph_testing.h"

enum { S = 6, D = 4, E = 4, FF = 5 };

static zp_op_attr gate_attr(int64_t k, double capacity, bool normalize, double balance) {
  return (zp_op_attr){.top_k = k, .capacity = capacity, .normalize = normalize, .balance = balance};
}

static int expert_product(kit *k, const char *name, int x, int64_t out, bool trans) {
  zp_shape shape = trans ? shape3(E, out, cols(k, x)) : shape3(E, cols(k, x), out);
  return apply(k, ZP_OP_BATCHED_MATMUL, (zp_op_attr){.trans = trans}, name, x, param(k, name, shape), -1);
}

/* Mixtral's layer without its attention: y = x + sum over the chosen experts of w2 (silu(w1 x) * w3 x). */
static void expert_layer(kit *k, zp_op_attr gate) {
  int x = k->graph->carry_in.data[0];
  int weight = apply(k, ZP_OP_TOP_K_GATE, gate, "gate", linear(k, "router", x, E, false), -1, -1);
  int slots = op2(k, ZP_OP_DISPATCH, x, weight + 1);
  int h = op1(k, ZP_OP_SILU, expert_product(k, "w1", slots, FF, false));
  h = op2(k, ZP_OP_MUL, h, expert_product(k, "w3", slots, FF, true));
  int y = apply(k, ZP_OP_COMBINE, (zp_op_attr){0}, "experts", expert_product(k, "w2", h, D, false), weight, weight + 1);
  carry_out(k, op2(k, ZP_OP_ADD, x, y));
}

static void check_layer(zp_op_attr gate) {
  kit k = kit_new(S, 1, D);
  expert_layer(&k, gate);
  check_gradients(&k, 10, 0.1);
  kit_free(&k);
}

Test(experts, gradients_of_mixtrals_gate) { check_layer(gate_attr(2, 1.25, true, 0)); }
Test(experts, gradients_of_the_switch_gate) { check_layer(gate_attr(1, 1.25, false, 0)); }
Test(experts, gradients_of_the_balancing_loss) {
  check_layer(gate_attr(2, 1.25, true, 0.3));
  check_layer(gate_attr(2, 1, false, 0.3));
}
static zp_op_attr sigmoid_gate(bool normalize, double balance) {
  zp_op_attr attr = gate_attr(2, 1, normalize, balance);
  attr.sigmoid = true;
  return attr;
}
Test(experts, gradients_of_sigmoid_gates) {
  check_layer(sigmoid_gate(true, 0.3));
  check_layer(sigmoid_gate(false, 0));
}
static zp_op_attr grouped_gate(int64_t k, int64_t groups, int64_t top_groups) {
  zp_op_attr attr = sigmoid_gate(true, 0.3);
  attr.top_k = k, attr.groups = groups, attr.top_groups = top_groups;
  return attr;
}
Test(experts, gradients_with_groups_of_experts) { check_layer(grouped_gate(2, 2, 1)); }
Test(experts, gradients_with_dropped_tokens) { check_layer(gate_attr(2, 0.4, true, 0.1)); }

static zp_op_attr dropless(zp_op_attr attr) {
  attr.dropless = true;
  return attr;
}
Test(experts, gradients_of_sorted_rows) {
  check_layer(dropless(gate_attr(2, 0, true, 0.3)));
  check_layer(dropless(gate_attr(1, 0, false, 0)));
  check_layer(dropless(grouped_gate(2, 2, 1)));
}

/* ---- what routing decides ---- */

typedef struct routed {
  kit k;
  zp_interpreter *in;
  int scores, weight;
} routed;

/* A gate alone over given scores [1, S, E]. */
static routed route(const double *scores, zp_op_attr attr) {
  routed r = {.k = kit_new(S, 1, E)};
  r.scores = r.k.graph->carry_in.data[0];
  r.weight = apply(&r.k, ZP_OP_TOP_K_GATE, attr, "gate", r.scores, -1, -1);
  cr_assert(r.weight >= 0);
  r.in = zp_interpreter_new(r.k.arena, r.k.graph, 1);
  memcpy(r.in->value[r.scores], scores, sizeof(double) * S * E);
  r.in->loss_scale = 1.0 / S;
  zp_interpret(r.in, 0, 1);
  return r;
}

static void expect_slots(const routed *r, const double *want) {
  for (int i = 0; i < zp_shape_elements(&r->k.graph->tensors.data[r->weight + 1].shape, 1); i++)
    cr_expect_eq(r->in->value[r->weight + 1][i], want[i], "choice %d: slot %g, not %g", i,
                 r->in->value[r->weight + 1][i], want[i]);
}

/* Six tokens, one choice each, ceil(1 * 6 / 4) = 2 slots an expert: equal scores go to expert 0, whose third token is
 * dropped; every other choice stands in the order of the positions. */
Test(experts, ties_go_to_the_lowest_expert_and_late_tokens_are_dropped) {
  const double scores[S * E] = {1, 1, 1, 1, /**/ 0, 0, 0, 5, /**/ 3, 3, 0, 0,
                                2, 1, 0, 0, /**/ 0, 0, 0, 7, /**/ 0, 4, 4, 0};
  routed r = route(scores, gate_attr(1, 1, false, 0));
  cr_assert_eq(r.k.graph->nodes.data[0].attr.slots, 2);
  expect_slots(&r, (double[]){0, 6, 1, -1, 7, 2});
  cr_expect_float_eq(r.in->value[r.weight][0], 0.25, 1e-15);
  cr_expect_float_eq(r.in->value[r.weight][3], exp(2) / (exp(2) + exp(1) + 2), 1e-15, "dropped, but weighed");
  kit_free(&r.k);
}

/* A token's choices count one after the other: the second choice of token 0 comes before the first of token 1. */
Test(experts, normalized_weights_are_those_of_the_chosen_alone) {
  double scores[S * E] = {0};
  for (int s = 0; s < S; s++) scores[s * E + 1] = 2, scores[s * E + 3] = 1;
  routed r = route(scores, gate_attr(2, 1, true, 0));
  cr_assert_eq(r.k.graph->nodes.data[0].attr.slots, 3);
  expect_slots(&r, (double[]){3, 9, 4, 10, 5, 11, -2, -4, -2, -4, -2, -4});
  cr_expect_float_eq(r.in->value[r.weight][0], 1 / (1 + exp(-1)), 1e-15);
  cr_expect_float_eq(r.in->value[r.weight][1], 1 / (1 + exp(1)), 1e-15);
  kit_free(&r.k);
}

/* Experts 0 and 1 are a group, 2 and 3 the other one, which has the larger sum although expert 0 is the best. Equal
 * groups: the lower one. All groups kept are none. */
Test(experts, a_group_of_experts_counts_by_its_two_best) {
  const double scores[S * E] = {3, -3, 1, 1, /**/ 0, 2, -1, 1, /**/ 1, 1, 1, 1, /**/ 0, 0, 0, 9, /**/ 2, 2, 1, 1};
  routed r = route(scores, grouped_gate(2, 2, 1));
  cr_assert_eq(r.k.graph->nodes.data[0].attr.slots, 3);
  expect_slots(&r, (double[]){6, 9, 3, 0, 1, 4, 10, 7, 2, 5, -1, -2});
  cr_expect_float_eq(r.in->value[r.weight][0], 0.5, 1e-15);
  double flop = zp_node_flop(r.k.graph, &r.k.graph->nodes.data[0], 1);
  kit_free(&r.k);
  routed all = route(scores, grouped_gate(2, 2, 2));
  cr_expect_eq(all.k.graph->nodes.data[0].attr.groups, 0);
  cr_expect_eq(all.in->value[all.weight + 1][0], 0, "expert 0 is the best of all");
  cr_expect_float_eq(flop - zp_node_flop(all.k.graph, &all.k.graph->nodes.data[0], 1), 2 * S * E, 0.5);
  kit_free(&all.k);
}

/* Equal scores everywhere: all choices go to expert 0, mean probabilities are 1/E: balance * E * (1 * 1/E) = balance.
 * With every expert chosen equally often the loss is the same, which is its least. */
Test(experts, balancing_loss_of_a_uniform_router_is_its_weight) {
  double scores[S * E] = {0};
  routed r = route(scores, gate_attr(1, 2, false, 0.3));
  cr_expect_float_eq(r.in->balance, 0.3, 1e-15);
  for (int s = 0; s < S; s++) scores[s * E] = 20; /* nearly all probability to the expert of all tokens */
  routed all = route(scores, gate_attr(1, 2, false, 0.3));
  cr_expect_float_eq(all.in->balance, 0.3 * E, 1e-6);
  kit_free(&r.k);
  kit_free(&all.k);
}

/* All experts chosen and slots for all: the layer is the dense mixture, written out here. */
static double dense_mixture(const zp_interpreter *in, const zp_graph *g, int64_t t, int64_t c) {
  const double *x = in->value[g->carry_in.data[0]] + t * D, *router = in->value[g->params.data[0].tensor];
  const double *w1 = in->value[g->params.data[1].tensor], *w3 = in->value[g->params.data[2].tensor];
  const double *w2 = in->value[g->params.data[3].tensor];
  double sum = 0, result = 0, p[E];
  for (int e = 0; e < E; e++) {
    double score = 0;
    for (int i = 0; i < D; i++) score += router[e * D + i] * x[i];
    sum += p[e] = exp(score);
  }
  for (int e = 0; e < E; e++)
    for (int f = 0; f < FF; f++) {
      double a = 0, b = 0;
      for (int i = 0; i < D; i++) a += x[i] * w1[(e * D + i) * FF + f], b += x[i] * w3[(e * FF + f) * D + i];
      result += p[e] / sum * a / (1 + exp(-a)) * b * w2[(e * FF + f) * D + c];
    }
  return x[c] + result;
}

Test(experts, all_experts_together_are_a_dense_mixture) {
  kit k = kit_new(S, 1, D);
  expert_layer(&k, gate_attr(E, 1, true, 0));
  zp_interpreter *in = zp_interpreter_new(k.arena, k.graph, TEST_BATCH);
  fill_outside(in, 10, 0.1);
  zp_interpret(in, 0, k.graph->nodes.len);
  for (int64_t t = 0; t < TEST_BATCH * S; t++)
    for (int64_t c = 0; c < D; c++) {
      double got = in->value[k.graph->carry_out.data[0]][t * D + c], want = dense_mixture(in, k.graph, t, c);
      cr_assert_float_eq(got, want, 1e-13, "token %lld, column %lld: %.17g, not %.17g", (long long)t, (long long)c, got,
                         want);
    }
  kit_free(&k);
}

/* A sample's outputs depend on no other sample, also when tokens are dropped. */
Test(experts, samples_route_alone) {
  kit k = kit_new(S, 1, D);
  expert_layer(&k, gate_attr(2, 0.5, true, 0));
  zp_interpreter *both = zp_interpreter_new(k.arena, k.graph, 2), *one = zp_interpreter_new(k.arena, k.graph, 1);
  fill_outside(both, 10, 0.1);
  for (int t = 0; t < k.graph->tensors.len; t++)
    if (k.graph->tensors.data[t].role == ZP_ROLE_PARAM) one->value[t] = both->value[t];
  zp_interpret(both, 0, k.graph->nodes.len);
  for (int sample = 0; sample < 2; sample++) {
    int x = k.graph->carry_in.data[0], y = k.graph->carry_out.data[0];
    memcpy(one->value[x], both->value[x] + sample * S * D, sizeof(double) * S * D);
    zp_interpret(one, 0, k.graph->nodes.len);
    cr_expect_arr_eq(one->value[y], both->value[y] + sample * S * D, sizeof(double) * S * D, "sample %d", sample);
  }
  kit_free(&k);
}

/* Slots for every token drop nothing: values, and gradients of all parameters, are those of sorted rows. */
Test(experts, sorted_rows_are_slots_for_all) {
  kit kits[2];
  zp_graph *g[2];
  zp_interpreter *in[2];
  for (int i = 0; i < 2; i++) {
    kits[i] = kit_new(S, 1, D);
    zp_op_attr gate = gate_attr(2, E / 2.0, true, 0.2);
    expert_layer(&kits[i], i ? dropless(gate) : gate);
    g[i] = zp_differentiate(zp_fuse(kits[i].graph));
    in[i] = zp_interpreter_new(kits[i].arena, g[i], TEST_BATCH);
  }
  const int64_t n = TEST_BATCH * S * D, sizes[] = {E * D, E * D * FF, E * D * FF, E * D * FF};
  fill_outside(in[0], 10, 0.1);
  for (int64_t c = 0; c < n; c++) in[0]->value[g[0]->grad_in.data[0]][c] = sin((double)c);
  in[1]->value[g[1]->carry_in.data[0]] = in[0]->value[g[0]->carry_in.data[0]];
  memcpy(in[1]->value[g[1]->grad_in.data[0]], in[0]->value[g[0]->grad_in.data[0]], (size_t)n * sizeof(double));
  for (int p = 0; p < 4; p++) in[1]->value[g[1]->params.data[p].tensor] = in[0]->value[g[0]->params.data[p].tensor];
  in[1]->loss_scale = in[0]->loss_scale;
  for (int i = 0; i < 2; i++) zp_interpret(in[i], 0, g[i]->nodes.len);
  for (int64_t c = 0; c < n; c++) {
    cr_assert_float_eq(in[0]->value[g[0]->carry_out.data[0]][c], in[1]->value[g[1]->carry_out.data[0]][c], 1e-13);
    cr_assert_float_eq(in[0]->value[g[0]->grad_out.data[0]][c], in[1]->value[g[1]->grad_out.data[0]][c], 1e-13);
  }
  for (int p = 0; p < 4; p++)
    for (int64_t c = 0; c < sizes[p]; c++)
      cr_assert_float_eq(in[0]->param_grad[p][c], in[1]->param_grad[p][c], 1e-12, "parameter %d", p);
  kit_free(&kits[0]), kit_free(&kits[1]);
}

/* ---- rules ---- */

static void expect_error(kit *k, int result, const char *words) {
  cr_assert_lt(result, 0, "no error that says `%s`", words);
  char *text = NULL;
  size_t len = 0;
  FILE *file = open_memstream(&text, &len);
  zp_diags_print(k->diags, file, false);
  fclose(file);
  cr_assert(strstr(text, words), "expected \"%s\" in:\n%s", words, text);
  free(text);
}

Test(experts, shapes_and_slots) {
  kit k = kit_new(S, 1, E);
  int x = k.graph->carry_in.data[0];
  int weight = apply(&k, ZP_OP_TOP_K_GATE, gate_attr(2, 1.25, true, 0), "gate", x, -1, -1);
  int slots = op2(&k, ZP_OP_DISPATCH, x, weight + 1);
  zp_shape want = {.rank = 4, .dim = {ZP_DIM_B, E, 4, E}}; /* ceil(1.25 * 6 * 2 / 4) = 4 slots */
  cr_expect(zp_shape_equal(&k.graph->tensors.data[slots].shape, &want));
  int y = expert_product(&k, "w", slots, 7, false);
  cr_expect_float_eq(zp_node_flop(k.graph, &k.graph->nodes.data[2], 3), 2.0 * 3 * E * 4 * E * 7, 0.5);
  int out = apply(&k, ZP_OP_COMBINE, (zp_op_attr){0}, "y", y, weight, weight + 1);
  want = shape3(ZP_DIM_B, S, 7);
  cr_expect(zp_shape_equal(&k.graph->tensors.data[out].shape, &want));
  /* never more slots than tokens */
  int wide = apply(&k, ZP_OP_TOP_K_GATE, gate_attr(2, 50, true, 0), "wide", x, -1, -1);
  cr_expect_eq(k.graph->nodes.data[k.graph->tensors.data[wide].producer].attr.slots, S);
  kit_free(&k);
}

/* A row a choice: 2 of 6 positions, whatever the capacity would be. */
Test(experts, sorted_rows_are_as_many_as_choices) {
  kit k = kit_new(S, 1, E);
  int x = k.graph->carry_in.data[0];
  int weight = apply(&k, ZP_OP_TOP_K_GATE, dropless(gate_attr(2, 0, true, 0)), "gate", x, -1, -1);
  int rows = op2(&k, ZP_OP_DISPATCH, x, weight + 1);
  zp_shape want = {.rank = 4, .dim = {ZP_DIM_B, S, 2, E}};
  cr_expect(zp_shape_equal(&k.graph->tensors.data[rows].shape, &want) && k.graph->tensors.data[rows].sorted);
  int y = expert_product(&k, "w", op1(&k, ZP_OP_TANH, rows), 7, false);
  const zp_node *product = &k.graph->nodes.data[k.graph->tensors.data[y].producer];
  cr_expect_float_eq(zp_node_flop(k.graph, product, 3), 2.0 * 3 * S * 2 * E * 7, 0.5);
  cr_expect_eq(product->in.data[2], k.graph->nodes.data[1].out.data[0], "one node says where experts begin");
  int out = apply(&k, ZP_OP_COMBINE, (zp_op_attr){0}, "y", y, weight, weight + 1);
  want = shape3(ZP_DIM_B, S, 7);
  cr_expect(zp_shape_equal(&k.graph->tensors.data[out].shape, &want) && !k.graph->tensors.data[out].sorted);
  cr_expect_null(zp_graph_check(k.arena, k.graph));
  kit_free(&k);
}

Test(experts, what_reads_sorted_rows_by_position_is_refused) {
  kit k = kit_new(S, 1, E);
  int x = k.graph->carry_in.data[0];
  int weight = apply(&k, ZP_OP_TOP_K_GATE, dropless(gate_attr(2, 0, true, 0)), "g", x, -1, -1);
  int rows = op2(&k, ZP_OP_DISPATCH, x, weight + 1);
  int other = apply(&k, ZP_OP_TOP_K_GATE, dropless(gate_attr(2, 0, true, 0)), "other", x, -1, -1);
  int others = op2(&k, ZP_OP_DISPATCH, x, other + 1);
  int slots = apply(&k, ZP_OP_TOP_K_GATE, gate_attr(2, 2, true, 0), "slots", x, -1, -1);
  expect_error(&k, apply(&k, ZP_OP_DROPOUT, (zp_op_attr){.rate = 0.1}, "d", rows, -1, -1), "known to no position");
  expect_error(&k, apply(&k, ZP_OP_RESHAPE, (zp_op_attr){.to = {S * 2 * E}}, "r", rows, -1, -1), "sorted by expert");
  expect_error(&k, op2(&k, ZP_OP_ADD, rows, others), "has none in that order");
  expect_error(&k, op2(&k, ZP_OP_MUL, rows, param(&k, "p", shape2(2, E))), "has none in that order");
  expect_error(&k, apply(&k, ZP_OP_COMBINE, (zp_op_attr){0}, "y", rows, other, other + 1), "not dispatched with");
  expect_error(&k, apply(&k, ZP_OP_COMBINE, (zp_op_attr){0}, "y", rows, slots, slots + 1), "not dispatched with");
  expect_error(
      &k, apply(&k, ZP_OP_COMBINE, (zp_op_attr){0}, "y", op2(&k, ZP_OP_DISPATCH, x, slots + 1), weight, weight + 1),
      "not dispatched with");
  expect_error(&k, op2(&k, ZP_OP_BATCHED_MATMUL, rows, param(&k, "w", shape3(E + 1, E, 3))),
               "4 experts and 4 columns meet 5 experts and 4 rows");
  kit_free(&k);
}

Test(experts, what_does_not_fit_is_refused) {
  kit k = kit_new(S, 1, E);
  int x = k.graph->carry_in.data[0], labels = zp_graph_input(k.graph, k.model, 1);
  expect_error(&k, apply(&k, ZP_OP_TOP_K_GATE, gate_attr(5, 1, true, 0), "g", x, -1, -1), "has scores of 4 experts");
  expect_error(&k, apply(&k, ZP_OP_TOP_K_GATE, gate_attr(2, 0, true, 0), "g", x, -1, -1), "`capacity`");
  expect_error(&k, apply(&k, ZP_OP_TOP_K_GATE, gate_attr(1, 1, true, 0), "g", x, -1, -1), "would not learn");
  expect_error(&k, apply(&k, ZP_OP_TOP_K_GATE, gate_attr(2, 1, true, -1), "g", x, -1, -1), "`balance`");
  expect_error(&k, apply(&k, ZP_OP_TOP_K_GATE, grouped_gate(3, 2, 1), "g", x, -1, -1), "`top_groups` leaves 2 experts");
  expect_error(&k, op2(&k, ZP_OP_DISPATCH, x, labels), "must be the slots of a `top_k_gate`");
  expect_error(&k, op2(&k, ZP_OP_DISPATCH, x, x), "must hold i32 ids");
  int weight = apply(&k, ZP_OP_TOP_K_GATE, gate_attr(2, 1, true, 0), "g", x, -1, -1);
  int slots = op2(&k, ZP_OP_DISPATCH, x, weight + 1);
  int w = param(&k, "w", shape3(E + 1, E, 3));
  expect_error(&k, op2(&k, ZP_OP_BATCHED_MATMUL, slots, w), "4 experts and 4 columns meet 5 experts and 4 rows");
  expect_error(&k, apply(&k, ZP_OP_COMBINE, (zp_op_attr){0}, "y", x, weight, weight + 1), "must have 4 dimensions");
  expect_error(&k, op2(&k, ZP_OP_DIV, slots, slots), "no token took");
  expect_error(&k, op1(&k, ZP_OP_LOG, slots), "no token took");
  int other = apply(&k, ZP_OP_TOP_K_GATE, gate_attr(2, 0.5, true, 0), "g2", x, -1, -1);
  expect_error(&k, apply(&k, ZP_OP_COMBINE, (zp_op_attr){0}, "y", slots, other, other + 1), "experts of 2 slots");
  kit_free(&k);
}
