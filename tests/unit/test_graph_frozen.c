/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that are not trained: backward without their gradients, and the same ones for all others. Adapters: what
 * they add to a product, by hand; their gradients by differences. */
#include "graph_testing.h"

enum { S = 3, D = 6, HEADS = 2, WORDS = 7 };

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
  fill_outside(in, WORDS, center);
  fill_outside(logical, WORDS, center);
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

/* What samples share before and after their positions: each of them alone, and all but it. */
Test(frozen, joined_positions) {
  static const char *const names[] = {"first", "last", "position", "ln.weight", "ln.bias"};
  enum { N = sizeof names / sizeof *names };
  for (int which = 0; which < N; which++)
    for (int others = 0; others < 2; others++) {
      kit k = kit_new(S, 1, D);
      int x = op2(&k, ZP_OP_CONCAT, param(&k, "first", shape2(2, D)), k.graph->carry_in.data[0]);
      x = op2(&k, ZP_OP_CONCAT, x, param(&k, "last", shape2(1, D)));
      x = layer_norm(&k, "ln", op2(&k, ZP_OP_ADD, x, param(&k, "position", shape2(S + 3, D))));
      carry_out(&k, op2(&k, ZP_OP_MUL, x, x));
      for (int i = 0; i < N; i++)
        if ((i == which) != others) freeze(&k, names[i]);
      check_both(&k, 0.1);
      kit_free(&k);
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
  fill_outside(in, WORDS, 0.1);
  objective(in);
  for (int64_t i = 0; i < TEST_BATCH * S * D; i++) cr_expect_eq(in->value[graph->grad_out.data[0]][i], 0);
  kit_free(&k);
}

/* Where nothing after it is trained and nothing comes in, there is no backward. */
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

/* ---- adapters ---- */

enum { RANK = 2 };

static int tensor_of(const kit *k, int param) { return zp_graph_param(k->graph, k->model, param); }

/* Numbers by the parameters' names, whatever its index; b of an adapter begins with something. */
static double run(kit *k, const kit *like, const double *merged, int weight) {
  zp_interpreter *in = zp_interpreter_new(k->arena, k->graph, TEST_BATCH);
  zp_interpreter *from = zp_interpreter_new(like->arena, like->graph, TEST_BATCH);
  fill_outside(in, WORDS, 0.1);
  fill_outside(from, WORDS, 0.1);
  for (int i = 0; i < k->model->params.len; i++) {
    const zp_param *p = &k->model->params.data[i];
    int t = tensor_of(k, i), other = tensor_of(like, find_param(like, p->name));
    int64_t n = zp_shape_elements(&p->shape, 1);
    for (int64_t e = 0; e < n; e++) in->value[t][e] = merged && i == weight ? merged[e] : from->value[other][e];
  }
  return objective(in);
}

/* x w + s x a b is x (w + s a b). */
static void check_product(bool trans) {
  const double scale = 1.75;
  kit plain = kit_new(S, 1, D), adapted = kit_new(S, 1, D);
  kit *both[] = {&plain, &adapted};
  for (int i = 0; i < 2; i++) {
    int w = param(both[i], "f.weight", trans ? shape2(5, D) : shape2(D, 5)), x = both[i]->graph->carry_in.data[0];
    int y = apply(both[i], ZP_OP_MATMUL, (zp_op_attr){.trans = trans}, "f", x, w, -1);
    carry_out(both[i], op1(both[i], ZP_OP_TANH, y));
  }
  zp_model_adapt(adapted.model, 0, RANK, scale, 0);
  must_be_sound(&adapted, adapted.graph);
  const zp_adapter *adapter = &adapted.model->adapters.data[0];
  const zp_param *a = &adapted.model->params.data[adapter->a], *b = &adapted.model->params.data[adapter->b];
  cr_expect_str_eq(a->name, "f.lora_A.weight");
  cr_expect_str_eq(b->name, "f.lora_B.weight");
  cr_expect_float_eq(a->init_b, 1 / sqrt(D), 1e-15);
  cr_expect(b->init == ZP_INIT_CONSTANT && b->init_a == 0);
  zp_interpreter *in = zp_interpreter_new(adapted.arena, adapted.graph, TEST_BATCH);
  fill_outside(in, WORDS, 0.1);
  const double *w = in->value[tensor_of(&adapted, 0)], *av = in->value[tensor_of(&adapted, adapter->a)],
               *bv = in->value[tensor_of(&adapted, adapter->b)];
  double merged[5 * D];
  for (int i = 0; i < D; i++)
    for (int o = 0; o < 5; o++) {
      double sum = 0;
      for (int r = 0; r < RANK; r++) sum += trans ? av[r * D + i] * bv[o * RANK + r] : av[i * RANK + r] * bv[r * 5 + o];
      int e = trans ? o * D + i : i * 5 + o;
      merged[e] = w[e] + scale * sum;
    }
  double want = run(&plain, &adapted, merged, 0), got = run(&adapted, &adapted, NULL, -1);
  cr_expect(fabs(want - got) <= 1e-13 * fabs(want), "%.17g merged, %.17g alongside", want, got);
  cr_expect(fabs(run(&plain, &adapted, NULL, -1) - got) > 1e-3 * fabs(got), "the adapter does something");
  kit_free(&plain);
  kit_free(&adapted);
}

Test(adapters, add_a_product) {
  check_product(false);
  check_product(true);
}

Test(adapters, gradients_of_adapters_alone) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, HEADS, 0.1);
  freeze_all(&k);
  int n = k.model->params.len;
  for (int i = 0; i < n; i++)
    if (k.model->params.data[i].shape.rank == 2) zp_model_adapt(k.model, i, RANK, 0.5, 0);
  zp_graph *graph = check_both(&k, 0.1);
  cr_expect_eq(k.model->adapters.len, 4);
  cr_expect_eq(count_nodes(graph, ZP_OP_MATMUL_WGRAD), 8, "two products an adapter");
  kit_free(&k);
}

