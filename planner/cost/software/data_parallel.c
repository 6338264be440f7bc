/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel communication and the update as the measured software runs them, against the generated trainer's.
 *
 * Collectives over lists of pieces (torch.distributed.all_gather, reduce_scatter): Python makes one view a rank, and
 * the library copies one piece a rank between the list and its flat buffer. Both are work of the host, whatever the
 * pieces' size, and grow with the ranks. */
#include <math.h>
#include <string.h>
#include <zplan/cost.h>
#include "software_cost.h"

/* DeepSpeed's stage3_param_persistence_threshold: smaller parameters stay on every rank. */
enum { RESIDENT_ELEMENTS = 100000 };
/* Host time of one copy from C++, and of one view or query from Python; estimates. */
#define COPY_CALL_S 10e-6
#define PYTHON_CALL_S 5e-6
/* Host time of one entry of a list: a view and a rank query in Python, a copy from C++. */
#define LIST_ENTRY_S (COPY_CALL_S + 2 * PYTHON_CALL_S)

static double list_s(const zp_software *software, double ranks) {
  return software->lists_ranks ? ranks * LIST_ENTRY_S : 0;
}

/* Parameter tensors of a stage. Merged: five of our products in a gated layer are two. */
static double count_tensors(const zp_lowered *l, const zp_stage *stage, const zp_software *software) {
  enum { LAYERS = 1, MERGED = 5 - 2 };
  double tensors = 0;
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    int here = l->segments[run->segment].graph->params.len;
    tensors += (double)run->count * (here - (software->merged_products && run->segment == LAYERS ? MERGED : 0));
  }
  return tensors;
}

/* ---- the end of a step ---- */

/* How much longer a sum takes in buckets, each a collective of its own, than in one. */
static double buckets_s(const zp_group_link *link, const zp_software *software, double bytes) {
  double buckets = software->bucket_bytes > 0 ? ceil(bytes / software->bucket_bytes) : 1;
  return buckets * zp_cost_all_reduce(link, bytes / buckets) - zp_cost_all_reduce(link, bytes);
}

/* Every rank's share, one after the other (internlm/solver/optimizer/hybrid_zero_optim.py, broadcast_params). */
static double broadcasts_s(const zp_group_link *link, const zp_lowered *l, const zp_stage *stage) {
  double share = (double)zp_flat_trained(&stage->flat) * l->param_bytes / link->n;
  return link->n * zp_cost_broadcast(link, share);
}

/* What is exposed of reduction and gather of ZeRO 0 and 1. Software that does not
 * overlap waits for all of it; software that overlaps both ways also gathers ZeRO's weights alongside the first forward
 * of the next step. */
static double stage_data_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                           const zp_software *software, int s) {
  const zp_lowered *l = zp_program_lowered(program, s);
  const zp_choice *c = &program->choice;
  const zp_stage *stage = &program->stages[s];
  zp_group_link link = zp_cost_link_of(machine, c, ZP_END_DATA_RANKS);
  zp_step_end end = zp_cost_flat_end(l, machine, c, stage);
  double lists = c->zero == 1 ? count_tensors(l, stage, software) * list_s(software, zp_shard_ranks(c)) : 0;
  double reduce = end.reduce_s, gather = end.gather_s + lists;
  if (c->zero == 1 && software->sums_whole)
    return zp_cost_all_reduce(&link, (double)zp_flat_trained(&stage->flat) * l->grad_bytes) + gather;
  if (end.reduce_s > 0) reduce += buckets_s(&link, software, (double)zp_flat_trained(&stage->flat) * l->grad_bytes);
  if (!software->overlaps_data) return reduce + gather;
  double reduced = zp_cost_exposed_reduce(machine, end.taken, reduce, 0, e->stage_backward_s[s], stage->n_calls);
  if (c->zero == 1 && software->broadcasts) return reduced + broadcasts_s(&link, l, stage);
  return reduced + lists + fmax(0, end.gather_s - e->stage_forward_s[s]);
}

/* Megatron-LM and DeepSpeed sum a tied gradient whole before ZeRO 1 scatters it; the generated trainer afterwards, a
 * shard. */
static double ties_s(const zp_program *program, const zp_machine *machine, const zp_machine *own, int stage) {
  zp_program whole = *program;
  memset(&whole.tied, 0, sizeof whole.tied);
  for (int i = 0; i < program->tied.len; i++) {
    zp_tied tie = program->tied.data[i];
    if (program->choice.zero == 1) tie.summed = tie.elements;
    zp_push(program->arena, &whole.tied, tie);
  }
  return zp_cost_cross_sums(&whole, machine, own, stage).ties_s;
}

