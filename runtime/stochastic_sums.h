/* SPDX-License-Identifier: Apache-2.0 */
/* Private: shards of gradients in bf16 to which micro-batches are added with stochastic rounding
 * (zpr_program.stochastic_sums). Addends, and what ranks sum, are f32. */
#ifndef ZPLAN_RT_STOCHASTIC_SUMS_H
#define ZPLAN_RT_STOCHASTIC_SUMS_H

#include "device.h"
#include "home.h"

/* The bucket's sums become, or are increased by, those at `from`. */
void zpr_keep_rounded(zpr *c, const zpr_bucket_home *bucket, const float *from, bool add);
/* The next addition is the first one. */
void zpr_restart_rounded(zpr *c, const zpr_bucket_home *bucket);
/* The sum over a group, in f32, and rounded: the same bits for all of it. Requires: nothing is in the ring. */
void zpr_sum_rounded(zpr *c, const zpr_group *group, zpr_axis counted_as, const zpr_bucket_home *bucket);
/* Elements [first, first + count) of the rank's share of parameter k of instance i become those at `from`, which ranks
 * have summed. */
typedef struct zpr_rounded_part {
  const zpr_run *run;
  int64_t i;
  int k;
  int64_t first, count;
} zpr_rounded_part;
void zpr_round_part(zpr *c, const zpr_rounded_part *part, void *sums, const float *from);

#endif
