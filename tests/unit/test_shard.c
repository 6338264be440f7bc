/* SPDX-License-Identifier: Apache-2.0 */
/* The sharding search: the known column/row pairs must fall out, heads need not divide, and nothing is split where that
 * would be wrong. */
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(shard, .init = setup, .fini = teardown);

static const model_size GPT = {STYLE_GPT, 1001, 64, 256, 4, 8, 8, 1024, true};
static const model_size LLAMA = {STYLE_LLAMA, 1000, 64, 256, 4, 8, 4, 512, false};
enum { BEGIN, LAYER, END };

static zp_sharding *shard_model(const zp_model *model, int tensor) {
  zp_cluster *cluster = ZP_NEW(arena, zp_cluster);
  *cluster = cpu_cluster();
  zp_machine machine = zp_machine_make(cluster, ZP_PREC_F32, tensor);
  const char *reason = "none given";
  zp_sharding *sharding = zp_shard(arena, model, &machine, tensor, 1, false, &reason);
  cr_assert(sharding, "tensor %d: %s", tensor, reason);
  for (int i = 0; i < model->segments.len; i++) {
    const char *wrong = zp_graph_check(arena, sharding->local[i]);
    cr_assert_null(wrong, "%s", wrong);
    wrong = zp_graph_check(arena, zp_differentiate(zp_fuse(sharding->local[i]))); /* what lowering does next */
    cr_assert_null(wrong, "%s", wrong);
  }
  return sharding;
}

static zp_sharding *shard_size(model_size size, int tensor) { return shard_model(build_model(arena, &size), tensor); }

static int count(const zp_graph *graph, zp_op op) {
  int n = 0;
  for (int i = 0; i < graph->nodes.len; i++) n += graph->nodes.data[i].op == op;
  return n;
}

static const zp_node *find(const zp_graph *graph, zp_op op) {
  for (int i = 0; i < graph->nodes.len; i++)
    if (graph->nodes.data[i].op == op) return &graph->nodes.data[i];
  cr_assert_fail("no %s", zp_op_name(op));
  return NULL;
}

static const zp_tensor *param(const zp_graph *graph, const char *name) {
  for (int i = 0; i < graph->params.len; i++) {
    const zp_tensor *t = &graph->tensors.data[graph->params.data[i].tensor];
    if (strcmp(t->name, name) == 0) return t;
  }
  cr_assert_fail("no parameter %s", name);
  return NULL;
}

static void expect_pairs(const zp_graph *layer, int pairs) {
  cr_expect_eq(count(layer, ZP_OP_ALL_REDUCE), pairs, "%s", zp_graph_text(arena, layer));
  cr_expect_eq(count(layer, ZP_OP_ENTER), pairs, "%s", zp_graph_text(arena, layer));
}

Test(shard, gpt_layer_is_column_row_pairs) {
  zp_sharding *s = shard_size(GPT, 2);
  const zp_graph *layer = s->local[LAYER];
  expect_pairs(layer, 2);
  cr_expect_eq(param(layer, "attn.qkv")->split_dim, 1);
  cr_expect_eq(param(layer, "attn.qkv")->shape.dim[1], 384);
  cr_expect_eq(param(layer, "attn.proj")->split_dim, 0);
  cr_expect_eq(param(layer, "mlp.fc")->split_dim, 1);
  cr_expect_eq(param(layer, "mlp.proj")->split_dim, 0);
  cr_expect_eq(param(layer, "ln.weight")->split_dim, -1);
  cr_expect_eq(find(layer, ZP_OP_ATTENTION)->attr.heads, 4);
}

