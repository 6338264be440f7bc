/* SPDX-License-Identifier: Apache-2.0 */
/* Small models for the planner's unit tests, built op by op: a GPT-2 style decoder, without and with dropout, a LLaMA
 * style one, one with attention and MLP side by side, one with experts, one whose attention has options, and three
 * whose elementwise code is longer; and two clusters. */
#ifndef PLANNER_MODELS_H
#define PLANNER_MODELS_H

#include <criterion/criterion.h>
#include <math.h>
#include <zplan/abilities.h>
#include <zplan/proof.h>
#include <zplan/report.h>
#include <zplan/software.h>

typedef enum model_style {
  STYLE_GPT,
  STYLE_LLAMA,
  STYLE_PARALLEL,
  STYLE_DROPOUT,
  STYLE_EXPERTS,
  STYLE_DROPLESS,      /* the same with rows sorted by expert */
  STYLE_SCALED,        /* norms before and after each part, and a learned scale of it */
  STYLE_PARALLEL_NORM, /* attention and MLP side by side, their sum scaled and normalized */
  STYLE_STREAMS,       /* two streams that elementwise code divides and joins */
  STYLE_BENT,          /* GPT with windows, capped scores, ALiBi, leaky_relu; targets that are smoothed */
  STYLE_QK_NORM,       /* LLaMA whose queries and keys are normalised, head by head */
  STYLE_QK_UNIT,       /* the same, to unit length */
} model_style;
typedef struct model_size {
  model_style style;
  int64_t V, S, d, layers, heads, kv_heads, ff; /* kv_heads of experts: how many */
  bool tied;
} model_size;

typedef struct builder {
  zp_model *model;
  zp_diags *diags;
  zp_graph *graph;
  int segment; /* of new parameters; -1 outside repeats */
  int streams; /* of dropout, so far */
} builder;

static inline zp_shape shape_of_rank(int rank, int64_t a, int64_t b, int64_t c) {
  return (zp_shape){.rank = rank, .dim = {a, b, c}};
}

static inline int add_param(builder *b, const char *name, zp_shape shape) {
  zp_param param = {
      .name = name, .shape = shape, .init = ZP_INIT_NORMAL, .init_b = 0.02, .segment = b->segment, .span = ZP_NO_SPAN};
  return zp_model_add_param(b->model, param);
}

/* Names are a segment's own, as in models of the language: the second "bias" is "bias.2". */
static inline int weight(builder *b, const char *name, zp_shape shape) {
  int same = 1;
  for (int i = 0; i < b->model->params.len; i++) {
    const zp_param *p = &b->model->params.data[i];
    same += p->segment == b->segment && strncmp(p->name, name, strlen(name)) == 0;
  }
  if (same > 1) name = zp_format(b->model->arena, "%s.%d", name, same);
  return zp_graph_param(b->graph, b->model, add_param(b, name, shape));
}

static inline int apply(builder *b, zp_op op, int x, int y, int z, zp_op_attr attr, const char *name) {
  int in[3] = {x, y, z};
  int result = zp_graph_apply(b->graph, b->diags, op, in, z >= 0 ? 3 : y >= 0 ? 2 : 1, attr, name, ZP_NO_SPAN);
  if (result < 0) zp_diags_print(b->diags, stderr, false);
  cr_assert(result >= 0, "%s", name);
  return result;
}

static inline int linear(builder *b, int x, int64_t in, int64_t out, const char *name) {
  int y = apply(b, ZP_OP_MATMUL, x, weight(b, name, shape_of_rank(2, in, out, 0)), -1, (zp_op_attr){0}, name);
  return apply(b, ZP_OP_ADD, y, weight(b, "bias", shape_of_rank(1, out, 0, 0)), -1, (zp_op_attr){0}, "bias_add");
}

static inline int product(builder *b, int x, int64_t in, int64_t out, const char *name) {
  return apply(b, ZP_OP_MATMUL, x, weight(b, name, shape_of_rank(2, out, in, 0)), -1, (zp_op_attr){.trans = true},
               name);
}

static inline int layer_norm(builder *b, int x, int64_t d) {
  int w = weight(b, "ln.weight", shape_of_rank(1, d, 0, 0)), bias = weight(b, "ln.bias", shape_of_rank(1, d, 0, 0));
  return apply(b, ZP_OP_LAYER_NORM, x, w, bias, (zp_op_attr){.eps = 1e-5}, "ln");
}

