/* zp_search: enumerate (space.c), order by lower bound (bound.c), give homes, cut and simulate the points that can
 * still win (price.c, fit.c, cut.c), and certify. No point is dropped unless it violates a rule, does not fit, or its
 * proven lower bound exceeds the best plan. What is left open is the gap between the best plan and the smallest bound.
 */
#include <math.h>
#include <zplan/buf.h>
#include "fit.h"
#include "frontier.h"
#include "procedures.h"
#include "space.h"

/* The winner is derived once more in the plan's own arena; the search's memory goes. */
static void adopt(zp_plan *plan, const zp_choice *winner) {
  const char *reason = NULL;
  zp_choice c = zp_choice_copy(plan->arena, winner);
  plan->machine = zp_machine_make(&plan->spec->cluster, plan->spec->train.precision, zp_choice_ranks(&c));
  zp_sharding *sharding = zp_shard_experts(plan->arena, plan->spec->model, &plan->machine, c.tensor,
                                           zp_expert_ranks(&c), c.sequence, &reason);
  zp_lowered **lowered = zp_lower_stages(plan->arena, plan->spec, sharding, &c, &reason);
  plan->feasible = true;
  plan->program = zp_program_make_priced(plan->arena, zp_price_stages(lowered, &plan->machine, &c), &c);
  plan->best = (zp_candidate){c, zp_simulate(plan->arena, plan->program, &plan->machine)};
}

/* An alternative with all of its estimate; its program goes again. */
static zp_candidate explain(const zp_plan *plan, zp_searcher *s, const zp_choice *choice) {
  zp_candidate c = {.choice = zp_choice_copy(plan->arena, choice)};
  zp_search_use(s, zp_choice_ranks(choice));
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  c.estimate = zp_simulate(s->arena, zp_search_program(s->arena, s, choice), &s->machine);
  c.estimate.stage_forward_s = c.estimate.stage_backward_s = NULL;
  zp_arena_rewind(s->arena, mark);
  return c;
}

static const char *explain_empty(zp_arena *arena, const zp_searcher *s, const char *reason) {
  static const zp_rejection order[] = {ZP_REJECT_CUT,   ZP_REJECT_GENERATED, ZP_REJECT_HOST,
                                       ZP_REJECT_SPLIT, ZP_REJECT_SCHEDULE,  ZP_REJECT_UNITS,
                                       ZP_REJECT_BATCH, ZP_REJECT_NODE,      ZP_REJECT_CONSTRAINT};
  const int64_t *rejected = s->certificate.rejected;
  if (rejected[ZP_REJECT_CUT]) reason = s->cut_reason;
  if ((rejected[ZP_REJECT_SPLIT] || rejected[ZP_REJECT_GENERATED] || rejected[ZP_REJECT_CUT]) && reason)
    return zp_strdup(arena, reason);
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    if (rejected[order[i]])
      return zp_format(arena, "none of the %lld candidates is legal; one reason: %s",
                       (long long)s->certificate.candidates, zp_rejection_text(order[i]));
  return "there is nothing to choose from";
}

/* A bound that is as close to the best plan as can be told, or as was asked for, is rounded to that. */
static double rounded_bound(double bound_s, double best_s, double closer) {
  double wanted = best_s / closer;
  if (bound_s > best_s * (1 - ZP_GAP_TOLERANCE)) return best_s;
  return bound_s > wanted * (1 - ZP_GAP_TOLERANCE) ? fmax(bound_s, wanted) : bound_s;
}

