/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers that update element by element: AdamW, Adam, SGD, Lion, Adan (formulas:
 * kernels/optimizer/optimizer_template.h). */
#include "optimizer.h"

#include <stddef.h>
#include "param_home.h"

typedef struct on_device {
  const zpr_update_set *set;
  const zpk_update *rule;
} on_device;

static void update_here(zpr *c, void *arg) {
  const on_device *d = arg;
  zpr_update_blocks(c, d->set->here, d->rule);
  zpr_update_params_offloaded(c, d->set->stretches, d->set->blocks, d->set->n, d->rule);
}

void zpr_update_elements(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule, int64_t step) {
  (void)own, (void)step;
  on_device d = {set, rule};
  if (set->offloaded && zpr_delays(c))
    zpr_host_update_exchange(c, set->offloaded, rule);
  else if (set->offloaded)
    zpr_host_update_run(c, set->offloaded, ZPR_PASS_UPDATE, rule, update_here, &d);
  else
    update_here(c, &d);
}

#define BY_ELEMENT .by_element = true, .update = zpr_update_elements

static const zpr_one_bit_row *const one_bit_adam[] = {&zpr_zero_one_adam, &zpr_one_bit_adam_shards, &zpr_one_bit_adam};

const zpr_optimizer_row zpr_adamw_row = {.name = "adamw",
                                         .rule = ZPK_ADAMW,
                                         .moment = {[ZPK_MOMENT1] = ".exp_avg", [ZPK_MOMENT2] = ".exp_avg_sq"},
                                         .recorded = {"beta1", "beta2", "eps"},
                                         .one_bit = one_bit_adam,
                                         BY_ELEMENT};

const zpr_optimizer_row zpr_adam_row = {.name = "adam",
                                        .rule = ZPK_ADAM,
                                        .moment = {[ZPK_MOMENT1] = ".exp_avg", [ZPK_MOMENT2] = ".exp_avg_sq"},
                                        .recorded = {"beta1", "beta2", "eps"},
                                        .one_bit = one_bit_adam,
                                        BY_ELEMENT};

const zpr_optimizer_row zpr_sgd_row = {.name = "sgd",
                                       .rule = ZPK_SGD,
                                       .keeps_with = offsetof(zpr_program, momentum),
                                       .moment = {[ZPK_MOMENT1] = ".momentum_buffer"},
                                       .recorded = {"momentum"},
                                       BY_ELEMENT};

const zpr_optimizer_row zpr_adan_row = {.name = "adan",
                                        .rule = ZPK_ADAN,
                                        .moment = {[ZPK_MOMENT1] = ".exp_avg",
                                                   [ZPK_MOMENT2] = ".exp_avg_sq",
                                                   [ZPK_DIFFERENCE] = ".exp_avg_diff",
                                                   [ZPK_GRADIENT_BEFORE] = ".pre_grad"},
                                        .recorded = {"beta1", "beta2", "beta3", "eps"},
                                        BY_ELEMENT};

/* eps is recorded since it was with the first trainings by Lion, and means nothing to it. */
const zpr_optimizer_row zpr_lion_row = {.name = "lion",
                                        .rule = ZPK_LION,
                                        .moment = {[ZPK_MOMENT1] = ".exp_avg"},
                                        .recorded = {"beta1", "beta2", "eps"},
                                        BY_ELEMENT};