static inline int rms_norm(builder *b, int x, int64_t d) {
  return apply(b, ZP_OP_RMS_NORM, x, weight(b, "norm", shape_of_rank(1, d, 0, 0)), -1, (zp_op_attr){.eps = 1e-5},
               "norm");
}

static inline int add2(builder *b, int x, int y) { return apply(b, ZP_OP_ADD, x, y, -1, (zp_op_attr){0}, "residual"); }

/* Without the bias of the last projection when `bare`: so that partial sums can be added. */
static inline int gpt_attention(builder *b, const model_size *m, int x, bool bare) {
  int qkv = linear(b, x, m->d, 3 * m->d, "attn.qkv");
  int q = apply(b, ZP_OP_SPLIT, qkv, -1, -1, (zp_op_attr){.parts = 3}, "attn.split");
  zp_op_attr attr = {.heads = m->heads, .causal = true};
  if (m->style == STYLE_BENT) attr.window = 5, attr.softcap = 1.5, attr.alibi_heads = m->heads;
  int o = apply(b, ZP_OP_ATTENTION, q, q + 1, q + 2, attr, "attn");
  return bare ? product(b, o, m->d, m->d, "attn.proj") : linear(b, o, m->d, m->d, "attn.proj");
}

static inline int gpt_mlp(builder *b, const model_size *m, int x, bool bare) {
  int h = linear(b, x, m->d, m->ff, "mlp.fc");
  h = m->style == STYLE_BENT ? apply(b, ZP_OP_LEAKY_RELU, h, -1, -1, (zp_op_attr){.value = 0.3}, "leaky_relu")
                             : apply(b, ZP_OP_GELU, h, -1, -1, (zp_op_attr){.tanh_form = true}, "gelu");
  return bare ? product(b, h, m->ff, m->d, "mlp.proj") : linear(b, h, m->ff, m->d, "mlp.proj");
}

static inline int dropout(builder *b, int x) {
  return apply(b, ZP_OP_DROPOUT, x, -1, -1, (zp_op_attr){.rate = 0.25, .stream = b->streams++}, "dropout");
}

/* Also after the activation, where columns are divided, as some vision models have it. */
static inline int dropout_layer(builder *b, const model_size *m, int x) {
  x = add2(b, x, dropout(b, gpt_attention(b, m, layer_norm(b, x, m->d), false)));
  int h = linear(b, layer_norm(b, x, m->d), m->d, m->ff, "mlp.fc");
  h = dropout(b, apply(b, ZP_OP_GELU, h, -1, -1, (zp_op_attr){0}, "gelu"));
  return add2(b, x, dropout(b, linear(b, h, m->ff, m->d, "mlp.proj")));
}

static inline int gpt_layer(builder *b, const model_size *m, int x) {
  x = add2(b, x, gpt_attention(b, m, layer_norm(b, x, m->d), false));
  return add2(b, x, gpt_mlp(b, m, layer_norm(b, x, m->d), false));
}

static inline int parallel_layer(builder *b, const model_size *m, int x) {
  int h = layer_norm(b, x, m->d);
  return add2(b, x, add2(b, gpt_attention(b, m, h, true), gpt_mlp(b, m, h, true)));
}

static inline int mul2(builder *b, int x, int y) { return apply(b, ZP_OP_MUL, x, y, -1, (zp_op_attr){0}, "scale"); }

/* LayerScale and sandwich norms, as in CaiT, Gemma 2 and OLMo 2. */
static inline int scaled_layer(builder *b, const model_size *m, int x) {
  for (int part = 0; part < 2; part++) {
    int h = rms_norm(b, x, m->d);
    h = rms_norm(b, part ? gpt_mlp(b, m, h, true) : gpt_attention(b, m, h, true), m->d);
    x = add2(b, x, mul2(b, h, weight(b, "gamma", shape_of_rank(1, m->d, 0, 0))));
  }
  return x;
}

