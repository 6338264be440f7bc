/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the graph layer share: short builders, two reference layers, and a gradient check. */
#ifndef GRAPH_TESTING_H
#define GRAPH_TESTING_H

#include <criterion/criterion.h>
#include <math.h>
#include <zplan/philox.h>
#include "../oracle/interpret.h"

/* ---- builders ---- */
typedef struct kit {
  zp_arena *arena;
  zp_diags *diags;
  zp_model *model;
  zp_graph *graph; /* of the one segment */
  int64_t sequence;
  int streams;
} kit;

static inline zp_shape shape1(int64_t a) { return (zp_shape){.rank = 1, .dim = {a}}; }
static inline zp_shape shape2(int64_t a, int64_t b) { return (zp_shape){.rank = 2, .dim = {a, b}}; }
static inline zp_shape shape3(int64_t a, int64_t b, int64_t c) { return (zp_shape){.rank = 3, .dim = {a, b, c}}; }

/* One segment with n_carry carried tensors [B, S, cols]. */
static inline kit kit_new(int64_t sequence, int n_carry, int64_t cols) {
  kit k = {.arena = zp_arena_new("test"), .sequence = sequence};
  k.diags = zp_diags_new(k.arena);
  k.model = zp_model_new(k.arena, "test");
  zp_shape carry[4];
  const char *names[4] = {"x", "x1", "x2", "x3"};
  for (int i = 0; i < n_carry; i++) carry[i] = shape3(ZP_DIM_B, sequence, cols);
  zp_model_add_input(k.model, "tokens", shape2(ZP_DIM_B, sequence), ZP_NO_SPAN);
  zp_model_add_input(k.model, "labels", shape2(ZP_DIM_B, sequence), ZP_NO_SPAN);
  k.graph = zp_model_add_segment(k.model, "h", 3, true, carry, names, n_carry, ZP_NO_SPAN)->graph;
  return k;
}
static inline void kit_free(kit *k) { zp_arena_free(k->arena); }

static inline int param(kit *k, const char *name, zp_shape shape) {
  zp_param p = {.name = name, .shape = shape, .init_b = 0.1, .segment = 0, .span = ZP_NO_SPAN};
  return zp_graph_param(k->graph, k->model, zp_model_add_param(k->model, p));
}
static inline int apply(kit *k, zp_op op, zp_op_attr attr, const char *name, int a, int b, int c) {
  int in[3] = {a, b, c}, n = 0;
  while (n < 3 && in[n] >= 0) n++;
  return zp_graph_apply(k->graph, k->diags, op, in, n, attr, name, ZP_NO_SPAN);
}
static inline int op1(kit *k, zp_op op, int a) { return apply(k, op, (zp_op_attr){0}, zp_op_name(op), a, -1, -1); }
static inline int op2(kit *k, zp_op op, int a, int b) {
  return apply(k, op, (zp_op_attr){0}, zp_op_name(op), a, b, -1);
}
static inline int64_t cols(const kit *k, int t) { return zp_shape_cols(&k->graph->tensors.data[t].shape); }
static inline int linear(kit *k, const char *name, int x, int64_t out, bool bias) {
  int w = param(k, zp_format(k->arena, "%s.weight", name), shape2(out, cols(k, x)));
  int y = apply(k, ZP_OP_MATMUL, (zp_op_attr){.trans = true}, name, x, w, -1);
  return bias ? apply(k, ZP_OP_ADD, (zp_op_attr){0}, name, y,
                      param(k, zp_format(k->arena, "%s.bias", name), shape1(out)), -1)
              : y;
}
static inline int layer_norm(kit *k, const char *name, int x) {
  return apply(k, ZP_OP_LAYER_NORM, (zp_op_attr){.eps = 1e-5}, name, x,
               param(k, zp_format(k->arena, "%s.weight", name), shape1(cols(k, x))),
               param(k, zp_format(k->arena, "%s.bias", name), shape1(cols(k, x))));
}
static inline int rms_norm(kit *k, const char *name, int x) {
  return apply(k, ZP_OP_RMS_NORM, (zp_op_attr){.eps = 1e-5}, name, x,
               param(k, zp_format(k->arena, "%s.weight", name), shape1(cols(k, x))), -1);
}
static inline int dropout(kit *k, const char *name, int x, double rate) {
  return apply(k, ZP_OP_DROPOUT, (zp_op_attr){.rate = rate, .stream = k->streams++}, name, x, -1, -1);
}
static inline void carry_out(kit *k, int t) { zp_push(k->arena, &k->graph->carry_out, t); }

