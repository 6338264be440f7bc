/* SPDX-License-Identifier: Apache-2.0 */
/* Routing kernels: what a gate decides, its derivative by differences, dispatch and combine as each other's transposes,
 * and the shares of several ranks, in both dtypes. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <zplan/zpk.h>

enum { B = 3, S = 7, E = 5, K = 2, D = 9, SLOTS = 3, TOKENS = B * S, ROWS = E * SLOTS };

static zpk_routing routing(zpk_dtype dtype, bool normalize, double balance) {
  return (zpk_routing){.dtype = dtype,
                       .B = B,
                       .S = S,
                       .d = D,
                       .experts = E,
                       .k = K,
                       .slots = SLOTS,
                       .n_slots = ROWS,
                       .normalize = normalize,
                       .balance = balance};
}

/* Reproducible, in [-1, 1), and different for neighbouring seeds. */
static double value(int seed, int64_t i) {
  return 2 * zpk_philox_uniform(17, 0, 0, (uint64_t)seed, 0, (uint64_t)i) - 1;
}

static void fill(zpk_dtype dtype, void *x, int64_t n, int seed) {
  for (int64_t i = 0; i < n; i++) {
    if (dtype == ZPK_F64)
      ((double *)x)[i] = value(seed, i);
    else
      ((float *)x)[i] = (float)value(seed, i);
  }
}

static double get(zpk_dtype dtype, const void *x, int64_t i) {
  return dtype == ZPK_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* ---- the gate ---- */

/* Written from the definition: rank the experts of a token by counting those that come before them. */
static int rank_of(const double *score, int e) {
  int before = 0;
  for (int o = 0; o < E; o++) before += score[o] > score[e] || (score[o] == score[e] && o < e);
  return before;
}

static double affinity(const zpk_routing *r, double score) { return r->sigmoid ? 1 / (1 + exp(-score)) : exp(score); }

/* With sigmoids a bias decides some choices, and no weight. */
static void check_gate(zpk_dtype dtype, bool normalize, bool sigmoid) {
  double score[TOKENS * E], bias[E], weight[TOKENS * K];
  int32_t slot[TOKENS * K];
  zpk_routing r = routing(dtype, normalize, 0);
  r.sigmoid = sigmoid;
  fill(dtype, score, TOKENS * E, 1);
  fill(dtype, bias, E, 4);
  zpk_top_k_gate(&r, score, sigmoid ? bias : NULL, weight, slot, 1, B);
  zpk_top_k_gate(&r, score, sigmoid ? bias : NULL, weight, slot, 0, 1);
  int dropped = 0, decided = 0;
  for (int b = 0; b < B; b++) {
    int used[E] = {0};
    for (int t = b * S; t < (b + 1) * S; t++) {
      double token[E], preferred[E], sum = 0;
      for (int e = 0; e < E; e++) token[e] = get(dtype, score, t * E + e);
      for (int e = 0; e < E; e++) preferred[e] = sigmoid ? affinity(&r, token[e]) + get(dtype, bias, e) : token[e];
      for (int e = 0; e < E; e++) sum += normalize && rank_of(preferred, e) >= K ? 0 : affinity(&r, token[e]);
      if (sigmoid && !normalize) sum = 1;
      for (int j = 0; j < K; j++)
        for (int e = 0; e < E; e++) {
          if (rank_of(preferred, e) != j) continue;
          decided += rank_of(token, e) != j;
          bool fits = used[e] < SLOTS;
          cr_expect_eq(slot[t * K + j], fits ? e * SLOTS + used[e] : -1 - e, "token %d, choice %d", t, j);
          cr_expect_float_eq(get(dtype, weight, t * K + j), affinity(&r, token[e]) / sum,
                             dtype == ZPK_F64 ? 1e-15 : 1e-7);
          used[e] += fits;
          dropped += !fits;
        }
    }
  }
  cr_expect(dropped > 0, "a capacity that drops nothing tests nothing");
  cr_expect_eq(decided > 0, sigmoid, "the bias decides %d choices", decided);
}

Test(kernels_experts, gate) {
  for (int normalize = 0; normalize < 2; normalize++) {
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
      check_gate(ZPK_F32, normalize, sigmoid);
      check_gate(ZPK_F64, normalize, sigmoid);
    }
  }
}