Test(shard, embedding_and_head_split_the_vocabulary) {
  zp_sharding *s = shard_size(GPT, 2);
  cr_expect_eq(param(s->local[BEGIN], "wte")->split_dim, 0);
  cr_expect_eq(param(s->local[BEGIN], "wte")->shape.dim[0], 501); /* 1001 rows over 2 ranks, one of padding */
  cr_expect_eq(param(s->local[BEGIN], "wpe")->split_dim, -1);
  cr_expect_eq(count(s->local[BEGIN], ZP_OP_ALL_REDUCE), 1);
  cr_expect_eq(count(s->local[END], ZP_OP_ENTER), 1);
  cr_expect_eq(count(s->local[END], ZP_OP_ALL_REDUCE), 0);
  cr_expect_eq(count(s->local[END], ZP_OP_CE_STATS), 1);
  cr_expect_eq(count(s->local[END], ZP_OP_GATHER_STATS), 1);
  cr_expect_eq(count(s->local[END], ZP_OP_CE_LOSS), 1);
  cr_expect_eq(count(s->local[END], ZP_OP_CROSS_ENTROPY), 0);
  cr_expect_eq(s->param[0].split_dim, 0);
  cr_expect_eq(s->param[0].units, 1001);
  cr_expect_eq(s->param[0].local.dim[0], 501);
}

Test(shard, llama_layer_is_column_row_pairs) {
  const zp_graph *layer = shard_size(LLAMA, 2)->local[LAYER];
  expect_pairs(layer, 2);
  cr_expect_eq(param(layer, "wq")->split_dim, 0);
  cr_expect_eq(param(layer, "wo")->split_dim, 1);
  cr_expect_eq(param(layer, "w2")->split_dim, 1);
  const zp_node *attention = find(layer, ZP_OP_ATTENTION);
  cr_expect_eq(attention->attr.heads, 4);
  cr_expect_eq(attention->attr.kv_heads, 2);
  cr_expect_eq(find(layer, ZP_OP_ROPE)->attr.heads, 4);
}

Test(shard, parallel_attention_and_mlp_share_one_all_reduce) {
  model_size size = GPT;
  size.style = STYLE_PARALLEL;
  expect_pairs(shard_size(size, 4)->local[LAYER], 1);
}

Test(shard, five_heads_over_two_ranks_are_padded) {
  model_size size = GPT;
  size.heads = 5, size.d = 160, size.ff = 640;
  const zp_graph *layer = shard_size(size, 2)->local[LAYER];
  const zp_node *attention = find(layer, ZP_OP_ATTENTION);
  expect_pairs(layer, 2);
  cr_expect_eq(attention->attr.heads, 3);
  cr_expect_eq(attention->attr.head_size, 32);
  const zp_tensor *lse = &layer->tensors.data[attention->out.data[1]];
  cr_expect_eq(lse->shape.dim[2], 3);
  cr_expect_eq(param(layer, "attn.qkv")->shape.dim[1], 3 * 3 * 32);
  cr_expect_eq(param(layer, "attn.qkv")->full_dim, 480);
  const zp_tensor *v = &layer->tensors.data[attention->in.data[2]];
  cr_expect_eq(v->column, 2 * 96); /* columns of the local q, k, v matrix */
  cr_expect_eq(v->shape.dim[2], 96);
}

Test(shard, four_heads_over_three_ranks) {
  model_size size = GPT;
  size.heads = 4;
  const zp_graph *layer = shard_size(size, 3)->local[LAYER];
  expect_pairs(layer, 2);
  cr_expect_eq(find(layer, ZP_OP_ATTENTION)->attr.heads, 2);
  cr_expect_eq(param(layer, "mlp.fc")->shape.dim[1], 342); /* ceil(1024 / 3) */
}

Test(shard, grouped_queries_split_by_kv_head) {
  model_size size = LLAMA;
  size.kv_heads = 2, size.heads = 6, size.d = 192;
  const zp_graph *layer = shard_size(size, 2)->local[LAYER];
  const zp_node *attention = find(layer, ZP_OP_ATTENTION);
  cr_expect_eq(attention->attr.heads, 3);
  cr_expect_eq(attention->attr.kv_heads, 1);
  cr_expect_eq(layer->tensors.data[attention->out.data[1]].shape.dim[2], 3);
}

