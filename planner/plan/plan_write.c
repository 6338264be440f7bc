/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files, written whole. A plan carries the text of its .dz files, so that it can be built and verified
 * anywhere. */
#include <zplan/path.h>

#include <assert.h>
#include <math.h>
#include <zplan/calibration.h>
#include <zplan/cost.h>
#include <zplan/gradient_sums.h>
#include <zplan/plan.h>
#include <zplan/software.h>
#include <zplan/own_gpu.h>
#include "plan_internal.h"
#include <zplan/schedule.h>

/* Stages whose layers differ. */
static void set_mix(zp_json *o, const zp_choice *c) {
  zp_json *list = c->mix ? zp_json_set(o, "mixed_stages", zp_json_array()) : NULL;
  for (int s = 0; s < c->pipeline && list; s++) {
    if (zp_choice_layers(c, s) == ZP_ALL_LAYERS) continue;
    zp_json *j = zp_json_append(list, zp_json_object());
    zp_json_set_int(j, "stage", s);
    zp_json_set_int(j, "recompute_layers", c->mix[s].layers);
    zp_json_set_string(j, "recompute_rest", zp_stage_mode_name(c->mix[s].rest));
  }
}

/* One mode of all stages, or "per stage" and a list. */
static void set_recompute(zp_json *o, const zp_choice *c) {
  zp_json_set_string(o, "recompute", c->stage_recompute ? ZP_PLAN_PER_STAGE : zp_recompute_name(c->recompute));
  zp_json_set_bool(o, "recompute_shard", !c->stage_recompute && c->recompute_shard);
  set_mix(o, c);
  if (!c->stage_recompute) return;
  zp_json *list = zp_json_set(o, "stage_recompute", zp_json_array());
  for (int s = 0; s < c->pipeline; s++) zp_json_append_string(list, zp_stage_mode_name(c->stage_recompute[s]));
}

static void set_choice(zp_json *o, const zp_plan *plan, const zp_choice *c) {
  zp_json *degrees = zp_json_set(o, "degrees", zp_json_object());
  zp_json_set_int(degrees, "tensor", c->tensor);
  zp_json_set_int(degrees, "pipeline", c->pipeline);
  zp_json_set_int(degrees, "data", zp_replicas(c));
  if (zp_context_ranks(c) > 1) zp_json_set_int(degrees, "context", c->context);
  zp_json_set_int(degrees, "expert", zp_expert_ranks(c));
  if (c->shard > 0) zp_json_set_int(degrees, "shard", c->shard);
  if (c->hpz > 0) zp_json_set_int(degrees, "hpz", c->hpz);
  zp_json_set_int(o, "idle", zp_plan_idle(plan, c));
  zp_json_set_int(o, "zero", c->zero);
  zp_json_set_int(o, "microbatch", c->microbatch);
  zp_json_set_int(o, "loss_chunks", zp_loss_chunks(c));
  zp_json_set_string(o, "schedule", zp_schedule_name(c->schedule));
  zp_json_set_int(o, "chunks", zp_chunks(c));
  set_recompute(o, c);
  if (zp_context_ranks(c) > 1) zp_json_set_string(o, "context_by", zp_context_by_name(c->context_by));
  zp_json_set_bool(o, "sequence", c->sequence);
  zp_json_set_bool(o, "compress", c->compress);
  zp_json_set_string(o, "rank_order", zp_rank_order_name(c->order));
  zp_json_set_string(o, "cut", c->fine ? "block" : "layer");
  zp_json *offload = zp_json_set(o, "offload", zp_json_object());
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    if (c->home[i].eighths == 0) continue;
    zp_json *home = zp_json_set(offload, zp_state_name((zp_state)i), zp_json_object());
    zp_json_set_string(home, "tier", zp_tier_name(c->home[i].tier));
    zp_json_set_int(home, "eighths", c->home[i].eighths);
  }
}

void zp_estimate_set_terms(zp_json *object, const zp_estimate *estimate) {
#define SET(field, name) zp_json_set_real(object, #field, estimate->field);
  ZP_STEP_TERMS(SET)
#undef SET
}

