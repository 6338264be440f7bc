/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of the steps of zplan's own GPU trainer. */
#ifndef ZPLAN_OWN_PRICE_H
#define ZPLAN_OWN_PRICE_H

#include <zplan/cost.h>

/* Seconds of a step that is no message; what it does goes to *work. Of products their seconds are given: a library's,
 * as on any GPU. tensor_head: zp_tensor_core_head. */
double zp_own_step_s(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph, int64_t tensor_head,
                     double product_s, const zp_step *step, zp_kernel_work *work);

#endif
