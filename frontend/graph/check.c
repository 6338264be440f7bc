/* SPDX-License-Identifier: Apache-2.0 */
/* Structural invariants of graphs, checked after every pass in debug builds and by tests. */
#include <zplan/buf.h>
#include "graph_internal.h"

/* A view of some rows: all columns, an equal part of the elements. */
static bool is_row_part(const zp_tensor *view, const zp_tensor *base) {
  return view->row_part >= 0 && view->row_part < view->row_parts && view->column == 0 &&
         zp_shape_elements(&view->shape, 1) * view->row_parts == zp_shape_elements(&base->shape, 1);
}

static const char *check_view(const zp_graph *graph, int id) {
  const zp_tensor *t = &graph->tensors.data[id];
  if (t->base < 0) return NULL;
  if (t->base >= graph->tensors.len || graph->tensors.data[t->base].base >= 0)
    return zp_format(graph->arena, "view `%s` has no storage", t->name);
  const zp_tensor *base = &graph->tensors.data[t->base];
  if (t->row_parts > 0) {
    if (is_row_part(t, base)) return NULL;
    return zp_format(graph->arena, "view `%s` %s is no part %lld of %lld of `%s` %s", t->name,
                     zp_shape_text(graph->arena, &t->shape), (long long)t->row_part, (long long)t->row_parts,
                     base->name, zp_shape_text(graph->arena, &base->shape));
  }
  if (t->column < 0 || t->column + zp_shape_cols(&t->shape) > zp_shape_cols(&base->shape) ||
      zp_shape_rows(&t->shape, 1) != zp_shape_rows(&base->shape, 1))
    return zp_format(graph->arena, "view `%s` %s at column %lld does not lie in `%s` %s", t->name,
                     zp_shape_text(graph->arena, &t->shape), (long long)t->column, base->name,
                     zp_shape_text(graph->arena, &base->shape));
  return NULL;
}

static const char *check_extents(const zp_graph *graph, int id) {
  const zp_tensor *t = &graph->tensors.data[id];
  for (int i = 0; i < t->shape.rank; i++)
    if (t->shape.extent[i] && t->shape.extent[i]->value != t->shape.dim[i])
      return zp_format(graph->arena, "`%s` %s: dimension %d is %s = %lld in symbols", t->name,
                       zp_shape_text(graph->arena, &t->shape), i, zp_extent_text(graph->arena, t->shape.extent[i]),
                       (long long)t->shape.extent[i]->value);
  return NULL;
}

static bool same_storage(const zp_graph *graph, int a, int b) {
  const zp_tensor *t = &graph->tensors.data[a], *u = &graph->tensors.data[b];
  return a == b || t->base == b || u->base == a || (t->base >= 0 && t->base == u->base);
}

static const char *check_producer(const zp_graph *graph, int id) {
  const zp_tensor *t = &graph->tensors.data[id];
  if (t->role != ZP_ROLE_VALUE)
    return t->producer == -1 ? NULL : zp_format(graph->arena, "`%s` comes from outside but has a producer", t->name);
  if (t->producer < 0) return NULL; /* not used by this graph any more; a use is reported by check_node */
  if (t->producer >= graph->nodes.len) return zp_format(graph->arena, "producer of `%s` does not exist", t->name);
  const zp_node *node = &graph->nodes.data[t->producer];
  for (int i = 0; i < node->out.len; i++)
    if (same_storage(graph, node->out.data[i], id)) return NULL;
  return zp_format(graph->arena, "`%s` is not an output of its producer", t->name);
}

static const char *check_inputs(const zp_graph *graph, int n) {
  const zp_node *node = &graph->nodes.data[n];
  for (int i = 0; i < node->in.len; i++) {
    int id = node->in.data[i];
    if (id < 0 || id >= graph->tensors.len)
      return zp_format(graph->arena, "node %d (%s): input %d does not exist", n, zp_op_name(node->op), i);
    const zp_tensor *t = &graph->tensors.data[id];
    if (t->role == ZP_ROLE_VALUE && (t->producer < 0 || t->producer >= n))
      return zp_format(graph->arena, "node %d (%s) reads `%s` before it is made", n, zp_op_name(node->op), t->name);
  }
  return NULL;
}

/* A product with an epilogue: the product by its rule, the outputs have its shape. */
static const char *check_folded(const zp_graph *graph, int n) {
  const zp_node *node = &graph->nodes.data[n];
  if (node->in.len != node->fused->n_in + 1 || node->out.len != node->fused->out_value.len)
    return zp_format(graph->arena, "node %d: the epilogue does not match its product", n);
  zp_rule rule = {.graph = graph, .op = node->op, .in = node->in.data, .n_in = 2, .attr = node->attr};
  if (!zp_rule_apply(&rule)) return zp_format(graph->arena, "node %d: %s", n, rule.error);
  for (int i = 0; i < node->out.len; i++)
    if (!zp_shape_equal(&graph->tensors.data[node->out.data[i]].shape, &rule.shape[0]))
      return zp_format(graph->arena, "node %d: the epilogue changes the product's shape", n);
  return NULL;
}