static zp_json *estimate_json(const zp_estimate *e) {
  zp_json *o = zp_json_object();
  zp_json_set_real(o, "step_s", e->step_s);
  zp_json_set_real(o, "tokens_per_s", e->tokens_per_s);
  zp_json_set_real(o, "mfu", e->mfu);
  zp_json_set_real(o, "hfu", e->hfu);
  zp_json_set_int(o, "peak_bytes", e->peak_bytes);
  zp_json_set_int(o, "peak_stage", e->peak_stage);
  zp_estimate_set_terms(o, e);
  zp_json_set_real(o, "model_flop", e->model_flop);
  zp_json_set_real(o, "hardware_flop", e->hardware_flop);
  return o;
}

static zp_json *memory_json(const zp_memory *m) {
  zp_json *o = zp_json_object();
  zp_json_set_int(o, "weights", m->weights);
  zp_json_set_int(o, "gradients", m->gradients);
  zp_json_set_int(o, "optimizer", m->optimizer);
  zp_json_set_int(o, "saved", m->saved);
  zp_json_set_int(o, "buffers", m->buffers);
  zp_json_set_int(o, "context", m->context);
  zp_json_set_int(o, "communicators", m->communicators);
  zp_json_set_int(o, "host", m->host);
  zp_json_set_int(o, "nvme", m->nvme);
  return o;
}

static void set_chunks(zp_json *o, const zp_stage *s) {
  zp_json *chunks = zp_json_set(o, "chunks", zp_json_array());
  for (int k = 0; k < s->n_chunks; k++) {
    const zp_chunk *chunk = &s->chunks[k];
    zp_json *j = zp_json_append(chunks, zp_json_object());
    zp_json_set_int(j, "first_unit", chunk->units.first);
    zp_json_set_int(j, "units", chunk->units.count);
    zp_json_set_int(j, "slots", chunk->slots);
    zp_json_set_int(j, "slot_stride", chunk->slot_stride);
    zp_json_set_int(j, "offloaded_stride", chunk->offloaded_stride);
    zp_json_set_int(j, "pending", chunk->pending);
    zp_json_set_int(j, "pending_stride", chunk->pending_stride);
  }
}

static void set_layers(zp_json *o, const zp_program *p, const zp_stage *s) {
  zp_json *layers = zp_json_set(o, "layers", zp_json_array());
  for (int r = 0; r < s->runs.len; r++) {
    const zp_run *run = &s->runs.data[r];
    zp_json *j = zp_json_append(layers, zp_json_object());
    zp_json_set_string(j, "segment", p->lowered->segments[run->segment].segment->name);
    zp_json_set_int(j, "first", run->first);
    zp_json_set_int(j, "count", run->count);
    zp_json_set_int(j, "chunk", run->chunk);
    const zp_lowered *lowered = zp_program_lowered(p, s->index);
    if (lowered->rest) zp_json_set_string(j, "recompute", zp_stage_mode_name(zp_run_mode(lowered, run)));
    for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
      if (!zp_has_of_kind(kind, run->stride.of[kind])) continue;
      zp_set_of_kind(j, kind, "base", run->base.of[kind]);
      zp_set_of_kind(j, kind, "stride", run->stride.of[kind]);
    }
    zp_json_set_int(j, "saved", run->saved);
    zp_json_set_int(j, "saved_offloaded", run->saved_offloaded);
    zp_json_set_int(j, "pending", run->pending);
  }
}

/* Those from `first` on, before `end`. Files without weights in 8 or 4 bits have no word of them, as older ones. */
static void set_regions(zp_json *o, const zp_stage *s, zp_region first, zp_region end) {
  for (int r = first; r < (int)end; r++)
    if (zp_region_rows[r].key && (r != ZP_REGION_NARROW_WEIGHTS || s->at[r] >= 0))
      zp_json_set_int(o, zp_region_rows[r].key, s->at[r]);
}

/* Where the regions of the arenas stand, and what their sizes follow from. In the order of the first files, which is
 * not everywhere that of the table. */
