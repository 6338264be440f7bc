/* SPDX-License-Identifier: Apache-2.0 */
/* Degrees: tensor x pipeline x data <= devices, within the constraints; on CPU clusters all ranks are used unless a
 * constraint says otherwise, because those that stay share the cores of those that go. There are many degrees, so each
 * has a bound in O(1) before anything of it is looked into: of the procedures that its tensor groups can run, in all
 * micro-batches that divide its sequences, the least work over its stages. Degrees that no memory could hold are set
 * apart.
 *
 * Counted as one candidate, because rejected as a whole: a tensor degree, the stages that are more than there are
 * units, the data degrees of a tensor and pipeline degree that do not divide the batch. */
#include <assert.h>
#include <math.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "budget.h"
#include "fit.h"
#include "procedures.h"
#include "space.h"

/* ---- what tensor groups can run ---- */

static zp_mode_set modes_of(const zp_search_cache *s, const zp_choice *choice) {
  int excluded;
  zp_mode_set pinned = zp_pinned_modes(s->in->constraints);
  return pinned ? pinned : zp_allowed_modes(s->in, choice->tensor, choice->sequence, &excluded);
}

/* Layers whole and in parts. */
static void list_cuts(zp_search_cache *s, zp_runnable like, zp_runnables *all) {
  const zp_limit *cut = &s->in->constraints->cut;
  bool layers = zp_limit_allows(cut, 0), inside = zp_limit_allows(cut, 1) && (s->in->pieces || !layers);
  if (layers) zp_push(s->arena, &all->of, like);
  like.fine = true;
  if (inside) zp_push(s->arena, &all->of, like);
}

/* With the loss at once and in chunks. In the space of chunks that nobody named, those with the loss at once: they
 * stand for it until degrees are known that may fit (turn_to_chunks). */
static void list_losses(zp_search_cache *s, const zp_choice *choice, zp_runnables *all) {
  zp_runnable like = {.microbatch = choice->microbatch, .context_by = choice->context_by, .sequence = choice->sequence};
  int chunks = s->in_chunks ? 1 : zp_next_loss_chunks(s, choice, 0);
  if (chunks == 0 && s->in->constraints->loss_chunks.set) {
    zp_explain_loss_chunks(s);
    all->why_none = ZP_REJECT_SPLIT;
  }
  for (; chunks > 0; chunks = s->in_chunks ? 0 : zp_next_loss_chunks(s, choice, chunks)) {
    like.loss_chunks = chunks > 1 ? chunks : 0;
    list_cuts(s, like, all);
  }
}

static void list_sequence(zp_search_cache *s, zp_choice choice, zp_runnables *all) {
  const zp_constraints *c = s->in->constraints;
  for (int sequence = 0; sequence <= (choice.tensor > 1); sequence++) {
    if (all->why_none == ZP_REJECT_BATCH) all->why_none = ZP_REJECT_CONSTRAINT;
    if (!zp_search_considers(s->in, &c->sequence, !sequence) || !zp_limit_allows(&c->sequence, sequence)) continue;
    choice.sequence = sequence;
    list_losses(s, &choice, all);
  }
}

/* What tensor groups, and the expert and context groups of the choice, can run. Nothing is measured yet. */
static zp_runnables *list_runnables(zp_search_cache *s, zp_choice choice) {
  const zp_constraints *c = s->in->constraints;
  zp_runnables *all = ZP_NEW(s->arena, zp_runnables);
  all->why_none = ZP_REJECT_BATCH;
  int64_t batch = s->in->spec->train.batch;
  for (int64_t b = 1; b <= batch && (c->microbatch.set || b <= ZP_MOST_FREE_MICROBATCH); b++) {
    if (batch % b || !zp_limit_allows(&c->microbatch, (double)b)) continue;
    choice.microbatch = b;
    for (int by = zp_context_ranks(&choice) > 1 ? ZP_BY_RING : ZP_BY_HEADS; by >= 0;
         by--) { /* why heads cannot be is said last */
      if (!zp_may_exchange(s->in->spec, &choice, (zp_context_by)by)) continue;
      choice.context_by = (zp_context_by)by;
      list_sequence(s, choice, all);
    }
  }
  return all;
}

