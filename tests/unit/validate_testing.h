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
  return zp_predict_run(arena, t, &t->runs.data[0], only_a100, NULL);
}

#endif