/* Groups of experts by the definition: those before a group are counted, its score is the largest sum of two. */
enum { GE = 12, GROUPS = 4, TOP_GROUPS = 2, GROUP = GE / GROUPS, GK = 3 };

static double group_score(const double *preferred) {
  double most = -INFINITY;
  for (int i = 0; i < GROUP; i++)
    for (int j = 0; j < i; j++) most = fmax(most, preferred[i] + preferred[j]);
  return most;
}

static bool is_kept(const double *preferred, int group) {
  double own = group_score(preferred + group * GROUP);
  int before = 0;
  for (int g = 0; g < GROUPS; g++) {
    double other = group_score(preferred + g * GROUP);
    before += other > own || (other == own && g < group);
  }
  return before < TOP_GROUPS;
}

/* Experts before e, of those that are kept, or of all. */
static int rank_among(const double *preferred, int e, bool all) {
  int before = 0;
  for (int o = 0; o < GE; o++)
    before += (all || is_kept(preferred, o / GROUP)) &&
              (preferred[o] > preferred[e] || (preferred[o] == preferred[e] && o < e));
  return before;
}

/* Every third token has equal scores, so that the bias alone decides, and the bias of the last two groups is equal. */
static void check_groups(zpk_dtype dtype) {
  double score[TOKENS * GE], bias[GE], weight[TOKENS * GK];
  int32_t slot[TOKENS * GK];
  zpk_routing r = routing(dtype, true, 0);
  r.sigmoid = true, r.experts = GE, r.k = GK, r.slots = S, r.groups = GROUPS, r.top_groups = TOP_GROUPS;
  fill(dtype, score, TOKENS * GE, 1);
  fill(dtype, bias, GE, 4);
  int64_t size = zpk_bytes(dtype);
  memcpy((char *)bias + 3 * GROUP * size, (char *)bias + 2 * GROUP * size, (size_t)(GROUP * size));
  for (int t = 0; t < TOKENS; t += 3) memset((char *)score + t * GE * size, 0, (size_t)(GE * size));
  zpk_top_k_gate(&r, score, bias, weight, slot, 0, B);
  int decided = 0;
  for (int t = 0; t < TOKENS; t++) {
    double preferred[GE], sum = 0;
    for (int e = 0; e < GE; e++) preferred[e] = affinity(&r, get(dtype, score, t * GE + e)) + get(dtype, bias, e);
    for (int j = 0; j < GK; j++) {
      int e = slot[t * GK + j] / S;
      cr_expect(is_kept(preferred, e / GROUP), "token %d takes expert %d of a group that it leaves", t, e);
      cr_expect_eq(rank_among(preferred, e, false), j, "token %d, choice %d: expert %d", t, j, e);
      decided += rank_among(preferred, e, true) != j;
      sum += get(dtype, weight, t * GK + j);
    }
    cr_expect_float_eq(sum, 1, dtype == ZPK_F64 ? 1e-15 : 3e-7);
  }
  cr_expect(decided > 0, "groups that change no choice test nothing");
}

Test(kernels_experts, groups) {
  check_groups(ZPK_F32);
  check_groups(ZPK_F64);
}

Test(kernels_experts, equal_scores_go_to_the_lower_expert) {
  double score[TOKENS * E] = {0}, weight[TOKENS * K];
  int32_t slot[TOKENS * K];
  zpk_routing r = routing(ZPK_F64, true, 0);
  zpk_top_k_gate(&r, score, NULL, weight, slot, 0, B);
  for (int i = 0; i < K; i++) cr_expect_eq(slot[i], i * SLOTS);
  cr_expect_eq(slot[(S - 1) * K], -1);
  cr_expect_eq(slot[(S - 1) * K + 1], -2);
}