/* What variants are made for: degrees and rank orders whose expert groups are on equal links ask for the same. On
 * several node types nothing is remembered, because ranks between those of a group count, too. */
static zp_runnables *find_runnables(zp_search_cache *s, const zp_choice *choice) {
  bool exchanges = zp_choice_exchanges(choice);
  if (exchanges && zp_has_types(s)) return list_runnables(s, *choice);
  int index = zp_use_groups(s, choice->tensor);
  zp_known_runnables known = {
      .expert = zp_expert_ranks(choice), .context = zp_context_ranks(choice), .in_chunks = s->in_chunks};
  if (exchanges) known.links = *zp_links_of_exchanges(s, choice);
  for (int i = s->groups.data[index].runnables.len - 1; i >= 0; i--) {
    const zp_known_runnables *k = &s->groups.data[index].runnables.data[i];
    if (k->expert == known.expert && k->context == known.context && k->in_chunks == known.in_chunks &&
        (!exchanges || zp_same_links(&k->links, &known.links)))
      return k->all;
  }
  known.all = list_runnables(s, *choice);
  zp_push(s->arena, &s->groups.data[index].runnables, known);
  return known.all;
}

/* No plan with the loss in chunks is faster than the units without it: chunks change the unit that has the loss alone,
 * and it takes some time. The last segment has the loss. */
static double work_to_count(const zp_search_cache *s, const zp_variant *v) {
  return v->all_s.work - (s->in_chunks ? v->unit_s[v->lowered->pieces->n_whole - 1] : 0);
}

static void note_seconds(const zp_search_cache *s, zp_runnable *one, const zp_variant *v) {
  one->all_s = v->all_s;
  one->longest_s = v->longest_s;
  one->unit_s = v->unit_s;
  one->work_s = work_to_count(s, v);
}

/* Procedures of groups of equal size on other links, if they were measured; at: their place in the list. */
static const zp_runnable *find_elsewhere(const zp_search_cache *s, const zp_choice *smallest, int at) {
  const zp_tensor_groups *groups = &s->groups.data[zp_find_groups(s, smallest->tensor)];
  if (!zp_may_price_again(s) || !zp_choice_exchanges(smallest) || s->in_chunks) return NULL;
  for (int i = 0; i < groups->runnables.len; i++) {
    const zp_known_runnables *k = &groups->runnables.data[i];
    if (k->expert == zp_expert_ranks(smallest) && k->context == zp_context_ranks(smallest) && !k->in_chunks &&
        k->all->of.data[at].measured)
      return &k->all->of.data[at];
  }
  return NULL;
}

/* Variants for most links never run: of those that are lowered for other links only the seconds are kept. */
static void measure_again(zp_search_cache *s, const zp_choice *smallest, const zp_runnable *known, zp_runnable *one) {
  one->variant = known->variant;
  if (known->variant < 0) return;
  zp_variant v;
  int n = one->fine ? 0 : s->variants.data[known->variant].lowered->pieces->n_whole;
  double *unit_s = n ? ZP_NEW_ARRAY(s->arena, double, n) : NULL;
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  zp_price_variant_again(s, smallest, known->variant, &v);
  note_seconds(s, one, &v);
  for (int i = 0; i < n; i++) unit_s[i] = v.unit_s[i];
  one->unit_s = unit_s;
  one->elsewhere = true;
  zp_arena_rewind(s->arena, mark);
}

/* smallest: the degrees that ask for it. Without expert and context groups others of the same tensor groups get the
 * same. */
