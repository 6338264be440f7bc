/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of small plans for tests of what a step moves: a model, plans of it, and records that are expected.
 *
 * The model: V = 256, S = 32, d = 64, three layers. A layer has 12 d^2 + 13 d = 49984 elements, in whole shards of two
 * ranks 50048. Shared: the table, V d = 16384, which the first and the last unit use; positions, S d = 2048, of the
 * first; two vectors of the last norm, d = 64 each, in whole shards of two ranks 128. f32, AdamW, batch 8. A message
 * has S d = 2048 elements. */
#ifndef ZPLAN_MOVES_TESTING_H
#define ZPLAN_MOVES_TESTING_H

#include <string.h>
#include "planner_models.h"

static zp_arena *arena;
static inline void setup(void) { arena = zp_arena_new("test"); }
static inline void teardown(void) { zp_arena_free(arena); }

enum { LAYER = 49984, PADDED = 50048, TABLE = 16384, POSITIONS = 2048, NORM = 64, NORM_PADDED = 128, MESSAGE = 2048 };
enum { BEGIN, LAYERS, END, UPDATE_BYTES = 28 };
static const model_size TINY = {STYLE_GPT, 256, 32, 64, 3, 4, 4, 256, true};
static const zp_home HOST = {ZP_TIER_HOST, 8}, DISK = {ZP_TIER_NVME, 8};

static inline zp_program *program_of_spec(zp_spec *spec, zp_choice c) {
  const char *reason = NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, c.tensor);
  zp_sharding *sharding =
      zp_shard_experts(arena, spec->model, &machine, c.tensor, c.expert ? c.expert : 1, c.sequence, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered **stages = zp_lower_stages(arena, spec, sharding, &c, &reason);
  cr_assert(stages, "%s", reason);
  return zp_program_make(arena, (const zp_lowered *const *)stages, &c);
}

static inline zp_program *program_with(zp_optimizer_kind optimizer, const model_size *size, bool gpu, zp_choice c,
                                       int64_t batch) {
  zp_spec *spec = build_spec(arena, size, gpu ? gpu_cluster(1) : cpu_cluster(), batch);
  spec->train.optimizer = optimizer;
  return program_of_spec(spec, c);
}

static inline zp_program *program_of(const model_size *size, bool gpu, zp_choice c, int64_t batch) {
  return program_with(ZP_OPT_ADAMW, size, gpu, c, batch);
}

static inline zp_choice choice_of(int pipeline, int data, int zero) {
  int64_t *cut = ZP_NEW_ARRAY(arena, int64_t, pipeline + 1); /* two stages: begin and a layer, two layers and end */
  cut[pipeline] = 5;
  if (pipeline == 2) cut[1] = 2;
  return (zp_choice){.tensor = 1, .pipeline = pipeline, .data = data, .zero = zero, .microbatch = 1, .cut = cut};
}

typedef struct row {
  const char *strategy;
  zp_move_when when;
  zp_act act; /* of what is once a step: not checked */
  int run;
  int64_t first, count, elements;
  int element_bytes;
  int64_t times;
  zp_move_queue queue;
  int ranks;
} row;

/* The list of a stage is exactly these rows, in this order; without the update on the device, which every plan has. */
static inline void expect_rows(const zp_program *p, int stage, const row *rows, int n) {
  zp_move_list list = zp_stage_moves(arena, p, stage);
  int at = 0;
  for (int i = 0; i < list.len; i++) {
    const zp_move *m = &list.data[i];
    if (strcmp(m->strategy->name, "update") == 0) continue;
    cr_assert_lt(at, n, "record %d, of `%s`, is one too many", at, m->strategy->name);
    const row *r = &rows[at++];
    cr_expect_str_eq(m->strategy->name, r->strategy, "record %d: %s, expected %s", at, m->strategy->name, r->strategy);
    cr_expect_eq(m->when, r->when, "record %d: when %d, expected %d", at, m->when, r->when);
    if (m->when <= ZP_WHEN_AFTER_ACTION) cr_expect_eq(m->act, r->act, "record %d: act %d", at, m->act);
    cr_expect(m->run == r->run && m->first == r->first && m->count == r->count, "record %d: run %d, %lld + %lld", at,
              m->run, (long long)m->first, (long long)m->count);
    cr_expect_eq(m->elements, r->elements, "record %d: %lld elements, expected %lld", at, (long long)m->elements,
                 (long long)r->elements);
    cr_expect_eq(m->element_bytes, r->element_bytes, "record %d: %d bytes an element", at, m->element_bytes);
    cr_expect_eq(m->times, r->times, "record %d: %lld times", at, (long long)m->times);
    cr_expect_eq(m->queue, r->queue, "record %d: queue %d", at, m->queue);
    cr_expect_eq(m->ranks, r->ranks, "record %d: %d ranks", at, m->ranks);
  }
  cr_expect_eq(at, n, "%d records, expected %d", at, n);
}
#define EXPECT_ROWS(program, stage, ...)                                                                               \
  do {                                                                                                                 \
    static const row rows[] = {__VA_ARGS__};                                                                           \
    expect_rows(program, stage, rows, (int)(sizeof rows / sizeof *rows));                                              \
  } while (0)

#define GATHER(act, run, count, elements)                                                                              \
  { "ZeRO gather", ZP_WHEN_BEFORE_UNIT, act, run, 0, count, elements, 4, 4, ZP_QUEUE_DATA, 2 }
#define SCATTER(run, count, elements)                                                                                  \
  { "ZeRO scatter", ZP_WHEN_AFTER_UNIT, ZP_ACT_B, run, 0, count, elements, 4, 4, ZP_QUEUE_DATA, 2 }
#define SUM(when, run, count, elements)                                                                                \
  { "sums over replicas", when, 0, run, 0, count, elements, 4, 1, ZP_QUEUE_DATA, 2 }
#define BACK(run, count, elements)                                                                                     \
  { "weights back", ZP_WHEN_AFTER_UPDATE, 0, run, 0, count, elements, 4, 1, ZP_QUEUE_DATA, 2 }
#define COPY(strategy, when, act, run, first, count, elements, bytes, times, queue)                                    \
  { strategy, when, act, run, first, count, elements, bytes, times, queue, 1 }

#endif
