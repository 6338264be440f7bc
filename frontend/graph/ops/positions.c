/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of samples copied: some of them, one after the other, by number, in another shape, in windows. */
#include "ops.h"

static void rule_slice(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!zp_want_samples(rule, 0)) return;
  int64_t count = attr->count ? attr->count : 1, positions = zp_rule_positions(zp_rule_operand(rule, 0));
  if (attr->begin < 0 || count < 1 || attr->begin >= positions || count > positions - attr->begin) {
    zp_rule_fail(rule, ZP_Z0208, "`%s` has positions 0 to %lld, not %lld to %lld", zp_rule_operand(rule, 0)->name,
                 (long long)positions - 1, (long long)attr->begin, (long long)(attr->begin + count - 1));
    return;
  }
  zp_shape some = *zp_rule_shape(rule, 0);
  some.dim[1] = count;
  some.extent[1] = NULL;
  zp_rule_answer(rule, ZP_ELEM_FLOAT, attr->count ? some : zp_rule_without_positions(&some));
}

static void diff_slice(zp_diff_pass *pass, const zp_node *node) { zp_diff_of_result(pass, node, ZP_OP_SLICE_GRAD); }

/* Rows of every sample, or of a parameter: the same rows of all samples. */
static bool want_rows_of_samples(zp_rule *rule, int i) {
  if (zp_rule_operand(rule, i)->role != ZP_ROLE_PARAM) return zp_want_samples(rule, i);
  return zp_want_element(rule, i, ZP_ELEM_FLOAT) && zp_want_rank(rule, i, 2);
}

static void rule_concat(zp_rule *rule) {
  if (!want_rows_of_samples(rule, 0) || !want_rows_of_samples(rule, 1)) return;
  int of_samples = zp_rule_operand(rule, 0)->role == ZP_ROLE_PARAM;
  if (of_samples == 1 && !zp_want_samples(rule, 1)) return;
  const zp_shape *a = zp_rule_shape(rule, 0), *b = zp_rule_shape(rule, 1);
  if (zp_shape_cols(a) != zp_shape_cols(b)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0204, "cannot put `%s` %s and `%s` %s one after the other",
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

static void parts_concat(zp_parts_pass *pass, const zp_node *node) {
  for (int i = 0; i < node->in.len; i++) {
    int x = node->in.data[i];
    zp_parts_tie(pass, x, zp_parts_last_dim(pass, x), node->out.data[0], 2);
  }
}

/* Positions of dy that operand i stands at, [B, positions, d]. */
static zp_node slice_of(const zp_node *node, int dy, const zp_shape *operand, int64_t begin, zp_arena *arena) {
  zp_node slice = zp_diff_node(node, ZP_OP_SLICE);
  slice.attr = (zp_op_attr){.begin = begin, .count = operand->dim[operand->rank - 2]};
  zp_push(arena, &slice.in, dy);
  return slice;
}

/* What all samples share has their gradients' sum, as a learned position has. */
static void diff_shared_rows(zp_diff_pass *pass, const zp_node *node, zp_node slice, int param) {
  zp_shape rows = pass->graph->tensors.data[node->out.data[0]].shape;
  const zp_tensor *t = &pass->graph->tensors.data[param];
  rows.dim[1] = slice.attr.count;
  rows.extent[1] = NULL;
  const char *name = zp_format(pass->arena, "%s.rows", t->name);
  int each = zp_graph_add_tensor(pass->graph, zp_tensor_make(name, ZP_ELEM_FLOAT, rows, node->span));
  pass->graph->tensors.data[each].parts[2] = pass->graph->tensors.data[node->out.data[0]].parts[2];
  zp_push(pass->arena, &slice.out, each);
  zp_graph_add_node(pass->graph, slice);
  zp_node sum = zp_diff_node(node, ZP_OP_POSITION_GRAD);
  zp_diff_add_in(pass, &sum, each);
  zp_diff_add_param_grad(pass, &sum, param);
  zp_graph_add_node(pass->graph, sum);
}

static void diff_concat(zp_diff_pass *pass, const zp_node *node) {
  int dy = zp_diff_total(pass, node->out.data[0]);
  int64_t begin = 0;
  for (int i = 0; i < node->in.len; i++) {
    int x = node->in.data[i];
    const zp_shape shape = pass->graph->tensors.data[x].shape;
    zp_node slice = slice_of(node, dy, &shape, begin, pass->arena);
    begin += slice.attr.count;
    if (zp_diff_trains(pass, x)) {
      diff_shared_rows(pass, node, slice, x);
    } else if (pass->needs[x]) {
      zp_diff_add_gradient_of(pass, &slice, x);
      zp_graph_add_node(pass->graph, slice);
    }
  }
}

static void rule_gather(zp_rule *rule) {
  if (!zp_want_samples(rule, 0) || !zp_want_element(rule, 1, ZP_ELEM_I32)) return;
  const zp_shape *index = zp_rule_shape(rule, 1);
  if (zp_rule_operand(rule, 1)->role != ZP_ROLE_INPUT || index->rank > 2) {
    zp_rule_fail(rule, ZP_Z0204, "`index` of `gather` is an input i32[B, n] or i32[B], not `%s` %s",
                 zp_rule_operand(rule, 1)->name, zp_rule_text(rule, 1));
    return;
  }
  zp_shape taken = *zp_rule_shape(rule, 0);
  if (index->rank == 2) zp_rule_put_dim(&taken, 1, index, 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, index->rank == 2 ? taken : zp_rule_without_positions(&taken));
}

static zp_input_range range_of_positions(zp_input *input, const zp_graph *graph, const zp_node *node, int i) {
  (void)input, (void)i;
  return (zp_input_range){0, graph->tensors.data[node->in.data[0]].shape.dim[1]};
}

static void diff_gather(zp_diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_GATHER_GRAD);
  zp_diff_add_in(pass, &grad, zp_diff_total(pass, node->out.data[0]));
  zp_diff_add_in(pass, &grad, node->in.data[1]);
  zp_diff_add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
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

static void rule_reshape(zp_rule *rule) {
  zp_shape shape;
  if (!zp_want_activation(rule, 0) || !zp_want_whole(rule, 0)) return;
  if (!reshaped(rule, &shape) || zp_shape_elements(&shape, 1) != zp_shape_elements(zp_rule_shape(rule, 0), 1)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0204, "`%s` %s has %lld elements a sample, %s has %lld",
                              zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0),
                              (long long)zp_shape_elements(zp_rule_shape(rule, 0), 1),
                              zp_shape_text(rule->graph->arena, &shape), (long long)zp_shape_elements(&shape, 1)),
                 "`reshape(x, n, m)` is [B, n, m]: the sizes after B, with one product");
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Only shares of the positions go through another shape, and those are equal. */
static void parts_reshape(zp_parts_pass *pass, const zp_node *node) {
  int x = node->in.data[0], y = node->out.data[0];
  zp_parts_require(pass, x, zp_parts_last_dim(pass, x), zp_parts_whole());
  zp_parts_require(pass, y, zp_parts_last_dim(pass, y), zp_parts_whole());
}

static void diff_reshape(zp_diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_RESHAPE);
  const zp_tensor *x = &pass->graph->tensors.data[node->in.data[0]];
  for (int i = 1; i < ZP_MAX_RANK; i++)
    grad.attr.to[i - 1] = i >= x->shape.rank ? 0 : i == x->split_dim ? x->full_dim : x->shape.dim[i];
  zp_diff_add_in(pass, &grad, zp_diff_total(pass, node->out.data[0]));
  zp_diff_add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

static void rule_transpose(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  const zp_shape *x = zp_rule_shape(rule, 0);
  zp_shape turned = *x;
  zp_rule_put_dim(&turned, 1, x, 2);
  zp_rule_put_dim(&turned, 2, x, 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, turned);
}

static void parts_transpose(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_tie(pass, node->in.data[0], 1, node->out.data[0], 2);
  zp_parts_tie(pass, node->in.data[0], 2, node->out.data[0], 1);
}

static void diff_transpose(zp_diff_pass *pass, const zp_node *node) { zp_diff_of_result(pass, node, ZP_OP_TRANSPOSE); }

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

static void rule_unfold(zp_rule *rule) {
  const zp_windows *w = rule->attr.windows;
  if (!zp_want_samples(rule, 0) || !windows_fit(rule, zp_rule_positions(zp_rule_operand(rule, 0)))) return;
  zp_windows *own = ZP_NEW(rule->graph->arena, zp_windows);
  *own = *w;
  rule->attr.windows = own;
  zp_shape shape = *zp_rule_shape(rule, 0);
  shape.dim[1] = zp_windows_count(w, 0) * zp_windows_count(w, 1);
  shape.extent[1] = NULL;
  if (rule->attr.parts > 1) zp_rule_resize(rule, &shape, 1, shape.dim[1] / rule->attr.parts);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(&shape, shape.dim[2] * zp_windows_places(w), NULL));
}

