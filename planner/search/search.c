/* SPDX-License-Identifier: Apache-2.0 */
/* zp_search: starts a run, refines all of the space (refine.c), and certifies the best plan. No plan is dropped unless
 * it violates a rule, does not fit, or its proven lower bound exceeds the best one. What is left open is the gap
 * between the best plan and the smallest bound. */
#include <assert.h>
#include <math.h>
#include <zplan/buf.h>
#include "fit.h"
#include "node_orders.h"
#include "refine.h"
#include "procedures.h"
#include "robust.h"
#include "space.h"

/* The winner is derived once more in the plan's own arena; the search's memory goes. */
void zp_plan_adopt(zp_plan *plan, const zp_choice *winner) {
  const char *reason = NULL;
  zp_choice c = zp_choice_copy(plan->arena, winner);
  plan->machine = zp_machine_make(&plan->spec->cluster, plan->spec->train.precision, zp_choice_ranks(&c));
  zp_sharding *sharding = zp_shard_choice(plan->arena, plan->spec->model, &plan->machine, &c, &reason);
  zp_lowered **lowered = zp_lower_stages(plan->arena, plan->spec, sharding, &c, &reason);
  plan->feasible = true;
  plan->program = zp_program_make_priced(plan->arena, zp_price_stages(lowered, &plan->machine, &c), &c);
  plan->best = (zp_candidate){c, zp_simulate(plan->arena, plan->program, &plan->machine)};
}

/* An alternative with all of its estimate; its program goes again. */
static zp_candidate explain(const zp_plan *plan, zp_search_cache *s, const zp_choice *choice) {
  zp_candidate c = {.choice = zp_choice_copy(plan->arena, choice)};
  zp_search_use(s, zp_choice_ranks(choice));
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  c.estimate = zp_simulate(s->arena, zp_search_program(s->arena, s, choice), &s->machine);
  c.estimate.stage_forward_s = c.estimate.stage_backward_s = NULL;
  zp_arena_rewind(s->arena, mark);
  return c;
}

static const char *explain_empty(zp_arena *arena, const zp_search_progress *progress, const char *reason) {
  static const zp_rejection order[] = {ZP_REJECT_CUT,   ZP_REJECT_GENERATED, ZP_REJECT_HOST,
                                       ZP_REJECT_SPLIT, ZP_REJECT_SCHEDULE,  ZP_REJECT_UNITS,
                                       ZP_REJECT_BATCH, ZP_REJECT_NODE,      ZP_REJECT_CONSTRAINT};
  const int64_t *rejected = progress->certificate.rejected;
  if (rejected[ZP_REJECT_CUT]) reason = progress->s->cut_reason;
  if ((rejected[ZP_REJECT_SPLIT] || rejected[ZP_REJECT_GENERATED] || rejected[ZP_REJECT_CUT]) && reason)
    return zp_strdup(arena, reason);
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    if (rejected[order[i]])
      return zp_format(arena, "none of the %lld candidates is legal; one reason: %s",
                       (long long)progress->certificate.candidates, zp_rejection_text(order[i]));
  return "there is nothing to choose from";
}

/* A bound that is as close to the best plan as can be told, or as was asked for, is rounded to that. */
static double rounded_bound(double bound_s, double best_s, double closer) {
  double wanted = best_s / closer;
  if (bound_s > best_s * (1 - ZP_GAP_TOLERANCE)) return best_s;
  return bound_s > wanted * (1 - ZP_GAP_TOLERANCE) ? fmax(bound_s, wanted) : bound_s;
}

