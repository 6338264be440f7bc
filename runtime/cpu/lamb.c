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

static void lamb_moments(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const lamb_task *a = arg;
  for (int64_t i = begin; i < end; i++) {
    const zpk_update rule = zpr_rule_with(a->rule, a->blocks[i].recipe);
    zpr_block_arrays x = zpr_arrays_of(a->c, &a->blocks[i]);
    zpk_lamb_moments(&rule, x.param, x.grad, x.m, x.v, 0, a->blocks[i].end - a->blocks[i].begin, &a->sums[2 * i]);
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
    zpr_block_arrays x = zpr_arrays_of(a->c, &a->blocks[i]);
    int64_t n = a->blocks[i].end - a->blocks[i].begin;
    rule.lr *= a->ratio[i];
    zpk_lamb_apply(&rule, x.param, x.m, x.v, 0, n);
    if (x.average) zpk_average(&rule, x.param, x.average, 0, n);
    if (x.weight) zpk_round(rule.dtype, (float *)(void *)x.param, (uint16_t *)(void *)x.weight, n);
  }
}

void zpr_lamb_apply(zpr *c, zpr_block_list *list, const zpk_update *rule, const double *ratio) {
  lamb_task a = {.c = c, .blocks = list->block, .rule = rule, .ratio = ratio};
  zpr_parallel(c, list->n, 1, lamb_apply, &a);
}
