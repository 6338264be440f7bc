/* SPDX-License-Identifier: Apache-2.0 */
/* Models: parameters, inputs, segments, and the totals that people quote. */
#include <assert.h>
#include <math.h>
#include <zplan/buf.h>
#include "graph_internal.h"

zp_model *zp_model_new(zp_arena *arena, const char *name) {
  assert(arena && name);
  zp_model *model = ZP_NEW(arena, zp_model);
  model->name = zp_strdup(arena, name);
  model->arena = arena;
  model->span = ZP_NO_SPAN;
  return model;
}

int zp_model_add_param(zp_model *model, zp_param param) {
  assert(param.name && param.segment >= -1);
  assert(param.shape.rank >= 1 && param.shape.rank <= ZP_MAX_RANK);
  param.name = zp_strdup(model->arena, param.name);
  zp_push(model->arena, &model->params, param);
  return model->params.len - 1;
}

static bool trains_something(const zp_graph *graph) {
  for (int i = 0; i < graph->params.len; i++)
    if (!graph->tensors.data[graph->params.data[i].tensor].frozen) return true;
  return false;
}

/* Iterations of a repeat share a graph: a later one has trained parameters before it where the repeat has any. */
void zp_model_find_first_trained(zp_model *model) {
  bool before = false;
  for (int s = 0; s < model->segments.len; s++) {
    zp_segment *segment = &model->segments.data[s];
    bool own = trains_something(segment->graph);
    segment->graph->first_trained = !before && !(own && segment->count > 1);
    before |= own;
  }
}

static void set_frozen(zp_model *model, int param, bool frozen) {
  assert(param >= 0 && param < model->params.len);
  model->params.data[param].frozen = frozen;
  for (int s = 0; s < model->segments.len; s++) {
    zp_graph *graph = model->segments.data[s].graph;
    for (int i = 0; i < graph->params.len; i++)
      if (graph->params.data[i].param == param) graph->tensors.data[graph->params.data[i].tensor].frozen = frozen;
  }
}

void zp_model_freeze(zp_model *model, int param) {
  set_frozen(model, param, true);
  zp_model_find_first_trained(model);
}

void zp_model_unfreeze(zp_model *model) {
  for (int p = 0; p < model->params.len; p++) set_frozen(model, p, false);
  for (int s = 0; s < model->segments.len; s++) model->segments.data[s].graph->first_trained = false;
}

int zp_model_add_input(zp_model *model, const char *name, zp_shape shape, zp_span span) {
  return zp_model_add_array(model, name, ZP_ELEM_I32, shape, span);
}

int zp_model_add_array(zp_model *model, const char *name, zp_element element, zp_shape shape, zp_span span) {
  assert(name && shape.rank >= 1 && shape.rank <= ZP_MAX_RANK && element != ZP_ELEM_STAT);
  zp_input input = {
      .name = zp_strdup(model->arena, name), .shape = shape, .element = element, .none = -1, .span = span};
  if (model->inputs.len == 0 && shape.rank > 1) model->sequence = shape.dim[1];
  zp_push(model->arena, &model->inputs, input);
  return model->inputs.len - 1;
}

int zp_graph_add_carry(zp_graph *graph, const zp_tensor *from) {
  zp_tensor tensor = zp_tensor_make(from->name, from->element, from->shape, from->span);
  tensor.role = ZP_ROLE_CARRY_IN;
  tensor.index = graph->carry_in.len;
  int id = zp_graph_add_tensor(graph, tensor);
  zp_push(graph->arena, &graph->carry_in, id);
  return id;
}

zp_segment *zp_model_add_segment(zp_model *model, const char *name, int64_t count, bool is_repeat,
                                 const zp_shape *carry, const char *const *carry_names, int n_carry, zp_span span) {
  assert(name && n_carry >= 0);
  assert(count >= 1 && (is_repeat || count == 1));
  zp_arena *arena = model->arena;
  zp_graph *graph = ZP_NEW(arena, zp_graph);
  graph->arena = arena;
  for (int i = 0; i < n_carry; i++) {
    zp_tensor tensor = zp_tensor_make(zp_strdup(arena, carry_names[i]), ZP_ELEM_FLOAT, carry[i], span);
    zp_graph_add_carry(graph, &tensor);
  }
  zp_segment segment = {zp_strdup(arena, name), count, is_repeat, graph, span};
  zp_push(arena, &model->segments, segment);
  return &model->segments.data[model->segments.len - 1];
}

