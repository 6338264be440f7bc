/* SPDX-License-Identifier: Apache-2.0 */
/* What every stage does in a training step, second by second: the simulation of zp_simulate, told for all stages
 * instead of the busiest. */
#include <math.h>
#include <zplan/cost.h>
#include <zplan/stage_step.h>

zp_stage_step *zp_cost_stage_steps(zp_arena *arena, const zp_program *program, const zp_machine *machine) {
  zp_pipeline_run run = zp_cost_pipeline(arena, program, machine);
  zp_stage_step *steps = ZP_NEW_ARRAY(arena, zp_stage_step, run.stages);
  double m = (double)program->microbatches, ready_s = 0, *apart_s = ZP_NEW_ARRAY(arena, double, run.stages);
  zp_cost_microbatches(arena, &run);
  for (int s = 0; s < run.stages; s++) {
    zp_stage_time time = zp_cost_stage_time(&run, s);
    zp_step_end end = zp_cost_stage_end(program, machine, s, zp_cost_overlapped(&program->choice, &time));
    double busy = time.forward_s + time.backward_s;
    steps[s] = (zp_stage_step){.units_s = m * (busy - time.data_s - time.offload_s),
                               .waiting_s = fmax(0, run.end_s[s] - m * busy),
                               .data_s = m * time.data_s,
                               .offload_s = m * time.offload_s,
                               .reduce_s = end.reduce_s,
                               .update_s = end.optimizer_s + end.offload_s,
                               .gather_s = end.gather_s};
    apart_s[s] = zp_cost_delayed_step(&end);
    ready_s = fmax(ready_s, run.end_s[s] + end.reduce_s);
  }
  for (int s = 0; s < run.stages; s++) {
    steps[s].meet_s = ready_s - (run.end_s[s] + steps[s].reduce_s);
    steps[s].update_s += fmax(0, apart_s[s] - (ready_s + steps[s].update_s + steps[s].gather_s));
  }
  return steps;
}