static inline int parallel_norm_layer(builder *b, const model_size *m, int x) {
  int h = layer_norm(b, x, m->d);
  int sum = add2(b, gpt_attention(b, m, h, true), gpt_mlp(b, m, h, true));
  return add2(b, x, rms_norm(b, mul2(b, sum, weight(b, "gamma", shape_of_rank(1, m->d, 0, 0))), m->d));
}

static inline int streams_layer(builder *b, const model_size *m, int x) {
  int first = rms_norm(b, x, m->d), second = apply(b, ZP_OP_SILU, x, -1, -1, (zp_op_attr){0}, "silu");
  first = add2(b, first, gpt_attention(b, m, mul2(b, first, second), false));
  second = add2(b, layer_norm(b, second, m->d), gpt_mlp(b, m, layer_norm(b, second, m->d), false));
  int gate = apply(b, ZP_OP_SIGMOID, first, -1, -1, (zp_op_attr){0}, "gate");
  return add2(b, x, add2(b, mul2(b, gate, second), first));
}

static inline int head_norm(builder *b, const model_size *m, int x, int64_t heads) {
  zp_op_attr unit = {.heads = heads, .eps = 1e-6};
  if (m->style == STYLE_QK_UNIT) return apply(b, ZP_OP_L2_NORM, x, -1, -1, unit, "unit");
  if (m->style != STYLE_QK_NORM) return x;
  return apply(b, ZP_OP_RMS_NORM, x, weight(b, "head_norm", shape_of_rank(1, m->d / m->heads, 0, 0)), -1,
               (zp_op_attr){.heads = heads, .eps = 1e-5, .value = 1}, "head_norm");
}

static inline bool is_llama(const model_size *m) {
  return m->style == STYLE_LLAMA || m->style == STYLE_QK_NORM || m->style == STYLE_QK_UNIT;
}

static inline int llama_layer(builder *b, const model_size *m, int x) {
  int64_t kv = m->d / m->heads * m->kv_heads;
  zp_op_attr row = {.eps = 1e-6};
  int h = m->style == STYLE_QK_UNIT ? apply(b, ZP_OP_L2_NORM, x, -1, -1, row, "row") : rms_norm(b, x, m->d);
  zp_op_attr rope = {.heads = m->heads, .theta = 10000}, rope_kv = {.heads = m->kv_heads, .theta = 10000};
  int q = head_norm(b, m, product(b, h, m->d, m->d, "wq"), m->heads);
  int k = head_norm(b, m, product(b, h, m->d, kv, "wk"), m->kv_heads);
  q = apply(b, ZP_OP_ROPE, q, -1, -1, rope, "rope_q");
  k = apply(b, ZP_OP_ROPE, k, -1, -1, rope_kv, "rope_k");
  int v = product(b, h, m->d, kv, "wv");
  zp_op_attr attr = {.heads = m->heads, .kv_heads = m->kv_heads, .causal = true};
  int o = apply(b, ZP_OP_ATTENTION, q, k, v, attr, "attn");
  x = add2(b, x, product(b, o, m->d, m->d, "wo"));
  h = rms_norm(b, x, m->d);
  int gate = apply(b, ZP_OP_SILU, product(b, h, m->d, m->ff, "w1"), -1, -1, (zp_op_attr){0}, "silu");
  int up = apply(b, ZP_OP_MUL, gate, product(b, h, m->d, m->ff, "w3"), -1, (zp_op_attr){0}, "gate");
  return add2(b, x, product(b, up, m->ff, m->d, "w2"));
}

static inline int expert_product(builder *b, int x, zp_shape shape, bool trans, const char *name) {
  return apply(b, ZP_OP_BATCHED_MATMUL, x, weight(b, name, shape), -1, (zp_op_attr){.trans = trans}, name);
}

/* Mixtral's, with a balancing loss, too few slots for all tokens, and dropout between the experts' products; or with as
 * many rows as choices, which have no dropout. */
