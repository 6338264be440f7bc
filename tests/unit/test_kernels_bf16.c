/* CPU kernels of bf16: against those of f64 on the same numbers, each result rounded once; and the rounding itself.
 * Attention is in test_kernels_attention.c, row kernels are in test_rowprog_llvm.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/zpk.h>

static float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static double wide(zpk_bf16 x) { return (double)as_float((uint32_t)x << 16); }

/* By definition: the nearer of the two neighbours, of equally near ones the one whose last bit is 0. */
static zpk_bf16 nearest(double x) {
  float narrow = (float)x;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  zpk_bf16 low = (zpk_bf16)(bits >> 16), high = (zpk_bf16)(low + 1);
  double below = fabs((double)narrow - wide(low)), above = fabs(wide(high) - (double)narrow);
  return below < above || (below == above && low % 2 == 0) ? low : high;
}

Test(kernels_bf16, rounding) {
  for (uint32_t i = 0; i < 65536; i++) {
    zpk_bf16 x = (zpk_bf16)i, back;
    float y;
    zpk_widen(&x, &y, 1);
    zpk_round(&y, &back, 1);
    if (isnan(y))
      cr_assert((back & 0x7F80) == 0x7F80 && (back & 0x7F) != 0 && (back & 0x8000) == (x & 0x8000), "NaN %04x", x);
    else
      cr_assert_eq(back, x);
    if ((i & 0x7F80) == 0x7F80) continue;
    static const uint32_t tails[] = {0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    for (int t = 0; t < 5 && (i & 0x7FFF) != 0x7F7F; t++) {
      float between = as_float(i << 16 | tails[t]);
      zpk_round(&between, &back, 1);
      cr_assert_eq(back, nearest((double)between), "%a", (double)between);
    }
  }
  float largest = as_float(0x7F7FFFFF);
  zpk_bf16 infinite, sum = 0x3F80;
  zpk_round(&largest, &infinite, 1);
  cr_assert_eq(infinite, 0x7F80, "beyond the largest number lies infinity");
  zpk_round_add(&(float){0x1p-8f}, &sum, 1);
  cr_assert_eq(sum, 0x3F80, "1 + half a unit is even already");
}

static double pseudo(int i) { return sin(1.7 * i) + 0.25 * cos(0.3 * i); }

/* The same numbers in bf16 and in f64. */
typedef struct pair {
  zpk_bf16 *narrow;
  double *exact;
} pair;

static pair numbers(int64_t count, int salt) {
  pair p = {malloc((size_t)count * sizeof *p.narrow), malloc((size_t)count * sizeof *p.exact)};
  for (int64_t i = 0; i < count; i++) p.exact[i] = wide(p.narrow[i] = nearest(pseudo((int)i + salt)));
  return p;
}

static void drop(pair p) {
  free(p.narrow);
  free(p.exact);
}

/* Rounded once: within half a unit of the 8 bits, and what f32 sums lose. */
static void check(pair p, int64_t count, const char *what) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(p.exact[i]));
  for (int64_t i = 0; i < count; i++) {
    double error = fabs(wide(p.narrow[i]) - p.exact[i]);
    cr_assert(error <= 0x1p-8 * fabs(p.exact[i]) + 1e-6 * largest, "%s: element %d is %g, not %g", what, (int)i,
              wide(p.narrow[i]), p.exact[i]);
  }
}

enum { ROWS = 700, WORDS = 19, COLS = 300, S = 35, SAMPLES = ROWS / S };

