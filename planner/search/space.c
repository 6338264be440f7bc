/* The space of some degrees (degrees.c): expert groups, rank order, ZeRO, micro-batch, schedule, chunks, sequence,
 * recomputation, homes, compression; inside the plan block's constraints. Subspaces whose bound says that they cannot
 * beat the plans that are known by then are left out on the way.
 *
 * Bounded so: without a constraint on it, micro-batches go up to 64 sequences; saved inputs are split over the tensor
 * ranks only with full recomputation; a GPU tensor group stays inside a node unless its size is pinned; ZeRO with one
 * data rank and any schedule with one stage is ZeRO 0 and 1F1B where these are allowed; expert groups divide the data
 * ranks and the experts of a tensor rank; interleaving has 2 to 8 chunks a stage; the second rank order is looked at
 * where it changes a link. On CPU clusters, what no trainer is generated for, and schedules other than 1F1B, are looked
 * at only where a constraint names them. A subtree that is rejected as a whole counts as one candidate. */
#include <assert.h>
#include <math.h>
#include <zplan/abilities.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "budget.h"
#include "cut.h"
#include "fit.h"
#include "procedures.h"
#include "space.h"

void zp_search_reject(zp_searcher *s, zp_rejection why) {
  s->certificate.candidates++;
  s->certificate.rejected[why]++;
}

bool zp_limit_is_pin(const zp_limit *limit) {
  return limit->set && (limit->in.len == 1 || (limit->in.len == 0 && limit->low == limit->high));
}

bool zp_search_considers(const zp_searcher *s, const zp_limit *limit, bool plain) {
  return plain || limit->set || !(s->generated_only || s->machine.node->device.is_cpu);
}

/* Is the value in the space? `plain`: on CPU clusters, too, where no constraint names it. Values that a constraint
 * excludes are counted. */
static bool takes(zp_searcher *s, const zp_limit *limit, int value, bool plain) {
  if (!zp_search_considers(s, limit, plain)) return false;
  if (zp_limit_allows(limit, value)) return true;
  zp_search_reject(s, ZP_REJECT_CONSTRAINT);
  return false;
}

bool zp_is_beaten(zp_searcher *s, double bound_s) {
  if (bound_s < s->cutoff_s) return false;
  s->left_out_s = fmin(s->left_out_s, bound_s);
  zp_search_reject(s, ZP_REJECT_BOUND);
  return true;
}

/* ---- the innermost decisions ---- */

/* A choice of degrees, micro-batch and sequence, and its points in the modes that its stages may have. */
typedef struct base {
  zp_choice choice;
  zp_mode_points points;
} base;

static void try_choice(zp_searcher *s, const base *b, zp_choice choice) {
  const char *why;
  if (zp_choice_refusal(&choice, s->spec)) {
    zp_search_reject(s, ZP_REJECT_SCHEDULE);
  } else if ((why = zp_trainer_refusal(s->trainer, &s->spec->train, &choice))) {
    s->reason = why;
    zp_search_reject(s, ZP_REJECT_GENERATED);
  } else {
    zp_try_homes(s, &choice, &b->points);
  }
}

static void try_zero(zp_searcher *s, const base *b, zp_choice choice) {
  const zp_constraints *c = s->constraints;
  bool one = choice.data == 1 && zp_limit_allows(&c->zero, 0); /* one rank: all stages are the same */
  for (int zero = 0; zero <= (one ? 0 : 3); zero++) {
    if (!takes(s, &c->zero, zero, zero <= 1)) continue;
    choice.zero = zero;
    for (int compress = 0; compress <= 1; compress++) {
      if (compress && (!c->compress.set || choice.data == 1 || zero > 0)) continue;
      if (!takes(s, &c->compress, compress, compress == 0)) continue;
      choice.compress = compress;
      try_choice(s, b, choice);
    }
  }
}

/* Whatever the ZeRO stage and the homes: the layers have no room, or the work that memory forces on the stages takes
 * too long. Not when the nearest miss is looked for. */
static bool is_hopeless(zp_searcher *s, const base *b, const zp_choice *choice) {
  zp_choice smallest = zp_smallest(s, choice);
  if (s->keeps_all) return false;
  zp_point point = zp_with_choice(s, &b->points.all, &smallest);
  bool beaten = zp_is_beaten(s, zp_bound_microbatches(s, &point));
  if (!beaten && !zp_find_least_work(s, &point, ZP_ASK_WORK)) {
    zp_search_reject(s, ZP_REJECT_MEMORY);
    return true;
  }
  beaten = beaten || zp_is_beaten(s, zp_bound_microbatches(s, &point));
  if (beaten) zp_note_unsearched(s, &point, ZP_UNSEARCHED_CHOICE);
  return beaten;
}

