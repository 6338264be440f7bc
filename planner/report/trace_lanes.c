/* SPDX-License-Identifier: Apache-2.0 */
/* What goes on in a Chrome trace alongside an action of a stage: how long every queue is busy with it, and what the
 * stage holds afterwards. */
#include <math.h>
#include <zplan/cost.h>
#include "trace_internal.h"

static zp_action_lanes *lanes_at(const zp_stage_lanes *lanes, int chunk, zp_act act) {
  return &lanes->action[chunk * (ZP_ACT_BW + 1) + act];
}

typedef struct lane_maker {
  const zp_plan *plan;
  const zp_machine *at; /* of the stage */
  zp_host_rates rates;
  const zp_stage *stage;
  zp_stage_lanes *out;
} lane_maker;

/* Seconds of one occurrence; 0: its queue is no lane of its own, or what it takes is not known. */
static double move_s(const lane_maker *m, const zp_move *move) {
  double bytes = (double)move->elements * move->element_bytes;
  switch (move->queue) {
  case ZP_QUEUE_DOWN:
  case ZP_QUEUE_UP: return zp_cost_moving(bytes, m->rates.pcie_bytes_per_s);
  case ZP_QUEUE_READ: return zp_cost_moving(bytes, m->rates.read_bytes_per_s);
  case ZP_QUEUE_WRITE: return zp_cost_moving(bytes, m->rates.write_bytes_per_s);
  case ZP_QUEUE_HOST_MEMORY: return zp_cost_moving(bytes, m->rates.host_bytes_per_s);
  case ZP_QUEUE_DATA: break;
  default: return 0;
  }
  zp_move_end peers = zp_move_peers(move);
  if (peers != ZP_END_DATA_RANKS && peers != ZP_END_REPLICAS) return 0;
  zp_group_link link = zp_cost_link_of(m->at, &m->plan->best.choice, peers);
  return zp_cost_collective(&link, move);
}

static void add_move(lane_maker *m, const zp_move *move) {
  if (move->when > ZP_WHEN_AFTER_UNIT || move->run < 0) return;
  double seconds = (double)move->count * move_s(m, move);
  if (!(seconds > 0) || !isfinite(seconds)) return;
  zp_action_lanes *of = lanes_at(m->out, m->stage->runs.data[move->run].chunk, move->act);
  of->busy_s[move->queue] += seconds;
  of->bytes[move->queue] += move->count * move->elements * move->element_bytes;
}

/* Collectives that are steps of the units: from the prices of the steps. first, last: those of the action. */
static double collectives_s(const zp_procedure *procedure, int first, int last) {
  double seconds = 0;
  for (int i = first; i < last; i++)
    if (procedure->steps.data[i].comm_elements > 0)
      seconds += procedure->steps.data[i].cost_s - procedure->steps.data[i].alone_s;
  return seconds;
}

static void add_collectives(lane_maker *m) {
  const zp_program *p = m->plan->program;
  bool splits = zp_schedule_splits(p->choice.schedule);
  for (int r = 0; r < m->stage->runs.len; r++) {
    const zp_run *run = &m->stage->runs.data[r];
    const zp_segment_program *segment = zp_run_segment(zp_program_lowered(p, m->stage->index), run);
    const zp_procedure *backward = zp_backward_of(segment, p->choice.schedule);
    int cut = splits ? backward->n_inputs : backward->steps.len;
    double count = (double)run->count;
    lanes_at(m->out, run->chunk, ZP_ACT_F)->busy_s[ZP_QUEUE_COMPUTE] +=
        count * collectives_s(&segment->forward, 0, segment->forward.steps.len);
    lanes_at(m->out, run->chunk, splits ? ZP_ACT_BI : ZP_ACT_B)->busy_s[ZP_QUEUE_COMPUTE] +=
        count * collectives_s(backward, 0, cut);
    lanes_at(m->out, run->chunk, ZP_ACT_BW)->busy_s[ZP_QUEUE_COMPUTE] +=
        count * collectives_s(backward, cut, backward->steps.len);
  }
}

zp_stage_lanes zp_trace_lanes(zp_arena *arena, const zp_plan *plan, int stage) {
  int chunks = zp_chunks(&plan->best.choice);
  zp_stage_lanes lanes = {.action = ZP_NEW_ARRAY(arena, zp_action_lanes, chunks * (ZP_ACT_BW + 1))};
  zp_machine at = zp_machine_of_stage(&plan->machine, &plan->best.choice, stage);
  lane_maker m = {plan, &at, zp_cost_host_rates(&at), &plan->program->stages[stage], &lanes};
  zp_move_list moves = zp_stage_moves(arena, plan->program, stage);
  for (int i = 0; i < moves.len; i++) add_move(&m, &moves.data[i]);
  add_collectives(&m);
  for (int i = 0; i < chunks * (ZP_ACT_BW + 1); i++)
    for (int q = 0; q < ZP_QUEUE_COUNT; q++) lanes.has[q] |= lanes.action[i].busy_s[q] > 0;
  return lanes;
}

const zp_action_lanes *zp_trace_action_lanes(const zp_stage_lanes *lanes, const zp_action *action) {
  return lanes_at(lanes, action->chunk, action->act);
}
