/* SPDX-License-Identifier: Apache-2.0 */
/* What a program costs: seconds of a step and what they go to. */
#ifndef ZPLAN_ESTIMATE_H
#define ZPLAN_ESTIMATE_H

#include <zplan/moves.h>

/* What a step's seconds go to, one list for fields, keys in files and names. Offload: waiting for host memory, PCIe and
 * disks; the update on the host, where it is longer. */
#define ZP_STEP_TERMS(X)                                                                                               \
  X(compute_s, "compute")                                                                                              \
  X(bubble_s, "pipeline bubble")                                                                                       \
  X(tensor_comm_s, "tensor communication")                                                                             \
  X(expert_comm_s, "expert communication")                                                                             \
  X(context_comm_s, "context communication")                                                                           \
  X(pipeline_comm_s, "pipeline communication")                                                                         \
  X(data_comm_s, "data communication")                                                                                 \
  X(optimizer_s, "optimizer")                                                                                          \
  X(offload_s, "offload")

/* The price of one optimizer step; seconds on the critical path. The terms sum to step_s. */
typedef struct zp_estimate {
  double step_s;
#define ZP_STEP_TERM_FIELD(field, name) double field;
  ZP_STEP_TERMS(ZP_STEP_TERM_FIELD)
#undef ZP_STEP_TERM_FIELD
  double tokens_per_s, mfu, hfu;    /* model FLOPs (without recomputation) and hardware FLOPs over peak */
  double model_flop, hardware_flop; /* of one step, all ranks */
  int64_t peak_bytes;               /* arena + context of the fullest stage */
  int peak_stage;
  double *stage_forward_s, *stage_backward_s; /* one micro-batch; [pipeline] */
} zp_estimate;

/* Prices one program with the event simulation over its order tables. */
zp_estimate zp_simulate(zp_arena *arena, const zp_program *program, const zp_machine *machine);
/* Prices every step of lowered segments (cost_s), given the degrees. */
void zp_price(zp_lowered *lowered, const zp_machine *machine, int tensor, int pipeline, int data);
/* Prices every step as zp_price does, and what expert groups exchange: degrees and rank order of the choice count. */
void zp_price_choice(zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice);
/* Prices what zp_lower_stages made, as zp_price_choice does; returns the array as zp_program_make wants it. */
const zp_lowered *const *zp_price_stages(zp_lowered **stages, const zp_machine *machine, const zp_choice *choice);

#endif
