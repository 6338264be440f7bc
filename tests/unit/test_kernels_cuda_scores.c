/* SPDX-License-Identifier: Apache-2.0 */
/* Device attention in windows of tokens, within documents, with soft caps, biases by distance and dropout, with and
 * without tensor cores: against the naive f64 reference; on tensor cores without races, and with as many products as
 * the planner prices. */
#include <zplan/own_gpu.h>
#include "attention_device.h"
#include "lengths_testing.h"

#define OPTIONS "#define ZPD_WINDOWS\n#define ZPD_SCORES\n#define ZPD_DROPOUT\n#define ZPD_DOCUMENTS\n"
static const char plain_text[] = OPTIONS "#include \"zpd_attention.cuh\"\n";
static const char mma_text[] = OPTIONS "#include \"zpd_mma_attention_grad.cuh\"\n";
static const char volta_text[] = "#define ZPD_VOLTA\n" OPTIONS "#include \"zpd_mma_attention_grad.cuh\"\n";

enum { HEAD = 64 };
/* Every shape causal and full on sm_80's tensor cores, one of the two elsewhere. */
static const struct {
  int64_t B, S, H, G, valid, hd;
  attention_options options;
} shapes[] = {
    {1, 150, 2, 1, 1, 40, {3, 0, 0, 0, {0}}},     {2, 131, 4, 2, 1, 17, {63, 0, 0, 0, {0}}},
    {1, 200, 2, 1, 1, 64, {65, 0, 0, 0, {0}}},    {2, 200, 1, 1, 1, 24, {95, 0.7, 0, 0, {200, 137}}},
    {1, 100, 1, 1, 1, 8, {0, 0, 0, 0, {0}}}, /* layers without have the same kernels */
    {1, 140, 1, 1, 1, 33, {1000, 50, 0, 0, {0}}}, {1, 130, 4, 2, 2, 16, {0, 0, 6, 2, {0}}},
};

/* Within documents, some of which begin and end in the middle of tiles. */
static const struct {
  int64_t B, S, H, G, valid, hd;
  int32_t documents[MOST_DOCUMENTS];
  attention_options options;
  double dropout;
} documented[] = {
    {.B = 1, .S = 40, .H = 1, .G = 1, .valid = 1, .hd = 16, .documents = {1, 38}},
    {.B = 2, .S = 300, .H = 2, .G = 1, .valid = 1, .hd = 40, .documents = {64, 65, 1, 62, 100}},
    {.B = 1, .S = 200, .H = 4, .G = 2, .valid = 1, .hd = 24, .documents = {130, 3, 67}, .dropout = 0.2},
    {.B = 1, .S = 190, .H = 2, .G = 1, .valid = 1, .hd = 33, .documents = {20, 150}, .options = {.window = 50}},
    {.B = 1, .S = 131, .H = 2, .G = 2, .valid = 2, .hd = 64, .documents = {40, 41, 5}, .options = {.softcap = 0.7}},
};

static const char *const kernel_names[] = {"zpd_mma_forward", "zpd_mma_grad_q", "zpd_mma_grad_kv"};

/* all: causal and full, else one of the two in turns. */
static void run_documents(const host_object *k, zpk_dtype dtype, bool cores, bool all) {
  for (size_t i = 0; i < sizeof documented / sizeof *documented; i++)
    for (int causal = 0; causal < 2; causal++) {
      if (!all && causal != (int)i % 2) continue;
      problem p = make_problem(dtype, documented[i].B, documented[i].S, documented[i].H, documented[i].G,
                               documented[i].valid, documented[i].hd, causal);
      char what[80];
      snprintf(what, sizeof what, "documents %zu, dtype %d, %s", i, (int)dtype, causal ? "causal" : "full");
      use_options(&p, &documented[i].options);
      use_documents(&p, documented[i].documents);
      use_dropout(&p.a, documented[i].dropout);
      if (((int)i + causal) % 2) align(&p);
      reference(&p);
      spoil_results(&p);
      if (cores)
        run_mma(k, &p, HEAD);
      else
        run_plain(k, &p);
      check(&p, what);
      check_zeros(&p, what);
      free_problem(&p);
    }
}