static inline int expert_layer(builder *b, const model_size *m, int x) {
  int64_t E = m->kv_heads, d = m->d, ff = m->ff;
  x = add2(b, x, gpt_attention(b, m, layer_norm(b, x, d), true));
  int h = rms_norm(b, x, d);
  bool dropless = m->style == STYLE_DROPLESS;
  zp_op_attr gate = {.top_k = 2, .capacity = 0.9, .normalize = true, .balance = 0.3, .dropless = dropless};
  int w = apply(b, ZP_OP_TOP_K_GATE, product(b, h, d, E, "router"), -1, -1, gate, "gate");
  int slots = apply(b, ZP_OP_DISPATCH, h, w + 1, -1, (zp_op_attr){0}, "dispatch");
  int a = expert_product(b, slots, shape_of_rank(3, E, ff, d), true, "experts.w1");
  a = apply(b, ZP_OP_SILU, a, -1, -1, (zp_op_attr){0}, "silu");
  int c = expert_product(b, slots, shape_of_rank(3, E, d, ff), false, "experts.w3");
  a = apply(b, ZP_OP_MUL, a, c, -1, (zp_op_attr){0}, "hidden");
  if (!dropless) a = dropout(b, a);
  int y = expert_product(b, a, shape_of_rank(3, E, ff, d), false, "experts.w2");
  return add2(b, x, apply(b, ZP_OP_COMBINE, y, w, w + 1, (zp_op_attr){0}, "combine"));
}

static inline zp_graph *open_segment(builder *b, const model_size *m, const char *name, int64_t count, bool carries) {
  zp_shape carry = shape_of_rank(3, ZP_DIM_B, m->S, m->d);
  const char *carry_name = "x";
  return zp_model_add_segment(b->model, name, count, count > 1, &carry, &carry_name, carries, ZP_NO_SPAN)->graph;
}

static inline zp_model *build_model(zp_arena *arena, const model_size *m) {
  builder b = {.model = zp_model_new(arena, "test"), .diags = zp_diags_new(arena), .segment = -1};
  zp_shape ids = shape_of_rank(2, ZP_DIM_B, m->S, 0), table = shape_of_rank(2, m->V, m->d, 0);
  int tokens = zp_model_add_input(b.model, "tokens", ids, ZP_NO_SPAN);
  int labels = zp_model_add_input(b.model, "labels", ids, ZP_NO_SPAN);
  int wte = add_param(&b, "wte", table), head = m->tied ? wte : add_param(&b, "head", table);

  b.graph = open_segment(&b, m, "begin", 1, false);
  int x = apply(&b, ZP_OP_EMBEDDING, zp_graph_input(b.graph, b.model, tokens), zp_graph_param(b.graph, b.model, wte),
                -1, (zp_op_attr){0}, "wte");
  if (!is_llama(m)) x = add2(&b, x, weight(&b, "wpe", shape_of_rank(2, m->S, m->d, 0)));
  zp_push(arena, &b.graph->carry_out, x);

  b.graph = open_segment(&b, m, "h", m->layers, true);
  b.segment = 1;
  x = b.graph->carry_in.data[0];
  x = m->style == STYLE_GPT                                     ? gpt_layer(&b, m, x)
      : m->style == STYLE_BENT                                  ? gpt_layer(&b, m, x)
      : is_llama(m)                                             ? llama_layer(&b, m, x)
      : m->style == STYLE_DROPOUT                               ? dropout_layer(&b, m, x)
      : m->style == STYLE_EXPERTS || m->style == STYLE_DROPLESS ? expert_layer(&b, m, x)
      : m->style == STYLE_SCALED                                ? scaled_layer(&b, m, x)
      : m->style == STYLE_STREAMS                               ? streams_layer(&b, m, x)
      : m->style == STYLE_PARALLEL_NORM                         ? parallel_norm_layer(&b, m, x)
                                                                : parallel_layer(&b, m, x);
  zp_push(arena, &b.graph->carry_out, x);

  b.graph = open_segment(&b, m, "end", 1, true);
  b.segment = -1;
  x = layer_norm(&b, b.graph->carry_in.data[0], m->d);
  x = apply(&b, ZP_OP_MATMUL, x, zp_graph_param(b.graph, b.model, head), -1, (zp_op_attr){.trans = true}, "head");
  zp_op_attr targets = {0};
  if (m->style == STYLE_BENT) targets.smoothing = 0.2, targets.z_loss = 0.01;
  zp_graph_add_loss(
      b.graph, apply(&b, ZP_OP_CROSS_ENTROPY, x, zp_graph_input(b.graph, b.model, labels), -1, targets, "loss"), 1);
  b.model->vocabulary = m->V;
  return b.model;
}

