/* SPDX-License-Identifier: Apache-2.0 */
/* Values of expressions: literals, names, arithmetic, comparisons, logic. Tensors and calls are handed to the hooks of
 * the evaluator; without hooks (attribute blocks, `let`) only the number functions may be called. */
#include <math.h>
#include "eval.h"

/* The number by that name: what `capacity` is of a gate that leaves no choice out. */
#define DROPLESS HUGE_VAL

zp_value zp_number_value(double number, bool is_integer, zp_span span) {
  return (zp_value){.kind = ZP_VAL_NUMBER, .number = number, .is_integer = is_integer, .span = span};
}

static zp_value bool_value(bool truth, zp_span span) {
  return (zp_value){.kind = ZP_VAL_BOOL, .number = truth, .span = span};
}

const char *zp_value_kind_name(const zp_value *value) {
  switch (value->kind) {
  case ZP_VAL_NUMBER: return zp_dimension_name(value->dimension);
  case ZP_VAL_STRING: return "a string";
  case ZP_VAL_BOOL: return "true or false";
  case ZP_VAL_LIST: return value->list.len && value->list.data[0].kind == ZP_VAL_TENSOR ? "several tensors" : "a list";
  case ZP_VAL_TENSOR: return "a tensor";
  case ZP_VAL_PATTERN: return "a pattern of attention";
  case ZP_VAL_POISON: return "an erroneous value";
  }
  return "a value";
}

const char *zp_value_text(zp_arena *arena, const zp_value *value) {
  switch (value->kind) {
  case ZP_VAL_NUMBER:
    if (value->number == DROPLESS) return "`dropless`";
    return zp_format(arena, value->is_integer ? "%.0f" : "%g", value->number);
  case ZP_VAL_STRING: return zp_format(arena, "\"%s\"", value->text);
  case ZP_VAL_BOOL: return value->number != 0 ? "true" : "false";
  case ZP_VAL_LIST: {
    const char *text = "[";
    for (int i = 0; i < value->list.len; i++)
      text = zp_format(arena, "%s%s%s", text, i ? ", " : "", zp_value_text(arena, &value->list.data[i]));
    return zp_format(arena, "%s]", text);
  }
  default: return zp_value_kind_name(value);
  }
}

const char *zp_dotted_name(zp_arena *arena, const zp_expr *expr) {
  if (expr->kind == ZP_EXPR_NAME) return expr->text;
  if (expr->kind != ZP_EXPR_FIELD) return NULL;
  const char *left = zp_dotted_name(arena, expr->left);
  return left ? zp_format(arena, "%s.%s", left, expr->text) : NULL;
}

static const char *operator_text(zp_operator op) {
  static const char *const texts[] = {
      [ZP_OPR_ADD] = "+", [ZP_OPR_SUB] = "-",    [ZP_OPR_MUL] = "*",   [ZP_OPR_DIV] = "/", [ZP_OPR_MOD] = "%",
      [ZP_OPR_NEG] = "-", [ZP_OPR_NOT] = "not",  [ZP_OPR_AND] = "and", [ZP_OPR_OR] = "or", [ZP_OPR_EQ] = "==",
      [ZP_OPR_NE] = "!=", [ZP_OPR_LT] = "<",     [ZP_OPR_LE] = "<=",   [ZP_OPR_GT] = ">",  [ZP_OPR_GE] = ">=",
      [ZP_OPR_IN] = "in", [ZP_OPR_RANGE] = "..",
  };
  return texts[op];
}

static bool reject_operands(const zp_evaluator *e, const zp_expr *expr, const zp_value *left, const zp_value *right) {
  if (left->kind == ZP_VAL_POISON || (right && right->kind == ZP_VAL_POISON)) return false;
  const char *op = operator_text(expr->op);
  if (right)
    zp_report(e->diags, ZP_Z0202, expr->at, "`%s` cannot join %s and %s", op, zp_value_kind_name(left),
              zp_value_kind_name(right));
  else
    zp_report(e->diags, ZP_Z0202, expr->at, "`%s` cannot be applied to %s", op, zp_value_kind_name(left));
  return false;
}

/* Dimension of a product: a plain number or a percentage scales anything; nothing else multiplies. */
static bool product_dimension(zp_dimension a, zp_dimension b, zp_dimension *result) {
  bool a_scales = a == ZP_DIM_NONE || a == ZP_DIM_PERCENT, b_scales = b == ZP_DIM_NONE || b == ZP_DIM_PERCENT;
  *result = a == ZP_DIM_NONE || (a == ZP_DIM_PERCENT && b != ZP_DIM_NONE) ? b : a;
  return a_scales || b_scales;
}

