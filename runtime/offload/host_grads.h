/* SPDX-License-Identifier: Apache-2.0 */
/* Private: gradients that a rank keeps, of which a part may be on the host (home.h says which). */
#ifndef ZPLAN_RT_HOST_GRADS_H
#define ZPLAN_RT_HOST_GRADS_H

#include "device.h"
#include "home.h"

/* The gradients of a bucket's shards become, or are increased by, those at `from` on the device, where the shards stand
 * one after the other. What goes to the host is there after zpr_land_gradients; until then it lands in one of two
 * windows. */
void zpr_keep_gradients(zpr *c, const zpr_bucket_home *bucket, const void *from, bool add);
void zpr_land_gradients(zpr *c);
/* Those of a bucket, and all, become zero. */
void zpr_zero_gradients(zpr *c, const zpr_bucket_home *bucket);
void zpr_zero_all_gradients(zpr *c);
/* The sum over a group of those that the rank updates, wherever they are. */
void zpr_sum_gradients(zpr *c, const zpr_group *group, zpr_axis counted_as, const zpr_bucket_home *bucket);
/* Once a step, of gradients that micro-batches have been added to: the sum of a bucket over the ranks that hold the
 * same, or, where these own pieces of it, of the piece that this rank updates. Collective. Done when all are there. */
void zpr_sum_replicas(zpr *c, const zpr_group *holders, const zpr_bucket_home *bucket);
void zpr_await_replicas(zpr *c);
/* The parts of blocks of own elements whose gradients are on the device. The blocks are always the same. */
zpr_block_list *zpr_counted_blocks(zpr *c, const zpr_stretches *stretches, const zpr_block *blocks, int64_t n);
/* zpr_square_blocks of blocks of own elements, which may be, in part, on the host. */
void zpr_square_gradients(zpr *c, const zpr_stretches *stretches, const zpr_block *blocks, int64_t n, double *squares);

void zpr_host_grads_close(zpr *c);

#endif
