/* SPDX-License-Identifier: Apache-2.0 */
/* Low-rank adapters (LoRA, arXiv 2106.09685): in the graph of the model, before it is sharded, so that whatever reads
 * graphs needs to know nothing of them. */
#include <assert.h>
#include <math.h>
#include "graph_internal.h"

/* Dropout before adapters has streams apart from those of `dropout` and attention (frontend/sema/builtin_rules.c),
 * which must not depend on what is adapted. */
enum { ADAPTER_STREAMS = 0x4000 };

/* Nodes that read a parameter, and the one of them that an adapter is added to: the lookup where there is one, as a
 * module of PEFT is one use of a tied weight; else the product. */
typedef struct use {
  int readers, lookups, segment, node;
} use;

static bool multiplies(const zp_node *node, int operand) {
  return (node->op == ZP_OP_MATMUL || node->op == ZP_OP_BATCHED_MATMUL) && operand == 1;
}

static bool looks_up(const zp_node *node, int operand) { return node->op == ZP_OP_EMBEDDING && operand == 1; }

static use find_use(const zp_model *model, int param) {
  use found = {.segment = -1, .node = -1};
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *g = model->segments.data[s].graph;
    for (int n = 0; n < g->nodes.len; n++)
      for (int i = 0; i < g->nodes.data[n].in.len; i++) {
        const zp_node *node = &g->nodes.data[n];
        const zp_tensor *t = &g->tensors.data[node->in.data[i]];
        if (t->role != ZP_ROLE_PARAM || t->index != param) continue;
        found.readers++;
        found.lookups += looks_up(node, i);
        if (!looks_up(node, i) && (found.lookups > 0 || !multiplies(node, i))) continue;
        found.segment = s;
        found.node = n;
      }
  }
  return found;
}

const char *zp_model_refuse_adapter(const zp_model *model, int weight, int64_t rank) {
  assert(weight >= 0 && weight < model->params.len && rank >= 1);
  const zp_param *w = &model->params.data[weight];
  use found = find_use(model, weight);
  if (found.node < 0)
    return zp_format(model->arena, "`%s` is the weight of no matrix product and no embedding", w->name);
  if (found.lookups > 1)
    return zp_format(model->arena, "`%s` is the table of %d embeddings: adapters are for one", w->name, found.lookups);
  if (found.lookups == 0 && found.readers > 1)
    return zp_format(model->arena, "`%s` is read %d times: adapters are for weights of one product", w->name,
                     found.readers);
  int last = w->shape.rank - 1;
  int64_t least = w->shape.dim[last - 1] < w->shape.dim[last] ? w->shape.dim[last - 1] : w->shape.dim[last];
  if (rank > least)
    return zp_format(model->arena, "rank %lld is above what `%s` %s can have, %lld", (long long)rank, w->name,
                     zp_shape_text(model->arena, &w->shape), (long long)least);
  return NULL;
}

/* "h.{}.attn.c_attn.weight" -> "h.{}.attn.c_attn.lora_A.weight" */
static const char *adapter_name(const zp_model *model, const char *weight, const char *which) {
  static const char tail[] = ".weight";
  size_t len = strlen(weight), n = sizeof tail - 1;
  if (len > n && strcmp(weight + len - n, tail) == 0) len -= n;
  return zp_format(model->arena, "%.*s.%s.weight", (int)len, weight, which);
}

/* The weight's shape with dimension i as large as the rank. */
static zp_shape with_rank(const zp_shape *weight, int i, int64_t rank) {
  zp_shape shape = *weight;
  shape.dim[i] = rank;
  shape.extent[i] = NULL;
  return shape;
}

static int apply(zp_graph *g, zp_op op, int a, int b, zp_op_attr attr, const zp_node *like, const char *name) {
  const int in[] = {a, b};
  int out =
      zp_graph_apply(g, NULL, op, in, b < 0 ? 1 : 2, attr, zp_format(g->arena, "%s.%s", like->name, name), like->span);
  assert(out >= 0);
  return out;
}

/* x a b of a product's operand x, or a[ids] b. */
static int low_rank(zp_graph *g, const zp_node *node, const zp_adapter *adapter, int a, int b) {
  bool lookup = node->op == ZP_OP_EMBEDDING;
  int x = node->in.data[0];
  zp_op_attr trans = {.trans = node->attr.trans}, drop = {.rate = adapter->dropout, .stream = adapter->stream};
  if (adapter->dropout > 0) x = apply(g, ZP_OP_DROPOUT, x, -1, drop, node, "lora_dropout");
  int low = apply(g, node->op, x, a, trans, node, "lora_A");
  return apply(g, lookup ? ZP_OP_MATMUL : node->op, low, b, trans, node, "lora_B");
}

