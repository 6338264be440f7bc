/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer written by hand, as small as one can be: logits of the next token = the current token's row of a table W[V,
 * V]. It runs on any tensor x data layout (tensor splits the columns, unevenly) with ZeRO 0 to 3, so it exercises the
 * whole runtime without the compiler. Pipeline is 1. */
#ifndef ZPLAN_TEST_BIGRAM_H
#define ZPLAN_TEST_BIGRAM_H

#include <string.h>
#include <zplan/rt.h>

enum { BIGRAM_V = 11, BIGRAM_S = 16, BIGRAM_BATCH = 12, BIGRAM_MICRO = 1 };

typedef struct bigram {
  zpr_program program;
  zpr_stage stage;
  zpr_run run;
  zpr_param param;
  int64_t logits, stats, lse, param_ring, grad_ring; /* bytes in the arena */
  bool poisoned;                                     /* gradients become NaN */
} bigram;

/* The step function finds its layout here: one trainer a process. */
static bigram the_bigram;

/* The table, whole. */
static inline const void *bigram_table(zpr *c) {
  if (c->program->zero < 3) return zpr_at(c, c->stage->params);
  zpr_gather_params(c, 0, zpr_at(c, the_bigram.param_ring));
  return zpr_at(c, the_bigram.param_ring);
}

static inline void bigram_forward(zpr *c, int64_t mb) {
  const zpr_program *p = c->program;
  int64_t rows = p->microbatch * p->sequence, cols = (p->vocabulary + p->tensor - 1) / p->tensor, first = c->t * cols;
  int64_t real = zpk_real_bytes(p->dtype), block = rows * 3 * real;
  char *logits = zpr_at(c, the_bigram.logits), *stats = zpr_at(c, the_bigram.stats);
  zpr_embedding(c, zpr_input(c, 0, mb), bigram_table(c), 0, p->vocabulary, rows, cols, logits);
  zpr_ce_stats(c, 0, logits, cols, first, p->vocabulary, zpr_input(c, 1, mb), NULL, rows, stats + c->t * block);
  zpr_all_gather(c, ZPR_TENSOR, stats + c->t * block, block / zpk_bytes(p->dtype), stats);
  zpr_ce_loss(c, 0, stats, p->tensor, rows, p->vocabulary, zpr_input(c, 1, mb), zpr_at(c, the_bigram.lse));
}

static inline void bigram_forwards(zpr *c) {
  for (int64_t mb = 0; mb < c->program->microbatches; mb++) bigram_forward(c, mb);
}

static inline void bigram_micro_batches(zpr *c) {
  const zpr_program *p = c->program;
  int64_t rows = p->microbatch * p->sequence, cols = (p->vocabulary + p->tensor - 1) / p->tensor;
  char *logits = zpr_at(c, the_bigram.logits);
  for (int64_t mb = 0; mb < p->microbatches; mb++) {
    bigram_forward(c, mb);
    zpr_ce_grad(c, 0, logits, cols, c->t * cols, p->vocabulary, zpr_input(c, 1, mb), NULL, zpr_at(c, the_bigram.lse),
                (zpk_targets){0}, rows, logits);
    char *grads = zpr_at(c, p->zero >= 2 ? the_bigram.grad_ring : c->stage->grads);
    if (p->zero >= 2) zpr_zero(c, grads, the_bigram.param.elements * zpk_real_bytes(p->dtype));
    zpr_embedding_grad(c, zpr_input(c, 0, mb), logits, 0, p->vocabulary, rows, cols, grads);
    if (p->zero >= 2) zpr_scatter_grads(c, 0, grads, mb > 0);
  }
  if (the_bigram.poisoned) memset(zpr_at(c, c->stage->grads), 0xFF, 8);
}

/* Next region of `bytes` bytes. */
static inline int64_t bigram_place(int64_t *end, int64_t bytes) {
  int64_t at = (*end + 255) / 256 * 256;
  *end = at + bytes;
  return at;
}

