/* SPDX-License-Identifier: Apache-2.0 */
/* Before a search: the plan block without what the program of the plan cannot do, so that the best of the rest is
 * found. What a single key decides in other programs is here, what several decide together in trainers.c; what does
 * not go with a strategy its row says. */
#include <zplan/abilities.h>

#include <assert.h>
#include <zplan/moves.h>
#include <zplan/profile.h>
#include <zplan/shard.h>
#include <zplan/software.h>

/* Values of one key of the plan block in one program. */
typedef struct rule {
  zp_trainer trainer;
  const char *key;
  size_t offset;
  int highest;   /* value of the key */
  unsigned keep; /* bit v: the program has value v */
  const char *why;
} rule;

#define BIT(value) (1u << (value))
#define OF(field) offsetof(zp_constraints, field)
#define ON_DEVICE BIT(ZP_TIER_DEVICE)
#define NO_DISKS (BIT(ZP_TIER_DEVICE) | BIT(ZP_TIER_HOST))
enum { LAST_SCHEDULE = ZP_SCHEDULE_COUNT - 1 };
#define WHOLE_LAYERS(trainer)                                                                                          \
  { trainer, "cut", OF(cut), 1, BIT(0), "it cuts stages between layers" }
#define NO_COMPRESSION(trainer)                                                                                        \
  { trainer, "compress", OF(compress), 1, BIT(0), "it has no 1-bit Adam" }
#define OFFLOAD(trainer, class, name, keep, why)                                                                       \
  { trainer, "offload[" name "]", OF(offload[class]), ZP_TIER_NVME, keep, why }
static const char no_offload[] = "it is planned without anything off the device";
static const char saved_to_host[] = "it offloads activations to the host alone";
static const char only_optimizer[] = "it offloads the optimizer to the host alone";
static const char two_schedules[] = "it runs 1f1b and interleaved";
#define TWO_SCHEDULES(trainer)                                                                                         \
  {                                                                                                                    \
    trainer, "schedule", OF(schedule), LAST_SCHEDULE, BIT(ZP_SCHEDULE_1F1B) | BIT(ZP_SCHEDULE_INTERLEAVED),            \
        two_schedules                                                                                                  \
  }

static const rule rules[] = {
    WHOLE_LAYERS(ZP_TRAINER_MEGATRON),
    TWO_SCHEDULES(ZP_TRAINER_MEGATRON),
    NO_COMPRESSION(ZP_TRAINER_MEGATRON),
    OFFLOAD(ZP_TRAINER_MEGATRON, ZP_STATE_OPTIMIZER, "optimizer", NO_DISKS, only_optimizer),
    OFFLOAD(ZP_TRAINER_MEGATRON, ZP_STATE_GRADIENTS, "gradients", ON_DEVICE, only_optimizer),
    OFFLOAD(ZP_TRAINER_MEGATRON, ZP_STATE_PARAMS, "params", ON_DEVICE, only_optimizer),
    OFFLOAD(ZP_TRAINER_MEGATRON, ZP_STATE_ACTIVATIONS, "activations", NO_DISKS, saved_to_host),
    WHOLE_LAYERS(ZP_TRAINER_DEEPSPEED),
    {ZP_TRAINER_DEEPSPEED, "schedule", OF(schedule), LAST_SCHEDULE, BIT(ZP_SCHEDULE_1F1B), "it runs 1f1b"},
    {ZP_TRAINER_DEEPSPEED, "sequence", OF(sequence), 1, BIT(0),
     "its tensor parallelism does not split norms along the sequence"},
    OFFLOAD(ZP_TRAINER_DEEPSPEED, ZP_STATE_ACTIVATIONS, "activations", NO_DISKS,
            "it moves the inputs of recomputed layers to the host"),
    WHOLE_LAYERS(ZP_TRAINER_FSDP),
    TWO_SCHEDULES(ZP_TRAINER_FSDP),
    NO_COMPRESSION(ZP_TRAINER_FSDP),
    {ZP_TRAINER_FSDP, "zero", OF(zero), 3, BIT(2) | BIT(3), "it shards gradients or parameters, too: ZeRO 2 or 3"},
    {ZP_TRAINER_FSDP, "recompute_shard", OF(recompute_shard), 1, BIT(0), "it keeps whole inputs of recomputed layers"},
    OFFLOAD(ZP_TRAINER_FSDP, ZP_STATE_OPTIMIZER, "optimizer", ON_DEVICE, no_offload),
    OFFLOAD(ZP_TRAINER_FSDP, ZP_STATE_GRADIENTS, "gradients", ON_DEVICE, no_offload),
    OFFLOAD(ZP_TRAINER_FSDP, ZP_STATE_PARAMS, "params", ON_DEVICE, no_offload),
    OFFLOAD(ZP_TRAINER_FSDP, ZP_STATE_ACTIVATIONS, "activations", ON_DEVICE, no_offload),
};
enum { N_RULES = sizeof rules / sizeof *rules };

/* What some profiles of a program lack. */
static bool shards_all(const zp_software *software, const zp_model *model) { return (void)model, software->shards_all; }
static bool hides_exchange(const zp_software *software, const zp_model *model) {
  return software->hides_exchange && zp_model_has_experts(model);
}
static const struct {
  bool (*applies)(const zp_software *, const zp_model *);
  rule rule;
} of_profiles[] = {
    /* scripts/performance/utils/overrides.py, _set_megatron_fsdp_overrides: optim_grads_params (Megatron-Bridge
     * 067f987d; opened) */
    {shards_all,
     {ZP_TRAINER_MEGATRON, "zero", OF(zero), 3, BIT(0) | BIT(1) | BIT(3),
      "its recipes shard the optimizer's state, or all of it as Megatron FSDP: ZeRO 1 or 3"}},
    /* core/transformer/transformer_config.py, overlap_moe_expert_parallel_comm (Megatron-LM d98e8a64; opened) */
    {hides_exchange,
     {ZP_TRAINER_MEGATRON, "recompute", OF(recompute), ZP_RECOMPUTE_SELECTIVE,
      BIT(ZP_RECOMPUTE_NONE) | BIT(ZP_RECOMPUTE_SELECTIVE),
      "it recomputes no whole layers where it hides exchanges of experts"}},
};
enum { N_OF_PROFILES = sizeof of_profiles / sizeof *of_profiles };

