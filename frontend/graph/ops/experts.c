/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures of experts: the gate, tokens to the slots of experts and back. */
#include <math.h>
#include "ops.h"

/* Most slots of a sample: they are numbered in 32 bits. */
#define MAX_SLOTS ((double)INT32_MAX)

/* Its share of the choices times the capacity, and never more than there are tokens, because a token chooses an expert
 * once. The small factor keeps a product such as 1.1 * 80 / 8 from being rounded up twice. */
int64_t zp_gate_slots(const zp_op_attr *attr, int64_t positions) {
  double share = attr->capacity * (double)positions * (double)attr->top_k / (double)attr->experts;
  return (int64_t)fmin(ceil(share * (1 - 1e-12)), (double)positions);
}

/* A parameter of the model, one number an expert. */
static bool want_bias(zp_rule *rule) {
  const zp_tensor *bias = zp_rule_operand(rule, 1);
  const zp_op_attr *attr = &rule->attr;
  if (!attr->sigmoid) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0208, "`bias` of `top_k_gate` is added to affinities that are sigmoids"),
                 "write `affinity = \"sigmoid\"` alongside it");
    return false;
  }
  if (bias->role != ZP_ROLE_PARAM || bias->shape.rank != 1 || bias->shape.dim[0] != attr->experts) {
    zp_rule_fail(rule, ZP_Z0204, "`bias` of `top_k_gate` is a parameter [%lld], one number an expert, not `%s` %s",
                 (long long)attr->experts, bias->name, zp_rule_text(rule, 1));
    return false;
  }
  if (!(attr->bias_rate > 0 && isfinite(attr->bias_rate))) {
    zp_rule_fail(rule, ZP_Z0208, "`bias_rate` of `top_k_gate` must be above 0, and is %g", attr->bias_rate);
    return false;
  }
  return true;
}

/* Equal groups of two or more experts, some of which are kept, with experts enough. All groups kept are none. */
static bool want_groups(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  if (!attr->sigmoid) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0208, "`groups` of `top_k_gate` compare affinities that are sigmoids"),
                 "write `affinity = \"sigmoid\"` alongside it");
    return false;
  }
  if (attr->groups > ZP_MAX_EXPERT_GROUPS) {
    zp_rule_fail(rule, ZP_Z0208, "experts lie in at most %d groups, not in %lld", ZP_MAX_EXPERT_GROUPS,
                 (long long)attr->groups);
    return false;
  }
  if (attr->experts % attr->groups || (attr->groups > 1 && attr->experts / attr->groups < 2)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0208, "`groups` of `top_k_gate` is %lld, which %lld experts do not fill evenly",
                              (long long)attr->groups, (long long)attr->experts),
                 "groups are as large as each other and have two experts or more, whose affinities make their score");
    return false;
  }
  if (attr->top_groups > attr->groups) {
    zp_rule_fail(rule, ZP_Z0208, "`top_groups` of `top_k_gate` is %lld, but there are %lld `groups`",
                 (long long)attr->top_groups, (long long)attr->groups);
    return false;
  }
  int64_t left = attr->experts / attr->groups * attr->top_groups;
  if (attr->top_k > left) {
    zp_rule_fail(rule, ZP_Z0208, "`k` of `top_k_gate` is %lld, but `top_groups` leaves %lld experts",
                 (long long)attr->top_k, (long long)left);
    return false;
  }
  if (attr->top_groups == attr->groups) attr->groups = attr->top_groups = 0;
  return true;
}

