/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as JSON: seconds, bytes, dollars; null where something does not exist. */
#include "driver.h"

#include <stdio.h>

zp_json *zp_choice_json(const zp_choice *c) {
  zp_json *o = zp_json_object();
  zp_json_set_int(o, "tensor", c->tensor);
  zp_json_set_int(o, "pipeline", c->pipeline);
  zp_json_set_int(o, "data", zp_replicas(c));
  if (zp_context_ranks(c) > 1) zp_json_set_int(o, "context", c->context);
  zp_json_set_int(o, "expert", zp_expert_ranks(c));
  if (c->shard > 0) zp_json_set_int(o, "shard", c->shard);
  if (c->hpz > 0) zp_json_set_int(o, "hpz", c->hpz);
  zp_json_set_int(o, "zero", c->zero);
  zp_json_set_int(o, "microbatch", c->microbatch);
  zp_json_set_int(o, "loss_chunks", zp_loss_chunks(c));
  zp_json_set_string(o, "schedule", zp_schedule_name(c->schedule));
  zp_json_set_int(o, "chunks", c->chunks > 1 ? c->chunks : 1);
  if (c->stage_recompute) {
    zp_json *list = zp_json_set(o, "stage_recompute", zp_json_array());
    for (int s = 0; s < c->pipeline; s++) zp_json_append_string(list, zp_stage_mode_name(c->stage_recompute[s]));
  } else {
    zp_json_set_string(o, "recompute", zp_recompute_name(c->recompute));
    zp_json_set_bool(o, "recompute_shard", c->recompute_shard);
  }
  zp_json *layers = c->mix ? zp_json_set(o, "recompute_layers", zp_json_array()) : NULL;
  for (int s = 0; s < c->pipeline && layers; s++) {
    int64_t n = zp_choice_layers(c, s);
    zp_json_append_int(layers, n == ZP_ALL_LAYERS ? -1 : n);
  }
  if (zp_context_ranks(c) > 1) zp_json_set_string(o, "context_by", zp_context_by_name(c->context_by));
  zp_json_set_bool(o, "sequence", c->sequence);
  zp_json_set_string(o, "cut", c->fine ? "block" : "layer");
  zp_json_set_bool(o, "compress", c->compress);
  zp_json_set_string(o, "rank_order", zp_rank_order_name(c->order));
  for (int s = 0; s < ZP_STATE_COUNT; s++) {
    if (c->home[s].tier == ZP_TIER_DEVICE || c->home[s].eighths == 0) continue;
    zp_json *home = zp_json_set(o, zp_state_name((zp_state)s), zp_json_object());
    zp_json_set_string(home, "tier", zp_tier_name(c->home[s].tier));
    zp_json_set_real(home, "share", c->home[s].eighths / 8.0);
  }
  return o;
}

static void set_candidate(zp_json *o, const zp_candidate *c) {
  zp_json_set_real(o, "step_s", c->estimate.step_s);
  zp_json_set_real(o, "tokens_per_s", c->estimate.tokens_per_s);
  zp_json_set_int(o, "peak_bytes", c->estimate.peak_bytes);
  zp_json_set(o, "plan", zp_choice_json(&c->choice));
}

static void set_miss(zp_json *o, const zp_miss *miss) {
  if (miss->have_bytes <= 0) return;
  zp_json_set_int(o, "need_bytes", miss->need_bytes);
  zp_json_set_int(o, "have_bytes", miss->have_bytes);
}

zp_json *zp_miss_json(const zp_miss *miss) {
  zp_json *o = zp_json_object();
  zp_json_set_int(o, "stage", miss->stage);
  set_miss(o, miss);
  zp_json_set(o, "plan", zp_choice_json(&miss->choice));
  return o;
}

static void set_positive(zp_json *o, const char *key, double value) {
  if (value > 0) zp_json_set_real(o, key, value);
}

zp_json *zp_sizes_json(const zp_sizes *sizes) {
  zp_json *list = zp_json_array();
  const zp_size *base = zp_first_fit(sizes);
  for (int i = 0; i < sizes->len; i++) {
    const zp_size *size = &sizes->data[i];
    zp_json *o = zp_json_append(list, zp_json_object());
    zp_json_set_int(o, "devices", size->devices);
    if (size->feasible) zp_json_set_int(o, "idle", size->devices - zp_choice_ranks(&size->best.choice));
    zp_json_set_bool(o, "feasible", size->feasible);
    if (size->stopped) zp_json_set_bool(o, "stopped", true);
    if (!size->feasible) {
      set_miss(o, &size->miss);
      continue;
    }
    set_candidate(o, &size->best);
    zp_json_set_real(o, "mfu", size->best.estimate.mfu);
    zp_json_set_real(o, "scaling", zp_scaling(base, size));
    set_positive(o, "run_device_hours", size->run_device_hours);
    set_positive(o, "run_dollars", size->run_dollars);
  }
  return list;
}

zp_json *zp_fewest_json(const zp_fewest *fewest) {
  zp_json *o = zp_json_object();
  zp_json_set_bool(o, "found", fewest->found);
  zp_json_set_int(o, "lower_bound", fewest->lower_bound);
  zp_json_set_int(o, "sizes_planned", fewest->searched);
  zp_json_set(o, "sizes", zp_sizes_json(&fewest->sizes));
  return o;
}