/* GPT-2's layer on the first carried tensor. */
static inline void gpt_layer(kit *k, int64_t heads, double rate) {
  int x = k->graph->carry_in.data[0];
  int64_t d = cols(k, x);
  int qkv = linear(k, "c_attn", layer_norm(k, "ln_1", x), 3 * d, true);
  int q = apply(k, ZP_OP_SPLIT, (zp_op_attr){.parts = 3}, "qkv", qkv, -1, -1);
  int y = apply(k, ZP_OP_ATTENTION, (zp_op_attr){.heads = heads, .causal = true}, "y", q, q + 1, q + 2);
  int a = op2(k, ZP_OP_ADD, x, dropout(k, "drop_1", linear(k, "c_proj", y, d, true), rate));
  int h = apply(k, ZP_OP_GELU, (zp_op_attr){.tanh_form = true}, "gelu",
                linear(k, "c_fc", layer_norm(k, "ln_2", a), 4 * d, true), -1, -1);
  carry_out(k, op2(k, ZP_OP_ADD, a, dropout(k, "drop_2", linear(k, "mlp.c_proj", h, d, true), rate)));
}

/* LLaMA's layer: RMS norm, rope, grouped keys and values, SwiGLU. */
static inline void llama_layer(kit *k, int64_t heads, int64_t kv_heads, int64_t ff) {
  int x = k->graph->carry_in.data[0];
  int64_t d = cols(k, x), kv = d / heads * kv_heads;
  int n = rms_norm(k, "attention_norm", x);
  zp_op_attr turn_q = {.heads = heads, .theta = 10000}, turn_k = {.heads = kv_heads, .theta = 10000};
  int q = apply(k, ZP_OP_ROPE, turn_q, "rope_q", linear(k, "wq", n, d, false), -1, -1);
  int key = apply(k, ZP_OP_ROPE, turn_k, "rope_k", linear(k, "wk", n, kv, false), -1, -1);
  int value = linear(k, "wv", n, kv, false);
  zp_op_attr attention = {.heads = heads, .kv_heads = kv_heads, .causal = true};
  int y = apply(k, ZP_OP_ATTENTION, attention, "y", q, key, value);
  int a = op2(k, ZP_OP_ADD, x, linear(k, "wo", y, d, false));
  int m = rms_norm(k, "ffn_norm", a);
  int gate = op1(k, ZP_OP_SILU, linear(k, "w1", m, ff, false));
  int h = op2(k, ZP_OP_MUL, gate, linear(k, "w3", m, ff, false));
  carry_out(k, op2(k, ZP_OP_ADD, a, linear(k, "w2", h, d, false)));
}

static inline void must_be_sound(kit *k, const zp_graph *graph) {
  const char *wrong = zp_graph_check(k->arena, graph);
  cr_assert_null(wrong, "%s\n%s", wrong, zp_graph_text(k->arena, graph));
}

static inline zp_graph *differentiated(kit *k) {
  must_be_sound(k, k->graph);
  zp_graph *local = zp_graph_localize_trivial(k->graph);
  must_be_sound(k, local);
  zp_graph *fused = zp_fuse(local);
  must_be_sound(k, fused);
  zp_graph *graph = zp_differentiate(fused);
  must_be_sound(k, graph);
  return graph;
}

/* As GPUs have it: products with epilogues. */
static inline zp_graph *folded(kit *k) {
  zp_graph *forward = zp_fold_epilogues(zp_fuse(zp_graph_localize_trivial(k->graph)));
  must_be_sound(k, forward);
  zp_graph *graph = zp_fold_gradients(zp_differentiate(forward), true);
  must_be_sound(k, graph);
  return graph;
}

static inline int count_nodes(const zp_graph *graph, zp_op op) {
  int n = 0;
  for (int i = 0; i < graph->nodes.len; i++) n += graph->nodes.data[i].op == op;
  return n;
}

/* ---- the gradient check ---- */

/* A reproducible value in [-1, 1) for element i of array `which`. */
static inline double test_value(int which, int64_t i) {
  return 2 * zp_philox_uniform(11, 0, 0, (uint64_t)which, 0, (uint64_t)i) - 1;
}

enum { TEST_BATCH = 2 };

/* Same values for both graphs: tensors that come from outside keep their indices through the passes. Parameters are
 * around `center` so that norm weights and divisors are not near zero. */