/* Shapes of the outputs, for the ops with a shape rule. */
static const char *check_shapes(const zp_graph *graph, int n) {
  const zp_node *node = &graph->nodes.data[n];
  if (zp_op_arity(node->op) < 0) return NULL;
  if (node->op == ZP_OP_MATMUL && node->fused) return check_folded(graph, n);
  if (!zp_op_takes(node->op, node->in.len))
    return zp_format(graph->arena, "node %d (%s) has %d inputs", n, zp_op_name(node->op), node->in.len);
  zp_rule rule = {.graph = graph, .op = node->op, .in = node->in.data, .n_in = node->in.len, .attr = node->attr};
  if (!zp_rule_apply(&rule)) return zp_format(graph->arena, "node %d: %s", n, rule.error);
  if (rule.n_out != node->out.len)
    return zp_format(graph->arena, "node %d (%s) has %d outputs, not %d", n, zp_op_name(node->op), node->out.len,
                     rule.n_out);
  for (int i = 0; i < node->out.len; i++) {
    const zp_tensor *t = &graph->tensors.data[node->out.data[i]];
    int which = node->op == ZP_OP_SPLIT ? 0 : i;
    if (!zp_shape_equal(&t->shape, &rule.shape[which]) || t->element != rule.element[which])
      return zp_format(graph->arena, "node %d (%s): `%s` is %s, not %s", n, zp_op_name(node->op), t->name,
                       zp_shape_text(graph->arena, &t->shape), zp_shape_text(graph->arena, &rule.shape[which]));
  }
  return NULL;
}

static const char *check_program(const zp_graph *graph, int n, const zp_fused *fused) {
  for (int i = 0; i < fused->ops.len; i++)
    for (int k = 0; k < fused->ops.data[i].n_arg; k++)
      if (fused->ops.data[i].arg[k] >= fused->n_in + i)
        return zp_format(graph->arena, "node %d: op %d of the group reads a later value", n, i);
  for (int i = 0; i < fused->out_value.len; i++)
    if (fused->out_value.data[i] < 0 || fused->out_value.data[i] >= fused->n_in + fused->ops.len)
      return zp_format(graph->arena, "node %d: output %d of the group does not exist", n, i);
  return NULL;
}

static const char *check_fused(const zp_graph *graph, int n) {
  const zp_node *node = &graph->nodes.data[n];
  if (node->op == ZP_OP_MATMUL && node->fused) return check_program(graph, n, node->fused);
  if (node->op == ZP_OP_FUSED) {
    if (!node->fused || node->fused->n_in != node->in.len || node->fused->out_value.len != node->out.len)
      return zp_format(graph->arena, "node %d: the group does not match its node", n);
    return check_program(graph, n, node->fused);
  }
  if (node->op != ZP_OP_FUSED_GRAD) return NULL;
  if (!node->fused || node->grad_in.len != node->in.len || node->grad_out.len != node->out.len + node->param_grad.len)
    return zp_format(graph->arena, "node %d: the gradient arguments do not match its node", n);
  return NULL;
}

static const char *check_list(const zp_graph *graph, const zp_ints *list, const char *what) {
  for (int i = 0; i < list->len; i++) {
    int id = list->data[i];
    if (id < 0 || id >= graph->tensors.len ||
        (graph->tensors.data[id].role == ZP_ROLE_VALUE && graph->tensors.data[id].producer < 0))
      return zp_format(graph->arena, "%s %d is made by no node", what, i);
  }
  return NULL;
}

const char *zp_graph_check(zp_arena *arena, const zp_graph *graph) {
  const char *wrong = NULL;
  for (int i = 0; i < graph->tensors.len && !wrong; i++) {
    wrong = check_view(graph, i);
    if (!wrong) wrong = check_producer(graph, i);
    if (!wrong) wrong = check_extents(graph, i);
  }
  for (int n = 0; n < graph->nodes.len && !wrong; n++) {
    wrong = check_inputs(graph, n);
    if (!wrong) wrong = check_shapes(graph, n);
    if (!wrong) wrong = check_fused(graph, n);
  }
  for (int i = 0; i < graph->params.len && !wrong; i++)
    if (graph->tensors.data[graph->params.data[i].tensor].role != ZP_ROLE_PARAM)
      wrong = zp_format(graph->arena, "parameter use %d is no parameter", i);
  if (!wrong) wrong = check_list(graph, &graph->carry_out, "carry_out");
  if (!wrong) wrong = check_list(graph, &graph->grad_out, "grad_out");
  return wrong ? zp_strdup(arena, wrong) : NULL;
}
