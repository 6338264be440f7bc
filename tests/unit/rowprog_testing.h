/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of row programs share: models that use every row op, values for their tensors, and running one FUSED
 * or FUSED_GRAD node through any implementation of its program. */
#ifndef ROWPROG_TESTING_H
#define ROWPROG_TESTING_H

#include "narrow_testing.h"
#include "graph_testing.h"
#include "../../kernels/include/zplan/zpk.h"
#include "../../codegen/rowprog/rowprog.h"
#include "../oracle/interpret_program.h"
#include <zplan/rowkernel.h>

enum { ROW_S = 4, ROW_B = 3, ROW_ROWS = ROW_S * ROW_B };
enum { ROW_MAX_CHUNKS = 64 }; /* of column sums; CPU kernels use ZPK_CHUNKS of them */

/* ---- models ---- */

typedef struct row_case {
  const char *name;
  void (*build)(kit *k, int x, int r, int64_t n); /* x, r: carried [B, S, n] */
  bool even;                                      /* needs an even number of columns */
} row_case;

static inline int positive(kit *k, int x) {
  return apply(k, ZP_OP_ADD_CONST, (zp_op_attr){.value = 0.5}, "shift", op1(k, ZP_OP_EXP, x), -1, -1);
}
static inline int columns(kit *k, const char *name, int64_t n) { return param(k, name, shape1(n)); }

static inline void build_functions(kit *k, int x, int r, int64_t n) {
  (void)n;
  int sum = op1(k, ZP_OP_LOG, positive(k, x));
  sum = op2(k, ZP_OP_ADD, sum, op1(k, ZP_OP_SQRT, positive(k, r)));
  sum = op2(k, ZP_OP_ADD, sum, op1(k, ZP_OP_RSQRT, positive(k, r)));
  sum = op2(k, ZP_OP_MUL, sum, op1(k, ZP_OP_TANH, x));
  sum = op2(k, ZP_OP_ADD, sum, op1(k, ZP_OP_SIGMOID, r));
  sum = op2(k, ZP_OP_DIV, sum, positive(k, op1(k, ZP_OP_TANH, r)));
  carry_out(k, apply(k, ZP_OP_MUL_CONST, (zp_op_attr){.value = -2.5}, "scale", sum, -1, -1));
}
static inline void build_activations(kit *k, int x, int r, int64_t n) {
  int h = op2(k, ZP_OP_ADD, x, columns(k, "b", n));
  int y = op2(k, ZP_OP_MUL, op1(k, ZP_OP_SILU, h), r);
  y = op2(k, ZP_OP_SUB, y, op1(k, ZP_OP_RELU, h));
  y = op2(k, ZP_OP_ADD, y, apply(k, ZP_OP_GELU, (zp_op_attr){.tanh_form = false}, "gelu", h, -1, -1));
  y = op2(k, ZP_OP_ADD, y, apply(k, ZP_OP_LEAKY_RELU, (zp_op_attr){.value = 0.3}, "leaky", h, -1, -1));
  carry_out(k, op2(k, ZP_OP_SUB, y, columns(k, "c", n)));
}
static inline void build_gelu(kit *k, int x, int r, int64_t n) {
  (void)r;
  int h = op2(k, ZP_OP_ADD, x, columns(k, "b", n));
  carry_out(k, apply(k, ZP_OP_GELU, (zp_op_attr){.tanh_form = true}, "gelu", h, -1, -1));
}
/* The residual stream of a transformer: the sum is an output and normalised at once. */
static inline void build_residual(kit *k, int x, int r, int64_t n) {
  int h = op2(k, ZP_OP_ADD, x, dropout(k, "drop", op2(k, ZP_OP_ADD, r, columns(k, "b", n)), 0.3));
  carry_out(k, h);
  carry_out(k, layer_norm(k, "ln", h));
}
static inline void build_rms(kit *k, int x, int r, int64_t n) {
  (void)n;
  int h = op2(k, ZP_OP_ADD, x, r);
  carry_out(k, h);
  carry_out(k, rms_norm(k, "norm", h));
}
static inline void build_l2(kit *k, int x, int r, int64_t n) {
  zp_op_attr attr = {.eps = 1e-6};
  int unit = apply(k, ZP_OP_L2_NORM, attr, "unit", op2(k, ZP_OP_ADD, x, r), -1, -1);
  carry_out(k, op2(k, ZP_OP_MUL, unit, columns(k, "scale", n)));
  carry_out(k, apply(k, ZP_OP_L2_NORM, attr, "second", dropout(k, "drop", r, 0.2), -1, -1));
}
/* Norms of rows whose squares are zeros in f32, by the least eps that it allows: backward cubes its inverse root. */
static inline void build_zeros(kit *k, int x, int r, int64_t n) {
  zp_op_attr attr = {.eps = 2.1e-26};
  int zeros = apply(k, ZP_OP_MUL_CONST, (zp_op_attr){.value = 1e-30}, "zeros", x, -1, -1);
  int sum = op2(k, ZP_OP_ADD, r, apply(k, ZP_OP_L2_NORM, attr, "unit", zeros, -1, -1));
  sum = op2(k, ZP_OP_ADD, sum, apply(k, ZP_OP_RMS_NORM, attr, "rms", zeros, columns(k, "w", n), -1));
  carry_out(
      k, op2(k, ZP_OP_ADD, sum, apply(k, ZP_OP_LAYER_NORM, attr, "ln", zeros, columns(k, "g", n), columns(k, "b", n))));
}
static inline void build_softmax(kit *k, int x, int r, int64_t n) {
  (void)n;
  carry_out(k, op1(k, ZP_OP_SOFTMAX, x));
  carry_out(k, op1(k, ZP_OP_EXP, op1(k, ZP_OP_SOFTMAX, op2(k, ZP_OP_MUL, r, r))));
}
static inline void build_position(kit *k, int x, int r, int64_t n) {
  int p = param(k, "wpe", shape2(ROW_S, n));
  int y = dropout(k, "drop", op2(k, ZP_OP_ADD, x, p), 0.5);
  carry_out(k, op2(k, ZP_OP_MUL, y, op2(k, ZP_OP_MUL, r, p)));
}
static inline void build_two_norms(kit *k, int x, int r, int64_t n) {
  (void)n;
  int y = layer_norm(k, "outer", op1(k, ZP_OP_TANH, rms_norm(k, "inner", op2(k, ZP_OP_SUB, x, r))));
  carry_out(k, op2(k, ZP_OP_DIV, dropout(k, "a", y, 0.25), positive(k, dropout(k, "b", x, 0.25))));
}
static inline int64_t heads_of(int64_t n) { return n % 32 == 0 ? n / 32 : n % 6 == 0 ? n / 6 : 1; }
static inline void build_rope(kit *k, int x, int r, int64_t n) {
  zp_op_attr halves = {.heads = heads_of(n), .theta = 10000};
  carry_out(k, apply(k, ZP_OP_ROPE, halves, "rope", op2(k, ZP_OP_MUL, x, columns(k, "w", n)), -1, -1));
  carry_out(k, op1(k, ZP_OP_EXP, r));
}
static inline void build_rope_pairs(kit *k, int x, int r, int64_t n) {
  (void)r;
  zp_op_attr pairs = {.heads = heads_of(n), .theta = 500, .interleaved = true};
  int turned = apply(k, ZP_OP_ROPE, pairs, "rope", rms_norm(k, "norm", dropout(k, "drop", x, 0.2)), -1, -1);
  carry_out(k, op2(k, ZP_OP_ADD, turned, x));
}

