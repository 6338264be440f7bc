/* Private to the step's end: 1-bit Adam (compress.c). */
#ifndef ZPLAN_RT_COMPRESS_H
#define ZPLAN_RT_COMPRESS_H

#include "device.h"
#include "state.h"

/* Does this step leave the variance as it is, and compress? Steps that were skipped have not taught the variance
 * anything. */
static inline bool zpr_is_frozen(const zpr *c) {
  return c->program->freeze_step > 0 && c->step - c->skipped_steps >= c->program->freeze_step;
}
/* From the gradients of this replica to new parameters. rule->grad_scale counts on a gradient that is the replicas'
 * sum, so it has the number of replicas in it. Collective over the data ranks. */
void zpr_compressed_update(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);

/* ---- by the back ends: cpu/compress.c, cuda/compress.c ---- */
/* Momentum of this replica's gradients; new parameters of the averaged momentum. */
void zpr_momentum_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);
void zpr_frozen_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);
/* Part `part` of the flat buffers, as many as there are data ranks. Records are those of zpk_pack_signs: this rank's
 * momentum of it; the mean of what all ranks have sent (`part` is this rank's); and back. */
void zpr_pack_part(zpr *c, int part, void *record);
void zpr_average_part(zpr *c, int part, const void *records, void *record);
void zpr_unpack_part(zpr *c, int part, const void *record);

#endif
