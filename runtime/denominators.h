/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: a table */
/* What every term of a training is the mean over. Each term has a denominator of its own, and none takes it from
 * another. A batch is that of all replicas, so that no layout changes any of them.
 *
 *   term                                     mean over                                   where there is none
 *   cross_entropy, smoothed targets, z_loss  labels of that loss in the batch            adds nothing; null in the log
 *   mse                                      rows of the batch, all of which count       -
 *   balance of top_k_gate                    samples of the batch, and all positions     -
 *                                            of a sample, padding included
 *   load after bias_rate (not a mean, but   choices of the batch, of all positions      -
 *   64-bit counts: loads.h)
 *   loss, accuracy of a validation           labels (rows) of that loss in all of its    null in the log
 *                                            samples, each of which counts once
 *   exact match                              samples that have a label                   null in the log
 *   all of `zplan eval`                      as a validation, over all of the data       0
 *
 * The loss of a step or of a validation is the sum of those means, each times the weight of its loss. */
/* clang-format on */
#ifndef ZPLAN_RT_DENOMINATORS_H
#define ZPLAN_RT_DENOMINATORS_H

#include <assert.h>
#include <zplan/rt.h>

static inline double zpr_loss_weight(const zpr_program *p, int loss) { return p->losses ? p->losses[loss].weight : 1; }

/* What a label's loss is multiplied by where so many have a label. */
static inline double zpr_label_weight(int64_t labels) {
  assert(labels >= 0);
  return labels > 0 ? 1 / (double)labels : 0;
}

/* What the gradient of a label's loss is multiplied by. */
static inline double zpr_gradient_weight(const zpr *c, int loss) {
  return c->token_weight[loss] * zpr_loss_weight(c->program, loss) * (double)c->loss_scale;
}

/* What the gradient of a position's part of a balancing loss is multiplied by, but for the loss scale. */
static inline double zpr_balance_weight(const zpr *c, const zpk_routing *r) {
  int64_t positions = r->S * (r->choices ? r->ranks : 1);
  assert(positions >= 1);
  return 1 / ((double)c->program->batch * (double)positions);
}

#endif