static void measure(zp_search_cache *s, const zp_choice *smallest, zp_runnables *all, int at) {
  zp_runnable *one = &all->of.data[at];
  const zp_runnable *known = find_elsewhere(s, smallest, at);
  zp_choice choice = {.tensor = smallest->tensor, .pipeline = 1, .data = 1};
  if (zp_choice_exchanges(smallest)) choice = *smallest;
  memset(choice.home, 0, sizeof choice.home);
  choice.zero = 0;
  choice.context_by = one->context_by;
  choice.microbatch = one->microbatch;
  choice.sequence = one->sequence;
  choice.loss_chunks = one->loss_chunks;
  choice.fine = one->fine;
  zp_point point;
  zp_mode_set modes = modes_of(s, &choice);
  one->measured = true;
  one->variant = -1;
  if (known) {
    measure_again(s, smallest, known, one);
  } else if (modes && zp_measure_point(s, &choice, modes, &point)) {
    one->variant = point.variant;
    note_seconds(s, one, zp_variant_of(s, &point));
  }
  if (one->variant < 0 && modes)
    all->why_none = zp_limit_allows(&s->in->constraints->cut, 0) ? ZP_REJECT_SPLIT : ZP_REJECT_CUT;
}

/* ---- bounds ---- */

/* Forward products and attention, and as much again backward, on every rank at its full rate. */
static double flop_of_products(const zp_search_cache *s) {
  return 2.0 / 3 * zp_model_flop_per_sequence(s->in->spec->model) * (double)s->in->spec->train.batch;
}

static double bound_products(const zp_search_cache *s, double flop) {
  const zp_device *device = &s->machine.node->device;
  double efficiency = fmax(1, fmax(device->eff_matmul, device->eff_attention));
  return flop / (efficiency * zp_machine_peak_flop_per_s(&s->machine)) * (1 - ZP_BOUND_SLACK);
}

/* One micro-batch goes all the way up and its gradient back, on the ranks of a tensor and context group: forward, and
 * the part of backward that yields gradients of inputs. Gradients of weights are no more products than forward is, so
 * these two are half of all products at least. With several node types ranks differ, and nothing is said. */
double zp_bound_trip(const zp_search_cache *s, const zp_choice *choice, int64_t microbatch) {
  if (zp_has_types(s)) return 0;
  double group = (double)choice->tensor * zp_context_ranks(choice) / s->machine.devices;
  return bound_products(s, 0.5 * zp_model_flop_per_sequence(s->in->spec->model) * (double)microbatch) / group;
}

/* About what the first stage of 1F1B needs, with as many micro-batches in flight as there are stages. */
static int64_t first_stage_bytes(const zp_search_cache *s, const zp_point *point, int64_t floor_bytes) {
  int64_t stages = point->choice.pipeline, m = zp_microbatches(s->in->spec, &point->choice);
  return floor_bytes + ((m < stages ? m : stages) - 1) * zp_variant_of(s, point)->saved_bytes / stages;
}

/* GPU tensor groups stay inside a node unless their size is pinned. */
static bool is_too_wide(const zp_search_cache *s, int tensor) {
  return !s->machine.node->device.is_cpu && tensor > s->machine.devices_per_node &&
         !zp_limit_is_pin(&s->in->constraints->tensor);
}

/* What degrees have so far: the least bound, and why there is none. */
typedef struct findings {
  bool incomplete;          /* the search came near its memory budget: of some procedures nothing is known */
  double bound_s, cutoff_s; /* cutoff: as zp_search_progress has it */
  zp_rejection why;
  bool short_of_host; /* some would fit with more host memory */
} findings;

/* The procedures with the loss in chunks, in place of those with it at once. False: there are none, or none fits. */
static bool turn_to_chunks(zp_search_cache *s, zp_point *point, findings *found) {
  const zp_variant *v = zp_variant_of(s, point);
  zp_choice choice = point->choice, smallest = point->choice;
  choice.context_by = v->context_by;
  choice.sequence = v->sequence;
  choice.fine = v->fine;
  choice.loss_chunks = zp_next_loss_chunks(s, &choice, 0);
  if (choice.loss_chunks < 2) return false;
  zp_mode_set modes = modes_of(s, &choice);
  zp_rejection why = zp_refuse_in_chunks(s, &choice, modes);
  if (why == ZP_REJECT_NONE && zp_measure_point(s, &choice, modes, point)) {
    point->choice = smallest;
    return true;
  }
  found->why = ZP_REJECT_NONE;
  found->short_of_host |= why == ZP_REJECT_HOST;
  return false;
}