static int64_t count_parameters(const zp_model *model, bool frozen) {
  int64_t total = 0;
  for (int i = 0; i < model->params.len; i++) {
    const zp_param *param = &model->params.data[i];
    int64_t copies = param->segment < 0 ? 1 : model->segments.data[param->segment].count;
    if (frozen || !param->frozen) total += copies * zp_shape_elements(&param->shape, 1);
  }
  return total;
}

int64_t zp_model_parameters(const zp_model *model) { return count_parameters(model, true); }
bool zp_model_has_frozen(const zp_model *model) {
  for (int i = 0; i < model->params.len; i++)
    if (model->params.data[i].frozen) return true;
  return false;
}

bool zp_model_has_frozen_experts(const zp_model *model) {
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_node *node = &graph->nodes.data[n];
      if (node->op == ZP_OP_BATCHED_MATMUL && graph->tensors.data[node->in.data[1]].frozen) return true;
    }
  }
  return false;
}

int64_t zp_model_trained_parameters(const zp_model *model) { return count_parameters(model, false); }

/* The dispatch that filled the slots of a tensor; NULL when another segment did. */
static const zp_node *dispatch_of(const zp_graph *graph, int tensor) {
  for (int at = graph->tensors.data[tensor].producer; at >= 0;) {
    const zp_node *node = &graph->nodes.data[at];
    if (node->op == ZP_OP_DISPATCH) return node;
    at = graph->tensors.data[node->in.data[0]].producer;
  }
  return NULL;
}

int64_t zp_model_active_parameters(const zp_model *model) {
  int64_t idle = 0;
  bool *seen = ZP_NEW_ARRAY(model->arena, bool, model->params.len + 1);
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_node *node = &graph->nodes.data[n];
      if (node->op != ZP_OP_BATCHED_MATMUL) continue;
      int id = graph->tensors.data[node->in.data[1]].index;
      if (seen[id]) continue;
      seen[id] = true;
      const zp_param *param = &model->params.data[id];
      const zp_node *dispatch = dispatch_of(graph, node->in.data[0]);
      if (!dispatch) continue;
      int64_t copies = param->segment < 0 ? 1 : model->segments.data[param->segment].count;
      idle += copies * zp_shape_elements(&param->shape, 1) / dispatch->attr.experts *
              (dispatch->attr.experts - dispatch->attr.top_k);
    }
  }
  return zp_model_parameters(model) - idle;
}

/* Forward, the gradient of its input and that of its weight. */
static double passes_of(const zp_graph *graph, const zp_node *node) {
  if (graph->first_trained && !trains_something(graph)) return 1;
  return node->op != ZP_OP_ATTENTION && graph->tensors.data[node->in.data[1]].frozen ? 2 : 3;
}

/* The share of an expert product's rows that tokens can fill: a token has top_k of them. */
static double filled_share(const zp_graph *graph, const zp_node *node) {
  const zp_node *dispatch = node->op == ZP_OP_BATCHED_MATMUL ? dispatch_of(graph, node->in.data[0]) : NULL;
  if (!dispatch || node->in.len > 2) return 1; /* a row a choice: all are filled */
  double positions = (double)graph->tensors.data[dispatch->in.data[0]].shape.dim[1];
  return fmin(1, positions * (double)dispatch->attr.top_k / (double)(dispatch->attr.experts * dispatch->attr.slots));
}

/* Convention of the field (Narayanan et al. 2021, appendix): matrix products and attention scores only, and twice the
 * forward work for the backward pass. Of experts the active ones count, those of a token: what a capacity above 1 adds
 * is work of the hardware, not of the model. */
double zp_model_flop_per_sequence(const zp_model *model) {
  double all = 0;
  for (int s = 0; s < model->segments.len; s++) {
    const zp_segment *segment = &model->segments.data[s];
    double once = 0;
    for (int i = 0; i < segment->graph->nodes.len; i++) {
      const zp_node *node = &segment->graph->nodes.data[i];
      if (node->op == ZP_OP_MATMUL || node->op == ZP_OP_BATCHED_MATMUL || node->op == ZP_OP_ATTENTION)
        once += passes_of(segment->graph, node) * filled_share(segment->graph, node) *
                zp_node_flop(segment->graph, node, 1);
    }
    all += once * (double)segment->count;
  }
  return all;
}

const char *zp_param_instance_name(zp_arena *arena, const zp_param *param, int64_t iteration) {
  assert(iteration >= 0);
  const char *hole = strstr(param->name, "{}");
  if (!hole) return zp_strdup(arena, param->name);
  return zp_format(arena, "%.*s%lld%s", (int)(hole - param->name), param->name, (long long)iteration, hole + 2);
}