/* One kv head cannot be divided: attention is replicated, the MLP is not. */
Test(shard, one_kv_head_is_replicated) {
  model_size size = LLAMA;
  size.kv_heads = 1;
  const zp_graph *layer = shard_size(size, 2)->local[LAYER];
  expect_pairs(layer, 1);
  cr_expect_eq(find(layer, ZP_OP_ATTENTION)->attr.heads, 8);
  cr_expect_eq(param(layer, "wq")->split_dim, -1);
  cr_expect_eq(param(layer, "w1")->split_dim, 0);
}

/* Every replicated parameter meets replicated operands only: then its gradient is complete on every rank. */
Test(shard, replicated_parameters_have_complete_gradients) {
  for (int style = 0; style < 3; style++) {
    model_size size = style == STYLE_LLAMA ? LLAMA : GPT;
    size.style = (model_style)style;
    zp_model *model = build_model(arena, &size);
    zp_sharding *s = shard_model(model, 4);
    for (int i = 0; i < model->segments.len; i++)
      for (int n = 0; n < s->local[i]->nodes.len; n++) {
        const zp_node *node = &s->local[i]->nodes.data[n];
        bool replicated_param = false, divided = false;
        for (int k = 0; k < node->in.len; k++) {
          const zp_tensor *t = &s->local[i]->tensors.data[node->in.data[k]];
          replicated_param |= t->role == ZP_ROLE_PARAM && t->split_dim < 0;
          divided |= t->split_dim >= 0 || t->partial;
        }
        const zp_tensor *out = &s->local[i]->tensors.data[node->out.data[0]];
        divided |= out->split_dim >= 0 || out->partial;
        cr_expect(!(replicated_param && divided), "%s", node->name);
      }
  }
}

Test(shard, carries_are_replicated_and_keep_their_shape) {
  zp_sharding *s = shard_size(GPT, 4);
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < s->local[i]->carry_out.len; k++) {
      const zp_tensor *t = &s->local[i]->tensors.data[s->local[i]->carry_out.data[k]];
      cr_expect(!t->partial && t->split_dim == -1);
      cr_expect_eq(t->shape.dim[2], 256);
    }
}

Test(shard, one_rank_needs_no_collectives) {
  zp_model *model = build_model(arena, &GPT);
  zp_sharding *s = shard_model(model, 1);
  for (int i = 0; i < 3; i++) {
    for (int n = 0; n < s->local[i]->nodes.len; n++)
      cr_expect_neq(zp_op_get_class(s->local[i]->nodes.data[n].op), ZP_CLASS_COMM);
    for (int p = 0; p < s->local[i]->params.len; p++) {
      const zp_param_use *use = &s->local[i]->params.data[p];
      cr_expect_eq(use->param, model->segments.data[i].graph->params.data[p].param);
      cr_expect(zp_shape_equal(&s->local[i]->tensors.data[use->tensor].shape, &model->params.data[use->param].shape));
    }
  }
  cr_expect_eq(count(s->local[END], ZP_OP_CE_LOSS), 1);
  cr_expect_eq(s->local[END]->losses.len, 1);
}

/* sigmoid(0) is not 0: padding would be trained. It may only be split where the units divide. */
static zp_model *sigmoid_mlp(int64_t ff) {
  builder b = {.model = zp_model_new(arena, "mlp"), .diags = zp_diags_new(arena), .segment = -1};
  zp_shape carry = shape_of_rank(3, ZP_DIM_B, 8, 32);
  const char *name = "x";
  b.graph = zp_model_add_segment(b.model, "h", 1, false, &carry, &name, 1, ZP_NO_SPAN)->graph;
  int h = product(&b, b.graph->carry_in.data[0], 32, ff, "up");
  h = apply(&b, ZP_OP_SIGMOID, h, -1, -1, (zp_op_attr){0}, "sigmoid");
  zp_push(arena, &b.graph->carry_out, product(&b, h, ff, 32, "down"));
  return b.model;
}

