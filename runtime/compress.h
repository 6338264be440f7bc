/* Private to the step's end: 1-bit Adam. */
#ifndef ZPLAN_RT_COMPRESS_H
#define ZPLAN_RT_COMPRESS_H

#include "device.h"

/* Does this step leave the variance as it is, and compress? */
bool zpr_is_frozen(const zpr *c);
/* From the gradients of this replica to new parameters. rule->grad_scale counts on a gradient that is the replicas' sum, so
 * it has the number of replicas in it. Collective over the data ranks. */
void zpr_compressed_update(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);

#endif
