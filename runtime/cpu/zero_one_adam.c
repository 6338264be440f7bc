/* SPDX-License-Identifier: Apache-2.0 */
/* What 0/1 Adam does over the threads of a rank (../optimizer/zero_one_adam.c): a block is a task. */
#include "zero_one_adam.h"
#include "state.h"

enum { PIECE = 512 }; /* elements that are rounded at once */

typedef struct local_task {
  zpr *c;
  const zpr_block *blocks;
  const zpk_update *rule;
  double rate;
} local_task;

static void *anchor_of(zpr *c) {
  return zpr_at(c, zpk_is_narrow(c->program->dtype) ? c->stage->master : c->stage->anchor);
}

ZPR_TASK_EACH(variance, local_task,
              zpk_variance(a->rule, zpr_at(a->c, a->c->stage->grads), zpr_at(a->c, a->c->stage->moment2),
                           a->blocks[i].begin, a->blocks[i].end))

void zpr_variance_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  local_task a = {c, blocks, rule, 0};
  zpr_parallel(c, n, 1, variance, &a);
}

static void add(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const local_task *a = arg;
  const zpr_stage *s = a->c->stage;
  zpk_dtype dtype = a->c->program->dtype;
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i];
    zpk_update rule = zpr_rule_with(a->rule, b->recipe);
    zpk_local_sum(dtype, a->rate, zpr_at(a->c, s->moment1), zpr_at(a->c, s->local_sum), b->begin, b->end);
    if (rule.kind == ZPK_ADAMW && rule.weight_decay > 0)
      zpk_local_decay(dtype, 1 - rule.lr * rule.weight_decay, anchor_of(a->c), b->begin, b->end);
  }
}

void zpr_local_add(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, double weight) {
  local_task a = {c, blocks, rule, weight};
  zpr_parallel(c, n, 1, add, &a);
}

/* The rule's rate is the sum of rates here, times the factor of the block's group. */
static void weights(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const local_task *a = arg;
  const zpr_stage *s = a->c->stage;
  zpk_dtype dtype = a->c->program->dtype;
  int64_t real = zpk_real_bytes(dtype), size = zpk_bytes(dtype);
  const char *anchor = anchor_of(a->c), *sum = zpr_at(a->c, s->local_sum), *v = zpr_at(a->c, s->moment2);
  char *params = zpr_at(a->c, s->params);
  for (int64_t i = begin; i < end; i++) {
    const zpk_update rule = zpr_rule_with(a->rule, a->blocks[i].recipe);
    for (int64_t at = a->blocks[i].begin, next; at < a->blocks[i].end; at = next) {
      float wide[PIECE];
      bool narrow = zpk_is_narrow(dtype);
      next = at + PIECE < a->blocks[i].end ? at + PIECE : a->blocks[i].end;
      zpk_local_weights(&rule, a->rate, anchor + at * real, sum + at * real, v + at * real,
                        narrow ? (void *)wide : params + at * size, next - at);
      if (narrow) zpk_round(dtype, wide, (uint16_t *)(void *)params + at, next - at);
    }
  }
}

void zpr_local_weights(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, double total) {
  zpk_update of_all = *rule;
  of_all.lr = total;
  local_task a = {c, blocks, &of_all, total};
  zpr_parallel(c, n, 1, weights, &a);
}

ZPR_TASK_EACH(mean, local_task,
              zpk_local_mean(a->c->program->dtype, a->rate, zpr_at(a->c, a->c->stage->moment1),
                             zpr_at(a->c, a->c->stage->local_sum), a->blocks[i].begin, a->blocks[i].end))

void zpr_local_mean(zpr *c, const zpr_block *blocks, int64_t n, double total) {
  local_task a = {c, blocks, NULL, total};
  zpr_parallel(c, n, 1, mean, &a);
}
