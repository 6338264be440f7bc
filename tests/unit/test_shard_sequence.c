/* SPDX-License-Identifier: Apache-2.0 */
/* Sequence sharding: the pairs of all-gather and reduce-scatter must fall out, norms and residuals shrink to the rank's
 * share of the positions, and so do carried and kept bytes; nothing is padded, so what does not divide is refused. That
 * the numbers are right is test_shard_numeric.c's business. */
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(shard_sequence, .init = setup, .fini = teardown);

static const model_size GPT = {STYLE_GPT, 1024, 64, 256, 4, 8, 8, 1024, true};
static const model_size LLAMA = {STYLE_LLAMA, 1024, 64, 256, 4, 8, 4, 512, false};
enum { BEGIN, LAYER, END };

static zp_sharding *try_shard(const zp_model *model, int tensor, bool sequence, const char **reason) {
  zp_cluster *cluster = ZP_NEW(arena, zp_cluster);
  *cluster = cpu_cluster();
  zp_machine machine = zp_machine_make(cluster, ZP_PREC_F32, tensor);
  return zp_shard(arena, model, &machine, tensor, 1, sequence, reason);
}

static zp_sharding *shard_size(const model_size *size, int tensor) {
  const char *reason = "none given";
  zp_sharding *sharding = try_shard(build_model(arena, size), tensor, true, &reason);
  cr_assert(sharding, "%s", reason);
  return sharding;
}

static int count(const zp_graph *graph, zp_op op, int first, int last) {
  int n = 0;
  for (int i = first; i < last; i++) n += graph->nodes.data[i].op == op;
  return n;
}

/* Pairs forward; backward the same pairs the other way round, and each gathered tensor once more. */
static void expect_pairs(const zp_graph *local, int pairs) {
  zp_graph *graph = zp_differentiate(zp_fuse(local));
  const char *text = zp_graph_text(arena, graph);
  int forward = graph->n_forward, all = graph->nodes.len;
  cr_expect_eq(count(graph, ZP_OP_ALL_GATHER_SEQ, 0, forward), pairs, "%s", text);
  cr_expect_eq(count(graph, ZP_OP_REDUCE_SCATTER_SEQ, 0, forward), pairs, "%s", text);
  cr_expect_eq(count(graph, ZP_OP_ALL_GATHER_SEQ, forward, all), 2 * pairs, "%s", text);
  cr_expect_eq(count(graph, ZP_OP_REDUCE_SCATTER_SEQ, forward, all), pairs, "%s", text);
  cr_expect_eq(count(graph, ZP_OP_ALL_REDUCE, 0, all), 0);
  cr_expect_eq(count(graph, ZP_OP_ENTER, 0, all), 0);
}

/* Every norm and every sum of whole rows runs on the rank's share of the positions. */
static void expect_share(const zp_graph *local, int64_t positions) {
  for (int n = 0; n < local->nodes.len; n++) {
    const zp_node *node = &local->nodes.data[n];
    const zp_tensor *y = &local->tensors.data[node->out.data[0]];
    bool norm = node->op == ZP_OP_LAYER_NORM || node->op == ZP_OP_RMS_NORM;
    bool residual = node->op == ZP_OP_ADD && strcmp(node->name, "residual") == 0;
    if (norm || residual) cr_expect_eq(y->shape.dim[1], positions, "%s", zp_graph_text(arena, local));
  }
}

Test(shard_sequence, gpt_layer) {
  zp_sharding *s = shard_size(&GPT, 4);
  expect_pairs(s->local[LAYER], 2);
  expect_share(s->local[LAYER], 16);
  cr_expect_eq(s->local[LAYER]->tensors.data[s->local[LAYER]->carry_in.data[0]].shape.dim[1], 16);
  cr_expect_eq(s->local[LAYER]->tensors.data[s->local[LAYER]->carry_out.data[0]].shape.dim[1], 16);
}

Test(shard_sequence, llama_layer) {
  zp_sharding *s = shard_size(&LLAMA, 4);
  expect_pairs(s->local[LAYER], 2);
  expect_share(s->local[LAYER], 16);
}

/* The two partial sums are added first where memory is fast next to links: one pair. */
Test(shard_sequence, attention_and_mlp_side_by_side) {
  model_size size = GPT;
  size.style = STYLE_PARALLEL;
  zp_cluster cluster = gpu_cluster(1);
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_F32, 2);
  const char *reason = "none given";
  zp_sharding *s = zp_shard(arena, build_model(arena, &size), &machine, 2, 1, true, &reason);
  cr_assert(s, "%s", reason);
  expect_pairs(s->local[LAYER], 1);
}

Test(shard_sequence, ends_of_the_model) {
  zp_sharding *s = shard_size(&GPT, 2);
  const zp_graph *begin = s->local[BEGIN], *end = s->local[END];
  cr_expect_eq(count(begin, ZP_OP_REDUCE_SCATTER_SEQ, 0, begin->nodes.len), 1);
  cr_expect_eq(count(begin, ZP_OP_ALL_REDUCE, 0, begin->nodes.len), 0);
  cr_expect_eq(count(end, ZP_OP_ALL_GATHER_SEQ, 0, end->nodes.len), 1);
  cr_expect_eq(count(end, ZP_OP_ENTER, 0, end->nodes.len), 0);
  expect_share(begin, 32);
  expect_share(end, 32);
}

/* Norm weights and biases after a reduce-scatter: every rank sees its rows only. The position table falls apart with
 * the positions, and is complete. */
