/* SPDX-License-Identifier: Apache-2.0 */
/* Degrees, batch, sharding, recomputation and offloading as arguments of Megatron-LM. */
#include "megatron.h"

#define PUT(flag) zp_megatron_put(m, ZP_MEGATRON_##flag)
#define PUT_INT(flag, value) zp_megatron_put_int(m, ZP_MEGATRON_##flag, value)
#define PUT_REAL(flag, value) zp_megatron_put_real(m, ZP_MEGATRON_##flag, value)
#define PUT_TEXT(flag, value) zp_megatron_put_text(m, ZP_MEGATRON_##flag, value)

/* zplan pads what does not divide, Megatron-LM refuses it (core/transformer/transformer_config.py). */
static void check_divides(zp_megatron *m) {
  const zp_gpt *gpt = m->gpt;
  int64_t tensor = m->e->choice->tensor;
  const struct {
    const char *what;
    int64_t number;
    bool needed;
  } rows[] = {{"heads", gpt->heads, true},
              {"the hidden size of the MLP", gpt->ff, gpt->experts == 0},
              {"the sequence", gpt->sequence, m->e->choice->sequence}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].needed && rows[i].number % tensor != 0)
      zp_export_refuse(m->e, "another `tensor` that divides it: --set tensor=...",
                       "%s (%lld) do not divide over tensor %lld; zplan pads, Megatron-LM does not", rows[i].what,
                       (long long)rows[i].number, (long long)tensor);
  if (gpt->kv_heads % tensor != 0 && tensor % gpt->kv_heads != 0)
    zp_export_refuse(m->e, "another `tensor`: --set tensor=...",
                     "%lld key/value heads and tensor %lld: one must divide the other", (long long)gpt->kv_heads,
                     (long long)tensor);
}

/* Bytes of a kept micro-batch, the most of any chunk. */
static int64_t largest_slot(const zp_program *program) {
  int64_t most = 0;
  for (int s = 0; s < program->choice.pipeline; s++)
    for (int k = 0; k < program->stages[s].n_chunks; k++)
      if (program->stages[s].chunks[k].slot_stride > most) most = program->stages[s].chunks[k].slot_stride;
  return most;
}

/* Groups of micro-batches of an interleaved schedule. The plan's differ by at most one
 * (planner/schedule/interleaved.c), Megatron-LM's are all of one size but the last, which may not be below the number
 * of stages. A larger group keeps as many more micro-batches for every chunk but one. */
static void put_group(zp_megatron *m) {
  const zp_exporter *e = m->e;
  const zp_choice *c = e->choice;
  int64_t count = zp_export_accumulation(e), groups = count / c->pipeline;
  if (c->chunks <= 1 || count % c->pipeline == 0) return;
  int64_t planned = groups ? (count + groups - 1) / groups : count, size = planned;
  while (size < count && count % size != 0 && count % size < c->pipeline) size++;
  int64_t more = (c->chunks - 1) * (size - planned) * largest_slot(e->plan->program);
  double limit = e->spec->plans.data[e->spec->plan].memory_fraction * (double)e->plan->machine.memory_bytes;
  if (groups == 0 || (double)(e->plan->best.estimate.peak_bytes + more) > limit) {
    zp_export_refuse(
        m->e, "a micro-batch or data degree that leaves a multiple of the stages, or --set schedule=1f1b",
        "%lld micro-batches on %d stages: Megatron-LM interleaves groups of at least %d, for which there is no "
        "memory",
        (long long)count, c->pipeline, c->pipeline);
    return;
  }
  PUT_INT(GROUP, size);
  if (size > planned)
    zp_export_note(
        m->e,
        "micro-batches go through the chunks in groups of %lld, in the plan of %lld: Megatron-LM's last group "
        "may not be below %d; up to %s more are kept",
        (long long)size, (long long)planned, c->pipeline, zp_show_bytes(e->arena, more));
}

void zp_megatron_parallel(zp_megatron *m) {
  zp_exporter *e = m->e;
  const zp_choice *c = e->choice;
  check_divides(m);
  zp_megatron_section(m, zp_format(e->arena, "%d ranks", zp_choice_ranks(c)));
  PUT_INT(TENSOR, c->tensor);
  PUT_INT(PIPELINE, c->pipeline);
  if (zp_context_ranks(c) > 1) {
    PUT_INT(CONTEXT, c->context);
    static const char *const comm[ZP_CONTEXT_BY_COUNT] = {"a2a", "all_gather", "p2p"}; /* as in the plan */
    PUT_TEXT(CONTEXT_COMM, comm[c->context_by]);
  }
  const char *layout = zp_megatron_layout(e);
  if (c->pipeline > 1 && layout) PUT_TEXT(LAYOUT, layout);
  put_group(m);
  if (c->tensor > 1 && (c->sequence || m->gpt->experts > 0)) PUT(SEQUENCE_PARALLEL);
  if (c->order == ZP_ORDER_TPD && c->pipeline > 1 && c->data > 1) PUT(TPD);
  PUT_INT(MICRO, c->microbatch);
  PUT_INT(GLOBAL, e->spec->train.batch);
  if (c->compress)
    zp_export_refuse(e, "--set compress=false", "1-bit compressed gradients: Megatron-LM has no such optimizer");
  if (c->hpz > 0) zp_export_refuse(e, "--set hpz=1", "a second copy of the parameters: Megatron-LM keeps none");
  if (zp_plan_idle(e->plan, c) > 0)
    zp_export_note(e, "%d of %d devices stay idle: start %d ranks", zp_plan_idle(e->plan, c), e->plan->devices,
                   zp_choice_ranks(c));
}

