/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over keys of another sequence, and with a relative bias: cases and naive f64 sums, for the tests of the CPU
 * and of the device kernels. What is read after the lengths is NaN, and so are results before. */
#ifndef PAIRS_TESTING_H
#define PAIRS_TESTING_H

#include "lengths_testing.h"

enum { B = 3, H = 4, G = 2, HD = 10, MOST = 200, MOST_BUCKETS = 64 };

typedef struct pair_case {
  int64_t queries, keys; /* keys 0: of the same sequence */
  bool causal;
  int64_t buckets, max_distance, valid;
  int32_t lengths[B]; /* 0: all are there */
  double softcap;
} pair_case;

static const pair_case pair_cases[] = {
    {7, 120, false, 0, 0, G, {120, 1, 49}, 0},  {150, 5, false, 0, 0, G, {0}, 0},
    {60, 97, false, 0, 0, 1, {97, 48, 3}, 0.7}, {48, 48, false, 0, 0, G, {5, 48, 47}, 0},
    {131, 0, true, 32, 128, G, {0}, 0},         {131, 0, false, 32, 128, 1, {131, 1, 60}, 0},
    {50, 0, false, 8, 12, G, {0}, 0.6},         {97, 0, true, 6, 9, G, {97, 50, 2}, 0},
};

enum { PAIR_CASES = sizeof pair_cases / sizeof *pair_cases };

/* Exact values of what the kernel gets, and what the sums say. */
typedef struct arrays {
  double *q, *k, *v, *d_o, *bias, *o, *lse, *dq, *dk, *dv, *d_bias;
} arrays;

typedef struct pair_problem {
  const pair_case *c;
  arrays exact;
  zpk_attention_args args; /* without what kernels take besides */
} pair_problem;

static inline int64_t keys_of(const pair_case *c) { return c->keys ? c->keys : c->queries; }
static inline int64_t there(const pair_case *c, int b) { return c->lengths[b] ? c->lengths[b] : keys_of(c); }
static inline bool is_there(const pair_case *c, int b, int64_t query) { return c->keys || query < there(c, b); }

/* As transformers has it, in its f32. */
static inline int64_t bucket_by_hand(const pair_case *c, int64_t query, int64_t key) {
  int64_t n = c->causal ? c->buckets : c->buckets / 2, first = !c->causal && key > query ? n : 0;
  int64_t distance = llabs(key - query), exact = n / 2;
  if (distance < exact) return first + distance;
  float share = logf((float)distance / (float)exact) / (float)log((double)c->max_distance / (double)exact);
  int64_t large = exact + (int64_t)(share * (float)(n - exact));
  return first + (large < n - 1 ? large : n - 1);
}

static inline void row_by_hand(const pair_case *c, arrays *a, const zpk_attention_args *args, int b, int h, int64_t i) {
  int64_t K = keys_of(c), n = c->causal ? i + 1 : there(c, b), row = (b * c->queries + i) * H + h, g = h / (H / G);
  double score[MOST], slope[MOST], scale = args->scale, max = -INFINITY, sum = 0, delta = 0;
  const double *q = a->q + row * HD, *d_o = a->d_o + row * HD;
  double *o = a->o + row * HD;
  for (int64_t j = 0; j < n; j++) {
    double s = scale * dot(q, a->k + ((b * K + j) * G + g) * HD, HD);
    double bent = c->softcap > 0 ? tanh(s / c->softcap) : 0;
    slope[j] = c->softcap > 0 ? 1 - bent * bent : 1;
    score[j] = c->softcap > 0 ? c->softcap * bent : s;
    if (c->buckets) score[j] += a->bias[bucket_by_hand(c, i, j) * H + h];
    max = fmax(max, score[j]);
  }
  for (int64_t j = 0; j < n; j++) sum += exp(score[j] - max);
  a->lse[row] = max + log(sum);
  for (int64_t j = 0; j < n; j++)
    axpy(kept(args, b, h, i, j) * exp(score[j] - a->lse[row]), a->v + ((b * K + j) * G + g) * HD, o, HD);
  delta = dot(d_o, o, HD);
  for (int64_t j = 0; j < n; j++) {
    int64_t kv = ((b * K + j) * G + g) * HD;
    double p = exp(score[j] - a->lse[row]), z = kept(args, b, h, i, j), ds = p * (z * dot(d_o, a->v + kv, HD) - delta);
    axpy(z * p, d_o, a->dv + kv, HD);
    axpy(ds * scale * slope[j], q, a->dk + kv, HD);
    axpy(ds * scale * slope[j], a->k + kv, a->dq + row * HD, HD);
    if (c->buckets) a->d_bias[bucket_by_hand(c, i, j) * H + h] += ds;
  }
}

/* An array as the kernel gets it; the exact values of it go back. NULL: full of NaN. */
static inline void *stored(zpk_dtype dtype, double *from, int64_t n) {
  void *to = malloc((size_t)(n * zpk_bytes(dtype)));
  for (int64_t i = 0; i < n; i++) put(dtype, to, i, from ? from[i] : NAN);
  for (int64_t i = 0; from && i < n; i++) from[i] = get(dtype, to, i);
  return to;
}

static inline void check_array(zpk_dtype dtype, void *got, const double *want, int64_t n, double bound,
                               const char *what) {
  cr_expect_lt(difference(dtype, got, n, want, 1, n), bound, "%s", what);
  free(got);
}