static void rule_gate(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 3)) return;
  attr->experts = zp_shape_cols(zp_rule_shape(rule, 0));
  /* Every position could choose one expert: what such slots number says expert and place of every choice. */
  if (attr->dropless && attr->top_k >= 1) attr->capacity = (double)attr->experts / (double)attr->top_k;
  if (!zp_want_positive(rule, "capacity", attr->capacity)) return;
  if (attr->top_k < 1 || attr->top_k > attr->experts) {
    zp_rule_fail(rule, ZP_Z0208, "`k` of `top_k_gate` is %lld, but `%s` %s has scores of %lld experts",
                 (long long)attr->top_k, zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0),
                 (long long)attr->experts);
    return;
  }
  if (attr->top_k > ZP_MAX_TOP_K || attr->experts > ZP_MAX_EXPERTS) {
    zp_rule_fail(rule, ZP_Z0208, "a gate chooses at most %d of at most %d experts, not %lld of %lld", ZP_MAX_TOP_K,
                 ZP_MAX_EXPERTS, (long long)attr->top_k, (long long)attr->experts);
    return;
  }
  if (attr->top_k == 1 && attr->normalize) {
    zp_rule_help(
        zp_rule_fail(rule, ZP_Z0208, "with k = 1 a normalized weight is always 1, and the router would not learn"),
        "write `normalize = false`: the weight is then the probability among all experts");
    return;
  }
  if (!(attr->balance >= 0 && isfinite(attr->balance))) {
    zp_rule_fail(rule, ZP_Z0208, "`balance` of `top_k_gate` must not be negative, and is %g", attr->balance);
    return;
  }
  if (rule->n_in > 1 && !want_bias(rule)) return;
  if (attr->groups && !want_groups(rule)) return;
  attr->slots = zp_gate_slots(attr, zp_rule_shape(rule, 0)->dim[1]);
  if ((double)attr->slots * (double)attr->experts > MAX_SLOTS) {
    zp_rule_fail(rule, ZP_Z0208, "%lld experts of %lld slots are more than 32 bits number", (long long)attr->experts,
                 (long long)attr->slots);
    return;
  }
  zp_shape choices = zp_rule_with_last(zp_rule_shape(rule, 0), attr->top_k, NULL);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, choices);
  zp_rule_answer(rule, ZP_ELEM_I32, choices);
}

/* Takes experts and slots over from the gate that made operand i; the passes have them in the attributes already. */
static bool want_slots(zp_rule *rule, int i) {
  const zp_tensor *slot = zp_rule_operand(rule, i);
  if (!zp_want_element(rule, i, ZP_ELEM_I32)) return false;
  if (rule->attr.slots) return true;
  const zp_node *gate = slot->producer >= 0 ? &rule->graph->nodes.data[slot->producer] : NULL;
  if (!gate || gate->op != ZP_OP_TOP_K_GATE) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0207, "operand %d of `%s` must be the slots of a `top_k_gate`, but `%s` is not",
                              i + 1, zp_op_name(rule->op), slot->name),
                 "write `weight, slot = top_k_gate(scores, k = 2)`");
    return false;
  }
  rule->attr.experts = gate->attr.experts;
  rule->attr.slots = gate->attr.slots;
  rule->attr.top_k = gate->attr.top_k;
  rule->attr.room = gate->attr.room;
  return true;
}

static bool want_positions(zp_rule *rule, int i, int j) {
  if (zp_rule_shape(rule, i)->dim[1] == zp_rule_shape(rule, j)->dim[1]) return true;
  zp_rule_fail(rule, ZP_Z0204, "`%s` needs the tokens that the gate saw, but `%s` is %s and `%s` is %s",
               zp_op_name(rule->op), zp_rule_operand(rule, i)->name, zp_rule_text(rule, i),
               zp_rule_operand(rule, j)->name, zp_rule_text(rule, j));
  return false;
}

/* The number of experts as the scores of the gate have it that made operand i. */
static const zp_extent *experts_extent(const zp_rule *rule, int i) {
  const zp_tensor *slot = zp_rule_operand(rule, i);
  const zp_node *gate = slot->producer >= 0 ? &rule->graph->nodes.data[slot->producer] : NULL;
  if (!gate || gate->op != ZP_OP_TOP_K_GATE) return NULL;
  const zp_shape *scores = &rule->graph->tensors.data[gate->in.data[0]].shape;
  const zp_extent *experts = scores->extent[scores->rank - 1];
  return experts && experts->value == rule->attr.experts ? experts : NULL;
}

static void rule_expert_rows(zp_rule *rule) {
  if (!want_slots(rule, 0)) return;
  zp_shape first = {.rank = 2, .dim = {zp_rule_shape(rule, 0)->dim[0], rule->attr.experts}};
  first.extent[1] = experts_extent(rule, 0);
  zp_rule_answer(rule, ZP_ELEM_I32, first);
}

