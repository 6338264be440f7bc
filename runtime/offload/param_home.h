/* SPDX-License-Identifier: Apache-2.0 */
/* Private: parameters that may be off the device (home.h says which, offloaded.h how they are got at): units get them
 * through a ring of two buffers (zpr_fetch_params, zpr_gather_params). */
#ifndef ZPLAN_RT_PARAM_HOME_H
#define ZPLAN_RT_PARAM_HOME_H

#include "device.h"
#include "home.h"

/* Host access between steps, as zpr_window_open, to the elements that the rank holds from `at` on: of the flat buffers,
 * with ZeRO 3 of its shards. *count becomes what there is at once. */
void *zpr_params_open(zpr *c, int64_t at, int64_t *count, bool to_read);
void zpr_params_close(zpr *c);
void zpr_params_zero(zpr *c);
/* ZeRO 1 and 2: a bucket's updated parameters from their owners to all who hold it; buckets take turns in the ring by
 * their number. Collective. Done after zpr_await_bucket. */
void zpr_gather_bucket(zpr *c, const zpr_group *holders, const zpr_bucket_home *bucket, int64_t number);
void zpr_await_bucket(zpr *c);
/* The optimizer on the device over the parts of blocks of own elements whose parameters or gradients are off it and
 * whose state is not, by pieces through the rings. */
void zpr_update_params_offloaded(zpr *c, const zpr_stretches *stretches, const zpr_block *blocks, int64_t n,
                                 const zpk_update *rule);

#endif