/* Queries and keys are parts of a longer sample, from an odd place on; turned: the last key is its first. */
static inline void place_stretch(zpk_attention_args *args, bool turned) {
  zpk_attention_dropout *drop = &args->dropout;
  int64_t keys = drop->keys;
  drop->first_query = turned ? args->S + 30 : 17, drop->first_key = turned ? keys - 1 : 18;
  drop->queries += 60, drop->keys += 21, drop->turned = turned;
}

/* After lengths everything is NaN, and so are results. Every second case drops. */
static inline pair_problem make_pair(zpk_dtype dtype, size_t number) {
  const pair_case *c = &pair_cases[number];
  pair_problem p = {.c = c};
  arrays *a = &p.exact;
  int64_t S = c->queries, K = keys_of(c), rows = B * S, kv_rows = B * K;
  *a = (arrays){.q = numbers(rows * H * HD, 1), .k = numbers(kv_rows * G * HD, 2), .v = numbers(kv_rows * G * HD, 3)};
  a->d_o = numbers(rows * H * HD, 4), a->bias = numbers(MOST_BUCKETS * H, 5);
  double **results[] = {&a->o, &a->dq, &a->lse, &a->dk, &a->dv, &a->d_bias};
  const int64_t sizes[] = {rows * H * HD,    rows * H * HD,    rows * H,
                           kv_rows * G * HD, kv_rows * G * HD, MOST_BUCKETS * H};
  for (int i = 0; i < 6; i++) *results[i] = calloc((size_t)sizes[i], sizeof(double));
  void *q = stored(dtype, a->q, sizes[0]), *k = stored(dtype, a->k, sizes[3]), *v = stored(dtype, a->v, sizes[3]);
  for (int64_t b = 0; b < B; b++) {
    for (int64_t j = there(c, (int)b); j < K; j++)
      for (int64_t x = 0; x < G * HD; x++)
        put(dtype, k, (b * K + j) * G * HD + x, NAN), put(dtype, v, (b * K + j) * G * HD + x, NAN);
    for (int64_t i = 0; i < S; i++)
      for (int64_t x = 0; x < H * HD && !is_there(c, (int)b, i); x++) put(dtype, q, (b * S + i) * H * HD + x, NAN);
  }
  double nothing[MOST_BUCKETS * H] = {0};
  zpk_attention_args args = {.dtype = dtype, .B = B, .S = S, .H = H, .G = G, .hd = HD, .keys = c->keys};
  args.kv_heads_valid = c->valid, args.scale = 0.9, args.causal = c->causal, args.softcap = c->softcap;
  args.buckets = c->buckets, args.max_distance = c->max_distance, args.bias_ld = H;
  args.bias = stored(dtype, a->bias, sizes[5]);
  use_dropout(&args, number % 2 ? 0.3 : 0);
  if (number % 2) place_stretch(&args, number % 4 == 3);
  args.q = q, args.k = k, args.v = v, args.d_o = stored(dtype, a->d_o, sizes[0]);
  args.o = stored(dtype, NULL, sizes[0]), args.dq = stored(dtype, NULL, sizes[0]);
  args.lse = stored(real_of(dtype), NULL, sizes[2]);
  args.dk = stored(dtype, NULL, sizes[3]), args.dv = stored(dtype, NULL, sizes[3]);
  args.d_bias = c->buckets ? stored(real_of(dtype), nothing, sizes[5]) : NULL;
  args.q_ld = args.o_ld = args.d_o_ld = args.dq_ld = H * HD;
  args.k_ld = args.v_ld = args.dk_ld = args.dv_ld = G * HD;
  if (c->lengths[0]) {
    int32_t *lengths = malloc(sizeof c->lengths);
    memcpy(lengths, c->lengths, sizeof c->lengths);
    args.lengths = lengths; /* where a GPU sees them, too */
  }
  p.args = args;
  return p;
}

/* Compares with sums by hand, and frees the problem. */
static inline void check_pair(pair_problem *p, const char *what) {
  const pair_case *c = p->c;
  const zpk_attention_args *args = &p->args;
  arrays *a = &p->exact;
  zpk_dtype dtype = args->dtype, real = real_of(dtype);
  int64_t S = c->queries, K = keys_of(c), q_size = B * S * H * HD, kv_size = B * K * G * HD;
  for (int b = 0; b < B; b++)
    for (int h = 0; h < c->valid * (H / G); h++)
      for (int64_t i = 0; i < S; i++)
        if (is_there(c, b, i)) row_by_hand(c, a, args, b, h, i);
  double exact = (dtype == ZPK_F64 ? 1e-14 : 4e-6) * (1 + (double)(S + K) / 50), bound = exact + 2 * narrow_unit(dtype);
  check_array(dtype, args->o, a->o, q_size, bound, what);
  check_array(real, args->lse, a->lse, B * S * H, exact, what);
  check_array(dtype, args->dq, a->dq, q_size, bound, what);
  check_array(dtype, args->dk, a->dk, kv_size, bound, what);
  check_array(dtype, args->dv, a->dv, kv_size, bound, what);
  if (c->buckets) check_array(real, args->d_bias, a->d_bias, MOST_BUCKETS * H, bound, what);
  const void *left[] = {args->q, args->k, args->v, args->d_o, args->bias, a->q,  a->k,      a->v,         a->d_o,
                        a->bias, a->o,    a->lse,  a->dq,     a->dk,      a->dv, a->d_bias, args->lengths};
  for (size_t i = 0; i < sizeof left / sizeof *left; i++) free((void *)(uintptr_t)left[i]);
}

#endif
