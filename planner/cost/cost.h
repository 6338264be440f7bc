/* Shared inside the planner: time of single operations and collectives, and of the end of a step. */
#ifndef ZPLAN_COST_H
#define ZPLAN_COST_H

#include <zplan/plan.h>

/* ---- collective.c: ring algorithms, as the runtime's ---- */
/* Time of an all-reduce of `bytes` on every rank; 0 for one rank. */
double zp_cost_all_reduce(const zp_group_link *link, double bytes);
/* Time of a reduce-scatter, or of an all-gather, whose full array has `bytes`. */
double zp_cost_ring_pass(const zp_group_link *link, double bytes);
/* Time of one message. */
double zp_cost_message(const zp_group_link *link, double bytes);

/* ---- operation.c ---- */
/* Matrix product [m, k] x [k, n]. */
double zp_cost_matmul(const zp_machine *machine, double m, double n, double k, int float_bytes);
/* Moves `bytes` and computes `flop` beside it. */
double zp_cost_memory_bound(const zp_machine *machine, double bytes, double flop);
/* The larger of computing and moving. */
double zp_cost_roofline(const zp_machine *machine, double flop, double efficiency, double bytes);
double zp_cost_attention(const zp_machine *machine, double flop, double bytes);

/* ---- step_end.c: what follows the micro-batches of a step on one stage. Nothing of it overlaps: the generated
 * trainer runs it after the last micro-batch. ---- */
typedef struct zp_step_end {
  double reduce_s;    /* gradients over the data ranks, tied gradients over their stages */
  double optimizer_s; /* update of this rank's share */
  double gather_s;    /* updated weights back to the data ranks (ZeRO-1) */
} zp_step_end;
/* flat: elements of the stage's flat buffers, shard: those that this rank updates. Ties are not counted. */
zp_step_end zp_cost_step_end(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                             int64_t flat_elements, int64_t shard_elements);
/* All-reduce of the tied parameters that a stage holds, over the stages that hold them too. */
double zp_cost_ties(const zp_program *program, const zp_machine *machine, int stage);

/* ---- pipeline.c: event simulation of the micro-batches ---- */
typedef struct zp_event {
  int stage;
  zp_action action;
  double begin_s, end_s;
} zp_event;
typedef void zp_on_event(void *user, const zp_event *event);
typedef struct zp_pipeline_run {
  int stages;
  int64_t microbatches;
  zp_action **order;
  const double *forward_s, *backward_s; /* [stages] */
  const double *message_s;              /* [stages]: between stage s and s + 1, either way */
  double *end_s;                        /* out, [stages]: end of the last action */
} zp_pipeline_run;
/* on_event may be NULL. Scratch memory comes from the arena and is given back. */
void zp_pipeline_simulate(zp_arena *arena, const zp_pipeline_run *run, zp_on_event *on_event, void *user);

/* ---- simulate.c ---- */
/* Forward and backward seconds of one micro-batch on a stage, and how much of both is tensor-parallel communication. */
typedef struct zp_stage_time {
  double forward_s, backward_s, comm_s;
} zp_stage_time;
zp_stage_time zp_cost_stage(const zp_lowered *lowered, const zp_stage *stage);
/* Fills a pipeline run for a priced program, outputs included. Arena. */
zp_pipeline_run zp_cost_pipeline(zp_arena *arena, const zp_program *program, const zp_machine *machine);
/* Elements of the carry that leaves a stage upwards; 0 at the last one. */
int64_t zp_cost_carry_elements(const zp_lowered *lowered, const zp_stage *stage);

/* ---- price.c ---- */
/* Is the step communication over the tensor ranks? */
bool zp_cost_is_comm(const zp_step *step);

#endif
