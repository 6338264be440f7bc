/* SPDX-License-Identifier: Apache-2.0 */
/* How long the actions of a stage take: steps of its units, and what of its transfers is not hidden behind them. */
#include <zplan/cost.h>

#include <assert.h>
#include <zplan/schedule.h>

zp_unit_time zp_cost_unit(const zp_segment_program *segment) {
  return (zp_unit_time){.forward_s = segment->forward.cost_s,
                        .backward_s = segment->backward.cost_s,
                        .weights_s = segment->weights_s,
                        .comm_s = segment->comm_s,
                        .expert_s = segment->expert_s,
                        .context_s = segment->context_s};
}

double zp_cost_act(const zp_unit_time *time, zp_act act) {
  assert(act <= ZP_ACT_BW);
  switch (act) {
  case ZP_ACT_F: return time->forward_s;
  case ZP_ACT_B: return time->backward_s;
  case ZP_ACT_BI: return time->backward_s - time->weights_s;
  case ZP_ACT_BW: return time->weights_s;
  }
  return 0;
}

void zp_cost_add_time(zp_stage_time *sum, const zp_stage_time *time) {
  sum->forward_s += time->forward_s;
  sum->backward_s += time->backward_s;
  sum->weights_s += time->weights_s;
  sum->comm_s += time->comm_s;
  sum->expert_s += time->expert_s;
  sum->context_s += time->context_s;
  sum->data_s += time->data_s;
  sum->offload_s += time->offload_s;
}

zp_stage_time zp_cost_chunk(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                            const zp_stage *stage, int chunk) {
  assert(chunk >= 0 && chunk < stage->n_chunks);
  static const zp_act whole[] = {ZP_ACT_F, ZP_ACT_B}, split[] = {ZP_ACT_F, ZP_ACT_BI, ZP_ACT_BW};
  bool splits = zp_schedule_splits(choice->schedule);
  zp_stage_time time = {0};
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    if (run->chunk != chunk) continue;
    zp_unit_time unit = zp_cost_unit(zp_run_segment(lowered, run));
    double n = (double)run->count;
    zp_cost_add_time(&time, &(zp_stage_time){.forward_s = n * unit.forward_s,
                                             .backward_s = n * unit.backward_s,
                                             .weights_s = n * unit.weights_s,
                                             .comm_s = n * unit.comm_s,
                                             .expert_s = n * unit.expert_s,
                                             .context_s = n * unit.context_s});
  }
  for (int i = 0; i < (splits ? 3 : 2); i++) {
    zp_act act = splits ? split[i] : whole[i];
    zp_exposed exposed = zp_cost_exposed(lowered, machine, choice, stage, chunk, act);
    double seconds = exposed.data_s + exposed.offload_s;
    zp_cost_add_time(&time, &(zp_stage_time){.forward_s = act == ZP_ACT_F ? seconds : 0,
                                             .backward_s = act == ZP_ACT_F ? 0 : seconds,
                                             .weights_s = act == ZP_ACT_BW ? seconds : 0,
                                             .data_s = exposed.data_s,
                                             .offload_s = exposed.offload_s});
  }
  return time;
}
