/* SPDX-License-Identifier: Apache-2.0 */
/* Private: optimizer state that may be off the device. A rank's elements of state are numbered 0 .. zpr_shard_elements
 * - 1; the last stage->state_offloaded.elements of them live on the host or on a disk, where weights belong to them:
 * the f32 master copy, or without mixed precision a copy of the parameters. On the host the arrays stand side by side,
 * on a disk piece by piece, so that a piece is one read and one write. */
#ifndef ZPLAN_RT_STATE_HOME_H
#define ZPLAN_RT_STATE_HOME_H

#include "device.h"
#include "home.h"

/* Arrays of the state (state_regions.def); moment n is ZPR_MOMENTS_FROM + n. Weights are the master copy, or off the
 * device the copy of the parameters. */
typedef enum zpr_array {
#define STATE_ARRAY(region, field, key, name) ZPR_##region,
#include <zplan/state_regions.def>
  ZPR_ARRAYS,
  ZPR_WEIGHTS = ZPR_MASTER,
  ZPR_MOMENTS_FROM = ZPR_MASTER + 1,
} zpr_array;
enum { ZPR_ALL_ARRAYS = (1 << ZPR_ARRAYS) - 1 };

/* The arrays of the state, bits: weights, and what the optimizer has (optimizer/optimizer.h). Weights, and any other
 * array, may have none of their elements on the device. */
unsigned zpr_state_arrays(const zpr_program *program);
/* Elements of state on the device. */
static inline int64_t zpr_state_here(const zpr *c) {
  return zpr_shard_elements(c->stage) - c->stage->state_offloaded.elements;
}

/* What is worked on at once: elements [first, first + count) and where they stand in memory of the host. The arrays are
 * NULL where the optimizer has none. */
typedef struct zpr_piece_of_state {
  int64_t first, count;
  char *array[ZPR_ARRAYS];
} zpr_piece_of_state;
int64_t zpr_state_pieces(const zpr *c);
zpr_piece_of_state zpr_state_piece(zpr *c, int64_t k);
/* State on disks: arrays of a piece (bits by zpr_array) come to its window, or go from there. */
typedef struct zpr_requests {
  int64_t first, last; /* tickets of zpr_file_wait; 0: nothing is under way */
} zpr_requests;
zpr_requests zpr_read_arrays(zpr *c, int64_t k, unsigned arrays);
zpr_requests zpr_write_arrays(zpr *c, int64_t k, unsigned arrays);
void zpr_requests_wait(zpr *c, zpr_requests requests);
/* The piece that was the last one in the same window before k; -1: none. */
int64_t zpr_piece_before(const zpr *c, int64_t k);

/* ---- between steps: weights to start from, checkpoints ---- */
/* Host access to elements from `at` on of an array, wherever they are, one window at a time; *count becomes what there
 * is at once. As zpr_window_open. Weights that are on the device are only there with mixed precision. */
void *zpr_state_open(zpr *c, zpr_array array, int64_t at, int64_t *count, bool to_read);
void zpr_state_close(zpr *c);
/* All state zero; and puts to disk what windows still hold: before the first step and before the file is closed. */
void zpr_state_zero(zpr *c);
void zpr_state_flush(zpr *c);

/* ---- the update on the host (host_update.c) ---- */
typedef struct zpr_host_update zpr_host_update;
/* For those of the rank's blocks of own elements whose state is offloaded. NULL: none is. The stretches live as
 * long. */
zpr_host_update *zpr_host_update_open(zpr *c, const zpr_stretches *stretches, const zpr_block *blocks, int64_t n);
void zpr_host_update_close(zpr_host_update *update);
/* Copies parameters to the weights off the device, where these are a copy. */
void zpr_host_update_begin(zpr *c, const zpr_host_update *update);
/* All of it: gradients down, optimizer, weights up. Of 1-bit Adam's frozen steps one half or the other: gradients down
 * into momentum; weights by momentum, and up. With ZeRO 1 what an owner does (optimizer/one_bit_shards_offloaded.c):
 * weights of all ranks down, where they are not here. */
typedef enum zpr_host_pass { ZPR_PASS_UPDATE, ZPR_PASS_MOMENTUM, ZPR_PASS_FROZEN, ZPR_PASS_OWNER } zpr_host_pass;
/* between: work for the device, given to it while the first piece comes. */
typedef void zpr_between(zpr *c, void *arg);
void zpr_host_update_run(zpr *c, const zpr_host_update *update, zpr_host_pass pass, const zpk_update *rule,
                         zpr_between *between, void *arg);
/* A delayed update: waits for that of the step before, sends its weights up, takes this step's gradients and leaves
 * it to a thread that updates by them; NULL: this step is not applied. */
void zpr_host_update_exchange(zpr *c, zpr_host_update *update, const zpk_update *rule);
/* Until no thread works on state any more; NULL: none does. */
void zpr_host_update_join(zpr_host_update *update);
/* The weights that go up next, from own element `own` on; *count becomes what there is at once. Requires joined. */
const void *zpr_next_weights(zpr *c, int64_t own, int64_t *count);

#endif
