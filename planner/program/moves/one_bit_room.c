/* SPDX-License-Identifier: Apache-2.0 */
/* What compressed exchanges (one_bit.c) keep alongside the optimizer's state. */
#include "strategy.h"

enum { ERROR_BYTES = 4 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Two errors in f32, of the whole vector and of the part that the rank averages (arXiv 2102.02888), are where their
 * elements' state is: of a part the beginning is on the device, the more the earlier the part. Records on the host: a
 * worker's of all of it, or what n workers sent of a part and their mean.
 *
 * With ZeRO 1 the state is that of the part alone. A worker's errors are of everybody's elements and stay where the
 * gradients are; with a master copy the second error is what that has more than the weights. 1-bit LAMB's owners know
 * the gradient, and keep no momentum to take it from. A master copy is 0/1 Adam's weights of the last exchange. */
void zp_need_one_bit(const zp_move_scope *x, zp_placing *p) {
  const zp_lowered *l = x->lowered;
  const zp_choice *c = x->choice;
  const zp_train *train = &l->spec->train;
  bool shards = zp_shards_state(c), mixed = l->compute_bytes == 2, has_error = !shards || !mixed;
  int64_t flat = zp_flat_trained(&p->stage->flat), here = p->held[ZP_STATE_OPTIMIZER].here,
          offloaded = p->held[ZP_STATE_OPTIMIZER].offloaded;
  int64_t part = flat / c->data, part_offloaded = least(offloaded, part), real = here * l->stat_bytes;
  int64_t of_a_part = (c->data + 1) * part_offloaded / ZP_SIGNS_BLOCK, of_all = shards ? 0 : offloaded / ZP_SIGNS_BLOCK;
  int64_t records = (of_all > of_a_part ? of_all : of_a_part) * ZP_SIGNS_BLOCK_BYTES;
  zp_need(p, ZP_REGION_ERROR, (shards ? flat : here) * ERROR_BYTES);
  zp_need(p, ZP_REGION_SERVER_ERROR, has_error ? least(here, part) * ERROR_BYTES : 0);
  zp_need(p, ZP_REGION_HOST_ERROR, shards ? 0 : offloaded * ERROR_BYTES);
  zp_need(p, ZP_REGION_HOST_SERVER_ERROR, has_error ? part_offloaded * ERROR_BYTES : 0);
  zp_need(p, ZP_REGION_HOST_RECORDS, zp_round_up(records, ZP_ALIGN_BYTES));
  bool lamb = zp_optimizer_facts(train)->one_bit == ZP_ONE_BIT_LAMB, local = train->variance_every > 0;
  zp_need(p, ZP_REGION_FRESH, lamb ? real : 0);
  zp_need(p, ZP_REGION_MOMENTUM_BEFORE, lamb && !shards ? real : 0);
  zp_need(p, ZP_REGION_LOCAL_SUM, local ? real : 0);
  zp_need(p, ZP_REGION_ANCHOR, local && !mixed ? real : 0);
}
