/* SPDX-License-Identifier: Apache-2.0 */
/* Operators with a tensor on at least one side, and the one place where ops enter the graph. */
#include <assert.h>
#include "elaborate.h"

/* Node names: the path of the instance, then the name on the left if the op is the whole right side, else `word`. An op
 * that is returned as it is has the name that the call gives its result. */
static const char *node_name(zp_elab *e, const zp_expr *expr, const char *word) {
  const zp_frame *frame = e->frame;
  bool is_whole = expr == e->whole.expr;
  const char *name = is_whole && !e->whole.name ? frame->result_name : NULL;
  if (is_whole && e->whole.name) word = e->whole.name;
  if (!name) name = zp_elab_join(e->arena, zp_elab_local(frame->param_path), word);
  return zp_taken_names_give(e->arena, &e->names, name);
}

bool zp_elab_apply(zp_elab *e, const zp_expr *expr, zp_op op, const zp_value *in, int n_in, zp_op_attr attr,
                   const char *word, zp_value *value) {
  int tensors[ZP_MAX_OPERANDS];
  assert(n_in <= ZP_MAX_OPERANDS);
  for (int i = 0; i < n_in; i++) {
    tensors[i] = zp_elab_operand(e, &in[i]);
    if (tensors[i] < 0) return false;
  }
  int out = zp_graph_apply(zp_elab_graph(e), e->diags, op, tensors, n_in, attr, node_name(e, expr, word), expr->span);
  if (out < 0 || !zp_elab_check_size(e, &zp_elab_graph(e)->tensors.data[out].shape, expr->span)) return false;
  zp_handle handle = {.kind = ZP_HANDLE_VALUE, .segment = e->segment, .index = out};
  *value = zp_elab_tensor(e, handle, expr->span);
  return true;
}

/* number / x. There is no reciprocal in the op table; (0 * x + number) / x has the same value and derivative. */
static bool divide_number(zp_elab *e, const zp_expr *expr, double number, const zp_value *tensor, zp_value *value) {
  zp_value quotient[2] = {{0}, *tensor};
  zp_value zero;
  if (!zp_elab_apply(e, expr, ZP_OP_MUL_CONST, tensor, 1, (zp_op_attr){.value = 0}, "zero", &zero)) return false;
  if (!zp_elab_apply(e, expr, ZP_OP_ADD_CONST, &zero, 1, (zp_op_attr){.value = number}, "number", &quotient[0]))
    return false;
  return zp_elab_apply(e, expr, ZP_OP_DIV, quotient, 2, (zp_op_attr){0}, "div", value);
}

static bool subtract_from_number(zp_elab *e, const zp_expr *expr, double number, const zp_value *tensor,
                                 zp_value *value) {
  zp_value negative;
  return zp_elab_apply(e, expr, ZP_OP_MUL_CONST, tensor, 1, (zp_op_attr){.value = -1}, "neg", &negative) &&
         zp_elab_apply(e, expr, ZP_OP_ADD_CONST, &negative, 1, (zp_op_attr){.value = number}, "sub", value);
}

static bool with_number(zp_elab *e, const zp_expr *expr, const zp_value *tensor, double number, zp_value *value) {
  zp_op op = expr->op == ZP_OPR_ADD || expr->op == ZP_OPR_SUB ? ZP_OP_ADD_CONST : ZP_OP_MUL_CONST;
  const char *word = "scale";
  if (op == ZP_OP_ADD_CONST) word = expr->op == ZP_OPR_ADD ? "add" : "sub";
  if (expr->op == ZP_OPR_SUB) number = -number;
  if (expr->op == ZP_OPR_DIV) {
    if (number == 0) {
      zp_report(e->diags, ZP_Z0213, expr->at, "division by zero");
      return false;
    }
    number = 1 / number;
  }
  return zp_elab_apply(e, expr, op, tensor, 1, (zp_op_attr){.value = number}, word, value);
}

static bool reject(zp_elab *e, const zp_expr *expr, const zp_value *left, const zp_value *right) {
  if (right)
    zp_report(e->diags, ZP_Z0202, expr->at, "this operator cannot join %s and %s", zp_value_kind_name(left),
              zp_value_kind_name(right));
  else
    zp_report(e->diags, ZP_Z0202, expr->at, "this operator cannot be applied to a tensor");
  return false;
}

static bool of_two_tensors(zp_elab *e, const zp_expr *expr, const zp_value *left, const zp_value *right,
                           zp_value *value) {
  static const struct {
    zp_op op;
    const char *word;
  } ops[] = {[ZP_OPR_ADD] = {ZP_OP_ADD, "add"},
             [ZP_OPR_SUB] = {ZP_OP_SUB, "sub"},
             [ZP_OPR_MUL] = {ZP_OP_MUL, "mul"},
             [ZP_OPR_DIV] = {ZP_OP_DIV, "div"}};
  zp_value in[2] = {*left, *right};
  return zp_elab_apply(e, expr, ops[expr->op].op, in, 2, (zp_op_attr){0}, ops[expr->op].word, value);
}

bool zp_elab_tensor_operator(void *user, const zp_expr *expr, const zp_value *left, const zp_value *right,
                             zp_value *value) {
  zp_elab *e = user;
  if (zp_elab_is_loss(e, left) || (right && zp_elab_is_loss(e, right)))
    return zp_elab_loss_operator(e, expr, left, right, value);
  if (!right) {
    if (expr->op != ZP_OPR_NEG) return reject(e, expr, left, NULL);
    return zp_elab_apply(e, expr, ZP_OP_MUL_CONST, left, 1, (zp_op_attr){.value = -1}, "neg", value);
  }
  bool arithmetic =
      expr->op == ZP_OPR_ADD || expr->op == ZP_OPR_SUB || expr->op == ZP_OPR_MUL || expr->op == ZP_OPR_DIV;
  const zp_value *other = left->kind == ZP_VAL_TENSOR ? right : left;
  bool plain = other->kind == ZP_VAL_NUMBER && other->dimension == ZP_DIM_NONE;
  if (!arithmetic || (other->kind != ZP_VAL_TENSOR && !plain)) return reject(e, expr, left, right);
  if (other->kind == ZP_VAL_TENSOR) return of_two_tensors(e, expr, left, right, value);
  if (other == right) return with_number(e, expr, left, right->number, value);
  if (expr->op == ZP_OPR_DIV) return divide_number(e, expr, left->number, right, value);
  if (expr->op == ZP_OPR_SUB) return subtract_from_number(e, expr, left->number, right, value);
  return with_number(e, expr, right, left->number, value);
}
