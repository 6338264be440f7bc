/* SPDX-License-Identifier: Apache-2.0 */
/* The space of some degrees (degrees.c) inside the plan block's constraints, in five rows of the table. Rank order,
 * micro-batch, sequence, and with them recomputation, are procedures, with whole layers or in parts; these have
 * schedules with chunks; a schedule has ZeRO stages, compression, and homes (homes.c). What cannot beat the plans that
 * are known by then, or has no room, is left out as a whole before it is opened.
 *
 * Bounded so: without a constraint on it, micro-batches go up to 64 sequences; saved inputs are split over the tensor
 * ranks only with full recomputation; a GPU tensor group stays inside a node unless its size is pinned; ZeRO with one
 * data rank and any schedule with one stage is ZeRO 0 and 1F1B where these are allowed; interleaving has 2 to 8 chunks
 * a stage; the second rank order is considered where it changes a link; the loss in chunks by rules of its own
 * (zp_next_loss_chunks); ZeRO's state is divided among all data ranks unless a constraint names shard groups. On CPU
 * clusters, what no trainer is generated for, and schedules other than 1F1B, are searched only where a constraint
 * names them. A subtree that is rejected as a whole counts as one candidate. */
#include <assert.h>
#include <math.h>
#include <zplan/buf.h>
#include <zplan/abilities.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "budget.h"
#include "cut.h"
#include "procedures.h"
#include "space.h"

/* ---- ZeRO and compression of a schedule ---- */

static void try_choice(zp_search_progress *progress, const zp_mode_points *p, zp_choice choice) {
  const char *why;
  if (zp_choice_refusal(&choice, progress->in->spec)) {
    zp_search_reject(progress, ZP_REJECT_SCHEDULE);
  } else if ((why = zp_trainer_refusal(progress->in->trainer, &progress->in->spec->train, &choice))) {
    progress->s->reason = why;
    zp_search_reject(progress, ZP_REJECT_GENERATED);
  } else {
    zp_try_homes(progress, &choice, p);
  }
}

/* The next number of data ranks above `shard` that may divide the state of the ZeRO stage; 0: there is none. ZeRO 0
 * divides it among one, which higher stages need not do again. */
static int next_shard(const zp_search_progress *progress, const zp_choice *c, int shard) {
  const zp_limit *limit = &progress->in->constraints->shard;
  if (!limit->set) return shard == 0 ? c->data : 0;
  if (!zp_shards_state(c)) return shard == 0 && zp_limit_allows(limit, 1) ? c->data : 0;
  bool one = !zp_limit_allows(&progress->in->constraints->zero, 0);
  for (int next = (int)fmax(shard + 1, ceil(limit->low)); next <= c->data && next <= limit->high; next++)
    if (c->data % next == 0 && next % zp_expert_ranks(c) == 0 && (next > 1 || one) && zp_limit_allows(limit, next))
      return next;
  return 0;
}

/* The next number of data ranks above `hpz` that may divide a second copy of the parameters: 1 stands for none, more
 * than 1 only where the plan block has the key. 0: there is none. */
static int next_hpz(const zp_search_progress *progress, const zp_choice *c, int hpz) {
  const zp_limit *limit = &progress->in->constraints->hpz;
  if (!limit->set || !zp_shards_params(c)) return hpz == 0 && zp_limit_allows(limit, 1);
  for (int next = (int)fmax(hpz + 1, ceil(limit->low)); next < c->data && next <= limit->high; next++)
    if (c->data % next == 0 && zp_limit_allows(limit, next)) return next;
  return 0;
}

static void try_compression(zp_search_progress *progress, const zp_mode_points *p, zp_choice choice) {
  const zp_constraints *c = progress->in->constraints;
  for (int compress = 0; compress <= 1; compress++) {
    if (compress && (!c->compress.set || choice.data == 1 || choice.zero > 1)) continue;
    if (!zp_search_takes(progress, &c->compress, compress, compress == 0)) continue;
    choice.compress = compress;
    try_choice(progress, p, choice);
  }
}