static void fill_certificate(zp_certificate *c, const zp_search_progress *progress) {
  *c = progress->certificate;
  c->cut_nodes = progress->effort.cuts.nodes;
  c->cut_work = progress->effort.given - progress->effort.cuts.work_left - progress->effort.chunk_work_left -
                progress->effort.label_work_left - progress->effort.least_work_left;
  c->laid_out = progress->s->memo.fits.laid_out;
  c->work = progress->s->work + c->cut_work / ZP_ACTIONS_A_UNIT;
  c->short_of_memory = progress->s->short_of_memory;
  c->short_of_work = progress->s->short_of_work;
  c->interrupted = progress->s->interrupted;
  c->memory_bytes = (int64_t)progress->budget.limit_bytes;
  c->held_bytes = (int64_t)progress->budget.peak_bytes;
  memcpy(c->cut_pruned, progress->effort.cuts.pruned, sizeof progress->effort.cuts.pruned);
}

/* Without a plan: why there is none. */
static void explain_none(zp_plan *plan, zp_search_progress *progress) {
  const int64_t *rejected = progress->certificate.rejected;
  if (rejected[ZP_REJECT_BUDGET]) {
    const zp_certificate *c = &plan->certificate;
    plan->stopped = true;
    plan->why_not = c->interrupted ? "the search was interrupted before it found a plan"
                    : c->short_of_memory
                        ? zp_format(plan->arena, "the search reached its memory budget of %s before it found a plan",
                                    zp_show_bytes(plan->arena, c->memory_bytes))
                        : "the search did all the work that a query may take before it found a plan";
    return;
  }
  if (progress->in->wants_miss && rejected[ZP_REJECT_HOST] == 0) { /* else the devices are not short */
    progress->s->most_work = progress->s->work + ZP_MOST_MISS_WORK;
    zp_note_misses(progress);
    plan->certificate.work = progress->s->work + plan->certificate.cut_work / ZP_ACTIONS_A_UNIT;
  }
  if (progress->miss.need_bytes > progress->miss.have_bytes) {
    plan->miss = progress->miss;
    plan->miss.choice = zp_choice_copy(plan->arena, &progress->miss.choice);
  } else {
    plan->why_not = explain_empty(plan->arena, progress, progress->s->reason);
  }
}

/* Were the decisions of the best plan the only ones left open, with all of the work for their cuts? */
static bool is_proven_alone(const zp_search_progress *progress, const zp_choice *best) {
  double decisions[ZP_DECISIONS];
  const zp_proven *proven = &progress->proven;
  zp_decisions_of(best, decisions);
  return proven->any && memcmp(proven->decisions, decisions, sizeof decisions) == 0 && !progress->s->short_of_memory &&
         !progress->s->short_of_work;
}

static void fill_plan(zp_plan *plan, zp_search_progress *progress, const zp_ranking *r) {
  fill_certificate(&plan->certificate, progress);
  if (r->len == 0) {
    explain_none(plan, progress);
    return;
  }
  zp_plan_adopt(plan, &r->best[0].choice);
  plan->proven_alone = is_proven_alone(progress, &plan->best.choice);
  zp_certificate *c = &plan->certificate;
  c->best_s = plan->best.estimate.step_s;
  c->searched_s = rounded_bound(c->searched_s, c->best_s, r->closer);
  c->bound_s = rounded_bound(fmin(c->searched_s, progress->unsearched_s), c->best_s, r->closer);
  plan->exact_alternatives = r->exact;
  for (int i = 1; i < r->len && r->best[i].estimate.step_s <= r->range * r->best[0].estimate.step_s; i++)
    zp_push(plan->arena, &plan->alternatives, explain(plan, progress->s, &r->best[i].choice));
}

/* A plan from elsewhere takes part in the ranking, as one of no degrees. */
static void enter_rival(zp_ranking *r, double rival_s) {
  r->best[0] = (zp_candidate){.estimate.step_s = rival_s};
  r->len = r->cap = 1;
  r->range = 1;
}

static bool rival_wins(const zp_ranking *r) { return r->len > 0 && r->best[0].choice.tensor == 0; }

