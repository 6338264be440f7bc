/* SPDX-License-Identifier: Apache-2.0 */
/* The error bounds that codegen/host/emit_math.c states, on dense grids, against libm in higher precision. */
#include "rowprog_objects.h"

enum { N = 1024, ROWS = 200 };

typedef struct function {
  zp_op op;
  const char *name;
  long double (*exact)(long double x);
  double low, high; /* the grid; logarithmic when low > 0 */
  double f32_ulp, f64_ulp;
} function;

static long double sigmoid(long double x) { return 1 / (1 + expl(-x)); }
static const function functions[] = {
    {ZP_OP_EXP, "exp", expl, -87, 88.7, 2, 2},          {ZP_OP_EXP, "exp near 0", expl, 1e-30, 1, 2, 2},
    {ZP_OP_LOG, "log", logl, 1e-37, 1e37, 3, 3},        {ZP_OP_LOG, "log near 1", logl, 0.4, 2.5, 3, 3},
    {ZP_OP_TANH, "tanh", tanhl, -12, 12, 4, 4},         {ZP_OP_TANH, "tanh near 0", tanhl, 1e-30, 1, 4, 4},
    {ZP_OP_SIGMOID, "sigmoid", sigmoid, -80, 80, 3, 3},
};

static double grid(double low, double high, int64_t i, int64_t count) {
  double at = (double)i / (double)(count - 1);
  return low > 0 ? low * pow(high / low, at) : low + (high - low) * at;
}

/* Distance between neighbouring numbers at x. */
static long double ulp(long double x, bool f64) {
  int exponent;
  frexpl(x, &exponent);
  int lowest = f64 ? -1021 : -125;
  return ldexpl(1, (exponent < lowest ? lowest : exponent) - (f64 ? 53 : 24));
}

typedef struct compiled_function {
  kit k;
  loaded_set loaded;
  zpk_row_kernel *kernel;
} compiled_function;

static compiled_function compile_op(zp_op op, zpk_dtype dtype) {
  compiled_function c = {.k = kit_new(1, 1, N)};
  carry_out(&c.k, op1(&c.k, op, c.k.graph->carry_in.data[0]));
  zp_graph *graph = zp_fuse(zp_graph_localize_trivial(c.k.graph));
  zp_kernel_set *set = zp_kernels_new(c.k.arena, dtype);
  const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "f");
  c.loaded = load_set(set, NULL, NULL);
  c.kernel = (zpk_row_kernel *)find_symbol(&c.loaded, symbol);
  return c;
}

static void run_op(const compiled_function *c, const void *x, void *y, int64_t rows) {
  int64_t ld = N;
  zpk_row_args args = {.in = (const void *const[]){x}, .in_ld = &ld, .out = (void *const[]){y}, .out_ld = &ld};
  c->kernel(&args, 0, rows, 0);
}

static void check_function(const function *f, bool f64) {
  compiled_function c = compile_op(f->op, f64 ? ZPK_F64 : ZPK_F32);
  void *x = zp_alloc(c.k.arena, ROWS * N * 8), *y = zp_alloc(c.k.arena, ROWS * N * 8);
  for (int64_t i = 0; i < ROWS * N; i++) put(x, i, grid(f->low, f->high, i, ROWS * N), f64);
  run_op(&c, x, y, ROWS);
  long double worst = 0, where = 0;
  for (int64_t i = 0; i < ROWS * N; i++) {
    long double exact = f->exact(get(x, i, f64));
    long double error = fabsl(get(y, i, f64) - exact) / ulp(exact, f64);
    if (!(error <= worst)) worst = error, where = get(x, i, f64);
  }
  double bound = f64 ? f->f64_ulp : f->f32_ulp;
  cr_assert(worst <= bound, "%s %s: %.2Lf ulp at %Lg, the stated bound is %g", f->name, f64 ? "f64" : "f32", worst,
            where, bound);
  unload_set(&c.loaded);
  kit_free(&c.k);
}

Test(rowprog_math, stated_bounds_f32) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) check_function(&functions[i], false);
}
Test(rowprog_math, stated_bounds_f64) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) check_function(&functions[i], true);
}

/* erf is no op of the language: measured through gelu(x) = x / 2 (1 + erf(x / sqrt(2))). */
static void check_gelu(bool f64, double bound) {
  compiled_function c = compile_op(ZP_OP_GELU, f64 ? ZPK_F64 : ZPK_F32);
  void *x = zp_alloc(c.k.arena, ROWS * N * 8), *y = zp_alloc(c.k.arena, ROWS * N * 8);
  for (int64_t i = 0; i < ROWS * N; i++) put(x, i, grid(-12, 12, i, ROWS * N), f64);
  run_op(&c, x, y, ROWS);
  for (int64_t i = 0; i < ROWS * N; i++) {
    long double a = get(x, i, f64), exact = a / 2 * (1 + erfl(a / sqrtl(2)));
    cr_assert(fabsl(get(y, i, f64) - exact) <= bound * (1 + fabsl(a)), "gelu(%Lg) = %.17g, exactly %.17Lg", a,
              get(y, i, f64), exact);
  }
  unload_set(&c.loaded);
  kit_free(&c.k);
}
Test(rowprog_math, gelu_f32) { check_gelu(false, 3e-7); }
Test(rowprog_math, gelu_f64) { check_gelu(true, 5e-16); }

/* exp underflows gradually and overflows where libm does. */
static void check_exp_ends(bool f64) {
  compiled_function c = compile_op(ZP_OP_EXP, f64 ? ZPK_F64 : ZPK_F32);
  double x64[N], y64[N];
  float x32[N], y32[N];
  for (int i = 0; i < N; i++) x32[i] = (float)(x64[i] = f64 ? grid(-750, -700, i, N) : grid(-110, -85, i, N));
  x32[0] = (float)(x64[0] = f64 ? 709.9 : 88.8);
  x32[1] = (float)(x64[1] = f64 ? 709.7 : 88.7);
  x32[2] = (float)(x64[2] = -1e30);
  x32[3] = (float)(x64[3] = 1e30);
  run_op(&c, f64 ? (void *)x64 : (void *)x32, f64 ? (void *)y64 : (void *)y32, 1);
  for (int i = 0; i < N; i++) {
    double got = f64 ? y64[i] : y32[i], want = f64 ? exp(x64[i]) : (double)expf(x32[i]);
    if (isinf(want))
      cr_assert_eq(got, want, "exp(%g) = %g", x64[i], got);
    else
      cr_assert(fabs(got - want) <= 2 * ulp(want, f64), "exp(%.17g) = %g, want %g", x64[i], got, want);
  }
  unload_set(&c.loaded);
  kit_free(&c.k);
}
Test(rowprog_math, exp_underflows_gradually) {
  check_exp_ends(false);
  check_exp_ends(true);
}
