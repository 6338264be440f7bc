/* Shape rules of positions: what one number is made of them, some of them, one behind the other; other shapes of the
 * same elements; windows over them. */
#include "rules.h"

/* Positions of whole samples, also where x is a rank's share of them. */
static int64_t positions_of(const zp_tensor *x) { return x->split_dim == 1 ? x->full_dim : x->shape.dim[1]; }

static zp_shape without_positions(const zp_shape *x) {
  zp_shape shape = {.rank = 2, .dim = {x->dim[0]}};
  zp_rule_put_dim(&shape, 1, x, 2);
  return shape;
}

void zp_rule_mean(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  if (rule->attr.value == 0) rule->attr.value = 1 / (double)positions_of(zp_rule_operand(rule, 0));
  zp_rule_answer(rule, ZP_ELEM_FLOAT, without_positions(zp_rule_shape(rule, 0)));
}

void zp_rule_slice(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!zp_want_samples(rule, 0)) return;
  int64_t count = attr->count ? attr->count : 1, positions = positions_of(zp_rule_operand(rule, 0));
  if (attr->begin < 0 || count < 1 || attr->begin >= positions || count > positions - attr->begin) {
    zp_rule_fail(rule, ZP_Z0208, "`%s` has positions 0 to %lld, not %lld to %lld", zp_rule_operand(rule, 0)->name,
                 (long long)positions - 1, (long long)attr->begin, (long long)(attr->begin + count - 1));
    return;
  }
  zp_shape some = *zp_rule_shape(rule, 0);
  some.dim[1] = count;
  some.extent[1] = NULL;
  zp_rule_answer(rule, ZP_ELEM_FLOAT, attr->count ? some : without_positions(&some));
}

/* Rows of every sample, or of a parameter: the same rows of all samples. */
static bool want_rows_of_samples(zp_rule *rule, int i) {
  if (zp_rule_operand(rule, i)->role != ZP_ROLE_PARAM) return zp_want_samples(rule, i);
  return zp_want_element(rule, i, ZP_ELEM_FLOAT) && zp_want_rank(rule, i, 2);
}

void zp_rule_concat(zp_rule *rule) {
  if (!want_rows_of_samples(rule, 0) || !want_rows_of_samples(rule, 1)) return;
  int of_samples = zp_rule_operand(rule, 0)->role == ZP_ROLE_PARAM;
  if (of_samples == 1 && !zp_want_samples(rule, 1)) return;
  const zp_shape *a = zp_rule_shape(rule, 0), *b = zp_rule_shape(rule, 1);
  if (zp_shape_cols(a) != zp_shape_cols(b)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0204, "cannot put `%s` %s and `%s` %s one behind the other",
                              zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name,
                              zp_rule_text(rule, 1)),
                 "both are [B, positions, d], or a parameter [positions, d] for all samples, with one d");
    return;
  }
  zp_arena *arena = rule->graph->arena;
  zp_shape joined = *zp_rule_shape(rule, of_samples);
  joined.extent[1] = zp_extent_sum(arena, a->extent[a->rank - 2], b->extent[b->rank - 2]);
  joined.dim[1] = a->dim[a->rank - 2] + b->dim[b->rank - 2];
  if (rule->attr.parts > 1) zp_rule_resize(rule, &joined, 1, joined.dim[1] / rule->attr.parts);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, joined);
}

/* A sum over the positions is a mean times their number. */
void zp_rule_reduce(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  if (rule->attr.value == 0) rule->attr.value = 1;
  zp_rule_answer(rule, ZP_ELEM_FLOAT, without_positions(zp_rule_shape(rule, 0)));
}

void zp_rule_gather(zp_rule *rule) {
  if (!zp_want_samples(rule, 0) || !zp_want_element(rule, 1, ZP_ELEM_I32)) return;
  const zp_shape *index = zp_rule_shape(rule, 1);
  if (zp_rule_operand(rule, 1)->role != ZP_ROLE_INPUT || index->rank > 2) {
    zp_rule_fail(rule, ZP_Z0204, "`index` of `gather` is an input i32[B, n] or i32[B], not `%s` %s",
                 zp_rule_operand(rule, 1)->name, zp_rule_text(rule, 1));
    return;
  }
  zp_shape taken = *zp_rule_shape(rule, 0);
  if (index->rank == 2) zp_rule_put_dim(&taken, 1, index, 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, index->rank == 2 ? taken : without_positions(&taken));
}