static const row_case row_cases[] = {
    {"functions", build_functions, false},
    {"activations", build_activations, false},
    {"gelu", build_gelu, false},
    {"residual", build_residual, false},
    {"rms", build_rms, false},
    {"l2", build_l2, false},
    {"zeros", build_zeros, false},
    {"softmax", build_softmax, false},
    {"position", build_position, false},
    {"two_norms", build_two_norms, false},
    {"rope", build_rope, true},
    {"rope_pairs", build_rope_pairs, true},
};
enum { N_ROW_CASES = sizeof row_cases / sizeof *row_cases };

/* ---- values ---- */

static inline double row_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(*state >> 11) * 0x1p-52 - 1; /* [-1, 1) */
}

/* Values that f32 represents exactly, so that f32 and f64 kernels see the same numbers. */
static inline void fill_random(double *x, int64_t n, uint64_t *state) {
  for (int64_t i = 0; i < n; i++) x[i] = (float)(2 * row_random(state));
}

typedef struct row_world {
  kit k;
  zp_graph *graph; /* differentiated */
  zp_interpreter *in;
} row_world;

static inline void fill_world(row_world *w) {
  uint64_t state = 42;
  w->in = zp_interpreter_new(w->k.arena, w->graph, ROW_B);
  w->in->seed = UINT64_C(0x123456789abc);
  w->in->step = 7;
  w->in->first_sample = 100;
  w->in->instance = 3;
  for (int t = 0; t < w->graph->tensors.len; t++) {
    const zp_tensor *tensor = &w->graph->tensors.data[t];
    if (tensor->role == ZP_ROLE_CARRY_IN || tensor->role == ZP_ROLE_PARAM || tensor->role == ZP_ROLE_GRAD_IN)
      fill_random(w->in->value[t], zp_shape_elements(&tensor->shape, ROW_B), &state);
  }
}