/* The sum of weights times numbers, plus the balancing loss of every sample on the scale of its tokens. */
static double objective(const zpk_routing *r, const double *score, double loss_scale) {
  double weight[TOKENS * K], sum = 0;
  int32_t slot[TOKENS * K];
  zpk_top_k_gate(r, score, NULL, weight, slot, 0, B);
  for (int i = 0; i < TOKENS * K; i++) sum += weight[i] * value(2, i);
  for (int t = 0; t < TOKENS; t++) {
    double all = 0;
    for (int e = 0; e < E; e++) all += affinity(r, score[t * E + e]);
    for (int i = t / S * S * K; i < (t / S + 1) * S * K; i++) {
      int e = slot[i] < 0 ? -1 - slot[i] : slot[i] / SLOTS;
      sum += r->balance * E / (S * K) * affinity(r, score[t * E + e]) / all * loss_scale;
    }
  }
  return sum;
}

static void check_gate_gradient(bool normalize, bool sigmoid, double balance) {
  double score[TOKENS * E], weight[TOKENS * K], d_weight[TOKENS * K], d_score[TOKENS * E];
  int32_t slot[TOKENS * K];
  zpk_routing r = routing(ZPK_F64, normalize, balance);
  r.sigmoid = sigmoid;
  fill(ZPK_F64, score, TOKENS * E, 1);
  fill(ZPK_F64, d_weight, TOKENS * K, 2);
  zpk_top_k_gate(&r, score, NULL, weight, slot, 0, B);
  zpk_top_k_gate_grad(&r, score, slot, d_weight, 0.3, d_score, 0, B);
  const double h = 1e-5;
  for (int i = 0; i < TOKENS * E; i++) {
    double at = score[i];
    score[i] = at + h;
    double high = objective(&r, score, 0.3);
    score[i] = at - h;
    double low = objective(&r, score, 0.3);
    score[i] = at;
    cr_assert_float_eq(d_score[i], (high - low) / (2 * h), 1e-8, "score %d: %g by derivative, %g by differences", i,
                       d_score[i], (high - low) / (2 * h));
  }
}

Test(kernels_experts, gradient_of_the_gate) {
  for (int normalize = 0; normalize < 2; normalize++) {
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
      check_gate_gradient(normalize, sigmoid, 0);
      check_gate_gradient(normalize, sigmoid, 0.7);
    }
  }
}

/* Ranks that have a position each of every sample, and what all of them chose, have the gradient of the whole. */
Test(kernels_experts, gradient_of_shares_of_the_positions) {
  double score[TOKENS * E], weight[TOKENS * K], d_weight[TOKENS * K], want[TOKENS * E], got[E], choices[S * E];
  int32_t slot[TOKENS * K];
  zpk_routing whole = routing(ZPK_F64, false, 0.7), one = whole;
  one.B = one.S = 1, one.choices = choices, one.ranks = S;
  fill(ZPK_F64, score, TOKENS * E, 1);
  fill(ZPK_F64, d_weight, TOKENS * K, 2);
  zpk_top_k_gate(&whole, score, NULL, weight, slot, 0, B);
  zpk_top_k_gate_grad(&whole, score, slot, d_weight, 0.3, want, 0, B);
  for (int t = 0; t < TOKENS; t++) {
    for (int s = 0; s < S; s++) zpk_count_choices(&one, slot + (t / S * S + s) * K, choices + s * E, 0, 1);
    zpk_top_k_gate_grad(&one, score + t * E, slot + t * K, d_weight + t * K, 0.3, got, 0, 1);
    for (int e = 0; e < E; e++)
      cr_expect_float_eq(got[e], want[t * E + e], 1e-14, "token %d, expert %d: %g, not %g", t, e, got[e],
                         want[t * E + e]);
  }
}

/* Added to what is there, dropped choices included. */
Test(kernels_experts, load_of_experts) {
  double score[TOKENS * E], weight[TOKENS * K];
  int32_t slot[TOKENS * K];
  int64_t load[E];
  int dropped = 0;
  zpk_routing r = routing(ZPK_F64, true, 0);
  fill(ZPK_F64, score, TOKENS * E, 1);
  zpk_top_k_gate(&r, score, NULL, weight, slot, 0, B);
  for (int e = 0; e < E; e++) load[e] = ((int64_t)1 << 40) + e;
  zpk_count_load(&r, slot, load);
  for (int e = 0; e < E; e++) {
    int count = 0;
    for (int i = 0; i < TOKENS * K; i++) count += slot[i] == -1 - e || (slot[i] >= 0 && slot[i] / SLOTS == e);
    cr_expect_eq(load[e], ((int64_t)1 << 40) + e + count, "expert %d", e);
  }
  for (int i = 0; i < TOKENS * K; i++) dropped += slot[i] < 0;
  cr_expect_gt(dropped, 0);
}

