/* SPDX-License-Identifier: Apache-2.0 */
/* What data ranks sum and spread once a step, as the trainers do it: the list (zplan/moves.h) says what goes bucket by
 * bucket, each a collective, and what all at once.
 *
 * GPUs sum alongside backward of the last micro-batch, where backward is split alongside its gradients of weights
 * alone. The last bucket has nothing left to hide behind: that of the stage's first unit, with the shared parameters
 * that it uses, whose gradients wait for it; at least it is counted as long as the mean. What happens after the
 * micro-batches is exposed, as all of it is on CPU ranks.
 *
 * The update of a known stage has what strategies compute for it, too (zp_move_strategy.price), of which its elements
 * say nothing. */
#include <assert.h>
#include <math.h>
#include <zplan/cost.h>

typedef struct sums {
  const zp_machine *machine;
  const zp_choice *choice;
  double count;             /* of units alike */
  bool known[ZP_END_COUNT]; /* by the ranks that take part */
  zp_group_link link[ZP_END_COUNT];
  bool reduces, gathers; /* bucket by bucket; otherwise all at once, as zp_cost_step_end has it */
  bool overlapped;       /* backward */
  double reduce_s, gather_s;
} sums;

static void add_bucket(void *user, const zp_move *m) {
  sums *to = user;
  zp_move_end peers = zp_move_peers(m);
  bool gather = m->when == ZP_WHEN_AFTER_UPDATE;
  if (m->share == 0) return; /* not priced */
  to->overlapped |= m->when == ZP_WHEN_OVERLAPPED_BACKWARD;
  if (m->way == ZP_WAY_COPY) return; /* zp_cost_step_end has them, of the same share of all units */
  if (!to->known[peers]) to->link[peers] = zp_cost_link_of(to->machine, to->choice, peers);
  to->known[peers] = true;
  *(gather ? &to->gathers : &to->reduces) = true;
  *(gather ? &to->gather_s : &to->reduce_s) += m->share * to->count * zp_cost_collective(&to->link[peers], m);
}

static void add_unit(sums *to, zp_move_scope *scope, int run, zp_bucket_choice buckets, double count) {
  scope->run = run;
  scope->segment = scope->stage->runs.data[run].segment;
  scope->buckets = buckets;
  to->count = count;
  zp_make_moves(scope, add_bucket, to);
}

/* last_s: of the stage's first unit, which backward comes to last. */
static sums sums_of(zp_move_scope *scope, const zp_machine *machine, double *last_s) {
  sums all = {.machine = machine, .choice = scope->choice}, last = all;
  int n = scope->stage->runs.len;
  scope->moment = ZP_MOMENT_BUCKETS;
  for (int r = 0; r < n; r++) add_unit(&all, scope, r, ZP_BUCKETS_OWN, (double)scope->stage->runs.data[r].count);
  for (int r = 0; r < n; r++) add_unit(&all, scope, r, ZP_BUCKETS_SHARED, 1);
  if (n > 0) add_unit(&last, scope, 0, ZP_BUCKETS_ALL, 1);
  *last_s = last.reduce_s;
  return all;
}

double zp_cost_overlapped(const zp_choice *choice, const zp_stage_time *time) {
  return zp_schedule_splits(choice->schedule) ? time->weights_s : time->backward_s;
}

double zp_cost_exposed_reduce(const zp_machine *machine, double taken, double reduce_s, double last_s,
                              double backward_s, int64_t units) {
  assert(taken >= 0 && taken <= 1);
  assert(reduce_s >= 0 && last_s >= 0 && backward_s >= 0);
  if (machine->node->device.is_cpu || units < 1) return reduce_s;
  double share = 1.0 / (double)units, last = fmax(last_s, reduce_s * share);
  return fmax(last + taken * (reduce_s - last), reduce_s - backward_s * (1 - share));
}

zp_step_end zp_cost_replicas_end(const zp_program *program, const zp_machine *machine, int stage, double overlapped_s) {
  assert(zp_choice_has_stage(&program->choice, stage) && overlapped_s >= 0);
  const zp_stage *at = &program->stages[stage];
  const zp_lowered *l = zp_program_lowered(program, stage);
  const zp_choice *c = &program->choice;
  zp_step_end end = zp_cost_flat_end(l, machine, c, at);
  zp_move_scope scope = zp_move_scope_of(l, c);
  double last_s;
  scope.cpu = machine->node->device.is_cpu;
  scope.stage = at;
  zp_moves_price(&scope, &end.optimizer_s);
  sums s = sums_of(&scope, machine, &last_s);
  if (s.reduces && s.overlapped)
    end.reduce_s = zp_cost_exposed_reduce(machine, end.taken, s.reduce_s, last_s, overlapped_s, at->n_calls);
  else if (s.reduces)
    end.reduce_s = fmax(end.reduce_s, s.reduce_s);
  if (s.gathers) end.gather_s = fmax(end.gather_s, s.gather_s);
  return end;
}