static bool number_dimension(const zp_evaluator *e, const zp_expr *expr, const zp_value *left, const zp_value *right,
                             zp_dimension *result) {
  bool agree = left->dimension == right->dimension;
  *result = left->dimension;
  if (expr->op == ZP_OPR_MUL) agree = product_dimension(left->dimension, right->dimension, result);
  if (expr->op == ZP_OPR_DIV) {
    if (agree) *result = ZP_DIM_NONE;
    agree = agree || right->dimension == ZP_DIM_NONE;
  }
  if (agree) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0212, expr->at, "units do not agree: %s %s %s", zp_value_kind_name(left),
                         operator_text(expr->op), zp_value_kind_name(right));
  zp_diag_also(d, left->span, "%s", zp_value_kind_name(left));
  zp_diag_also(d, right->span, "%s", zp_value_kind_name(right));
  return false;
}

/* Division of two whole numbers is whole when it comes out even, and a fraction otherwise. */
/* What is computed from symbols of the model is told in them. */
static const zp_extent *extent_of(zp_arena *arena, const zp_value *value) {
  return value->extent ? value->extent : zp_extent_number(arena, (int64_t)value->number);
}

static const zp_extent *combine_extents(zp_arena *arena, zp_operator op, const zp_value *left, const zp_value *right) {
  if (!left->extent && !right->extent) return NULL;
  const zp_extent *a = extent_of(arena, left), *b = extent_of(arena, right);
  switch (op) {
  case ZP_OPR_ADD: return zp_extent_sum(arena, a, b);
  case ZP_OPR_SUB: return zp_extent_difference(arena, a, b);
  case ZP_OPR_MUL: return zp_extent_product(arena, a, b);
  case ZP_OPR_DIV: return zp_extent_quotient(arena, a, b);
  default: return NULL;
  }
}

static bool arithmetic(const zp_evaluator *e, const zp_expr *expr, const zp_value *left, const zp_value *right,
                       zp_value *value) {
  double a = left->number, b = right->number, result = 0;
  zp_dimension dimension;
  if (!number_dimension(e, expr, left, right, &dimension)) return false;
  if ((expr->op == ZP_OPR_DIV || expr->op == ZP_OPR_MOD) && b == 0) {
    zp_diag *d = zp_report(e->diags, ZP_Z0213, expr->at, "division by zero");
    zp_diag_also(d, right->span, "this is 0");
    return false;
  }
  bool whole = left->is_integer && right->is_integer;
  switch (expr->op) {
  case ZP_OPR_ADD: result = a + b; break;
  case ZP_OPR_SUB: result = a - b; break;
  case ZP_OPR_MUL: result = a * b; break;
  case ZP_OPR_MOD: result = fmod(a, b); break;
  default: result = a / b; break;
  }
  *value = zp_number_value(result, whole && result == floor(result), expr->span);
  value->dimension = dimension;
  if (whole && fabs(left->number) < 1e15 && fabs(right->number) < 1e15)
    value->extent = combine_extents(e->arena, expr->op, left, right);
  return true;
}

static bool values_equal(const zp_value *left, const zp_value *right) {
  if (left->kind != right->kind) return false;
  return left->kind == ZP_VAL_STRING ? strcmp(left->text, right->text) == 0 : left->number == right->number;
}

static bool compare(const zp_evaluator *e, const zp_expr *expr, const zp_value *left, const zp_value *right,
                    zp_value *value) {
  bool ordered = expr->op != ZP_OPR_EQ && expr->op != ZP_OPR_NE;
  if (left->kind != right->kind || left->kind == ZP_VAL_LIST || (ordered && left->kind != ZP_VAL_NUMBER))
    return reject_operands(e, expr, left, right);
  zp_dimension dimension;
  if (left->kind == ZP_VAL_NUMBER && !number_dimension(e, expr, left, right, &dimension)) return false;
  bool truth = false;
  switch (expr->op) {
  case ZP_OPR_EQ: truth = values_equal(left, right); break;
  case ZP_OPR_NE: truth = !values_equal(left, right); break;
  case ZP_OPR_LT: truth = left->number < right->number; break;
  case ZP_OPR_LE: truth = left->number <= right->number; break;
  case ZP_OPR_GT: truth = left->number > right->number; break;
  default: truth = left->number >= right->number; break;
  }
  *value = bool_value(truth, expr->span);
  return true;
}

static bool membership(const zp_evaluator *e, const zp_expr *expr, const zp_value *left, const zp_value *right,
                       zp_value *value) {
  if (right->kind != ZP_VAL_LIST) return reject_operands(e, expr, left, right);
  bool found = false;
  for (int i = 0; i < right->list.len; i++) found = found || values_equal(left, &right->list.data[i]);
  *value = bool_value(found, expr->span);
  return true;
}