/* The degrees may be had with procedures that can be lowered. What cannot beat the plans that are known, because a
 * stage has the mean of their work, has no other bound. */
static void consider_variant(zp_search_cache *s, zp_degrees *d, zp_point point, const zp_runnable *one,
                             findings *found) {
  double share_s = (double)zp_microbatches(s->in->spec, &point.choice) * one->work_s / d->pipeline,
         bound_s = share_s * (1 - ZP_BOUND_SLACK);
  if (bound_s >= found->cutoff_s) {
    found->why = ZP_REJECT_NONE;
    found->bound_s = fmin(found->bound_s, bound_s);
    return;
  }
  if (s->in_chunks && !turn_to_chunks(s, &point, found)) return;
  found->why = ZP_REJECT_NONE;
  point.work_s = zp_variant_of(s, &point)->all_s.work;
  int64_t bytes = zp_memory_floor(s, &point);
  if (bytes < d->floor_bytes) d->floor_bytes = bytes;
  zp_rejection why = zp_refuse_floor(s, &point);
  found->short_of_host |= why == ZP_REJECT_HOST;
  if (why != ZP_REJECT_NONE) return;
  if (one->elsewhere) {
    zp_variant here = *zp_variant_of(s, &point);
    here.all_s = one->all_s;
    here.longest_s = one->longest_s;
    here.unit_s = one->unit_s;
    found->bound_s = fmin(found->bound_s, zp_bound_work_of(s, &point.choice, &here, one->all_s.work));
  } else {
    found->bound_s = fmin(found->bound_s, zp_bound_work(s, &point));
  }
  d->may_fit |= first_stage_bytes(s, &point, bytes) <= s->most_bytes;
}

/* The degrees may be had with any of these procedures. */
static void consider(zp_search_cache *s, zp_degrees *d, const zp_choice *smallest, zp_runnables *all, findings *found) {
  int64_t samples = s->in->spec->train.batch / zp_replicas(smallest);
  bool divides = all->of.len == 0, lowered = false, layers = zp_limit_allows(&s->in->constraints->cut, 0);
  for (int i = 0; i < all->of.len; i++) {
    zp_runnable *one = &all->of.data[i];
    if (samples % one->microbatch || (one->fine && d->pipeline == 1 && layers)) continue;
    divides = true;
    double trip_s = one->measured ? 0 : zp_bound_trip(s, smallest, one->microbatch);
    if (trip_s >= found->cutoff_s) { /* whatever it runs */
      found->why = ZP_REJECT_NONE;
      found->bound_s = fmin(found->bound_s, trip_s);
      continue;
    }
    if (!one->measured && !zp_may_grow(s, ZP_GROW_MORE, 0)) {
      found->incomplete = true;
      return;
    }
    if (!one->measured) measure(s, smallest, all, i);
    if (one->variant < 0) continue;
    lowered = true;
    if (found->why == ZP_REJECT_BATCH) found->why = ZP_REJECT_UNITS;
    zp_point point = {.choice = *smallest, .variant = one->variant};
    if (d->pipeline > zp_point_units(s, &point)) continue;
    point.choice.microbatch = one->microbatch;
    consider_variant(s, d, point, one, found);
  }
  if (found->why == ZP_REJECT_BATCH && divides && !lowered) found->why = all->why_none;
}

/* Prices of expert groups depend on the rank order, those without do not. */
static void consider_orders(zp_search_cache *s, zp_degrees *d, zp_choice choice, findings *found) {
  bool one = d->pipeline == 1 || (d->expert == 1 && d->context == 1);
  for (int order = 0; order < (one ? 1 : ZP_ORDER_COUNT) && !found->incomplete; order++) {
    choice.order = (zp_rank_order)order;
    consider(s, d, &choice, find_runnables(s, &choice), found);
  }
}