/* One node of CPU cores with round rates: 100 GFLOP/s and 10 GB/s in all. */
static inline zp_cluster cpu_cluster(void) {
  zp_cluster c = {.name = "cpu", .nodes = 1, .oversubscription = 1};
  c.node.device = (zp_device){.name = "cpu",
                              .is_cpu = true,
                              .memory_bytes = INT64_C(16000000000),
                              .context_bytes = 50000000,
                              .memory_bytes_per_s = 10e9,
                              .flop_per_s_fp64 = 50e9,
                              .flop_per_s_fp32 = 100e9,
                              .flop_per_s_half = 100e9,
                              .eff_matmul = 0.8,
                              .eff_attention = 0.4,
                              .eff_memory = 0.8,
                              .launch_s = 1e-6,
                              .cores = 4};
  c.node.link = (zp_link){"shared_memory", 5e9, 1e-6};
  return c;
}

/* Nodes of 16 V100-like devices; library-like numbers. */
static inline zp_cluster gpu_cluster(int nodes) {
  zp_cluster c = {.name = "gpu", .nodes = nodes, .oversubscription = 1, .fabric_latency_s = 1e-6};
  c.node.devices = 16;
  c.node.device = (zp_device){.name = "v100",
                              .memory_bytes = INT64_C(34359738368),
                              .context_bytes = INT64_C(1500000000),
                              .memory_bytes_per_s = 900e9,
                              .flop_per_s_fp64 = 7.8e12,
                              .flop_per_s_fp32 = 15.7e12,
                              .flop_per_s_half = 125e12,
                              .eff_matmul = 0.62,
                              .eff_attention = 0.45,
                              .eff_memory = 0.8,
                              .launch_s = 5e-6};
  c.node.link = (zp_link){"nvswitch", 150e9, 1e-6};
  c.node.nics = 8;
  c.node.nic = (zp_link){"infiniband", 12.5e9, 2e-6};
  return c;
}

/* Products of layers in 8 or 4 bits, for Megatron-LM on such devices. */
static inline void narrow_products(zp_arena *arena, zp_spec *spec, zp_precision precision) {
  spec->cluster.node.device.arch = "sm_100";
  spec->train.precision = precision;
  cr_assert(zp_software_find("megatron", &spec->cluster.trainer, &spec->cluster.software));
  cr_assert_null(
      zp_software_with_recipe(arena, zp_precision_recipe(precision), &spec->cluster, &spec->cluster.software));
  zp_model_set_float8(spec->model, 16);
}

/* A run: f32 AdamW on the given cluster, nothing constrained; for zplan's own trainer, as a user gets it. */
static inline zp_spec *build_spec(zp_arena *arena, const model_size *size, zp_cluster cluster, int64_t batch) {
  zp_spec *spec = ZP_NEW(arena, zp_spec);
  spec->model = build_model(arena, size);
  spec->cluster = cluster;
  spec->cluster.trainer = ZP_TRAINER_ZPLAN;
  spec->train = (zp_train){.batch = batch, .steps = 100, .precision = ZP_PREC_F32, .optimizer = ZP_OPT_ADAMW};
  zp_constraints free_plan = {.memory_fraction = 0.9, .span = ZP_NO_SPAN};
  zp_push(arena, &spec->plans, free_plan);
  spec->path = "test.dz";
  return spec;
}

/* Scratch memory of the program's matrix products: bytes of a device that no plan does without, as much as a thousand
 * of these models. What tests say of memory is alongside it. */
static inline int64_t scratch_bytes(const zp_spec *spec) {
  return (int64_t)((double)zp_products_bytes(spec) / spec->plans.data[0].memory_fraction) + 1;
}

static inline void add_bytes(zp_node_type *node, const void *user) {
  node->device.memory_bytes += *(const int64_t *)user;
}
static inline void set_arch(zp_node_type *node, const void *user) { node->device.arch = user; }

/* Devices are V100s, and get that scratch memory, too. */
static inline void add_scratch(zp_arena *arena, zp_spec *spec) {
  zp_cluster_change(arena, &spec->cluster, set_arch, "sm_70");
  int64_t bytes = scratch_bytes(spec);
  zp_cluster_change(arena, &spec->cluster, add_bytes, &bytes);
}