static inline void bigram_layout(bigram *b, int T, int D, int zero, zpk_dtype dtype) {
  int64_t size = zpk_bytes(dtype), real = zpk_real_bytes(dtype), cols = (BIGRAM_V + T - 1) / T,
          rows = BIGRAM_MICRO * BIGRAM_S, end = 0;
  int64_t microbatches = BIGRAM_BATCH / D / BIGRAM_MICRO;
  zpr_stage *s = &b->stage;
  s->flat[ZPR_KIND_WHOLE] = (BIGRAM_V * cols + D - 1) / D * D;
  s->shard[ZPR_KIND_WHOLE] = zero ? zpr_flat_elements(s) / D : zpr_flat_elements(s);
  s->inputs = bigram_place(&end, 2 * microbatches * rows * 4);
  b->logits = bigram_place(&end, rows * cols * size);
  b->stats = bigram_place(&end, T * rows * 3 * real);
  b->lse = bigram_place(&end, rows * real);
  b->grad_ring =
      bigram_place(&end, zero >= 2 ? zpr_flat_elements(s) * real : 0); /* gradients of 16 bits are sums in f32 */
  b->param_ring = bigram_place(&end, zero >= 3 ? zpr_flat_elements(s) * size : 0);
  s->grads = bigram_place(&end, (zero >= 2 ? zpr_shard_elements(s) : zpr_flat_elements(s)) * real);
  s->moment1 = bigram_place(&end, zpr_shard_elements(s) * real);
  s->moment2 = bigram_place(&end, zpr_shard_elements(s) * real);
  s->master = zpk_is_narrow(dtype) ? bigram_place(&end, zpr_shard_elements(s) * real) : -1;
  s->products = -1;
  s->params = bigram_place(&end, (zero >= 3 ? zpr_shard_elements(s) : zpr_flat_elements(s)) * size);
  s->arena_bytes = end;
  s->n_runs = 1;
  s->runs = &b->run;
  /* With ZeRO 0 the sums travel on; with ZeRO 3 the table is gathered once a micro-batch. */
  const int64_t of_grads[] = {2, 1, microbatches, microbatches}, of_params[] = {0, 1, 1, microbatches};
  b->program.predicted_bytes[ZPR_DATA] =
      (of_grads[zero] * real + of_params[zero] * size) * (D - 1) * zpr_flat_elements(s) * T;
  b->program.predicted_bytes[ZPR_TENSOR] = (T - 1) * T * rows * 3 * real * microbatches * D;
}

static inline zpr_program *bigram_program(int T, int D, int zero, zpk_dtype dtype) {
  bigram *b = &the_bigram;
  int64_t cols = (BIGRAM_V + T - 1) / T;
  *b = (bigram){0};
  b->param = (zpr_param){.name = "w",
                         .rank = 2,
                         .shape = {BIGRAM_V, BIGRAM_V},
                         .split_dim = 1,
                         .outer = 1,
                         .units = BIGRAM_V,
                         .elements = BIGRAM_V * cols,
                         .init = 0,
                         .init_b = 0.1,
                         .recipe = {1, 0.01},
                         .zero_first = true};
  b->run = (zpr_run){.segment = "all", .count = 1, .stride = b->param.elements, .n_params = 1, .params = &b->param};
  b->program = (zpr_program){.name = "bigram",
                             .plan_hash = "0",
                             .dtype = dtype,
                             .tensor = T,
                             .pipeline = 1,
                             .data = D,
                             .zero = zero,
                             .batch = BIGRAM_BATCH,
                             .microbatch = BIGRAM_MICRO,
                             .microbatches = BIGRAM_BATCH / D / BIGRAM_MICRO,
                             .sequence = BIGRAM_S,
                             .vocabulary = BIGRAM_V,
                             .n_inputs = 2,
                             .stages = &b->stage,
                             .micro_batches = bigram_micro_batches,
                             .forwards = bigram_forwards,
                             .sum_gradients = zero == 0   ? zpr_sum_flat
                                              : zero == 1 ? zpr_sum_buckets
                                                          : NULL,
                             .share_weights = zero == 1 || zero == 2 ? zpr_gather_updated : NULL,
                             .optimizer = 0,
                             .lr = 0.1,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .clip = 0.1,
                             .schedule = 2,
                             .warmup = 2,
                             .min_lr = 0.01,
                             .steps = 20,
                             .seed = 7,
                             .train = {.kind = 3, .seed = 1},
                             .validate = {.kind = 3, .seed = 2},
                             .validate_every = 10,
                             .validate_batches = 2,
                             .loss_scale = dtype == ZPK_F16 ? 65536 : 0,
                             .scale_window = dtype == ZPK_F16 ? 8 : 0,
                             .predicted_step_s = 1e-3};
  bigram_layout(b, T, D, zero, dtype);
  if (zero >= 1) b->run.stride = zpr_flat_elements(&b->stage); /* whole shards */
  return &b->program;
}

#endif
