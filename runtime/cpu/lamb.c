/* SPDX-License-Identifier: Apache-2.0 */
/* LAMB over the threads of a rank (../optimizer/lamb.c): a block is a task. */
#include "lamb.h"

typedef struct lamb_task {
  zpr *c;
  const zpr_block *blocks;
  const zpk_update *rule;
  double *sums;
  const double *ratio;
} lamb_task;

/* The arrays of a block, counted in elements of the state. */
typedef struct lamb_arrays {
  int64_t begin, end;
  char *param, *grad, *weights; /* weights: what is computed with, its first element, where it is rounded; else NULL */
  void *m, *v, *average;        /* average NULL: there is none */
} lamb_arrays;

static lamb_arrays arrays_of(zpr *c, const zpr_block *b) {
  const zpr_stage *stage = c->stage;
  bool mixed = zpk_is_narrow(c->program->dtype);
  int64_t size = zpk_bytes(c->program->dtype), at = b->begin + b->to_state;
  char *first = (char *)zpr_at(c, stage->params) + (b->begin + b->to_params) * size;
  return (lamb_arrays){.begin = at,
                       .end = at + b->end - b->begin,
                       .param = mixed ? zpr_at(c, stage->master) : first - at * size,
                       .weights = mixed ? first : NULL,
                       .grad = (char *)zpr_at(c, stage->grads) - b->to_state * zpr_gradient_bytes(c),
                       .m = zpr_at(c, stage->moment1),
                       .v = zpr_at(c, stage->moment2),
                       .average = c->program->ema > 0 ? zpr_at(c, stage->average) : NULL};
}

static void lamb_moments(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const lamb_task *a = arg;
  for (int64_t i = begin; i < end; i++) {
    const zpk_update rule = zpr_rule_with(a->rule, a->blocks[i].recipe);
    lamb_arrays x = arrays_of(a->c, &a->blocks[i]);
    zpk_lamb_moments(&rule, x.param, x.grad, x.m, x.v, x.begin, x.end, &a->sums[2 * i]);
  }
}

void zpr_lamb_moments(zpr *c, zpr_block_list *list, const zpk_update *rule, double *sums) {
  lamb_task a = {.c = c, .blocks = list->block, .rule = rule, .sums = sums};
  zpr_parallel(c, list->n, 1, lamb_moments, &a);
}

static void lamb_apply(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const lamb_task *a = arg;
  for (int64_t i = begin; i < end; i++) {
    zpk_update rule = zpr_rule_with(a->rule, a->blocks[i].recipe);
    lamb_arrays x = arrays_of(a->c, &a->blocks[i]);
    rule.lr *= a->ratio[i];
    zpk_lamb_apply(&rule, x.param, x.m, x.v, x.begin, x.end);
    if (x.average) zpk_average(&rule, x.param, x.average, x.begin, x.end);
    if (x.weights)
      zpk_round(rule.dtype, (float *)(void *)x.param + x.begin, (uint16_t *)(void *)x.weights, x.end - x.begin);
  }
}

void zpr_lamb_apply(zpr *c, zpr_block_list *list, const zpk_update *rule, const double *ratio) {
  lamb_task a = {.c = c, .blocks = list->block, .rule = rule, .ratio = ratio};
  zpr_parallel(c, list->n, 1, lamb_apply, &a);
}
