/* Attention over keys of another sequence, and with a relative bias: every instruction set and dtype against naive f64
 * sums, samples of several lengths, padding heads. What is read behind the lengths is NaN, and so are results before.
 */
#include "attention.h"
#include "lengths_testing.h"
#include <stdio.h>

enum { B = 3, H = 4, G = 2, HD = 10, MOST = 200 };

typedef struct pair_case {
  int64_t queries, keys; /* keys 0: of the same sequence */
  bool causal;
  int64_t buckets, max_distance, valid;
  int32_t lengths[B]; /* 0: all are there */
  double softcap;
} pair_case;

static const pair_case cases[] = {
    {7, 120, false, 0, 0, G, {120, 1, 49}, 0},  {150, 5, false, 0, 0, G, {0}, 0},
    {60, 97, false, 0, 0, 1, {97, 48, 3}, 0.7}, {48, 48, false, 0, 0, G, {5, 48, 47}, 0},
    {131, 0, true, 32, 128, G, {0}, 0},         {131, 0, false, 32, 128, 1, {131, 1, 60}, 0},
    {50, 0, false, 8, 12, G, {0}, 0.6},         {97, 0, true, 6, 9, G, {97, 50, 2}, 0},
};

typedef struct arrays {
  double *q, *k, *v, *d_o, *bias, *o, *lse, *dq, *dk, *dv, *d_bias;
} arrays;

static int64_t keys_of(const pair_case *c) { return c->keys ? c->keys : c->queries; }
static int64_t there(const pair_case *c, int b) { return c->lengths[b] ? c->lengths[b] : keys_of(c); }
static bool is_there(const pair_case *c, int b, int64_t query) { return c->keys || query < there(c, b); }

/* As transformers has it, in its f32. */
static int64_t bucket_by_hand(const pair_case *c, int64_t query, int64_t key) {
  int64_t n = c->causal ? c->buckets : c->buckets / 2, first = !c->causal && key > query ? n : 0;
  int64_t distance = llabs(key - query), exact = n / 2;
  if (distance < exact) return first + distance;
  float share = logf((float)distance / (float)exact) / (float)log((double)c->max_distance / (double)exact);
  int64_t large = exact + (int64_t)(share * (float)(n - exact));
  return first + (large < n - 1 ? large : n - 1);
}