/* Where a choice's rows are sorted, operand `first` says where experts begin; `rows` is the operand or -1. */
static bool want_first(zp_rule *rule, int first, int rows) {
  const zp_shape *shape = zp_rule_shape(rule, first);
  if (!zp_want_element(rule, first, ZP_ELEM_I32)) return false;
  if (shape->rank == 2 && (rows < 0 || zp_rule_operand(rule, rows)->sorted)) return true;
  zp_rule_fail(rule, ZP_Z0204, "rows of `%s` are not sorted by expert",
               zp_rule_operand(rule, rows < 0 ? 0 : rows)->name);
  return false;
}

/* One row a choice: the choices with x's columns. */
static void rule_dispatch_sorted(zp_rule *rule) {
  const zp_shape *choices = zp_rule_shape(rule, 1);
  zp_shape rows = {.rank = 4};
  if (!want_first(rule, 2, -1)) return;
  for (int i = 0; i < 3; i++) zp_rule_put_dim(&rows, i, choices, i);
  zp_rule_put_dim(&rows, 3, zp_rule_shape(rule, 0), 2);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, rows);
}

static void rule_dispatch(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 3) || !want_slots(rule, 1) || !want_positions(rule, 0, 1))
    return;
  if (rule->n_in > 2) {
    rule_dispatch_sorted(rule);
    return;
  }
  const zp_shape *x = zp_rule_shape(rule, 0);
  zp_shape slots = {.rank = 4, .dim = {x->dim[0], rule->attr.experts, rule->attr.slots}};
  slots.extent[1] = experts_extent(rule, 1);
  zp_rule_put_dim(&slots, 3, x, 2);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, slots);
}

static void rule_combine(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 4) || !zp_want_activation(rule, 1) || !want_slots(rule, 2))
    return;
  const zp_shape *y = zp_rule_shape(rule, 0), *weight = zp_rule_shape(rule, 1);
  bool sorted = rule->n_in > 3;
  if (sorted && (!want_first(rule, 3, 0) || !zp_want_rank(rule, 1, 3))) return;
  if (sorted && (y->dim[1] != weight->dim[1] || y->dim[2] != weight->dim[2])) {
    zp_rule_fail(rule, ZP_Z0204, "`%s` needs a row for every choice of the gate, but `%s` is %s and `%s` is %s",
                 zp_op_name(rule->op), zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0),
                 zp_rule_operand(rule, 1)->name, zp_rule_text(rule, 1));
    return;
  }
  if (!sorted && (y->dim[1] != rule->attr.experts || y->dim[2] != rule->attr.slots)) {
    zp_rule_fail(rule, ZP_Z0204, "the gate has %lld experts of %lld slots, but `%s` is %s",
                 (long long)rule->attr.experts, (long long)rule->attr.slots, zp_rule_operand(rule, 0)->name,
                 zp_rule_text(rule, 0));
    return;
  }
  if (!zp_want_same_shape(rule, 1, 2)) return;
  zp_shape combined = {.rank = 3, .dim = {y->dim[0]}};
  zp_rule_put_dim(&combined, 1, weight, 1);
  zp_rule_put_dim(&combined, 2, y, 3);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, combined);
}

static void parts_gate(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_tie_trailing(pass, node->in.data[0], node->out.data[0], 1);
}

/* Every rank has all of it. */
static void parts_expert_rows(zp_parts_pass *pass, const zp_node *node) { (void)pass, (void)node; }

static void parts_dispatch(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_tie(pass, node->in.data[0], 2, node->out.data[0], 3);
}

static void parts_combine(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_tie(pass, node->in.data[0], 3, node->out.data[0], 2);
}

/* A score costs the gate an exponential (10, as in the op table) and its comparisons; where experts lie in groups, two
 * more, with the two best ones of its group. */
enum { GATE_FLOP_PER_SCORE = 12, GROUP_FLOP_PER_SCORE = 2 };

static double flop_gate(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return (GATE_FLOP_PER_SCORE + (node->attr.groups ? GROUP_FLOP_PER_SCORE : 0)) *
         zp_cost_elements(graph, node->in.data[0], microbatch);
}

static double flop_gate_grad(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return GATE_FLOP_PER_SCORE * zp_cost_elements(graph, node->in.data[0], microbatch);
}

/* A multiply-add for every element of a token and every expert that it chose; dispatching only copies. */
static double flop_combine(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return 2 * (double)node->attr.top_k * zp_cost_elements(graph, node->out.data[0], microbatch);
}

