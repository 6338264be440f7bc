/* SPDX-License-Identifier: Apache-2.0 */
/* zp_simulate: the price of a whole program. Micro-batches by event simulation; then reduction of gradients, one
 * meeting of all ranks for the global norm, update, and the gather of weights.
 *
 * How the step is explained: computing, tensor-parallel communication, exchanges in expert groups and exposed transfers
 * are those of the busiest stage; pipeline communication is how much sooner the micro-batches would end if messages
 * took no time; reduction and update are those of the stages that the others wait for; the rest is bubble. The terms
 * sum to step_s. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include "software_cost.h"
#include <zplan/cost.h>
#include <zplan/schedule.h>

static void add_message(void *bytes, const zp_move *m) {
  if (m->queue == ZP_QUEUE_MESSAGES) *(int64_t *)bytes += m->elements * m->element_bytes;
}

int64_t zp_cost_message_bytes(const zp_program *program, int64_t k) {
  assert(k >= 0 && k < (int64_t)program->choice.pipeline * zp_chunks(&program->choice));
  int64_t bytes = 0;
  int chunk, stage = zp_chunk_stage(&program->choice, k, &chunk);
  zp_move_scope scope = zp_move_scope_of_stage(program, stage);
  scope.moment = ZP_MOMENT_CHUNK;
  scope.act = ZP_ACT_F;
  scope.chunk = chunk;
  zp_make_moves(&scope, add_message, &bytes);
  return bytes;
}

/* A message between chunks k and k + 1 of the model, over the slower of both stages' networks. */
static double boundary_s(const zp_program *program, const zp_machine *machine, int k) {
  const zp_choice *c = &program->choice;
  int from = zp_chunk_stage(c, k, NULL), to = zp_chunk_stage(c, k + 1, NULL);
  zp_machine both = zp_machine_of_stages(machine, c, from < to ? from : to, from < to ? to : from);
  zp_group_link link = zp_machine_pipeline_link(&both, c->tensor, c->pipeline, c->data, c->order);
  return zp_cost_message(&link, (double)zp_cost_message_bytes(program, k));
}

zp_pipeline_run zp_cost_pipeline(zp_arena *arena, const zp_program *program, const zp_machine *machine) {
  assert(zp_choice_has_degrees(&program->choice));
  const zp_choice *c = &program->choice;
  int v = zp_chunks(c), places = c->pipeline * v;
  zp_stage_time *time = ZP_NEW_ARRAY(arena, zp_stage_time, places);
  double *message = ZP_NEW_ARRAY(arena, double, places);
  for (int s = 0; s < c->pipeline; s++) {
    zp_machine at = zp_machine_of_stage(machine, c, s);
    for (int k = 0; k < v; k++)
      time[s * v + k] = zp_cost_chunk(zp_program_lowered(program, s), &at, c, &program->stages[s], k);
  }
  for (int k = 0; k + 1 < places; k++) message[k] = boundary_s(program, machine, k);
  return (zp_pipeline_run){.stages = c->pipeline,
                           .chunks = v,
                           .choice = c,
                           .microbatches = program->microbatches,
                           .buffers = zp_message_buffers(c, program->microbatches),
                           .order = program->order,
                           .actions = program->actions,
                           .time = time,
                           .message_s = message,
                           .end_s = ZP_NEW_ARRAY(arena, double, c->pipeline)};
}

zp_stage_time zp_cost_stage_time(const zp_pipeline_run *run, int stage) {
  assert(stage >= 0 && stage < run->stages);
  zp_stage_time sum = {0};
  for (int k = 0; k < run->chunks; k++) zp_cost_add_time(&sum, &run->time[stage * run->chunks + k]);
  return sum;
}

/* The stage that is ready for the norm last, and the slowest update. host_s, apart_s: of the delayed update that keeps
 * exchanges apart longest. */
typedef struct step_ends {
  int last;
  double ready_s, reduce_s, optimizer_s, offload_s, gather_s, host_s, apart_s;
} step_ends;

