/* Shape rules of columns: one number of all of them, one of them, those of every head taken out, joined or repeated. */
#include "rules.h"

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

void zp_rule_column(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  const zp_shape *x = zp_rule_shape(rule, 0);
  if (rule->attr.begin < 0 || rule->attr.begin >= zp_shape_cols(x)) {
    zp_rule_fail(rule, ZP_Z0208, "`%s` has columns 0 to %lld, not %lld", zp_rule_operand(rule, 0)->name,
                 (long long)zp_shape_cols(x) - 1, (long long)rule->attr.begin);
    return;
  }
  zp_shape shape = {.rank = 2, .dim = {x->dim[0]}};
  zp_rule_put_dim(&shape, 1, x, 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

void zp_rule_reduce_columns(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  const zp_shape *x = zp_rule_shape(rule, 0);
  if (rule->attr.value == 0) rule->attr.value = 1;
  zp_shape shape = {.rank = 2, .dim = {x->dim[0]}};
  zp_rule_put_dim(&shape, 1, x, 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Columns of one head; 0 after reporting. */
static int64_t columns_of_head(zp_rule *rule, int i) {
  int64_t heads = rule->attr.heads, cols = zp_shape_cols(zp_rule_shape(rule, i));
  if (!zp_want_positive(rule, "heads", (double)heads)) return 0;
  if (cols % heads == 0) return cols / heads;
  zp_rule_fail(rule, ZP_Z0205, "%lld heads do not divide the %lld columns of `%s` %s", (long long)heads,
               (long long)cols, zp_rule_operand(rule, i)->name, zp_rule_text(rule, i));
  return 0;
}

void zp_rule_columns(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!zp_want_samples(rule, 0) || !zp_want_positive(rule, "count", (double)attr->count)) return;
  int64_t width = columns_of_head(rule, 0);
  if (!width) return;
  if (attr->begin >= width || attr->begin + attr->count <= 0) {
    zp_rule_fail(rule, ZP_Z0208, "heads of `%s` have columns 0 to %lld, not %lld to %lld",
                 zp_rule_operand(rule, 0)->name, (long long)width - 1, (long long)attr->begin,
                 (long long)(attr->begin + attr->count - 1));
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(zp_rule_shape(rule, 0), attr->heads * attr->count, NULL));
}

void zp_rule_join_columns(zp_rule *rule) {
  if (!zp_want_samples(rule, 0) || !zp_want_samples(rule, 1) || !columns_of_head(rule, 0) || !columns_of_head(rule, 1))
    return;
  const zp_shape *a = zp_rule_shape(rule, 0), *b = zp_rule_shape(rule, 1);
  if (a->dim[1] != b->dim[1]) {
    zp_rule_fail(rule, ZP_Z0204, "cannot put the columns of `%s` %s and `%s` %s side by side",
                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name,
                 zp_rule_text(rule, 1));
    return;
  }
  const zp_extent *both = zp_extent_sum(rule->graph->arena, a->extent[2], b->extent[2]);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(a, a->dim[2] + b->dim[2], both));
}

void zp_rule_repeat_columns(zp_rule *rule) {
  if (!zp_want_samples(rule, 0) || !zp_want_positive(rule, "heads", (double)rule->attr.heads)) return;
  const zp_shape *x = zp_rule_shape(rule, 0);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(x, x->dim[2] * rule->attr.heads, NULL));
}
