/* zp_simulate: the price of a whole program. Micro-batches by event simulation; then, not overlapped with anything
 * because the generated trainer does not: reduction of gradients, one meeting of all ranks for the global norm, update,
 * and the gather of weights.
 *
 * How the step is explained: computing and tensor-parallel communication are those of the busiest stage; pipeline
 * communication is how much sooner the micro-batches would end if messages took no time; data communication and update
 * are those of the stages that the others wait for; the rest is bubble. The terms sum to step_s. */
#include <math.h>
#include "cost.h"

static zp_stage_time segment_time(const zp_segment_program *segment) {
  zp_stage_time time = {segment->forward.cost_s, segment->backward.cost_s, 0};
  const zp_procedure *both[] = {&segment->forward, &segment->backward};
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < both[p]->steps.len; i++)
      if (zp_cost_is_comm(&both[p]->steps.data[i])) time.comm_s += both[p]->steps.data[i].cost_s;
  return time;
}

zp_stage_time zp_cost_stage(const zp_lowered *lowered, const zp_stage *stage) {
  zp_stage_time time = {0};
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    zp_stage_time one = segment_time(&lowered->segments[run->segment]);
    time.forward_s += (double)run->count * one.forward_s;
    time.backward_s += (double)run->count * one.backward_s;
    time.comm_s += (double)run->count * one.comm_s;
  }
  return time;
}

int64_t zp_cost_carry_elements(const zp_lowered *lowered, const zp_stage *stage) {
  if (stage->runs.len == 0) return 0;
  return lowered->segments[stage->runs.data[stage->runs.len - 1].segment].carry_out_elements;
}

zp_pipeline_run zp_cost_pipeline(zp_arena *arena, const zp_program *program, const zp_machine *machine) {
  const zp_choice *c = &program->choice;
  int n = c->pipeline;
  double *forward = ZP_NEW_ARRAY(arena, double, n), *backward = ZP_NEW_ARRAY(arena, double, n);
  double *message = ZP_NEW_ARRAY(arena, double, n);
  zp_group_link link = zp_machine_pipeline_link(machine, c->tensor, c->pipeline, c->data);
  for (int s = 0; s < n; s++) {
    zp_stage_time time = zp_cost_stage(program->lowered, &program->stages[s]);
    forward[s] = time.forward_s;
    backward[s] = time.backward_s;
    double bytes =
        (double)zp_cost_carry_elements(program->lowered, &program->stages[s]) * program->lowered->compute_bytes;
    message[s] = zp_cost_message(&link, bytes);
  }
  return (zp_pipeline_run){.stages = n,
                           .microbatches = program->microbatches,
                           .order = program->order,
                           .forward_s = forward,
                           .backward_s = backward,
                           .message_s = message,
                           .end_s = ZP_NEW_ARRAY(arena, double, n)};
}

/* The stage that is ready for the norm last, and the slowest update. */
typedef struct step_ends {
  int last;
  double ready_s, reduce_s, optimizer_s, gather_s;
} step_ends;

static step_ends end_of_step(const zp_program *program, const zp_machine *machine, const zp_pipeline_run *run) {
  step_ends ends = {.ready_s = -1};
  for (int s = 0; s < run->stages; s++) {
    const zp_stage *stage = &program->stages[s];
    zp_step_end end =
        zp_cost_step_end(program->lowered, machine, &program->choice, stage->flat_elements, stage->shard_elements);
    double reduce = end.reduce_s + zp_cost_ties(program, machine, s);
    if (run->end_s[s] + reduce > ends.ready_s) {
      ends.last = s;
      ends.reduce_s = reduce;
      ends.ready_s = run->end_s[s] + reduce;
    }
    if (end.optimizer_s + end.gather_s > ends.optimizer_s + ends.gather_s) {
      ends.optimizer_s = end.optimizer_s;
      ends.gather_s = end.gather_s;
    }
  }
  return ends;
}