void zp_open_zero(zp_search_progress *progress, const zp_point *schedule) {
  zp_choice choice = schedule->choice;
  zp_mode_points p = zp_find_modes(progress->s, schedule);
  p.all.next = ZP_REFINE_WORK;
  const zp_constraints *c = progress->in->constraints;
  bool one = choice.data == 1 && zp_limit_allows(&c->zero, 0); /* one rank: all stages are the same */
  for (int zero = 0; zero <= (one ? 0 : 3); zero++) {
    if (!zp_search_takes(progress, &c->zero, zero, zero <= 1)) continue;
    choice.zero = zero;
    int shard = next_shard(progress, &choice, 0);
    if (shard == 0) zp_search_reject(progress, ZP_REJECT_CONSTRAINT);
    for (; shard > 0; shard = next_shard(progress, &choice, shard)) {
      choice.shard = shard < choice.data ? shard : 0;
      int hpz = next_hpz(progress, &choice, 0);
      if (hpz == 0) zp_search_reject(progress, ZP_REJECT_CONSTRAINT);
      for (; hpz > 0; hpz = next_hpz(progress, &choice, hpz)) {
        choice.hpz = hpz > 1 ? hpz : 0;
        try_compression(progress, &p, choice);
      }
      choice.hpz = 0;
    }
  }
}

/* ---- schedules and chunks of procedures ---- */

/* The schedule with the least memory that any ZeRO stage and homes leave it. */
static zp_point smallest_of(const zp_search_cache *s, const zp_point *schedule) {
  zp_choice smallest = zp_smallest(s, &schedule->choice);
  return zp_with_choice(s, schedule, &smallest);
}

void zp_note_open_zero(zp_search_progress *progress, const zp_point *schedule) {
  zp_point smallest = smallest_of(progress->s, schedule);
  zp_note_unsearched(progress, &smallest, ZP_UNSEARCHED_CHOICE);
}

/* Whatever the ZeRO stage and the homes: why the layers have no room. */
static zp_rejection refuse_room(zp_search_cache *s, const zp_point *smallest) {
  zp_point room = *smallest;
  if (!zp_find_least_work(s, &room, ZP_ASK_ROOM)) return ZP_REJECT_MEMORY;
  return zp_some_state_may_leave(s->in) && !zp_all_tiers_have_room(s, smallest) ? ZP_REJECT_HOST : ZP_REJECT_NONE;
}

/* Whatever the ZeRO stage and the homes: do the layers have no room, or does the work that memory forces on the stages
 * take too long? Raises the schedule's bound, of its micro-batches alone. */
static bool is_hopeless(zp_search_progress *progress, zp_point *schedule) {
  zp_point smallest = smallest_of(progress->s, schedule);
  bool beaten = zp_is_beaten(progress, zp_bound_microbatches(progress->s, &smallest));
  zp_rejection why = beaten ? ZP_REJECT_NONE : refuse_room(progress->s, &smallest);
  if (!beaten && why == ZP_REJECT_NONE && !zp_find_least_work(progress->s, &smallest, ZP_ASK_WORK))
    why = ZP_REJECT_MEMORY;
  if (why != ZP_REJECT_NONE) {
    zp_search_reject(progress, why);
    return true;
  }
  schedule->work_s = smallest.work_s;
  schedule->bound_s = fmax(schedule->bound_s, zp_bound_microbatches(progress->s, &smallest));
  beaten = beaten || zp_is_beaten(progress, schedule->bound_s);
  if (beaten) zp_note_unsearched(progress, &smallest, ZP_UNSEARCHED_CHOICE);
  return beaten;
}

/* Not refused when the nearest miss is looked for. */
static void try_schedule(zp_search_progress *progress, const zp_point *procedures, const zp_choice *choice) {
  zp_point schedule = zp_with_choice(progress->s, procedures, choice);
  schedule.next = ZP_REFINE_ZERO;
  if (progress->keeps_all)
    zp_open_zero(progress, &schedule);
  else if (!is_hopeless(progress, &schedule))
    zp_keep_point(progress, &schedule);
}

