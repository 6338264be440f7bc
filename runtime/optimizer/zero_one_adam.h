/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end: 0/1 Adam (zero_one_adam.c). */
#ifndef ZPLAN_RT_COMPRESS_LOCAL_H
#define ZPLAN_RT_COMPRESS_LOCAL_H

#include "device.h"

/* What a run is at between two exchanges; the same on all ranks. */
typedef struct zpr_local {
  double total;        /* of the rates of the steps since the last exchange, each over its correction of momentum */
  bool anchored;       /* the stage has a copy of the weights that all ranks had then */
  bool meets;          /* this step ends with an exchange, whatever the intervals: a checkpoint follows, or the end */
  bool synced, summed; /* the last step has exchanged signs, and has summed gradients for the variance */
} zpr_local;

/* Is it 0/1 Adam? */
static inline bool zpr_is_zero_one_adam(const zpr_program *p) { return p->n_phases > 0; }

/* ---- by the back ends: cpu/zero_one_adam.c, cuda/zero_one_adam.c ---- */
void zpr_variance_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);
/* Adds weight times momentum to the sum, and decays the weights of the last exchange. */
void zpr_local_add(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, double weight);
/* The weights to compute with from here on. */
void zpr_local_weights(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, double total);
/* Momentum becomes the mean of what was added, and the sum 0. */
void zpr_local_mean(zpr *c, const zpr_block *blocks, int64_t n, double total);

#endif