static double flop_combine_grad(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return 4 * (double)node->attr.top_k * zp_cost_elements(graph, node->in.data[3], microbatch);
}

/* The choices that the balancing loss counts are those of the whole sample, of which a context rank has a part. */
static int gather_choices(zp_diff_pass *pass, const zp_node *node) {
  zp_node gather = zp_diff_node(node, ZP_OP_GATHER_CHOICES);
  zp_shape shape = {.rank = 2, .dim = {ZP_DIM_B, node->attr.parts * node->attr.experts}};
  const char *name = zp_format(pass->arena, "%s.choices", node->name);
  zp_diff_add_in(pass, &gather, node->out.data[1]);
  int made = zp_graph_add_tensor(pass->graph, zp_tensor_make(name, ZP_ELEM_STAT, shape, node->span));
  zp_push(pass->arena, &gather.out, made);
  zp_graph_add_node(pass->graph, gather);
  return made;
}

/* The slots are numbers without a gradient: which expert a token takes is a constant to the derivative. */
static void diff_gate(zp_diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_TOP_K_GATE_GRAD);
  int d_weight = zp_diff_total(pass, node->out.data[0]);
  int choices = node->attr.parts > 1 && node->attr.balance > 0 ? gather_choices(pass, node) : -1;
  zp_diff_add_in(pass, &grad, zp_diff_kept_value(pass, node->in.data[0]));
  zp_diff_add_in(pass, &grad, node->out.data[1]);
  zp_diff_add_in(pass, &grad, d_weight);
  if (choices >= 0) zp_diff_add_in(pass, &grad, choices);
  zp_diff_add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
  if (node->in.len < 2 || !zp_diff_trains(pass, node->in.data[1])) return;
  zp_node load = zp_diff_node(node, ZP_OP_LOAD_GRAD);
  zp_diff_add_in(pass, &load, node->out.data[1]);
  zp_diff_add_param_grad(pass, &load, node->in.data[1]);
  zp_graph_add_node(pass->graph, load);
}

static void diff_dispatch(zp_diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_DISPATCH_GRAD);
  int dy = zp_diff_total(pass, node->out.data[0]);
  zp_diff_add_in(pass, &grad, node->in.data[1]);
  zp_diff_add_in(pass, &grad, dy);
  if (node->in.len > 2) zp_diff_add_in(pass, &grad, node->in.data[2]);
  zp_diff_add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

static void diff_combine(zp_diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_COMBINE_GRAD);
  int d_out = zp_diff_total(pass, node->out.data[0]);
  for (int i = 0; i < 3; i++) zp_diff_add_in(pass, &grad, node->in.data[i]);
  zp_diff_add_in(pass, &grad, d_out);
  if (node->in.len > 3) zp_diff_add_in(pass, &grad, node->in.data[3]);
  for (int i = 0; i < 2; i++) zp_diff_add_gradient_of(pass, &grad, node->in.data[i]);
  zp_graph_add_node(pass->graph, grad);
}

const zp_op_row zp_op_row_TOP_K_GATE = {
    .second = "slot", .rule = rule_gate, .parts = parts_gate, .flop = flop_gate, .differentiate = diff_gate};
const zp_op_row zp_op_row_TOP_K_GATE_GRAD = {.flop = flop_gate_grad};
const zp_op_row zp_op_row_GATHER_CHOICES = {0};
/* An addition for every choice; which rows they are is a constant to the derivative. */
static double flop_expert_rows(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return zp_cost_elements(graph, node->in.data[0], microbatch);
}

static void diff_expert_rows(zp_diff_pass *pass, const zp_node *node) { (void)pass, (void)node; }

const zp_op_row zp_op_row_EXPERT_ROWS = {
    .rule = rule_expert_rows, .parts = parts_expert_rows, .flop = flop_expert_rows, .differentiate = diff_expert_rows};
const zp_op_row zp_op_row_DISPATCH = {.rule = rule_dispatch, .parts = parts_dispatch, .differentiate = diff_dispatch};
const zp_op_row zp_op_row_DISPATCH_GRAD = {.flop = flop_combine};
const zp_op_row zp_op_row_COMBINE = {
    .rule = rule_combine, .parts = parts_combine, .flop = flop_combine, .differentiate = diff_combine};
const zp_op_row zp_op_row_COMBINE_GRAD = {.flop = flop_combine_grad};
