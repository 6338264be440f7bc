/* SPDX-License-Identifier: Apache-2.0 */
/* Selective recomputation: which kept values backward rebuilds instead, and the nodes that do it.
 *
 * Candidates are outputs of groups in repeated segments, also of those that a product computes as its epilogue: norms,
 * activations, gates. A value is rebuilt when
 *   it can be: the part of its group that computes it reads parameters, inputs, values that are kept, and values
 *     rebuilt before (the other outputs of its group count as kept unless they are rebuilt themselves), and
 *   it pays: the memory it gives back is at least SELECTIVE_BYTES_PER_FLOP bytes for every FLOP of that part.
 * Matrix products and attention never qualify: attention keeps its output and log-sum-exp, as in flash attention, so
 * what arXiv 2205.05198 (section 5) recomputes is not stored in the first place. */
#include "lower_internal.h"
#include <zplan/constants.h>
#include <zplan/profile.h>

/* Is the tensor there when backward begins, or rebuilt by then? */
static bool available(const zp_lowering *l, int tensor) {
  int root = zp_lower_root(l, tensor);
  zp_role role = l->graph->tensors.data[root].role;
  if (role == ZP_ROLE_PARAM || role == ZP_ROLE_INPUT || role == ZP_ROLE_CARRY_IN) return true;
  return role == ZP_ROLE_VALUE && (l->saved[root] || l->rebuilt[root]);
}

/* A part of a group under construction: values of the group mapped to those of the new one. */
typedef struct part {
  const zp_lowering *l;
  const zp_node *node;
  zp_node *out;
  int *value_of; /* per value of the group: its number in the part, -1 */
  bool *wanted;  /* per value: the part computes or reads it */
} part;

static int output_of(const zp_node *node, int value) {
  for (int i = 0; i < node->out.len; i++)
    if (node->fused->out_value.data[i] == value) return node->out.data[i];
  return -1;
}

/* The tensor that holds the value, when the part may read it instead of computing it; -1. */
static int source_of(const part *p, int value, int target) {
  int tensor = value < p->node->fused->n_in ? p->node->in.data[value] : output_of(p->node, value);
  return tensor >= 0 && tensor != target && available(p->l, tensor) ? tensor : -1;
}

/* Marks what the target needs, from its op down to available values; false when something is gone. */
static bool find_wanted(part *p, int target, int target_value) {
  const zp_fused *fused = p->node->fused;
  p->wanted[target_value] = true;
  for (int v = fused->n_in + fused->ops.len - 1; v >= 0; v--) {
    if (!p->wanted[v] || (v != target_value && source_of(p, v, target) >= 0)) continue;
    if (v < fused->n_in) return false;
    const zp_fused_op *op = &fused->ops.data[v - fused->n_in];
    for (int i = 0; i < op->n_arg; i++) p->wanted[op->arg[i]] = true;
  }
  return true;
}

static void add_input(part *p, zp_fused *to, int value, int tensor) {
  const zp_fused *from = p->node->fused;
  bool input = value < from->n_in;
  to->operand[to->n_in] = input ? from->operand[value] : ZP_OPERAND_ROWS;
  to->in_cols[to->n_in] = input ? from->in_cols[value] : from->ops.data[value - from->n_in].cols;
  zp_push(p->l->arena, &p->out->in, tensor);
  p->value_of[value] = to->n_in++;
}

static int count_wanted(const part *p, int n) {
  int wanted = 0;
  for (int v = p->node->fused->n_in; v < n; v++) wanted += p->wanted[v] && p->value_of[v] < 0;
  return wanted;
}

/* The group that computes the target alone. Rows must lead: a group's first input tells its number of rows. */
static void build_part(part *p, int target, int target_value) {
  zp_arena *arena = p->l->arena;
  const zp_fused *from = p->node->fused;
  int n = from->n_in + from->ops.len;
  zp_fused *to = ZP_NEW(arena, zp_fused);
  *to = (zp_fused){.rows_per_sample = from->rows_per_sample,
                   .row_parts = from->row_parts,
                   .split = from->split,
                   .split_rows = from->split_rows};
  to->operand = ZP_NEW_ARRAY(arena, zp_operand, n);
  to->in_cols = ZP_NEW_ARRAY(arena, int64_t, n);
  for (int pass = 0; pass < 2; pass++)
    for (int v = 0; v < n; v++) {
      int tensor = p->wanted[v] && v != target_value ? source_of(p, v, target) : -1;
      bool rows = v >= from->n_in || from->operand[v] == ZP_OPERAND_ROWS;
      if (tensor >= 0 && rows == (pass == 0)) add_input(p, to, v, tensor);
    }
  zp_reserve(arena, &to->ops, count_wanted(p, n));
  for (int v = from->n_in; v < n; v++) {
    if (!p->wanted[v] || p->value_of[v] >= 0) continue;
    zp_fused_op op = from->ops.data[v - from->n_in];
    for (int i = 0; i < op.n_arg; i++) op.arg[i] = p->value_of[op.arg[i]];
    p->value_of[v] = to->n_in + to->ops.len;
    zp_push(arena, &to->ops, op);
  }
  zp_push(arena, &to->out_value, p->value_of[target_value]);
  zp_push(arena, &p->out->out, target);
  p->out->fused = to;
}