Test(shard, functions_that_move_zero_are_not_padded) {
  expect_pairs(shard_model(sigmoid_mlp(66), 3)->local[0], 1);
  zp_cluster cluster = cpu_cluster();
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_F32, 4);
  const char *reason = NULL;
  /* 66 columns over 4 ranks need padding, so neither matrix can be divided. */
  cr_expect_null(zp_shard(arena, sigmoid_mlp(66), &machine, 4, 1, false, &reason));
  cr_expect_str_eq(reason, "no parameter of the model can be split over 4 tensor ranks");
}

/* ---- tied parameters ---- */

enum { WORDS = 1000, WIDTH = 64 };

/* A table of `columns` columns that embeds and, transposed, makes the logits; between it and the carried tensors of
 * WIDTH columns stand products "in" and "out", where asked for. */
static zp_model *tied_table(int64_t columns, bool in, bool out) {
  builder b = {.model = zp_model_new(arena, "tied"), .diags = zp_diags_new(arena), .segment = -1};
  model_size size = {.S = 8, .d = WIDTH};
  zp_shape ids = shape_of_rank(2, ZP_DIM_B, size.S, 0);
  int tokens = zp_model_add_input(b.model, "tokens", ids, ZP_NO_SPAN);
  int labels = zp_model_add_input(b.model, "labels", ids, ZP_NO_SPAN);
  int table = add_param(&b, "table", shape_of_rank(2, WORDS, columns, 0));
  b.graph = open_segment(&b, &size, "begin", 1, false);
  int x = apply(&b, ZP_OP_EMBEDDING, zp_graph_input(b.graph, b.model, tokens), zp_graph_param(b.graph, b.model, table),
                -1, (zp_op_attr){0}, "embed");
  zp_push(arena, &b.graph->carry_out, in ? product(&b, x, columns, WIDTH, "in") : x);
  b.graph = open_segment(&b, &size, "end", 1, true);
  x = b.graph->carry_in.data[0];
  if (out) x = product(&b, x, WIDTH, columns, "out");
  x = apply(&b, ZP_OP_MATMUL, x, zp_graph_param(b.graph, b.model, table), -1, (zp_op_attr){.trans = true}, "logits");
  zp_graph_add_loss(
      b.graph, apply(&b, ZP_OP_CROSS_ENTROPY, x, zp_graph_input(b.graph, b.model, labels), -1, (zp_op_attr){0}, "loss"),
      1);
  b.model->vocabulary = WORDS;
  return b.model;
}

/* Rows of the table on every rank would make whole what is looked up: "in" could not be divided, for a column of it
 * gives columns of a carried tensor; nor could "out", whose columns meet whole rows. That is 2 * 16 * 64 elements on
 * every rank. Columns of the table make "in" a product of split rows, and logits that are partial sums: none. */
Test(shard, tied_table_between_products_is_split_in_columns) {
  zp_sharding *s = shard_model(tied_table(16, true, true), 2);
  const zp_graph *begin = s->local[0], *end = s->local[1];
  cr_expect_eq(param(begin, "table")->split_dim, 1);
  cr_expect_eq(param(begin, "table")->shape.dim[1], 8);
  cr_expect_eq(param(begin, "in")->split_dim, 1); /* [WIDTH, 16], its inner dimension */
  cr_expect_eq(param(end, "out")->split_dim, 0);  /* [16, WIDTH], its outer one */
  cr_expect_eq(param(end, "table")->split_dim, 1);
  for (int p = 0; p < 3; p++) cr_expect_eq(s->param[p].split_dim, p == 2 ? 0 : 1);
  cr_expect_eq(count(end, ZP_OP_ALL_REDUCE), 1, "of the logits");
  cr_expect_eq(count(end, ZP_OP_GATHER_STATS), 0);
}

/* Each end alone would take another split of the table: that with a product alongside it columns, for then nothing is
 * replicated, the other one rows, for columns cannot be. Rows it is, and the product is replicated. */
