/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of whole graphs whose groups run as row programs, against central differences of the logical graph, which
 * is interpreted op by op: no derivative and no simplification of codegen/rowprog is on that side.
 *
 * Expressions are chains of steps. All pairs of steps, with the value between them read inside the group only or
 * outside as well (then backward reads it from memory), longer chains drawn at random, and those that once went
 * wrong. */
#include <zplan/buf.h>
#include "rowprog_testing.h"

enum { N = 4 };

/* What an expression may read besides the value that it goes on with. */
typedef struct operands {
  kit *k;
  int x, r, columns, position;
} operands;

/* ---- steps ---- */

static int with(const operands *o, zp_op op, zp_op_attr attr, int y) {
  return apply(o->k, op, attr, zp_op_name(op), y, -1, -1);
}
static int times(const operands *o, int y, double c) { return with(o, ZP_OP_MUL_CONST, (zp_op_attr){.value = c}, y); }
static int plus(const operands *o, int y, double c) { return with(o, ZP_OP_ADD_CONST, (zp_op_attr){.value = c}, y); }
static int two(const operands *o, zp_op op, int a, int b) { return op2(o->k, op, a, b); }
static int one(const operands *o, zp_op op, int y) { return op1(o->k, op, y); }

/* (const operands *o, int y) -> the next value */
#define STEPS(X)                                                                                                       \
  X(negate, times(o, y, -1))                                                                                           \
  X(twice, times(o, y, 2))                                                                                             \
  X(half, times(o, y, 0.5))                                                                                            \
  X(times_one, times(o, y, 1))                                                                                         \
  X(times_zero, times(o, y, 0))                                                                                        \
  X(plus_zero, plus(o, y, 0))                                                                                          \
  X(plus_three, plus(o, y, 3))                                                                                         \
  X(one_minus, plus(o, times(o, y, -1), 1))                                                                            \
  X(two_over, two(o, ZP_OP_DIV, plus(o, times(o, y, 0), 2), y))                                                        \
  X(exponential, one(o, ZP_OP_EXP, y))                                                                                 \
  X(logarithm, one(o, ZP_OP_LOG, y))                                                                                   \
  X(root, one(o, ZP_OP_SQRT, y))                                                                                       \
  X(inverse_root, one(o, ZP_OP_RSQRT, y))                                                                              \
  X(hyperbolic, one(o, ZP_OP_TANH, y))                                                                                 \
  X(logistic, one(o, ZP_OP_SIGMOID, y))                                                                                \
  X(ramp, one(o, ZP_OP_RELU, y))                                                                                       \
  X(leaky_ramp, with(o, ZP_OP_LEAKY_RELU, (zp_op_attr){.value = 0.3}, y))                                              \
  X(swish, one(o, ZP_OP_SILU, y))                                                                                      \
  X(gelu_tanh, with(o, ZP_OP_GELU, (zp_op_attr){.tanh_form = true}, y))                                                \
  X(gelu_erf, with(o, ZP_OP_GELU, (zp_op_attr){.tanh_form = false}, y))                                                \
  X(normal, one(o, ZP_OP_SOFTMAX, y))                                                                                  \
  X(layer, layer_norm(o->k, "layer", y))                                                                               \
  X(rms, rms_norm(o->k, "rms", y))                                                                                     \
  X(unit, with(o, ZP_OP_L2_NORM, (zp_op_attr){.eps = 1e-3}, y))                                                        \
  X(drop, dropout(o->k, "drop", y, 0.25))                                                                              \
  X(turn, with(o, ZP_OP_ROPE, (zp_op_attr){.heads = 1, .theta = 100}, y))                                              \
  X(turn_pairs, with(o, ZP_OP_ROPE, (zp_op_attr){.heads = 1, .theta = 100, .interleaved = true}, y))                   \
  X(double_it, two(o, ZP_OP_ADD, y, y))                                                                                \
  X(cancel, two(o, ZP_OP_SUB, y, y))                                                                                   \
  X(square, two(o, ZP_OP_MUL, y, y))                                                                                   \
  X(ratio_of_itself, two(o, ZP_OP_DIV, y, y))                                                                          \
  X(add_x, two(o, ZP_OP_ADD, o->x, y))                                                                                 \
  X(subtract_x, two(o, ZP_OP_SUB, y, o->x))                                                                            \
  X(subtract_from_x, two(o, ZP_OP_SUB, o->x, y))                                                                       \
  X(multiply_x, two(o, ZP_OP_MUL, o->x, y))                                                                            \
  X(divide_x, two(o, ZP_OP_DIV, y, o->x))                                                                              \
  X(divide_into_x, two(o, ZP_OP_DIV, o->x, y))                                                                         \
  X(gate_r, two(o, ZP_OP_MUL, y, o->r))                                                                                \
  X(subtract_from_r, two(o, ZP_OP_SUB, o->r, y))                                                                       \
  X(add_columns, two(o, ZP_OP_ADD, y, o->columns))                                                                     \
  X(subtract_from_columns, two(o, ZP_OP_SUB, o->columns, y))                                                           \
  X(scale_columns, two(o, ZP_OP_MUL, o->columns, y))                                                                   \
  X(divide_columns, two(o, ZP_OP_DIV, y, o->columns))                                                                  \
  X(subtract_position, two(o, ZP_OP_SUB, y, o->position))                                                              \
  X(scale_position, two(o, ZP_OP_MUL, y, o->position))

