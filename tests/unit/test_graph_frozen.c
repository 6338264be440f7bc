/* Parameters that are not trained: backward without their gradients, and the same ones for all others. */
#include "graph_testing.h"

enum { S = 3, D = 6, HEADS = 2 };

static int find_param(const kit *k, const char *name) {
  for (int i = 0; i < k->model->params.len; i++)
    if (strcmp(k->model->params.data[i].name, name) == 0) return i;
  cr_assert_fail("no parameter `%s`", name);
  return -1;
}

static void freeze(kit *k, const char *name) { zp_model_freeze(k->model, find_param(k, name)); }

static void freeze_all(kit *k) {
  for (int i = 0; i < k->model->params.len; i++) zp_model_freeze(k->model, i);
}

/* Differences of what is trained; nothing adds to the gradient of what is not. */
static void check_trained(kit *k, zp_graph *graph, double center) {
  const char *text = zp_graph_text(k->arena, graph);
  zp_interpreter *in = zp_interpreter_new(k->arena, graph, TEST_BATCH);
  zp_interpreter *logical = zp_interpreter_new(k->arena, k->graph, TEST_BATCH);
  fill_outside(in, 1, center);
  fill_outside(logical, 1, center);
  double plain = objective(logical), fused = objective(in);
  cr_assert(fabs(plain - fused) <= 1e-12 * fmax(1, fabs(plain)), "unfused %.17g, fused %.17g", plain, fused);
  for (int i = 0; i < graph->params.len; i++)
    if (!k->model->params.data[graph->params.data[i].param].frozen)
      compare_gradient(logical, graph->params.data[i].tensor, in->param_grad[i], text);
  for (int i = 0; i < graph->grad_out.len; i++)
    compare_gradient(logical, graph->carry_in.data[i], in->value[graph->grad_out.data[i]], text);
  for (int n = 0; n < graph->nodes.len; n++)
    for (int i = 0; i < graph->nodes.data[n].param_grad.len; i++) {
      int param = graph->params.data[graph->nodes.data[n].param_grad.data[i]].param;
      cr_expect(!k->model->params.data[param].frozen, "`%s` has a gradient\n%s", k->model->params.data[param].name,
                text);
    }
}

static zp_graph *check_both(kit *k, double center) {
  zp_graph *graph = differentiated(k);
  check_trained(k, graph, center);
  check_trained(k, folded(k), center);
  return graph;
}

/* Every parameter of two layers alone, and all but it. */
Test(frozen, one_parameter_and_all_others) {
  for (int style = 0; style < 2; style++)
    for (int which = 0;; which++) {
      int n = 0;
      for (int others = 0; others < 2; others++) {
        kit k = kit_new(S, 1, style ? 16 : D);
        if (style)
          llama_layer(&k, 2 * HEADS, HEADS, 5);
        else
          gpt_layer(&k, HEADS, 0.1);
        n = k.model->params.len;
        for (int i = 0; i < n; i++)
          if ((i == which) != others) zp_model_freeze(k.model, i);
        if (which < n) check_both(&k, 0.1);
        kit_free(&k);
      }
      if (which == n) break;
    }
}

Test(frozen, no_products_for_frozen_weights) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, HEADS, 0);
  zp_graph *all = differentiated(&k);
  double whole = zp_model_flop_per_sequence(k.model);
  for (int i = 1; i < k.model->params.len; i++) zp_model_freeze(k.model, i);
  zp_graph *none = check_both(&k, 0.1);
  cr_expect_eq(count_nodes(all, ZP_OP_MATMUL_WGRAD), 4);
  cr_expect_eq(count_nodes(none, ZP_OP_MATMUL_WGRAD), 0);
  cr_expect_eq(count_nodes(none, ZP_OP_MATMUL_DGRAD), 4, "gradients still flow on");
  double products = 0;
  for (int n = 0; n < k.graph->nodes.len; n++)
    if (k.graph->nodes.data[n].op == ZP_OP_MATMUL) products += 3 * zp_node_flop(k.graph, &k.graph->nodes.data[n], 1);
  cr_expect_float_eq(whole - zp_model_flop_per_sequence(k.model), products, 1e-9 * whole,
                     "one of three products a weight falls away");
  cr_expect_eq(zp_model_trained_parameters(k.model), 3 * D, "of three layers");
  kit_free(&k);
}

/* Nothing is trained in the layers, nor before them: nobody asks for a gradient there. */
Test(frozen, backward_ends_with_the_first_trained_parameter) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, HEADS, 0);
  double whole = zp_model_flop_per_sequence(k.model);
  freeze_all(&k);
  zp_graph *graph = differentiated(&k);
  cr_expect_eq(count_nodes(graph, ZP_OP_MATMUL_DGRAD) + count_nodes(graph, ZP_OP_ATTENTION_GRAD), 0);
  cr_expect_float_eq(zp_model_flop_per_sequence(k.model), whole / 3, 1e-9 * whole);
  zp_interpreter *in = zp_interpreter_new(k.arena, graph, TEST_BATCH);
  fill_outside(in, 1, 0.1);
  objective(in);
  for (int64_t i = 0; i < TEST_BATCH * S * D; i++) cr_expect_eq(in->value[graph->grad_out.data[0]][i], 0);
  kit_free(&k);
}

/* Where nothing behind it is trained and nothing comes in, there is no backward. */
Test(frozen, begin_without_trained_parameters) {
  kit k = kit_new(S, 0, D);
  int table = param(&k, "wte", shape2(7, D)), place = param(&k, "wpe", shape2(S, D));
  int x = op2(&k, ZP_OP_EMBEDDING, zp_graph_input(k.graph, k.model, 0), table);
  carry_out(&k, op2(&k, ZP_OP_ADD, x, place));
  freeze(&k, "wte");
  zp_graph *graph = differentiated(&k);
  cr_expect_eq(count_nodes(graph, ZP_OP_EMBEDDING_GRAD), 0);
  cr_expect_eq(count_nodes(graph, ZP_OP_POSITION_GRAD), 1);
  freeze(&k, "wpe");
  graph = differentiated(&k);
  cr_expect_eq(graph->nodes.len, graph->n_forward);
  kit_free(&k);
}
