/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end: 1-bit Adam (one_bit.c). */
#ifndef ZPLAN_RT_ONE_BIT_H
#define ZPLAN_RT_ONE_BIT_H

#include "device.h"
#include "state.h"
#include "state_home.h"

/* Does this step leave the variance as it is, and compress? Steps that were skipped have not taught the variance
 * anything. */
static inline bool zpr_is_frozen(const zpr *c) {
  const zpr_program *p = c->program;
  if (p->n_phases > 0) return true; /* 0/1 Adam compresses from the first step on */
  int64_t applied = c->step - c->skipped_steps, at = p->freeze_threshold > 0 ? c->state->freeze.at : p->freeze_step;
  return at > 0 && applied >= at;
}
/* From the gradients of this replica to the momentum of all, of the blocks, whose state is on the device, and of those
 * that the host updates (NULL: none). rule->grad_scale counts on a gradient that is the replicas'
 * sum, so it has the number of replicas in it. Collective over the data ranks. */
void zpr_exchange_momentum(zpr *c, const zpr_block *blocks, int64_t n, const zpr_host_update *offloaded,
                           const zpk_update *rule);
/* The exchange alone, of momentum that is there. */
void zpr_one_bit_exchange(zpr *c, const zpr_host_update *offloaded);

/* ---- one_bit_offloaded.c ---- */
/* Blocks of ZPK_SIGNS elements at the beginning of a part whose state is on the device. */
int64_t zpr_blocks_here(const zpr *c, int part);
/* What the host does of records that are on the device, alongside the functions below: this rank's momentum of all
 * parts, side by side; the mean of part `part`, which is this rank's; and back, from all parts. */
void zpr_pack_offloaded(zpr *c, char *records);
void zpr_average_offloaded(zpr *c, int part, const char *records, char *mean);
void zpr_unpack_offloaded(zpr *c, const char *records);

/* Blocks [first, first + count) of a record of so many blocks on the device, from and to memory of the host.
 * Tickets. */
int64_t zpr_record_up(zpr *c, char *record, int64_t blocks, int64_t first, zpk_signs from, int64_t count);
int64_t zpr_record_down(zpr *c, const char *record, int64_t blocks, int64_t first, zpk_signs to, int64_t count);

/* Errors of a side, of elements of the flat buffers, or of this rank's part. */
typedef enum zpr_error_side { ZPR_WORKER, ZPR_SERVER } zpr_error_side;
/* Host access as zpr_state_open. */
void *zpr_error_open(zpr *c, zpr_error_side side, int64_t at, int64_t *count, bool to_read);
void zpr_error_close(zpr *c, zpr_error_side side, int64_t at);
/* All of them zero, and what 0/1 Adam adds up. */
void zpr_errors_zero(zpr *c);

/* ---- by the back ends: cpu/one_bit.c, cuda/one_bit.c ---- */
/* Momentum of this replica's gradients; new parameters of the averaged momentum. */
void zpr_momentum_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);
void zpr_frozen_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);
/* The blocks that are here of part `part` of the flat buffers, as many as there are data ranks. Records are those of
 * zpk_pack_signs: this rank's momentum of it; the mean of what all ranks have sent (`part` is this rank's); and
 * back. */
void zpr_pack_part(zpr *c, int part, void *record);
void zpr_average_part(zpr *c, int part, const void *records, void *record);
void zpr_unpack_part(zpr *c, int part, const void *record);

#endif
