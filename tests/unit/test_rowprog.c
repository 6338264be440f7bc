/* SPDX-License-Identifier: Apache-2.0 */
/* Row programs and their f64 interpreter: against the graph's oracle, against central differences, and their
 * structure. */
#include "rowprog_testing.h"

static const int64_t sizes[] = {1, 2, 5, 6, 17, 96};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Every op, forward and backward, as the oracle computes it. */
Test(rowprog, interpreter_agrees_with_the_oracle) {
  for (int c = 0; c < N_ROW_CASES; c++)
    for (int s = 0; s < N_SIZES; s++) {
      if (!applies(&row_cases[c], sizes[s])) continue;
      row_world w = row_world_new(&row_cases[c], sizes[s]);
      for (int i = 0; i < w.graph->nodes.len; i++) {
        const zp_node *node = &w.graph->nodes.data[i];
        if (!is_fused(node)) continue;
        const zp_row_program *program = zp_row_from_node(w.k.arena, NULL, node);
        run_oracle(&w, node);
        row_call call = row_call_new(&w, node, 3, true);
        row_call_run(&call, run_interpreter, program, 3);
        double error = node_error(&w, node, &call);
        cr_assert_lt(error, 1e-11, "%s, %lld columns, %s: %g\n%s", row_cases[c].name, (long long)sizes[s],
                     zp_op_name(node->op), error, zp_row_text(program));
      }
      row_world_free(&w);
    }
}

static bool takes(const zp_graph *graph, zp_op op) {
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_fused *fused = graph->nodes.data[i].fused;
    for (int k = 0; fused && k < fused->ops.len; k++)
      if (fused->ops.data[k].op == op) return true;
  }
  return false;
}

/* What compares kernels with the oracle, on CPUs and GPUs, are the cases: an operation that none has is not tested. */
Test(rowprog, every_operation_has_a_case) {
  bool taken[ZP_OP_COUNT] = {[ZP_OP_CAST_BF16] = true, [ZP_OP_CAST_F16] = true, [ZP_OP_CAST_F32] = true};
  for (int c = 0; c < N_ROW_CASES; c++) {
    row_world w = row_world_new(&row_cases[c], 6);
    for (int op = 0; op < ZP_OP_COUNT; op++) taken[op] = taken[op] || takes(w.graph, (zp_op)op);
    row_world_free(&w);
  }
  for (int op = 0; op < ZP_OP_COUNT; op++)
    cr_expect(taken[op] || zp_op_get_class((zp_op)op) != ZP_CLASS_ROW, "%s: a case of rowprog_testing.h, or cast_graph",
              zp_op_name((zp_op)op));
}

/* ---- derivatives against central differences of the same program's forward ---- */

typedef struct scalar_function {
  zp_row_program *forward;
  const double *weight; /* the result is sum(weight * out) */
  int64_t n;
} scalar_function;

static double evaluate(const scalar_function *f, const double *x) {
  double *out = calloc((size_t)f->n, sizeof(double)), sum = 0;
  zpk_row_args args = {.in = (const void *const[]){x}, .in_ld = &f->n, .out = (void *const[]){out}, .out_ld = &f->n};
  zp_row_interpret(f->forward, &args, 0, 1, 0);
  for (int64_t j = 0; j < f->n; j++) sum += f->weight[j] * out[j];
  free(out);
  return sum;
}

typedef struct op_case {
  zp_op op;
  zp_op_attr attr;
  bool is_positive;                              /* defined for positive numbers only */
  int (*expand)(zp_row_program *program, int x); /* instead of an op; NULL */
} op_case;

/* No op has a choice whose two results both depend on x: x <= 0 ? 2 x^2 : 3 x. */
static int choose(zp_row_program *p, int x) {
  int twice = zp_row_binary(p, ZP_ROW_MUL, zp_row_imm(p, 2), zp_row_binary(p, ZP_ROW_MUL, x, x));
  return zp_row_select_le(p, x, zp_row_imm(p, 0), twice, zp_row_binary(p, ZP_ROW_MUL, zp_row_imm(p, 3), x));
}