static inline void fill_outside(zp_interpreter *in, int64_t vocabulary, double center) {
  for (int t = 0; t < in->graph->tensors.len; t++) {
    const zp_tensor *tensor = &in->graph->tensors.data[t];
    int64_t n = zp_shape_elements(&tensor->shape, TEST_BATCH);
    for (int64_t i = 0; i < n; i++) {
      double v = test_value(t, i);
      if (tensor->role == ZP_ROLE_PARAM) in->value[t][i] = center + 0.5 * v;
      if (tensor->role == ZP_ROLE_CARRY_IN) in->value[t][i] = v;
      if (tensor->role == ZP_ROLE_INPUT)
        in->value[t][i] = tensor->element == ZP_ELEM_I32 ? floor((v + 1) / 2 * (double)vocabulary) : v;
      if (tensor->role == ZP_ROLE_INPUT && tensor->shape.rank == 1) /* lengths, and labels that are less */
        in->value[t][i] = (double)((strcmp(tensor->name, "lengths") == 0 ? 3 : 1) - i % 2);
      if (tensor->role == ZP_ROLE_INPUT && strcmp(tensor->name, "documents") == 0) {
        int64_t position = i % tensor->shape.dim[1]; /* two, and nothing after them */
        in->value[t][i] = position < 2 + i / tensor->shape.dim[1] ? 3 : position < tensor->shape.dim[1] - 1 ? 7 : -1;
      }
      if (tensor->role == ZP_ROLE_GRAD_IN) in->value[t][i] = test_value(1000 + tensor->index, i);
    }
  }
  in->seed = 5, in->step = 3, in->first_sample = 40, in->instance = 2;
  in->loss_scale = 1.0 / TEST_BATCH;
}

/* What the gradients are of: the loss plus the carried tensors times the incoming gradients. */
static inline double objective(zp_interpreter *in) {
  in->loss = in->balance = 0;
  zp_interpret(in, 0, in->graph->nodes.len);
  double sum = in->loss + in->balance;
  for (int i = 0; i < in->graph->carry_out.len; i++) {
    int t = in->graph->carry_out.data[i];
    int64_t n = zp_shape_elements(&in->graph->tensors.data[t].shape, TEST_BATCH);
    for (int64_t e = 0; e < n; e++) sum += in->value[t][e] * test_value(1000 + i, e);
  }
  return sum;
}

/* Fourth-order central difference, (8 f(h) - 8 f(-h) - f(2h) + f(-2h)) / 12h. With h = 1e-3 its truncation error is
 * h^4/30 times the fifth derivative (3e-14 of it) and its rounding error about 1e-16 |f| / h (1e-11 for |f| ~ 100): far
 * below the asserted 1e-6 of the largest gradient of the tensor, far above the chance of passing with a wrong rule. */
static inline double difference(zp_interpreter *in, double *x) {
  const double h = 1e-3, at = *x;
  double f[4], step[4] = {h, -h, 2 * h, -2 * h};
  for (int i = 0; i < 4; i++) {
    *x = at + step[i];
    f[i] = objective(in);
  }
  *x = at;
  return (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * h);
}

/* Compares up to 16 elements, spread over the tensor. */
static inline void compare_gradient(zp_interpreter *logical, int tensor, const double *gradient, const char *text) {
  int64_t n = zp_shape_elements(&logical->graph->tensors.data[tensor].shape, TEST_BATCH), step = n / 16 + 1;
  double largest = 1e-3;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(gradient[i]));
  for (int64_t i = 0; i < n; i += step) {
    double expected = difference(logical, &logical->value[tensor][i]);
    cr_assert(fabs(expected - gradient[i]) <= 1e-6 * largest, "%s[%lld]: %.12g by differences, %.12g by derivative\n%s",
              logical->graph->tensors.data[tensor].name, (long long)i, expected, gradient[i], text);
  }
}

/* Differences of the logical graph, op by op, against one that was fused and differentiated. */
static inline void check_graph(kit *k, zp_graph *graph, int64_t vocabulary, double center) {
  const char *text = zp_graph_text(k->arena, graph);
  zp_interpreter *in = zp_interpreter_new(k->arena, graph, TEST_BATCH);
  zp_interpreter *logical = zp_interpreter_new(k->arena, k->graph, TEST_BATCH);
  fill_outside(in, vocabulary, center);
  fill_outside(logical, vocabulary, center);
  double plain = objective(logical), fused = objective(in);
  cr_assert(fabs(plain - fused) <= 1e-12 * fmax(1, fabs(plain)), "unfused %.17g, fused %.17g", plain, fused);
  for (int i = 0; i < graph->params.len; i++)
    compare_gradient(logical, graph->params.data[i].tensor, in->param_grad[i], text);
  cr_assert_eq(graph->grad_out.len, graph->carry_in.len);
  for (int i = 0; i < graph->grad_out.len; i++)
    compare_gradient(logical, graph->carry_in.data[i], in->value[graph->grad_out.data[i]], text);
}

/* With every group a kernel of its own, whose graph is returned, and with products that take groups in. */
static inline zp_graph *check_gradients(kit *k, int64_t vocabulary, double center) {
  zp_graph *graph = differentiated(k);
  check_graph(k, graph, vocabulary, center);
  check_graph(k, folded(k), vocabulary, center);
  return graph;
}

#endif