/* A table that is the head, too, is adapted in its lookup alone: (w + s a b)[ids], and x w as it was. */
Test(adapters, add_to_a_lookup_alone) {
  const double scale = 1.5;
  kit plain = kit_new(S, 0, D), adapted = kit_new(S, 0, D);
  kit *both[] = {&plain, &adapted};
  for (int i = 0; i < 2; i++) {
    kit *k = both[i];
    int tokens = zp_graph_input(k->graph, k->model, 0); /* first: numbers are by tensors' indices */
    int head = param(k, "wte", shape2(WORDS, D)), table = i ? head : param(k, "table", shape2(WORDS, D));
    int x = op2(k, ZP_OP_EMBEDDING, tokens, table);
    carry_out(k, apply(k, ZP_OP_MATMUL, (zp_op_attr){.trans = true}, "head", op1(k, ZP_OP_TANH, x), head, -1));
  }
  cr_assert_null(zp_model_refuse_adapter(adapted.model, 0, RANK));
  zp_model_adapt(adapted.model, 0, RANK, scale, 0.5); /* an embedding has no dropout */
  must_be_sound(&adapted, adapted.graph);
  const zp_adapter *adapter = &adapted.model->adapters.data[0];
  cr_expect(zp_model_is_tied(adapted.model, 0));
  cr_expect_eq(count_nodes(adapted.graph, ZP_OP_DROPOUT), 0);
  const zp_param *a = &adapted.model->params.data[adapter->a], *b = &adapted.model->params.data[adapter->b];
  cr_expect(a->init == ZP_INIT_CONSTANT && a->init_a == 0 && b->init == ZP_INIT_NORMAL && b->init_b == 1);
  zp_interpreter *in = zp_interpreter_new(adapted.arena, adapted.graph, TEST_BATCH);
  zp_interpreter *like = zp_interpreter_new(plain.arena, plain.graph, TEST_BATCH);
  fill_outside(in, WORDS, 0.1);
  fill_outside(like, WORDS, 0.1);
  const double *w = in->value[tensor_of(&adapted, 0)], *av = in->value[tensor_of(&adapted, adapter->a)],
               *bv = in->value[tensor_of(&adapted, adapter->b)];
  double *head = like->value[tensor_of(&plain, 0)], *table = like->value[tensor_of(&plain, 1)];
  for (int e = 0; e < WORDS * D; e++) {
    head[e] = table[e] = w[e];
    for (int r = 0; r < RANK; r++) table[e] += scale * av[e / D * RANK + r] * bv[r * D + e % D];
  }
  double got = objective(in), want = objective(like);
  cr_expect(fabs(want - got) <= 1e-13 * fabs(want), "%.17g, not %.17g", got, want);
  zp_model_freeze(adapted.model, 0);
  zp_graph *graph = check_both(&adapted, 0.1);
  cr_expect_eq(count_nodes(graph, ZP_OP_EMBEDDING_GRAD), 1, "of the adapter alone");
  kit_free(&plain);
  kit_free(&adapted);
}

/* Every adapter drops its own input, by numbers that no other dropout has. */
Test(adapters, drop_their_inputs) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, HEADS, 0.1);
  int others = count_nodes(k.graph, ZP_OP_DROPOUT), n = k.model->params.len;
  freeze_all(&k);
  for (int i = 0; i < n; i++)
    if (k.model->params.data[i].shape.rank == 2) zp_model_adapt(k.model, i, RANK, 0.5, 0.3);
  must_be_sound(&k, k.graph);
  cr_expect_eq(count_nodes(k.graph, ZP_OP_DROPOUT), others + 4);
  for (int i = 0; i < 4; i++) cr_expect_eq(k.model->adapters.data[i].stream, 0x4000 + i);
  check_both(&k, 0.1);
  kit_free(&k);
}