static const op_case op_cases[] = {
    {.op = ZP_OP_EXP},
    {.op = ZP_OP_LOG, .is_positive = true},
    {.op = ZP_OP_SQRT, .is_positive = true},
    {.op = ZP_OP_RSQRT, .is_positive = true},
    {.op = ZP_OP_TANH},
    {.op = ZP_OP_SIGMOID},
    {.op = ZP_OP_RELU},
    {.op = ZP_OP_LEAKY_RELU, .attr = {.value = 0.3}},
    {.op = ZP_OP_SILU},
    {.op = ZP_OP_GELU, .attr = {.tanh_form = true}},
    {.op = ZP_OP_GELU, .attr = {.tanh_form = false}},
    {.op = ZP_OP_SOFTMAX},
    {.op = ZP_OP_ADD_CONST, .attr = {.value = 3}},
    {.op = ZP_OP_MUL_CONST, .attr = {.value = -3}},
    {.op = ZP_OP_LAYER_NORM, .attr = {.eps = 1e-5}},
    {.op = ZP_OP_RMS_NORM, .attr = {.eps = 1e-5}},
    {.expand = choose},
};

static int expand(const op_case *test, zp_row_program *p, int x, int64_t cols) {
  zp_fused_op op = {.op = test->op, .n_arg = 1, .attr = test->attr, .cols = cols};
  return test->expand ? test->expand(p, x) : zp_row_expand(p, &op, &x);
}

/* y = op(x), and its gradient program with inputs x, dy. */
static void check_op(const op_case *test) {
  enum { N = 7 };
  zp_arena *arena = zp_arena_new("test");
  zp_row_program *forward = zp_row_program_new(arena, 1), *backward = zp_row_program_new(arena, 1);
  int x = zp_row_leaf(forward, ZP_ROW_ROWS, 0, N);
  zp_row_sink_value(forward, ZP_ROW_STORE, expand(test, forward, x, N), N, NULL);
  x = zp_row_leaf(backward, ZP_ROW_ROWS, 0, N);
  int y = expand(test, backward, x, N), count = backward->values.len;
  int *origin = ZP_NEW_ARRAY(arena, int, count), *adjoint = ZP_NEW_ARRAY(arena, int, count);
  for (int v = 0; v < count; v++) origin[v] = adjoint[v] = -1;
  adjoint[y] = zp_row_leaf(backward, ZP_ROW_ROWS, 1, N);
  zp_row_differentiate(backward, count, origin, adjoint);
  zp_row_sink_value(backward, ZP_ROW_STORE, adjoint[x], N, NULL);

  double point[N], weight[N], gradient[N];
  uint64_t state = 5;
  fill_random(point, N, &state);
  fill_random(weight, N, &state);
  for (int j = 0; j < N && test->is_positive; j++) point[j] = 0.2 + fabs(point[j]);
  int64_t ld[] = {N, N};
  zpk_row_args args = {.in = (const void *const[]){point, weight}, .in_ld = ld, .out = (void *const[]){gradient}};
  args.out_ld = ld;
  zp_row_interpret(zp_row_legalize(backward), &args, 0, 1, 0);
  scalar_function f = {.forward = zp_row_legalize(forward), .weight = weight, .n = N};
  for (int j = 0; j < N; j++) {
    double here = point[j], step = 1e-5;
    point[j] = here + step;
    double above = evaluate(&f, point);
    point[j] = here - step;
    double below = evaluate(&f, point);
    point[j] = here;
    cr_assert_float_eq(gradient[j], (above - below) / (2 * step), 1e-7, "%s, column %d: %.12g, differences %.12g",
                       zp_op_name(test->op), j, gradient[j], (above - below) / (2 * step));
  }
  zp_arena_free(arena);
}

Test(rowprog, derivatives_agree_with_central_differences) {
  for (size_t i = 0; i < sizeof op_cases / sizeof *op_cases; i++) check_op(&op_cases[i]);
}