/* Nothing is faster than the plan from elsewhere. */
static void fill_beaten(zp_plan *plan, const zp_search_progress *progress, const zp_ranking *r) {
  fill_certificate(&plan->certificate, progress);
  zp_certificate *c = &plan->certificate;
  c->best_s = r->best[0].estimate.step_s;
  c->searched_s = rounded_bound(c->searched_s, c->best_s, r->closer);
  c->bound_s = rounded_bound(fmin(c->searched_s, progress->unsearched_s), c->best_s, r->closer);
  plan->why_not = "no plan is faster than the one from elsewhere";
}

/* ---- plans with the loss in chunks ---- */

static void add_counts(zp_certificate *to, const zp_certificate *from) {
  to->candidates += from->candidates;
  to->priced += from->priced;
  to->simulated += from->simulated;
  to->stated_cuts += from->stated_cuts;
  for (int i = 0; i < ZP_REJECT_COUNT; i++) to->rejected[i] += from->rejected[i];
}

/* The degrees wait once more. */
static void begin_chunks(zp_search_progress *progress) {
  progress->s->in_chunks = true;
  progress->s->reason = NULL;
  progress->certificate = (zp_certificate){0};
  progress->degrees.len = progress->too_small.len = 0;
  zp_forget_points(progress);
  zp_search_degrees(progress);
}

/* A plan whose loss is made in chunks is never faster than the same plan without: what it saves is memory, and what
 * that allows may be faster. So these plans are a space of their own, considered when the best of all others is known;
 * bounds leave nearly all of it out then. What bounds the rest bounds both spaces. */
static void search_chunks(zp_search_progress *progress, zp_ranking *r) {
  const zp_certificate whole = progress->certificate;
  const zp_degrees_list degrees = progress->degrees, too_small = progress->too_small;
  const char *reason = progress->s->reason;
  bool any = r->len > 0;
  if (!progress->in->chunks_loss) return;
  progress->degrees = progress->too_small = (zp_degrees_list){0};
  if (any && !r->exact) r->behind = ZP_MOST_BEHIND; /* alternatives are known */
  begin_chunks(progress);
  zp_refine_all(progress, r);
  zp_certificate chunks = progress->certificate;
  progress->certificate = whole;
  progress->certificate.searched_s = any ? fmin(whole.searched_s, chunks.searched_s) : chunks.searched_s;
  progress->certificate.in_chunks = chunks.candidates;
  if (r->len && zp_loss_chunks(&r->best[0].choice) > 1) add_counts(&progress->certificate, &chunks);
  if (r->len) return;
  progress->s->in_chunks = false; /* the nearest miss, and why there is no plan: of the others */
  progress->s->reason = reason;
  progress->degrees = degrees;
  progress->too_small = too_small;
}

static bool some_schedule_splits(const zp_search_input *in) {
  const zp_limit *limit = &in->constraints->schedule;
  for (int i = 0; i < ZP_SCHEDULE_COUNT; i++)
    if (zp_schedule_splits((zp_schedule)i) && zp_limit_allows(limit, i) && zp_search_considers(in, limit, false))
      return true;
  return false;
}

/* Units of the first `layers` layers, and of the segments before and between them that are no layers. */
static int64_t units_before(const zp_model *model, int64_t layers) {
  int64_t units = 0;
  for (int i = 0; i < model->segments.len; i++) {
    const zp_segment *segment = &model->segments.data[i];
    if (segment->is_repeat && segment->count >= layers) return units + layers;
    units += segment->count;
    layers -= segment->is_repeat ? segment->count : 0;
  }
  return units;
}

/* The pin in units. Sema has checked that every chunk has some. */
static const int64_t *pinned_cut(zp_arena *arena, const zp_spec *spec, int64_t n_units) {
  const zp_constraints *c = &spec->plans.data[spec->plan];
  int chunks = c->cut_layers.len;
  if (chunks == 0) return NULL;
  int64_t *cut = ZP_NEW_ARRAY(arena, int64_t, chunks + 1), layers = 0;
  for (int i = 0; i < chunks; i++) {
    layers += c->cut_layers.data[i];
    cut[i + 1] = i + 1 == chunks ? n_units : units_before(spec->model, layers);
    assert(cut[i] < cut[i + 1]);
  }
  return cut;
}