static inline row_world row_world_new(const row_case *test, int64_t n) {
  row_world w = {.k = kit_new(ROW_S, 2, n)};
  test->build(&w.k, w.k.graph->carry_in.data[0], w.k.graph->carry_in.data[1], n);
  w.graph = differentiated(&w.k);
  fill_world(&w);
  zp_interpret(w.in, 0, w.graph->nodes.len);
  return w;
}
static inline void row_world_free(row_world *w) { kit_free(&w->k); }

static inline bool is_fused(const zp_node *node) { return node->op == ZP_OP_FUSED || node->op == ZP_OP_FUSED_GRAD; }

static inline const zp_node *first_node(const row_world *w, zp_op op) {
  for (int i = 0; i < w->graph->nodes.len; i++)
    if (w->graph->nodes.data[i].op == op) return &w->graph->nodes.data[i];
  return NULL;
}

/* ---- running one node ---- */

typedef void row_runner(const void *what, const zpk_row_args *args, int64_t begin, int64_t end, int64_t chunk);
static inline void run_interpreter(const void *what, const zpk_row_args *args, int64_t begin, int64_t end,
                                   int64_t chunk) {
  zp_row_interpret(what, args, begin, end, chunk);
}

/* A node's operands in the layout of the kernels: rows `pad` elements further apart than they need be, filled with
 * NaN. */
typedef struct row_call {
  zpk_row_args args;
  void **in, **out, **partial;
  int64_t *in_ld, *out_ld, *out_cols, *partial_cols;
  int n_out, n_partial;
  zpk_dtype type; /* of operands; partial sums are f32 with 16-bit ones */
} row_call;

static inline int64_t value_columns(const zp_fused *fused, int v) {
  return v < fused->n_in ? fused->in_cols[v] : fused->ops.data[v - fused->n_in].cols;
}
static inline zpk_dtype real_of(zpk_dtype type) { return zpk_is_narrow(type) ? ZPK_F32 : type; }
static inline void put(void *to, int64_t i, double x, zpk_dtype type) { put_as(type, to, i, x); }
static inline double get(const void *from, int64_t i, zpk_dtype type) { return get_as(type, from, i); }

static inline void *spread(zp_arena *arena, const double *x, int64_t rows, int64_t n, int64_t ld, zpk_dtype type) {
  enum { SECTOR = 32 }; /* of a GPU's memory, in whose arena every buffer begins at one */
  char *all = zp_alloc(arena, (size_t)(rows * ld * zpk_bytes(type)) + SECTOR);
  void *copy = all + (SECTOR - (uintptr_t)all % SECTOR) % SECTOR;
  for (int64_t i = 0; i < rows * ld; i++) put(copy, i, i % ld < n && x ? x[i / ld * n + i % ld] : NAN, type);
  return copy;
}

static inline void add_inputs_of(const row_world *w, const zp_node *node, row_call *c, int64_t pad) {
  for (int i = 0; i < node->in.len; i++) {
    int v = node->op == ZP_OP_FUSED ? i : node->grad_in.data[i].value;
    bool leaf = node->op == ZP_OP_FUSED || node->grad_in.data[i].use == ZP_USE_SAVED;
    zp_operand kind = leaf && v < node->fused->n_in ? node->fused->operand[v] : ZP_OPERAND_ROWS;
    int64_t n = value_columns(node->fused, v);
    int64_t rows = kind == ZP_OPERAND_ROWS ? ROW_ROWS : kind == ZP_OPERAND_COLUMNS ? 1 : ROW_S;
    c->in_ld[i] = kind == ZP_OPERAND_ROWS ? n + pad : n;
    c->in[i] = spread(w->k.arena, w->in->value[node->in.data[i]], rows, n, c->in_ld[i], c->type);
  }
}

static inline void add_outputs_of(const row_world *w, const zp_node *node, row_call *c, int64_t pad) {
  int sinks = node->op == ZP_OP_FUSED ? node->out.len : node->grad_out.len;
  for (int i = 0; i < sinks; i++) {
    int v = node->op == ZP_OP_FUSED ? node->fused->out_value.data[i] : node->grad_out.data[i].value;
    int64_t n = value_columns(node->fused, v);
    if (node->op == ZP_OP_FUSED || node->grad_out.data[i].use == ZP_USE_ROWS) {
      c->out_cols[c->n_out] = n;
      c->out_ld[c->n_out] = n + 2 * pad;
      c->out[c->n_out++] = spread(w->k.arena, NULL, ROW_ROWS, n, n + 2 * pad, c->type);
    } else {
      c->partial_cols[c->n_partial] = n;
      c->partial[c->n_partial++] = spread(w->k.arena, NULL, ROW_MAX_CHUNKS, n, n, real_of(c->type));
    }
  }
}

