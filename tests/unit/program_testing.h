/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of lowered programs share: two models with awkward sizes, and all ways to lower them. */
#ifndef PROGRAM_TESTING_H
#define PROGRAM_TESTING_H

#include "planner_models.h"

static zp_arena *arena;
static inline void setup(void) { arena = zp_arena_new("test"); }
static inline void teardown(void) { zp_arena_free(arena); }

static const model_size GPT = {STYLE_GPT, 1001, 16, 60, 7, 5, 5, 240, true}; /* five heads */
static const model_size LLAMA = {STYLE_LLAMA, 1000, 16, 96, 6, 6, 2, 256, false};
enum { BEGIN, LAYER, END, BATCH = 24 };

static inline zp_lowered *lower(const zp_spec *spec, int tensor, int64_t microbatch, bool full, bool shard) {
  const char *reason = "none given";
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, tensor);
  zp_sharding *sharding = zp_shard(arena, spec->model, &machine, tensor, 1, false, &reason);
  cr_assert(sharding, "tensor %d: %s", tensor, reason);
  zp_lowered *l =
      zp_lower(arena, spec, sharding, microbatch, full ? ZP_RECOMPUTE_FULL : ZP_RECOMPUTE_NONE, shard, &reason);
  cr_assert(l, "%s", reason);
  return l;
}

static inline zp_spec *spec_of(model_size size) { return build_spec(arena, &size, cpu_cluster(), BATCH); }
static inline zp_lowered *lower_size(model_size size, int tensor, int64_t microbatch, bool full, bool shard) {
  return lower(spec_of(size), tensor, microbatch, full, shard);
}

typedef void on_lowered(const zp_lowered *l);
static inline void for_variants(on_lowered *check) {
  for (int style = 0; style < 2; style++)
    for (int tensor = 1; tensor <= 3; tensor++)
      for (int64_t microbatch = 1; microbatch <= 2; microbatch++)
        for (int keep = 0; keep < 3; keep++) {
          zp_arena_mark mark = zp_arena_get_mark(arena);
          check(lower_size(style ? LLAMA : GPT, tensor, microbatch, keep > 0, keep == 2));
          zp_arena_rewind(arena, mark);
        }
}

#endif