zp_step_end zp_cost_stage_end(const zp_program *program, const zp_machine *machine, int stage, double overlapped_s) {
  assert(zp_choice_has_stage(&program->choice, stage));
  zp_machine own = zp_machine_of_stage(machine, &program->choice, stage);
  zp_step_end end = zp_cost_replicas_end(program, &own, stage, overlapped_s);
  zp_cross_sums sums = zp_cost_cross_sums(program, machine, &own, stage);
  end.reduce_s += sums.ties_s + sums.partial_s;
  end.optimizer_s += sums.update_s;
  if (end.delayed_s > 0) end.delayed_s = zp_cost_delayed(program, machine, stage);
  return end;
}

static const zp_software *software_of(const zp_machine *machine) {
  return machine->cluster ? machine->cluster->software : NULL;
}

zp_step_end zp_cost_least_stage_end(const zp_program *program, const zp_machine *machine, int stage,
                                    double overlapped_s) {
  zp_step_end end = zp_cost_stage_end(program, machine, stage, overlapped_s);
  zp_software_floor floor = zp_software_floor_of(software_of(machine));
  if (!floor.reductions) end.reduce_s = end.gather_s = 0;
  if (!floor.offload) end.offload_s = end.least_offload_s = end.delayed_s = 0;
  return end;
}

/* Do two stages have the same runs of the same procedures, and nothing that names the stage? Only asked where all state
 * is on the device and nodes are alike. */
static bool have_same_runs(const zp_program *p, int a, int b) {
  const zp_stage *x = &p->stages[a], *y = &p->stages[b];
  bool same = zp_program_lowered(p, a) == zp_program_lowered(p, b) && x->runs.len == y->runs.len &&
              x->shared.len + y->shared.len == 0 && x->n_calls == y->n_calls && x->statistics == y->statistics &&
              memcmp(&x->flat, &y->flat, sizeof x->flat) == 0 && memcmp(&x->shard, &y->shard, sizeof x->shard) == 0;
  for (int i = 0; i < x->runs.len && same; i++) {
    const zp_run *r = &x->runs.data[i], *q = &y->runs.data[i];
    same = r->segment == q->segment && r->rest == q->rest && r->count == q->count && r->chunk == q->chunk;
  }
  return same;
}

/* Ends of the last stages that differed: most stages of a long pipeline are like one of them. */
enum { MOST_KNOWN_ENDS = 8 };
typedef struct known_ends {
  bool possible;
  int n, stage[MOST_KNOWN_ENDS];
  double overlapped_s[MOST_KNOWN_ENDS];
  zp_step_end end[MOST_KNOWN_ENDS];
} known_ends;

static known_ends known_ends_of(const zp_program *program, const zp_machine *machine) {
  bool alike = !machine->cluster || machine->cluster->groups.len == 0;
  return (known_ends){.possible = alike && zp_all_on_device(&program->choice)};
}

typedef zp_step_end zp_end_of_stage(const zp_program *program, const zp_machine *machine, int stage,
                                    double overlapped_s);
static zp_step_end recall_end(known_ends *known, const zp_program *program, const zp_machine *machine, int stage,
                              double overlapped_s, zp_end_of_stage *end_of_stage) {
  if (!known->possible) return end_of_stage(program, machine, stage, overlapped_s);
  int n = known->n < MOST_KNOWN_ENDS ? known->n : MOST_KNOWN_ENDS;
  for (int i = 0; i < n; i++)
    if (known->overlapped_s[i] == overlapped_s && have_same_runs(program, known->stage[i], stage)) return known->end[i];
  int at = known->n++ % MOST_KNOWN_ENDS;
  known->stage[at] = stage;
  known->overlapped_s[at] = overlapped_s;
  return known->end[at] = end_of_stage(program, machine, stage, overlapped_s);
}

static step_ends end_of_step(const zp_program *program, const zp_machine *machine, const zp_pipeline_run *run,
                             zp_end_of_stage *end_of_stage) {
  step_ends ends = {.ready_s = -1};
  known_ends known = known_ends_of(program, machine);
  for (int s = 0; s < run->stages; s++) {
    zp_stage_time time = zp_cost_stage_time(run, s);
    zp_step_end end =
        recall_end(&known, program, machine, s, zp_cost_overlapped(&program->choice, &time), end_of_stage);
    double reduce = end.reduce_s, apart = zp_cost_delayed_step(&end);
    if (run->end_s[s] + reduce > ends.ready_s) {
      ends.last = s;
      ends.reduce_s = reduce;
      ends.ready_s = run->end_s[s] + reduce;
    }
    if (end.optimizer_s + end.offload_s + end.gather_s > ends.optimizer_s + ends.offload_s + ends.gather_s) {
      ends.optimizer_s = end.optimizer_s;
      ends.offload_s = end.offload_s;
      ends.gather_s = end.gather_s;
    }
    if (apart > ends.apart_s) ends.apart_s = apart, ends.host_s = end.delayed_s;
  }
  return ends;
}