/* At the kink and at what is no number, value and slope are PyTorch's: the slope at 0 is that of the negative side. */
Test(rowprog, leaky_relu_at_its_kink) {
  enum { N = 7 };
  static const double point[N] = {-2, -0.0, 0, 3, INFINITY, -INFINITY, NAN}, ones[N] = {1, 1, 1, 1, 1, 1, 1};
  static const double value[N] = {-0.5, 0, 0, 3, INFINITY, -INFINITY, NAN}, slope[N] = {0.25, 0.25, 0.25, 1, 1, 0.25};
  kit k = kit_new(1, 1, N);
  carry_out(&k, apply(&k, ZP_OP_LEAKY_RELU, (zp_op_attr){.value = 0.25}, "y", k.graph->carry_in.data[0], -1, -1));
  zp_graph *graph = zp_differentiate(zp_fuse(zp_graph_localize_trivial(k.graph)));
  double y[N], dx[N];
  int64_t ld[] = {N, N};
  zpk_row_args args = {.in = (const void *const[]){point}, .in_ld = ld, .out = (void *const[]){y}, .out_ld = ld};
  zp_row_interpret(zp_row_from_node(k.arena, NULL, &graph->nodes.data[0]), &args, 0, 1, 0);
  args.in = (const void *const[]){ones, point}; /* the gradient, then what is saved */
  args.out = (void *const[]){dx};
  zp_row_interpret(zp_row_from_node(k.arena, NULL, &graph->nodes.data[1]), &args, 0, 1, 0);
  for (int i = 0; i < N; i++) {
    cr_expect(y[i] == value[i] || (isnan(y[i]) && isnan(value[i])), "leaky_relu(%g) = %g", point[i], y[i]);
    cr_expect(i == N - 1 || dx[i] == slope[i], "slope at %g: %g", point[i], dx[i]);
  }
  kit_free(&k);
}

/* ---- structure ---- */

static int passes_of(const zp_row_program *program) { return zp_row_make_schedule(program).passes.len; }

static int count_op(const zp_row_program *program, zp_row_op op) {
  int count = 0;
  for (int v = 0; v < program->values.len; v++) count += program->values.data[v].op == op;
  return count;
}

Test(rowprog, layer_norm_takes_three_passes_each_way) {
  row_world w = row_world_new(&row_cases[3], 16);
  const zp_row_program *forward = zp_row_from_node(w.k.arena, NULL, first_node(&w, ZP_OP_FUSED));
  cr_assert_eq(passes_of(forward), 3);
  cr_assert_eq(count_op(forward, ZP_ROW_RSUM), 2, "sums are split only where that saves a pass");
  cr_assert_eq(passes_of(zp_row_from_node(w.k.arena, NULL, first_node(&w, ZP_OP_FUSED_GRAD))), 3);
  row_world_free(&w);
}

/* A derivative has terms that are zero or equal: the mean of what is less its mean, both sides of a square. None of
 * them is computed, and none twice. */
Test(rowprog, gradients_compute_nothing_that_is_zero) {
  int gradients = 0;
  for (int c = 0; c < N_ROW_CASES; c++) {
    row_world w = row_world_new(&row_cases[c], 12);
    for (int n = 0; n < w.graph->nodes.len; n++) {
      if (w.graph->nodes.data[n].op != ZP_OP_FUSED_GRAD) continue;
      const zp_row_program *program = zp_row_from_node(w.k.arena, NULL, &w.graph->nodes.data[n]);
      gradients++;
      for (int v = 0; v < program->values.len; v++) {
        const zp_row_value *value = &program->values.data[v];
        bool difference = value->op == ZP_ROW_SUB && value->arg[0] == value->arg[1];
        bool nothing = value->op == ZP_ROW_MUL &&
                       (zp_row_is_zero(program, value->arg[0]) || zp_row_is_zero(program, value->arg[1]));
        cr_expect(!difference && !nothing, "%s: %%%d of\n%s", row_cases[c].name, v, zp_row_text(program));
      }
    }
    row_world_free(&w);
  }
  cr_assert_gt(gradients, 10);
}

