/* SPDX-License-Identifier: Apache-2.0 */
/* Means, slices and joins of positions in plain loops, position by position of whole samples: what is not on the rank
 * is left out. */
#include <string.h>
#include "interpret_internal.h"

/* Positions of a tensor [B, S, d] or [S, d]: where the rank's begin in whole samples, how many it has. */
typedef struct stretch {
  int64_t first, count;
} stretch;

static stretch stretch_of(const zp_interpreter *in, int tensor) {
  const zp_tensor *t = &in->graph->tensors.data[tensor];
  int64_t count = t->shape.dim[t->shape.rank - 2];
  return (stretch){t->split_dim == 1 && t->shape.rank == 3 ? in->rank * count : 0, count};
}

static bool is_in(stretch s, int64_t position) { return position >= s.first && position < s.first + s.count; }

static void mean(zp_interpreter *in, const zp_node *node) {
  const double *x = zp_in_value(in, node, 0);
  double *y = zp_out_value(in, node, 0);
  int64_t S = zp_in_shape(in, node->in.data[0])->dim[1], d = zp_shape_cols(zp_in_shape(in, node->in.data[0]));
  for (int64_t i = 0; i < in->microbatch * d; i++) {
    y[i] = 0;
    for (int64_t s = 0; s < S; s++) y[i] += x[(i / d * S + s) * d + i % d];
    y[i] *= node->attr.value;
  }
}

static void mean_grad(zp_interpreter *in, const zp_node *node) {
  const double *dy = zp_in_value(in, node, 0);
  double *dx = zp_out_value(in, node, 0);
  int64_t S = zp_in_shape(in, node->out.data[0])->dim[1], d = zp_shape_cols(zp_in_shape(in, node->out.data[0]));
  for (int64_t i = 0; i < in->microbatch * S * d; i++) dx[i] = node->attr.value * dy[i / (S * d) * d + i % d];
}

/* y[b][k] is x[b][begin + k]. */
static void slice(zp_interpreter *in, const zp_node *node) {
  const double *x = zp_in_value(in, node, 0);
  double *y = zp_out_value(in, node, 0);
  stretch has = stretch_of(in, node->in.data[0]);
  int64_t count = node->attr.count ? node->attr.count : 1, d = zp_shape_cols(zp_in_shape(in, node->in.data[0]));
  for (int64_t i = 0; i < in->microbatch * count * d; i++) {
    int64_t b = i / (count * d), position = node->attr.begin + i / d % count;
    y[i] = is_in(has, position) ? x[(b * has.count + position - has.first) * d + i % d] : 0;
  }
}

static void slice_grad(zp_interpreter *in, const zp_node *node) {
  const double *dy = zp_in_value(in, node, 0);
  double *dx = zp_out_value(in, node, 0);
  stretch wants = stretch_of(in, node->out.data[0]);
  int64_t count = node->attr.count ? node->attr.count : 1, d = zp_shape_cols(zp_in_shape(in, node->out.data[0]));
  for (int64_t i = 0; i < in->microbatch * wants.count * d; i++) {
    int64_t b = i / (wants.count * d), k = wants.first + i / d % wants.count - node->attr.begin;
    dx[i] = k >= 0 && k < count ? dy[(b * count + k) * d + i % d] : 0;
  }
}

static void concat(zp_interpreter *in, const zp_node *node) {
  double *y = zp_out_value(in, node, 0);
  stretch wants = stretch_of(in, node->out.data[0]);
  int64_t d = zp_shape_cols(zp_in_shape(in, node->out.data[0]));
  for (int64_t i = 0; i < in->microbatch * wants.count * d; i++) {
    int64_t b = i / (wants.count * d), position = wants.first + i / d % wants.count;
    int from = 0;
    for (; position >= stretch_of(in, node->in.data[from]).count; from++)
      position -= stretch_of(in, node->in.data[from]).count;
    bool shared = zp_in_shape(in, node->in.data[from])->rank == 2;
    int64_t S = stretch_of(in, node->in.data[from]).count;
    y[i] = zp_in_value(in, node, from)[((shared ? 0 : b * S) + position) * d + i % d];
  }
}

