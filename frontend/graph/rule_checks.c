/* What shape rules ask of operands, and how they answer. */
#include <math.h>
#include "rules.h"

const zp_tensor *zp_rule_operand(const zp_rule *rule, int i) { return &rule->graph->tensors.data[rule->in[i]]; }
const zp_shape *zp_rule_shape(const zp_rule *rule, int i) { return &zp_rule_operand(rule, i)->shape; }
const char *zp_rule_text(const zp_rule *rule, int i) {
  return zp_shape_text(rule->graph->arena, zp_rule_shape(rule, i));
}

zp_diag *zp_rule_fail(zp_rule *rule, zp_diag_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  rule->error = zp_vformat(rule->graph->arena, format, args);
  va_end(args);
  return rule->diags ? zp_report(rule->diags, code, rule->span, "%s", rule->error) : NULL;
}

void zp_rule_help(zp_diag *diag, const char *text) {
  if (diag) zp_diag_help(diag, "%s", text);
}

void zp_rule_answer(zp_rule *rule, zp_element element, zp_shape shape) {
  rule->element[rule->n_out] = element;
  rule->shape[rule->n_out++] = shape;
}

void zp_rule_put_dim(zp_shape *to, int i, const zp_shape *from, int j) {
  to->dim[i] = from->dim[j];
  to->extent[i] = from->extent[j];
}

zp_shape zp_rule_with_last(const zp_shape *shape, int64_t last, const zp_extent *extent) {
  zp_shape result = *shape;
  result.dim[result.rank - 1] = last;
  result.extent[result.rank - 1] = extent;
  return result;
}

zp_shape zp_rule_with_last_of(const zp_shape *shape, const zp_shape *from, int j) {
  return zp_rule_with_last(shape, from->dim[j], from->extent[j]);
}

void zp_rule_resize(const zp_rule *rule, zp_shape *shape, int i, int64_t size) {
  zp_shape_resize(rule->graph->arena, shape, i, size);
}

/* ---- checks shared by rules; false after reporting ---- */

static const char *const element_name[] = {"floating point values", "i32 ids", "row statistics"};

bool zp_want_element(zp_rule *rule, int i, zp_element want) {
  if (zp_rule_operand(rule, i)->element == want) return true;
  zp_rule_fail(rule, ZP_Z0206, "operand %d of `%s` must hold %s, but `%s` holds %s", i + 1, zp_op_name(rule->op),
               element_name[want], zp_rule_operand(rule, i)->name, element_name[zp_rule_operand(rule, i)->element]);
  return false;
}

bool zp_want_param(zp_rule *rule, int i) {
  if (zp_rule_operand(rule, i)->role == ZP_ROLE_PARAM) return true;
  zp_rule_help(
      zp_rule_fail(rule, ZP_Z0207, "operand %d of `%s` must be a parameter, but `%s` is computed", i + 1,
                   zp_op_name(rule->op), zp_rule_operand(rule, i)->name),
      "matrices, embedding tables, norm weights and broadcast operands are trained directly; declare a `param`");
  return false;
}

bool zp_want_activation(zp_rule *rule, int i) {
  const zp_tensor *t = zp_rule_operand(rule, i);
  if (!zp_want_element(rule, i, ZP_ELEM_FLOAT)) return false;
  if (t->role != ZP_ROLE_PARAM && t->shape.rank >= 2 && t->shape.dim[0] == ZP_DIM_B) return true;
  zp_rule_help(
      zp_rule_fail(rule, ZP_Z0207, "operand %d of `%s` must be an activation, but `%s` %s is %s", i + 1,
                   zp_op_name(rule->op), t->name, zp_rule_text(rule, i),
                   t->role == ZP_ROLE_PARAM ? "a parameter" : "not one"),
      "activations have the micro-batch B as their first dimension; apply the op to the result of `embedding` or "
      "`matmul`");
  return false;
}

bool zp_want_rank(zp_rule *rule, int i, int rank) {
  if (zp_rule_shape(rule, i)->rank == rank) return true;
  zp_rule_fail(rule, ZP_Z0209, "operand %d of `%s` must have %d dimensions, but `%s` is %s", i + 1,
               zp_op_name(rule->op), rank, zp_rule_operand(rule, i)->name, zp_rule_text(rule, i));
  return false;
}

bool zp_want_same_shape(zp_rule *rule, int i, int j) {
  if (zp_shape_equal(zp_rule_shape(rule, i), zp_rule_shape(rule, j))) return true;
  zp_rule_fail(rule, ZP_Z0204, "operands %d and %d of `%s` must have one shape, but `%s` is %s and `%s` is %s", i + 1,
               j + 1, zp_op_name(rule->op), zp_rule_operand(rule, i)->name, zp_rule_text(rule, i),
               zp_rule_operand(rule, j)->name, zp_rule_text(rule, j));
  return false;
}

bool zp_want_positive(zp_rule *rule, const char *what, double value) {
  if (value > 0 && isfinite(value)) return true;
  zp_rule_fail(rule, ZP_Z0208, "`%s` of `%s` must be positive, not %g", what, zp_op_name(rule->op), value);
  return false;
}

bool zp_want_labels(zp_rule *rule, int ids, int rows) {
  const zp_shape *a = zp_rule_shape(rule, ids), *b = zp_rule_shape(rule, rows);
  if (!zp_want_element(rule, ids, ZP_ELEM_I32)) return false;
  bool fits = a->rank >= 1 && a->rank <= 2 && b->rank == a->rank + 1;
  for (int i = 0; fits && i < a->rank; i++) fits = a->dim[i] == b->dim[i];
  if (fits) return true;
  zp_rule_fail(rule, ZP_Z0204, "`%s` needs one label per row, but `%s` is %s and `%s` is %s", zp_op_name(rule->op),
               zp_rule_operand(rule, rows)->name, zp_rule_text(rule, rows), zp_rule_operand(rule, ids)->name,
               zp_rule_text(rule, ids));
  return false;
}
