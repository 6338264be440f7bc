/* Attention kernels against a naive f64 reference and central differences: every instruction set of this machine, f32
 * and f64, odd sizes, grouped queries, padding heads. */
#include "attention.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct problem {
  zpk_attention_args a;
  double *q, *k, *v, *d_o;        /* exact values of what the kernel gets */
  double *o, *lse, *dq, *dk, *dv; /* what the reference says */
  void *qkv, *d_qkv, *o_out, *d_o_in, *lse_out;
} problem;

static double pseudo(uint64_t i) {
  i = (i + 1) * 0x9E3779B97F4A7C15u;
  i ^= i >> 31;
  i *= 0xBF58476D1CE4E5B9u;
  return (double)(i >> 40) / (1 << 23) - 1;
}

static double get(zpk_dtype dtype, const void *x, int64_t i) {
  return dtype == ZPK_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void put(zpk_dtype dtype, void *x, int64_t i, double value) {
  if (dtype == ZPK_F64)
    ((double *)x)[i] = value;
  else
    ((float *)x)[i] = (float)value;
}

/* Copies a dense [rows, cols] f64 matrix into a strided one, rounding the source to what was stored. */
static void store(zpk_dtype dtype, double *from, int64_t rows, int64_t cols, void *to, int64_t ld) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      put(dtype, to, r * ld + c, from[r * cols + c]);
      from[r * cols + c] = get(dtype, to, r * ld + c);
    }
}

static double *numbers(int64_t count, uint64_t salt) {
  double *x = malloc((size_t)count * sizeof *x);
  for (int64_t i = 0; i < count; i++) x[i] = pseudo(salt * 1000003 + (uint64_t)i);
  return x;
}

/* A packed q,k,v matrix as a fused projection makes it, so that every operand is a strided view. */
static problem make_problem(zpk_dtype dtype, int64_t B, int64_t S, int64_t H, int64_t G, int64_t valid, int64_t hd,
                            bool causal) {
  problem p = {0};
  int64_t rows = B * S, ld = (H + 2 * G) * hd + 3, e = zpk_bytes(dtype);
  p.q = numbers(rows * H * hd, 1);
  p.k = numbers(rows * G * hd, 2);
  p.v = numbers(rows * G * hd, 3);
  p.d_o = numbers(rows * H * hd, 4);
  p.qkv = calloc((size_t)(rows * ld), (size_t)e);
  p.d_qkv = malloc((size_t)(rows * ld * e));
  memset(p.d_qkv, 0xff, (size_t)(rows * ld * e)); /* NaN: whoever reads before writing is caught */
  p.o_out = malloc((size_t)(rows * H * hd * e));
  p.d_o_in = malloc((size_t)(rows * H * hd * e));
  p.lse_out = malloc((size_t)(rows * H * e));
  char *base = p.qkv, *d_base = p.d_qkv;
  p.a = (zpk_attention_args){.dtype = dtype,
                             .B = B,
                             .S = S,
                             .H = H,
                             .G = G,
                             .hd = hd,
                             .kv_heads_valid = valid,
                             .scale = 1.7 / sqrt((double)hd),
                             .causal = causal,
                             .q = base,
                             .k = base + H * hd * e,
                             .v = base + (H + G) * hd * e,
                             .q_ld = ld,
                             .k_ld = ld,
                             .v_ld = ld,
                             .o = p.o_out,
                             .o_ld = H * hd,
                             .lse = p.lse_out,
                             .d_o = p.d_o_in,
                             .d_o_ld = H * hd,
                             .dq = d_base,
                             .dk = d_base + H * hd * e,
                             .dv = d_base + (H + G) * hd * e,
                             .dq_ld = ld,
                             .dk_ld = ld,
                             .dv_ld = ld};
  store(dtype, p.q, rows, H * hd, base, ld);
  store(dtype, p.k, rows, G * hd, base + H * hd * e, ld);
  store(dtype, p.v, rows, G * hd, base + (H + G) * hd * e, ld);
  store(dtype, p.d_o, rows, H * hd, p.d_o_in, H * hd);
  p.o = calloc((size_t)(rows * H * hd), sizeof(double));
  p.lse = calloc((size_t)(rows * H), sizeof(double));
  p.dq = calloc((size_t)(rows * H * hd), sizeof(double));
  p.dk = calloc((size_t)(rows * G * hd), sizeof(double));
  p.dv = calloc((size_t)(rows * G * hd), sizeof(double));
  return p;
}