/* The shape of whole samples, and of a rank's share of the positions: a share of them as well. */
static bool reshaped(zp_rule *rule, zp_shape *shape) {
  const zp_tensor *x = zp_rule_operand(rule, 0);
  int64_t ways = x->split_dim == 1 ? x->full_dim / x->shape.dim[1] : 1;
  *shape = (zp_shape){.rank = 1, .dim = {ZP_DIM_B}};
  for (; shape->rank < ZP_MAX_RANK && rule->attr.to[shape->rank - 1] > 0; shape->rank++)
    shape->dim[shape->rank] = rule->attr.to[shape->rank - 1];
  if (ways > 1 && shape->dim[1] % ways) return false;
  if (ways > 1) shape->dim[1] /= ways;
  return shape->rank > 1;
}

void zp_rule_reshape(zp_rule *rule) {
  zp_shape shape;
  if (!zp_want_activation(rule, 0) || !zp_want_whole(rule, 0)) return;
  if (!reshaped(rule, &shape) || zp_shape_elements(&shape, 1) != zp_shape_elements(zp_rule_shape(rule, 0), 1)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0204, "`%s` %s has %lld elements a sample, %s has %lld",
                              zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0),
                              (long long)zp_shape_elements(zp_rule_shape(rule, 0), 1),
                              zp_shape_text(rule->graph->arena, &shape), (long long)zp_shape_elements(&shape, 1)),
                 "`reshape(x, n, m)` is [B, n, m]: the sizes behind B, with one product");
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

void zp_rule_transpose(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  const zp_shape *x = zp_rule_shape(rule, 0);
  zp_shape turned = *x;
  zp_rule_put_dim(&turned, 1, x, 2);
  zp_rule_put_dim(&turned, 2, x, 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, turned);
}

/* Windows lie in the picture, but for the padding, which is less than a window: each sees something. */
static bool windows_fit(zp_rule *rule, int64_t positions) {
  static const char *const axis[] = {"rows", "columns"};
  const zp_windows *w = rule->attr.windows;
  const char *name = zp_rule_operand(rule, 0)->name;
  for (int i = 0; i < 2; i++)
    if (!zp_want_positive(rule, "kernel", (double)w->kernel[i]) ||
        !zp_want_positive(rule, "stride", (double)w->stride[i]) ||
        !zp_want_positive(rule, "height", (double)w->size[i]))
      return false;
  if (w->size[0] * w->size[1] != positions) {
    zp_rule_fail(rule, ZP_Z0205, "the %lld positions of `%s` are no %lld rows of equal length", (long long)positions,
                 name, (long long)w->size[0]);
    return false;
  }
  for (int i = 0; i < 2; i++) {
    const char *what = w->size[0] == 1 && i == 1 ? "positions" : axis[i];
    if (w->padding[i] < 0 || w->padding[i] >= w->kernel[i]) {
      zp_rule_help(zp_rule_fail(rule, ZP_Z0208, "`padding` is %lld, and a window has %lld %s", (long long)w->padding[i],
                                (long long)w->kernel[i], what),
                   "a window sees something of its operand: the padding is less than the kernel, and 0 or more");
      return false;
    }
    if (zp_windows_count(w, i) >= 1) continue;
    zp_rule_help(zp_rule_fail(rule, ZP_Z0208, "a window of %lld %s is larger than `%s`, which has %lld%s",
                              (long long)w->kernel[i], what, name, (long long)w->size[i],
                              w->padding[i] ? " and the padding on both sides" : ""),
                 "take a smaller kernel, or padding");
    return false;
  }
  return true;
}

void zp_rule_unfold(zp_rule *rule) {
  const zp_windows *w = rule->attr.windows;
  if (!zp_want_samples(rule, 0) || !windows_fit(rule, positions_of(zp_rule_operand(rule, 0)))) return;
  zp_windows *own = ZP_NEW(rule->graph->arena, zp_windows);
  *own = *w;
  rule->attr.windows = own;
  zp_shape shape = *zp_rule_shape(rule, 0);
  shape.dim[1] = zp_windows_count(w, 0) * zp_windows_count(w, 1);
  shape.extent[1] = NULL;
  if (rule->attr.parts > 1) zp_rule_resize(rule, &shape, 1, shape.dim[1] / rule->attr.parts);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(&shape, shape.dim[2] * zp_windows_places(w), NULL));
}
