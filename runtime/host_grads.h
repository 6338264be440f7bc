/* Private: gradients that a rank keeps, of which the last ones may be on the host (stage->grads_away). They stand as
 * the flat buffers do, with ZeRO 2 and 3 as the shards. */
#ifndef ZPLAN_RT_HOST_GRADS_H
#define ZPLAN_RT_HOST_GRADS_H

#include "device.h"

/* How many of them are on the device. */
int64_t zpr_gradients_here(const zpr *c);
/* Gradients [first, first + count) become, or are increased by, those at `from` on the device. What goes to the host is
 * there after zpr_land_gradients; until then it lands in one of two windows. */
void zpr_keep_gradients(zpr *c, int64_t first, const void *from, int64_t count, bool add);
void zpr_land_gradients(zpr *c);
void zpr_zero_gradients(zpr *c, int64_t first, int64_t count);
/* Their sum over a group, wherever they are. */
void zpr_sum_gradients(zpr *c, const zpr_group *group, zpr_axis counted_as, int64_t first, int64_t count);
/* zpr_square_blocks of blocks that may be, in part, on the host. */
void zpr_square_gradients(zpr *c, const zpr_block *blocks, int64_t n, double *squares);

void zpr_landing_close(zpr *c);

#endif
