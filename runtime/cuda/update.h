/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end on a GPU: tables of blocks for kernels that take all of them in one launch (update.c). */
#ifndef ZPLAN_RT_CUDA_UPDATE_H
#define ZPLAN_RT_CUDA_UPDATE_H

#include "cuda.h"

typedef struct zpr_table {
  gpu_pointer memory; /* the segments, and after them the sums of each block of threads; 0: not made, or empty */
  int n;
  int64_t blocks;
} zpr_table;

/* The norm's table has the counted blocks and a sum for each block of threads, LAMB's all blocks and two sums. */
typedef enum zpr_table_kind { ZPR_TABLE_NORM, ZPR_TABLE_UPDATE, ZPR_TABLE_LAMB, ZPR_TABLES } zpr_table_kind;
/* Made when it is asked for the first time. */
const zpr_table *zpr_table_of(zpr *c, zpr_block_list *list, zpr_table_kind kind);
const zpd_segment *zpr_segments_in(const zpr_table *table);
double *zpr_sums_in(const zpr_table *table);
/* Blocks of threads that sum a segment of so many elements. */
int64_t zpr_blocks_of_norm(int64_t count);

/* Is it in the tables of all blocks? */
static inline bool zpr_block_is_there(const zpr_block *b) { return b->begin < b->end; }

/* The update without its segments, and with those of a table; what the host has decided, to where kernels read it. */
zpd_updates zpr_updates_of(zpr *c, const zpk_update *rule);
zpd_updates zpr_updates_over(zpr *c, const zpr_table *table, const zpk_update *rule);
void zpr_put_decision(zpr *c, const zpk_update *rule);
/* lamb.c: factors of the blocks' rates to where kernels read them, in place of the sums of ZPR_TABLE_LAMB, which nobody
 * needs any more and which are as many or more. */
const double *zpr_put_ratios(zpr *c, zpr_block_list *list, const double *ratio);

#endif