static void set_arena(zp_json *o, const zp_stage *s) {
  zp_json *a = zp_json_set(o, "arena", zp_json_object());
  zp_json_set_bool(a, "pooled", s->pooled);
  zp_json_set_int(a, "bytes", s->arena_bytes);
  zp_json_set_int(a, "flat_elements", zp_flat_trained(&s->flat));
  zp_json_set_int(a, "shard_elements", zp_flat_trained(&s->shard));
  zp_json_set_int(a, "spread_elements", s->flat.of[ZP_KIND_SPREAD]);
  zp_json_set_int(a, "spread_shard_elements", s->shard.of[ZP_KIND_SPREAD]);
  zp_json_set_int(a, "bucket_elements", zp_flat_trained(&s->bucket));
  zp_json_set_int(a, "slots", s->slots);
  zp_json_set_int(a, "slot_stride", s->slot_stride);
  zp_json_set_int(a, "offloaded_stride", s->offloaded_stride);
  zp_json_set_int(a, "offloaded_slots", zp_stage_offloaded_at(s, 0));
  zp_json_set_int(a, "offloaded_staging", s->bytes[ZP_REGION_FILE_SLOTS] > 0 ? s->at[ZP_REGION_HOST_SLOTS] : -1);
  set_regions(a, s, 0, ZP_REGION_PRODUCTS);
  set_regions(a, s, ZP_REGION_LANDING, ZP_REGION_TRANSIENT);
  set_regions(a, s, ZP_REGION_PRODUCTS, ZP_REGION_LANDING);
  set_regions(a, s, ZP_REGION_TRANSIENT, ZP_REGION_DEVICE_END);
  zp_json_set_int(a, "state_offloaded", s->offloaded[ZP_STATE_OPTIMIZER]);
  zp_json_set_int(a, "grads_offloaded", s->offloaded[ZP_STATE_GRADIENTS]);
  zp_json_set_int(a, "window_elements", s->window[ZP_STATE_OPTIMIZER]);
  set_regions(a, s, ZP_REGION_DEVICE_END, ZP_REGION_HOST_ERROR);
  set_regions(a, s, ZP_REGION_HOST_STATE, ZP_REGION_HOST_GRADS);
  set_regions(a, s, ZP_REGION_HOST_ERROR, ZP_REGION_HOST_STATE);
  set_regions(a, s, ZP_REGION_FILE_STATE, ZP_REGION_FILE_GRADS);
  set_regions(a, s, ZP_REGION_HOST_GRADS, ZP_REGION_HOST_PARAMS);
  zp_json_set_int(a, "params_offloaded", s->offloaded[ZP_STATE_PARAMS]);
  set_regions(a, s, ZP_REGION_HOST_PARAMS, ZP_REGION_FILE_STATE);
  set_regions(a, s, ZP_REGION_FILE_GRADS, ZP_REGION_COUNT);
  zp_json_set_int(a, "grads_window", s->window[ZP_STATE_GRADIENTS]);
  zp_json_set_int(a, "params_window", s->window[ZP_STATE_PARAMS]);
  if (s->flat.of[ZP_KIND_FROZEN] == 0) return;
  zp_json_set_int(a, "frozen_elements", s->flat.of[ZP_KIND_FROZEN]);
  zp_json_set_int(a, "frozen_shard_elements", s->shard.of[ZP_KIND_FROZEN]);
  zp_json_set_int(a, "frozen_bucket_elements", s->bucket.of[ZP_KIND_FROZEN]);
}

static zp_json *stage_json(const zp_program *p, const zp_stage *s) {
  zp_json *o = zp_json_object();
  zp_json_set_int(o, "first_unit", s->first_unit);
  zp_json_set_int(o, "units", s->n_units);
  zp_json_set_string(o, "recompute", zp_stage_mode_name(zp_choice_mode(&p->choice, s->index)));
  set_chunks(o, s);
  set_layers(o, p, s);
  zp_arena *scratch = zp_arena_new("order");
  zp_json_set_string(o, "order", zp_stated_order(scratch, p, s->index));
  zp_arena_free(scratch);
  zp_json *shared = zp_json_set(o, "shared", zp_json_object());
  for (int i = 0; i < s->shared.len; i++)
    zp_json_set_int(shared, p->spec->model->params.data[s->shared.data[i].param].name, s->shared.data[i].offset);
  zp_json_set(o, "memory", memory_json(&s->memory));
  set_arena(o, s);
  return o;
}

