/* SPDX-License-Identifier: Apache-2.0 */
/* The readable dump of a graph: one line a node. */
#include <zplan/buf.h>
#include <zplan/sparse.h>
#include "graph_internal.h"

static const char *tensor_text(const zp_graph *graph, int id) {
  const zp_tensor *t = &graph->tensors.data[id];
  const char *mark = t->role == ZP_ROLE_PARAM      ? "param "
                     : t->role == ZP_ROLE_INPUT    ? "input "
                     : t->role == ZP_ROLE_CARRY_IN ? "carry "
                     : t->role == ZP_ROLE_GRAD_IN  ? "grad "
                                                   : "";
  return zp_format(graph->arena, "%s%s", mark, t->name);
}

static void put_list(zp_buf *text, const zp_graph *graph, const zp_ints *list) {
  for (int i = 0; i < list->len; i++) zp_buf_printf(text, "%s%s", i ? ", " : "", tensor_text(graph, list->data[i]));
}

static void put_outputs(zp_buf *text, const zp_graph *graph, const zp_node *node) {
  for (int i = 0; i < node->out.len; i++) {
    const zp_tensor *t = &graph->tensors.data[node->out.data[i]];
    zp_buf_printf(text, "%s%s %s", i ? ", " : "", t->name, zp_shape_text(graph->arena, &t->shape));
    if (t->base >= 0 && t->row_parts == 0)
      zp_buf_printf(text, " in %s at %lld", graph->tensors.data[t->base].name, (long long)t->column);
    if (t->row_parts > 0)
      zp_buf_printf(text, " in %s, part %lld of %lld", graph->tensors.data[t->base].name, (long long)t->row_part,
                    (long long)t->row_parts);
    if (t->split_dim >= 0) zp_buf_printf(text, " of %lld on dim %d", (long long)t->full_dim, t->split_dim);
    if (t->partial) zp_buf_puts(text, " partial");
  }
  for (int i = 0; i < node->param_grad.len; i++) {
    int tensor = graph->params.data[node->param_grad.data[i]].tensor;
    zp_buf_printf(text, "%sgrad of %s", i || node->out.len ? ", " : "", graph->tensors.data[tensor].name);
  }
}

static void put_fused(zp_buf *text, const zp_fused *fused) {
  zp_buf_puts(text, " {");
  for (int i = 0; i < fused->ops.len; i++) {
    const zp_fused_op *op = &fused->ops.data[i];
    zp_buf_printf(text, " v%d = %s", fused->n_in + i, zp_op_name(op->op));
    for (int k = 0; k < op->n_arg; k++) zp_buf_printf(text, "%s v%d", k ? "," : "", op->arg[k]);
    zp_buf_puts(text, ";");
  }
  zp_buf_puts(text, " }");
}

static void put_grad_args(zp_buf *text, const zp_node *node) {
  static const char *const use[] = {"saved", "grad", "addend", "rows", "columns"};
  zp_buf_puts(text, " [");
  for (int i = 0; i < node->grad_in.len; i++)
    zp_buf_printf(text, "%s%s v%d", i ? ", " : "", use[node->grad_in.data[i].use], node->grad_in.data[i].value);
  zp_buf_puts(text, " ->");
  for (int i = 0; i < node->grad_out.len; i++)
    zp_buf_printf(text, "%s %s v%d", i ? "," : "", use[node->grad_out.data[i].use], node->grad_out.data[i].value);
  zp_buf_puts(text, "]");
}

static void put_attributes(zp_buf *text, zp_arena *arena, const zp_node *node) {
  const zp_op_attr *attr = &node->attr;
  zp_attr_group group = zp_op_get_attributes(node->op);
  if (group == ZP_ATTRS_ATTENTION) {
    if (attr->sparse) zp_buf_printf(text, " %s", zp_sparse_text(arena, attr->sparse));
    if (attr->window) zp_buf_printf(text, " window %lld", (long long)attr->window);
    if (attr->documents) zp_buf_puts(text, " documents");
    if (attr->softcap > 0) zp_buf_printf(text, " softcap %g", attr->softcap);
    if (attr->alibi_heads) zp_buf_printf(text, " alibi %lld", (long long)attr->alibi_heads);
    if (attr->rate > 0) zp_buf_printf(text, " dropout %g stream %lld", attr->rate, (long long)attr->stream);
  }
  if (group == ZP_ATTRS_PRODUCT && attr->float8) zp_buf_puts(text, " fp8");
  if (group == ZP_ATTRS_EXPERTS) {
    if (attr->sigmoid) zp_buf_puts(text, " sigmoid");
    if (attr->groups) zp_buf_printf(text, " groups %lld of %lld", (long long)attr->top_groups, (long long)attr->groups);
  }
}

const char *zp_graph_text(zp_arena *arena, const zp_graph *graph) {
  zp_buf text = zp_buf_new(arena);
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node *node = &graph->nodes.data[i];
    zp_buf_printf(&text, "%3d %-16s ", i, zp_op_name(node->op));
    put_outputs(&text, graph, node);
    zp_buf_puts(&text, " <- ");
    put_list(&text, graph, &node->in);
    put_attributes(&text, arena, node);
    if (node->fused) put_fused(&text, node->fused);
    if (node->grad_out.len) put_grad_args(&text, node);
    zp_buf_puts(&text, "\n");
  }
  if (graph->carry_out.len) {
    zp_buf_puts(&text, "    carry out: ");
    put_list(&text, graph, &graph->carry_out);
    zp_buf_puts(&text, "\n");
  }
  for (int i = 0; i < graph->losses.len; i++) {
    int loss = graph->losses.data[i];
    zp_buf_printf(&text, "    loss: %s", tensor_text(graph, loss));
    double weight = graph->nodes.data[graph->tensors.data[loss].producer].attr.weight;
    if (graph->losses.len > 1) zp_buf_printf(&text, " times %g", weight);
    zp_buf_puts(&text, "\n");
  }
  if (graph->grad_out.len) {
    zp_buf_puts(&text, "    gradients of carry in: ");
    put_list(&text, graph, &graph->grad_out);
    zp_buf_puts(&text, "\n");
  }
  return text.data;
}