static void free_problem(problem *p) {
  void *all[] = {p->q,  p->k,  p->v,   p->d_o,   p->o,     p->lse,    p->dq,
                 p->dk, p->dv, p->qkv, p->d_qkv, p->o_out, p->d_o_in, p->lse_out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static double dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
  return sum;
}

static void axpy(double a, const double *x, double *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

/* One query row of one head, forward and backward, by the definition. */
static void reference_row(problem *p, int64_t b, int64_t h, int64_t query) {
  const zpk_attention_args *a = &p->a;
  int64_t S = a->S, hd = a->hd, g = h / (a->H / a->G), row = b * S + query, keys = a->causal ? query + 1 : S;
  const double *q = p->q + (row * a->H + h) * hd, *d_o = p->d_o + (row * a->H + h) * hd;
  double *o = p->o + (row * a->H + h) * hd, *score = malloc((size_t)keys * sizeof *score), max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < keys; j++) {
    score[j] = a->scale * dot(q, p->k + ((b * S + j) * a->G + g) * hd, hd);
    max = fmax(max, score[j]);
  }
  for (int64_t j = 0; j < keys; j++) sum += exp(score[j] - max);
  p->lse[row * a->H + h] = max + log(sum);
  for (int64_t j = 0; j < keys; j++) axpy(exp(score[j] - max) / sum, p->v + ((b * S + j) * a->G + g) * hd, o, hd);
  double delta = dot(d_o, o, hd);
  for (int64_t j = 0; j < keys; j++) {
    int64_t kv = ((b * S + j) * a->G + g) * hd;
    double prob = exp(score[j] - max) / sum, ds = prob * (dot(d_o, p->v + kv, hd) - delta) * a->scale;
    axpy(prob, d_o, p->dv + kv, hd);
    axpy(ds, q, p->dk + kv, hd);
    axpy(ds, p->k + kv, p->dq + (row * a->H + h) * hd, hd);
  }
  free(score);
}

/* Padding heads keep the zeros of calloc. */
static void reference(problem *p) {
  const zpk_attention_args *a = &p->a;
  for (int64_t b = 0; b < a->B; b++)
    for (int64_t h = 0; h < a->kv_heads_valid * (a->H / a->G); h++)
      for (int64_t query = 0; query < a->S; query++) reference_row(p, b, h, query);
}

/* Largest difference relative to the largest element. */
static double difference(zpk_dtype dtype, const void *x, int64_t ld, const double *want, int64_t rows, int64_t cols) {
  double worst = 0, largest = 1e-300;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      double d = fabs(get(dtype, x, r * ld + c) - want[r * cols + c]);
      worst = d <= worst ? worst : d; /* NaN wins */
      largest = fmax(largest, fabs(want[r * cols + c]));
    }
  return worst / largest;
}

static void check(problem *p, const char *what) {
  const zpk_attention_args *a = &p->a;
  int64_t rows = a->B * a->S, q_cols = a->H * a->hd, kv_cols = a->G * a->hd;
  double bound = a->dtype == ZPK_F64 ? 1e-14 * (1 + (double)a->S / 50) : 4e-6 * (1 + (double)a->S / 50);
  cr_expect_lt(difference(a->dtype, a->o, a->o_ld, p->o, rows, q_cols), bound, "%s: o", what);
  cr_expect_lt(difference(a->dtype, a->lse, a->H, p->lse, rows, a->H), bound, "%s: lse", what);
  cr_expect_lt(difference(a->dtype, a->dq, a->dq_ld, p->dq, rows, q_cols), bound, "%s: dq", what);
  cr_expect_lt(difference(a->dtype, a->dk, a->dk_ld, p->dk, rows, kv_cols), bound, "%s: dk", what);
  cr_expect_lt(difference(a->dtype, a->dv, a->dv_ld, p->dv, rows, kv_cols), bound, "%s: dv", what);
}

static int64_t share_bytes(const zpk_attention_args *a) {
  int64_t forward = zpk_attention_workspace(a->dtype, a->S, a->hd, false);
  int64_t backward = zpk_attention_workspace(a->dtype, a->S, a->hd, true);
  return forward > backward ? forward : backward;
}

/* Of exactly the promised size, so that the address sanitizer sees what goes beyond, and full of NaN. */
static void *new_workspace(const zpk_attention_args *a, bool backward, int shares) {
  size_t bytes = (size_t)(shares * zpk_attention_workspace(a->dtype, a->S, a->hd, backward));
  void *workspace = malloc(bytes);
  memset(workspace, 0xff, bytes);
  return workspace;
}

static void run_public(problem *p) {
  int64_t tasks = p->a.B * p->a.G;
  p->a.workspace = new_workspace(&p->a, false, 1);
  zpk_attention(&p->a, 0, tasks, 0);
  free(p->a.workspace);
  p->a.workspace = new_workspace(&p->a, true, 1);
  zpk_attention_grad(&p->a, 0, tasks, 0);
  free(p->a.workspace);
}

static const struct {
  int64_t B, S, H, G, valid, hd;
} shapes[] = {
    {1, 1, 1, 1, 1, 1},   {2, 7, 3, 3, 3, 5},    {1, 48, 2, 2, 2, 64}, {2, 49, 4, 2, 2, 32},
    {1, 96, 2, 1, 1, 80}, {1, 131, 3, 3, 2, 17}, {2, 64, 6, 3, 2, 64}, {1, 200, 2, 2, 2, 136},
};