/* Chunks of a stage: as many as the program's recipes have, or as the plan block names. */
static int most_chunks(const zp_spec *spec, const zp_constraints *c) {
  enum { SEARCHED = 8 };
  const zp_software *software = spec->cluster.software;
  double most = software && software->most_chunks ? software->most_chunks : SEARCHED;
  if (c->chunks.set && (isfinite(c->chunks.high) || c->chunks.low > most)) most = fmax(most, c->chunks.high);
  return (int)fmin(most, ZP_MOST_CHUNKS);
}

static const zp_search_input *make_input(zp_arena *arena, const zp_spec *spec, const zp_machine *machine,
                                         const zp_search_options *options) {
  zp_search_input *in = ZP_NEW(arena, zp_search_input);
  in->spec = spec;
  in->constraints = &spec->plans.data[spec->plan];
  in->devices = machine->devices;
  in->generated_only = options && options->generated_only;
  in->plain_only = in->generated_only || machine->node->device.is_cpu;
  in->floor = zp_software_floor_of(spec->cluster.software);
  in->trainer = in->generated_only ? ZP_TRAINER_ZPLAN : spec->cluster.trainer;
  in->wants_miss = !(options && options->no_miss);
  in->without = options ? options->without : 0;
  for (int i = 0; i < spec->model->segments.len; i++) in->n_units += spec->model->segments.data[i].count;
  in->most_chunks = most_chunks(spec, in->constraints);
  in->pinned_cut = pinned_cut(arena, spec, in->n_units);
  if (!in->pinned_cut && zp_limit_allows(&in->constraints->cut, 1)) in->pieces = zp_pieces_divided(arena, spec->model);
  in->splits = some_schedule_splits(in);
  bool own = in->trainer == ZP_TRAINER_NONE || in->trainer == ZP_TRAINER_ZPLAN;
  /* How much the update of whole matrices needs depends on how many equal layers there are in a row. */
  in->mixes = own && zp_optimizer_facts(&spec->train)->needs != ZP_NEEDS_MATRICES;
  in->most_units = in->pieces ? in->pieces->n_units : in->n_units;
  in->chunks_loss =
      in->trainer == ZP_TRAINER_ZPLAN && !in->constraints->loss_chunks.set && zp_has_product_loss(spec->model);
  for (int i = 0; i < ZP_STATE_COUNT; i++) in->may_leave[i] = zp_limit_leaves_device(&in->constraints->offload[i]);
  return in;
}

static void start_cache(zp_search_cache *s, const zp_search_input *in, const zp_machine *machine) {
  s->in = in;
  s->kept = zp_arena_new_alongside("search.kept", s->arena);
  s->steps = zp_arena_new_alongside("search.steps", s->arena);
  s->memo.orders.arena = zp_arena_new_alongside("search.orders", s->arena);
  s->memo.orders.none = zp_arena_get_mark(s->memo.orders.arena);
  s->machine = *machine;
  if (zp_has_types(s)) s->machine.spans = ZP_NEW(s->arena, zp_span_memo);
  zp_use_limits(s);
  int64_t most_stages = zp_most_stages(in);
  s->memo.stage_nodes.types = ZP_NEW_ARRAY(s->arena, zp_node_set, most_stages);
  s->memo.stage_nodes.sets = ZP_NEW_ARRAY(s->arena, zp_node_set, most_stages);
  s->memo.stage_nodes.limits = ZP_NEW_ARRAY(s->arena, zp_limits, most_stages);
}

static int64_t at_most(int64_t work, int64_t limit) { return work < limit ? work : limit; }