zp_json *zp_relaxations_json(const zp_relaxations *all) {
  zp_json *list = zp_json_array();
  for (int i = 0; i < all->len; i++) {
    const zp_relaxation *r = &all->data[i];
    zp_json *o = zp_json_append(list, zp_json_object());
    zp_json_set_string(o, "change", r->words);
    zp_json_set_string(o, "option", r->option);
    if (r->amount) zp_json_set_int(o, "amount", r->amount);
    zp_candidate candidate = {r->choice, r->estimate};
    set_candidate(o, &candidate);
  }
  return list;
}

zp_json *zp_poor_use_json(const zp_plan *plan, const zp_poor_use *poor) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "term", poor->term);
  zp_json_set_real(o, "share", poor->term_s / plan->best.estimate.step_s);
  if (poor->cause) zp_json_set_string(o, "cause", poor->cause);
  if (poor->devices) {
    zp_json *fewer = zp_json_set(o, "fewer_devices", zp_json_object());
    zp_json_set_int(fewer, "devices", poor->devices);
    zp_json_set_real(fewer, "times_longer", poor->times_longer);
    zp_json_set_real(fewer, "times_fewer_hours", poor->times_fewer_hours);
  }
  zp_json *helps = zp_json_set(o, "helps", zp_json_array());
  for (int i = 0; i < poor->helps.len; i++) {
    const zp_help *help = &poor->helps.data[i];
    zp_json *said = zp_json_append(helps, zp_json_object());
    zp_json_set_string(said, "change", help->words);
    if (help->option) zp_json_set_string(said, "option", help->option);
    zp_json_set_real(said, "times_faster", help->times_faster);
    zp_json_set_real(said, "mfu", help->best.estimate.mfu);
    set_candidate(said, &help->best);
  }
  return o;
}

zp_json *zp_why_not_json(const zp_why_not *a) {
  zp_json *o = zp_json_object();
  set_candidate(zp_json_set(o, "best", zp_json_object()), &a->best->best);
  zp_json *asked = zp_json_set(o, "asked", zp_json_object());
  zp_json_set_bool(asked, "feasible", a->asked->feasible);
  if (a->asked->feasible) {
    set_candidate(asked, &a->asked->best);
    zp_json *terms = zp_json_set(o, "terms", zp_json_array());
    for (int i = 0; i < a->terms.len; i++) {
      zp_json *term = zp_json_append(terms, zp_json_object());
      zp_json_set_string(term, "name", a->terms.data[i].name);
      zp_json_set_real(term, "best_s", a->terms.data[i].best_s);
      zp_json_set_real(term, "asked_s", a->terms.data[i].asked_s);
    }
    return o;
  }
  zp_json_set_string(asked, "why", a->asked->why_not);
  zp_json *refusals = zp_json_set(asked, "refusals", zp_json_array());
  for (int i = 0; i < a->refusals.len; i++) zp_json_append_string(refusals, a->refusals.data[i]);
  set_miss(asked, &a->asked->miss);
  if (a->short_bytes) {
    zp_json_set_int(asked, "stage", a->asked->miss.stage);
    zp_json_set_int(asked, "first_rank", a->first_rank);
    zp_json_set_int(asked, "last_rank", a->last_rank);
    zp_json_set_int(asked, "short_bytes", a->short_bytes);
  }
  zp_json_set(o, "nearest", zp_relaxations_json(&a->nearest));
  return o;
}

zp_json *zp_sensitivity_json(const zp_plan *plan, const zp_sensitivities *all) {
  zp_json *o = zp_json_object();
  set_candidate(zp_json_set(o, "best", zp_json_object()), &plan->best);
  zp_json *knobs = zp_json_set(o, "knobs", zp_json_array());
  for (int k = 0; k < all->len; k++) {
    const zp_sensitivity *s = &all->data[k];
    zp_json *knob = zp_json_append(knobs, zp_json_object());
    zp_json_set_string(knob, "name", s->knob);
    zp_json_set_real(knob, "value", s->value);
    zp_json_set_string(knob, "unit", s->unit);
    zp_json_set_real(knob, "best_from_factor", s->low);
    zp_json_set_real(knob, "best_to_factor", s->high);
    zp_json *points = zp_json_set(knob, "points", zp_json_array());
    for (int i = 0; i < ZP_REACTIONS; i++) {
      zp_json *point = zp_json_append(points, zp_json_object());
      zp_json_set_real(point, "factor", s->reaction[i].factor);
      zp_json_set_bool(point, "feasible", s->reaction[i].feasible);
      if (s->reaction[i].stopped) zp_json_set_bool(point, "stopped", true);
      if (!s->reaction[i].feasible) continue;
      zp_json_set_bool(point, "same_plan", s->reaction[i].same_plan);
      set_candidate(point, &s->reaction[i].best);
    }
  }
  return o;
}

zp_json *zp_pareto_json(const zp_pareto *front) {
  zp_json *list = zp_json_array();
  for (int i = 0; i < front->points.len; i++) {
    const zp_pareto_point *p = &front->points.data[i];
    zp_json *o = zp_json_append(list, zp_json_object());
    zp_json_set_int(o, "devices", p->devices);
    zp_json_set_int(o, "idle", p->devices - zp_choice_ranks(&p->candidate.choice));
    set_candidate(o, &p->candidate);
    zp_json_set_real(o, "step_device_hours", p->step_device_hours);
    set_positive(o, "step_dollars", p->step_dollars);
  }
  return list;
}

void zp_print_json(zp_arena *arena, zp_json *json) {
  zp_say(stdout, "%s\n", zp_json_text(arena, json, true));
  zp_json_free(json);
}