static void run_shapes(zpk_dtype dtype, bool causal) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    problem p =
        make_problem(dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid, shapes[i].hd, causal);
    char what[80];
    snprintf(what, sizeof what, "shape %zu, f%d, %s", i, dtype == ZPK_F64 ? 64 : 32, causal ? "causal" : "full");
    reference(&p);
    run_public(&p);
    check(&p, what);
    free_problem(&p);
  }
}

Test(kernels_attention, f64_causal) { run_shapes(ZPK_F64, true); }
Test(kernels_attention, f64_full) { run_shapes(ZPK_F64, false); }
Test(kernels_attention, f32_causal) { run_shapes(ZPK_F32, true); }
Test(kernels_attention, f32_full) { run_shapes(ZPK_F32, false); }

/* The public functions take the best level; here the others of this machine. */
static void run_level(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < 2; dtype++) {
    problem p = make_problem((zpk_dtype)dtype, 2, 67, 4, 2, 2, 24, true);
    p.a.workspace = malloc((size_t)share_bytes(&p.a));
    for (int64_t task = 0; task < 4; task++) level->forward[dtype](&p.a, task / 2, task % 2, p.a.workspace);
    for (int64_t task = 0; task < 4; task++) level->backward[dtype](&p.a, task / 2, task % 2, p.a.workspace);
    reference(&p);
    check(&p, name);
    free(p.a.workspace);
    free_problem(&p);
  }
}

Test(kernels_attention, every_instruction_set) {
  run_level(&zpk_attention_base, "base");
#if ZPK_X86_LEVELS
  if (__builtin_cpu_supports("x86-64-v3")) run_level(&zpk_attention_v3, "v3");
  if (__builtin_cpu_supports("x86-64-v4")) run_level(&zpk_attention_v4, "v4");
#endif
}

Test(kernels_attention, task_ranges_do_not_change_bits) {
  problem one = make_problem(ZPK_F32, 3, 70, 4, 2, 2, 40, true), many = make_problem(ZPK_F32, 3, 70, 4, 2, 2, 40, true);
  run_public(&one);
  many.a.workspace = new_workspace(&many.a, false, 3);
  zpk_attention(&many.a, 5, 6, 2);
  zpk_attention(&many.a, 0, 3, 0);
  zpk_attention(&many.a, 3, 5, 1);
  free(many.a.workspace);
  many.a.workspace = new_workspace(&many.a, true, 2);
  zpk_attention_grad(&many.a, 2, 6, 1);
  zpk_attention_grad(&many.a, 0, 2, 0);
  free(many.a.workspace);
  int64_t rows = 3 * 70;
  cr_expect_arr_eq(one.o_out, many.o_out, (size_t)(rows * 4 * 40) * sizeof(float));
  cr_expect_arr_eq(one.d_qkv, many.d_qkv, (size_t)(rows * one.a.dq_ld) * sizeof(float));
  free_problem(&one);
  free_problem(&many);
}

/* Large scores: the running maximum must keep exp in range, and a late large key must rescale what came before. */
Test(kernels_attention, large_scores_stay_finite) {
  problem p = make_problem(ZPK_F64, 1, 120, 1, 1, 1, 8, true);
  p.a.scale = 400;
  reference(&p);
  run_public(&p);
  int64_t rows = 120;
  cr_expect_lt(difference(ZPK_F64, p.a.o, p.a.o_ld, p.o, rows, 8), 1e-12);
  cr_expect_lt(difference(ZPK_F64, p.a.lse, 1, p.lse, rows, 1), 1e-12);
  free_problem(&p);
}

/* sum(d_o * o) as a function of one element of q, k or v. */
static double objective(problem *p) {
  zpk_attention(&p->a, 0, p->a.B * p->a.G, 0);
  double sum = 0;
  for (int64_t i = 0; i < p->a.B * p->a.S * p->a.H * p->a.hd; i++) sum += p->d_o[i] * ((double *)p->o_out)[i];
  return sum;
}

Test(kernels_attention, central_differences) {
  problem p = make_problem(ZPK_F64, 1, 53, 2, 1, 1, 6, true);
  run_public(&p);
  p.a.workspace = new_workspace(&p.a, false, 1);
  int64_t ld = p.a.q_ld, cols = 4 * 6;
  double *x = p.qkv, *dx = p.d_qkv, h = 1e-5;
  for (int64_t at = 0; at < 53 * cols; at += 37) {
    int64_t i = at / cols * ld + at % cols;
    double old = x[i];
    x[i] = old + h;
    double up = objective(&p);
    x[i] = old - h;
    double down = objective(&p);
    x[i] = old;
    cr_expect_float_eq((up - down) / (2 * h), dx[i], 1e-8, "element %lld", (long long)at);
  }
  free(p.a.workspace);
  free_problem(&p);
}
