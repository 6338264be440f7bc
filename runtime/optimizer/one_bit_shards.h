/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end: 1-bit Adam with ZeRO 1 (one_bit_shards.c). */
#ifndef ZPLAN_RT_ONE_BIT_SHARDS_H
#define ZPLAN_RT_ONE_BIT_SHARDS_H

#include "device.h"
#include "state_home.h"

/* Neighbouring elements of a parameter that one rank updates: begin and end count in the flat buffers, and + to_state
 * in its own elements. */
typedef struct zpr_owned_block {
  zpr_block block;
  int owner;
} zpr_owned_block;

typedef struct zpr_one_bit_shards zpr_one_bit_shards;
/* A zpr_one_bit_shards; of zpr_one_bit_row. */
void *zpr_one_bit_shards_open(zpr *c);
void zpr_one_bit_shards_close(zpr *c, void *shards);
/* Sum of squares of this replica's gradients, those of other stages and tensor ranks left out; of zpr_one_bit_row. */
double zpr_one_bit_shards_squares(zpr *c, void *shards);
/* Parts of its update, for an update in several passes (one_bit_lamb.c). This replica's gradients to the owners: all
 * ranks' records of what this one owns. In between the owner's change to its record. Then that to all ranks'
 * weights. */
const void *zpr_one_bit_shards_send(zpr *c, zpr_one_bit_shards *shards, const zpk_update *rule);
void *zpr_one_bit_shards_record(zpr *c);
void zpr_one_bit_shards_share(zpr *c, zpr_one_bit_shards *shards);

/* ---- one_bit_shards_offloaded.c ---- */
/* The owner's side where its state is on the host, by all ranks' records on the device, to the record there; in between
 * `here`, work for the device. */
void zpr_owner_offloaded(zpr *c, const zpr_host_update *offloaded, const zpk_update *rule, const char *records,
                         char *record, zpr_between *here, void *arg);
/* Own elements [begin, end), of a piece of the state; weights of all ranks, from the piece's first on: as they came. */
void zpr_owner_update_offloaded(zpr *c, const zpk_update *rule, const zpr_piece_of_state *piece, const char *weights,
                                int64_t begin, int64_t end);
/* Zero where elements are padding: weights of all ranks, and what this owner has more. */
void zpr_owner_clear_offloaded(zpr *c, int64_t begin, int64_t end);

/* ---- by the back ends: cpu/one_bit_shards.c, cuda/one_bit_shards.c ---- */
/* error += scale gradient; then what of it is sent, to the owners' records, side by side. */
void zpr_add_to_errors(zpr *c, const zpr_owned_block *blocks, int64_t n, double scale);
void zpr_pack_errors(zpr *c, const zpr_owned_block *blocks, int64_t n, void *records);
/* The owner's side, by all ranks' records of what it owns (NULL: momentum is new already); to the record of what they
 * shall add to their weights. ratio: of the blocks' learning rates; NULL: 1. */
void zpr_owner_update(zpr *c, const zpr_block *mine, int64_t n, const zpk_update *rule, const double *ratio,
                      const void *records, void *record);
/* Adds the owners' records, side by side, to the weights. */
void zpr_apply_signs(zpr *c, const zpr_owned_block *blocks, int64_t n, const void *records);

#endif
