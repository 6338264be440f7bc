/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: tensors and nodes, added one by one or through zp_graph_apply with its shape rules (ops/). */
#include <assert.h>
#include "ops.h"

zp_tensor zp_tensor_make(const char *name, zp_element element, zp_shape shape, zp_span span) {
  return (zp_tensor){.name = name,
                     .element = element,
                     .shape = shape,
                     .role = ZP_ROLE_VALUE,
                     .index = -1,
                     .producer = -1,
                     .span = span,
                     .base = -1,
                     .split_dim = -1};
}

int zp_graph_add_tensor(zp_graph *graph, zp_tensor tensor) {
  assert(tensor.shape.rank >= 0 && tensor.shape.rank <= ZP_MAX_RANK);
  assert(tensor.base < graph->tensors.len);
  zp_push(graph->arena, &graph->tensors, tensor);
  return graph->tensors.len - 1;
}

int zp_graph_add_node(zp_graph *graph, zp_node node) {
  assert(node.op < ZP_OP_COUNT);
  int id = graph->nodes.len;
  zp_push(graph->arena, &graph->nodes, node);
  for (int i = 0; i < node.out.len; i++) graph->tensors.data[node.out.data[i]].producer = id;
  return id;
}

void zp_graph_add_loss(zp_graph *graph, int tensor, double weight) {
  assert(tensor >= 0 && weight > 0);
  zp_node *node = &graph->nodes.data[graph->tensors.data[tensor].producer];
  assert(node->op == ZP_OP_CROSS_ENTROPY || node->op == ZP_OP_SQUARED_ERROR || node->op == ZP_OP_CE_LOSS);
  node->attr.weight = weight;
  node->attr.loss = graph->losses.len;
  zp_push(graph->arena, &graph->losses, tensor);
}

int zp_graph_param(zp_graph *graph, const zp_model *model, int param) {
  assert(param >= 0 && param < model->params.len);
  for (int i = 0; i < graph->params.len; i++)
    if (graph->params.data[i].param == param) return graph->params.data[i].tensor;
  const zp_param *p = &model->params.data[param];
  zp_tensor tensor = zp_tensor_make(p->name, ZP_ELEM_FLOAT, p->shape, p->span);
  tensor.role = ZP_ROLE_PARAM;
  tensor.index = param;
  zp_param_use use = {param, zp_graph_add_tensor(graph, tensor)};
  zp_push(graph->arena, &graph->params, use);
  return use.tensor;
}

int zp_graph_input(zp_graph *graph, const zp_model *model, int input) {
  assert(input >= 0 && input < model->inputs.len);
  for (int i = 0; i < graph->tensors.len; i++)
    if (graph->tensors.data[i].role == ZP_ROLE_INPUT && graph->tensors.data[i].index == input) return i;
  const zp_input *in = &model->inputs.data[input];
  zp_tensor tensor = zp_tensor_make(in->name, in->element, in->shape, in->span);
  tensor.role = ZP_ROLE_INPUT;
  tensor.index = input;
  return zp_graph_add_tensor(graph, tensor);
}

/* ---- zp_graph_apply ---- */

/* Is tensor a the broadcast one of the two? */
static bool first_is_small(const zp_graph *graph, int a, int b) {
  const zp_shape *sa = &graph->tensors.data[a].shape, *sb = &graph->tensors.data[b].shape;
  zp_operand kind;
  return !zp_shape_equal(sa, sb) && zp_operand_kind(sb, sa, &kind);
}

/* Views know their root and offset, so that a split of a split is still one step away from its storage. */
static void make_view(const zp_graph *graph, zp_tensor *view, int of, int part) {
  const zp_tensor *whole = &graph->tensors.data[of];
  view->base = whole->base >= 0 ? whole->base : of;
  view->column = (whole->base >= 0 ? whole->column : 0) + part * zp_shape_cols(&view->shape);
}

static const char *output_name(zp_graph *graph, const zp_rule *rule, const char *name, int i) {
  if (rule->op == ZP_OP_SPLIT) return zp_format(graph->arena, "%s.%d", name, i);
  if (i == 1) return zp_format(graph->arena, "%s.%s", name, zp_op_get_row(rule->op)->second);
  return zp_strdup(graph->arena, name);
}

static int add_application(zp_graph *graph, const zp_rule *rule, const char *name) {
  zp_node node = {.op = rule->op, .attr = rule->attr, .span = rule->span, .name = zp_strdup(graph->arena, name)};
  for (int i = 0; i < rule->n_in; i++) zp_push(graph->arena, &node.in, rule->in[i]);
  for (int i = 0; i < rule->n_out; i++) {
    int which = rule->op == ZP_OP_SPLIT ? 0 : i;
    zp_tensor tensor =
        zp_tensor_make(output_name(graph, rule, name, i), rule->element[which], rule->shape[which], rule->span);
    if (rule->op == ZP_OP_SPLIT) make_view(graph, &tensor, rule->in[0], i);
    tensor.sorted = zp_is_sorted_result(rule);
    int id = zp_graph_add_tensor(graph, tensor);
    zp_push(graph->arena, &node.out, id);
  }
  zp_graph_add_node(graph, node);
  return node.out.data[0];
}

