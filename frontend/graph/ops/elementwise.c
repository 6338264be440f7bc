/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of class ROW that are made element by element. Groups of them have derivatives (diff_fused.c). */
#include <math.h>
#include "ops.h"

/* Operand i alongside the rows of operand 0: as they are, or a broadcast parameter. */
static bool want_broadcast(zp_rule *rule, int i) {
  zp_operand kind;
  if (!zp_want_element(rule, i, ZP_ELEM_FLOAT)) return false;
  if (!zp_operand_kind(zp_rule_shape(rule, 0), zp_rule_shape(rule, i), &kind)) {
    zp_diag *diag = zp_rule_fail(rule, ZP_Z0204, "the shapes of `%s` %s and `%s` %s do not fit for `%s`",
                                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, i)->name,
                                 zp_rule_text(rule, i), zp_op_name(rule->op));
    zp_rule_help(diag, "the second shape must be equal, or its last dimension alone, or sequence and last dimension");
    return false;
  }
  return kind == ZP_OPERAND_ROWS ? zp_want_activation(rule, i) : zp_want_param(rule, i);
}

static void rule_binary(zp_rule *rule) {
  if (zp_want_activation(rule, 0) && want_broadcast(rule, 1))
    zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

/* Empty slots hold zeros, whose derivative these functions do not have; no sorted row is empty. */
static bool want_defined_at_zero(zp_rule *rule) {
  int i = rule->op == ZP_OP_DIV ? 1 : 0;
  const zp_tensor *x = zp_rule_operand(rule, i);
  if (x->shape.rank < 4 || x->role == ZP_ROLE_PARAM || x->sorted) return true;
  zp_rule_fail(rule, ZP_Z0207, "`%s` of `%s` %s: slots that no token took may hold zeros, where `%s` has no derivative",
               zp_op_name(rule->op), x->name, zp_rule_text(rule, i), zp_op_name(rule->op));
  return false;
}

static void rule_divide(zp_rule *rule) {
  zp_operand kind;
  if (!want_defined_at_zero(rule)) return;
  if (!zp_shape_equal(zp_rule_shape(rule, 0), zp_rule_shape(rule, 1)) &&
      zp_operand_kind(zp_rule_shape(rule, 1), zp_rule_shape(rule, 0), &kind)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0204, "cannot divide the smaller `%s` %s by `%s` %s",
                              zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name,
                              zp_rule_text(rule, 1)),
                 "only the second operand of `/` can be broadcast");
    return;
  }
  rule_binary(rule);
}

static void rule_undefined_at_zero(zp_rule *rule) {
  if (zp_want_activation(rule, 0) && want_defined_at_zero(rule))
    zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

static void rule_leaky_relu(zp_rule *rule) {
  if (!zp_want_activation(rule, 0)) return;
  if (!(rule->attr.value >= 0 && isfinite(rule->attr.value))) {
    zp_rule_fail(rule, ZP_Z0208, "`negative_slope` of `leaky_relu` must be at least 0 and finite, not %g",
                 rule->attr.value);
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

static void rule_dropout(zp_rule *rule) {
  if (!zp_want_activation(rule, 0)) return;
  if (!(rule->attr.rate >= 0 && rule->attr.rate < 1)) {
    zp_rule_fail(rule, ZP_Z0208, "`rate` of `dropout` must be at least 0 and below 1, not %g", rule->attr.rate);
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

#define ELEMENTWISE(shape_rule)                                                                                        \
  { .rule = shape_rule, .parts = zp_parts_of_rows, .flop = zp_flop_of_rows }

const zp_op_row zp_op_row_ADD = ELEMENTWISE(rule_binary);
const zp_op_row zp_op_row_SUB = ELEMENTWISE(rule_binary);
const zp_op_row zp_op_row_MUL = ELEMENTWISE(rule_binary);
const zp_op_row zp_op_row_DIV = ELEMENTWISE(rule_divide);
const zp_op_row zp_op_row_ADD_CONST = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_MUL_CONST = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_EXP = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_LOG = ELEMENTWISE(rule_undefined_at_zero);
const zp_op_row zp_op_row_SQRT = ELEMENTWISE(rule_undefined_at_zero);
const zp_op_row zp_op_row_RSQRT = ELEMENTWISE(rule_undefined_at_zero);
const zp_op_row zp_op_row_TANH = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_SIGMOID = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_RELU = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_LEAKY_RELU = ELEMENTWISE(rule_leaky_relu);
const zp_op_row zp_op_row_SILU = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_GELU = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_CAST_BF16 = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_CAST_F16 = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_CAST_F32 = ELEMENTWISE(zp_rule_keep_shape);
const zp_op_row zp_op_row_DROPOUT = ELEMENTWISE(rule_dropout);