/* ZeRO: the distributed optimizer is ZeRO 1, Megatron FSDP the others. */
static void put_sharding(zp_megatron *m) {
  zp_exporter *e = m->e;
  const zp_choice *c = e->choice;
  bool offload = c->home[ZP_STATE_OPTIMIZER].tier != ZP_TIER_DEVICE;
  if (c->zero >= 2) {
    if (c->pipeline > 1)
      zp_export_refuse(e, "--set 'zero in [0, 1]'",
                       "ZeRO %d with pipeline %d: Megatron FSDP is exported without a pipeline", c->zero, c->pipeline);
    PUT(FSDP);
    PUT_TEXT(SHARDING, c->zero == 2 ? "optim_grads" : "optim_grads_params");
    PUT_TEXT(CKPT_FORMAT, "fsdp_dtensor");
    PUT(META_DEVICE);
    PUT(NO_FUSED_ACCUMULATION);
  } else if (c->zero == 1 || offload) {
    PUT(DISTRIBUTED);
    if (c->zero == 0 && c->data > 1)
      zp_export_refuse(e, "--set zero=1",
                       "ZeRO 0 with the optimizer on the host: Megatron-LM offloads the distributed "
                       "optimizer, which is ZeRO 1");
  }
  if (c->shard > 0) PUT_INT(INSTANCES, zp_shard_copies(c)); /* neighbours, as in the plan: core/parallel_state.py */
  if (c->data > 1) PUT(OVERLAP_GRAD);
  if (c->data > 1 && c->zero >= 1) PUT(OVERLAP_PARAM);
}

/* The plan moves the same share of every layer, Megatron-LM all of the first layers. */
static void put_saved_offload(zp_megatron *m) {
  zp_exporter *e = m->e;
  zp_home home = e->choice->home[ZP_STATE_ACTIVATIONS];
  if (home.tier != ZP_TIER_HOST) return;
  bool whole = e->choice->pipeline > 1 || zp_export_recompute(e) != ZP_RECOMPUTE_NONE || home.eighths >= 8;
  if (whole)
    zp_export_refuse(
        e, "--set 'offload[activations]=none'",
        "activations on the host: Megatron-LM offloads those of some layers, without a pipeline and without "
        "recomputation");
  else
    PUT_INT(SAVED_OFFLOAD, (m->gpt->layers * home.eighths + 7) / 8);
}

static void put_offload(zp_megatron *m) {
  put_saved_offload(m);
  zp_exporter *e = m->e;
  const zp_choice *c = e->choice;
  for (int s = 0; s < ZP_STATE_COUNT; s++) {
    zp_home home = c->home[s];
    bool can = s == ZP_STATE_OPTIMIZER || s == ZP_STATE_ACTIVATIONS;
    if (home.tier == ZP_TIER_DEVICE || (can && home.tier == ZP_TIER_HOST)) continue;
    zp_export_refuse(e, zp_format(e->arena, "--set 'offload[%s]=none'", zp_state_name(s)),
                     "%s on %s: Megatron-LM offloads the optimizer and activations, to the host alone",
                     zp_state_name(s), zp_tier_name(home.tier));
  }
  zp_home optimizer = c->home[ZP_STATE_OPTIMIZER];
  if (optimizer.tier != ZP_TIER_HOST) return;
  const zp_optimizer *row = zp_optimizer_facts(&e->spec->train);
  if (row->megatron && !row->is_adam)
    zp_export_refuse(e, "adamw, or --set 'offload[optimizer]=none'", "%s on the host", row->name);
  PUT(OPTIMIZER_OFFLOAD);
  PUT_REAL(OFFLOAD_FRACTION, optimizer.eighths / 8.0);
  PUT(PRECISION_AWARE);
}