static void try_chunks(zp_search_progress *progress, const zp_point *procedures, zp_choice choice) {
  int low = choice.schedule == ZP_SCHEDULE_INTERLEAVED || zp_schedule_folds(choice.schedule) ? 2 : 1;
  int high = choice.schedule == ZP_SCHEDULE_INTERLEAVED ? progress->in->most_chunks : low;
  for (int chunks = low; chunks <= high; chunks++) {
    choice.chunks = chunks == 1 ? 0 : chunks;
    if ((int64_t)choice.pipeline * chunks > (choice.fine ? progress->in->most_units : progress->in->n_units))
      zp_search_reject(progress, ZP_REJECT_UNITS);
    else if (!zp_limit_allows(&progress->in->constraints->chunks, chunks))
      zp_search_reject(progress, ZP_REJECT_CONSTRAINT);
    else
      try_schedule(progress, procedures, &choice);
  }
}

void zp_open_schedules(zp_search_progress *progress, const zp_point *procedures) {
  const zp_constraints *c = progress->in->constraints;
  bool one = procedures->choice.pipeline == 1 && zp_limit_allows(&c->schedule, ZP_SCHEDULE_1F1B);
  for (int schedule = 0; schedule < (one ? 1 : ZP_SCHEDULE_COUNT); schedule++) {
    zp_choice choice = procedures->choice;
    choice.schedule = (zp_schedule)schedule;
    if (zp_search_takes_schedule(progress, choice.schedule)) try_chunks(progress, procedures, choice);
  }
}

/* ---- procedures ---- */

/* Is a stage that much longer than the mean wherever layers are left whole? Then cuts inside them are considered. In
 * the fastest of the modes, whatever the memory. */
static bool is_unbalanced(zp_search_cache *s, const zp_point *point) {
  int stages = point->choice.pipeline;
  int64_t units = zp_point_units(s, point);
  zp_make_point_sums(s, point);
  double mean_s = s->variants.data[point->modes[0]].prefix_s[units] / stages;
  return stages > units || !zp_cut_is_possible(s, point, ZP_UNBALANCED * mean_s);
}

/* Procedures, unless none of their plans can be the answer. */
static void try_procedures(zp_search_progress *progress, const zp_point *point) {
  zp_point procedures = *point, smallest = *point;
  smallest.choice = zp_smallest(progress->s, &point->choice);
  procedures.next = ZP_REFINE_SCHEDULES;
  procedures.bound_s = fmax(progress->expanding_s, zp_bound_work(progress->s, point));
  if (!progress->keeps_all) {
    if (zp_is_beaten(progress, procedures.bound_s)) return;
    zp_rejection why = zp_refuse_floor(progress->s, &smallest);
    if (why != ZP_REJECT_NONE) {
      zp_search_reject(progress, why);
      return;
    }
  }
  zp_make_point_sums(progress->s, point); /* long ones, where layers fall into parts: made for what is kept alone */
  if (progress->keeps_all)
    zp_open_schedules(progress, &procedures);
  else
    zp_keep_point(progress, &procedures);
}

void zp_open_inside(zp_search_progress *progress, const zp_point *whole) {
  zp_choice choice = whole->choice;
  zp_point parts;
  choice.fine = true;
  progress->expanding_s = whole->bound_s;
  if (zp_measure_point(progress->s, &choice, zp_variant_of(progress->s, whole)->modes, &parts))
    try_procedures(progress, &parts);
  else if (!zp_limit_allows(&progress->in->constraints->cut, 0))
    zp_search_reject(progress, ZP_REJECT_CUT);
}

/* Why none of these procedures with the loss in chunks can be had, layers whole or in parts; ZP_REJECT_NONE: some
 * may. */
static zp_rejection refuse_chunks(zp_search_progress *progress, zp_choice choice, zp_mode_set modes) {
  const zp_limit *cut = &progress->in->constraints->cut;
  bool inside = choice.pipeline > 1 && progress->in->pieces && zp_limit_allows(cut, 1);
  zp_rejection why = zp_limit_allows(cut, 0) ? zp_refuse_in_chunks(progress->s, &choice, modes) : ZP_REJECT_CUT;
  if (why == ZP_REJECT_NONE || !inside) return why;
  choice.fine = true;
  return zp_refuse_in_chunks(progress->s, &choice, modes) == ZP_REJECT_NONE ? ZP_REJECT_NONE : why;
}