/* What the candidates are, alongside the plan block's constraints: as planner/search/README.md says. */
static const char SPACE[] =
    "degrees within the devices, tensor groups inside a node unless named, micro-batches up to 64 sequences unless "
    "named; DualPipeV only where named; on CPU clusters schedules but 1F1B, sequence-split norms, ZeRO 2 and 3, and "
    "idle ranks only where named; cuts inside layers where named, or where whole layers leave a stage 1 % longer than "
    "the mean on one node type; "
    "state leaves the device in the order optimizer, gradients, parameters, saved values, each in eighths when those "
    "before it that may leave are gone, hosts and disks shared equally by the ranks of a node; every stage has the "
    "fastest recomputation mode that fits, or in pipelines of one chunk a stage, one node type and all state on the "
    "device, for zplan's trainer or none and optimizers of single elements, its first layers a slower mode and the "
    "others "
    "a faster one, with the least work that fits; one mode for all stages with saved values offloaded, with several "
    "chunks a stage and any state offloaded, and where a mode that keeps more takes longer; nodes in node_orders of "
    "node_orders_there orders, with nodes_together those that have alike nodes side by side; for "
    "zplan's trainer also the loss in chunks, of 1024 tokens on GPUs and 256 on CPUs at most, where a micro-batch's "
    "logits take 1/16 of a rank's memory and expert is 1, other numbers where named";

static void set_certificate(zp_json *o, const zp_plan *plan) {
  const zp_certificate *c = &plan->certificate;
  zp_json *j = zp_json_set(o, "certificate", zp_json_object());
  zp_json_set_real(j, "best_s", c->best_s);
  zp_json_set_real(j, "bound_s", c->bound_s);
  zp_json_set_real(j, "gap", zp_certificate_gap(c));
  zp_json_set_int(j, "candidates", c->candidates);
  zp_json_set_int(j, "in_chunks", c->in_chunks);
  zp_json_set_int(j, "priced", c->priced);
  zp_json_set_int(j, "simulated", c->simulated);
  zp_json_set_int(j, "cut_nodes", c->cut_nodes);
  zp_json *pruned = zp_json_set(j, "cut_pruned", zp_json_object());
  for (int i = 0; i < ZP_CUT_RULE_COUNT; i++)
    zp_json_set_int(pruned, zp_cut_rule_key((zp_cut_pruning)i), c->cut_pruned[i]);
  zp_json_set_int(j, "search_memory_bytes", c->memory_bytes);
  zp_json_set_int(j, "search_held_bytes", c->held_bytes);
  zp_json_set_bool(j, "short_of_memory", c->short_of_memory);
  if (c->short_of_work) zp_json_set_bool(j, "short_of_work", true);
  if (c->interrupted) zp_json_set_bool(j, "interrupted", true);
  if (c->node_orders > 0) zp_json_set_int(j, "node_orders", c->node_orders);
  if (c->node_orders > 0) zp_json_set_int(j, "node_orders_there", c->node_orders_there);
  if (c->nodes_together) zp_json_set_bool(j, "nodes_together", true);
  zp_json_set_real(j, "tolerance", ZP_GAP_TOLERANCE);
  int context = zp_most_free_context(plan->spec, plan->devices);
  zp_json_set_string(j, "space",
                     context == 1 ? SPACE
                                  : zp_format(plan->spec->model->arena,
                                              "%s; samples of %lld positions over context ranks, of which there are "
                                              "a power of two, %d at most, unless named",
                                              SPACE, (long long)plan->spec->model->sequence, context));
  if (c->searched_s > c->bound_s) {
    zp_json_set_real(j, "searched_s", c->searched_s);
    zp_json_set_int(j, "stated_cuts", c->stated_cuts);
    zp_json_set_string(
        j, "stated",
        "so many candidates with several chunks a stage were cut for the shortest longest chunk alone, by "
        "the times of every recomputation mode: searched_s bounds all plans but their other cuts, bound_s "
        "and gap these, too");
  }
  zp_json *r = zp_json_set(o, "rejected", zp_json_object());
  for (int i = 0; i < ZP_REJECT_COUNT; i++) zp_json_set_int(r, zp_rejection_key((zp_rejection)i), c->rejected[i]);
}

static void set_inputs(zp_json *o, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  zp_json *options = zp_json_set(o, "options", zp_json_array());
  for (int i = 0; i < spec->options.len; i++) zp_json_append_string(options, spec->options.data[i]);
  if (spec->cluster.calibration)
    zp_json_set(o, "calibration", zp_calibration_in_plan(plan->arena, spec->cluster.calibration));
  zp_json *sources = zp_json_set(o, "sources", zp_json_array());
  for (int i = 0; i < spec->sources.len; i++) {
    const zp_source_text *source = &spec->sources.data[i];
    const char *alongside = zp_path_from(plan->arena, spec->sources.data[0].path, source->path);
    zp_json *s = zp_json_append(sources, zp_json_object());
    zp_json_set_string(s, "path", source->is_absolute ? source->path : alongside);
    zp_json_set_string(s, "text", source->text);
  }
}