/* Layers of a model chunk, whose cuts lie between them: units of repeats. */
static int64_t layers_between(const zp_model *model, int64_t first, int64_t end) {
  int64_t start = 0, layers = 0;
  for (int i = 0; i < model->segments.len; i++) {
    int64_t stop = start + model->segments.data[i].count;
    int64_t a = first > start ? first : start, b = end < stop ? end : stop;
    if (model->segments.data[i].is_repeat && a < b) layers += b - a;
    start = stop;
  }
  return layers;
}

/* Layers that chunk k recomputes whole; -1: it does something else with its layers. */
static int64_t whole_layers(const zp_exporter *e, int64_t k, int64_t layers) {
  const zp_choice *c = e->choice;
  int stage = zp_chunk_stage(c, k, NULL);
  zp_recompute mode = zp_stage_mode_recompute(zp_choice_mode(c, stage));
  bool mixed = zp_choice_layers(c, stage) != ZP_ALL_LAYERS;
  if (mode == ZP_RECOMPUTE_SELECTIVE || (mixed && c->mix[stage].rest != ZP_RECOMPUTE_NONE)) return -1;
  if (mode == ZP_RECOMPUTE_NONE) return 0;
  return mixed && layers > c->mix[stage].layers ? c->mix[stage].layers : layers;
}

/* `--recompute-method block`: the first layers of every chunk whole, the others not at all. The most of any chunk; 0:
 * that is not what the plan does. *more: that is more than the plan recomputes. */
static int64_t block_layers(const zp_exporter *e, bool *more) {
  const zp_choice *c = e->choice;
  int64_t most = 0, chunks = c->mix ? (int64_t)c->pipeline * zp_chunks(c) : 0;
  int64_t *of = ZP_NEW_ARRAY(e->arena, int64_t, chunks + 1), *here = ZP_NEW_ARRAY(e->arena, int64_t, chunks + 1);
  for (int64_t k = 0; k < chunks; k++) {
    of[k] = layers_between(e->spec->model, c->cut[k], c->cut[k + 1]);
    here[k] = whole_layers(e, k, of[k]);
    if (here[k] < 0) return 0;
    if (here[k] > most) most = here[k];
  }
  for (int64_t k = 0; k < chunks; k++) *more |= here[k] < most && here[k] < of[k];
  return most;
}

static bool put_block(zp_megatron *m, bool split) {
  bool more = false;
  int64_t layers = block_layers(m->e, &more);
  if (layers == 0) return false;
  PUT_TEXT(RECOMPUTE, "full");
  PUT_TEXT(RECOMPUTE_METHOD, "block");
  PUT_INT(RECOMPUTE_LAYERS, layers);
  if (split && !m->e->choice->sequence && m->gpt->experts == 0) PUT(DISTRIBUTE_SAVED);
  if (more)
    zp_export_note(
        m->e,
        "recompute %s: Megatron-LM recomputes the first %lld layers of every chunk, here the most of any; it "
        "needs no more memory and more time",
        zp_choice_recompute_words(m->e->arena, m->e->choice), (long long)layers);
  return true;
}

static void put_recompute(zp_megatron *m) {
  zp_exporter *e = m->e;
  const zp_choice *c = e->choice;
  bool split = false, whole = false;
  for (int s = 0; s < c->pipeline; s++) {
    zp_stage_mode mode = zp_choice_mode(c, s);
    split |= zp_stage_mode_split(mode);
    whole |= zp_stage_mode_recompute(mode) == ZP_RECOMPUTE_FULL && !zp_stage_mode_split(mode);
  }
  if (put_block(m, split)) return;
  zp_recompute mode = zp_export_recompute(e);
  if (mode == ZP_RECOMPUTE_FULL) {
    PUT_TEXT(RECOMPUTE, "full");
    PUT_TEXT(RECOMPUTE_METHOD, "uniform");
    PUT_INT(RECOMPUTE_LAYERS, 1);
    if (split && !c->sequence && m->gpt->experts == 0) PUT(DISTRIBUTE_SAVED);
    if (split && whole)
      zp_export_note(e, "all stages divide what they keep over the tensor ranks, in the plan only some do");
  } else if (mode == ZP_RECOMPUTE_SELECTIVE) {
    PUT_TEXT(RECOMPUTE, "selective");
    bool moe = m->gpt->experts > 0, grouped = e->spec->cluster.node.device.has_bf16;
    zp_megatron_put_words(m, ZP_MEGATRON_RECOMPUTE_MODULES,
                          !moe      ? "layernorm mlp"
                          : grouped ? "layernorm moe_act"
                                    : "layernorm moe");
    if (!moe)
      zp_export_note(e,
                     "selective recomputation rebuilds norms and activations in the plan; Megatron-LM can rebuild the "
                     "whole MLP or keep it, so that it runs longer than planned; where memory is left, take `mlp` out");
  }
}

void zp_megatron_memory(zp_megatron *m) {
  zp_megatron_section(m, "memory");
  put_sharding(m);
  put_offload(m);
  put_recompute(m);
}