bool zp_measure_degrees(zp_search_progress *progress, zp_degrees *d) {
  assert(d->expert > 0 && d->next == ZP_REFINE_PROCEDURES);
  zp_search_use(progress->s, d->tensor * d->pipeline * d->data);
  zp_choice choice = zp_smallest(
      progress->s,
      &(zp_choice){
          .tensor = d->tensor, .pipeline = d->pipeline, .data = d->data, .expert = d->expert, .context = d->context});
  findings found = {.bound_s = HUGE_VAL, .cutoff_s = progress->cutoff_s, .why = ZP_REJECT_BATCH};
  d->floor_bytes = INT64_MAX;
  consider_orders(progress->s, d, choice, &found);
  if (found.incomplete) {
    zp_leave_out(progress, d->bound_s);
    return false;
  }
  d->next = ZP_REFINE_DEGREES;
  d->bound_s = fmax(d->bound_s, found.bound_s);
  if (isfinite(found.bound_s)) return true;
  if (found.why == ZP_REJECT_NONE) found.why = found.short_of_host ? ZP_REJECT_HOST : ZP_REJECT_MEMORY;
  zp_search_reject(progress, found.why);
  if (found.why == ZP_REJECT_MEMORY) zp_push(progress->s->arena, &progress->too_small, *d);
  return false;
}

/* ---- expert groups ---- */

/* They divide the data ranks and the experts of a tensor rank. Without experts, or where their numbers do not divide,
 * there is one size, unless others are asked for. */
void zp_open_groups(zp_search_progress *progress, const zp_degrees *open) {
  assert(open->expert == 0);
  const zp_limit *limit = &progress->in->constraints->expert;
  int most = progress->s->in_chunks ? 1 : open->data; /* with expert groups the loss is made at once (losses.c) */
  for (int expert = 1; expert <= most; expert++) {
    if (open->data % expert) continue;
    const char *refused = zp_shard_refuse_experts(progress->s->arena, progress->in->spec->model, open->tensor, expert);
    if (refused && !limit->set) continue;
    if (!zp_search_takes(progress, limit, expert, true)) continue;
    if (refused) {
      progress->s->reason = refused;
      zp_search_reject(progress, ZP_REJECT_SPLIT);
      continue;
    }
    zp_degrees fresh = *open;
    fresh.expert = expert;
    fresh.next = ZP_REFINE_PROCEDURES;
    zp_push(progress->s->arena, &progress->degrees, fresh);
  }
}

static void add_degrees(zp_search_progress *progress, zp_degrees d, double flop) {
  zp_search_use(progress->s, d.tensor * d.pipeline * d.data);
  if (is_too_wide(progress->s, d.tensor)) { /* fewer ranks may stand on narrower nodes */
    zp_search_reject(progress, ZP_REJECT_NODE);
    return;
  }
  d.bound_s = bound_products(progress->s, flop);
  bool one_size = !progress->in->constraints->expert.set && !zp_model_has_experts(progress->in->spec->model);
  d.expert = one_size ? 1 : 0;
  d.next = one_size ? ZP_REFINE_PROCEDURES : ZP_REFINE_GROUPS;
  zp_push(progress->s->arena, &progress->degrees, d);
}

/* ---- all ---- */

/* Devices that are in use, or left idle: all degrees that use every device wait one by one, those that leave some as
 * one node, until they are opened. Whatever is not considered is counted when the others are found. */
typedef struct degrees_walk {
  zp_search_progress *progress;
  bool wants_idle, has_idle, considers_idle;
  zp_ints divisors; /* of the batch, up to the devices */
  double flop;      /* of a step's products */
  int most_context; /* where none is named */
} degrees_walk;

static void count(const degrees_walk *w, zp_rejection why) {
  if (!w->wants_idle) zp_search_reject(w->progress, why);
}

/* Are plans that leave devices out in the space? */
static bool considers_idle(const zp_search_cache *s) {
  return zp_search_considers(s->in, &s->in->constraints->idle, false) &&
         !zp_uses_all_devices(s->in->constraints, s->machine.cluster);
}