double zp_software_data_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                          const zp_software *software) {
  if (program->choice.data == 1) return 0;
  zp_pipeline_run run = zp_cost_pipeline(program->arena, program, machine);
  zp_cost_microbatches(program->arena, &run);
  double ours = 0, theirs = 0; /* when the last stage is done */
  for (int s = 0; s < run.stages; s++) {
    zp_stage_time time = zp_cost_stage_time(&run, s);
    double overlapped = zp_cost_overlapped(&program->choice, &time);
    zp_step_end end = zp_cost_stage_end(program, machine, s, overlapped);
    zp_machine own = zp_machine_of_stage(machine, &program->choice, s);
    double partial = zp_cost_cross_sums(program, machine, &own, s).partial_s;
    ours = fmax(ours, run.end_s[s] + end.reduce_s + end.gather_s);
    theirs = fmax(theirs, run.end_s[s] + partial + ties_s(program, machine, &own, s) +
                              stage_data_s(program, machine, e, software, s));
  }
  return theirs - ours;
}

/* ---- alongside the units: ZeRO 2 and 3 ---- */

static double piece_s(const zp_group_link *link, const zp_software *software, double bytes) {
  return zp_cost_ring_pass(link, bytes) + list_s(software, link->n);
}

/* ZeRO 3 tensor by tensor, nothing alongside it: two gathers, the second over the ranks of `back`, and a scatter of
 * every parameter that is not kept resident; those are gathered once a step. */
static double tensor_gathers_s(const zp_lowered *l, const zp_group_link *link, const zp_group_link *back,
                               const zp_software *software, double elements, double microbatches) {
  if (elements < RESIDENT_ELEMENTS) return piece_s(link, software, elements * l->param_bytes) / microbatches;
  double forward = piece_s(link, software, elements * l->param_bytes);
  return forward + (back == link ? forward : piece_s(back, software, elements * l->param_bytes)) +
         piece_s(link, software, elements * l->grad_bytes);
}

/* ZeRO 2 scatters the gradients of every micro-batch. */
static double unit_moves_s(const zp_program *program, const zp_segment_program *segment, const zp_group_link *link,
                           const zp_group_link *back, const zp_software *software) {
  const zp_lowered *l = program->lowered;
  double seconds = 0;
  for (int i = 0; i < segment->graph->params.len; i++) {
    double elements = (double)l->param_elements[segment->graph->params.data[i].param];
    seconds += zp_shards_params(&program->choice)
                   ? tensor_gathers_s(l, link, back, software, elements, (double)program->microbatches)
                   : zp_cost_ring_pass(link, elements * l->grad_bytes);
  }
  return seconds;
}

double zp_software_gathers_s(const zp_program *program, const zp_machine *machine, const zp_software *software) {
  const zp_choice *c = &program->choice;
  if (!zp_shards_gradients(c) || c->data == 1 || !software->gathers_wait) return 0;
  zp_group_link link = zp_cost_link_of(machine, c, ZP_END_DATA_RANKS), hpz;
  const zp_group_link *back = &link; /* of backward's gathers */
  if (c->hpz > 0) hpz = zp_cost_link_of(machine, c, ZP_END_HPZ), back = &hpz;
  double longest = 0;
  for (int s = 0; s < c->pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    double seconds = 0;
    for (int r = 0; r < stage->runs.len; r++)
      seconds += (double)stage->runs.data[r].count *
                 unit_moves_s(program, &program->lowered->segments[stage->runs.data[r].segment], &link, back, software);
    for (int k = 0; k < stage->n_chunks; k++)
      seconds -= zp_cost_chunk(zp_program_lowered(program, s), machine, c, stage, k).data_s;
    longest = fmax(longest, seconds);
  }
  return longest * (double)program->microbatches;
}

/* ---- the update ---- */

/* Host time of a stage's update: every parameter's gradient is converted and its references handled by itself, whatever
 * its size (megatron/optimizer/optimizer.py); the rest runs over lists of tensors. */
enum { UPDATE_CALLS = 3 };

double zp_software_update_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                            const zp_software *software) {
  double longest = 0;
  if (software->update_bytes <= 0) return 0;
  for (int s = 0; s < program->choice.pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    double here =
        (double)zp_flat_trained(&stage->shard) * (1 - zp_software_offloaded(&program->choice, ZP_STATE_OPTIMIZER));
    double device = here > 0 ? zp_cost_memory_bound(machine, here * software->update_bytes, 0) : 0;
    double calls = count_tensors(program->lowered, stage, software) * UPDATE_CALLS * COPY_CALL_S;
    longest = fmax(longest, fmax(device, calls - e->optimizer_s));
  }
  return longest;
}