/* `and`, `or`: the right side is considered only when it decides, so that `heads > 0 and d % heads == 0` works. */
static bool eval_logic(const zp_evaluator *e, const zp_expr *expr, zp_value *value) {
  zp_value side;
  if (!zp_evaluate(e, expr->left, &side)) return false;
  if (side.kind != ZP_VAL_BOOL) return reject_operands(e, expr, &side, NULL);
  bool decided = expr->op == ZP_OPR_AND ? side.number == 0 : side.number != 0;
  if (!decided) {
    if (!zp_evaluate(e, expr->right, &side)) return false;
    if (side.kind != ZP_VAL_BOOL) return reject_operands(e, expr, &side, NULL);
  }
  *value = bool_value(side.number != 0, expr->span);
  return true;
}

static bool eval_binary(const zp_evaluator *e, const zp_expr *expr, zp_value *value) {
  zp_value left, right;
  if (expr->op == ZP_OPR_AND || expr->op == ZP_OPR_OR) return eval_logic(e, expr, value);
  if (expr->op == ZP_OPR_RANGE) {
    zp_diag *d = zp_report(e->diags, ZP_Z0202, expr->span, "a range is not a value");
    zp_diag_help(d, "ranges stand after `repeat NAME in`; elsewhere write `>= low` and `<= high`");
    return false;
  }
  bool ok = zp_evaluate(e, expr->left, &left);
  if (!zp_evaluate(e, expr->right, &right) || !ok) return false;
  if (left.kind == ZP_VAL_TENSOR || right.kind == ZP_VAL_TENSOR)
    return e->tensor_operator(e->user, expr, &left, &right, value);
  if (expr->op == ZP_OPR_IN) return membership(e, expr, &left, &right, value);
  if (expr->op >= ZP_OPR_EQ && expr->op <= ZP_OPR_GE) return compare(e, expr, &left, &right, value);
  if (left.kind != ZP_VAL_NUMBER || right.kind != ZP_VAL_NUMBER) return reject_operands(e, expr, &left, &right);
  return arithmetic(e, expr, &left, &right, value);
}

static bool eval_unary(const zp_evaluator *e, const zp_expr *expr, zp_value *value) {
  zp_value operand;
  if (!zp_evaluate(e, expr->left, &operand)) return false;
  if (operand.kind == ZP_VAL_TENSOR) return e->tensor_operator(e->user, expr, &operand, NULL, value);
  zp_value_kind wanted = expr->op == ZP_OPR_NOT ? ZP_VAL_BOOL : ZP_VAL_NUMBER;
  if (operand.kind != wanted) return reject_operands(e, expr, &operand, NULL);
  *value = operand;
  value->extent = NULL;
  value->span = expr->span;
  value->number = expr->op == ZP_OPR_NOT ? operand.number == 0 : -operand.number;
  return true;
}

/* Values as Python writes them. */
static void help_with_python(zp_diag *d, const char *name) {
  if (strcmp(name, "True") == 0 || strcmp(name, "False") == 0)
    zp_diag_help(d, "write `%s`", *name == 'T' ? "true" : "false");
  else if (strcmp(name, "None") == 0)
    zp_diag_help(d, "leave the line out: what is not written has its default");
}

static bool eval_number(const zp_evaluator *e, const zp_expr *expr, zp_value *value) {
  *value = zp_number_value(expr->number, expr->is_integer, expr->span);
  if (!expr->unit) return true;
  if (!zp_unit_convert(expr->number, expr->unit, &value->number, &value->dimension)) {
    zp_diag *d = zp_report(e->diags, ZP_Z0212, expr->span, "unknown unit `%s`", expr->unit);
    zp_diag_help(d, "sizes are written `32GB` or `16GiB`, bandwidths `25GB/s` or `100Gbps`, rates `125TFLOPS`, times "
                    "`5us`, shares `92%%`");
    return false;
  }
  value->is_integer = value->number == floor(value->number) && value->dimension == ZP_DIM_BYTES;
  return true;
}