int zp_graph_apply(zp_graph *graph, zp_diags *diags, zp_op op, const int *in, int n_in, zp_op_attr attr,
                   const char *name, zp_span span) {
  assert(zp_op_takes(op, n_in) && n_in <= ZP_MAX_OPERANDS);
  int sorted[ZP_MAX_OPERANDS];
  const zp_application of = {graph, diags, op, in, n_in, &attr, name, span};
  if (!zp_sorted_operands(&of, sorted, &n_in)) return -1;
  if (n_in > of.n_in) in = sorted;
  int swapped[2];
  if (zp_op_has(op, ZP_FLAG_INFIX) && n_in == 2 && op != ZP_OP_DIV && first_is_small(graph, in[0], in[1])) {
    int big = in[1];
    if (op == ZP_OP_SUB) { /* a - x = -x + a */
      big = zp_graph_apply(graph, diags, ZP_OP_MUL_CONST, &big, 1, (zp_op_attr){.value = -1}, name, span);
      op = ZP_OP_ADD;
      if (big < 0) return -1;
    }
    swapped[0] = big, swapped[1] = in[0];
    in = swapped;
  }
  zp_rule rule = {.graph = graph, .diags = diags, .op = op, .in = in, .n_in = n_in, .attr = attr, .span = span};
  if (!zp_rule_apply(&rule)) return -1;
  if (op == ZP_OP_DROPOUT && attr.rate == 0) return in[0]; /* keeps everything: no kernel, no random numbers */
  return add_application(graph, &rule, name);
}

void zp_fused_set_rows(zp_fused *fused, const zp_tensor *rows, int64_t row_parts) {
  fused->row_parts = row_parts;
  fused->rows_per_sample = zp_shape_rows_per_sample(&rows->shape) * row_parts;
  fused->split = rows->split_dim >= 0 && rows->split_dim == rows->shape.rank - 1;
  fused->split_rows = rows->split_dim == 1 && !fused->split;
}

/* ---- copies for passes ---- */

void zp_ints_copy(zp_arena *arena, zp_ints *to, const zp_ints *from) {
  *to = (zp_ints){0};
  zp_reserve(arena, to, from->len);
  for (int i = 0; i < from->len; i++) to->data[i] = from->data[i];
  to->len = from->len;
}

bool zp_ints_has(const zp_ints *list, int item) {
  for (int i = 0; i < list->len; i++)
    if (list->data[i] == item) return true;
  return false;
}

zp_graph *zp_graph_copy_tensors(const zp_graph *graph) {
  zp_arena *arena = graph->arena;
  zp_graph *copy = ZP_NEW(arena, zp_graph);
  copy->arena = arena;
  zp_ints_copy(arena, &copy->losses, &graph->losses);
  copy->first_trained = graph->first_trained;
  zp_reserve(arena, &copy->tensors, graph->tensors.len);
  zp_reserve(arena, &copy->params, graph->params.len);
  for (int i = 0; i < graph->tensors.len; i++) {
    zp_push(arena, &copy->tensors, graph->tensors.data[i]);
    copy->tensors.data[i].producer = -1;
  }
  for (int i = 0; i < graph->params.len; i++) zp_push(arena, &copy->params, graph->params.data[i]);
  zp_ints_copy(arena, &copy->carry_in, &graph->carry_in);
  zp_ints_copy(arena, &copy->carry_out, &graph->carry_out);
  zp_ints_copy(arena, &copy->grad_in, &graph->grad_in);
  zp_ints_copy(arena, &copy->grad_out, &graph->grad_out);
  return copy;
}

bool zp_graph_is_forward(const zp_graph *graph) {
  return graph->grad_in.len == 0 && graph->grad_out.len == 0 &&
         (graph->n_forward == 0 || graph->n_forward == graph->nodes.len);
}

zp_graph *zp_graph_copy(const zp_graph *graph) {
  zp_graph *copy = zp_graph_copy_tensors(graph);
  zp_reserve(graph->arena, &copy->nodes, graph->nodes.len);
  for (int i = 0; i < graph->nodes.len; i++) zp_graph_add_node(copy, graph->nodes.data[i]);
  copy->n_forward = graph->n_forward;
  return copy;
}

int64_t zp_carried_elements(const zp_graph *graph, const zp_ints *carry, int n, int64_t microbatch) {
  assert(n >= 0 && n <= carry->len);
  int64_t elements = 0;
  for (int i = 0; i < n; i++) elements += zp_shape_elements(&graph->tensors.data[carry->data[i]].shape, microbatch);
  return elements;
}