/* One word has most rows: added one by one to a bf16 sum, most of them would be lost. */
Test(kernels_bf16, lookups) {
  int32_t ids[ROWS];
  for (int r = 0; r < ROWS; r++) ids[r] = r % 5 ? 7 : r % 23 - 2;
  pair table = numbers(WORDS * COLS, 1), dy = numbers(ROWS * COLS, 2), out = numbers(ROWS * COLS, 3);
  zpk_embedding(ZPK_BF16, ids, table.narrow, 1, WORDS, COLS, out.narrow, 0, ROWS);
  zpk_embedding(ZPK_F64, ids, table.exact, 1, WORDS, COLS, out.exact, 0, ROWS);
  for (int i = 0; i < ROWS * COLS; i++) cr_assert_eq(wide(out.narrow[i]), out.exact[i]);
  for (int i = 0; i < ROWS * COLS; i++)
    dy.exact[i] = wide(dy.narrow[i] = nearest(fabs(dy.exact[i]))); /* no cancelling */
  zpk_embedding_grad(ZPK_BF16, ids, dy.narrow, 1, WORDS, ROWS, COLS, table.narrow, 0, 16);
  zpk_embedding_grad(ZPK_BF16, ids, dy.narrow, 1, WORDS, ROWS, COLS, table.narrow, 16, COLS);
  zpk_embedding_grad(ZPK_F64, ids, dy.exact, 1, WORDS, ROWS, COLS, table.exact, 0, COLS);
  check(table, WORDS * COLS, "gradient of the table");
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    pair grad = numbers(S * COLS, 4);
    zpk_position_grad(ZPK_BF16, dy.narrow, COLS, SAMPLES, S, COLS, accumulate, grad.narrow, 0, S);
    zpk_position_grad(ZPK_F64, dy.exact, COLS, SAMPLES, S, COLS, accumulate, grad.exact, 0, S);
    check(grad, S * COLS, "gradient of positions");
    drop(grad);
  }
  drop(table), drop(dy), drop(out);
}

Test(kernels_bf16, cross_entropy) {
  enum { R = 40, V = 203, VOCABULARY = 200 };
  int32_t labels[R];
  for (int r = 0; r < R; r++) labels[r] = r == 3 ? -1 : r * 37 % VOCABULARY;
  pair logits = numbers(R * V, 5), d = numbers(R * V, 6);
  float stat[R * 3], lse[R];
  double stat_f64[R * 3], lse_f64[R];
  zpk_ce_stats(ZPK_BF16, logits.narrow, V, 0, VOCABULARY, labels, stat, 0, R);
  zpk_ce_stats(ZPK_F64, logits.exact, V, 0, VOCABULARY, labels, stat_f64, 0, R);
  double loss = zpk_ce_loss(ZPK_BF16, stat, 1, R, VOCABULARY, labels, lse, 0, R);
  double want = zpk_ce_loss(ZPK_F64, stat_f64, 1, R, VOCABULARY, labels, lse_f64, 0, R);
  cr_expect_float_eq(loss, want, 1e-6 * want, "statistics are f32: %.9g, not %.9g", loss, want);
  zpk_ce_grad(ZPK_BF16, logits.narrow, V, 0, VOCABULARY, labels, lse, 0.37, d.narrow, 0, R);
  zpk_ce_grad(ZPK_F64, logits.exact, V, 0, VOCABULARY, labels, lse_f64, 0.37, d.exact, 0, R);
  check(d, R * V, "gradient");
  zpk_ce_grad(ZPK_BF16, logits.narrow, V, 0, VOCABULARY, labels, lse, 0.37, logits.narrow, 0, R);
  cr_expect_arr_eq(logits.narrow, d.narrow, R * V * sizeof *d.narrow, "in place");
  drop(logits), drop(d);
}

/* Twelve parts, each too small to move the first alone. */
Test(kernels_bf16, sums_over_ranks_are_rounded_once) {
  enum { N = 600, PARTS = 13 };
  zpk_bf16 part[PARTS][N], out[N];
  const void *all[PARTS];
  for (int p = 0; p < PARTS; p++) {
    all[p] = part[p];
    for (int i = 0; i < N; i++) part[p][i] = nearest(p == 0 ? 1 + i % 3 : 0x1p-9);
  }
  zpk_sum_parts(ZPK_BF16, out, all, PARTS, 100, N);
  for (int i = 100; i < N; i++) cr_assert_eq(out[i], nearest(1 + i % 3 + 12 * 0x1p-9));
  zpk_sum_parts(ZPK_BF16, part[4], all, PARTS, 0, N); /* in place */
  cr_expect_arr_eq(part[4] + 100, out + 100, (N - 100) * sizeof *out);
}