Test(shard, tied_table_is_split_as_all_uses_can) {
  for (int at_end = 0; at_end <= 1; at_end++) {
    zp_sharding *s = shard_model(tied_table(WIDTH, !at_end, at_end), 2);
    cr_expect_eq(s->param[0].split_dim, 0);
    cr_expect_eq(param(s->local[0], "table")->shape.dim[0], WORDS / 2);
    cr_expect_eq(param(s->local[1], "table")->shape.dim[0], WORDS / 2);
    cr_expect_eq(s->param[1].split_dim, -1, "the product");
    cr_expect_eq(count(s->local[1], ZP_OP_GATHER_STATS), 1);
  }
}

/* ---- local graphs ---- */

Test(shard, only_the_segment_with_cross_entropy_has_a_loss) {
  for (int tensor = 1; tensor <= 2; tensor++) {
    zp_sharding *s = shard_size(GPT, tensor);
    cr_expect_eq(s->local[BEGIN]->losses.len, 0);
    cr_expect_eq(s->local[LAYER]->losses.len, 0);
    cr_expect_eq(s->local[END]->losses.len, 1);
  }
}

/* An MLP without a middle, of one operand. */
static int narrow_mlp(builder *b, int x, int64_t in) { return product(b, product(b, x, in, 66, "up"), 66, 64, "down"); }

/* Halves and quarters of a replicated carried tensor: views of it, whatever stands between; but what ENTER makes of a
 * view is a tensor of its own. */
Test(shard, views_of_a_carried_tensor) {
  builder b = {.model = zp_model_new(arena, "views"), .diags = zp_diags_new(arena), .segment = -1};
  model_size size = {.S = 8, .d = 64};
  b.graph = open_segment(&b, &size, "h", 1, true);
  int x = b.graph->carry_in.data[0];
  int half = apply(&b, ZP_OP_SPLIT, x, -1, -1, (zp_op_attr){.parts = 2}, "half");
  int quarter = apply(&b, ZP_OP_SPLIT, half + 1, -1, -1, (zp_op_attr){.parts = 2}, "quarter");
  int product_of_quarters = apply(&b, ZP_OP_MUL, quarter, quarter + 1, -1, (zp_op_attr){0}, "square");
  int y = add2(&b, narrow_mlp(&b, half, 32), narrow_mlp(&b, product_of_quarters, 16));
  zp_push(arena, &b.graph->carry_out, add2(&b, x, y));

  const zp_graph *local = shard_model(b.model, 2)->local[0];
  int carry = local->carry_in.data[0], entered_views = 0;
  for (int n = 0; n < local->nodes.len; n++) {
    const zp_node *node = &local->nodes.data[n];
    const zp_tensor *in = &local->tensors.data[node->in.data[0]], *out = &local->tensors.data[node->out.data[0]];
    if (node->op == ZP_OP_SPLIT) {
      bool quarters = strcmp(node->name, "quarter") == 0;
      for (int i = 0; i < 2; i++) { /* columns 0 and 32 of 64; 32 and 48 of the right half */
        const zp_tensor *view = &local->tensors.data[node->out.data[i]];
        cr_expect_eq(view->base, carry, "%s lies in %d", view->name, view->base);
        cr_expect_eq(view->column, quarters ? 32 + 16 * i : 32 * i, "%s at column %d", view->name, (int)view->column);
      }
    }
    if (node->op != ZP_OP_ENTER) continue;
    entered_views += in->base == carry;
    cr_expect_eq(out->base, -1, "%s", out->name);
  }
  cr_expect_eq(count(local, ZP_OP_SPLIT), 2);
  cr_expect_eq(entered_views, 1, "%s", zp_graph_text(arena, local));
}

static const model_size EXPERTS = {STYLE_EXPERTS, 29, 12, 40, 2, 5, 8, 50, false};