/* Only modes that can be lowered are left. */
static void try_modes(zp_search_progress *progress, zp_choice choice, zp_mode_set modes) {
  const zp_limit *cut = &progress->in->constraints->cut;
  bool layers = zp_limit_allows(cut, 0);
  zp_rejection why = progress->s->in_chunks ? refuse_chunks(progress, choice, modes) : ZP_REJECT_NONE;
  zp_point point;
  if (why != ZP_REJECT_NONE) {
    zp_search_reject(progress, why);
    return;
  }
  if (!zp_measure_point(progress->s, &choice, modes, &point)) {
    zp_search_reject(progress, ZP_REJECT_SPLIT);
    return;
  }
  if (layers) try_procedures(progress, &point);
  if (choice.pipeline == 1 || progress->in->pinned_cut || !zp_limit_allows(cut, 1)) return;
  if (layers && (zp_has_types(progress->s) || !is_unbalanced(progress->s, &point)))
    return; /* on several node types there is no mean */
  point.next = ZP_REFINE_INSIDE;
  point.bound_s = progress->expanding_s;
  if (progress->keeps_all)
    zp_open_inside(progress, &point);
  else
    zp_keep_point(progress, &point);
}

/* The modes that the plan block pins; split inputs need tensor ranks to split over. */
static void try_pinned_modes(zp_search_progress *progress, zp_choice choice) {
  const zp_constraints *c = progress->in->constraints;
  zp_mode_set modes = zp_pinned_modes(c);
  bool possible = c->stage_recompute.len == 0 || choice.pipeline == c->stage_recompute.len;
  if (c->recompute_layers_listed && choice.pipeline != c->recompute_layers.len) possible = false;
  for (int mode = 0; mode < ZP_STAGE_MODES; mode++)
    if (choice.tensor == 1 && zp_stage_mode_split((zp_stage_mode)mode) && modes & zp_set_of_mode((zp_stage_mode)mode))
      possible = false;
  if (!possible) {
    zp_search_reject(progress, ZP_REJECT_CONSTRAINT);
    return;
  }
  zp_pin_modes(progress->s->arena, c, &choice);
  try_modes(progress, choice, modes);
}

void zp_open_modes(zp_search_progress *progress, const zp_point *point) {
  zp_choice choice = point->choice;
  progress->expanding_s = point->bound_s;
  if (zp_pinned_modes(progress->in->constraints)) {
    try_pinned_modes(progress, choice);
    return;
  }
  int excluded;
  zp_mode_set modes = zp_allowed_modes(progress->in, choice.tensor, choice.sequence, &excluded);
  for (int i = 0; i < excluded; i++) zp_search_reject(progress, ZP_REJECT_CONSTRAINT);
  if (modes) try_modes(progress, choice, modes);
}

/* ---- rank order, micro-batch, sequence, loss ---- */

static void keep_choice(zp_search_progress *progress, const zp_choice *choice) {
  zp_point point = {.choice = *choice, .next = ZP_REFINE_MODES, .bound_s = progress->expanding_s};
  if (progress->keeps_all)
    zp_open_modes(progress, &point);
  else
    zp_keep_point(progress, &point);
}

/* The loss at once and in chunks of the tokens. */
static void try_losses(zp_search_progress *progress, zp_choice choice) {
  int chunks = zp_next_loss_chunks(progress->s, &choice, 0);
  for (; chunks > 0; chunks = zp_next_loss_chunks(progress->s, &choice, chunks)) {
    choice.loss_chunks = chunks > 1 ? chunks : 0;
    keep_choice(progress, &choice);
  }
}

static void try_sequence(zp_search_progress *progress, zp_choice choice) {
  for (int sequence = 0; sequence <= (choice.tensor > 1); sequence++) {
    if (!zp_search_takes(progress, &progress->in->constraints->sequence, sequence, sequence == 0)) continue;
    choice.sequence = sequence;
    try_losses(progress, choice);
  }
}

