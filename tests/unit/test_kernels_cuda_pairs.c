/* SPDX-License-Identifier: Apache-2.0 */
/* Device attention over keys of another sequence, with relative biases and with dropout: against naive f64 sums.
 * Dropout as of a context rank's stretches, which begin anywhere and may stand in the opposite order; also in windows
 * and over the runs of blocks of a layout. */
#include <zplan/own_gpu.h>
#include "attention_device.h"
#include "pairs_testing.h"

#define OPTIONS "#define ZPD_CROSS\n#define ZPD_BIAS\n#define ZPD_DROPOUT\n#define ZPD_CONTEXT_KEYS\n"
static const char plain_text[] = OPTIONS "#include \"zpd_attention.cuh\"\n";
static const char mma_text[] = OPTIONS "#include \"zpd_mma_attention_grad.cuh\"\n";
static const char volta_text[] = OPTIONS "#define ZPD_VOLTA\n#include \"zpd_mma_attention_grad.cuh\"\n";

/* As the runtime launches them; head: that the text is compiled for. */
static void run_pair(const host_object *k, zpk_attention_args *args, bool cores, int head) {
  const int64_t bytes = zpk_real_bytes(args->dtype), S = args->S, K = args->keys ? args->keys : S;
  const zpd_int tiles = zpd_bias_tiles(S, cores), reach = zpd_bias_reach(S, args->max_distance);
  args->bias_lines = malloc((size_t)(zpd_bias_line_bytes(args->H, S, bytes) + zpd_bias_bucket_bytes(S)));
  args->bias_sums = stored(real_of(args->dtype), NULL, zpd_bias_sum_bytes(args->B, args->H, tiles, reach, 1));
  zpd_bias bias = zpr_bias_args(args, true, cores);
  zpd_attention a = zpr_attention_args(args);
  zpr_add_dropout(&args->dropout, &a);
  if (args->buckets) {
    device_launch(k, "zpd_bias_lines", &bias, 2, 1, 1, ZPD_FLAT_THREADS);
    zpr_use_bias(&bias, &a);
  }
  if (cores) {
    a.facts = malloc((size_t)zpd_mma_facts_bytes(a.B, a.H, S));
    launch_mma(k, "zpd_mma_forward", ZPD_MMA_FORWARD, head, &a, S, a.H, 0);
    if (args->buckets)
      launch_mma(k, "zpd_mma_grad_q_bias", ZPD_MMA_GRAD_Q_BIAS, head, &a, S, a.H, 0);
    else
      launch_mma(k, "zpd_mma_grad_q", ZPD_MMA_GRAD_Q, head, &a, S, a.H, 0);
    launch_mma(k, "zpd_mma_grad_kv", ZPD_MMA_GRAD_KV, head, &a, K, a.G, 0);
    free(a.facts);
  } else
    launch_plain(k, &a);
  if (args->buckets) device_launch(k, "zpd_bias_grad", &bias, 2, 1, 1, ZPD_FLAT_THREADS);
  free(args->bias_lines), free(args->bias_sums);
}

/* Products that a watched object has counted of each kernel, as many as the planner prices; lengths leave some out. */
static void check_counts(const host_object *k, const zpk_attention_args *a, int head, long counted[3]) {
  const char *const names[] = {"zpd_mma_forward", a->buckets ? "zpd_mma_grad_q_bias" : "zpd_mma_grad_q",
                               "zpd_mma_grad_kv"};
  const zp_attention_shape shape = {a->B, a->H,      a->G, a->S, a->hd,   head,
                                    2,    a->causal, NULL, 0,    a->keys, a->buckets > 0};
  for (int i = 0; i < 3; i++) {
    double flop = (double)(host_counts(k, names[i]).mma - counted[i]) * 2 * 16 * 8 * 16;
    double priced = zp_attention_walk_of((zp_tensor_kernel)i, &shape).flop;
    counted[i] = i == 1 ? 0 : host_counts(k, names[i]).mma;
    if (!a->lengths) cr_expect_eq(flop, priced, "%s: %g, the planner counts %g FLOP", names[i], flop, priced);
  }
}

/* few: two of the cases, of either kind, with dropout. */
static void run_kind(const char *text, zpk_dtype dtype, bool cores, int head, bool watch, bool few) {
  if (sanitized && dtype != ZPK_F32 && (few || dtype != ZPK_BF16)) cr_skip_test("sanitizers see f32 and bf16");
  host_object k = device_open_as(text, dtype, head, watch);
  long counted[3] = {0};
  for (size_t i = few ? 1 : 0; i < PAIR_CASES; i += few ? 4 : 1) {
    pair_problem p = make_pair(dtype, i);
    char what[64];
    snprintf(what, sizeof what, "case %zu, dtype %d, heads up to %d", i, (int)dtype, head);
    run_pair(&k, &p.args, cores, head);
    if (watch) check_counts(&k, &p.args, head, counted);
    check_pair(&p, what);
  }
  host_unload(&k);
}

Test(kernels_cuda_pairs, plain_f64) { run_kind(plain_text, ZPK_F64, false, 16, false, false); }
Test(kernels_cuda_pairs, plain_f32) { run_kind(plain_text, ZPK_F32, false, 16, false, true); }
Test(kernels_cuda_pairs, mma_bf16) { run_kind(mma_text, ZPK_BF16, true, 16, false, false); }
Test(kernels_cuda_pairs, mma_f16_wide_heads) { run_kind(mma_text, ZPK_F16, true, 256, false, true); }
Test(kernels_cuda_pairs, mma_without_races) { run_kind(mma_text, ZPK_BF16, true, 16, true, true); }
Test(kernels_cuda_pairs, volta) { run_kind(volta_text, ZPK_F16, true, 16, false, true); }
