/* SPDX-License-Identifier: Apache-2.0 */
/* LAMB over state that is off the device, in two passes: moments, and lengths of parameters and of updates; then
 * parameters, by the lengths of whole tensors, which ranks have summed in between (lamb.c). From a disk the second pass
 * reads the state again. What is written is written once: moments in the first pass, weights in the second. */
#include <string.h>
#include "lamb.h"

typedef struct pass {
  const zpk_update *rule;
  double *sums;         /* [blocks][2] */
  const double *ratios; /* [tensors] */
} pass;

static void make_moments(void *arg, const zpr_host_part *p) {
  const pass *x = arg;
  const zpk_update rule = zpr_rule_with(x->rule, p->recipe);
  double sums[2];
  zpk_lamb_moments(&rule, p->weights, p->grads, p->moment[ZPK_MOMENT1], p->moment[ZPK_MOMENT2], p->begin, p->end, sums);
  x->sums[2 * p->block] += sums[0];
  x->sums[2 * p->block + 1] += sums[1];
}

static void apply(void *arg, const zpr_host_part *p) {
  const pass *x = arg;
  zpk_update rule = zpr_rule_with(x->rule, p->recipe);
  rule.lr *= x->ratios[p->tensor];
  zpk_lamb_apply(&rule, p->weights, p->moment[ZPK_MOMENT1], p->moment[ZPK_MOMENT2], p->begin, p->end);
  if (p->average) zpk_average(&rule, p->weights, p->average, p->begin, p->end);
}

enum { WEIGHTS = 1 << ZPR_WEIGHTS, MOMENTS = 1 << ZPR_MOMENT1 | 1 << ZPR_MOMENT2, AVERAGE = 1 << ZPR_AVERAGE };

void zpr_host_lamb_moments(zpr *c, const zpr_host_update *offloaded, const zpk_update *rule, double *sums,
                           double *squares, zpr_between *between, void *arg) {
  pass x = {.rule = rule, .sums = sums};
  const zpr_host_walk walk = {.reads = WEIGHTS | MOMENTS,
                              .writes = MOMENTS,
                              .gradients = ZPR_GRADIENTS_HERE | ZPR_GRADIENTS_OFFLOADED,
                              .on_part = make_moments,
                              .arg = &x};
  memset(sums, 0, (size_t)zpr_host_blocks(offloaded) * 2 * sizeof *sums);
  zpr_host_walk_run(c, offloaded, &walk, between, arg);
  zpr_host_add_squares(offloaded, sums, squares);
}

void zpr_host_lamb_apply(zpr *c, const zpr_host_update *offloaded, const zpk_update *rule, const double *ratios,
                         zpr_between *between, void *arg) {
  pass x = {.rule = rule, .ratios = ratios};
  const zpr_host_walk walk = {
      .reads = WEIGHTS | MOMENTS | AVERAGE, .writes = WEIGHTS | AVERAGE, .weights = true, .on_part = apply, .arg = &x};
  zpr_host_walk_run(c, offloaded, &walk, between, arg);
}
