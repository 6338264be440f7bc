/* SPDX-License-Identifier: Apache-2.0 */
/* Inside this folder: 1F1B without order tables, in two ways. */
#ifndef ZPLAN_COST_ONE_F_ONE_B_H
#define ZPLAN_COST_ONE_F_ONE_B_H

#include <zplan/cost.h>
#include <zplan/seconds.h>

/* What the stages that are not known need for a micro-batch, at least. */
static inline double zp_run_rest(const zp_pipeline_run *run, int64_t microbatch) {
  if (microbatch == 0) return zp_later(run->rest_s, run->first_rest_s);
  return microbatch == run->microbatches - 1 ? zp_later(run->rest_s, run->last_rest_s) : run->rest_s;
}

/* one_f_one_b_wave.c: end_s of run, for many micro-batches and stages. */
void zp_run_wave_narrow(zp_arena *arena, const zp_pipeline_run *run);
void zp_run_wave_wide(zp_arena *arena, const zp_pipeline_run *run);

#endif
