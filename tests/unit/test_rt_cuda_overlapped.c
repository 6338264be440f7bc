/* SPDX-License-Identifier: Apache-2.0 */
/* What moves alongside the units (runtime/cuda/overlapped.c), on the emulated GPU, whose streams run as late as they
 * may: a walk as trainers have it, with copies for gathers, units and scatters, so that the host waits for nothing in
 * between. Each of the two streams is the first to be waited for, so a missing wait in either direction changes
 * numbers. Forward only gathers, the second part of a split backward only scatters: there no other wait stands in for a
 * missing one. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include "../device/image.h"
#include "../mpi/bigram.h"
#include "cuda.h"

enum { UNITS = 5, N = 96, BYTES = N * 8, STEPS = 2 };

/* Regions of the arena: what the update writes, shards, rings, what units read, sums of gradients, the last result. */
enum {
  UPDATED,
  SHARDS = UPDATED + STEPS * UNITS,
  RINGS = SHARDS + UNITS,
  READ = RINGS + 4,
  SUMS = READ + UNITS,
  RESULT = SUMS + UNITS,
  REGIONS = RESULT + UNITS
};

static zpr context;
static zpr_program program;
static zpr_stage stage;

static zpr *open_gpu(void) {
  int argc = 0;
  char **argv = NULL;
  stage = (zpr_stage){.arena_bytes = REGIONS * BYTES, .moment1 = -1, .moment2 = -1};
  program = (zpr_program){
      .name = "alongside", .dtype = ZPK_F64, .tensor = 1, .pipeline = 1, .data = 1, .zero = 3, .moves_overlap = true};
  program.batch = 2, program.sequence = 5;
  program.stages = &stage;
  device_image(&program);
  zpr_open(&context, &program, &zpr_default_options, &argc, &argv);
  return &context;
}

static void *region(zpr *c, int64_t i) { return zpr_at(c, i * BYTES); }
static void *ring(zpr *c, zpr_ring which, int64_t j) { return region(c, RINGS + 2 * which + j % 2); }

static void gather(zpr *c, int64_t j) {
  zpr_overlapped(c, ZPR_PARAM_RING, j % 2);
  zpr_copy(c, ring(c, ZPR_PARAM_RING, j), region(c, SHARDS + j), BYTES);
  zpr_overlapped_end(c, ZPR_PARAM_RING, j % 2);
}

static void scatter(zpr *c, int64_t j) {
  zpr_overlapped(c, ZPR_GRAD_RING, j % 2);
  zpr_copy(c, region(c, SUMS + j), ring(c, ZPR_GRAD_RING, j), BYTES);
  zpr_overlapped_end(c, ZPR_GRAD_RING, j % 2);
}

static void walk(zpr *c, bool gathers, bool scatters) {
  if (gathers) gather(c, 0);
  for (int64_t j = 0; j < UNITS; j++) {
    void *from = gathers ? ring(c, ZPR_PARAM_RING, j) : region(c, SHARDS + j);
    if (gathers && j + 1 < UNITS) gather(c, j + 1);
    if (gathers) zpr_ring_wait(c, ZPR_PARAM_RING, j % 2);
    if (scatters) zpr_ring_wait(c, ZPR_GRAD_RING, j % 2);
    zpr_copy(c, region(c, READ + j), from, BYTES);
    if (scatters) zpr_copy(c, ring(c, ZPR_GRAD_RING, j), from, BYTES);
    if (gathers) zpr_ring_done(c, ZPR_PARAM_RING, j % 2);
    if (!scatters) continue;
    zpr_ring_done(c, ZPR_GRAD_RING, j % 2);
    scatter(c, j);
  }
}

typedef struct order {
  bool gathers, scatters, other_first;
} order;

/* The update writes other parameters before every step. */
static void run_step(zpr *c, const order *o, int step) {
  for (int64_t j = 0; j < UNITS; j++) zpr_copy(c, region(c, SHARDS + j), region(c, UPDATED + step * UNITS + j), BYTES);
  zpr_overlapped_join(c);
  walk(c, o->gathers, o->scatters);
  zpr_overlapped_join(c);
  for (int64_t j = 0; j < UNITS; j++) zpr_copy(c, region(c, RESULT + j), region(c, SUMS + j), BYTES);
}

static void wait_overlapped(zpr *c) {
  zpr_overlapped(c, ZPR_GRAD_RING, 0);
  zpr_cuda_wait(c);
  zpr_overlapped_end(c, ZPR_GRAD_RING, 0);
}

static void check(zpr *c, const char *what, int64_t first, int step) {
  double got[N];
  for (int64_t j = 0; j < UNITS; j++) {
    from_arena(c, got, region(c, first + j), BYTES);
    for (int i = 0; i < N; i++)
      cr_assert_eq(got[i], (double)(1 + step * UNITS + j), "step %d, %s %lld: %g", step, what, (long long)j, got[i]);
  }
}

ParameterizedTestParameters(alongside, neither_stream_runs_ahead) {
  static order orders[] = {{true, true, false}, {true, false, false}, {false, true, false},
                           {true, true, true},  {true, false, true},  {false, true, true}};
  return cr_make_param_array(order, orders, sizeof orders / sizeof *orders);
}

ParameterizedTest(order *o, alongside, neither_stream_runs_ahead) {
  zpr *c = open_gpu();
  double values[N];
  for (int64_t k = 0; k < STEPS * UNITS; k++) {
    for (int i = 0; i < N; i++) values[i] = (double)(1 + k);
    to_arena(c, region(c, UPDATED + k), values, BYTES);
  }
  for (int step = 0; step < STEPS; step++) {
    run_step(c, o, step);
    if (o->other_first) wait_overlapped(c);
    check(c, "unit", READ, step);
    if (o->scatters) check(c, "gradients of unit", RESULT, step);
  }
}
