/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of local graphs, over the tensor axis, and over expert and context groups. */
#include "ops.h"

/* Between [B, S, n] and the rank's share of the positions [B, S / parts, n]. */
static void rule_sequence(zp_rule *rule) {
  int64_t parts = rule->attr.parts;
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 3) || !zp_want_positive(rule, "parts", (double)parts))
    return;
  zp_shape shape = *zp_rule_shape(rule, 0);
  if (rule->op == ZP_OP_ALL_GATHER_SEQ) {
    zp_rule_resize(rule, &shape, 1, shape.dim[1] * parts);
  } else if (shape.dim[1] % parts == 0) {
    zp_rule_resize(rule, &shape, 1, shape.dim[1] / parts);
  } else {
    zp_rule_fail(rule, ZP_Z0205, "%lld ranks do not divide the %lld positions of `%s` %s", (long long)parts,
                 (long long)shape.dim[1], zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0));
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Experts, choices and positions of the gate, as passes have them in the attributes. */
static bool want_routing(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!zp_want_positive(rule, "parts", (double)attr->parts) || !zp_want_positive(rule, "k", (double)attr->top_k) ||
      !zp_want_positive(rule, "slots", (double)attr->slots))
    return false;
  if (attr->experts >= attr->parts && attr->experts % attr->parts == 0) return true;
  zp_rule_fail(rule, ZP_Z0205, "%lld ranks do not divide the %lld experts of `%s`", (long long)attr->parts,
               (long long)attr->experts, zp_rule_operand(rule, 0)->name);
  return false;
}

static int64_t count_columns(const zp_op_attr *attr) { return attr->experts / attr->parts + 1 + 2 * attr->experts; }

static void rule_counts(zp_rule *rule) {
  if (!zp_want_element(rule, 0, ZP_ELEM_I32) || !zp_want_rank(rule, 0, 2) || !want_routing(rule)) return;
  const zp_shape *first = zp_rule_shape(rule, 0);
  if (first->dim[1] != rule->attr.experts) {
    zp_rule_fail(rule, ZP_Z0204, "`%s` %s does not count %lld experts", zp_rule_operand(rule, 0)->name,
                 zp_rule_text(rule, 0), (long long)rule->attr.experts);
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_I32, (zp_shape){.rank = 2, .dim = {first->dim[0], count_columns(&rule->attr)}});
}

/* Between a row for every choice and those of the rank's experts. */
static void rule_rows(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  const zp_shape *counts = zp_rule_shape(rule, 1);
  if (!zp_want_element(rule, 1, ZP_ELEM_I32) || !want_routing(rule)) return;
  bool spread = rule->op == ZP_OP_SPREAD_SLOTS;
  int64_t from[] = {spread ? attr->slots : zp_graph_room(attr), spread ? attr->top_k : 1},
          to[] = {spread ? zp_graph_room(attr) : attr->slots, spread ? 1 : attr->top_k};
  zp_shape shape = *zp_rule_shape(rule, 0);
  if (counts->rank != 2 || counts->dim[1] != count_columns(attr) || shape.dim[1] != from[0] ||
      shape.dim[2] != from[1]) {
    zp_rule_fail(rule, ZP_Z0204, "`%s` %s are not the rows that `%s` %s counts", zp_rule_operand(rule, 0)->name,
                 zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name, zp_rule_text(rule, 1));
    return;
  }
  for (int i = 0; i < 2; i++) zp_rule_resize(rule, &shape, i + 1, to[i]);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Between [B, experts, slots, d] and the rank's experts with the slots of all members' samples. */
static void rule_slots(zp_rule *rule) {
  int64_t parts = rule->attr.parts;
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 4) || !zp_want_positive(rule, "parts", (double)parts))
    return;
  if (rule->n_in > 1) {
    rule_rows(rule);
    return;
  }
  zp_shape shape = *zp_rule_shape(rule, 0);
  bool spread = rule->op == ZP_OP_SPREAD_SLOTS;
  int cut = spread ? 1 : 2, joined = spread ? 2 : 1;
  if (shape.dim[cut] % parts) {
    zp_rule_fail(rule, ZP_Z0205, "%lld ranks do not divide the %lld %s of `%s` %s", (long long)parts,
                 (long long)shape.dim[cut], spread ? "experts" : "slots", zp_rule_operand(rule, 0)->name,
                 zp_rule_text(rule, 0));
    return;
  }
  zp_rule_resize(rule, &shape, cut, shape.dim[cut] / parts);
  zp_rule_resize(rule, &shape, joined, shape.dim[joined] * parts);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Between all heads of the rank's positions [B, S / parts, heads * w] and some heads of all. */