static zp_sharding *spread(int tensor, int expert, const char **reason) {
  zp_cluster *cluster = ZP_NEW(arena, zp_cluster);
  *cluster = cpu_cluster();
  zp_machine machine = zp_machine_make(cluster, ZP_PREC_F32, tensor * expert);
  return zp_shard_experts(arena, build_model(arena, &EXPERTS), &machine, tensor, expert, false, reason);
}

/* Slots go out once and come back once, whatever the products between; their gradients do the same. Two tensor ranks
 * have 4 of 8 experts, each of four data ranks one of these, with the slots of all four samples. */
Test(shard, experts_are_spread_over_data_ranks) {
  const char *reason = NULL;
  for (int tensor = 1; tensor <= 2; tensor++) {
    zp_sharding *s = spread(tensor, 4, &reason);
    cr_assert(s, "%s", reason);
    const zp_graph *layer = s->local[LAYER];
    int64_t experts = 8 / tensor, slots = 3; /* 0.9 * 12 tokens * 2 choices / 8 experts = 2.7 */
    cr_expect_eq(count(layer, ZP_OP_SPREAD_SLOTS), 1);
    cr_expect_eq(count(layer, ZP_OP_RETURN_SLOTS), 1);
    const zp_shape *here = &layer->tensors.data[find(layer, ZP_OP_SPREAD_SLOTS)->in.data[0]].shape,
                   *there = &layer->tensors.data[find(layer, ZP_OP_SPREAD_SLOTS)->out.data[0]].shape;
    cr_expect(here->dim[1] == experts && here->dim[2] == slots);
    cr_expect(there->dim[1] == experts / 4 && there->dim[2] == 4 * slots);
    cr_expect_eq(param(layer, "experts.w1")->shape.dim[0], experts / 4);
    cr_expect_eq(param(layer, "experts.w1")->full_dim, 8);
    const zp_graph *both = zp_differentiate(zp_fuse(layer));
    cr_expect_eq(count(both, ZP_OP_SPREAD_SLOTS), 2);
    cr_expect_eq(count(both, ZP_OP_RETURN_SLOTS), 2);
    const char *wrong = zp_graph_check(arena, both);
    cr_expect_null(wrong, "%s", wrong);
    for (int p = 0; p < s->local[LAYER]->params.len; p++) {
      int index = layer->params.data[p].param;
      bool expected = strncmp(layer->tensors.data[layer->params.data[p].tensor].name, "experts.", 8) == 0;
      cr_expect_eq(s->param[index].spread, expected);
    }
  }
}

/* Sorted rows: counts first, then a row for every choice, 2 of 12 tokens; of 4 members' tokens each of a rank's 2
 * experts could have all. Tensor ranks cut experts, which spreads none. */
Test(shard, sorted_rows_are_spread_over_data_ranks) {
  static const model_size size = {STYLE_DROPLESS, 29, 12, 40, 2, 5, 8, 50, false};
  zp_cluster cluster = cpu_cluster();
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_F32, 4);
  const char *reason = NULL;
  zp_sharding *s = zp_shard_experts(arena, build_model(arena, &size), &machine, 1, 4, false, &reason);
  cr_assert(s, "%s", reason);
  const zp_graph *layer = s->local[LAYER];
  const zp_node *spread = find(layer, ZP_OP_SPREAD_SLOTS), *product = find(layer, ZP_OP_BATCHED_MATMUL);
  cr_assert_eq(spread->in.len, 2);
  const zp_shape *here = &layer->tensors.data[spread->in.data[0]].shape,
                 *there = &layer->tensors.data[spread->out.data[0]].shape,
                 *counts = &layer->tensors.data[spread->in.data[1]].shape;
  cr_expect(here->dim[1] == 12 && here->dim[2] == 2);
  cr_expect_eq(there->dim[1] * there->dim[2], 4 * 12 * 2);
  cr_expect_eq(counts->dim[1], 2 + 1 + 2 * 8);
  zp_sorted_rows rows = zp_graph_sorted_rows(layer, product, 3);
  cr_expect(rows.counts == find(layer, ZP_OP_SPREAD_COUNTS) && rows.rows == 3 * 12 * 2 && rows.experts == 2);
  cr_expect_float_eq(zp_node_flop(layer, product, 3), 2.0 * 3 * 12 * 2 * 40 * 50, 0);
  const zp_graph *both = zp_differentiate(zp_fuse(layer));
  cr_expect(count(both, ZP_OP_SPREAD_SLOTS) == 2 && count(both, ZP_OP_RETURN_SLOTS) == 2);
  cr_expect_eq(count(both, ZP_OP_SPREAD_COUNTS), 1);
  const char *wrong = zp_graph_check(arena, both);
  cr_expect_null(wrong, "%s", wrong);
  cr_expect_null(zp_shard_experts(arena, build_model(arena, &size), &machine, 2, 2, false, &reason));
  cr_expect(strstr(reason, "not both"), "%s", reason);
}

