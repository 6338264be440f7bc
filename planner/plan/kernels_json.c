/* SPDX-License-Identifier: Apache-2.0 */
/* What plans for zplan's own GPU trainer say of its kernels: of every step which, how many and what they do, of every
 * class how fast it is taken to be, of every stage the end of a step. */
#include <assert.h>
#include <zplan/cost.h>
#include "plan_internal.h"

void zp_kernel_set_work(zp_json *object, const zp_plan *plan, const zp_segment_program *segment, const zp_step *step) {
  zp_kernel_work work = zp_cost_step_work(plan->program->lowered, &plan->machine, segment->graph, step);
  if (work.launches == 0) return;
  zp_json_set_string(object, "kernel", zp_kernel_name(work.kernel));
  zp_json_set_int(object, "launches", work.launches);
  zp_json_set_real(object, "flop", work.flop);
  zp_json_set_real(object, "bytes", work.bytes);
}

zp_json *zp_kernels_json(const zp_plan *plan) {
  int64_t head = zp_tensor_core_head(plan->spec);
  zp_json *list = zp_json_array();
  for (int k = 0; k < ZP_KERNEL_COUNT; k++) {
    zp_kernel_rate rate = zp_kernel_rate_of(&plan->machine, (zp_kernel)k, head);
    zp_json *j = zp_json_append(list, zp_json_object());
    zp_json_set_string(j, "kernel", zp_kernel_name((zp_kernel)k));
    zp_json_set_real(j, "flop_per_s", rate.flop_per_s);
    zp_json_set_real(j, "bytes_per_s", rate.bytes_per_s);
    zp_json_set_string(j, "source", rate.source);
  }
  return list;
}

zp_json *zp_update_json(const zp_plan *plan, int stage) {
  assert(zp_choice_has_stage(&plan->best.choice, stage));
  zp_step_end end = zp_cost_stage_end(plan->program, &plan->machine, stage, 0);
  zp_json *j = zp_json_object();
  zp_json_set_int(j, "launches", ZP_UPDATE_LAUNCHES);
  zp_json_set_real(j, "bytes", end.update_bytes);
  zp_json_set_real(j, "cost_s", end.optimizer_s);
  return j;
}
