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

/* Between [B, experts, slots, d] and the rank's experts with the slots of all members' samples. */
static void rule_slots(zp_rule *rule) {
  int64_t parts = rule->attr.parts;
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 4) || !zp_want_positive(rule, "parts", (double)parts))
    return;
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
const zp_op_row zp_op_row_SPREAD_HEADS = {.rule = rule_heads, .differentiate = diff_spread_heads};
const zp_op_row zp_op_row_RETURN_HEADS = {.rule = rule_heads, .differentiate = diff_return_heads};
const zp_op_row zp_op_row_GRAD_ALL_REDUCE = {0};
