/* SPDX-License-Identifier: Apache-2.0 */
/* Private: loads of experts, which biases of gates move against (zpr_recipe.sign_rate, arXiv 2412.19437,
 * section 2.1.2). Choices are counted in 64-bit integers from the kernel to the sign: a sum in f32 would stand still,
 * and a bias move the wrong way, where counts pass 2^24. */
#ifndef ZPLAN_RT_LOADS_H
#define ZPLAN_RT_LOADS_H

#include "home.h"

typedef struct zpr_loads zpr_loads;

/* Counts for every bias of the stage, 0 at first. */
void zpr_loads_open(zpr *c);
void zpr_loads_close(zpr *c);
/* At the start of a step, or when a rehearsal is over. */
void zpr_loads_zero(zpr *c);
/* Once the micro-batches are done and the gradients summed: the counts of all ranks and of tied stages are added up,
 * and the gradients of biases that this rank updates become 1, -1 or 0. Collective. */
void zpr_loads_finish(zpr *c, const zpr_stretches *stretches);
/* After zpr_loads_finish: signs for own elements [begin, end) of one bias whose gradients disks hold, and which have
 * come to `grads`. */
void zpr_loads_read(zpr *c, int64_t begin, int64_t end, void *grads);
/* The counts of the bias whose first flat element is this one, where the back end has them. */
int64_t *zpr_load_of(zpr *c, int64_t bias);

/* n signs from expert `first` on, on the host. */
void zpr_put_load_signs(zpk_dtype type, const int64_t *count, int64_t experts, int64_t first, int64_t n, void *grad);

/* ---- of the back end ---- */
/* As zpk_count_choices, of all samples. */
void zpr_count_choices(zpr *c, const zpk_routing *r, const int32_t *slot, void *count);
/* Memory of the device for n counts. */
int64_t *zpr_load_counts_open(zpr *c, int64_t n);
void zpr_load_counts_close(zpr *c, int64_t *count);
/* As zpr_put_load_signs, on the device. */
void zpr_load_signs(zpr *c, const int64_t *count, int64_t experts, int64_t first, int64_t n, void *grad);

#endif
