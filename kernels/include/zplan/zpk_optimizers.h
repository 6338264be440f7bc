/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as kernels and the runtime number them. The device's compiler reads this too: macros and numbers alone. */
#ifndef ZPLAN_ZPK_OPTIMIZERS_H
#define ZPLAN_ZPK_OPTIMIZERS_H

/* zpr_program.optimizer, and its row in runtime/optimizer. */
#define ZPR_OPTIMIZERS(X)                                                                                              \
  X(ZPR_ADAMW, zpr_adamw_row)                                                                                          \
  X(ZPR_ADAM, zpr_adam_row)                                                                                            \
  X(ZPR_SGD, zpr_sgd_row)                                                                                              \
  X(ZPR_LION, zpr_lion_row)                                                                                            \
  X(ZPR_LAMB, zpr_lamb_row)                                                                                            \
  X(ZPR_MUON, zpr_muon_row)                                                                                            \
  X(ZPR_ADAFACTOR, zpr_adafactor_row)                                                                                  \
  X(ZPR_ADAN, zpr_adan_row)

/* zpk_update.kind: by what elements are updated (formulas: kernels/optimizer/optimizer_template.h). ADAM: decay is
 * added to the gradient. SIGN: lr against the sign of the gradient, without state. */
enum { ZPK_ADAMW, ZPK_ADAM, ZPK_SGD, ZPK_LION, ZPK_LAMB, ZPK_ADAN, ZPK_SIGN };

/* What optimizers keep of an element, by number: ZPK_MOMENT1 ... */
enum {
#define STATE_MOMENT(region, field, key, name) ZPK_##region,
#include "zplan/state_regions.def"
  ZPK_MOMENTS
};

/* Numbers that elements are updated by, alongside learning rate, decay and average of the weights: members of
 * zpr_program, zpk_update and zpd_updates. */
#define ZPK_SETTINGS(X) X(beta1) X(beta2) X(beta3) X(eps) X(momentum)
#define ZPK_SETTING_MEMBER(name) double name;

/* Corrections of averages that began at zero: after n updates 1 - beta^n, and the setting that is its beta. Members of
 * zpk_update and zpd_step; zpd_decision and zpr_biases have two of each. */
#define ZPK_BIASES(X) X(bias1, beta1) X(bias2, beta2) X(bias3, beta3)
#define ZPK_BIAS_MEMBER(bias, beta) double bias;
#define ZPK_BIAS_MEMBERS(bias, beta) double bias[2];

#endif