static bool eval_name(const zp_evaluator *e, const zp_expr *expr, zp_value *value) {
  const char *name = zp_dotted_name(e->arena, expr);
  const zp_value *found = name ? zp_scope_get(e->scope, name) : NULL;
  if (!name) {
    zp_report(e->diags, ZP_Z0202, expr->at, "this value has no fields");
    return false;
  }
  if (found) {
    if (e->seen) e->seen(e->user, expr, found);
    *value = *found;
    value->span = expr->span;
    if (value->kind == ZP_VAL_TENSOR && e->tensor_name) return e->tensor_name(e->user, expr, value);
    return value->kind != ZP_VAL_POISON;
  }
  if (strcmp(name, "dropless") == 0) {
    *value = zp_number_value(DROPLESS, false, expr->span);
    return true;
  }
  if (strcmp(name, "B") == 0) {
    zp_diag *d = zp_report(e->diags, ZP_Z0219, expr->span, "`B` is not a number here");
    zp_diag_note(d, "the planner chooses the micro-batch size; `B` may only be written as the first size of a shape");
    return false;
  }
  zp_strings names = {0};
  zp_scope_names(e->arena, e->scope, &names);
  zp_diag *d = zp_report(e->diags, ZP_Z0203, expr->span, "unknown name `%s`", name);
  if (!zp_help_foreign(d, name) && !zp_diag_did_you_mean(d, name, names.data, names.len)) help_with_python(d, name);
  return false;
}

static bool eval_list(const zp_evaluator *e, const zp_expr *expr, zp_value *value) {
  *value = (zp_value){.kind = ZP_VAL_LIST, .span = expr->span};
  bool ok = true;
  for (int i = 0; i < expr->args.len; i++) {
    zp_value item;
    if (!zp_evaluate(e, expr->args.data[i].value, &item))
      ok = false;
    else if (item.kind == ZP_VAL_TENSOR) {
      zp_report(e->diags, ZP_Z0202, item.span, "a list cannot hold tensors");
      ok = false;
    } else
      zp_push(e->arena, &value->list, item);
  }
  return ok;
}

/* sqrt(n) and rsqrt(n) of numbers; everything else that looks like a call is refused. */
static bool eval_number_call(const zp_evaluator *e, const zp_expr *expr, zp_value *value) {
  const char *name = zp_dotted_name(e->arena, expr->left);
  bool is_sqrt = name && strcmp(name, "sqrt") == 0;
  if (!is_sqrt && !(name && strcmp(name, "rsqrt") == 0)) {
    zp_diag *d = zp_report(e->diags, ZP_Z0215, expr->at, "`%s` cannot be called here", name ? name : "this value");
    zp_diag_note(d, "values outside models may use arithmetic, `sqrt` and `rsqrt`");
    return false;
  }
  zp_value operand;
  if (expr->args.len != 1 || expr->args.data[0].name.text) {
    zp_report(e->diags, ZP_Z0214, expr->at, "`%s` takes one number", name);
    return false;
  }
  if (!zp_evaluate(e, expr->args.data[0].value, &operand)) return false;
  return zp_eval_root(e->diags, expr, &operand, is_sqrt, value);
}

bool zp_eval_root(zp_diags *diags, const zp_expr *call, const zp_value *operand, bool is_sqrt, zp_value *value) {
  const char *name = is_sqrt ? "sqrt" : "rsqrt";
  if (operand->kind != ZP_VAL_NUMBER || operand->dimension != ZP_DIM_NONE) {
    zp_report(diags, ZP_Z0202, operand->span, "`%s` needs a plain number, this is %s", name,
              zp_value_kind_name(operand));
    return false;
  }
  if (operand->number < 0 || (!is_sqrt && operand->number == 0)) {
    zp_report(diags, ZP_Z0213, operand->span, "`%s` of %g is not defined", name, operand->number);
    return false;
  }
  double root = sqrt(operand->number);
  *value = zp_number_value(is_sqrt ? root : 1 / root, false, call->span);
  return true;
}

bool zp_evaluate(const zp_evaluator *e, const zp_expr *expr, zp_value *value) {
  switch (expr->kind) {
  case ZP_EXPR_NUMBER: return eval_number(e, expr, value);
  case ZP_EXPR_STRING: *value = (zp_value){.kind = ZP_VAL_STRING, .text = expr->text, .span = expr->span}; return true;
  case ZP_EXPR_BOOL: *value = bool_value(expr->number != 0, expr->span); return true;
  case ZP_EXPR_NAME:
  case ZP_EXPR_FIELD: return eval_name(e, expr, value);
  case ZP_EXPR_LIST: return eval_list(e, expr, value);
  case ZP_EXPR_UNARY: return eval_unary(e, expr, value);
  case ZP_EXPR_BINARY: return eval_binary(e, expr, value);
  case ZP_EXPR_CALL: return e->call ? e->call(e->user, expr, value) : eval_number_call(e, expr, value);
  case ZP_EXPR_INDEX: zp_report(e->diags, ZP_Z0202, expr->at, "indexing is not part of expressions"); return false;
  }
  return false;
}

bool zp_eval(zp_arena *arena, zp_diags *diags, const zp_scope *scope, const zp_expr *expr, zp_value *value) {
  zp_evaluator evaluator = {.arena = arena, .diags = diags, .scope = scope};
  return zp_evaluate(&evaluator, expr, value);
}