/* ---- dispatch and combine ---- */

typedef struct tokens {
  double x[TOKENS * D], weight[TOKENS * K], y[B * ROWS * D], out[TOKENS * D];
  int32_t slot[TOKENS * K];
} tokens;

static tokens route(const zpk_routing *r) {
  tokens t;
  double score[TOKENS * E];
  fill(r->dtype, score, TOKENS * E, 1);
  fill(r->dtype, t.x, TOKENS * D, 3);
  zpk_top_k_gate(r, score, NULL, t.weight, t.slot, 0, B);
  memset(t.y, 0, sizeof t.y);
  zpk_dispatch(r, t.x, t.slot, t.y, 5, TOKENS);
  zpk_dispatch(r, t.x, t.slot, t.y, 0, 5);
  return t;
}

/* Every slot holds its token, every other slot nothing, and combining brings a token back as often as it was kept. */
static void check_round_trip(zpk_dtype dtype) {
  zpk_routing r = routing(dtype, true, 0);
  tokens t = route(&r);
  int filled[B * ROWS] = {0};
  zpk_combine(&r, t.y, NULL, t.slot, t.out, 0, TOKENS);
  for (int i = 0; i < TOKENS; i++) {
    int kept = 0;
    for (int j = 0; j < K; j++) {
      if (t.slot[i * K + j] < 0) continue;
      int row = i / S * ROWS + t.slot[i * K + j];
      kept++;
      cr_assert_eq(filled[row]++, 0, "two tokens in slot %d", row);
      for (int c = 0; c < D; c++) cr_expect_eq(get(dtype, t.y, row * D + c), get(dtype, t.x, i * D + c));
    }
    for (int c = 0; c < D; c++) cr_expect_eq(get(dtype, t.out, i * D + c), kept * get(dtype, t.x, i * D + c));
  }
  for (int row = 0; row < B * ROWS; row++)
    for (int c = 0; c < D && !filled[row]; c++) cr_expect_eq(get(dtype, t.y, row * D + c), 0);
}

Test(kernels_experts, dispatch_fills_every_slot_once) {
  check_round_trip(ZPK_F32);
  check_round_trip(ZPK_F64);
}

/* combine is linear in y and in the weights: its gradient is checked by the products of both sides. */
static void check_combine_gradient(zpk_dtype dtype) {
  zpk_routing r = routing(dtype, true, 0);
  tokens t = route(&r);
  double d_out[TOKENS * D], dy[B * ROWS * D], d_weight[TOKENS * K], y[B * ROWS * D];
  fill(dtype, d_out, TOKENS * D, 4);
  fill(dtype, y, B * ROWS * D, 5);
  memset(dy, 0, sizeof dy);
  zpk_combine(&r, y, t.weight, t.slot, t.out, 0, TOKENS);
  zpk_combine_grad(&r, y, t.weight, t.slot, d_out, dy, d_weight, 7, TOKENS);
  zpk_combine_grad(&r, y, t.weight, t.slot, d_out, dy, d_weight, 0, 7);
  double forward = 0, by_rows = 0, by_weights = 0;
  for (int i = 0; i < TOKENS * D; i++) forward += get(dtype, t.out, i) * get(dtype, d_out, i);
  for (int i = 0; i < B * ROWS * D; i++) by_rows += get(dtype, y, i) * get(dtype, dy, i);
  for (int i = 0; i < TOKENS * K; i++) by_weights += get(dtype, t.weight, i) * get(dtype, d_weight, i);
  double bound = dtype == ZPK_F64 ? 1e-13 : 1e-5;
  cr_expect_float_eq(by_rows, forward, bound, "%g, not %g", by_rows, forward);
  cr_expect_float_eq(by_weights, forward, bound, "%g, not %g", by_weights, forward);
  for (int i = 0; i < TOKENS * K; i++)
    if (t.slot[i] < 0) cr_expect_eq(get(dtype, d_weight, i), 0, "a dropped choice has no gradient");
}

