/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of every stage spend a training step, by the plan: what a profile of a run is laid alongside. */
#ifndef ZPLAN_STAGE_STEP_H
#define ZPLAN_STAGE_STEP_H

#include <zplan/rates.h>
#include <zplan/moves.h>

/* Seconds of one training step on one stage. Until the ranks meet for the norm, all stages' terms have the same sum; of
 * the stage whose update takes longest they sum to the step. */
typedef struct zp_stage_step {
  double units_s;           /* the steps of its procedures */
  double waiting_s;         /* for messages of other stages: nothing runs meanwhile */
  double data_s, offload_s; /* exposed transfers of units over the data ranks, to and from host and disks */
  double reduce_s;          /* sums of gradients after the last micro-batch */
  double meet_s;            /* for the stage that is ready last */
  double update_s;          /* norm and optimizer, on the device and beyond that on the host */
  double gather_s;          /* updated parameters */
} zp_stage_step;

/* [pipeline], arena. */
zp_stage_step *zp_cost_stage_steps(zp_arena *arena, const zp_program *program, const zp_machine *machine);

#endif
