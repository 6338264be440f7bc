/* SPDX-License-Identifier: Apache-2.0 */
/* A delayed update (arXiv 2101.06840, section 5.2). Once a stage has exchanged weights and gradients with its host, in
 * E seconds, the host updates for U, alongside all that comes before the next exchange: the gather of weights, the next
 * step's micro-batches with whatever they wait for, sums of gradients, the meeting for their norm. Exchanges of a stage
 * then are U + E apart or more, so a step takes no less than that of any stage, and where every U is shorter, as long
 * as it takes without the update. The host's memory is one link: what units sum there meanwhile is added to what the
 * update reads and writes. Which records go on alongside the next step is the list's (zplan/moves.h). Left out, as in
 * overlap.c, is where units stand: a tied weight's sums are those of any unit's. */
#include <assert.h>
#include <math.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>

typedef struct host_work {
  double bytes, count; /* count: of units alike */
} host_work;

static void add_update(void *user, const zp_move *m) {
  host_work *w = user;
  if (m->queue == ZP_QUEUE_HOST_MEMORY && m->when == ZP_WHEN_OVERLAPPED_NEXT)
    w->bytes += (double)m->elements * m->element_bytes;
}

static void add_sum(void *user, const zp_move *m) {
  host_work *w = user;
  if (m->queue == ZP_QUEUE_HOST_MEMORY)
    w->bytes += (double)m->elements * m->element_bytes * (double)m->times * w->count;
}

double zp_cost_delayed(const zp_program *program, const zp_machine *machine, int stage) {
  assert(zp_choice_has_stage(&program->choice, stage));
  const zp_choice *c = &program->choice;
  const zp_lowered *l = zp_program_lowered(program, stage);
  static const zp_act whole[] = {ZP_ACT_F, ZP_ACT_B}, split[] = {ZP_ACT_F, ZP_ACT_BI, ZP_ACT_BW};
  bool splits = zp_schedule_splits(c->schedule);
  host_work w = {0};
  zp_move_scope scope = zp_move_scope_of(l, c);
  scope.stage = &program->stages[stage];
  scope.moment = ZP_MOMENT_STEP;
  zp_make_moves(&scope, add_update, &w);
  if (w.bytes == 0) return 0;
  scope.stage = NULL;
  scope.moment = ZP_MOMENT_ACTION;
  for (int i = 0; i < (splits ? 3 : 2); i++)
    for (int r = 0; r < program->stages[stage].runs.len; r++) {
      const zp_run *run = &program->stages[stage].runs.data[r];
      scope.act = splits ? split[i] : whole[i];
      scope.lowered = zp_run_lowered(l, run);
      scope.segment = run->segment;
      w.count = (double)run->count;
      zp_make_moves(&scope, add_sum, &w);
    }
  zp_machine own = zp_machine_of_stage(machine, c, stage);
  zp_host_rates rates = zp_cost_host_rates(&own);
  return zp_cost_moving(w.bytes, rates.host_bytes_per_s);
}

double zp_cost_delayed_step(const zp_step_end *end) { return end->delayed_s > 0 ? end->delayed_s + end->offload_s : 0; }