static void fill_plan(zp_plan *plan, zp_searcher *s, const zp_ranking *r) {
  plan->certificate = s->certificate;
  plan->certificate.cut_nodes = s->effort.cuts.nodes;
  plan->certificate.cut_work = ZP_MOST_WORK - s->effort.cuts.work_left;
  plan->certificate.laid_out = s->memo->fits.laid_out;
  plan->certificate.memory_bytes = (int64_t)s->budget.limit_bytes;
  plan->certificate.held_bytes = (int64_t)s->budget.peak_bytes;
  memcpy(plan->certificate.cut_pruned, s->effort.cuts.pruned, sizeof s->effort.cuts.pruned);
  if (r->len == 0 && s->certificate.rejected[ZP_REJECT_BUDGET]) {
    plan->stopped = true;
    plan->why_not = zp_format(plan->arena, "the search reached its memory budget of %s before it found a plan",
                              zp_show_bytes(plan->arena, plan->certificate.memory_bytes));
    return;
  }
  if (r->len == 0) {
    if (s->wants_miss && s->certificate.rejected[ZP_REJECT_HOST] == 0) /* else the devices are not what is short */
      zp_note_misses(s);
    if (s->miss.need_bytes > s->miss.have_bytes) {
      plan->miss = s->miss;
      plan->miss.choice = zp_choice_copy(plan->arena, &s->miss.choice);
    } else {
      plan->why_not = explain_empty(plan->arena, s, s->reason);
    }
    return;
  }
  adopt(plan, &r->best[0].choice);
  zp_certificate *c = &plan->certificate;
  c->best_s = plan->best.estimate.step_s;
  c->searched_s = rounded_bound(c->searched_s, c->best_s, r->closer);
  c->bound_s = rounded_bound(fmin(c->searched_s, s->unsearched_s), c->best_s, r->closer);
  plan->exact_alternatives = r->exact;
  for (int i = 1; i < r->len && r->best[i].estimate.step_s <= r->range * r->best[0].estimate.step_s; i++)
    zp_push(plan->arena, &plan->alternatives, explain(plan, s, &r->best[i].choice));
}

void zp_search_start(zp_searcher *s, const zp_spec *spec, const zp_machine *machine, const zp_search_options *options) {
  s->kept = zp_arena_new_beside("search.kept", s->arena);
  s->spec = spec;
  s->constraints = &spec->plans.data[spec->plan];
  s->budget.limit_bytes = (size_t)(s->constraints->search_memory ? s->constraints->search_memory : ZP_SEARCH_MEMORY);
  s->devices = machine->devices;
  s->machine = *machine;
  s->cutoff_s = s->left_out_s = s->unsearched_s = HUGE_VAL;
  if (zp_has_types(s)) s->machine.spans = ZP_NEW(s->arena, zp_span_memo);
  s->generated_only = options && options->generated_only;
  s->floor = zp_software_floor_of(spec->cluster.software);
  s->trainer = s->generated_only ? ZP_TRAINER_ZPLAN : spec->cluster.trainer;
  s->wants_miss = !(options && options->no_miss);
  s->without = options ? options->without : 0;
  zp_use_limits(s);
  for (int i = 0; i < spec->model->segments.len; i++) s->n_units += spec->model->segments.data[i].count;
  if (zp_limit_allows(&s->constraints->cut, 1)) s->pieces = zp_pieces_divided(s->arena, spec->model);
  s->most_units = s->pieces ? s->pieces->n_units : s->n_units;
  s->effort.cuts.work_left = ZP_MOST_WORK;
  s->effort.chunk_work_left = ZP_MOST_CHUNK_WORK;
  s->memo = ZP_NEW(s->arena, zp_search_memo);
  int64_t most_stages = machine->devices < s->most_units ? machine->devices : s->most_units;
  s->memo->places.types = ZP_NEW_ARRAY(s->arena, zp_node_set, most_stages);
  s->memo->places.sets = ZP_NEW_ARRAY(s->arena, zp_node_set, most_stages);
  s->memo->places.limits = ZP_NEW_ARRAY(s->arena, zp_limits, most_stages);
}

void zp_search_end(zp_searcher *s) {
  if (s->kept) zp_arena_free(s->kept);
  zp_arena_free(s->arena);
}

zp_plan *zp_search(zp_arena *arena, const zp_spec *spec, int devices, const zp_search_options *options) {
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  plan->arena = arena;
  plan->spec = spec;
  plan->devices = devices;
  plan->machine = zp_machine_make(&spec->cluster, spec->train.precision, devices);
  zp_searcher s = {0};
  s.arena = zp_arena_new_within("search", &s.budget);
  bool many = options && options->top > 0;
  zp_search_start(&s, spec, &plan->machine, options);
  zp_search_degrees(&s);
  zp_ranking r = {.cap = 1 + (many ? options->top : ZP_DEFAULT_TOP),
                  .range = many ? HUGE_VAL : ZP_ALTERNATIVES_RANGE,
                  .exact = many,
                  .closer = 1 + (options && options->gap > 0 ? options->gap : s.constraints->search_gap)};
  r.best = ZP_NEW_ARRAY(s.arena, zp_candidate, r.cap + 1);
  zp_price_points(&s, &r);
  fill_plan(plan, &s, &r);
  zp_search_end(&s);
  return plan;
}
