/* Private to the step's end: 1-bit Adam (cpu/compress.c; GPUs have none). */
#ifndef ZPLAN_RT_COMPRESS_H
#define ZPLAN_RT_COMPRESS_H

#include "device.h"
#include "state.h"

/* Does this step leave the variance as it is, and compress? */
static inline bool zpr_is_frozen(const zpr *c) {
  return c->program->freeze_step > 0 && c->step >= c->program->freeze_step;
}
/* From the gradients of this replica to new parameters. rule->grad_scale counts on a gradient that is the replicas'
 * sum, so it has the number of replicas in it. Collective over the data ranks. */
void zpr_compressed_update(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);

#endif
