/* SPDX-License-Identifier: Apache-2.0 */
/* Problems of attention with their naive f64 reference, for the tests of the CPU and of the device kernels. */
#ifndef ATTENTION_TESTING_H
#define ATTENTION_TESTING_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/zpk.h>
#include "narrow_testing.h"

typedef struct problem {
  zpk_attention_args a;
  double *q, *k, *v, *d_o;        /* exact values of what the kernel gets */
  double *o, *lse, *dq, *dk, *dv; /* what the reference says */
  void *qkv, *d_qkv, *o_out, *d_o_in, *lse_out;
  int32_t *lengths, *documents;
  const struct blocks *sets; /* head h of the model has set h % n_sets */
  int n_sets;                /* 0: dense */
  zpk_layout *layouts;       /* owned; of several sets */
} problem;

static inline double pseudo(uint64_t i) {
  i = (i + 1) * 0x9E3779B97F4A7C15u;
  i ^= i >> 31;
  i *= 0xBF58476D1CE4E5B9u;
  return (double)(i >> 40) / (1 << 23) - 1;
}

/* The type of log-sum-exps and of arithmetic. */
static inline zpk_dtype real_of(zpk_dtype dtype) { return zpk_is_narrow(dtype) ? ZPK_F32 : dtype; }

static inline double get(zpk_dtype dtype, const void *x, int64_t i) { return get_as(dtype, x, i); }
static inline void put(zpk_dtype dtype, void *x, int64_t i, double value) { put_as(dtype, x, i, value); }

/* Copies a dense [rows, cols] f64 matrix into a strided one, rounding the source to what was stored. */
static inline void store(zpk_dtype dtype, double *from, int64_t rows, int64_t cols, void *to, int64_t ld) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      put(dtype, to, r * ld + c, from[r * cols + c]);
      from[r * cols + c] = get(dtype, to, r * ld + c);
    }
}

static inline double *numbers(int64_t count, uint64_t salt) {
  double *x = malloc((size_t)count * sizeof *x);
  for (int64_t i = 0; i < count; i++) x[i] = pseudo(salt * 1000003 + (uint64_t)i);
  return x;
}

/* A layout and the matrix that it was made from. */
typedef struct blocks {
  zpk_layout layout;
  int64_t n;
  bool *seen;
} blocks;

static inline zpk_block_list lines_of(const bool *seen, int64_t n, int64_t line, int64_t step) {
  int32_t *first = malloc((size_t)(n + 1) * sizeof *first), runs = 0;
  zpk_run *run = malloc((size_t)(n * n) * sizeof *run);
  for (int64_t i = 0; i < n; i++) {
    first[i] = runs;
    for (int64_t j = 0; j < n; j++) {
      if (!seen[i * line + j * step]) continue;
      if (runs > first[i] && run[runs - 1].end == j)
        run[runs - 1].end++;
      else
        run[runs++] = (zpk_run){(int32_t)j, (int32_t)j + 1};
    }
  }
  first[n] = runs;
  return (zpk_block_list){first, run};
}

/* `some` of a hundred pairs, and every block with itself. */
static inline blocks make_blocks(int64_t n, int64_t block, bool causal, int some, uint64_t salt) {
  blocks b = {.n = n, .seen = calloc((size_t)(n * n), sizeof(bool))};
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < (causal ? i + 1 : n); j++)
      b.seen[i * n + j] = i == j || pseudo(salt * 7919 + (uint64_t)(i * n + j)) < some / 50.0 - 1;
  b.layout =
      (zpk_layout){.block = block, .keys = lines_of(b.seen, n, n, 1), .queries = lines_of(b.seen, n, 1, n), .id = 1};
  return b;
}

static inline void free_blocks(blocks *b) {
  const void *all[] = {b->seen, b->layout.keys.first, b->layout.keys.run, b->layout.queries.first,
                       b->layout.queries.run};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free((void *)(uintptr_t)all[i]);
}

static inline void use_blocks(problem *p, const blocks *b) {
  p->a.layout = &b->layout;
  p->sets = b;
  p->n_sets = 1;
}

