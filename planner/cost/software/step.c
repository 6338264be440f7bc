/* SPDX-License-Identifier: Apache-2.0 */
/* What a program does otherwise than the generated trainer around its kernels, in one place for plans and for
 * validation. The terms are differences to what the simulation has: each adds to the step and to the term that it
 * belongs to. */
#include <zplan/cost.h>
#include "software_cost.h"

static void add(zp_estimate *e, double *term, double seconds) {
  e->step_s += seconds;
  *term += seconds;
}

void zp_software_step(zp_arena *arena, const zp_program *program, const zp_machine *machine,
                      const zp_software *software, zp_estimate *e) {
  double data = zp_software_data_s(program, machine, e, software) + zp_software_gathers_s(program, machine, software);
  add(e, &e->data_comm_s, data);
  add(e, &e->optimizer_s, zp_software_update_s(program, machine, e, software));
  add(e, &e->offload_s, zp_software_offload_s(program, machine, e, software));
  add(e, &e->expert_comm_s, zp_software_alone_s(program, machine, software));
  add(e, &e->pipeline_comm_s, zp_software_message_s(arena, program, machine, software));
}

/* Sums that run alongside the last backward and gathers alongside the next forward may cost less than the generated
 * trainer's; messages in pieces less than whole ones; a measured update on the host less than the generated one. All
 * else only adds: reductions that nothing hides to those that are hidden, a message in the sender's own time to one
 * alongside it. */
