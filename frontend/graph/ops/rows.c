/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of class ROW that read a row as a whole: norms, softmax, rotary positions. */
#include "ops.h"

static bool want_vector(zp_rule *rule, int i, const char *what, int64_t n) {
  if (!zp_want_element(rule, i, ZP_ELEM_FLOAT) || !zp_want_param(rule, i) || !zp_want_rank(rule, i, 1)) return false;
  if (zp_rule_shape(rule, i)->dim[0] == n) return true;
  zp_rule_fail(rule, ZP_Z0204, "the %s of `%s` needs %lld elements for rows of `%s` %s, but `%s` is %s", what,
               zp_op_name(rule->op), (long long)n, zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0),
               zp_rule_operand(rule, i)->name, zp_rule_text(rule, i));
  return false;
}

/* Heads are rows of a kernel, which must follow one another. */
static bool want_whole(zp_rule *rule) {
  if (zp_rule_operand(rule, 0)->base < 0) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0216,
                            "`%s` over the heads of `%s`, a part of a split, is known but not built yet",
                            zp_op_name(rule->op), zp_rule_operand(rule, 0)->name),
               "give queries and keys a product each, and norm its result");
  return false;
}

/* Each head by itself, or all columns; the parameters that the operation takes have a row's columns. */
static void rule_norm(zp_rule *rule) {
  static const char *const names[] = {NULL, "weight", "bias"};
  bool heads = rule->attr.heads > 0;
  if (!zp_want_activation(rule, 0)) return;
  if (heads && (!zp_want_rank(rule, 0, 3) || !zp_want_heads(rule, 0, rule->attr.heads, "heads"))) return;
  for (int i = 1; i < rule->n_in; i++)
    if (!want_vector(rule, i, names[i], heads ? rule->attr.head_size : zp_shape_cols(zp_rule_shape(rule, 0)))) return;
  if (zp_want_positive(rule, "eps", rule->attr.eps) && (!heads || want_whole(rule)))
    zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

/* Heads that are normalised each by itself are units. */
static void parts_norm(zp_parts_pass *pass, const zp_node *node) {
  if (zp_op_row_parts(node) == 1) {
    zp_parts_of_rows(pass, node);
    return;
  }
  zp_parts_require(pass, node->in.data[0], 2, (zp_parts){1, node->attr.heads});
  zp_parts_tie_trailing(pass, node->in.data[0], node->out.data[0], 0);
}

static void rule_rope(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 3) || !zp_want_heads(rule, 0, rule->attr.heads, "heads") ||
      !zp_want_positive(rule, "theta", rule->attr.theta))
    return;
  if (rule->attr.head_size % 2) {
    zp_rule_fail(rule, ZP_Z0205, "`rope` turns pairs of columns, but %lld heads of `%s` %s have %lld columns each",
                 (long long)rule->attr.heads, zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0),
                 (long long)rule->attr.head_size);
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

static void parts_rope(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_require(pass, node->in.data[0], 2, (zp_parts){1, node->attr.heads});
  zp_parts_of_rows(pass, node);
}

const zp_op_row zp_op_row_LAYER_NORM = {.rule = rule_norm, .parts = parts_norm, .flop = zp_flop_of_rows};
const zp_op_row zp_op_row_RMS_NORM = {.rule = rule_norm, .parts = parts_norm, .flop = zp_flop_of_rows};
const zp_op_row zp_op_row_L2_NORM = {.rule = rule_norm, .parts = parts_norm, .flop = zp_flop_of_rows};
const zp_op_row zp_op_row_SOFTMAX = {.rule = zp_rule_keep_shape, .parts = zp_parts_of_rows, .flop = zp_flop_of_rows};
const zp_op_row zp_op_row_ROPE = {.rule = rule_rope, .parts = parts_rope, .flop = zp_flop_of_rows};