/* The node that rebuilds output i of a FUSED node, or NULL. */
static zp_node *rebuild(const zp_lowering *l, const zp_node *node, int i) {
  int n = node->fused->n_in + node->fused->ops.len, target = node->out.data[i], value = node->fused->out_value.data[i];
  part p = {l, node, NULL, ZP_NEW_ARRAY(l->scratch, int, n), ZP_NEW_ARRAY(l->scratch, bool, n)};
  for (int v = 0; v < n; v++) p.value_of[v] = -1;
  if (value < node->fused->n_in || !find_wanted(&p, target, value)) return NULL;
  zp_arena_mark mark = zp_arena_get_mark(l->arena);
  zp_node *out = p.out = ZP_NEW(l->arena, zp_node);
  *out = (zp_node){.op = ZP_OP_FUSED, .span = node->span, .name = node->name};
  build_part(&p, target, value);
  double bytes = (double)zp_lower_kept_bytes(l, target);
  double flop = zp_node_flop(l->graph, out, l->lowered->microbatch);
  if (bytes >= zp_cost_constant(ZP_COST_SELECTIVE_BYTES_PER_FLOP) * flop) return out;
  zp_arena_rewind(l->arena, mark);
  return NULL;
}

/* Appends the parts of one group, chosen last output first, so that each stands after those whose values it reads. A
 * part computes one value of the group out of values with lower numbers, so they go by that number: outputs are listed
 * in an order of their own. */
static void append_in_order(zp_lowering *l, const zp_node *node, zp_node **again) {
  for (int value = node->fused->n_in; value < node->fused->n_in + node->fused->ops.len; value++)
    for (int i = 0; i < node->out.len; i++)
      if (again[i] && node->fused->out_value.data[i] == value) zp_push(l->scratch, &l->rebuilds, again[i]);
}

/* The group that a node computes, as a node of its own; NULL: none. A product that has one is never there itself. */
static const zp_node *group_of(const zp_lowering *l, const zp_node *node) {
  if (node->op == ZP_OP_FUSED) return node;
  if (node->op != ZP_OP_MATMUL || !node->fused) return NULL;
  zp_node *group = ZP_NEW(l->arena, zp_node);
  *group = zp_epilogue_group(l->arena, node);
  return group;
}

static bool has_experts(const zp_graph *graph) {
  for (int n = 0; n < graph->n_forward; n++)
    if (zp_op_get_class(graph->nodes.data[n].op) == ZP_CLASS_GROUPED) return true;
  return false;
}

/* Is output i what the modules `layernorm` and `moe_act` of Megatron-Core's --recompute-modules make: a norm, or an
 * activation of experts, whose rows have slots? */
static bool is_of_module(const zp_graph *graph, const zp_node *node, int i) {
  const zp_fused *fused = node->fused;
  int value = node->fused->out_value.data[i];
  if (value < fused->n_in) return false;
  zp_op op = fused->ops.data[value - fused->n_in].op;
  if (op == ZP_OP_RMS_NORM || op == ZP_OP_LAYER_NORM) return true;
  if (graph->tensors.data[node->out.data[i]].shape.rank != 4) return false;
  for (int k = 0; k < fused->ops.len; k++)
    if (fused->ops.data[k].op == ZP_OP_SILU) return true;
  return false;
}

/* Later outputs of a group are chosen first: they are computed from the earlier ones, which then stay, or are rebuilt
 * before them. Groups come in the order of forward, and read nothing of later ones. */
void zp_lower_select(zp_lowering *l) {
  l->rebuilt = ZP_NEW_ARRAY(l->scratch, bool, l->graph->tensors.len + 1);
  if (l->lowered->recompute != ZP_RECOMPUTE_SELECTIVE || !l->out->segment->is_repeat) return;
  const zp_software *software = l->lowered->spec->cluster.software;
  bool modules = software && software->rebuilds_modules && has_experts(l->graph);
  if (software && !modules) return; /* mean other steps by the word: planner/cost/software prices them */
  for (int n = 0; n < l->graph->n_forward; n++) {
    const zp_node *node = group_of(l, &l->graph->nodes.data[n]);
    if (!node) continue;
    zp_node **again = ZP_NEW_ARRAY(l->scratch, zp_node *, node->out.len + 1);
    for (int i = node->out.len - 1; i >= 0; i--) {
      int tensor = node->out.data[i];
      if (modules && !is_of_module(l->graph, node, i)) continue;
      if (!l->saved[tensor]) continue; /* views and aliases are not outputs of groups that own storage */
      again[i] = rebuild(l, node, i);
      if (!again[i]) continue;
      l->saved[tensor] = false;
      l->operand[tensor] = -1;
      l->rebuilt[tensor] = true;
      for (int k = 0; k < again[i]->in.len; k++) l->operand[zp_lower_root(l, again[i]->in.data[k])] = -1;
    }
    append_in_order(l, node, again);
  }
}