/* Sorted rows: experts do not fall, nor an expert's samples and positions, and every row is a choice's. */
static void check_sorted(zpk_dtype dtype) {
  zpk_routing r = routing(dtype, true, 0);
  r.slots = S, r.n_slots = 0;
  double score[TOKENS * E], x[TOKENS * D], weight[TOKENS * K], y[TOKENS * K * D], out[TOKENS * D], dy[TOKENS * K * D];
  int32_t slot[TOKENS * K], first[B * E];
  fill(dtype, score, TOKENS * E, 1), fill(dtype, x, TOKENS * D, 3);
  zpk_top_k_gate(&r, score, NULL, weight, slot, 0, B);
  zpk_expert_rows(&r, slot, first);
  r.first_row = first;
  zpk_dispatch(&r, x, slot, y, 5, TOKENS);
  zpk_dispatch(&r, x, slot, y, 0, 5);
  int row = 0;
  for (int e = 0; e < E; e++)
    for (int b = 0; b < B; b++) {
      cr_expect_eq(first[b * E + e], row, "expert %d of sample %d", e, b);
      for (int i = b * S * K; i < (b + 1) * S * K; i++) {
        if (slot[i] / S != e) continue;
        for (int c = 0; c < D; c++)
          cr_assert_eq(get(dtype, y, row * D + c), get(dtype, x, i / K * D + c), "row %d", row);
        row++;
      }
    }
  cr_expect_eq(row, TOKENS * K);
  zpk_combine(&r, y, weight, slot, out, 0, TOKENS); /* weights sum to 1 */
  double tolerance = dtype == ZPK_F64 ? 1e-15 : 1e-6;
  for (int i = 0; i < TOKENS * D; i++) cr_expect_float_eq(get(dtype, out, i), get(dtype, x, i), tolerance);
  double d_weight[TOKENS * K];
  zpk_combine_grad(&r, y, weight, slot, x, dy, d_weight, 0, TOKENS);
  zpk_combine(&r, dy, NULL, slot, out, 0, TOKENS);
  for (int i = 0; i < TOKENS * D; i++) cr_expect_float_eq(get(dtype, out, i), get(dtype, x, i), tolerance);
  for (int i = 0; i < TOKENS * K; i++) {
    double want = 0;
    for (int c = 0; c < D; c++) want += get(dtype, x, i / K * D + c) * get(dtype, x, i / K * D + c);
    cr_expect_float_eq(get(dtype, d_weight, i), want, 10 * tolerance);
  }
}

Test(kernels_experts, sorted_rows) {
  check_sorted(ZPK_F32);
  check_sorted(ZPK_F64);
}

Test(kernels_experts, gradient_of_combine) {
  check_combine_gradient(ZPK_F32);
  check_combine_gradient(ZPK_F64);
}

/* Two ranks with three experts each, the last one padding: their parts add up to the whole. */
Test(kernels_experts, shares_of_ranks_add_up) {
  enum { SHARE = 3 * SLOTS };
  zpk_routing r = routing(ZPK_F64, true, 0);
  tokens whole = route(&r);
  zpk_combine(&r, whole.y, whole.weight, whole.slot, whole.out, 0, TOKENS);
  double sum[TOKENS * D] = {0}, part[TOKENS * D], y[B * SHARE * D];
  for (int rank = 0; rank < 2; rank++) {
    r.first_slot = rank * SHARE, r.n_slots = SHARE;
    memset(y, 0, sizeof y);
    zpk_dispatch(&r, whole.x, whole.slot, y, 0, TOKENS);
    zpk_combine(&r, y, whole.weight, whole.slot, part, 0, TOKENS);
    for (int i = 0; i < TOKENS * D; i++) sum[i] += part[i];
  }
  for (int i = 0; i < TOKENS * D; i++) cr_assert_float_eq(sum[i], whole.out[i], 1e-15);
}