/* What a layer of experts makes of slots x[B, E, C, k] with weights w + s a b, each expert with its own. */
static void check_experts(bool trans) {
  enum { E = 4, FF = 5 };
  const double scale = 0.75;
  kit plain = kit_new(S, 1, D), adapted = kit_new(S, 1, D);
  kit *both[] = {&plain, &adapted};
  for (int i = 0; i < 2; i++) {
    kit *k = both[i];
    int w = param(k, "w", trans ? shape3(E, FF, D) : shape3(E, D, FF)), x = k->graph->carry_in.data[0];
    zp_op_attr gate = {.top_k = 2, .capacity = 1.25, .normalize = true};
    int weight = apply(k, ZP_OP_TOP_K_GATE, gate, "gate", linear(k, "router", x, E, false), -1, -1);
    int slots = op2(k, ZP_OP_DISPATCH, x, weight + 1);
    int y = apply(k, ZP_OP_BATCHED_MATMUL, (zp_op_attr){.trans = trans}, "w", slots, w, -1);
    carry_out(k, apply(k, ZP_OP_COMBINE, (zp_op_attr){0}, "experts", op1(k, ZP_OP_TANH, y), weight, weight + 1));
  }
  zp_model_adapt(adapted.model, 0, RANK, scale, 0);
  must_be_sound(&adapted, adapted.graph);
  const zp_adapter *adapter = &adapted.model->adapters.data[0];
  zp_interpreter *in = zp_interpreter_new(adapted.arena, adapted.graph, TEST_BATCH);
  fill_outside(in, WORDS, 0.1);
  const double *w = in->value[tensor_of(&adapted, 0)], *av = in->value[tensor_of(&adapted, adapter->a)],
               *bv = in->value[tensor_of(&adapted, adapter->b)];
  double merged[E * D * FF];
  for (int e = 0; e < E; e++)
    for (int i = 0; i < D; i++)
      for (int o = 0; o < FF; o++) {
        const double *ae = av + e * RANK * D, *be = bv + e * RANK * FF;
        double sum = 0;
        for (int r = 0; r < RANK; r++)
          sum += trans ? ae[r * D + i] * be[o * RANK + r] : ae[i * RANK + r] * be[r * FF + o];
        int at = e * D * FF + (trans ? o * D + i : i * FF + o);
        merged[at] = w[at] + scale * sum;
      }
  double want = run(&plain, &adapted, merged, 0), got = run(&adapted, &adapted, NULL, -1);
  cr_expect(fabs(want - got) <= 1e-13 * fabs(want), "%.17g merged, %.17g alongside", want, got);
  cr_expect(fabs(run(&plain, &adapted, NULL, -1) - got) > 1e-3 * fabs(got), "the adapter does something");
  zp_model_freeze(adapted.model, 0);
  check_both(&adapted, 0.1);
  kit_free(&plain);
  kit_free(&adapted);
}

Test(adapters, add_to_products_of_experts) {
  check_experts(false);
  check_experts(true);
}

Test(adapters, what_is_refused) {
  kit k = kit_new(S, 1, D);
  int x = k.graph->carry_in.data[0];
  int w = param(&k, "twice", shape2(D, D)), y = op2(&k, ZP_OP_MATMUL, x, w);
  carry_out(&k, rms_norm(&k, "norm", op2(&k, ZP_OP_MATMUL, y, w)));
  linear(&k, "once", x, 4, false);
  int table = param(&k, "table", shape2(WORDS, D)), tokens = zp_graph_input(k.graph, k.model, 0);
  op2(&k, ZP_OP_ADD, op2(&k, ZP_OP_EMBEDDING, tokens, table), op2(&k, ZP_OP_EMBEDDING, tokens, table));
  cr_expect(strstr(zp_model_refuse_adapter(k.model, find_param(&k, "twice"), 1), "read 2 times"));
  cr_expect(strstr(zp_model_refuse_adapter(k.model, find_param(&k, "norm.weight"), 1), "no matrix product"));
  cr_expect(strstr(zp_model_refuse_adapter(k.model, find_param(&k, "once.weight"), 5), "can have, 4"));
  cr_expect(strstr(zp_model_refuse_adapter(k.model, find_param(&k, "table"), 1), "table of 2 embeddings"));
  cr_expect_null(zp_model_refuse_adapter(k.model, find_param(&k, "once.weight"), 4));
  kit_free(&k);
}