#define DEFINE(name, expression)                                                                                       \
  static int name(const operands *o, int y) { return expression; }
STEPS(DEFINE)
#undef DEFINE

typedef int step_maker(const operands *o, int y);
static const struct {
  const char *name;
  step_maker *make;
} steps[] = {
#define ROW(name, expression) {#name, name},
    STEPS(ROW)
#undef ROW
};
enum { N_STEPS = sizeof steps / sizeof *steps };

/* ---- one model: its graph by programs, its logical graph by the oracle ---- */

typedef struct model {
  row_world w;             /* differentiated; run by programs */
  zp_interpreter *logical; /* op by op */
} model;

/* Numbers in [0.5, 1.5), so that roots, logarithms and quotients of the operands exist; incoming gradients have any
 * sign. */
static void fill(zp_interpreter *in) {
  for (int t = 0; t < in->graph->tensors.len; t++) {
    const zp_tensor *tensor = &in->graph->tensors.data[t];
    if (tensor->producer >= 0) continue;
    int64_t n = zp_shape_elements(&tensor->shape, ROW_B);
    for (int64_t i = 0; i < n; i++) {
      if (tensor->role == ZP_ROLE_PARAM || tensor->role == ZP_ROLE_CARRY_IN)
        in->value[t][i] = 1 + 0.5 * test_value(t, i);
      if (tensor->role == ZP_ROLE_GRAD_IN) in->value[t][i] = test_value(1000 + tensor->index, i);
      if (tensor->role == ZP_ROLE_INPUT) in->value[t][i] = floor((1 + test_value(t, i)) / 2 * N);
    }
  }
  in->seed = 5, in->step = 3, in->first_sample = 40, in->instance = 2;
  in->loss_scale = 1.0 / ROW_ROWS;
}

static model model_new(kit k) {
  model m = {.w = {.k = k}};
  m.w.graph = differentiated(&m.w.k);
  m.w.in = zp_interpreter_new(k.arena, m.w.graph, ROW_B);
  m.logical = zp_interpreter_new(k.arena, k.graph, ROW_B);
  fill(m.w.in);
  fill(m.logical);
  return m;
}

/* The loss plus the carried tensors times their incoming gradients. */
static double total(zp_interpreter *in) {
  in->loss = in->balance = 0;
  zp_interpret(in, 0, in->graph->nodes.len);
  double sum = in->loss;
  for (int i = 0; i < in->graph->carry_out.len; i++) {
    int t = in->graph->carry_out.data[i];
    for (int64_t e = 0; e < zp_shape_elements(&in->graph->tensors.data[t].shape, ROW_B); e++)
      sum += in->value[t][e] * test_value(1000 + i, e);
  }
  return sum;
}

static void run_fused(row_world *w, const zp_node *node) {
  row_call call = row_call_new(w, node, 0, ZPK_F64);
  row_call_run(&call, run_interpreter, zp_row_from_node(w->k.arena, NULL, node), 1);
  for (int o = 0; o < call.n_out; o++)
    memcpy(w->in->value[node->out.data[o]], call.out[o], sizeof(double) * (size_t)(ROW_ROWS * call.out_cols[o]));
  for (int p = 0; p < call.n_partial; p++)
    for (int64_t j = 0; j < call.partial_cols[p]; j++)
      w->in->param_grad[node->param_grad.data[p]][j] += column_sum(&call, p, j);
}

static void run_programs(row_world *w) {
  for (int i = 0; i < w->graph->nodes.len; i++) {
    const zp_node *node = &w->graph->nodes.data[i];
    if (is_fused(node))
      run_fused(w, node);
    else
      zp_interpret(w->in, i, i + 1);
  }
}

static void move(double *x, int64_t n, double distance) {
  for (int64_t i = 0; i < n; i++) x[i] += distance * test_value(2000, i);
}