static void rule_heads(zp_rule *rule) {
  int64_t parts = rule->attr.parts, heads = rule->attr.heads, there;
  bool spread = rule->op == ZP_OP_SPREAD_HEADS;
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 3) || !zp_want_positive(rule, "parts", (double)parts) ||
      !zp_want_positive(rule, "heads", (double)heads))
    return;
  zp_shape shape = *zp_rule_shape(rule, 0);
  there = heads > parts ? heads / parts : 1;
  if ((heads % parts && parts % heads) || shape.dim[2] % (spread ? heads : there) ||
      (!spread && shape.dim[1] % parts)) {
    zp_rule_fail(rule, ZP_Z0205, "%lld ranks do not exchange %lld heads of `%s` %s", (long long)parts, (long long)heads,
                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0));
    return;
  }
  zp_rule_resize(rule, &shape, 1, spread ? shape.dim[1] * parts : shape.dim[1] / parts);
  zp_rule_resize(rule, &shape, 2, spread ? shape.dim[2] / heads * there : shape.dim[2] / there * heads);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* partial -> replicated; backward every rank already holds the whole gradient. */
static void diff_all_reduce(zp_diff_pass *pass, const zp_node *node) {
  const zp_ints *contrib = &pass->contrib[node->out.data[0]];
  pass->pending[node->in.data[0]]--;
  for (int i = 0; i < contrib->len; i++) zp_diff_contribute(pass, node->in.data[0], contrib->data[i]);
}

/* In place, so the result shares its input's storage and can never be a slot. */
static void diff_enter(zp_diff_pass *pass, const zp_node *node) {
  zp_node reduce = zp_diff_node(node, ZP_OP_GRAD_ALL_REDUCE);
  zp_diff_add_in(pass, &reduce, zp_diff_total_owned(pass, node->out.data[0]));
  pass->pending[node->in.data[0]]--;
  int result = zp_diff_tensor(pass, node->in.data[0]);
  zp_push(pass->arena, &reduce.out, result);
  zp_diff_contribute(pass, node->in.data[0], result);
  zp_graph_add_node(pass->graph, reduce);
}

/* Collectives in pairs: what one direction gathers, the other reduces; what one sends out, the other brings back. */
static void diff_pair(zp_diff_pass *pass, const zp_node *node, zp_op transposed) {
  zp_node back = zp_diff_node(node, transposed);
  zp_diff_add_in(pass, &back, zp_diff_total(pass, node->out.data[0]));
  if (node->in.len > 1) zp_diff_add_in(pass, &back, node->in.data[1]); /* the same rows, by the same counts */
  pass->pending[node->in.data[0]]--;
  int result = zp_diff_tensor(pass, node->in.data[0]);
  zp_push(pass->arena, &back.out, result);
  zp_diff_contribute(pass, node->in.data[0], result);
  zp_graph_add_node(pass->graph, back);
}

static void diff_all_gather(zp_diff_pass *pass, const zp_node *node) {
  diff_pair(pass, node, ZP_OP_REDUCE_SCATTER_SEQ);
}

static void diff_reduce_scatter(zp_diff_pass *pass, const zp_node *node) {
  diff_pair(pass, node, ZP_OP_ALL_GATHER_SEQ);
}

static void diff_spread(zp_diff_pass *pass, const zp_node *node) { diff_pair(pass, node, ZP_OP_RETURN_SLOTS); }

static void diff_return(zp_diff_pass *pass, const zp_node *node) { diff_pair(pass, node, ZP_OP_SPREAD_SLOTS); }

/* How many rows go where is a constant to the derivative. */
static void diff_counts(zp_diff_pass *pass, const zp_node *node) { (void)pass, (void)node; }

/* The gradient goes where the operand's gradient is wanted, which may be columns of another. */
static void diff_heads(zp_diff_pass *pass, const zp_node *node, zp_op transposed) {
  zp_node back = zp_diff_node(node, transposed);
  zp_diff_add_in(pass, &back, zp_diff_total(pass, node->out.data[0]));
  zp_diff_add_gradient_of(pass, &back, node->in.data[0]);
  zp_graph_add_node(pass->graph, back);
}

static void diff_spread_heads(zp_diff_pass *pass, const zp_node *node) { diff_heads(pass, node, ZP_OP_RETURN_HEADS); }

static void diff_return_heads(zp_diff_pass *pass, const zp_node *node) { diff_heads(pass, node, ZP_OP_SPREAD_HEADS); }

const zp_op_row zp_op_row_ALL_REDUCE = {.rule = zp_rule_keep_shape, .differentiate = diff_all_reduce};
const zp_op_row zp_op_row_ENTER = {.rule = zp_rule_keep_shape, .bytes = zp_bytes_none, .differentiate = diff_enter};
const zp_op_row zp_op_row_ALL_GATHER_SEQ = {.rule = rule_sequence, .differentiate = diff_all_gather};
const zp_op_row zp_op_row_REDUCE_SCATTER_SEQ = {.rule = rule_sequence, .differentiate = diff_reduce_scatter};
const zp_op_row zp_op_row_SPREAD_SLOTS = {.rule = rule_slots, .differentiate = diff_spread};
const zp_op_row zp_op_row_RETURN_SLOTS = {.rule = rule_slots, .differentiate = diff_return};
const zp_op_row zp_op_row_SPREAD_COUNTS = {.rule = rule_counts, .differentiate = diff_counts};
const zp_op_row zp_op_row_SPREAD_HEADS = {.rule = rule_heads, .differentiate = diff_spread_heads};
const zp_op_row zp_op_row_RETURN_HEADS = {.rule = rule_heads, .differentiate = diff_return_heads};
const zp_op_row zp_op_row_GRAD_ALL_REDUCE = {0};
