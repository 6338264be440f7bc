/* SPDX-License-Identifier: Apache-2.0 */
/* Device kernels of experts, compiled for the host, against those of CPU ranks: places and copies to the bit, what is
 * summed in another order within rounding. */
#include "device_kernels.h"
#include "narrow_testing.h"
#include <math.h>
#include <string.h>

static const char text[] = "#include \"zpd_experts.cuh\"\n";
enum { DTYPES = 4 };
static device_texts texts = {.text = text};
static void close_texts(void) { device_texts_close(&texts); }
TestSuite(kernels_cuda_experts, .fini = close_texts);

/* What ought to be equal up to rounding: f32, f64, and a last place of bf16 and f16. */
static const double near[DTYPES] = {1e-5, 1e-13, 1e-2, 2e-3};

/* In [-1, 1), few different values where `steps` is small: then scores are equal now and then. */
static void *numbers(zpk_dtype dtype, int64_t count, int seed, int steps) {
  void *x = malloc((size_t)(count * zpk_bytes(dtype)));
  for (int64_t i = 0; i < count; i++)
    put_as(dtype, x, i, floor(2 * steps * zpk_philox_uniform(5, 0, 0, (uint64_t)seed, 0, (uint64_t)i)) / steps - 1);
  return x;
}
static void *filled(int64_t bytes) {
  void *x = malloc((size_t)bytes);
  return memset(x, 0x5a, (size_t)bytes);
}

static void expect_near(zpk_dtype dtype, const void *got, const void *want, int64_t count, const char *what) {
  double largest = 0, error = 0;
  for (int64_t i = 0; i < count; i++) {
    largest = fmax(largest, fabs(get_as(dtype, want, i)));
    error = fmax(error, fabs(get_as(dtype, got, i) - get_as(dtype, want, i)));
  }
  cr_expect(largest > 0 && error <= near[dtype] * largest, "%s, dtype %d: %g of %g", what, (int)dtype, error, largest);
}

