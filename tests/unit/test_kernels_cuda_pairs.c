/* Device attention over keys of another sequence, with relative biases and with dropout: against naive f64 sums.
 * Dropout also in windows and over the runs of blocks of a layout. */
#include "attention_device.h"
#include "pairs_testing.h"

static const char plain_text[] = "#define ZPD_CROSS\n#define ZPD_BIAS\n#define ZPD_DROPOUT\n#define ZPD_WINDOWS\n"
                                 "#include \"zpd_attention.cuh\"\n";

enum { HEAD = 16 };

/* As the runtime launches them. */
static void run_pair(const host_object *k, zpk_attention_args *args) {
  const zpk_dtype real = real_of(args->dtype);
  const int64_t bytes = zpk_real_bytes(args->dtype), tiles = zpd_bias_tiles(args->S), threads = ZPD_FLAT_THREADS;
  int64_t key_tiles = ((args->keys ? args->keys : args->S) + ZPD_ATTENTION_ROWS - 1) / ZPD_ATTENTION_ROWS;
  args->bias_lines = malloc((size_t)(zpd_bias_line_bytes(args->H, args->S, bytes) + zpd_bias_bucket_bytes(args->S)));
  args->bias_sums = stored(real, NULL, zpd_bias_sum_bytes(args->B, args->H, tiles, MOST_BUCKETS, 1));
  zpd_bias bias = zpr_bias_args(args, true);
  zpd_attention a = zpr_attention_args(args);
  zpr_add_dropout(&args->dropout, &a);
  if (args->buckets) {
    device_launch(k, "zpd_bias_lines", &bias, 2, 1, 1, threads);
    zpr_use_bias(&bias, &a);
  }
  device_launch(k, "zpd_attention_forward", &a, tiles, a.H, a.B, ZPD_ATTENTION_THREADS);
  device_launch(k, "zpd_attention_grad_q", &a, tiles, a.H, a.B, ZPD_ATTENTION_THREADS);
  device_launch(k, "zpd_attention_grad_kv", &a, key_tiles, a.G, a.B, ZPD_ATTENTION_THREADS);
  if (args->buckets) device_launch(k, "zpd_bias_grad", &bias, 2, 1, 1, threads);
  free(args->bias_lines), free(args->bias_sums);
}

static void run_kind(zpk_dtype dtype) {
  if (sanitized && dtype != ZPK_F32) cr_skip_test("sanitizers see f32");
  host_object k = device_open(plain_text, dtype, HEAD);
  for (size_t i = 0; i < PAIR_CASES; i++) {
    pair_problem p = make_pair(dtype, i);
    char what[64];
    snprintf(what, sizeof what, "case %zu, dtype %d", i, (int)dtype);
    run_pair(&k, &p.args);
    check_pair(&p, what);
  }
  host_unload(&k);
}

Test(kernels_cuda_pairs, plain_f64) { run_kind(ZPK_F64); }
Test(kernels_cuda_pairs, plain_f32) { run_kind(ZPK_F32); }
Test(kernels_cuda_pairs, plain_bf16) { run_kind(ZPK_BF16); }
