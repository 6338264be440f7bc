/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measured runs for the tests of their predictions. */
#ifndef ZPLAN_TEST_VALIDATE_TESTING_H
#define ZPLAN_TEST_VALIDATE_TESTING_H

#include <criterion/criterion.h>
#include <math.h>
#include <zplan/buf.h>
#include <zplan/validate.h>
#include <zplan/constants.h>
#include "../../planner/validate/validate_internal.h"

static zp_arena *arena;
static inline void setup(void) { arena = zp_arena_new("test"); }
static inline void teardown(void) { zp_arena_free(arena); }

static inline void expect_near(double got, double want, double tolerance, const char *what) {
  cr_expect(fabs(got - want) <= tolerance * fabs(want), "%s: %.9g, expected %.9g", what, got, want);
}

#define HEADER                                                                                                         \
  "id,source,year,model,layers,hidden,seq,gpu,gpus_per_node,n_gpus,tp,pp,dp,micro_batch,global_batch,measured_iter_s," \
  "notes\n"
#define GOOD                                                                                                           \
  "fam_a,\"paper, table 1\",2021,GPT,4,1024,512,A100-SXM4-80GB,8,8,2,2,2,1,16,0.5,\"conf=A; says \"\"fast\"\"\"\n"

static inline zp_measured_table *read_table(const char *text) {
  const char *error = NULL;
  zp_measured_table *table = zp_measured_read(arena, text, strlen(text), "runs", &error);
  cr_assert(table, "%s", error);
  return table;
}

static const zp_device a100 = {.name = "a100_80",
                               .memory_bytes = INT64_C(80000000000),
                               .context_bytes = INT64_C(1200000000),
                               .has_nccl = true,
                               .has_bf16 = true,
                               .memory_bytes_per_s = 2039e9,
                               .flop_per_s_fp64 = 9.7e12,
                               .flop_per_s_fp32 = 19.5e12,
                               .flop_per_s_half = 312e12,
                               .eff_matmul = 0.82,
                               .eff_attention = 0.5,
                               .eff_memory = 0.8,
                               .launch_s = 3e-6,
                               .cores = 108};
static inline const zp_device *only_a100(void *user, const char *name) {
  (void)user;
  return strcmp(name, "a100_80") == 0 ? &a100 : NULL;
}

static inline zp_prediction predict(const char *line) {
  zp_measured_table *t =
      read_table(zp_format(arena,
                           "id,source,year,layers,hidden,heads,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,inter_bw_GBps_"
                           "per_gpu,n_gpus,tp,pp,dp,"
                           "micro_batch,global_batch,recompute,zero_stage,measured_iter_s,precision,notes\n%s\n",
                           line));
  cr_assert_eq(t->runs.len, 1, "%s", t->malformed.len ? t->malformed.data[0] : "no row");
  return zp_predict_run(arena, t, &t->runs.data[0], &(zp_run_library){.device = only_a100});
}

/* Reference formulas for saved activations on the first stage of an interleaved pipeline: Korthikanti et al., arXiv
 * 2205.05198, section 4, bytes of two-byte training. Legend: s sequence, b micro-batch, h hidden, a heads, t tensor
 * ranks, p stages, m chunks a stage, L layers.
 *
 *   tensor parallel, nothing recomputed: s b h (10 + 24 / t + 5 a s / (h t)) a layer           (equation 2)
 *   with sequence parallelism and attention recomputed:          s b h 34 / t a layer          (equation 6)
 *   first stage: L layers' worth however many stages there are, and with interleaving 1 + (p - 1) / (p m) times that
 *   first stage also: dropout of the embedding, s b h p / t bytes (1 byte a mask element; p micro-batches in flight)
 *   without a pipeline also: final norm's and head's inputs, 4 s b h / t (1 + v / h), left out of the figures
 *
 * The planner's own memory is not computed with these: it counts the buffers of its program. */
typedef enum activation_case { PLAIN_ACTIVATIONS, SEQUENCE_SELECTIVE_ACTIVATIONS } activation_case;
static inline double activation_bytes(activation_case which, double layers, double hidden, double heads,
                                      double sequence, double microbatch, double tensor, double pipeline,
                                      double chunks) {
  assert(layers > 0 && hidden > 0 && heads > 0 && sequence > 0 && microbatch > 0);
  assert(tensor >= 1 && pipeline >= 1 && chunks >= 1);
  double sbh = sequence * microbatch * hidden;
  double plain = 10 + 24 / tensor + 5 * heads * sequence / (hidden * tensor);
  double layer = sbh * (which == PLAIN_ACTIVATIONS ? plain : 34 / tensor);
  double interleaved = chunks > 1 ? 1 + (pipeline - 1) / (pipeline * chunks) : 1;
  return layer * layers * interleaved;
}

#endif