void zp_cost_microbatches(zp_arena *arena, const zp_pipeline_run *run) {
  if (run->choice->schedule == ZP_SCHEDULE_1F1B && !run->choice->own_order)
    zp_pipeline_1f1b(arena, run);
  else
    zp_pipeline_simulate(arena, run, NULL, NULL);
}

/* What messages cost: the end of a stage now, minus its end if they took no time. */
static double exposed_messages(zp_arena *arena, const zp_pipeline_run *run, int stage) {
  if (run->stages == 1) return 0;
  zp_pipeline_run free_run = *run;
  free_run.message_s = ZP_NEW_ARRAY(arena, double, run->stages * run->chunks);
  free_run.end_s = ZP_NEW_ARRAY(arena, double, run->stages);
  zp_cost_microbatches(arena, &free_run);
  return run->end_s[stage] - free_run.end_s[stage];
}

static zp_stage_time busiest_stage(const zp_pipeline_run *run) {
  zp_stage_time busiest = zp_cost_stage_time(run, 0);
  for (int s = 1; s < run->stages; s++) {
    zp_stage_time time = zp_cost_stage_time(run, s);
    if (time.forward_s + time.backward_s > busiest.forward_s + busiest.backward_s) busiest = time;
  }
  return busiest;
}

/* Matrix products and attention, as model FLOPs count them, recomputation and padding included. */
static double hardware_flop(const zp_program *program) {
  const zp_choice *c = &program->choice;
  double flop = 0;
  for (int s = 0; s < c->pipeline; s++)
    for (int r = 0; r < program->stages[s].runs.len; r++) {
      const zp_run *run = &program->stages[s].runs.data[r];
      const zp_segment_program *segment = zp_run_segment(zp_program_lowered(program, s), run);
      flop += (double)run->count * (segment->forward.product_flop + segment->backward.product_flop);
    }
  return flop * (double)program->microbatches * c->tensor * c->data;
}

static void fill_rates(zp_estimate *e, const zp_program *program, const zp_machine *machine) {
  const zp_spec *spec = program->spec;
  double peak = zp_machine_peak_flop_per_s(machine) * e->step_s;
  e->model_flop = zp_model_flop_per_sequence(spec->model) * (double)spec->train.batch;
  e->hardware_flop = hardware_flop(program);
  e->tokens_per_s = (double)spec->train.batch * (double)spec->model->sequence / e->step_s;
  e->mfu = peak > 0 ? e->model_flop / peak : 0;
  e->hfu = peak > 0 ? e->hardware_flop / peak : 0;
}

static void fill_memory(zp_estimate *e, const zp_program *program, const zp_machine *machine) {
  for (int s = 0; s < program->choice.pipeline; s++) {
    int64_t bytes = zp_memory_on_device(&program->stages[s].memory) + machine->context_bytes;
    if (bytes <= e->peak_bytes) continue;
    e->peak_bytes = bytes;
    e->peak_stage = s;
  }
}

static void fill_stage_times(zp_arena *arena, zp_estimate *e, const zp_pipeline_run *run) {
  e->stage_forward_s = ZP_NEW_ARRAY(arena, double, run->stages);
  e->stage_backward_s = ZP_NEW_ARRAY(arena, double, run->stages);
  for (int s = 0; s < run->stages; s++) {
    e->stage_forward_s[s] = zp_cost_stage_time(run, s).forward_s;
    e->stage_backward_s[s] = zp_cost_stage_time(run, s).backward_s;
  }
}

/* What of a delayed update nothing hides. */
static double shown_seconds(const step_ends *ends) {
  return fmax(0, ends->apart_s - (ends->ready_s + ends->optimizer_s + ends->offload_s + ends->gather_s));
}