static void row_by_hand(const pair_case *c, arrays *a, const zpk_attention_args *args, int b, int h, int64_t i) {
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
static void *stored(zpk_dtype dtype, double *from, int64_t n) {
  void *to = malloc((size_t)(n * zpk_bytes(dtype)));
  for (int64_t i = 0; i < n; i++) put(dtype, to, i, from ? from[i] : NAN);
  for (int64_t i = 0; from && i < n; i++) from[i] = get(dtype, to, i);
  return to;
}

static void check_array(zpk_dtype dtype, void *got, const double *want, int64_t n, double bound, const char *what) {
  cr_expect_lt(difference(dtype, got, n, want, 1, n), bound, "%s", what);
  free(got);
}

static void run_case(const zpk_attention_level *level, const char *name, zpk_dtype dtype, size_t number) {
  const pair_case *c = &cases[number];
  int64_t S = c->queries, K = keys_of(c), rows = B * S, kv_rows = B * K, heads = c->valid * (H / G);
  double scale = 0.9;
  arrays a = {.q = numbers(rows * H * HD, 1), .k = numbers(kv_rows * G * HD, 2), .v = numbers(kv_rows * G * HD, 3)};
  a.d_o = numbers(rows * H * HD, 4), a.bias = numbers(64 * H, 5);
  double **results[] = {&a.o, &a.dq, &a.lse, &a.dk, &a.dv, &a.d_bias};
  const int64_t sizes[] = {rows * H * HD, rows * H * HD, rows * H, kv_rows * G * HD, kv_rows * G * HD, 64 * H};
  for (int i = 0; i < 6; i++) *results[i] = calloc((size_t)sizes[i], sizeof(double));
  zpk_dtype real = real_of(dtype);
  void *q = stored(dtype, a.q, sizes[0]), *k = stored(dtype, a.k, sizes[3]), *v = stored(dtype, a.v, sizes[3]);
  void *d_o = stored(dtype, a.d_o, sizes[0]), *bias = stored(dtype, a.bias, sizes[5]);
  for (int64_t b = 0; b < B; b++) {
    for (int64_t j = there(c, (int)b); j < K; j++)
      for (int64_t x = 0; x < G * HD; x++)
        put(dtype, k, (b * K + j) * G * HD + x, NAN), put(dtype, v, (b * K + j) * G * HD + x, NAN);
    for (int64_t i = 0; i < S; i++)
      for (int64_t x = 0; x < H * HD && !is_there(c, (int)b, i); x++) put(dtype, q, (b * S + i) * H * HD + x, NAN);
  }
  zpk_attention_args args = {.dtype = dtype, .B = B, .S = S, .H = H, .G = G, .hd = HD, .keys = c->keys};
  args.kv_heads_valid = c->valid, args.scale = scale, args.causal = c->causal, args.softcap = c->softcap;
  args.buckets = c->buckets, args.max_distance = c->max_distance, args.bias = bias, args.bias_ld = H;
  use_dropout(&args, number % 2 ? 0.3 : 0);
  args.q = q, args.k = k, args.v = v, args.d_o = d_o;
  args.o = stored(dtype, NULL, sizes[0]), args.dq = stored(dtype, NULL, sizes[0]),
  args.lse = stored(real, NULL, sizes[2]);
  args.dk = stored(dtype, NULL, sizes[3]), args.dv = stored(dtype, NULL, sizes[3]);
  double nothing[64 * H] = {0};
  args.d_bias = c->buckets ? stored(dtype, nothing, sizes[5]) : NULL;
  args.q_ld = args.o_ld = args.d_o_ld = args.dq_ld = H * HD;
  args.k_ld = args.v_ld = args.dk_ld = args.dv_ld = G * HD;
  if (c->lengths[0]) args.lengths = c->lengths;
  args.bias_sums = stored(real, NULL, B * H * 64);
  for (int backward = 0; backward < 2; backward++) {
    int64_t share = zpk_attention_workspace(dtype, backward ? S : K, HD, H / G, backward);
    args.workspace = malloc((size_t)share);
    args.bias_lines = malloc((size_t)zpk_attention_bias_line(dtype, S, H / G, backward));
    zpk_attention_on(level, backward, &args, 0, B * G, 0);
    free(args.workspace), free(args.bias_lines);
  }
  if (c->buckets) zpk_attention_bias_grad(&args);
  for (int b = 0; b < B; b++)
    for (int h = 0; h < heads; h++)
      for (int64_t i = 0; i < S; i++)
        if (is_there(c, b, i)) row_by_hand(c, &a, &args, b, h, i);
  char what[80];
  snprintf(what, sizeof what, "%s, case %zu, dtype %d", name, number, dtype);
  double exact = (dtype == ZPK_F64 ? 1e-14 : 4e-6) * (1 + (double)(S + K) / 50), bound = exact + 2 * narrow_unit(dtype);
  check_array(dtype, args.o, a.o, sizes[0], bound, what);
  check_array(real, args.lse, a.lse, sizes[2], exact, what);
  check_array(dtype, args.dq, a.dq, sizes[0], bound, what);
  check_array(dtype, args.dk, a.dk, sizes[3], bound, what);
  check_array(dtype, args.dv, a.dv, sizes[3], bound, what);
  if (c->buckets) check_array(dtype, args.d_bias, a.d_bias, sizes[5], bound, what);
  void *left[] = {q,     k,      v,   d_o,   bias, args.bias_sums, a.q,  a.k,     a.v,
                  a.d_o, a.bias, a.o, a.lse, a.dq, a.dk,           a.dv, a.d_bias};
  for (size_t i = 0; i < sizeof left / sizeof *left; i++) free(left[i]);
}

static void run(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(level, name, (zpk_dtype)dtype, i);
}

TEST_LEVELS(kernels_attention_pairs, run)