Test(kernels_bf16, column_sums_are_rounded_once) {
  enum { N = 600, PARTS = 8 };
  float part[PARTS][N];
  const void *all[PARTS];
  for (int p = 0; p < PARTS; p++) {
    all[p] = part[p];
    for (int i = 0; i < N; i++) part[p][i] = (float)pseudo(p * N + i);
  }
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    pair y = numbers(N, 7);
    for (int i = 0; i < N; i++) y.exact[i] *= accumulate;
    for (int i = 0; i < PARTS * N; i++) y.exact[i % N] += (double)part[i / N][i % N];
    zpk_sum_partials(ZPK_BF16, accumulate, y.narrow, all, PARTS, N);
    check(y, N, accumulate ? "added" : "stored");
    drop(y);
  }
}

/* The master copy moves by less than bf16 can tell. */
Test(kernels_bf16, optimizer_and_squares) {
  enum { N = 500, STEPS = 20 };
  float master[N], m[N] = {0}, v[N] = {0};
  double param[N], m_f64[N] = {0}, v_f64[N] = {0};
  pair g = numbers(N, 8);
  for (int i = 0; i < N; i++) param[i] = (double)(master[i] = (float)pseudo(i));
  for (int step = 1; step <= STEPS; step++) {
    zpk_update u = {ZPK_BF16, 0, 1e-5, 0.9, 0.99, 1e-8, 0.1, 0, 1 - pow(0.9, step), 1 - pow(0.99, step), 0.5};
    zpk_optimizer(&u, true, master, g.narrow, m, v, 0, N);
    u.dtype = ZPK_F64;
    zpk_optimizer(&u, true, param, g.exact, m_f64, v_f64, 0, N);
  }
  for (int i = 0; i < N; i++) cr_assert_float_eq((double)master[i], param[i], 2e-6);
  cr_assert(fabs(param[3] - pseudo(3)) > 1e-4, "it moved");
  cr_expect_float_eq(zpk_sum_squares(ZPK_BF16, g.narrow, 3, N), zpk_sum_squares(ZPK_F64, g.exact, 3, N), 1e-12);
  drop(g);
}

Test(kernels_bf16, experts) {
  enum { B = 2, T = 6, D = 270, E = 4, SLOTS = 3, K = 2 };
  zpk_routing r = {.dtype = ZPK_BF16,
                   .B = B,
                   .S = T,
                   .k = K,
                   .experts = E,
                   .slots = SLOTS,
                   .normalize = true,
                   .d = D,
                   .n_slots = E * SLOTS};
  zpk_routing exact = r;
  exact.dtype = ZPK_F64;
  pair score = numbers(B * T * E, 9), weight = numbers(B * T * K, 10), x = numbers(B * E * SLOTS * D, 11),
       out = numbers(B * T * D, 12);
  int32_t slot[B * T * K], slot_f64[B * T * K];
  zpk_top_k_gate(&r, score.narrow, weight.narrow, slot, 0, B);
  zpk_top_k_gate(&exact, score.exact, weight.exact, slot_f64, 0, B);
  cr_expect_arr_eq(slot, slot_f64, sizeof slot);
  check(weight, B * T * K, "weights");
  for (int i = 0; i < B * T * K; i++) weight.exact[i] = wide(weight.narrow[i]);
  zpk_combine(&r, x.narrow, weight.narrow, slot, out.narrow, 0, B * T);
  zpk_combine(&exact, x.exact, weight.exact, slot, out.exact, 0, B * T);
  check(out, B * T * D, "combined");
  drop(score), drop(weight), drop(x), drop(out);
}