static void try_chunks(zp_searcher *s, const base *b, zp_choice choice) {
  int low = choice.schedule == ZP_SCHEDULE_INTERLEAVED || choice.schedule == ZP_SCHEDULE_ZB_V ? 2 : 1;
  int high = choice.schedule == ZP_SCHEDULE_INTERLEAVED ? ZP_MOST_CHUNKS : low;
  for (int chunks = low; chunks <= high; chunks++) {
    choice.chunks = chunks == 1 ? 0 : chunks;
    if ((int64_t)choice.pipeline * chunks > (choice.fine ? s->most_units : s->n_units))
      zp_search_reject(s, ZP_REJECT_UNITS);
    else if (!zp_limit_allows(&s->constraints->chunks, chunks))
      zp_search_reject(s, ZP_REJECT_CONSTRAINT);
    else if (!is_hopeless(s, b, &choice))
      try_zero(s, b, choice);
  }
}

static void try_schedules(zp_searcher *s, const base *b) {
  const zp_constraints *c = s->constraints;
  bool one = b->choice.pipeline == 1 && zp_limit_allows(&c->schedule, ZP_SCHEDULE_1F1B);
  for (int schedule = 0; schedule < (one ? 1 : ZP_SCHEDULE_COUNT); schedule++) {
    zp_choice choice = b->choice;
    choice.schedule = (zp_schedule)schedule;
    if (takes(s, &c->schedule, schedule, schedule == ZP_SCHEDULE_1F1B)) try_chunks(s, b, choice);
  }
}

/* ---- procedures ---- */

/* Is a stage that much longer than the mean wherever layers are left whole? Then cuts inside them are looked at. In the
 * fastest of the modes, whatever the memory. */
static bool is_unbalanced(const zp_searcher *s, const zp_point *point) {
  int stages = point->choice.pipeline;
  int64_t units = zp_point_units(s, point);
  double mean_s = s->variants.data[point->modes[0]].prefix_s[units] / stages;
  return stages > units || !zp_cut_is_possible(s, point, ZP_UNBALANCED * mean_s);
}

/* The subspaces of a choice of degrees, micro-batch and sequence, and its point: unless none of them can be the answer.
 */
static void try_base(zp_searcher *s, const zp_choice *choice, const zp_point *point) {
  zp_point smallest = *point;
  smallest.choice = zp_smallest(s, choice);
  if (zp_is_beaten(s, zp_bound_work(s, point))) return;
  if (!s->keeps_all && zp_memory_floor(s, &smallest) > s->most_bytes) {
    zp_search_reject(s, ZP_REJECT_MEMORY);
  } else {
    base b = {*choice, zp_find_modes(s, point)};
    try_schedules(s, &b);
  }
}

/* Only modes that can be lowered are left. */
static void try_modes(zp_searcher *s, zp_choice choice, zp_mode_set modes) {
  const zp_limit *cut = &s->constraints->cut;
  bool layers = zp_limit_allows(cut, 0);
  zp_point point;
  if (!zp_search_point(s, &choice, modes, &point)) {
    zp_search_reject(s, ZP_REJECT_SPLIT);
    return;
  }
  modes = zp_variant_of(s, &point)->modes;
  if (layers) try_base(s, &choice, &point);
  if (choice.pipeline == 1 || !zp_limit_allows(cut, 1)) return;
  if (layers && (zp_has_types(s) || !is_unbalanced(s, &point))) return; /* on several node types there is no mean */
  choice.fine = true;
  if (zp_search_point(s, &choice, modes, &point))
    try_base(s, &choice, &point);
  else if (!layers)
    zp_search_reject(s, ZP_REJECT_CUT);
}

/* The modes that the plan block pins; split inputs need tensor ranks to split over. */
static void try_pinned_modes(zp_searcher *s, zp_choice choice) {
  const zp_constraints *c = s->constraints;
  bool possible = choice.pipeline == c->stage_recompute.len;
  zp_mode_set modes = 0;
  for (int i = 0; i < c->stage_recompute.len; i++) {
    modes |= zp_set_of_mode(c->stage_recompute.data[i]);
    if (choice.tensor == 1 && zp_stage_mode_split(c->stage_recompute.data[i])) possible = false;
  }
  if (!possible) {
    zp_search_reject(s, ZP_REJECT_CONSTRAINT);
    return;
  }
  zp_choice_set_modes(&choice, c->stage_recompute.data);
  try_modes(s, choice, modes);
}

zp_mode_set zp_allowed_modes(const zp_searcher *s, int tensor, bool sequence, int *excluded) {
  const zp_constraints *c = s->constraints;
  zp_mode_set modes = 0;
  *excluded = 0;
  for (int recompute = ZP_RECOMPUTE_NONE; recompute <= ZP_RECOMPUTE_SELECTIVE; recompute++)
    for (int shard = 0; shard <= 1; shard++) {
      if (shard && (recompute != ZP_RECOMPUTE_FULL || tensor == 1 || sequence)) continue;
      if (!zp_limit_allows(&c->recompute, recompute) || !zp_limit_allows(&c->recompute_shard, shard))
        ++*excluded;
      else
        modes |= zp_set_of_mode(zp_stage_mode_of((zp_recompute)recompute, shard));
    }
  return modes;
}

