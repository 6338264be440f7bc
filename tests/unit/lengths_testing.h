/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that are shorter than the others, for the tests of attention on the CPU and of the device kernels. */
#ifndef LENGTHS_TESTING_H
#define LENGTHS_TESTING_H

#include "attention_testing.h"

/* What attention has alongside heads: scores go from about -1.5 to 1.5. lengths: of two samples, 0: all are whole. */
typedef struct attention_options {
  int64_t window;
  double softcap;
  int64_t alibi_heads, first_head;
  int32_t lengths[2];
} attention_options;

/* What is read at positions that are not there becomes NaN. */
static inline void spoil_what_is_not_there(problem *p) {
  zpk_attention_args *a = &p->a;
  for (int64_t row = 0; row < a->B * a->S; row++) {
    if (row % a->S < length_of(a, row / a->S)) continue;
    for (int64_t c = 0; c < (a->H + 2 * a->G) * a->hd; c++) put(a->dtype, p->qkv, row * a->q_ld + c, NAN);
    for (int64_t c = 0; c < a->H * a->hd; c++) put(a->dtype, p->d_o_in, row * a->d_o_ld + c, NAN);
  }
}

static inline void use_lengths(problem *p, const int32_t *lengths) {
  zpk_attention_args *a = &p->a;
  p->lengths = malloc((size_t)a->B * sizeof *p->lengths);
  memcpy(p->lengths, lengths, (size_t)a->B * sizeof *p->lengths);
  a->lengths = p->lengths;
  spoil_what_is_not_there(p);
}

enum { MOST_DOCUMENTS = 8 };

/* Documents of these lengths one after the other in every sample, in sample b from number b on of the list, up to a
 * length of 0 or the end of the sample; after them nothing is there. Their numbers leave some out. */
static inline void use_documents(problem *p, const int32_t lengths[MOST_DOCUMENTS]) {
  zpk_attention_args *a = &p->a;
  p->documents = malloc((size_t)(a->B * a->S) * sizeof *p->documents);
  for (int64_t b = 0; b < a->B; b++) {
    int32_t *number = p->documents + b * a->S;
    int64_t at = 0;
    for (int64_t i = b; i < MOST_DOCUMENTS && lengths[i] > 0; i++)
      for (int64_t end = at + lengths[i]; at < end && at < a->S; at++) number[at] = (int32_t)(3 * i + b);
    while (at < a->S) number[at++] = -1;
  }
  a->documents = p->documents;
  spoil_what_is_not_there(p);
}

/* NaN where results will be. */
static inline void use_options(problem *p, const attention_options *options) {
  if (options->lengths[0]) use_lengths(p, options->lengths);
  p->a.window = options->window;
  p->a.softcap = options->softcap;
  p->a.alibi_heads = options->alibi_heads;
  p->a.first_head = options->first_head;
}

static inline void spoil_results(problem *p) {
  const zpk_attention_args *a = &p->a;
  size_t rows = (size_t)(a->B * a->S), e = (size_t)zpk_bytes(a->dtype);
  memset(p->o_out, 0xff, rows * (size_t)a->o_ld * e);
  memset(p->d_qkv, 0xff, rows * (size_t)a->dq_ld * e);
  memset(p->lse_out, 0xff, rows * (size_t)(a->H * zpk_real_bytes(a->dtype)));
}

/* What is not there has zeros, not only numbers that are near to them. */
static inline void check_zeros(const problem *p, const char *what) {
  const zpk_attention_args *a = &p->a;
  const struct {
    const void *at;
    int64_t ld, cols;
  } all[] = {{a->o, a->o_ld, a->H * a->hd},
             {a->dq, a->dq_ld, a->H * a->hd},
             {a->dk, a->dk_ld, a->G * a->hd},
             {a->dv, a->dv_ld, a->G * a->hd}};
  for (int64_t row = 0; row < a->B * a->S; row++) {
    for (int64_t h = 0; h < a->H && row % a->S >= length_of(a, row / a->S); h++)
      cr_expect_eq(get(real_of(a->dtype), a->lse, row * a->H + h), 0, "%s: log-sum-exp, row %lld", what,
                   (long long)row);
    for (size_t i = 0; i < sizeof all / sizeof *all && row % a->S >= length_of(a, row / a->S); i++)
      for (int64_t c = 0; c < all[i].cols; c++)
        cr_expect_eq(get(a->dtype, all[i].at, row * all[i].ld + c), 0, "%s: result %zu, row %lld", what, i,
                     (long long)row);
  }
}

/* Rows of two matrices; what lies between rows is nobody's. */
static inline bool same_rows(const zpk_attention_args *a, const void *x, int64_t row, const void *y, int64_t ld,
                             int64_t rows) {
  int64_t e = zpk_bytes(a->dtype), cols = ld == a->q_ld ? (a->H + 2 * a->G) * a->hd : ld;
  for (int64_t r = 0; r < rows; r++)
    if (memcmp((const char *)x + (row + r) * ld * e, (const char *)y + r * ld * e, (size_t)(cols * e)) != 0)
      return false;
  return true;
}

/* Rows of sample `b` of one problem to sample 0 of another one. */
static inline void copy_sample(const problem *from, int64_t b, problem *to) {
  int64_t e = zpk_bytes(from->a.dtype), row = b * from->a.S, rows = to->a.S;
  memcpy(to->qkv, (const char *)from->qkv + row * from->a.q_ld * e, (size_t)(rows * to->a.q_ld * e));
  memcpy(to->d_o_in, (const char *)from->d_o_in + row * from->a.d_o_ld * e, (size_t)(rows * to->a.d_o_ld * e));
}

/* Has sample b the results of a problem that is this sample alone? */
static inline void check_same(const problem *all, int64_t b, const problem *one, const char *what) {
  const zpk_attention_args *a = &all->a;
  int64_t row = b * a->S, rows = one->a.S, real = zpk_real_bytes(a->dtype);
  cr_expect(same_rows(a, all->o_out, row, one->o_out, a->o_ld, rows), "%s, sample %lld: o", what, (long long)b);
  cr_expect(same_rows(a, all->d_qkv, row, one->d_qkv, a->q_ld, rows), "%s, sample %lld: gradients", what, (long long)b);
  cr_expect_eq(memcmp((char *)all->lse_out + row * a->H * real, one->lse_out, (size_t)(rows * a->H * real)), 0,
               "%s, sample %lld: log-sum-exp", what, (long long)b);
}

/* A test of run(level, name) for every instruction set that the machine has. Requires: attention.h. */
#if ZPK_X86_LEVELS
#define TEST_LEVELS(suite, run)                                                                                        \
  Test(suite, base) { run(&zpk_attention_base, "base"); }                                                              \
  Test(suite, v3) {                                                                                                    \
    if (!__builtin_cpu_supports("x86-64-v3")) cr_skip_test("no AVX2");                                                 \
    run(&zpk_attention_v3, "v3");                                                                                      \
  }                                                                                                                    \
  Test(suite, v4) {                                                                                                    \
    if (!__builtin_cpu_supports("x86-64-v4")) cr_skip_test("no AVX-512");                                              \
    run(&zpk_attention_v4, "v4");                                                                                      \
  }
#else
#define TEST_LEVELS(suite, run)                                                                                        \
  Test(suite, base) { run(&zpk_attention_base, "base"); }
#endif

#endif