/* Heads take `n` sets of equal blocks in turns, the model's head first_head being the first one here. */
static inline void use_sets(problem *p, const blocks *b, int n, int64_t first_head) {
  p->layouts = malloc((size_t)n * sizeof *p->layouts);
  for (int i = 0; i < n; i++) {
    p->layouts[i] = b[i].layout;
    p->layouts[i].others = n - 1;
  }
  p->a.layout = p->layouts;
  p->a.first_head = first_head;
  p->sets = b;
  p->n_sets = n;
}

/* A packed q,k,v matrix as a fused projection makes it, so that every operand is a strided view. */
static inline problem make_problem(zpk_dtype dtype, int64_t B, int64_t S, int64_t H, int64_t G, int64_t valid,
                                   int64_t hd, bool causal) {
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
  p.lse_out = malloc((size_t)(rows * H * zpk_real_bytes(dtype)));
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

static inline void free_problem(problem *p) {
  void *all[] = {p->q,   p->k,     p->v,     p->d_o,    p->o,       p->lse,     p->dq,      p->dk,       p->dv,
                 p->qkv, p->d_qkv, p->o_out, p->d_o_in, p->lse_out, p->lengths, p->layouts, p->documents};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static inline double dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
  return sum;
}

static inline void axpy(double a, const double *x, double *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

static inline int64_t length_of(const zpk_attention_args *a, int64_t b) {
  int64_t length = 0;
  while (a->documents && length < a->S && a->documents[b * a->S + length] >= 0) length++;
  return a->documents ? length : a->lengths ? a->lengths[b] : a->S;
}

/* The slopes of arXiv 2108.12409, as its authors' code makes them: of a power of two of heads a geometric sequence;
 * else of the power below, and then every second of the power above. */
static inline double alibi_of(const zpk_attention_args *a, int64_t h) {
  int64_t head = a->first_head + h, power = 1;
  if (a->alibi_heads == 0) return 0;
  while (2 * power <= a->alibi_heads) power *= 2;
  double first = pow(2, -8.0 / (double)power), between = pow(2, -4.0 / (double)power);
  return head < power ? pow(first, (double)(head + 1)) : pow(between, (double)(2 * (head - power) + 1));
}

static inline bool sees_block(const problem *p, int64_t h, int64_t query, int64_t key) {
  if (p->n_sets == 0) return true;
  const blocks *b = &p->sets[(p->a.first_head + h) % p->n_sets];
  return b->seen[query / b->layout.block * b->n + key / b->layout.block];
}

/* Numbers that say which one of them was forgotten. */
static inline void use_dropout(zpk_attention_args *a, double rate) {
  a->dropout = (zpk_attention_dropout){.rate = rate,
                                       .seed = 0x123456789ABCDEF,
                                       .step = 17,
                                       .stream = 0x8001,
                                       .instance = 3,
                                       .first_sample = 40,
                                       .queries = a->S,
                                       .keys = a->keys ? a->keys : a->S};
}

/* What dropout multiplies the probability of a pair with, by the definition of its numbers. */
static inline double kept(const zpk_attention_args *a, int64_t b, int64_t h, int64_t query, int64_t key) {
  const zpk_attention_dropout *d = &a->dropout;
  if (d->rate == 0) return 1;
  query = d->first_query + (d->turned ? -query : query), key = d->first_key + (d->turned ? -key : key);
  int64_t row = (a->first_head + h) * d->queries + query, element = row * ((d->keys + 3) / 4) * 4 + key;
  double u =
      zpk_philox_uniform(d->seed, d->step, (uint64_t)(d->first_sample + b), d->stream, d->instance, (uint64_t)element);
  return u < d->rate ? 0 : 1 / (1 - d->rate);
}

/* One query row of one head, forward and backward, by the definition. */
static inline void reference_row(problem *p, int64_t b, int64_t h, int64_t query) {
  const zpk_attention_args *a = &p->a;
  int64_t S = a->S, hd = a->hd, g = h / (a->H / a->G), row = b * S + query,
          keys = a->causal ? query + 1 : length_of(a, b);
  const double *q = p->q + (row * a->H + h) * hd, *d_o = p->d_o + (row * a->H + h) * hd;
  double *o = p->o + (row * a->H + h) * hd, *score = malloc((size_t)(2 * keys) * sizeof *score), *slope = score + keys,
         max = -INFINITY, sum = 0, alibi = alibi_of(a, h);
  for (int64_t j = 0; j < keys; j++) {
    bool seen = sees_block(p, h, query, j);
    if (a->window) seen = llabs(query - j) < a->window;
    if (a->documents) seen = seen && a->documents[row] == a->documents[b * S + j];
    double scaled = a->scale * dot(q, p->k + ((b * S + j) * a->G + g) * hd, hd);
    double capped = a->softcap > 0 ? a->softcap * tanh(scaled / a->softcap) : scaled;
    slope[j] = a->softcap > 0 ? 1 - capped / a->softcap * capped / a->softcap : 1;
    score[j] = seen ? capped - alibi * fabs((double)(query - j)) : -INFINITY;
    max = fmax(max, score[j]);
  }
  for (int64_t j = 0; j < keys; j++) sum += exp(score[j] - max);
  p->lse[row * a->H + h] = max + log(sum);
  for (int64_t j = 0; j < keys; j++)
    axpy(kept(a, b, h, query, j) * exp(score[j] - max) / sum, p->v + ((b * S + j) * a->G + g) * hd, o, hd);
  double delta = dot(d_o, o, hd);
  for (int64_t j = 0; j < keys; j++) {
    int64_t kv = ((b * S + j) * a->G + g) * hd;
    double prob = exp(score[j] - max) / sum, z = kept(a, b, h, query, j);
    double ds = prob * (z * dot(d_o, p->v + kv, hd) - delta) * a->scale * slope[j];
    axpy(z * prob, d_o, p->dv + kv, hd);
    axpy(ds, q, p->dk + kv, hd);
    axpy(ds, p->k + kv, p->dq + (row * a->H + h) * hd, hd);
  }
  free(score);
}

/* Padding heads, and positions that are not there, keep the zeros of calloc. */
static inline void reference(problem *p) {
  const zpk_attention_args *a = &p->a;
  for (int64_t b = 0; b < a->B; b++)
    for (int64_t h = 0; h < a->kv_heads_valid * (a->H / a->G); h++)
      for (int64_t query = 0; query < length_of(a, b); query++) reference_row(p, b, h, query);
}

/* Largest difference relative to the largest element. */
static inline double difference(zpk_dtype dtype, const void *x, int64_t ld, const double *want, int64_t rows,
                                int64_t cols) {
  double worst = 0, largest = 1e-300;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      double d = fabs(get(dtype, x, r * ld + c) - want[r * cols + c]);
      worst = fmax(worst, isnan(d) ? INFINITY : d);
      largest = fmax(largest, fabs(want[r * cols + c]));
    }
  return worst / largest;
}

/* 16 bits: results are rounded to 8 or 11; gradients also see the rounding of the output. */
static inline void check(problem *p, const char *what) {
  const zpk_attention_args *a = &p->a;
  int64_t rows = a->B * a->S, q_cols = a->H * a->hd, kv_cols = a->G * a->hd;
  double exact = a->dtype == ZPK_F64 ? 1e-14 * (1 + (double)a->S / 50) : 4e-6 * (1 + (double)a->S / 50);
  double bound = exact + 2 * narrow_unit(a->dtype);
  cr_expect_lt(difference(a->dtype, a->o, a->o_ld, p->o, rows, q_cols), bound, "%s: o", what);
  cr_expect_lt(difference(real_of(a->dtype), a->lse, a->H, p->lse, rows, a->H), exact, "%s: lse", what);
  cr_expect_lt(difference(a->dtype, a->dq, a->dq_ld, p->dq, rows, q_cols), bound, "%s: dq", what);
  cr_expect_lt(difference(a->dtype, a->dk, a->dk_ld, p->dk, rows, kv_cols), bound, "%s: dk", what);
  cr_expect_lt(difference(a->dtype, a->dv, a->dv_ld, p->dv, rows, kv_cols), bound, "%s: dv", what);
}

#endif
