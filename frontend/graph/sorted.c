/* SPDX-License-Identifier: Apache-2.0 */
/* Rows sorted by expert, of gates without capacity: a tensor says that it is such, and operations on it are given where
 * experts begin. A row's place follows from the choices of the whole micro-batch, so nothing but an operation of single
 * rows, a product of experts and `combine` may read it. */
#include <assert.h>
#include <math.h>
#include <zplan/buf.h>
#include "graph_internal.h"

static const zp_tensor *tensor_of(const zp_application *a, int i) { return &a->graph->tensors.data[a->in[i]]; }

static const zp_node *producer_of(const zp_graph *graph, int tensor) {
  int node = graph->tensors.data[tensor].producer;
  return node >= 0 ? &graph->nodes.data[node] : NULL;
}

static __attribute__((format(printf, 3, 4))) bool fail(const zp_application *a, const char *help, const char *format,
                                                       ...) {
  va_list args;
  va_start(args, format);
  const char *text = zp_vformat(a->graph->arena, format, args);
  va_end(args);
  zp_diag *diag = a->diags ? zp_report(a->diags, ZP_Z0208, a->span, "%s", text) : NULL;
  if (diag) zp_diag_help(diag, "%s", help);
  return false;
}

int zp_sorted_first(const zp_graph *graph, int tensor) {
  for (;;) {
    const zp_node *node = producer_of(graph, tensor);
    assert(node);
    if (node->op == ZP_OP_DISPATCH) return node->in.data[2];
    int i = 0;
    while (!graph->tensors.data[node->in.data[i]].sorted) i++;
    tensor = node->in.data[i];
  }
}

/* Where the experts of a gate begin, -1: it has a capacity, or the operand is not of a gate. One node a gate. */
static int first_of_gate(const zp_application *a, int slot) {
  const zp_node *gate = producer_of(a->graph, slot);
  if (!gate || gate->op != ZP_OP_TOP_K_GATE || !gate->attr.dropless || gate->out.data[1] != slot) return -1;
  for (int n = 0; n < a->graph->nodes.len; n++)
    if (a->graph->nodes.data[n].op == ZP_OP_EXPERT_ROWS && a->graph->nodes.data[n].in.data[0] == slot)
      return a->graph->nodes.data[n].out.data[0];
  const char *name = zp_format(a->graph->arena, "%s.first", gate->name);
  return zp_graph_apply(a->graph, a->diags, ZP_OP_EXPERT_ROWS, &slot, 1, (zp_op_attr){0}, name, a->span);
}

static bool combines_its_own(const zp_application *a) {
  const zp_node *gate = producer_of(a->graph, a->in[2]);
  bool dropless = gate && gate->op == ZP_OP_TOP_K_GATE && gate->attr.dropless;
  bool sorted = tensor_of(a, 0)->sorted;
  if (!dropless && !sorted) return true;
  if (dropless && sorted && producer_of(a->graph, zp_sorted_first(a->graph, a->in[0]))->in.data[0] == a->in[2])
    return true;
  return fail(a, "combine what `dispatch` made with these slots", "`%s` was not dispatched with `%s`",
              tensor_of(a, 0)->name, tensor_of(a, 2)->name);
}

static bool reads_single_rows(const zp_application *a) {
  if (a->op == ZP_OP_SPLIT) return true;
  if (a->op == ZP_OP_DROPOUT) return a->attr->rate == 0; /* its random numbers count elements in their order */
  return zp_op_is_row(a->op) && a->op != ZP_OP_ROPE;
}

/* Operands alongside sorted rows: sorted by the same gate, or one number a column. */
static bool fits(const zp_application *a, int i, int first) {
  const zp_tensor *t = tensor_of(a, i);
  if (t->sorted) return zp_sorted_first(a->graph, a->in[i]) == first;
  return t->role == ZP_ROLE_PARAM && t->shape.rank == 1;
}

static bool may_read(const zp_application *a, int sorted) {
  const char *name = tensor_of(a, sorted)->name;
  if (!reads_single_rows(a))
    return fail(
        a, "before `dispatch` and after `combine` every position has its place; so it has with a number for `capacity`",
        "`%s` of `%s`: its rows are sorted by expert (`capacity = dropless`), and known to no position",
        zp_op_name(a->op), name);
  int first = zp_sorted_first(a->graph, a->in[sorted]);
  for (int i = 0; i < a->n_in; i++)
    if (!fits(a, i, first))
      return fail(a, "both operands come of one `dispatch`, or one is a parameter with a number for every column",
                  "the rows of `%s` are sorted by expert (`capacity = dropless`), and `%s` has none in that order",
                  name, tensor_of(a, i)->name);
  return true;
}

/* An operand with sorted rows; -1. */
static int sorted_among(const zp_application *a) {
  for (int i = 0; i < a->n_in; i++)
    if (tensor_of(a, i)->sorted) return i;
  return -1;
}

bool zp_sorted_operands(const zp_application *a, int in[ZP_MAX_OPERANDS], int *n_in) {
  int sorted = sorted_among(a), first = -1;
  if (a->op == ZP_OP_DISPATCH && sorted < 0) {
    first = first_of_gate(a, a->in[1]);
  } else if (a->op == ZP_OP_COMBINE) {
    if (!combines_its_own(a)) return false;
    if (sorted == 0) first = zp_sorted_first(a->graph, a->in[0]);
  } else if (a->op == ZP_OP_BATCHED_MATMUL && sorted == 0) {
    first = zp_sorted_first(a->graph, a->in[0]);
  } else if (sorted >= 0) {
    return may_read(a, sorted);
  }
  if (first < 0) return true;
  assert(a->n_in < ZP_MAX_OPERANDS);
  for (int i = 0; i < a->n_in; i++) in[i] = a->in[i];
  in[a->n_in] = first;
  *n_in = a->n_in + 1;
  return true;
}

bool zp_is_sorted_result(const zp_rule *rule) {
  if (rule->op == ZP_OP_COMBINE) return false;
  if (rule->op == ZP_OP_DISPATCH) return rule->n_in > 2;
  for (int i = 0; i < rule->n_in; i++)
    if (rule->graph->tensors.data[rule->in[i]].sorted) return true;
  return false;
}

int64_t zp_graph_room(const zp_op_attr *attr) {
  int64_t experts = attr->experts / attr->parts, choices = attr->slots * attr->top_k,
          all = attr->parts * attr->slots * (attr->top_k < experts ? attr->top_k : experts);
  if (attr->room <= 0 || attr->room * (double)choices >= (double)all) return all;
  return (int64_t)ceil(attr->room * (double)choices * (1 - 1e-12)); /* the factor of a file is decimal */
}

zp_sorted_rows zp_graph_sorted_rows(const zp_graph *graph, const zp_node *product, int64_t microbatch) {
  assert(product->in.len > 2);
  const zp_tensor *rows = &graph->tensors.data[product->in.data[0]], *first = &graph->tensors.data[product->in.data[2]];
  const zp_node *maker = producer_of(graph, product->in.data[2]);
  if (!maker || maker->op != ZP_OP_SPREAD_COUNTS)
    return (zp_sorted_rows){NULL, zp_shape_rows(&rows->shape, microbatch), first->shape.dim[1]};
  const zp_op_attr *attr = &maker->attr;
  return (zp_sorted_rows){maker, microbatch * attr->slots * attr->top_k, attr->experts / attr->parts};
}