/* Where measured runs say how far the time may be off. */
static void set_range(zp_arena *arena, zp_json *estimate, const zp_plan *plan) {
  bool several = zp_machine_nodes(&plan->machine) > 1;
  double step_s = plan->best.estimate.step_s;
  zp_step_range range = zp_software_range(arena, &plan->spec->cluster, several, step_s);
  if (!range.known) return;
  zp_json_set_real(estimate, "step_s_low", range.low_s);
  zp_json_set_real(estimate, "step_s_high", range.high_s);
  zp_json_set_string(estimate, "range_family", range.family);
  zp_json_set_int(estimate, "range_runs", range.runs);
}

/* Whose kernels were priced, and what bounded the space. */
static void set_program(zp_json *o, const zp_cluster *cluster) {
  if (cluster->trainer == ZP_TRAINER_NONE) return;
  zp_json *program = zp_json_set(o, "for", zp_json_object());
  zp_json_set_string(program, "program", zp_trainer_word(cluster->trainer));
  if (cluster->software) zp_json_set_string(program, "profile", zp_software_name(cluster->software));
}

static void set_model(zp_json *o, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  zp_json *m = zp_json_set(o, "model", zp_json_object());
  zp_json_set_string(m, "name", spec->model->name);
  zp_json_set_int(m, "parameters", zp_model_parameters(spec->model));
  zp_json_set_real(m, "flop_per_sequence", zp_model_flop_per_sequence(spec->model));
  zp_json_set_int(m, "sequence", spec->model->sequence);
  zp_json_set_int(m, "batch", spec->train.batch);
  zp_json *c = zp_json_set(o, "cluster", zp_json_object());
  zp_json_set_string(c, "name", spec->cluster.name);
  zp_json_set_string(c, "device", spec->cluster.node.device.name);
  zp_json_set_int(c, "devices", plan->devices);
  zp_json_set_int(c, "devices_per_node", plan->machine.devices_per_node);
  zp_json_set_int(c, "device_memory_bytes", plan->machine.memory_bytes);
  if (spec->cluster.groups.len == 0) return;
  zp_json *order = spec->cluster.arranged ? zp_json_set(c, "node_order", zp_json_array()) : NULL;
  for (int i = 0; i < spec->cluster.n_ranges && order; i++) {
    zp_json *range = zp_json_append(order, zp_json_object());
    zp_json_set_int(range, "first_node", spec->cluster.ranges[i].first);
    zp_json_set_int(range, "nodes", spec->cluster.ranges[i].nodes);
  }
  zp_json *groups = zp_json_set(c, "node_groups", zp_json_array());
  for (int g = 0; g < spec->cluster.groups.len; g++) {
    const zp_node_group *group = &spec->cluster.groups.data[g];
    zp_json *j = zp_json_append(groups, zp_json_object());
    zp_json_set_int(j, "nodes", group->nodes);
    zp_json_set_string(j, "node", group->type.name);
    zp_json_set_string(j, "device", group->type.device.name);
    zp_json_set_int(j, "devices_per_node", group->type.devices);
    zp_json_set_int(j, "device_memory_bytes", group->type.device.memory_bytes);
  }
}

/* What is trained otherwise than without: how many updates older the weights are whose gradients a step takes. */
static void set_delayed(zp_arena *arena, zp_json *o, const zp_plan *plan) {
  const zp_train *train = &plan->spec->train;
  if (!train->delayed) return;
  zp_json *delayed = zp_json_set(o, "delayed_update", zp_json_object());
  zp_json_set_int(delayed, "after", train->delay_after);
  zp_json_set_int(delayed, "staleness", ZP_STALENESS);
  zp_delay delay = zp_cost_delay(arena, plan->program, &plan->machine);
  zp_json_set_real(delayed, "host_s", delay.host_s);
  zp_json_set_real(delayed, "hidden_s", delay.host_s - delay.shown_s);
  zp_json_set_real(delayed, "shown_s", delay.shown_s);
}

