/* SPDX-License-Identifier: Apache-2.0 */
/* Attention within the documents of a sample: every instruction set and dtype against the naive f64 reference, with
 * windows, soft caps, biases by distance and dropout; to the bit what each document gives as a sample of its own, its
 * relative bias included. After the last document everything that is read is NaN, and so are results before. */
#include "attention.h"
#include "lengths_testing.h"
#include <stdio.h>

static int64_t share_of(const zpk_attention_args *a, bool backward) {
  return zpk_attention_workspace(a->dtype, a->S, a->hd, a->H / a->G, backward);
}

enum { UNWRITTEN = 0xE7 };

/* The share has the promised size, and is written up to what the kernel says that it leaves at least. */
static void run_pass(const zpk_attention_level *level, problem *p, bool backward) {
  int64_t share = share_of(&p->a, backward), written = share;
  unsigned char *workspace = memset(malloc((size_t)share), UNWRITTEN, (size_t)share);
  p->a.workspace = workspace;
  zpk_attention_on(level, backward, &p->a, 0, p->a.B * p->a.G, 0);
  while (written > 0 && workspace[written - 1] == UNWRITTEN) written--;
  cr_expect_geq(written + zpk_attention_unwritten(&p->a, backward), share);
  free(workspace);
}

static void run(const zpk_attention_level *level, problem *p) {
  spoil_results(p);
  run_pass(level, p, false);
  run_pass(level, p, true);
}

static const struct {
  int64_t B, S, H, G, valid, hd;
  int32_t documents[MOST_DOCUMENTS];
  attention_options options;
  double dropout;
} shapes[] = {
    {.B = 1, .S = 7, .H = 1, .G = 1, .valid = 1, .hd = 3, .documents = {1, 1, 5}},
    {.B = 3, .S = 150, .H = 4, .G = 2, .valid = 1, .hd = 17, .documents = {48, 49, 1, 50, 2}},
    {.B = 2, .S = 96, .H = 2, .G = 1, .valid = 1, .hd = 24, .documents = {13, 90}, .dropout = 0.25},
    {.B = 1, .S = 190, .H = 2, .G = 2, .valid = 2, .hd = 8, .documents = {70, 3, 100}, .options = {.window = 31}},
    {.B = 1,
     .S = 100,
     .H = 3,
     .G = 3,
     .valid = 3,
     .hd = 8,
     .documents = {35, 50},
     .options = {.softcap = 0.8, .alibi_heads = 6, .first_head = 3},
     .dropout = 0.1},
};

static void run_level(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int causal = 0; causal < 2; causal++)
      for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        problem p = make_problem((zpk_dtype)dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid,
                                 shapes[i].hd, causal);
        char what[80];
        snprintf(what, sizeof what, "%s, shape %zu, dtype %d, %s", name, i, dtype, causal ? "causal" : "full");
        use_options(&p, &shapes[i].options);
        use_documents(&p, shapes[i].documents);
        use_dropout(&p.a, shapes[i].dropout);
        reference(&p);
        run(level, &p);
        check(&p, what);
        check_zeros(&p, what);
        free_problem(&p);
      }
}

TEST_LEVELS(kernels_attention_documents, run_level)

/* ---- a document is a sample of its own ---- */

enum { BUCKETS = 8, HEADS = 4 };

/* Lines and sums of a relative bias; sums: [B, HEADS, BUCKETS]. */
typedef struct relative {
  float table[BUCKETS * HEADS], grad[BUCKETS * HEADS], sums[2 * HEADS * BUCKETS];
  void *lines;
} relative;

static void use_bias(problem *p, relative *r) {
  for (int i = 0; i < BUCKETS * HEADS; i++) r->table[i] = (float)pseudo(77 + (uint64_t)i), r->grad[i] = 0;
  r->lines = malloc((size_t)zpk_attention_bias_line(ZPK_F32, p->a.S, p->a.H / p->a.G, true));
  p->a.buckets = BUCKETS, p->a.max_distance = 20, p->a.bias_ld = HEADS;
  p->a.bias = r->table, p->a.d_bias = r->grad, p->a.bias_lines = r->lines, p->a.bias_sums = r->sums;
}

static void run_public(problem *p) {
  int64_t forward = share_of(&p->a, false), backward = share_of(&p->a, true);
  spoil_results(p);
  p->a.workspace = malloc((size_t)(forward > backward ? forward : backward));
  zpk_attention(&p->a, 0, p->a.B * p->a.G, 0);
  zpk_attention_grad(&p->a, 0, p->a.B * p->a.G, 0);
  if (p->a.d_bias) zpk_attention_bias_grad(&p->a);
  free(p->a.workspace);
}

Test(kernels_attention_documents, bits_of_samples_apart) {
  enum { S = 120, HD = 24 };
  static const int32_t lengths[MOST_DOCUMENTS] = {50, 1, 48};
  for (int causal = 0; causal < 2; causal++) {
    problem all = make_problem(ZPK_F32, 1, S, HEADS, 2, 2, HD, causal);
    relative bias, alone;
    float sums[BUCKETS * HEADS] = {0};
    use_documents(&all, lengths);
    use_bias(&all, &bias);
    run_public(&all);
    for (int64_t i = 0, first = 0; lengths[i] > 0; first += lengths[i++]) {
      problem one = make_problem(ZPK_F32, 1, lengths[i], HEADS, 2, 2, HD, causal);
      use_bias(&one, &alone);
      memcpy(one.qkv, (float *)all.qkv + first * all.a.q_ld, (size_t)(lengths[i] * all.a.q_ld) * sizeof(float));
      memcpy(one.d_o_in, (float *)all.d_o_in + first * all.a.d_o_ld,
             (size_t)(lengths[i] * all.a.d_o_ld) * sizeof(float));
      run_public(&one);
      cr_expect(same_rows(&one.a, all.o_out, first, one.o_out, one.a.o_ld, lengths[i]), "o of %lld", (long long)i);
      cr_expect(same_rows(&one.a, all.d_qkv, first, one.d_qkv, one.a.q_ld, lengths[i]), "gradients of %lld",
                (long long)i);
      cr_expect_eq(
          memcmp((float *)all.lse_out + first * HEADS, one.lse_out, (size_t)lengths[i] * HEADS * sizeof(float)), 0);
      for (int k = 0; k < BUCKETS * HEADS; k++) sums[k] += alone.grad[k];
      free(alone.lines);
      free_problem(&one);
    }
    for (int k = 0; k < BUCKETS * HEADS; k++)
      cr_expect_float_eq(bias.grad[k], sums[k], 1e-5f, "bucket %d: %g, %g", k, (double)bias.grad[k], (double)sums[k]);
    free(bias.lines);
    free_problem(&all);
  }
}