static void try_recompute(zp_searcher *s, zp_choice choice) {
  if (s->constraints->stage_recompute.len) {
    try_pinned_modes(s, choice);
    return;
  }
  int excluded;
  zp_mode_set modes = zp_allowed_modes(s, choice.tensor, choice.sequence, &excluded);
  for (int i = 0; i < excluded; i++) zp_search_reject(s, ZP_REJECT_CONSTRAINT);
  if (modes) try_modes(s, choice, modes);
}

static void try_sequence(zp_searcher *s, zp_choice choice) {
  for (int sequence = 0; sequence <= (choice.tensor > 1); sequence++) {
    if (!takes(s, &s->constraints->sequence, sequence, sequence == 0)) continue;
    choice.sequence = sequence;
    try_recompute(s, choice);
  }
}

static void try_microbatches(zp_searcher *s, zp_choice choice) {
  int64_t samples = s->spec->train.batch / choice.data; /* of one replica and step */
  const zp_limit *limit = &s->constraints->microbatch;
  bool any = false;
  for (int64_t b = 1; b <= samples && (limit->set || b <= ZP_MOST_FREE_MICROBATCH); b++) {
    if (samples % b || !zp_limit_allows(limit, (double)b)) continue;
    any = true;
    choice.microbatch = b;
    if (zp_may_grow(s, ZP_GROW_MORE, 0))
      try_sequence(s, choice);
    else
      zp_leave_out(s, s->expanding_s);
  }
  if (!any) zp_search_reject(s, ZP_REJECT_BATCH);
}

static bool same_link(const zp_group_link *a, const zp_group_link *b) {
  return a->nodes == b->nodes && a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s;
}

/* Does it matter whether data or pipeline groups are next to each other? With several node types always: it decides
 * which stage stands on which. */
static bool order_matters(const zp_searcher *s, const zp_choice *c) {
  if (c->pipeline == 1 || c->data == 1) return false;
  if (s->machine.cluster->groups.len > 0) return true;
  const zp_machine *m = &s->machine;
  int t = c->tensor, p = c->pipeline, d = c->data;
  int e = zp_expert_ranks(c);
  zp_group_link data[] = {zp_machine_data_group(m, t, p, d, ZP_ORDER_TDP),
                          zp_machine_data_group(m, t, p, d, ZP_ORDER_TPD)},
                experts[] = {zp_machine_expert_group(m, t, p, d, e, ZP_ORDER_TDP),
                             zp_machine_expert_group(m, t, p, d, e, ZP_ORDER_TPD)},
                replicas[] = {zp_machine_replica_group(m, t, p, d, e, ZP_ORDER_TDP),
                              zp_machine_replica_group(m, t, p, d, e, ZP_ORDER_TPD)},
                stages[] = {zp_machine_pipeline_link(m, t, p, d, ZP_ORDER_TDP),
                            zp_machine_pipeline_link(m, t, p, d, ZP_ORDER_TPD)};
  return !same_link(&data[0], &data[1]) || !same_link(&stages[0], &stages[1]) || !same_link(&experts[0], &experts[1]) ||
         !same_link(&replicas[0], &replicas[1]);
}

static void try_orders(zp_searcher *s, zp_choice choice) {
  const zp_limit *limit = &s->constraints->rank_order;
  bool one = !order_matters(s, &choice) && zp_limit_allows(limit, ZP_ORDER_TDP);
  for (int order = 0; order < (one ? 1 : ZP_ORDER_COUNT); order++) {
    if (!takes(s, limit, order, true)) continue;
    choice.order = (zp_rank_order)order;
    try_microbatches(s, choice);
  }
}

/* Without experts, or where their numbers do not divide, there is one value, unless others are asked for. */
static void try_experts(zp_searcher *s, zp_choice choice) {
  const zp_limit *limit = &s->constraints->expert;
  for (int expert = 1; expert <= choice.data; expert++) {
    if (choice.data % expert) continue;
    const char *refused = zp_shard_refuse_experts(s->arena, s->spec->model, choice.tensor, expert);
    if (refused && !limit->set) continue;
    if (!takes(s, limit, expert, true)) continue;
    choice.expert = expert;
    if (!refused) {
      try_orders(s, choice);
    } else {
      s->reason = refused;
      zp_search_reject(s, ZP_REJECT_SPLIT);
    }
  }
}

void zp_search_expand(zp_searcher *s, const zp_degrees *d) {
  zp_search_use(s, d->tensor * d->pipeline * d->data);
  s->expanding_s = d->bound_s;
  try_experts(s, (zp_choice){.tensor = d->tensor, .pipeline = d->pipeline, .data = d->data});
}