/* One lowered model as that of all stages. */
static inline const zp_lowered *const *on_all_stages(zp_arena *arena, const zp_lowered *lowered, int stages) {
  const zp_lowered **all = ZP_NEW_ARRAY(arena, const zp_lowered *, stages);
  for (int s = 0; s < stages; s++) all[s] = lowered;
  return all;
}

/* Seconds of one part of a layer. Its parts, one or two, together are never more than the layer. */
static inline double share_of_layer(double part, double other, double layer) {
  return part + other > layer ? layer * part / (part + other) : part;
}

static inline double unit_s(const zp_lowered *l, int64_t unit) {
  int segment;
  int64_t iteration;
  zp_unit(l, unit, &segment, &iteration);
  const zp_piece *piece = &l->pieces->piece[segment];
  const zp_segment_program *own = &l->segments[segment], *layer = &l->segments[piece->whole];
  if (own == layer) return own->forward.cost_s + own->backward.cost_s;
  int parts = l->pieces->parts[piece->whole], part = 1 - piece->first;
  cr_assert_eq(parts, 2);
  const zp_segment_program *other = &l->segments[zp_pieces_find(l->pieces, piece->whole, part, part + 1)];
  return share_of_layer(own->forward.cost_s, other->forward.cost_s, layer->forward.cost_s) +
         share_of_layer(own->backward.cost_s, other->backward.cost_s, layer->backward.cost_s);
}

/* The shortest longest stage that any cut of the first `units` units into stages has. */
static inline double evenest_cut(const zp_lowered *l, int64_t units, int stages) {
  if (stages == 0) return units == 0 ? 0 : INFINITY;
  double least = INFINITY, last = 0;
  for (int64_t first = units - 1; first >= stages - 1; first--) {
    last += unit_s(l, first);
    double before = evenest_cut(l, first, stages - 1), longest = before > last ? before : last;
    if (longest < least) least = longest;
  }
  return least;
}

/* Cuts inside layers are in the space of the search where no cut between them has stages within 1 % of the mean. */
static inline bool looks_inside_layers(const zp_lowered *whole, const zp_limit *cut, int stages) {
  if (stages == 1 || !zp_limit_allows(cut, 1)) return false;
  double sum = 0;
  for (int64_t u = 0; u < whole->n_units; u++) sum += unit_s(whole, u);
  return !zp_limit_allows(cut, 0) || evenest_cut(whole, whole->n_units, stages) > 1.01 * sum / stages;
}

static inline void pin(zp_limit *limit, double value) {
  limit->set = true;
  limit->low = limit->high = value;
}

/* For choices that a test makes: what is made for no schedule of the space is not there. */
static inline void name_every_schedule(zp_spec *spec) {
  spec->plans.data[spec->plan].schedule = (zp_limit){.set = true, .high = ZP_SCHEDULE_COUNT};
}

/* What flows out of the first segment is handed on by all others alongside what they make of it. */
static inline void hand_on(zp_arena *arena, zp_model *model) {
  for (int s = 0; s < model->segments.len; s++) {
    zp_graph *graph = model->segments.data[s].graph;
    if (s > 0) {
      const zp_graph *before = model->segments.data[s - 1].graph;
      zp_graph_add_carry(graph, &before->tensors.data[before->carry_out.data[0]]);
    }
    if (s + 1 < model->segments.len)
      zp_push(arena, &graph->carry_out, s == 0 ? graph->carry_out.data[0] : graph->carry_in.data[1]);
  }
}

/* The program of a choice but for its cut: chunks have as many units as each other. */
static inline zp_program *evenly_cut(zp_arena *arena, zp_spec *spec, zp_choice c) {
  const char *reason = NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(&c));
  zp_sharding *sharding =
      zp_shard_experts(arena, spec->model, &machine, c.tensor, zp_expert_ranks(&c), c.sequence, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered **l = zp_lower_stages(arena, spec, sharding, &c, &reason);
  cr_assert(l, "%s", reason);
  int64_t parts = c.pipeline * zp_chunks(&c);
  c.cut = ZP_NEW_ARRAY(arena, int64_t, parts + 1);
  for (int64_t k = 0; k <= parts; k++) c.cut[k] = l[0]->n_units * k / parts;
  return zp_program_make(arena, (const zp_lowered *const *)l, &c);
}

#endif
