/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the GPU runtime on the emulated GPU, one rank: a context without a model, operands that lie in its arena
 * and on the host, and how they are compared. Each test program includes it once. */
#ifndef ZPLAN_RT_CUDA_TESTING_H
#define ZPLAN_RT_CUDA_TESTING_H

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <criterion/redirect.h>
#include <math.h>
#include "../device/image.h"
#include "cuda.h"

enum { ARENA_BYTES = 1 << 20, WORKSPACE_BYTES = 1 << 16 };

static zpr context;
static zpr_program program;
static zpr_stage stage;

static zpr *open_gpu(zpk_dtype dtype) {
  int argc = 0;
  char **argv = NULL;
  stage =
      (zpr_stage){.arena_bytes = ARENA_BYTES + WORKSPACE_BYTES, .products = ARENA_BYTES, .moment1 = -1, .moment2 = -1};
  program =
      (zpr_program){.name = "ops", .dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1, .batch = 2, .sequence = 5};
  program.stages = &stage;
  program.seed = 11;
  program.products_bytes = WORKSPACE_BYTES;
  device_image(&program);
  zpr_open(&context, &program, &zpr_default_options, &argc, &argv);
  return &context;
}

#define EACH_DTYPE(name)                                                                                               \
  ParameterizedTestParameters(cuda, name) {                                                                            \
    static zpk_dtype both[] = {ZPK_F32, ZPK_F64};                                                                      \
    return cr_make_param_array(zpk_dtype, both, 2);                                                                    \
  }                                                                                                                    \
  ParameterizedTest(zpk_dtype *dtype, cuda, name)

/* ---- buffers: the host's copy and the place in the arena ---- */

typedef struct buffer {
  zpr *c;
  char *host, *gpu;
  int64_t count, size;
} buffer;

static int64_t used;

static inline double noise(int64_t i) { return sin((double)i * 12.9898 + 1) + 0.25 * cos((double)(i % 17)); }

static inline void put(const buffer *b, int64_t i, double x) {
  if (b->size == 8)
    ((double *)(void *)b->host)[i] = x;
  else
    ((float *)(void *)b->host)[i] = (float)x;
}

static inline double get(const buffer *b, int64_t i) {
  return b->size == 8 ? ((const double *)(const void *)b->host)[i] : (double)((const float *)(const void *)b->host)[i];
}

/* `count` elements of noise in both places, after the last buffer. */
static inline buffer make(zpr *c, int64_t count) {
  buffer b = {.c = c, .count = count, .size = zpk_bytes(c->program->dtype)};
  b.host = malloc((size_t)(count * b.size));
  b.gpu = zpr_at(c, used);
  used += (count * b.size + 255) / 256 * 256;
  cr_assert(b.host && used <= ARENA_BYTES);
  for (int64_t i = 0; i < count; i++) put(&b, i, noise(i + used));
  to_arena(c, b.gpu, b.host, count * b.size);
  return b;
}

/* The arena's contents are the host's up to `bound` times the largest of them. */
static inline void compare(buffer *b, double bound, const char *what) {
  double largest = 0, worst = 0;
  buffer got = *b;
  got.host = malloc((size_t)(b->count * b->size));
  from_arena(b->c, got.host, b->gpu, b->count * b->size);
  for (int64_t i = 0; i < b->count; i++) {
    largest = fmax(largest, fabs(get(b, i)));
    worst = fmax(worst, fabs(get(b, i) - get(&got, i)));
    cr_assert(isfinite(get(&got, i)), "%s: element %lld is not finite", what, (long long)i);
  }
  cr_assert(worst <= bound * largest, "%s: off by %g of %g", what, worst, largest);
  free(got.host);
}

/* Rounding of sums of a few hundred terms in another order. */
static inline double rounding(const zpr *c) { return c->program->dtype == ZPK_F64 ? 1e-13 : 2e-5; }

#endif