/* Backward of softmax reads the saved result: no exponential at all. */
Test(rowprog, saved_results_replace_their_computation) {
  kit k = kit_new(ROW_S, 1, 8);
  zp_node node = {.op = ZP_OP_FUSED_GRAD, .fused = ZP_NEW(k.arena, zp_fused)};
  zp_operand operand = ZP_OPERAND_ROWS;
  int64_t n = 8;
  zp_fused_op op = {.op = ZP_OP_SOFTMAX, .n_arg = 1, .cols = n};
  node.fused->n_in = 1;
  node.fused->operand = &operand;
  node.fused->in_cols = &n;
  node.fused->rows_per_sample = ROW_S;
  zp_push(k.arena, &node.fused->ops, op);
  zp_grad_arg saved = {ZP_USE_SAVED, 1}, gradient = {ZP_USE_GRAD, 1}, out = {ZP_USE_ROWS, 0};
  zp_push(k.arena, &node.grad_in, saved);
  zp_push(k.arena, &node.grad_in, gradient);
  zp_push(k.arena, &node.grad_out, out);
  const zp_row_program *program = zp_row_from_node(k.arena, NULL, &node);
  cr_assert_eq(count_op(program, ZP_ROW_EXP), 0, "%s", zp_row_text(program));
  cr_assert_eq(passes_of(program), 2);

  double y[8], dy[8], dx[8], dot = 0, sum = 0;
  for (int j = 0; j < 8; j++) sum += y[j] = 1 + j;
  for (int j = 0; j < 8; j++) dot += (y[j] /= sum) * (dy[j] = j % 3);
  int64_t ld[] = {8, 8};
  zpk_row_args args = {.in = (const void *const[]){y, dy}, .in_ld = ld, .out = (void *const[]){dx}, .out_ld = ld};
  zp_row_interpret(program, &args, 0, 1, 0);
  for (int j = 0; j < 8; j++) cr_assert_float_eq(dx[j], y[j] * (dy[j] - dot), 1e-15);
  kit_free(&k);
}

Test(rowprog, building_folds_and_shares) {
  zp_arena *arena = zp_arena_new("test");
  zp_row_program *p = zp_row_program_new(arena, 1);
  int x = zp_row_leaf(p, ZP_ROW_ROWS, 0, 4), y = zp_row_leaf(p, ZP_ROW_ROWS, 1, 4);
  int zero = zp_row_imm(p, 0), one = zp_row_imm(p, 1);
  cr_assert_eq(zp_row_binary(p, ZP_ROW_ADD, x, zero), x);
  cr_assert_eq(zp_row_binary(p, ZP_ROW_MUL, one, x), x);
  cr_assert_eq(zp_row_binary(p, ZP_ROW_MUL, x, y), zp_row_binary(p, ZP_ROW_MUL, y, x));
  cr_assert_neq(zp_row_binary(p, ZP_ROW_SUB, x, y), zp_row_binary(p, ZP_ROW_SUB, y, x));
  cr_assert_neq(zp_row_binary(p, ZP_ROW_MUL, x, zero), zero, "0 * NaN is not 0");
  int two = zp_row_binary(p, ZP_ROW_ADD, one, one);
  cr_assert_eq(p->values.data[two].op, ZP_ROW_IMM);
  cr_assert_eq(p->values.data[two].imm, 2);
  /* The factor leaves the sum, and the sum of a u is cols times it. */
  int three = zp_row_imm(p, 3), none = zp_row_binary(p, ZP_ROW_ADD, zp_row_binary(p, ZP_ROW_MUL, x, zero), three);
  const zp_row_value *quotient = &p->values.data[zp_row_binary(p, ZP_ROW_DIV, none, x)];
  cr_assert(quotient->op == ZP_ROW_DIV && quotient->arg[0] == three && quotient->arg[1] == x, "3 / Inf is 0");
  quotient = &p->values.data[zp_row_binary(p, ZP_ROW_DIV, none, y)];
  cr_assert(quotient->op == ZP_ROW_DIV && quotient->arg[0] == none && quotient->arg[1] == y);
  /* x * e is of the second pass whichever is checked first, so that y is not summed apart. */
  zp_row_program *q = zp_row_program_new(arena, 1);
  int qx = zp_row_leaf(q, ZP_ROW_ROWS, 0, 4), qy = zp_row_leaf(q, ZP_ROW_ROWS, 1, 4);
  int late = zp_row_unary(q, ZP_ROW_EXP, zp_row_binary(q, ZP_ROW_SUB, qx, zp_row_sum(q, qx, 4)));
  int both = zp_row_binary(q, ZP_ROW_ADD, zp_row_binary(q, ZP_ROW_MUL, qx, late), qy);
  cr_assert_eq(q->values.data[zp_row_sum(q, both, 4)].op, ZP_ROW_RSUM);
  zp_row_pairs halves = {.head = 4}, neighbours = {.head = 4, .interleaved = true}, small = {.head = 2};
  int swapped = zp_row_swap(p, x, halves);
  cr_assert_eq(zp_row_swap(p, swapped, halves), x, "the same exchange twice");
  cr_assert_neq(zp_row_swap(p, swapped, neighbours), x, "of other pairs");
  cr_assert_neq(zp_row_swap(p, swapped, small), x);
  int s = zp_row_sum(p, x, 4), scaled = zp_row_sum(p, zp_row_binary(p, ZP_ROW_MUL, x, s), 4);
  cr_assert_eq(scaled, zp_row_binary(p, ZP_ROW_MUL, s, s));
  cr_assert_eq(zp_row_sum(p, two, 4), zp_row_imm(p, 8));
  zp_arena_free(arena);
}