/* units: 0: as much as a query may take. */
static void give_work(zp_search_progress *progress, int64_t units) {
  zp_effort *e = &progress->effort;
  int64_t actions = units ? units * ZP_ACTIONS_A_UNIT : INT64_MAX;
  progress->s->most_work = units ? units : ZP_MOST_SEARCH_WORK;
  e->cuts.work_left = at_most(ZP_MOST_WORK, actions);
  e->chunk_work_left = at_most(ZP_MOST_CHUNK_WORK, actions);
  e->label_work_left = at_most(ZP_MOST_LABEL_WORK, actions);
  e->least_work_left = at_most(ZP_MOST_LEAST_WORK, actions);
  e->given = e->cuts.work_left + e->chunk_work_left + e->label_work_left + e->least_work_left;
}

void zp_search_start(zp_search_progress *progress, const zp_spec *spec, const zp_machine *machine,
                     const zp_search_options *options) {
  assert(!progress->s && "a run starts once");
  const zp_constraints *c = &spec->plans.data[spec->plan];
  zp_arena *arena = zp_arena_new_within("search", &progress->budget);
  progress->budget.limit_bytes = (size_t)(c->search_memory ? c->search_memory : ZP_SEARCH_MEMORY);
  progress->in = make_input(arena, spec, machine, options);
  progress->s = ZP_NEW(arena, zp_search_cache);
  progress->s->budget = &progress->budget;
  progress->s->arena = arena;
  start_cache(progress->s, progress->in, machine);
  progress->cutoff_s = progress->left_out_s = progress->unsearched_s = HUGE_VAL;
  give_work(progress, options ? options->work : 0);
}

void zp_search_end(zp_search_progress *progress) {
  if (!progress->s) return;
  zp_arena *arena = progress->s->arena; /* the cache lies in it */
  zp_arena_free(progress->s->kept);
  zp_arena_free(progress->s->steps);
  zp_arena_free(progress->s->memo.orders.arena);
  zp_arena_free(arena);
  progress->s = NULL;
}

zp_plan *zp_search_placed(zp_arena *arena, const zp_spec *spec, int devices, const zp_search_options *options) {
  assert(spec->plan >= 0 && spec->plan < spec->plans.len);
  assert(devices >= 1 && devices <= ZP_MOST_RANKS);
  assert(!options || (options->top >= 0 && options->gap >= 0 && options->work >= 0 && options->rival_s >= 0));
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  plan->arena = arena;
  plan->spec = spec;
  plan->devices = devices;
  plan->machine = zp_machine_make(&spec->cluster, spec->train.precision, devices);
  zp_search_progress progress = {0};
  bool many = options && options->top > 0;
  zp_search_start(&progress, spec, &plan->machine, options);
  zp_search_degrees(&progress);
  zp_ranking r = {.cap = 1 + (many ? options->top : ZP_DEFAULT_TOP),
                  .range = many ? HUGE_VAL : ZP_ALTERNATIVES_RANGE,
                  .exact = many,
                  .closer = 1 + (options && options->gap > 0 ? options->gap : progress.in->constraints->search_gap)};
  r.best = ZP_NEW_ARRAY(progress.s->arena, zp_candidate, r.cap + 1);
  if (options && options->rival_s > 0) enter_rival(&r, options->rival_s);
  zp_refine_all(&progress, &r);
  search_chunks(&progress, &r);
  if (rival_wins(&r))
    fill_beaten(plan, &progress, &r);
  else
    fill_plan(plan, &progress, &r);
  zp_search_end(&progress);
  return plan;
}

zp_plan *zp_search(zp_arena *arena, const zp_spec *spec, int devices, const zp_search_options *options) {
  zp_plan *plan = zp_search_placed(arena, spec, devices, options);
  if (zp_orders_nodes(spec, devices)) plan = zp_search_node_orders(arena, plan, options);
  bool goes_on = plan->feasible && !plan->certificate.interrupted;
  if (goes_on) zp_polish(plan, options);
  if (goes_on) zp_prefer_robust(plan, options);
  return plan;
}