static zp_limit *limit_of(const rule *r, zp_constraints *c) { return (zp_limit *)(void *)((char *)c + r->offset); }

/* Bits of the values that the limit allows. */
static unsigned allowed(const rule *r, const zp_limit *limit) {
  unsigned bits = 0;
  for (int v = 0; v <= r->highest; v++)
    if (zp_limit_allows(limit, v)) bits |= BIT(v);
  return bits;
}

static void keep_values(zp_arena *arena, const rule *r, zp_limit *limit, unsigned keep) {
  zp_limit kept = {.set = true, .low = r->highest, .high = 0, .span = limit->span};
  for (int v = 0; v <= r->highest; v++) {
    if (!(keep & BIT(v))) continue;
    zp_push(arena, &kept.in, (double)v);
    if (v < kept.low) kept.low = v;
    if (v > kept.high) kept.high = v;
  }
  if (!limit->set) kept.span = ZP_NO_SPAN;
  *limit = kept;
}

static bool has(zp_trainer trainer, const rule *asked, unsigned wanted) {
  for (int i = 0; i < N_RULES; i++)
    if (rules[i].trainer == trainer && rules[i].offset == asked->offset) return (rules[i].keep & wanted) != 0;
  return true;
}

/* The first program that has one of the wanted values. */
static zp_trainer find_other(const rule *r, unsigned wanted) {
  for (int t = ZP_TRAINER_ZPLAN; t < ZP_TRAINER_COUNT; t++)
    if (t != (int)r->trainer && has((zp_trainer)t, r, wanted)) return (zp_trainer)t;
  return ZP_TRAINER_NONE;
}

/* What goes with a strategy. */
static void narrow_to(zp_arena *arena, const zp_move_limit *row, zp_constraints *c, zp_narrowing *done) {
  const rule r = {.key = row->key, .offset = row->offset, .highest = row->highest};
  zp_limit *limit = limit_of(&r, c);
  bool written = limit->set && (row->no_effect || limit->span.file >= 0);
  unsigned wanted = written ? allowed(&r, limit) : ~0u, keep = row->keep & wanted;
  const zp_lacking lacking = {row->key, row->why, row->help, limit->span, ZP_TRAINER_NONE};
  if (!keep) {
    zp_push(arena, &done->lacking, lacking);
  } else if (row->no_effect ? written && keep != wanted : written || row->unwritten) {
    if (row->no_effect) zp_push(arena, &done->useless, lacking);
    keep_values(arena, &r, limit, keep);
  }
}

static void narrow_strategies(zp_arena *arena, const zp_spec *spec, zp_constraints *c, zp_narrowing *done) {
  for (int i = 0; zp_move_strategies[i]; i++) {
    if (!zp_move_strategies[i]->limits) continue;
    zp_move_limits limits = zp_move_strategies[i]->limits(spec);
    for (int k = 0; k < limits.n; k++) narrow_to(arena, &limits.rows[k], c, done);
  }
}

static void apply(zp_arena *arena, const rule *r, zp_constraints *c, zp_narrowing *done) {
  zp_limit *limit = limit_of(r, c);
  unsigned wanted = allowed(r, limit), keep = wanted & r->keep;
  if (keep == wanted) return;
  if (keep) {
    keep_values(arena, r, limit, keep);
    zp_push(arena, &done->keys, r->key);
    return;
  }
  zp_lacking lacking = {.key = r->key, .why = r->why, .span = limit->span, .other = find_other(r, wanted)};
  zp_push(arena, &done->lacking, lacking);
}

zp_narrowing zp_trainer_narrow(zp_arena *arena, zp_spec *spec) {
  assert(spec->plan >= 0 && spec->plan < spec->plans.len);
  zp_narrowing done = {0};
  zp_constraints *c = &spec->plans.data[spec->plan];
  narrow_strategies(arena, spec, c, &done);
  for (int i = 0; i < N_RULES; i++)
    if (rules[i].trainer == spec->cluster.trainer) apply(arena, &rules[i], c, &done);
  for (int i = 0; spec->cluster.software && i < N_OF_PROFILES; i++)
    if (of_profiles[i].rule.trainer == spec->cluster.trainer &&
        of_profiles[i].applies(spec->cluster.software, spec->model))
      apply(arena, &of_profiles[i].rule, c, &done);
  return done;
}

zp_narrowing zp_program_choose(zp_arena *arena, zp_spec *spec, const char *word) {
  bool known = zp_software_find(word, &spec->cluster.trainer, &spec->cluster.software);
  assert(known);
  (void)known;
  if (zp_software_dropless(spec->cluster.software)) zp_model_route_evenly(spec->model);
  const char *recipe = zp_precision_recipe(spec->train.precision);
  if (recipe && !spec->cluster.node.device.is_cpu) /* where it lacks them zp_narrow_weights objects */
    (void)zp_software_with_recipe(arena, recipe, &spec->cluster, &spec->cluster.software);
  return zp_trainer_narrow(arena, spec);
}