/* More experts than threads of a block, more choices than are listed at once, samples of no round length. */
typedef struct shape {
  int64_t B, S, k, experts, slots, d;
} shape;
static const shape shapes[] = {{3, 7, 2, 5, 3, 9}, {2, 300, 2, 300, 2, 1}, {1, 1100, 2, 4, 500, 300}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static zpk_routing routing(const shape *s, zpk_dtype dtype, bool normalize, double balance) {
  return (zpk_routing){.dtype = dtype,
                       .B = s->B,
                       .S = s->S,
                       .k = s->k,
                       .experts = s->experts,
                       .slots = s->slots,
                       .normalize = normalize,
                       .balance = balance,
                       .d = s->d,
                       .first_slot = s->slots, /* a rank that has all experts but the first and the last */
                       .n_slots = (s->experts - 2) * s->slots};
}

static zpd_routing device_routing(const zpk_routing *r) {
  return (zpd_routing){.B = r->B,
                       .S = r->S,
                       .k = r->k,
                       .experts = r->experts,
                       .slots = r->slots,
                       .d = r->d,
                       .first_slot = r->first_slot,
                       .n_slots = r->n_slots,
                       .normalize = r->normalize,
                       .sigmoid = r->sigmoid,
                       .groups = r->groups,
                       .top_groups = r->top_groups,
                       .balance = r->balance};
}

static void launch(const zpk_routing *r, const char *name, const zpd_routing *a, int64_t x, int64_t y) {
  device_launch(device_text(&texts, r->dtype), name, a, x, y, 1, ZPD_FLAT_THREADS);
}

/* Counts are added to what is there, beyond 2^32. Signs: of all experts but the first two. */
static void check_load(const zpk_routing *r, const int32_t *slot) {
  int64_t bytes = r->experts * (int64_t)sizeof(int64_t), first = 2, n = r->experts - first, all = 0;
  int64_t *count = filled(bytes), *want = filled(bytes);
  void *grad = filled(n * 8);
  for (int64_t e = 0; e < r->experts; e++) count[e] = want[e] = (int64_t)1 << 40;
  zpd_routing a = device_routing(r);
  a.slot = slot, a.count = (zpd_int *)count;
  zpk_count_load(r, slot, want);
  launch(r, "zpd_count_load", &a, (r->experts + ZPD_FLAT_THREADS - 1) / ZPD_FLAT_THREADS, 1);
  cr_expect_arr_eq(count, want, (size_t)bytes, "load, dtype %d", (int)r->dtype);
  zpd_expert_load signs = {
      .count = (const zpd_int *)count, .experts = r->experts, .first = first, .n = n, .grad = grad};
  device_launch(device_text(&texts, r->dtype), "zpd_load_signs", &signs, 1, 1, 1, ZPD_FLAT_THREADS);
  for (int64_t e = 0; e < r->experts; e++) all += want[e];
  for (int64_t i = 0; i < n; i++) {
    int64_t above = r->experts * want[first + i] - all;
    double sign = r->dtype == ZPK_F64 ? ((const double *)grad)[i] : (double)((const float *)grad)[i];
    cr_expect_eq(sign, (above > 0) - (above < 0), "sign %d, dtype %d: %g", (int)i, (int)r->dtype, sign);
  }
  free(count), free(want), free(grad);
}

/* Counts of two ranks, of which the second one chose as the first. `want`, `d_score`: room. */
static void check_choices(const zpk_routing *r, const zpd_routing *like, void *want) {
  enum { RANKS = 2 };
  int64_t count = r->B * r->experts, bytes = count * zpk_real_bytes(r->dtype);
  char *choices = filled(RANKS * bytes), *counted = filled(bytes);
  zpk_routing all = *r;
  zpd_routing a = *like;
  zpk_count_choices(r, like->slot, choices, 0, r->B);
  a.out = counted;
  launch(r, "zpd_count_choices", &a, 2, 1);
  cr_expect_arr_eq(counted, choices, (size_t)bytes, "choices, dtype %d", (int)r->dtype);
  memcpy(choices + bytes, choices, (size_t)bytes);
  all.choices = a.choices = choices, all.ranks = a.ranks = RANKS;
  a.out = like->out;
  zpk_top_k_gate_grad(&all, like->in, like->slot, like->weight, 0.3, want, 0, r->B);
  launch(r, "zpd_gate_grad", &a, (r->S + ZPD_GATE_TOKENS - 1) / ZPD_GATE_TOKENS, r->B);
  expect_near(r->dtype, a.out, want, r->S * count, "gradient of scores with choices of two ranks");
  free(choices), free(counted);
}

static void check_gate(const zpk_routing *r) {
  int64_t tokens = r->B * r->S, choices = tokens * r->k, size = zpk_bytes(r->dtype);
  void *score = numbers(r->dtype, tokens * r->experts, 1, 40), *d_weight = numbers(r->dtype, choices, 2, 1000);
  void *weight = filled(choices * size), *want_weight = filled(choices * size);
  void *bias = r->sigmoid ? numbers(r->dtype, r->experts, 3, 1000) : NULL;
  int32_t *slot = filled(choices * 4), *want_slot = filled(choices * 4);
  void *d_score = filled(tokens * r->experts * size), *want = filled(tokens * r->experts * size);
  zpk_top_k_gate(r, score, bias, want_weight, want_slot, 0, r->B);
  zpk_top_k_gate_grad(r, score, want_slot, d_weight, 0.3, want, 0, r->B);
  zpd_routing a = device_routing(r);
  a.in = score, a.bias = bias, a.out = weight, a.choice = slot;
  launch(r, "zpd_gate_choose", &a, 2, 1);
  launch(r, "zpd_gate_places", &a, 2, 1);
  cr_expect_arr_eq(slot, want_slot, (size_t)choices * 4, "slots, dtype %d", (int)r->dtype);
  expect_near(r->dtype, weight, want_weight, choices, "weights");
  a.slot = want_slot, a.weight = d_weight, a.out = d_score, a.loss_scale = 0.3;
  launch(r, "zpd_gate_grad", &a, (r->S + ZPD_GATE_TOKENS - 1) / ZPD_GATE_TOKENS, r->B);
  expect_near(r->dtype, d_score, want, tokens * r->experts, "gradient of scores");
  check_choices(r, &a, want);
  check_load(r, want_slot);
  free(score), free(d_weight), free(weight), free(want_weight), free(slot), free(want_slot), free(d_score), free(want);
  free(bias);
}

Test(kernels_cuda_experts, gate) {
  for (int s = 0; s < SHAPES; s++)
    for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
      for (int way = 0; way < 5; way++) { /* the last two: sigmoids */
        zpk_routing r = routing(&shapes[s], (zpk_dtype)dtype, way & 1, way != 2 && way != 4 ? 0.7 : 0);
        r.sigmoid = way > 2;
        check_gate(&r);
        if (way != 3 || r.experts % 4) continue;
        r.groups = r.experts / 2 < 50 ? r.experts / 2 : 50, r.top_groups = (r.k + 1) / 2 + (r.groups > 2);
        check_gate(&r);
      }
}

static void check_tokens(const zpk_routing *r) {
  int64_t tokens = r->B * r->S, choices = tokens * r->k, size = zpk_bytes(r->dtype), rows = r->B * r->n_slots * r->d;
  void *score = numbers(r->dtype, tokens * r->experts, 1, 1000), *weight = filled(choices * size);
  int32_t *slot = filled(choices * 4);
  void *x = numbers(r->dtype, tokens * r->d, 3, 1000), *y = numbers(r->dtype, rows, 4, 1000);
  void *out = filled((rows + tokens * r->d) * size), *want = filled((rows + tokens * r->d) * size);
  void *d_weight = filled(choices * size), *want_weight = filled(choices * size);
  zpk_top_k_gate(r, score, NULL, weight, slot, 0, r->B);
  zpd_routing a = device_routing(r);
  a.slot = slot, a.out = out, a.in = x;
  memset(out, 0, (size_t)(rows * size)), memset(want, 0, (size_t)(rows * size)); /* dispatch is given zeros */
  zpk_dispatch(r, x, slot, want, 0, tokens);
  launch(r, "zpd_dispatch", &a, 5, 1);
  cr_expect_arr_eq(out, want, (size_t)(rows * size), "dispatch, dtype %d", (int)r->dtype);
  a.in = y;
  for (int weighted = 0; weighted < 2; weighted++) {
    a.weight = weighted ? weight : NULL;
    zpk_combine(r, y, a.weight, slot, want, 0, tokens);
    launch(r, "zpd_combine", &a, 5, 1);
    expect_near(r->dtype, out, want, tokens * r->d, "combine");
  }
  a.d_out = x, a.d_weight = d_weight;
  memset(out, 0, (size_t)(rows * size)), memset(want, 0, (size_t)(rows * size));
  zpk_combine_grad(r, y, weight, slot, x, want, want_weight, 0, tokens);
  launch(r, "zpd_combine_grad", &a, 5, 1);
  expect_near(r->dtype, out, want, rows, "gradient of slots");
  expect_near(r->dtype, d_weight, want_weight, choices, "gradient of weights");
  free(score), free(weight), free(slot), free(x), free(y), free(out), free(want), free(d_weight), free(want_weight);
}

Test(kernels_cuda_experts, tokens) {
  for (int s = 0; s < SHAPES; s++)
    for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE) {
      zpk_routing r = routing(&shapes[s], (zpk_dtype)dtype, true, 0);
      check_tokens(&r);
    }
}