static void try_context_by(zp_search_progress *progress, zp_choice choice) {
  for (int by = zp_context_ranks(&choice) > 1 ? ZP_BY_RING : ZP_BY_HEADS; by >= 0; by--) {
    if (!zp_may_exchange(progress->in->spec, &choice, (zp_context_by)by)) continue;
    choice.context_by = (zp_context_by)by;
    try_sequence(progress, choice);
  }
}

static void try_microbatches(zp_search_progress *progress, zp_choice choice) {
  int64_t samples = progress->in->spec->train.batch / zp_replicas(&choice); /* of one replica and step */
  const zp_limit *limit = &progress->in->constraints->microbatch;
  bool any = false;
  for (int64_t b = 1; b <= samples && (limit->set || b <= ZP_MOST_FREE_MICROBATCH); b++) {
    if (samples % b || !zp_limit_allows(limit, (double)b)) continue;
    any = true;
    choice.microbatch = b;
    if (!progress->keeps_all && zp_is_beaten(progress, zp_bound_trip(progress->s, &choice, b))) continue;
    if (zp_may_grow(progress->s, ZP_GROW_MORE, 0))
      try_context_by(progress, choice);
    else
      zp_leave_out(progress, progress->expanding_s);
  }
  if (!any) zp_search_reject(progress, ZP_REJECT_BATCH);
}

static bool same_link(const zp_group_link *a, const zp_group_link *b) {
  return a->nodes == b->nodes && a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s;
}

/* Are groups of so many neighbours among the data ranks elsewhere in the other order? */
static bool neighbours_differ(const zp_machine *m, const zp_choice *c, int ranks) {
  zp_group_link near = zp_machine_expert_group(m, c->tensor, c->pipeline, c->data, ranks, ZP_ORDER_TDP),
                far = zp_machine_expert_group(m, c->tensor, c->pipeline, c->data, ranks, ZP_ORDER_TPD);
  return !same_link(&near, &far);
}

/* Does it matter whether data or pipeline groups are next to each other? With several node types always: it decides
 * which stage stands on which. */
static bool order_matters(const zp_search_cache *s, const zp_choice *c) {
  if (c->pipeline == 1 || c->data == 1) return false;
  if (s->machine.cluster->groups.len > 0) return true;
  const zp_machine *m = &s->machine;
  int t = c->tensor, p = c->pipeline, d = c->data;
  int e = zp_expert_ranks(c), context = zp_context_ranks(c);
  zp_group_link data[] = {zp_machine_data_group(m, t, p, d, ZP_ORDER_TDP),
                          zp_machine_data_group(m, t, p, d, ZP_ORDER_TPD)},
                replicas[] = {zp_machine_replica_group(m, t, p, d, e, ZP_ORDER_TDP),
                              zp_machine_replica_group(m, t, p, d, e, ZP_ORDER_TPD)},
                stages[] = {zp_machine_pipeline_link(m, t, p, d, ZP_ORDER_TDP),
                            zp_machine_pipeline_link(m, t, p, d, ZP_ORDER_TPD)};
  return !same_link(&data[0], &data[1]) || !same_link(&stages[0], &stages[1]) || neighbours_differ(m, c, e) ||
         !same_link(&replicas[0], &replicas[1]) || (context > 1 && neighbours_differ(m, c, context));
}

static void try_orders(zp_search_progress *progress, zp_choice choice) {
  const zp_limit *limit = &progress->in->constraints->rank_order;
  bool one = !order_matters(progress->s, &choice) && zp_limit_allows(limit, ZP_ORDER_TDP);
  for (int order = 0; order < (one ? 1 : ZP_ORDER_COUNT); order++) {
    if (!zp_search_takes(progress, limit, order, true)) continue;
    choice.order = (zp_rank_order)order;
    try_microbatches(progress, choice);
  }
}

void zp_search_expand(zp_search_progress *progress, const zp_degrees *d) {
  zp_search_use(progress->s, d->tensor * d->pipeline * d->data);
  progress->expanding_s = d->bound_s;
  try_orders(
      progress,
      (zp_choice){
          .tensor = d->tensor, .pipeline = d->pipeline, .data = d->data, .expert = d->expert, .context = d->context});
}
