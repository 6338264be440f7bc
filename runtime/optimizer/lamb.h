/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end: LAMB (lamb.c). */
#ifndef ZPLAN_RT_LAMB_H
#define ZPLAN_RT_LAMB_H

#include "device.h"
#include "host_walk.h"
#include "state.h"

/* The number of parameter k of instance i of run r on this stage, among those of all stages; tied ones have one. */
int64_t zpr_tensor_number(const zpr *c, int r, int64_t i, int k);
/* By the stage, where a tied one has a number on every stage. */
int64_t zpr_tensor_number_on(const zpr *c, int stage, int r, int64_t i, int k);
/* How many parameters a stage has, of all instances. */
int64_t zpr_tensors_of(const zpr_stage *stage);

/* ---- of what is offloaded: host_lamb.c. `between` is work for the device ---- */
/* New moments; adds squares of parameters and of updates to those of their tensors. sums: [blocks offloaded][2]. */
void zpr_host_lamb_moments(zpr *c, const zpr_host_update *offloaded, const zpk_update *rule, double *sums,
                           double *squares, zpr_between *between, void *arg);
/* New parameters, by the ratios of tensors. */
void zpr_host_lamb_apply(zpr *c, const zpr_host_update *offloaded, const zpk_update *rule, const double *ratios,
                         zpr_between *between, void *arg);

/* ---- by the back ends: cpu/lamb.c, cuda/lamb.c ---- */
/* New moments of all blocks; sums[2 i] and sums[2 i + 1]: squares of parameters and of updates of block i. */
void zpr_lamb_moments(zpr *c, zpr_block_list *list, const zpk_update *rule, double *sums);
/* New parameters: ratio[i] scales the learning rate of block i. */
void zpr_lamb_apply(zpr *c, zpr_block_list *list, const zpk_update *rule, const double *ratio);

#endif