Test(shard_sequence, which_gradients_are_partial) {
  zp_model *model = build_model(arena, &GPT);
  const char *reason = NULL;
  zp_sharding *s = try_shard(model, 2, true, &reason), *whole = try_shard(model, 2, false, &reason);
  for (int p = 0; p < model->params.len; p++) {
    const zp_param *param = &model->params.data[p];
    bool is_position = strcmp(param->name, "wpe") == 0;
    cr_expect_eq(s->param[p].grad_partial, s->param[p].split_dim < 0, "%s", param->name);
    cr_expect_not(whole->param[p].grad_partial);
    cr_expect_eq(s->param[p].split_dim, is_position ? 0 : whole->param[p].split_dim, "%s", param->name);
    if (is_position) cr_expect_eq(s->param[p].local.dim[0], 32);
  }
  cr_expect(s->sequence && !whole->sequence);
}

static void expect_refused(model_size size, int tensor, const char *words) {
  const char *reason = NULL;
  cr_assert_null(try_shard(build_model(arena, &size), tensor, true, &reason));
  cr_expect(reason && strstr(reason, words), "%s", reason);
}

Test(shard_sequence, refusals) {
  expect_refused(GPT, 1, "two or more tensor ranks");
  expect_refused(GPT, 3, "`x` [B, 64, 256] cannot be split along the sequence over 3 tensor ranks");
  model_size one_kv_head = LLAMA; /* attention is replicated, and would have to be given back in shares */
  one_kv_head.kv_heads = 1;
  expect_refused(one_kv_head, 2, "no way to keep");
}

/* ---- what lowering makes of it ---- */

static const zp_segment_program *lower_layer(const zp_spec *spec, int tensor, bool sequence, zp_recompute recompute) {
  const char *reason = NULL;
  zp_sharding *sharding = try_shard(spec->model, tensor, sequence, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered *lowered = zp_lower(arena, spec, sharding, 2, recompute, false, &reason);
  cr_assert(lowered, "%s", reason);
  return &lowered->segments[LAYER];
}

/* Elements that a ring sends, per rank and (t - 1) / t of the array: two passes for an all-reduce. */
static int64_t passes(const zp_procedure *procedure, int tensor) {
  int64_t elements = 0;
  for (int i = 0; i < procedure->steps.len; i++) {
    const zp_step *step = &procedure->steps.data[i];
    bool reduce = step->op == ZP_OP_ALL_REDUCE || step->op == ZP_OP_GRAD_ALL_REDUCE;
    elements += step->comm_elements * (reduce ? 2 : step->op == ZP_OP_ALL_GATHER_SEQ ? tensor : 1);
  }
  return elements;
}

Test(shard_sequence, bytes_on_the_links) {
  for (int style = 0; style < 2; style++) {
    zp_spec *spec = build_spec(arena, style ? &LLAMA : &GPT, cpu_cluster(), 8);
    const zp_segment_program *shares = lower_layer(spec, 4, true, ZP_RECOMPUTE_NONE);
    const zp_segment_program *whole = lower_layer(spec, 4, false, ZP_RECOMPUTE_NONE);
    int64_t activation = 2 * 64 * 256;
    cr_expect_eq(passes(&whole->forward, 4), 4 * activation);
    cr_expect_eq(passes(&shares->forward, 4), 4 * activation, "as many bytes as all-reduces");
    cr_expect_eq(passes(&shares->backward, 4), 6 * activation, "and two tensors gathered once more");
    cr_expect_eq(4 * shares->carry_out_elements, whole->carry_out_elements);
  }
}

/* Everything that is kept from forward to backward, the input included, is one t-th of what one rank alone keeps. */
Test(shard_sequence, kept_bytes_are_divided) {
  for (int style = 0; style < 2; style++)
    for (int tensor = 2; tensor <= 4; tensor *= 2) {
      zp_spec *spec = build_spec(arena, style ? &LLAMA : &GPT, cpu_cluster(), 8);
      int64_t alone = lower_layer(spec, 1, false, ZP_RECOMPUTE_NONE)->saved_bytes;
      cr_expect_eq(lower_layer(spec, tensor, true, ZP_RECOMPUTE_NONE)->saved_bytes * tensor, alone);
      cr_expect_gt(lower_layer(spec, tensor, false, ZP_RECOMPUTE_NONE)->saved_bytes * tensor, alone);
      int64_t input = lower_layer(spec, 1, false, ZP_RECOMPUTE_FULL)->saved_bytes;
      cr_expect_eq(lower_layer(spec, tensor, true, ZP_RECOMPUTE_FULL)->saved_bytes * tensor, input);
    }
}

/* Passes of equal bytes: dearer than all-reduces only by one fixed cost more each, and by what is gathered again. */
Test(shard_sequence, price) {
  zp_spec *spec = build_spec(arena, &GPT, gpu_cluster(1), 8);
  zp_machine machine = zp_machine_make(&spec->cluster, ZP_PREC_F32, 16);
  double comm_s[2] = {0, 0};
  for (int sequence = 0; sequence < 2; sequence++) {
    const char *reason = NULL;
    zp_sharding *s = zp_shard(arena, spec->model, &machine, 4, 1, sequence, &reason);
    zp_lowered *lowered = zp_lower(arena, spec, s, 64, ZP_RECOMPUTE_NONE, false, &reason);
    zp_price(lowered, &machine, 4, 4, 1);
    const zp_procedure *forward = &lowered->segments[LAYER].forward;
    for (int i = 0; i < forward->steps.len; i++)
      if (forward->steps.data[i].comm_elements) comm_s[sequence] += forward->steps.data[i].cost_s;
  }
  cr_expect_geq(comm_s[1], comm_s[0]);
  cr_expect_leq(comm_s[1], 1.2 * comm_s[0]);
}