/* y[b][i] is x[b][index[b][i]]; positions of other ranks give zeros. grad: backward, dy into dx. */
static void gather_either_way(zp_interpreter *in, const zp_node *node, bool grad) {
  const zp_shape *index = zp_in_shape(in, node->in.data[1]);
  int which = grad ? node->out.data[0] : node->in.data[0];
  stretch has = stretch_of(in, which);
  int64_t d = zp_shape_cols(zp_in_shape(in, which)), n = index->rank == 2 ? index->dim[1] : 1;
  double *y = zp_out_value(in, node, 0);
  if (grad) memset(y, 0, sizeof(double) * (size_t)(in->microbatch * has.count * d));
  for (int64_t i = 0; i < in->microbatch * n * d; i++) {
    int64_t position = (int64_t)zp_in_value(in, node, 1)[i / d], b = i / (n * d);
    int64_t at = (b * has.count + position - has.first) * d + i % d;
    if (grad && is_in(has, position)) y[at] += zp_in_value(in, node, 0)[i];
    if (!grad) y[i] = is_in(has, position) ? zp_in_value(in, node, 0)[at] : 0;
  }
}

static void reshape(zp_interpreter *in, const zp_node *node) {
  int64_t n = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  memcpy(zp_out_value(in, node, 0), zp_in_value(in, node, 0), sizeof(double) * (size_t)n);
}

static void transpose(zp_interpreter *in, const zp_node *node) {
  const zp_shape *x = zp_in_shape(in, node->in.data[0]);
  int64_t S = x->dim[1], d = x->dim[2];
  for (int64_t i = 0; i < in->microbatch * S * d; i++) {
    int64_t b = i / (S * d), s = i / d % S, c = i % d;
    zp_out_value(in, node, 0)[(b * d + c) * S + s] = zp_in_value(in, node, 0)[i];
  }
}

/* The window along one dimension that has a position at a place; -1: none. */
static int64_t window_at(const zp_windows *w, int dimension, int64_t position, int64_t place) {
  int64_t from = position + w->padding[dimension] - place;
  if (from < 0 || from % w->stride[dimension]) return -1;
  return from / w->stride[dimension] < zp_windows_count(w, dimension) ? from / w->stride[dimension] : -1;
}

/* Every position in every window of the rank that has it, at its place. grad: backward, where those are summed. */
static void unfold_either_way(zp_interpreter *in, const zp_node *node, bool grad) {
  const zp_windows *w = node->attr.windows;
  int x = grad ? node->out.data[0] : node->in.data[0], y = grad ? node->in.data[0] : node->out.data[0];
  int64_t S = zp_in_shape(in, x)->dim[1], C = zp_in_shape(in, x)->dim[2], places = zp_windows_places(w);
  stretch has = stretch_of(in, y);
  double *to = zp_out_value(in, node, 0);
  const double *from = zp_in_value(in, node, 0);
  memset(to, 0, sizeof(double) * (size_t)(in->microbatch * (grad ? S * C : has.count * C * places)));
  for (int64_t i = 0; i < in->microbatch * S * places; i++) {
    int64_t b = i / (S * places), s = i / places % S, place = i % places;
    int64_t down = window_at(w, 0, s / w->size[1], place / w->kernel[1]);
    int64_t right = window_at(w, 1, s % w->size[1], place % w->kernel[1]);
    int64_t window = down * zp_windows_count(w, 1) + right, row = b * has.count + window - has.first;
    for (int64_t c = 0; down >= 0 && right >= 0 && is_in(has, window) && c < C; c++) {
      int64_t folded = (b * S + s) * C + c, unfolded = (row * C + c) * places + place;
      if (grad)
        to[folded] += from[unfolded];
      else
        to[unfolded] = from[folded];
    }
  }
}

static void gather(zp_interpreter *in, const zp_node *node) { gather_either_way(in, node, false); }
static void gather_grad(zp_interpreter *in, const zp_node *node) { gather_either_way(in, node, true); }
static void unfold(zp_interpreter *in, const zp_node *node) { unfold_either_way(in, node, false); }
static void unfold_grad(zp_interpreter *in, const zp_node *node) { unfold_either_way(in, node, true); }

const zp_oracle zp_oracle_MEAN = {.node = mean};
const zp_oracle zp_oracle_MEAN_GRAD = {.node = mean_grad};
const zp_oracle zp_oracle_SLICE = {.node = slice};
const zp_oracle zp_oracle_SLICE_GRAD = {.node = slice_grad};
const zp_oracle zp_oracle_CONCAT = {.node = concat};
const zp_oracle zp_oracle_GATHER = {.node = gather};
const zp_oracle zp_oracle_GATHER_GRAD = {.node = gather_grad};
const zp_oracle zp_oracle_RESHAPE = {.node = reshape};
const zp_oracle zp_oracle_TRANSPOSE = {.node = transpose};
const zp_oracle zp_oracle_UNFOLD = {.node = unfold};
const zp_oracle zp_oracle_UNFOLD_GRAD = {.node = unfold_grad};