static void run_kind(const char *text, zpk_dtype dtype, bool cores) {
  if (sanitized && dtype != ZPK_F32) cr_skip_test("sanitizers see f32");
  host_object k = device_open(text, dtype, HEAD);
  run_documents(&k, dtype, cores, text == mma_text);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int causal = 0; causal < 2; causal++) {
      if (text != mma_text && causal != (int)i % 2) continue;
      problem p = make_problem(dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid, shapes[i].hd,
                               causal);
      char what[80];
      snprintf(what, sizeof what, "shape %zu, dtype %d, %s", i, (int)dtype, causal ? "causal" : "full");
      use_options(&p, &shapes[i].options);
      use_dropout(&p.a, i % 3 == 0 ? 0.2 : 0);
      if (((int)i / 2 + causal) % 2) align(&p);
      reference(&p);
      spoil_results(&p);
      if (cores)
        run_mma(&k, &p, HEAD);
      else
        run_plain(&k, &p);
      check(&p, what);
      free_problem(&p);
    }
  host_unload(&k);
}

Test(kernels_cuda_scores, plain_f32) { run_kind(plain_text, ZPK_F32, false); }
Test(kernels_cuda_scores, mma_bf16) { run_kind(mma_text, ZPK_BF16, true); }
Test(kernels_cuda_scores, volta_f16) { run_kind(volta_text, ZPK_F16, true); }

/* Documents of whole tiles are multiplied as samples are: no step lies between two of them. */
static void count_documents(const host_object *k, bool causal, long before[3]) {
  enum { S = 256, PARTS = 2 };
  static const int32_t lengths[MOST_DOCUMENTS] = {S / PARTS, S / PARTS};
  problem packed = make_problem(ZPK_BF16, 1, S, 2, 1, 1, HEAD, causal),
          apart = make_problem(ZPK_BF16, PARTS, S / PARTS, 2, 1, 1, HEAD, causal);
  problem *both[] = {&packed, &apart};
  long products[2][3];
  use_documents(&packed, lengths);
  for (int which = 0; which < 2; which++) {
    align(both[which]);
    run_mma(k, both[which], HEAD);
    for (int i = 0; i < 3; i++) {
      long now = host_counts(k, kernel_names[i]).mma;
      products[which][i] = now - before[i];
      before[i] = now;
    }
    free_problem(both[which]);
  }
  for (int i = 0; i < 3; i++)
    cr_expect(products[0][i] == products[1][i] && products[0][i] > 0, "%s, %d: %ld products, apart %ld",
              kernel_names[i], causal, products[0][i], products[1][i]);
}

/* Tiles that a window does not reach are not multiplied. */
Test(kernels_cuda_scores, walks_as_the_planner_counts) {
  enum { S = 200, WINDOW = 70 };
  if (sanitized) cr_skip_test("watched text is compiled without sanitizers");
  long before[3] = {0};
  host_object k = device_open_as(mma_text, ZPK_BF16, HEAD, true);
  for (int causal = 0; causal < 2; causal++) {
    problem p = make_problem(ZPK_BF16, 1, S, 2, 1, 1, HEAD, causal);
    p.a.window = WINDOW;
    align(&p);
    reference(&p);
    run_mma(&k, &p, HEAD);
    check(&p, causal ? "watched, causal" : "watched, full");
    for (int i = 0; i < 3; i++) {
      const zp_attention_shape shape = {1, 2, 1, S, HEAD, HEAD, 2, causal, NULL, WINDOW, 0, false};
      double flop = (double)(host_counts(&k, kernel_names[i]).mma - before[i]) * 2 * 16 * 8 * 16;
      before[i] = host_counts(&k, kernel_names[i]).mma;
      double priced = zp_attention_walk_of((zp_tensor_kernel)i, &shape).flop;
      cr_expect_eq(flop, priced, "%s, %d: %g, the planner counts %g FLOP", kernel_names[i], causal, flop, priced);
    }
    free_problem(&p);
    count_documents(&k, causal, before);
  }
  host_unload(&k);
}