static double step_seconds(const step_ends *ends) {
  return ends->ready_s + ends->optimizer_s + ends->offload_s + ends->gather_s + shown_seconds(ends);
}

zp_delay zp_cost_delay(zp_arena *arena, const zp_program *program, const zp_machine *machine) {
  zp_pipeline_run run = zp_cost_pipeline(arena, program, machine);
  zp_cost_microbatches(arena, &run);
  step_ends ends = end_of_step(program, machine, &run, zp_cost_stage_end);
  return (zp_delay){.host_s = ends.host_s, .shown_s = shown_seconds(&ends)};
}

double zp_cost_step(zp_arena *arena, const zp_program *program, const zp_machine *machine) {
  if (software_of(machine)) return zp_simulate(arena, program, machine).step_s;
  zp_pipeline_run run = zp_cost_pipeline(arena, program, machine);
  zp_cost_microbatches(arena, &run);
  step_ends ends = end_of_step(program, machine, &run, zp_cost_stage_end);
  return step_seconds(&ends);
}

/* Nothing runs on a stage before the first micro-batch has come up to it. Where backward is not split, its last action
 * is a backward, whose gradient goes on down. */
static void fill_least_ends(const zp_program *program, const zp_pipeline_run *run) {
  double up = 0;
  for (int s = 0; s < run->stages; s++) {
    zp_stage_time all = zp_cost_stage_time(run, s);
    run->end_s[s] = up + (double)run->microbatches * (all.forward_s + all.backward_s);
    up += run->time[s * run->chunks].forward_s + run->message_s[s];
  }
  if (zp_schedule_splits(program->choice.schedule)) return;
  for (int s = run->stages - 1; s-- > 0;)
    run->end_s[s] = fmax(run->end_s[s], run->end_s[s + 1] + run->message_s[s] + run->time[s * run->chunks].backward_s);
}

double zp_cost_step_least(zp_arena *arena, const zp_program *program, const zp_machine *machine) {
  zp_pipeline_run run = zp_cost_pipeline(arena, program, machine);
  if (!zp_software_floor_of(software_of(machine)).messages)
    run.message_s = ZP_NEW_ARRAY(arena, double, run.stages *run.chunks);
  fill_least_ends(program, &run);
  step_ends ends = end_of_step(program, machine, &run, zp_cost_least_stage_end);
  const double SLACK = 1e-9; /* of a time, as ZP_BOUND_SLACK of the search: sums of up to a million rounded terms */
  return step_seconds(&ends) * (1 - SLACK);
}

zp_estimate zp_simulate(zp_arena *arena, const zp_program *program, const zp_machine *machine) {
  zp_estimate e = {0};
  zp_pipeline_run run = zp_cost_pipeline(arena, program, machine);
  zp_cost_microbatches(arena, &run);
  step_ends ends = end_of_step(program, machine, &run, zp_cost_stage_end);
  double m = (double)program->microbatches;
  zp_stage_time busiest = busiest_stage(&run);
  double exposed = busiest.comm_s + busiest.expert_s + busiest.context_s + busiest.data_s + busiest.offload_s;
  e.step_s = step_seconds(&ends);
  e.tensor_comm_s = m * busiest.comm_s;
  e.expert_comm_s = m * busiest.expert_s;
  e.context_comm_s = m * busiest.context_s;
  e.compute_s = m * (busiest.forward_s + busiest.backward_s - exposed);
  e.pipeline_comm_s = exposed_messages(arena, &run, ends.last);
  e.data_comm_s = m * busiest.data_s + ends.reduce_s + ends.gather_s;
  e.optimizer_s = ends.optimizer_s;
  e.offload_s = m * busiest.offload_s + ends.offload_s + shown_seconds(&ends);
  double explained = e.compute_s + e.tensor_comm_s + e.expert_comm_s + e.context_comm_s + e.pipeline_comm_s +
                     e.data_comm_s + e.optimizer_s + e.offload_s;
  e.bubble_s = fmax(0, e.step_s - explained);
  fill_stage_times(arena, &e, &run);
  const zp_software *software = software_of(machine);
  if (software) zp_software_step(arena, program, machine, software, &e);
  fill_rates(&e, program, machine);
  fill_memory(&e, program, machine);
  return e;
}
