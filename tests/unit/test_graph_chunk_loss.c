/* SPDX-License-Identifier: Apache-2.0 */
/* zp_chunk_loss: the last product and the loss by parts of the tokens, against the graph that has the logits whole. The
 * interpreter computes both in f64; rows are independent, so only sums over rows may round otherwise. */
#include "graph_testing.h"

enum { S = 6, D = 8, V = 11 };

/* The end of a model, and with `whole` all of one: tables, positions, a tied head. */
static void small_model(kit *k, bool whole) {
  int wte = param(k, "wte", shape2(V, D)), labels = zp_graph_input(k->graph, k->model, 1), x;
  if (whole)
    x = op2(k, ZP_OP_ADD, op2(k, ZP_OP_EMBEDDING, zp_graph_input(k->graph, k->model, 0), wte),
            param(k, "wpe", shape2(S, D)));
  else
    x = k->graph->carry_in.data[0];
  int logits = apply(k, ZP_OP_MATMUL, (zp_op_attr){.trans = true}, "logits", layer_norm(k, "ln_f", x), wte, -1);
  zp_graph_add_loss(k->graph, op2(k, ZP_OP_CROSS_ENTROPY, logits, labels), 1);
}

static zp_interpreter *filled(kit *k, const zp_graph *graph) {
  zp_interpreter *in = zp_interpreter_new(k->arena, graph, TEST_BATCH);
  fill_outside(in, V, 0.2);
  return in;
}

static void expect_near(const double *a, const double *b, int64_t n, const char *name, int chunks) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(a[i]));
  for (int64_t i = 0; i < n; i++)
    cr_assert(fabs(a[i] - b[i]) <= 1e-14 * largest, "%s[%lld] in %d parts: %.17g, not %.17g", name, (long long)i,
              chunks, b[i], a[i]);
}

/* Training leaves out what makes a loss alone; a validation leaves out backward. */
static void compare(kit *k, const zp_graph *whole, int chunks) {
  const char *reason;
  zp_graph *parts = zp_chunk_loss(whole, chunks, &reason);
  cr_assert_not_null(parts, "%s", reason);
  must_be_sound(k, parts);
  zp_interpreter *a = filled(k, whole), *b = filled(k, parts), *alone = filled(k, parts);
  zp_interpret(a, 0, whole->nodes.len);
  zp_interpret(b, 0, parts->n_forward - parts->n_loss);
  cr_assert_eq(b->loss, 0, "forward makes no loss");
  zp_interpret(b, parts->n_forward, parts->nodes.len);
  zp_interpret(alone, 0, parts->n_forward);
  expect_near(&a->loss, &b->loss, 1, "the loss", chunks);
  cr_assert_eq(alone->loss, b->loss, "a validation adds up the same numbers");
  for (int i = 0; i < whole->params.len; i++) {
    int t = whole->params.data[i].tensor;
    expect_near(a->param_grad[i], b->param_grad[i], zp_shape_elements(&whole->tensors.data[t].shape, 1),
                whole->tensors.data[t].name, chunks);
  }
  for (int i = 0; i < whole->grad_out.len; i++)
    expect_near(a->value[whole->grad_out.data[i]], b->value[parts->grad_out.data[i]], TEST_BATCH * S * D,
                "the gradient of x", chunks);
}

Test(chunk_loss, is_the_same_training) {
  for (int whole = 0; whole < 2; whole++) {
    kit k = kit_new(S, whole ? 0 : 1, D);
    small_model(&k, whole);
    zp_graph *graph = differentiated(&k);
    for (int chunks = 2; chunks <= S; chunks++)
      if (S % chunks == 0) compare(&k, graph, chunks);
    kit_free(&k);
  }
}

/* Every part has once: product, statistics, loss, three gradients; without gradients the first three once more. Nothing
 * has the rows of all parts but x and its gradient. */
Test(chunk_loss, no_logits_are_whole) {
  const char *reason;
  kit k = kit_new(S, 1, D);
  small_model(&k, false);
  zp_graph *whole = differentiated(&k), *parts = zp_chunk_loss(whole, 3, &reason);
  cr_assert_eq(parts->n_loss, 9);
  cr_assert_eq(count_nodes(parts, ZP_OP_MATMUL), 6);
  cr_assert_eq(count_nodes(parts, ZP_OP_CE_GRAD), 3);
  cr_assert_eq(count_nodes(parts, ZP_OP_MATMUL_DGRAD), 3);
  cr_assert_eq(count_nodes(parts, ZP_OP_MATMUL_WGRAD), 3);
  for (int n = 0; n < parts->nodes.len; n++)
    for (int i = 0; i < parts->nodes.data[n].out.len; i++) {
      const zp_shape *shape = &parts->tensors.data[parts->nodes.data[n].out.data[i]].shape;
      cr_assert(zp_shape_cols(shape) != V || shape->dim[1] == S / 3);
    }
  kit_free(&k);
}

static void expect_refusal(const zp_graph *graph, int chunks, const char *words) {
  const char *reason = NULL;
  cr_assert_null(zp_chunk_loss(graph, chunks, &reason));
  cr_assert(strstr(reason, words), "%s", reason);
}

Test(chunk_loss, refusals) {
  kit k = kit_new(S, 1, D);
  small_model(&k, false);
  expect_refusal(differentiated(&k), 4, "6 positions do not fall into 4 equal parts");
  kit_free(&k);
  k = kit_new(S, 1, D); /* logits that are bounded, as in Gemma 2 */
  int labels = zp_graph_input(k.graph, k.model, 1), x = k.graph->carry_in.data[0];
  int logits = apply(&k, ZP_OP_MATMUL, (zp_op_attr){.trans = true}, "logits", x, param(&k, "w", shape2(V, D)), -1);
  zp_graph_add_loss(k.graph, op2(&k, ZP_OP_CROSS_ENTROPY, op1(&k, ZP_OP_TANH, logits), labels), 1);
  expect_refusal(differentiated(&k), 2, "not taken of a matrix product");
  kit_free(&k);
}