static void set_reduce_dtype(zp_json *o, const zp_plan *plan) {
  if (!plan->spec->train.rounds_sums) return;
  zp_json *reduce = zp_json_set(o, "reduce_dtype", zp_json_object());
  zp_json_set_string(reduce, "between_nodes", "bf16");
  zp_json_set_real(reduce, "relative_error", ZP_ROUNDED_SUM_ERROR);
}

static void set_gradient_sums(zp_json *o, const zp_plan *plan) {
  if (!plan->spec->train.stochastic_sums) return;
  zp_gradient_sums sums = zp_gradient_sums_of(plan->program);
  zp_json *said = zp_json_set(o, "gradient_sums", zp_json_object());
  zp_json_set_string(said, "type", "bf16");
  zp_json_set_string(said, "rounding", "stochastic");
  zp_json_set_int(said, "additions", sums.additions);
  zp_json_set_real(said, "unit_roundoff", ZP_STOCHASTIC_ROUNDOFF);
  zp_json_set_real(said, "standard_deviation", sums.deviation);
  if (isfinite(sums.worst)) zp_json_set_real(said, "worst_case", sums.worst);
}

zp_json *zp_plan_to_json(zp_arena *arena, const zp_plan *plan) {
  assert(plan);
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "format_version", "2.0");
  zp_json_set_bool(o, "feasible", plan->feasible);
  set_program(o, &plan->spec->cluster);
  set_model(o, plan);
  zp_json_set_string(o, "precision", zp_precision_name(plan->spec->train.precision));
  if (plan->feasible) {
    const zp_program *p = plan->program;
    zp_json_set_string(o, "plan_hash", zp_plan_hash(arena, p));
    set_choice(o, plan, &p->choice);
    zp_json_set_int(o, "microbatches", p->microbatches);
    set_delayed(arena, o, plan);
    set_reduce_dtype(o, plan);
    set_gradient_sums(o, plan);
    zp_json *stages = zp_json_set(o, "stages", zp_json_array());
    bool kernels = zp_cost_is_own_gpu(&plan->machine);
    for (int s = 0; s < p->choice.pipeline; s++) {
      zp_json *stage = zp_json_append(stages, stage_json(p, &p->stages[s]));
      if (kernels) zp_json_set(stage, "update", zp_update_json(plan, s));
    }
    if (kernels) zp_json_set(o, "kernels", zp_kernels_json(plan));
    zp_json *estimate = zp_json_set(o, "estimate", estimate_json(&plan->best.estimate));
    set_range(arena, estimate, plan);
    zp_traffic t = zp_program_traffic(p);
    zp_json *traffic = zp_json_set(o, "traffic_bytes", zp_json_object());
    zp_json_set_int(traffic, "tensor", t.tensor);
    zp_json_set_int(traffic, "data", t.data);
    if (plan->best.choice.compress) {
      zp_json_set_int(traffic, "data_before", t.warmup_data);
      zp_json_set_real(traffic, "data_average", t.average_data);
    }
    zp_json_set_int(traffic, "pipeline", t.pipeline);
    zp_json_set_int(traffic, "tie", t.tie);
    zp_json_set_int(traffic, "expert", t.expert);
    if (t.routed > 0) zp_json_set_int(traffic, "expert_routed", t.routed);
    if (zp_context_ranks(&plan->best.choice) > 1) zp_json_set_int(traffic, "context", t.context);
  } else if (plan->why_not) {
    zp_json_set_string(o, "why_not", plan->why_not);
  }
  set_certificate(o, plan);
  if (plan->fastest) {
    zp_json *fastest = zp_json_set(o, "fastest", zp_json_object());
    set_choice(fastest, plan, &plan->fastest->choice);
    zp_json_set(fastest, "estimate", estimate_json(&plan->fastest->estimate));
  }
  zp_json *alternatives = zp_json_set(o, "alternatives", zp_json_array());
  for (int i = 0; i < plan->alternatives.len; i++) {
    zp_json *a = zp_json_append(alternatives, zp_json_object());
    set_choice(a, plan, &plan->alternatives.data[i].choice);
    zp_json_set(a, "estimate", estimate_json(&plan->alternatives.data[i].estimate));
  }
  if (plan->feasible) zp_json_set(o, "program", zp_program_json(plan));
  set_inputs(o, plan);
  return o;
}