/* The derivative of the total along one direction through all elements of a tensor, by central differences. */
static double along(zp_interpreter *in, int tensor, double h) {
  int64_t n = zp_shape_elements(&in->graph->tensors.data[tensor].shape, ROW_B);
  double *x = in->value[tensor];
  move(x, n, h);
  double above = total(in);
  move(x, n, -2 * h);
  double below = total(in);
  move(x, n, h);
  return (above - below) / (2 * h);
}

/* A difference with h = 1e-5 is off by h^2/6 times the third derivative, and by rounding of about 1e-16 |total| / h:
 * below 1e-6 of what is compared where nothing is nearly singular. Where something is, the difference with h / 2 tells
 * by how much. A lost or doubled term is of the size of the whole. */
static void compare(model *m, int tensor, const double *gradient, const char *name) {
  const double h = 1e-5;
  int64_t n = zp_shape_elements(&m->logical->graph->tensors.data[tensor].shape, ROW_B);
  double derivative = 0, size = 1;
  for (int64_t i = 0; i < n; i++) {
    derivative += gradient[i] * test_value(2000, i);
    size += fabs(gradient[i]);
  }
  double coarse = along(m->logical, tensor, h), fine = along(m->logical, tensor, h / 2);
  double bound = fmin(1e-6 * size + 8 * fabs(coarse - fine), 1e-3 * size);
  cr_assert(fabs(derivative - fine) <= bound, "%s: along %s %.12g, by differences %.12g and %.12g\n%s", name,
            m->logical->graph->tensors.data[tensor].name, derivative, coarse, fine,
            zp_graph_text(m->w.k.arena, m->w.graph));
}

/* Also what the programs compute forward. */
static void compare_values(const model *m, const char *name) {
  for (int i = 0; i < m->w.graph->carry_out.len; i++) {
    int t = m->w.graph->carry_out.data[i];
    for (int64_t e = 0; e < zp_shape_elements(&m->w.graph->tensors.data[t].shape, ROW_B); e++) {
      double want = m->logical->value[t][e], got = m->w.in->value[t][e];
      cr_assert(fabs(got - want) <= 1e-11 * (1 + fabs(want)), "%s: %.17g instead of %.17g", name, got, want);
    }
  }
}

/* How near a value may be to the op's singularity or kink (zero) for differences to mean something. */
static double margin(zp_op op, int operand) {
  if (op == ZP_OP_SQRT || op == ZP_OP_LOG || op == ZP_OP_RSQRT) return 1e-2;
  if (op == ZP_OP_DIV && operand == 1) return 5e-2;
  return op == ZP_OP_RELU || op == ZP_OP_LEAKY_RELU ? 1e-4 : 0;
}

static bool node_is_tame(const zp_interpreter *in, const zp_node *node) {
  if (zp_op_get_class(node->op) != ZP_CLASS_ROW) return true;
  for (int k = 0; k < node->in.len; k++) {
    int t = node->in.data[k];
    for (int64_t e = 0; e < zp_shape_elements(&in->graph->tensors.data[t].shape, ROW_B); e++)
      if (!(fabs(in->value[t][e]) >= margin(node->op, k))) return false;
  }
  for (int64_t e = 0; e < zp_shape_elements(&in->graph->tensors.data[node->out.data[0]].shape, ROW_B); e++)
    if (!(fabs(in->value[node->out.data[0]][e]) < 1e3)) return false;
  return true;
}

static bool is_tame(const zp_interpreter *in) {
  for (int i = 0; i < in->graph->nodes.len; i++)
    if (!node_is_tame(in, &in->graph->nodes.data[i])) return false;
  return true;
}

/* Frees the kit; false when the model cannot be compared at its point. */
static bool check_model(kit k, const char *name) {
  model m = model_new(k);
  total(m.logical);
  bool tame = is_tame(m.logical);
  if (tame) {
    run_programs(&m.w);
    compare_values(&m, name);
    for (int i = 0; i < m.w.graph->params.len; i++)
      compare(&m, m.w.graph->params.data[i].tensor, m.w.in->param_grad[i], name);
    for (int i = 0; i < m.w.graph->grad_out.len; i++)
      compare(&m, m.w.graph->carry_in.data[i], m.w.in->value[m.w.graph->grad_out.data[i]], name);
  }
  kit_free(&k);
  return tame;
}

static operands operands_of(kit *k) {
  return (operands){.k = k,
                    .x = k->graph->carry_in.data[0],
                    .r = k->graph->carry_in.data[1],
                    .columns = columns(k, "columns", N),
                    .position = param(k, "position", shape2(ROW_S, N))};
}

/* ---- chains of steps ---- */

static bool check_chain(const int *chain, int length, bool all_outside) {
  kit k = kit_new(ROW_S, 2, N);
  operands o = operands_of(&k);
  zp_buf name = zp_buf_new(k.arena);
  int y = o.x;
  for (int i = 0; i < length; i++) {
    y = steps[chain[i]].make(&o, y);
    if (all_outside || i == length - 1) carry_out(&k, y);
    zp_buf_printf(&name, "%s%s", i ? ", " : "", steps[chain[i]].name);
  }
  return check_model(k, name.data);
}

