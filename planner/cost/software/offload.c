/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer on the host, as DeepSpeed 0.3 did it (deepspeed/runtime/zero/stage2.py; opened): gradients are made fp32 on
 * the device and copied on its compute stream, so nothing runs alongside them; the host scales the fp32 gradients in
 * place and then runs Adam, while weights go up bucket by bucket (arXiv 2101.06840, section 5.1). With ZeRO 3 every
 * weight comes down twice a micro-batch before it is used. Left out: page locking, the Python around every tensor. */
#include <math.h>
#include <zplan/cost.h>
#include "software_cost.h"

/* Host bytes per parameter: gradients scaled (4 + 4), Adam over gradient, master copy and moments (4 + 12 + 12),
 * weights written and read again by the copy (2 + 2). Down go fp32 gradients, up fp16 weights. */
enum { HOST_UPDATE_BYTES = 4 + 4 + 4 + 12 + 12 + 2 + 2, GRADIENT_BYTES = 4, WEIGHT_BYTES = 2 };

static double stage_s(const zp_program *program, const zp_machine *machine, const zp_stage *stage) {
  const zp_choice *c = &program->choice;
  zp_host_rates rates = zp_cost_host_rates(machine);
  double elements = (double)zp_flat_trained(&stage->shard),
         up = zp_cost_moving(elements * WEIGHT_BYTES, rates.pcie_bytes_per_s);
  double seconds = zp_cost_moving(elements * GRADIENT_BYTES, rates.pcie_bytes_per_s) +
                   fmax(zp_cost_moving(elements * HOST_UPDATE_BYTES, rates.host_bytes_per_s), up);
  return seconds + 2 * up * (double)program->microbatches * zp_software_offloaded(c, ZP_STATE_PARAMS);
}

double zp_software_offload_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                             const zp_software *software) {
  const zp_choice *c = &program->choice;
  if (!software->offload_waits || c->home[ZP_STATE_OPTIMIZER].tier != ZP_TIER_HOST) return 0;
  double longest = 0;
  for (int s = 0; s < c->pipeline; s++) longest = fmax(longest, stage_s(program, machine, &program->stages[s]));
  return longest - e->offload_s;
}