static inline row_call row_call_new(const row_world *w, const zp_node *node, int64_t pad, zpk_dtype type) {
  zp_arena *arena = w->k.arena;
  row_call c = {.type = type};
  int n = 8 + node->in.len + node->out.len + node->grad_out.len;
  c.in = ZP_NEW_ARRAY(arena, void *, n);
  c.out = ZP_NEW_ARRAY(arena, void *, n);
  c.partial = ZP_NEW_ARRAY(arena, void *, n);
  c.in_ld = ZP_NEW_ARRAY(arena, int64_t, n);
  c.out_ld = ZP_NEW_ARRAY(arena, int64_t, n);
  c.out_cols = ZP_NEW_ARRAY(arena, int64_t, n);
  c.partial_cols = ZP_NEW_ARRAY(arena, int64_t, n);
  add_inputs_of(w, node, &c, pad);
  add_outputs_of(w, node, &c, pad);
  int64_t width = value_columns(node->fused, node->fused->n_in);
  c.args = (zpk_row_args){.in = (const void *const *)c.in,
                          .in_ld = c.in_ld,
                          .out = c.out,
                          .out_ld = c.out_ld,
                          .partial = c.partial,
                          .seed = w->in->seed,
                          .step = w->in->step,
                          .instance = w->in->instance,
                          .first_sample = (int64_t)w->in->first_sample,
                          .logical_columns = width,
                          .dropout = true};
  return c;
}

/* Rows cut into `chunks` ranges, the last one first; the remaining chunks are empty. */
static inline void row_call_run(const row_call *c, row_runner *run, const void *what, int64_t chunks) {
  for (int64_t chunk = ZPK_CHUNKS - 1; chunk >= 0; chunk--) {
    int64_t begin = chunk < chunks ? ROW_ROWS * chunk / chunks : ROW_ROWS;
    int64_t end = chunk < chunks ? ROW_ROWS * (chunk + 1) / chunks : ROW_ROWS;
    run(what, &c->args, begin, end, chunk);
  }
}

static inline double column_sum(const row_call *c, int i, int64_t column) {
  double sum = 0;
  for (int64_t chunk = 0; chunk < ZPK_CHUNKS; chunk++)
    sum += get(c->partial[i], chunk * c->partial_cols[i] + column, real_of(c->type));
  return sum;
}

/* Largest |got - want| / (1 + |want|) over everything the node makes; NaN counts as infinite, and so does a write
 * outside the columns of an output. */
