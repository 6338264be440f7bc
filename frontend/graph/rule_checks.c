/* SPDX-License-Identifier: Apache-2.0 */
/* What shape rules ask of operands, and how they answer. */
#include <assert.h>
#include <math.h>
#include "ops.h"

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
  zp_element found = zp_rule_operand(rule, i)->element;
  zp_diag *d =
      zp_rule_fail(rule, ZP_Z0206, "operand %d of `%s` must hold %s, but `%s` holds %s", i + 1, zp_op_name(rule->op),
                   element_name[want], zp_rule_operand(rule, i)->name, element_name[found]);
  for (int j = i + 1; j < rule->n_in; j++)
    if (zp_rule_operand(rule, j)->element == want)
      return zp_rule_help(
                 d, zp_format(rule->graph->arena, "operand %d holds %s: swap the two", j + 1, element_name[want])),
             false;
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

bool zp_want_whole(zp_rule *rule, int i) {
  if (zp_rule_operand(rule, i)->base < 0) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0216, "`%s` of `%s`, a part of a split, is known but not built yet",
                            zp_op_name(rule->op), zp_rule_operand(rule, i)->name),
               "apply it to what is split, or to something that is computed from the part");
  return false;
}

bool zp_want_samples(zp_rule *rule, int i) {
  return zp_want_activation(rule, i) && zp_want_rank(rule, i, 3) && zp_want_whole(rule, i);
}

bool zp_want_heads(zp_rule *rule, int i, int64_t heads, const char *what) {
  int64_t cols = zp_shape_cols(zp_rule_shape(rule, i));
  if (!zp_want_positive(rule, what, (double)heads)) return false;
  if (cols % heads || (rule->attr.head_size && cols / heads != rule->attr.head_size)) {
    zp_diag *diag;
    if (cols % heads)
      diag = zp_rule_fail(rule, ZP_Z0205, "%lld %s do not divide the %lld columns of `%s` %s", (long long)heads, what,
                          (long long)cols, zp_rule_operand(rule, i)->name, zp_rule_text(rule, i));
    else
      diag =
          zp_rule_fail(rule, ZP_Z0205, "`%s` %s has %lld columns, not %lld %s of %lld", zp_rule_operand(rule, i)->name,
                       zp_rule_text(rule, i), (long long)cols, (long long)heads, what, (long long)rule->attr.head_size);
    zp_rule_help(diag, "columns = heads * head size, with one head size for q, k and v");
    return false;
  }
  rule->attr.head_size = cols / heads;
  return true;
}

/* ---- answers that several operations give ---- */

void zp_rule_keep_shape(zp_rule *rule) {
  if (zp_want_activation(rule, 0)) zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

int64_t zp_rule_positions(const zp_tensor *x) { return x->split_dim == 1 ? x->full_dim : x->shape.dim[1]; }

zp_shape zp_rule_without_positions(const zp_shape *x) {
  zp_shape shape = {.rank = 2, .dim = {x->dim[0]}};
  zp_rule_put_dim(&shape, 1, x, 2);
  return shape;
}

bool zp_rule_apply(zp_rule *rule) {
  assert(zp_op_takes(rule->op, rule->n_in));
  rule->error = NULL;
  rule->n_out = 0;
  zp_op_get_row(rule->op)->rule(rule);
  return rule->error == NULL;
}
