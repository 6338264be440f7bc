/* SPDX-License-Identifier: Apache-2.0 */
/* Several losses of a model: `0.5 * start + 0.5 * end`, a sum of cross-entropies and squared errors times numbers. No
 * node computes the sum: every loss keeps its weight, by which its gradient is multiplied, and is logged by itself as
 * well. */
#include <math.h>
#include "elaborate.h"

static const zp_handle *handle_of(const zp_elab *e, const zp_value *value) { return &e->handles.data[value->tensor]; }

bool zp_elab_is_loss(const zp_elab *e, const zp_value *value) {
  return value->kind == ZP_VAL_TENSOR && handle_of(e, value)->kind != ZP_HANDLE_ITERATION &&
         zp_elab_value_element(e, value) == ZP_ELEM_STAT && zp_elab_value_shape(e, value).rank == 0;
}

zp_loss_terms zp_elab_loss_terms(zp_elab *e, const zp_value *value) {
  const zp_handle *handle = handle_of(e, value);
  if (handle->kind == ZP_HANDLE_LOSSES) return e->sums.data[handle->sum];
  zp_loss_terms alone = {0};
  zp_push(e->arena, &alone, ((zp_loss_term){handle->index, 1}));
  return alone;
}

static void add_term(zp_elab *e, zp_loss_terms *sum, zp_loss_term term) {
  for (int i = 0; i < sum->len; i++) {
    if (sum->data[i].tensor != term.tensor) continue;
    sum->data[i].weight += term.weight;
    return;
  }
  zp_push(e->arena, sum, term);
}

/* sum += factor * the terms of value */
static void add_terms(zp_elab *e, zp_loss_terms *sum, const zp_value *value, double factor) {
  zp_loss_terms terms = zp_elab_loss_terms(e, value);
  for (int i = 0; i < terms.len; i++)
    add_term(e, sum, (zp_loss_term){terms.data[i].tensor, factor * terms.data[i].weight});
}

static bool give(zp_elab *e, const zp_expr *expr, zp_loss_terms sum, zp_value *value) {
  zp_push(e->arena, &e->sums, sum);
  zp_handle handle = {
      .kind = ZP_HANDLE_LOSSES, .segment = e->segment, .index = sum.data[0].tensor, .sum = e->sums.len - 1};
  *value = zp_elab_tensor(e, handle, expr->span);
  return true;
}

static bool refuse(zp_elab *e, const zp_expr *expr) {
  zp_diag *d = zp_report(e->diags, ZP_Z0227, expr->at, "losses are added, and multiplied by numbers above 0");
  zp_diag_help(d, "`output loss = 0.5 * start_loss + 0.5 * end_loss`");
  return false;
}

bool zp_elab_loss_operator(zp_elab *e, const zp_expr *expr, const zp_value *left, const zp_value *right,
                           zp_value *value) {
  zp_loss_terms sum = {0};
  if (!right) return refuse(e, expr);
  const zp_value *loss = zp_elab_is_loss(e, left) ? left : right, *other = loss == left ? right : left;
  if (expr->op == ZP_OPR_ADD && zp_elab_is_loss(e, other)) {
    add_terms(e, &sum, left, 1);
    add_terms(e, &sum, right, 1);
    return give(e, expr, sum, value);
  }
  bool scales = expr->op == ZP_OPR_MUL || (expr->op == ZP_OPR_DIV && loss == left);
  if (!scales || other->kind != ZP_VAL_NUMBER || other->dimension != ZP_DIM_NONE) return refuse(e, expr);
  double factor = expr->op == ZP_OPR_DIV ? 1 / other->number : other->number;
  if (!(factor > 0 && isfinite(factor))) return refuse(e, expr);
  add_terms(e, &sum, loss, factor);
  return give(e, expr, sum, value);
}
