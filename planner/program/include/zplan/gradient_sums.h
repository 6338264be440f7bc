/* SPDX-License-Identifier: Apache-2.0 */
/* How far sums of gradients in bf16 may be off, whose additions are rounded stochastically. The formulas and their
 * proofs: planner/program/moves/stochastic_sums.c. */
#ifndef ZPLAN_GRADIENT_SUMS_H
#define ZPLAN_GRADIENT_SUMS_H

#include <zplan/program.h>

#define ZP_STOCHASTIC_ROUNDOFF (1.0 / 256)

/* Shares of the magnitudes of an element's addends, added up, alongside the rounding of f32. */
typedef struct zp_gradient_sums {
  int64_t additions; /* the most that an element has in a step */
  double deviation;  /* standard deviation, at most; the expected error is 0 */
  double worst;      /* with probability 0 */
} zp_gradient_sums;
zp_gradient_sums zp_gradient_sums_after(int64_t additions);
/* Requires: the training has them (zp_train.stochastic_sums), and stages are laid out. */
zp_gradient_sums zp_gradient_sums_of(const zp_program *program);

#endif