/* Both at once, so that no test passes by comparing little. */
typedef struct tally {
  int compared, left_out;
} tally;

static void count_chain(tally *t, const int *chain, int length, bool all_outside) {
  *(check_chain(chain, length, all_outside) ? &t->compared : &t->left_out) += 1;
}

static void check_pairs(bool outside) {
  tally t = {0};
  for (int first = 0; first < N_STEPS; first++)
    for (int second = 0; second < N_STEPS; second++) count_chain(&t, (int[]){first, second}, 2, outside);
  cr_assert_gt(t.compared, N_STEPS * N_STEPS * 4 / 5, "%d pairs left out", t.left_out);
}

Test(rowprog_gradients, every_step_after_every_step) { check_pairs(false); }
Test(rowprog_gradients, with_the_value_between_read_outside_too) { check_pairs(true); }

Test(rowprog_gradients, longer_chains) {
  enum { CHAINS = 3000, LONGEST = 6 };
  uint64_t state = 1;
  tally t = {0};
  for (int i = 0; i < CHAINS; i++) {
    int chain[LONGEST], length = 3 + i % (LONGEST - 2);
    for (int j = 0; j < length; j++) chain[j] = (int)((row_random(&state) + 1) / 2 * N_STEPS);
    count_chain(&t, chain, length, i % 3 == 0);
  }
  cr_assert_gt(t.compared, CHAINS / 2, "%d chains left out", t.left_out);
}

/* ---- expressions that lost gradients, between products ---- */

static int product(const operands *o, const char *name) { return linear(o->k, name, o->x, N, false); }

#define EXPRESSIONS(X)                                                                                                 \
  X(columns_minus_t, two(o, ZP_OP_SUB, o->columns, product(o, "t")))                                                   \
  X(one_minus_sigmoid, two(o, ZP_OP_MUL, o->x, one_minus(o, logistic(o, product(o, "t")))))                            \
  X(sum_with_negated, two(o, ZP_OP_ADD, product(o, "a"), negate(o, product(o, "b"))))                                  \
  X(negated_twice, negate(o, negate(o, product(o, "a"))))                                                              \
  X(two_factors, times(o, times(o, product(o, "a"), 0.5), 1.0 / 3))                                                    \
  X(gelu_of_scaled, gelu_erf(o, twice(o, product(o, "a"))))                                                            \
  X(silu_of_negated, swish(o, negate(o, product(o, "a"))))                                                             \
  X(rope_of_negated, turn(o, negate(o, product(o, "a"))))                                                              \
  X(layer_norm_of_scaled, layer_norm(o->k, "ln", times(o, product(o, "a"), 3)))                                        \
  X(rms_norm_of_negated, rms_norm(o->k, "rms", negate(o, product(o, "a"))))                                            \
  X(softmax_of_scaled, normal(o, times(o, negate(o, product(o, "a")), 0.3)))                                           \
  X(product_of_negated, two(o, ZP_OP_MUL, negate(o, product(o, "a")), negate(o, product(o, "b"))))                     \
  X(difference_of_negated, two(o, ZP_OP_SUB, negate(o, product(o, "a")), negate(o, product(o, "b"))))

#define DEFINE(name, expression)                                                                                       \
  static int name(const operands *o, int y) {                                                                          \
    (void)y;                                                                                                           \
    return expression;                                                                                                 \
  }
EXPRESSIONS(DEFINE)
#undef DEFINE

static const struct {
  const char *name;
  step_maker *make;
} expressions[] = {
#define ROW(name, expression) {#name, name},
    EXPRESSIONS(ROW)
#undef ROW
};

static void check_expression(int e, bool is_loss) {
  kit k = kit_new(ROW_S, 2, N);
  operands o = operands_of(&k);
  int y = expressions[e].make(&o, o.x);
  if (is_loss)
    zp_graph_add_loss(k.graph, two(&o, ZP_OP_CROSS_ENTROPY, y, zp_graph_input(k.graph, k.model, 1)), 1);
  else
    carry_out(&k, linear(&k, "after", y, N, false));
  cr_assert(check_model(k, expressions[e].name), "%s is left out", expressions[e].name);
}

Test(rowprog_gradients, expressions_between_products) {
  for (size_t e = 0; e < sizeof expressions / sizeof *expressions; e++) check_expression(e, false);
}
Test(rowprog_gradients, expressions_before_the_loss) {
  for (size_t e = 0; e < sizeof expressions / sizeof *expressions; e++) check_expression(e, true);
}
