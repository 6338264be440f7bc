/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the update on the host: passes over the pieces of the state that is off the device (host_update.c). An
 * optimizer whose elements need nothing of one another takes one; LAMB and Adafactor, which need lengths of whole
 * tensors before any of their elements moves, take more, and say what each of them brings and takes away. */
#ifndef ZPLAN_RT_HOST_WALK_H
#define ZPLAN_RT_HOST_WALK_H

#include "state_home.h"

/* Neighbours among own elements that are of one tensor, and whose gradients stand in one place. The arrays are counted
 * from own element 0; NULL: the optimizer has none. */
typedef struct zpr_host_part {
  int64_t block; /* the number of the block that it belongs to; a block has two parts at most */
  int64_t begin, end, tensor;
  zpr_recipe recipe;
  const void *grads; /* NULL: the pass does not ask for them */
  void *weights, *moment[ZPK_MOMENTS], *average;
  const zpr_piece_of_state *piece; /* that it is in */
  const char *landed;              /* what came, from the piece's first element on */
} zpr_host_part;

enum { ZPR_GRADIENTS_HERE = 1, ZPR_GRADIENTS_OFFLOADED = 2 }; /* that are on the device; off it */

typedef struct zpr_host_walk {
  unsigned reads, writes;                                /* arrays that disks give and take, bits by zpr_array */
  unsigned gradients;                                    /* those that are needed: ZPR_GRADIENTS_.. */
  bool weights_in;                                       /* old ones come from where they are computed with */
  bool weights;                                          /* new ones leave for where they are computed with */
  void (*on_part)(void *arg, const zpr_host_part *part); /* called by all threads; those of a block by one */
  void *arg;
} zpr_host_walk;
void zpr_host_walk_run(zpr *c, const zpr_host_update *update, const zpr_host_walk *walk, zpr_between *between,
                       void *arg);

/* 0 for NULL. */
int64_t zpr_host_blocks(const zpr_host_update *update);
/* Adds sums[2 i] and sums[2 i + 1] of every block i that counts to those of its tensor, in the order of the state. */
void zpr_host_add_squares(const zpr_host_update *update, const double *sums, double *squares);

#endif