/* The node's result becomes that of an addition, under the same number, so nobody else's operands change. */
static void add_adapter(zp_graph *g, const zp_node *plain, const zp_adapter *adapter, int a, int b) {
  int y = plain->out.data[0];
  zp_tensor result = g->tensors.data[y];
  zp_node node = *plain;
  node.out = (zp_ints){0};
  result.name = zp_format(g->arena, "%s.base", result.name);
  int base = zp_graph_add_tensor(g, result);
  zp_push(g->arena, &node.out, base);
  zp_graph_add_node(g, node);
  int high = low_rank(g, plain, adapter, a, b);
  int scaled = apply(g, ZP_OP_MUL_CONST, high, -1, (zp_op_attr){.value = adapter->scale}, plain, "scaled");
  int sum = apply(g, ZP_OP_ADD, base, scaled, (zp_op_attr){0}, plain, "adapted");
  zp_node *add = &g->nodes.data[g->nodes.len - 1];
  assert(add->out.len == 1 && add->out.data[0] == sum);
  add->out.data[0] = y;
  g->tensors.data[y].producer = g->nodes.len - 1;
  g->tensors.data[sum].producer = -1;
}

/* Start values of PEFT: what comes first is drawn and what follows is zero, of embeddings the other way round. */
static void add_params(zp_model *model, zp_adapter *adapter, int64_t rank, bool trans) {
  const zp_param w = model->params.data[adapter->weight];
  int in = w.shape.rank - (trans ? 1 : 2), out = w.shape.rank - (trans ? 2 : 1);
  double bound = 1 / sqrt((double)w.shape.dim[in]);
  zp_param a = {.name = adapter_name(model, w.name, "lora_A"),
                .shape = with_rank(&w.shape, out, rank),
                .init = ZP_INIT_UNIFORM,
                .init_a = -bound,
                .init_b = bound,
                .segment = w.segment,
                .span = w.span};
  zp_param b = {.name = adapter_name(model, w.name, "lora_B"),
                .shape = with_rank(&w.shape, in, rank),
                .init = ZP_INIT_CONSTANT,
                .segment = w.segment,
                .span = w.span};
  if (adapter->of == ZP_OP_EMBEDDING) {
    a.init = ZP_INIT_CONSTANT;
    a.init_a = a.init_b = 0;
    b.init = ZP_INIT_NORMAL;
    b.init_b = 1;
  }
  adapter->a = zp_model_add_param(model, a);
  adapter->b = zp_model_add_param(model, b);
}

void zp_model_adapt(zp_model *model, int weight, int64_t rank, double scale, double dropout) {
  assert(!zp_model_refuse_adapter(model, weight, rank));
  use found = find_use(model, weight);
  zp_graph *g = model->segments.data[found.segment].graph;
  const zp_node *node = &g->nodes.data[found.node];
  zp_adapter adapter = {.weight = weight, .of = node->op, .scale = scale};
  adapter.dropout = node->op == ZP_OP_MATMUL ? dropout : 0;
  adapter.stream = ADAPTER_STREAMS + model->adapters.len;
  assert(model->adapters.len < ADAPTER_STREAMS);
  add_params(model, &adapter, rank, node->attr.trans);
  zp_push(model->arena, &model->adapters, adapter);
  int a = zp_graph_param(g, model, adapter.a), b = zp_graph_param(g, model, adapter.b);
  zp_graph old = *g;
  g->nodes.data = NULL;
  g->nodes.len = g->nodes.cap = 0;
  for (int i = 0; i < old.nodes.len; i++) {
    if (i == found.node)
      add_adapter(g, &old.nodes.data[i], &adapter, a, b);
    else
      zp_graph_add_node(g, old.nodes.data[i]);
  }
  if (zp_model_has_frozen(model)) zp_model_find_first_trained(model);
  assert(!zp_graph_check(model->arena, g));
}

bool zp_model_is_tied(const zp_model *model, int param) { return find_use(model, param).readers > 1; }

bool zp_model_is_adapter(const zp_model *model, int param) {
  for (int i = 0; i < model->adapters.len; i++)
    if (model->adapters.data[i].a == param || model->adapters.data[i].b == param) return true;
  return false;
}