Test(shard, experts_that_do_not_divide_are_refused) {
  const char *reason = NULL;
  cr_expect_null(spread(1, 3, &reason));
  cr_expect(strstr(reason, "expert 3 does not divide the 8 experts"), "%s", reason);
  cr_expect_null(spread(4, 4, &reason));
  cr_expect(strstr(reason, "expert 4 does not divide the 2 experts"), "%s", reason);
  cr_expect_not_null(spread(3, 3, &reason),
                     "8 experts over 9 ranks: three each of a tensor rank, the last one padding");
  cr_expect_not_null(zp_shard_refuse_experts(arena, build_model(arena, &GPT), 1, 2));
}

/* Only zplan's own trainer on GPUs, and not in f64. The second product of an MLP is a partial sum on several ranks: no
 * epilogue, but gelu's derivative, which is a rank's own, is that of its gradient. */
Test(shard, products_take_groups_in) {
  const struct {
    bool gpu;
    zp_trainer trainer;
    zp_precision precision;
    int tensor, forward, inputs, weights;
  } cases[] = {{true, ZP_TRAINER_ZPLAN, ZP_PREC_MIXED_BF16, 1, 3, 1, 2},
               {true, ZP_TRAINER_ZPLAN, ZP_PREC_F32, 2, 2, 1, 2},
               {true, ZP_TRAINER_ZPLAN, ZP_PREC_F64, 1, 0, 0, 0},
               {true, ZP_TRAINER_MEGATRON, ZP_PREC_MIXED_BF16, 1, 0, 0, 0},
               {false, ZP_TRAINER_ZPLAN, ZP_PREC_F32, 1, 0, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    zp_cluster cluster = cases[i].gpu ? gpu_cluster(1) : cpu_cluster();
    cluster.trainer = cases[i].trainer;
    zp_machine machine = zp_machine_make(&cluster, cases[i].precision, cases[i].tensor);
    const char *reason = NULL;
    const zp_sharding *s = zp_shard(arena, build_model(arena, &GPT), &machine, cases[i].tensor, 1, false, &reason);
    cr_assert(s, "%s", reason);
    const zp_graph *layer = s->trained[LAYER];
    int forward = 0, inputs = 0, weights = 0;
    for (int n = 0; n < layer->nodes.len; n++) {
      const zp_node *node = &layer->nodes.data[n];
      if (!node->fused) continue;
      forward += node->op == ZP_OP_MATMUL;
      inputs += node->op == ZP_OP_MATMUL_DGRAD;
      weights += node->op == ZP_OP_MATMUL_WGRAD;
    }
    cr_expect(forward == cases[i].forward && inputs == cases[i].inputs && weights == cases[i].weights,
              "case %zu: %d %d %d\n%s", i, forward, inputs, weights, zp_graph_text(arena, layer));
  }
}

Test(shard, same_answer_twice) {
  const char *a = zp_graph_text(arena, shard_size(GPT, 4)->local[LAYER]);
  cr_expect_str_eq(a, zp_graph_text(arena, shard_size(GPT, 4)->local[LAYER]));
}
