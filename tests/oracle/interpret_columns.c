/* SPDX-License-Identifier: Apache-2.0 */
/* Columns in plain loops: one of them, those of every head, and one number made of an axis. */
#include <math.h>
#include "interpret_internal.h"

/* One column of every position that the rank has; both tensors have the same positions. */
static void column(zp_interpreter *in, const zp_node *node) {
  int64_t n = zp_shape_cols(zp_in_shape(in, node->in.data[0]));
  int64_t rows = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  for (int64_t i = 0; i < rows; i++) zp_out_value(in, node, 0)[i] = zp_in_value(in, node, 0)[i * n + node->attr.begin];
}

static void column_grad(zp_interpreter *in, const zp_node *node) {
  int64_t n = zp_shape_cols(zp_in_shape(in, node->out.data[0]));
  int64_t elements = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  for (int64_t i = 0; i < elements; i++)
    zp_out_value(in, node, 0)[i] = i % n == node->attr.begin ? zp_in_value(in, node, 0)[i / n] : 0;
}

/* The numbers x[0], x[step], .. that one result is made of: *top the largest, *first where it first stands. */
static double reduced(const zp_op_attr *attr, const double *x, int64_t n, int64_t step, double *top, int64_t *first) {
  double sum = 0;
  *top = x[0], *first = 0;
  for (int64_t i = 1; i < n; i++)
    if (x[i * step] > *top) *top = x[i * step], *first = i;
  for (int64_t i = 0; i < n; i++) sum += attr->reduction == ZP_REDUCE_SUM ? x[i * step] : exp(x[i * step] - *top);
  if (attr->reduction == ZP_REDUCE_SUM) return sum * attr->value;
  return attr->reduction == ZP_REDUCE_MAX ? *top : *top + log(sum);
}

static double slope(const zp_op_attr *attr, double x, double y, bool is_top) {
  if (attr->reduction == ZP_REDUCE_SUM) return 1;
  return attr->reduction == ZP_REDUCE_MAX ? is_top : exp(x - y);
}

/* [outer, n, inner] -> [outer, inner]. */
static void reduce(zp_interpreter *in, const zp_node *node) {
  bool grad = node->op == ZP_OP_REDUCE_GRAD, columns = grad ? node->attr.last : node->op == ZP_OP_REDUCE_COLUMNS;
  const zp_shape *x = zp_in_shape(in, node->in.data[0]);
  int64_t n = columns ? x->dim[2] : x->dim[1], inner = columns ? 1 : x->dim[2];
  int64_t lines = zp_shape_elements(x, in->microbatch) / n, first;
  double top, *out = zp_out_value(in, node, 0);
  for (int64_t r = 0; r < lines; r++) {
    int64_t at = r / inner * n * inner + r % inner;
    const double *from = zp_in_value(in, node, 0) + at;
    double y = reduced(&node->attr, from, n, inner, &top, &first);
    if (!grad) out[r] = y;
    for (int64_t i = 0; grad && i < n; i++)
      out[at + i * inner] =
          zp_in_value(in, node, 1)[r] * node->attr.value * slope(&node->attr, from[i * inner], y, i == first);
  }
}

/* Head by head: columns of x from begin on, zeros where there are none. */
static void columns(zp_interpreter *in, const zp_node *node) {
  const zp_op_attr *attr = &node->attr;
  int64_t width = zp_shape_cols(zp_in_shape(in, node->in.data[0])) / attr->heads;
  int64_t n = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  for (int64_t i = 0; i < n; i++) {
    int64_t from = attr->begin + i % attr->count;
    zp_out_value(in, node, 0)[i] =
        from >= 0 && from < width ? zp_in_value(in, node, 0)[i / attr->count * width + from] : 0;
  }
}

static void join_columns(zp_interpreter *in, const zp_node *node) {
  int64_t a = zp_shape_cols(zp_in_shape(in, node->in.data[0])) / node->attr.heads,
          b = zp_shape_cols(zp_in_shape(in, node->in.data[1])) / node->attr.heads;
  int64_t n = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  for (int64_t i = 0; i < n; i++) {
    int64_t head = i / (a + b), column = i % (a + b);
    zp_out_value(in, node, 0)[i] =
        column < a ? zp_in_value(in, node, 0)[head * a + column] : zp_in_value(in, node, 1)[head * b + column - a];
  }
}

static void repeat_columns(zp_interpreter *in, const zp_node *node) {
  int64_t width = zp_shape_cols(zp_in_shape(in, node->in.data[0]));
  int64_t n = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  for (int64_t i = 0; i < n; i++)
    zp_out_value(in, node, 0)[i] = zp_in_value(in, node, 0)[i / (width * node->attr.heads) * width + i % width];
}

static void repeat_grad(zp_interpreter *in, const zp_node *node) {
  int64_t width = zp_shape_cols(zp_in_shape(in, node->out.data[0]));
  int64_t n = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  for (int64_t i = 0; i < n; i++) {
    const double *dy = zp_in_value(in, node, 0) + i / width * node->attr.heads * width + i % width;
    zp_out_value(in, node, 0)[i] = 0;
    for (int64_t h = 0; h < node->attr.heads; h++) zp_out_value(in, node, 0)[i] += dy[h * width];
  }
}

const zp_oracle zp_oracle_COLUMN = {.node = column};
const zp_oracle zp_oracle_COLUMN_GRAD = {.node = column_grad};
const zp_oracle zp_oracle_REDUCE = {.node = reduce};
const zp_oracle zp_oracle_REDUCE_COLUMNS = {.node = reduce};
const zp_oracle zp_oracle_REDUCE_GRAD = {.node = reduce};
const zp_oracle zp_oracle_COLUMNS = {.node = columns};
const zp_oracle zp_oracle_JOIN_COLUMNS = {.node = join_columns};
const zp_oracle zp_oracle_REPEAT_COLUMNS = {.node = repeat_columns};
const zp_oracle zp_oracle_REPEAT_GRAD = {.node = repeat_grad};