static void try_data(degrees_walk *w, int tensor, int pipeline, int context) {
  zp_search_progress *progress = w->progress;
  const zp_constraints *c = progress->in->constraints;
  int devices = progress->in->devices, each = tensor * pipeline * context, most = devices / each, divide = 0;
  for (int i = 0; i < w->divisors.len && w->divisors.data[i] <= most; i++) {
    int data = w->divisors.data[i], idle = devices - each * data;
    divide++;
    if (idle > 0 && !w->considers_idle) continue;
    if (!zp_limit_allows(&c->data, data) || !zp_limit_allows(&c->idle, idle))
      count(w, ZP_REJECT_CONSTRAINT);
    else if (idle > 0 && !w->wants_idle)
      w->has_idle = true;
    else if ((idle > 0) == w->wants_idle)
      add_degrees(progress,
                  (zp_degrees){.tensor = tensor, .pipeline = pipeline, .data = data * context, .context = context},
                  w->flop);
  }
  bool some_do_not_divide =
      w->considers_idle ? divide < most : devices % each == 0 && w->divisors.data[divide - 1] < most;
  if (some_do_not_divide) count(w, ZP_REJECT_BATCH);
}

/* Positions are divided where the plan block says so, and of long samples (contexts.c). */
static void try_contexts(degrees_walk *w, int tensor, int pipeline) {
  const zp_limit *limit = &w->progress->in->constraints->context;
  int devices = w->progress->in->devices / tensor / pipeline, most = limit->set ? devices : w->most_context;
  bool any = false;
  for (int context = 1; context <= most && context <= devices; context += limit->set ? 1 : context) {
    if (limit->set && !zp_limit_allows(limit, context)) continue;
    any = true;
    try_data(w, tensor, pipeline, context);
  }
  if (!any) count(w, ZP_REJECT_CONSTRAINT);
}

static void try_pipelines(degrees_walk *w, int tensor) {
  const zp_search_progress *progress = w->progress;
  int64_t most = progress->in->devices / tensor;
  for (int pipeline = 1; pipeline <= most && pipeline <= progress->in->most_units; pipeline++) {
    if (zp_limit_allows(&progress->in->constraints->pipeline, pipeline))
      try_contexts(w, tensor, pipeline);
    else
      count(w, ZP_REJECT_CONSTRAINT);
  }
  if (most > progress->in->most_units) count(w, ZP_REJECT_UNITS);
}

static void try_all(degrees_walk *w) {
  zp_search_progress *progress = w->progress;
  const zp_limit *limit = &progress->in->constraints->tensor;
  for (int tensor = 1; tensor <= progress->in->devices; tensor++) {
    zp_search_use(progress->s, progress->in->devices); /* the widest nodes */
    if (!zp_limit_allows(limit, tensor))
      count(w, ZP_REJECT_CONSTRAINT);
    else if (is_too_wide(progress->s, tensor))
      count(w, ZP_REJECT_NODE);
    else
      try_pipelines(w, tensor);
  }
}

static degrees_walk walk_of(zp_search_progress *progress, bool idle) {
  int64_t batch = progress->in->spec->train.batch;
  zp_ints divisors = {0};
  for (int data = 1; data <= progress->in->devices && data <= batch; data++)
    if (batch % data == 0) zp_push(progress->s->arena, &divisors, data);
  return (degrees_walk){.progress = progress,
                        .wants_idle = idle,
                        .considers_idle = considers_idle(progress->s),
                        .divisors = divisors,
                        .flop = flop_of_products(progress->s),
                        .most_context = zp_most_free_context(progress->in->spec, progress->in->devices)};
}

void zp_search_degrees(zp_search_progress *progress) {
  degrees_walk walk = walk_of(progress, false);
  try_all(&walk);
  if (!walk.has_idle) return;
  zp_search_use(progress->s, progress->in->devices); /* fewer are no faster */
  zp_push(progress->s->arena, &progress->degrees,
          ((zp_degrees){.bound_s = bound_products(progress->s, walk.flop), .next = ZP_REFINE_IDLE}));
}

void zp_open_idle(zp_search_progress *progress) {
  degrees_walk walk = walk_of(progress, true);
  try_all(&walk);
}