/* What messages cost: the end of a stage now, minus its end if they took no time. */
static double exposed_messages(zp_arena *arena, const zp_pipeline_run *run, int stage) {
  if (run->stages == 1) return 0;
  zp_pipeline_run free_run = *run;
  free_run.message_s = ZP_NEW_ARRAY(arena, double, run->stages);
  free_run.end_s = ZP_NEW_ARRAY(arena, double, run->stages);
  zp_pipeline_simulate(arena, &free_run, NULL, NULL);
  return run->end_s[stage] - free_run.end_s[stage];
}

static int busiest_stage(const zp_pipeline_run *run) {
  int busiest = 0;
  for (int s = 1; s < run->stages; s++)
    if (run->forward_s[s] + run->backward_s[s] > run->forward_s[busiest] + run->backward_s[busiest]) busiest = s;
  return busiest;
}

static double procedure_flop(const zp_procedure *procedure) {
  double flop = 0;
  for (int i = 0; i < procedure->steps.len; i++) {
    zp_op_class class = zp_op_get_class(procedure->steps.data[i].op);
    if (class == ZP_CLASS_MATMUL || class == ZP_CLASS_ATTENTION) flop += procedure->steps.data[i].flop;
  }
  return flop;
}

/* Matrix products and attention, as model FLOPs count them, recomputation and padding included. */
static double hardware_flop(const zp_program *program) {
  const zp_choice *c = &program->choice;
  double flop = 0;
  for (int i = 0; i < program->lowered->n_segments; i++) {
    const zp_segment_program *segment = &program->lowered->segments[i];
    flop += (double)segment->segment->count * (procedure_flop(&segment->forward) + procedure_flop(&segment->backward));
  }
  return flop * (double)program->microbatches * c->tensor * c->data;
}

static void fill_rates(zp_estimate *e, const zp_program *program, const zp_machine *machine) {
  const zp_spec *spec = program->spec;
  double devices = (double)program->choice.tensor * program->choice.pipeline * program->choice.data;
  double peak = devices * machine->flop_per_s * e->step_s;
  e->model_flop = zp_model_flop_per_sequence(spec->model) * (double)spec->train.batch;
  e->hardware_flop = hardware_flop(program);
  e->tokens_per_s = (double)spec->train.batch * (double)spec->model->sequence / e->step_s;
  e->mfu = peak > 0 ? e->model_flop / peak : 0;
  e->hfu = peak > 0 ? e->hardware_flop / peak : 0;
}

static void fill_memory(zp_estimate *e, const zp_program *program, const zp_machine *machine) {
  for (int s = 0; s < program->choice.pipeline; s++) {
    int64_t bytes = program->stages[s].arena_bytes + machine->context_bytes;
    if (bytes <= e->peak_bytes) continue;
    e->peak_bytes = bytes;
    e->peak_stage = s;
  }
}

zp_estimate zp_simulate(zp_arena *arena, const zp_program *program, const zp_machine *machine) {
  zp_estimate e = {0};
  zp_pipeline_run run = zp_cost_pipeline(arena, program, machine);
  zp_pipeline_simulate(arena, &run, NULL, NULL);
  step_ends ends = end_of_step(program, machine, &run);
  double m = (double)program->microbatches;
  zp_stage_time busiest = zp_cost_stage(program->lowered, &program->stages[busiest_stage(&run)]);
  e.step_s = ends.ready_s + ends.optimizer_s + ends.gather_s;
  e.tensor_comm_s = m * busiest.comm_s;
  e.compute_s = m * (busiest.forward_s + busiest.backward_s) - e.tensor_comm_s;
  e.pipeline_comm_s = exposed_messages(arena, &run, ends.last);
  e.data_comm_s = ends.reduce_s + ends.gather_s;
  e.optimizer_s = ends.optimizer_s;
  e.bubble_s = fmax(0, e.step_s - e.compute_s - e.tensor_comm_s - e.pipeline_comm_s - e.data_comm_s - e.optimizer_s);
  e.stage_forward_s = (double *)run.forward_s;
  e.stage_backward_s = (double *)run.backward_s;
  fill_rates(&e, program, machine);
  fill_memory(&e, program, machine);
  return e;
}
