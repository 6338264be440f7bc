/* Low-rank adapters (LoRA, arXiv 2106.09685): in the graph of the model, before it is sharded, so that whatever reads
 * graphs needs to know nothing of them. */
#include <assert.h>
#include <math.h>
#include "graph_internal.h"

/* Nodes of a graph that read a parameter, and one of them that multiplies by it. */
typedef struct use {
  int readers, segment, node;
} use;

static use find_use(const zp_model *model, int param) {
  use found = {.segment = -1, .node = -1};
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *g = model->segments.data[s].graph;
    for (int n = 0; n < g->nodes.len; n++)
      for (int i = 0; i < g->nodes.data[n].in.len; i++) {
        const zp_tensor *t = &g->tensors.data[g->nodes.data[n].in.data[i]];
        if (t->role != ZP_ROLE_PARAM || t->index != param) continue;
        found.readers++;
        if (g->nodes.data[n].op != ZP_OP_MATMUL || i != 1) continue;
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
  if (found.node < 0) return zp_format(model->arena, "`%s` is the weight of no matrix product", w->name);
  if (found.readers > 1)
    return zp_format(model->arena, "`%s` is read %d times: adapters are for weights of one product", w->name,
                     found.readers);
  int64_t least = w->shape.dim[0] < w->shape.dim[1] ? w->shape.dim[0] : w->shape.dim[1];
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

/* The product's result becomes that of an addition, under the same number, so nobody else's operands change. */
static void add_product(zp_graph *g, const zp_node *product, int a, int b, double scale) {
  int y = product->out.data[0];
  zp_tensor plain = g->tensors.data[y];
  zp_node node = *product;
  node.out = (zp_ints){0};
  plain.name = zp_format(g->arena, "%s.base", plain.name);
  int base = zp_graph_add_tensor(g, plain);
  zp_push(g->arena, &node.out, base);
  zp_graph_add_node(g, node);
  zp_op_attr trans = {.trans = product->attr.trans};
  int low = apply(g, ZP_OP_MATMUL, product->in.data[0], a, trans, product, "lora_A");
  int high = apply(g, ZP_OP_MATMUL, low, b, trans, product, "lora_B");
  int scaled = apply(g, ZP_OP_MUL_CONST, high, -1, (zp_op_attr){.value = scale}, product, "scaled");
  int sum = apply(g, ZP_OP_ADD, base, scaled, (zp_op_attr){0}, product, "adapted");
  zp_node *add = &g->nodes.data[g->nodes.len - 1];
  assert(add->out.len == 1 && add->out.data[0] == sum);
  add->out.data[0] = y;
  g->tensors.data[y].producer = g->nodes.len - 1;
  g->tensors.data[sum].producer = -1;
}

void zp_model_adapt(zp_model *model, int weight, int64_t rank, double scale) {
  assert(!zp_model_refuse_adapter(model, weight, rank));
  use found = find_use(model, weight);
  const zp_param w = model->params.data[weight];
  zp_graph *g = model->segments.data[found.segment].graph;
  bool trans = g->nodes.data[found.node].attr.trans;
  double bound = 1 / sqrt((double)w.shape.dim[trans ? 1 : 0]);
  zp_adapter adapter = {.weight = weight, .scale = scale};
  adapter.a = zp_model_add_param(model, (zp_param){.name = adapter_name(model, w.name, "lora_A"),
                                                   .shape = with_rank(&w.shape, trans ? 0 : 1, rank),
                                                   .init = ZP_INIT_UNIFORM,
                                                   .init_a = -bound,
                                                   .init_b = bound,
                                                   .segment = w.segment,
                                                   .span = w.span});
  adapter.b = zp_model_add_param(model, (zp_param){.name = adapter_name(model, w.name, "lora_B"),
                                                   .shape = with_rank(&w.shape, trans ? 1 : 0, rank),
                                                   .init = ZP_INIT_CONSTANT,
                                                   .segment = w.segment,
                                                   .span = w.span});
  zp_push(model->arena, &model->adapters, adapter);
  int a = zp_graph_param(g, model, adapter.a), b = zp_graph_param(g, model, adapter.b);
  zp_graph old = *g;
  g->nodes.data = NULL;
  g->nodes.len = g->nodes.cap = 0;
  for (int i = 0; i < old.nodes.len; i++) {
    if (i == found.node)
      add_product(g, &old.nodes.data[i], a, b, scale);
    else
      zp_graph_add_node(g, old.nodes.data[i]);
  }
  if (zp_model_has_frozen(model)) zp_model_find_first_trained(model);
  assert(!zp_graph_check(model->arena, g));
}

bool zp_model_is_adapter(const zp_model *model, int param) {
  for (int i = 0; i < model->adapters.len; i++)
    if (model->adapters.data[i].a == param || model->adapters.data[i].b == param) return true;
  return false;
}