/* A channel is a column for every place of a window. */
static void parts_unfold(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_tie(pass, node->out.data[0], 2, node->in.data[0], 2);
}

static void diff_unfold(zp_diff_pass *pass, const zp_node *node) { zp_diff_of_result(pass, node, ZP_OP_UNFOLD_GRAD); }

/* They only copy; gradients add what was taken several times. */
const zp_op_row zp_op_row_SLICE = {
    .rule = rule_slice, .parts = zp_parts_of_columns, .bytes = zp_bytes_of_result_twice, .differentiate = diff_slice};
const zp_op_row zp_op_row_SLICE_GRAD = {0};
const zp_op_row zp_op_row_CONCAT = {.rule = rule_concat, .parts = parts_concat, .differentiate = diff_concat};
const zp_op_row zp_op_row_GATHER = {.rule = rule_gather,
                                    .range = range_of_positions,
                                    .parts = zp_parts_of_columns,
                                    .bytes = zp_bytes_of_result_twice,
                                    .differentiate = diff_gather};
const zp_op_row zp_op_row_GATHER_GRAD = {.flop = zp_flop_of_operand};
const zp_op_row zp_op_row_RESHAPE = {.rule = rule_reshape, .parts = parts_reshape, .differentiate = diff_reshape};
const zp_op_row zp_op_row_TRANSPOSE = {
    .rule = rule_transpose, .parts = parts_transpose, .differentiate = diff_transpose};
const zp_op_row zp_op_row_UNFOLD = {.rule = rule_unfold, .parts = parts_unfold, .differentiate = diff_unfold};
const zp_op_row zp_op_row_UNFOLD_GRAD = {.flop = zp_flop_of_operand};