static inline double node_error(const row_world *w, const zp_node *node, const row_call *c) {
  double worst = 0;
  for (int o = 0; o < c->n_out; o++) {
    int64_t n = c->out_cols[o], ld = c->out_ld[o];
    for (int64_t i = 0; i < ROW_ROWS * ld; i++) {
      double got = get(c->out[o], i, c->type);
      double want = i % ld < n ? w->in->value[node->out.data[o]][i / ld * n + i % ld] : 0;
      double error = i % ld < n ? fabs(got - want) / (1 + fabs(want)) : isnan(got) ? 0 : INFINITY;
      if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
  }
  for (int p = 0; p < c->n_partial; p++)
    for (int64_t j = 0; j < c->partial_cols[p]; j++) {
      double want = w->in->param_grad[node->param_grad.data[p]][j];
      double error = fabs(column_sum(c, p, j) - want) / (1 + fabs(want));
      if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
  return worst;
}

/* Everything as a 16-bit dtype stores it, so that the oracle and the kernels see the same numbers. */
static inline void round_world(row_world *w, zpk_dtype dtype) {
  for (int t = 0; t < w->graph->tensors.len; t++)
    for (int64_t i = 0; i < zp_shape_elements(&w->graph->tensors.data[t].shape, ROW_B) && w->in->value[t]; i++)
      w->in->value[t][i] = wide_of(dtype, narrow_of(dtype, w->in->value[t][i]));
}

/* The oracle's results of one node alone. */
static inline void run_oracle(row_world *w, const zp_node *node) {
  for (int i = 0; i < w->graph->params.len; i++) {
    int64_t n = zp_shape_elements(&w->graph->tensors.data[w->graph->params.data[i].tensor].shape, ROW_B);
    memset(w->in->param_grad[i], 0, sizeof(double) * (size_t)n);
  }
  zp_interpret_node(w->in, node);
}

/* ---- all models at some sizes, as one kernel set ---- */

typedef struct row_models {
  row_world world[8 * N_ROW_CASES];
  const row_case *test[8 * N_ROW_CASES];
  int count;
  zp_arena *arena;
  zp_kernel_set *set;
} row_models;

static inline bool applies(const row_case *test, int64_t n) { return !test->even || n % 2 == 0; }

static inline void row_models_open(row_models *m, const int64_t *sizes, int n_sizes, zpk_dtype dtype) {
  m->arena = zp_arena_new("kernels");
  m->set = zp_kernels_new(m->arena, dtype);
  for (int s = 0; s < n_sizes; s++)
    for (int c = 0; c < N_ROW_CASES; c++) {
      if (!applies(&row_cases[c], sizes[s])) continue;
      row_world w = row_world_new(&row_cases[c], sizes[s]);
      for (int i = 0; i < w.graph->nodes.len; i++)
        if (is_fused(&w.graph->nodes.data[i]))
          zp_kernels_add(m->set, w.graph, &w.graph->nodes.data[i], row_cases[c].name);
      m->test[m->count] = &row_cases[c];
      m->world[m->count++] = w;
    }
}

static inline void row_models_close(row_models *m) {
  for (int i = 0; i < m->count; i++) row_world_free(&m->world[i]);
  zp_arena_free(m->arena);
}

/* |error| / (1 + |value|), about four times the largest that occurs: it comes from sums over thousands of columns and
 * from the slope of gelu, where 1 - sigmoid cancels. */
static const double f64_bound = 5e-14, f32_bound = 1e-5;
/* The f32 result, rounded once to 8 or 11 bits. */
static const double bf16_bound = 0x1p-8 + 1e-5, f16_bound = 0x1p-11 + 1e-5;

/* What `cast` makes of numbers: ties go to the even one, numbers half a step above the largest are infinite, small ones
 * are subnormal or 0. */
typedef struct cast_case {
  zp_op op;
  double x, want;
} cast_case;
static const cast_case cast_cases[] = {
    {ZP_OP_CAST_BF16, 0x1.01p0, 1},
    {ZP_OP_CAST_BF16, 0x1.03p0, 0x1.04p0},
    {ZP_OP_CAST_BF16, 0x1.0102p0, 0x1.02p0},
    {ZP_OP_CAST_BF16, -0x1.921fb6p1, -0x1.92p1},
    {ZP_OP_CAST_BF16, 0x1.FEFFFEp127, 0x1.FEp127},
    {ZP_OP_CAST_BF16, 0x1.FFp127, INFINITY},
    {ZP_OP_CAST_BF16, 0x1p-133, 0x1p-133},
    {ZP_OP_CAST_BF16, -0x1p-134, -0.0},
    {ZP_OP_CAST_BF16, 0x3p-134, 0x1p-132},
    {ZP_OP_CAST_F16, 0x1.002p0, 1},
    {ZP_OP_CAST_F16, 0x1.006p0, 0x1.008p0},
    {ZP_OP_CAST_F16, -0x1.921fb6p1, -0x1.92p1},
    {ZP_OP_CAST_F16, 65519, 65504},
    {ZP_OP_CAST_F16, 65520, INFINITY},
    {ZP_OP_CAST_F16, -1e30, -INFINITY},
    {ZP_OP_CAST_F16, 0x1p-24, 0x1p-24},
    {ZP_OP_CAST_F16, 0x1p-25, 0},
    {ZP_OP_CAST_F16, 0x3p-25, 0x1p-23},
    {ZP_OP_CAST_F32, 0x1.000001p0, 1},
    {ZP_OP_CAST_F32, 0.1, 0x1.99999ap-4},
    {ZP_OP_CAST_F32, 1e300, INFINITY},
};
enum { N_CASTS = sizeof cast_cases / sizeof *cast_cases };

/* Does the type that is computed in have the number at all? */
static inline bool cast_applies(const cast_case *c, zpk_dtype dtype) {
  return dtype == ZPK_F64 || c->op != ZP_OP_CAST_F32;
}

/* A column for every number, an output for every operation. */
static inline zp_graph *cast_graph(kit *k) {
  for (int op = ZP_OP_CAST_BF16; op <= ZP_OP_CAST_F32; op++)
    carry_out(k, op1(k, (zp_op)op, k->graph->carry_in.data[0]));
  return zp_fuse(zp_graph_localize_trivial(k->graph));
}

#endif