Test(rowprog, equal_nodes_share_a_kernel) {
  row_world a = row_world_new(&row_cases[2], 8), b = row_world_new(&row_cases[2], 12);
  zp_kernel_set *set = zp_kernels_new(a.k.arena, ZPK_F32);
  const zp_node *node = first_node(&a, ZP_OP_FUSED);
  const char *first = zp_kernels_add(set, a.graph, node, "h.gelu");
  cr_assert_str_eq(first, "row_h_gelu");
  cr_assert_eq(zp_kernels_add(set, a.graph, node, "again"), first);
  cr_assert_str_eq(zp_kernels_add(set, b.graph, first_node(&b, ZP_OP_FUSED), "h.gelu"), "row_h_gelu_2");
  cr_assert_eq(zp_kernels_count(set), 2);
  cr_assert_str_eq(zp_kernels_describe(set, 0), "gelu = gelu(x + b)");
  cr_assert_not_null(strstr(zp_kernels_text(set), "row_h_gelu_2: gelu = gelu(x + b)\n"));
  row_world_free(&a);
  row_world_free(&b);
}

/* Dropout's numbers depend on the stream: programs that differ in nothing else must not be merged. */
Test(rowprog, streams_keep_kernels_apart) {
  kit k = kit_new(ROW_S, 1, 8);
  int x = k.graph->carry_in.data[0];
  carry_out(&k, dropout(&k, "a", x, 0.5));
  carry_out(&k, linear(&k, "w", dropout(&k, "b", x, 0.5), 8, false));
  zp_graph *graph = zp_fuse(zp_graph_localize_trivial(k.graph));
  zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F64);
  int nodes = 0;
  for (int i = 0; i < graph->nodes.len; i++)
    if (graph->nodes.data[i].op == ZP_OP_FUSED) zp_kernels_add(set, graph, &graph->nodes.data[i], "d"), nodes++;
  cr_assert_eq(zp_kernels_count(set), nodes);
  kit_free(&k);
}

Test(rowprog, descriptions_read_like_the_language) {
  row_world w = row_world_new(&row_cases[3], 8);
  const char *text = zp_row_describe(w.k.arena, w.graph, first_node(&w, ZP_OP_FUSED));
  cr_assert_str_eq(text,
                   "value_second = x_second + dropout(x + b, 0.3); ln = layer_norm(value_second, ln_weight, ln_bias)",
                   "%s", text);
  text = zp_row_describe(w.k.arena, w.graph, first_node(&w, ZP_OP_FUSED_GRAD));
  cr_assert_str_eq(text,
                   "gradient of x, x_second, b, ln_weight, ln_bias in value_second = x_second + dropout(x + b, 0.3); "
                   "ln = layer_norm(value_second, ln_weight, ln_bias)",
                   "%s", text);
  row_world_free(&w);
}

/* A leaf that the derivative does not need is not read, although nobody saved it: z = x + y passes dz on. */
Test(rowprog, values_that_were_not_saved_are_dead_code) {
  row_world w = row_world_new(&row_cases[4], 8);
  const zp_row_program *program = zp_row_from_node(w.k.arena, NULL, first_node(&w, ZP_OP_FUSED_GRAD));
  cr_assert_eq(count_op(program, ZP_ROW_UNKNOWN), 0);
  row_world_free(&w);
}
