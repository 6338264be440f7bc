/* SPDX-License-Identifier: Apache-2.0 */
/* Degrees, batch, sharding, recomputation and offloading of a launch of Megatron-LM as limits of a plan block. */
#include "megatron.h"

#include <ctype.h>
#include <stdlib.h>

/* From 1 on. */
static int64_t degree(megatron *m, megatron_flag flag) {
  int64_t n = megatron_int(m, flag, 1);
  if (n >= 1 && n <= 1 << 20) return n;
  launch_complain(m->l, m->given[flag].at, "%s %lld is no number of ranks", megatron_name(flag), (long long)n);
  return 1;
}

static void check_divides(megatron *m, int64_t tensor) {
  const launch_model *model = &m->l->model;
  const struct {
    const char *what;
    int64_t number;
    bool needed;
  } rows[] = {{"heads", model->heads, true},
              {"the width of the MLP", model->ff, model->experts == 0},
              {"the sequence", model->sequence, megatron_has(m, F_SEQUENCE_PARALLEL)}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].needed && rows[i].number % tensor != 0)
      launch_complain(m->l, m->given[F_TENSOR].at, "%s (%lld) do not divide over --tensor-model-parallel-size %lld",
                      rows[i].what, (long long)rows[i].number, (long long)tensor);
  if (model->kv_heads % tensor != 0 && tensor % model->kv_heads != 0)
    launch_complain(m->l, m->given[F_TENSOR].at,
                    "%lld key/value heads and --tensor-model-parallel-size %lld: one must divide the other",
                    (long long)model->kv_heads, (long long)tensor);
}

/* ---- pipeline ---- */

/* Chunks a stage; 1: no interleaving. */
static int64_t chunks_of(megatron *m, int64_t pipeline) {
  int64_t layers = m->l->model.layers + megatron_has(m, F_COUNT_EMBEDDING) + megatron_has(m, F_COUNT_LOSS);
  const char *same = "each says how the pipeline is interleaved";
  megatron_clash(m, F_CHUNK_LAYERS, F_CHUNKS, same);
  megatron_clash(m, F_CHUNK_LAYERS, F_LAYOUT, same);
  megatron_clash(m, F_CHUNKS, F_LAYOUT, same);
  megatron_clash(m, F_CHUNK_LAYERS, F_FIRST_LAYERS, "chunks of one size and a first stage of another");
  if (megatron_has(m, F_LAYOUT)) {
    const char *text = m->given[F_LAYOUT].text;
    const int64_t *of_chunks;
    int64_t chunks = megatron_layout(m->l->arena, text, &of_chunks);
    if (chunks > 0 && chunks % pipeline == 0) return chunks / pipeline;
    launch_complain(
        m->l, m->given[F_LAYOUT].at,
        "--pipeline-model-parallel-layout `%s` has no multiple of --pipeline-model-parallel-size %lld chunks", text,
        (long long)pipeline);
    return 1;
  }
  if (megatron_has(m, F_CHUNKS)) return degree(m, F_CHUNKS);
  bool uneven = megatron_has(m, F_FIRST_LAYERS) || megatron_has(m, F_LAST_LAYERS);
  if (!uneven && layers % pipeline != 0) {
    launch_complain(m->l, m->given[F_PIPELINE].at, "%lld layers do not divide over --pipeline-model-parallel-size %lld",
                    (long long)layers, (long long)pipeline);
    return 1;
  }
  if (!megatron_has(m, F_CHUNK_LAYERS)) return 1;
  int64_t size = degree(m, F_CHUNK_LAYERS), of_stage = layers / pipeline;
  if (of_stage % size == 0) return of_stage / size;
  launch_complain(m->l, m->given[F_CHUNK_LAYERS].at,
                  "--num-layers-per-virtual-pipeline-stage %lld does not divide the %lld layers of a stage",
                  (long long)size, (long long)of_stage);
  return 1;
}

static void pin_pipeline(megatron *m, int64_t pipeline) {
  launch *l = m->l;
  launch_pin_int(l, "pipeline", pipeline, megatron_from(m, F_PIPELINE));
  if (pipeline == 1) return;
  int64_t chunks = chunks_of(m, pipeline);
  megatron_flag says = megatron_has(m, F_LAYOUT) ? F_LAYOUT : megatron_has(m, F_CHUNKS) ? F_CHUNKS : F_CHUNK_LAYERS;
  launch_pin(l, "schedule", chunks > 1 ? "\"interleaved\"" : "\"1f1b\"", chunks > 1 ? megatron_from(m, says) : NULL);
  if (chunks > 1) launch_pin_int(l, "chunks", chunks, megatron_from(m, says));
  launch_pin(l, "rank_order", megatron_has(m, F_TPD) ? "\"tpd\"" : "\"tdp\"", megatron_from(m, F_TPD));
  megatron_pin_cut(m, pipeline, chunks);
}

/* ---- experts, positions ---- */

static void pin_experts(megatron *m, int64_t tensor) {
  launch *l = m->l;
  int64_t expert = degree(m, F_EXPERT);
  if (l->model.experts == 0) {
    if (expert > 1)
      launch_complain(l, m->given[F_EXPERT].at, "--expert-model-parallel-size %lld and no --num-experts",
                      (long long)expert);
    return;
  }
  int64_t width = megatron_has(m, F_EXPERT_TENSOR) ? degree(m, F_EXPERT_TENSOR) : tensor;
  if (l->model.experts % expert != 0)
    launch_complain(l, m->given[F_EXPERT].at, "%lld experts do not divide over --expert-model-parallel-size %lld",
                    (long long)l->model.experts, (long long)expert);
  bool whole = width == 1 && tensor > 1;
  if (whole && expert % tensor != 0) {
    launch_note(l,
                "--expert-model-parallel-size %lld with whole experts (--expert-tensor-parallel-size 1) on %lld tensor "
                "ranks: a plan spreads experts over all tensor ranks; expert 1 is pinned",
                (long long)expert, (long long)tensor);
    expert = tensor;
  }
  if (width != 1 && width != tensor)
    launch_refuse(l, m->given[F_EXPERT_TENSOR].at,
                  "--expert-tensor-parallel-size %lld is neither 1 nor --tensor-model-parallel-size %lld",
                  (long long)width, (long long)tensor);
  if (width > 1)
    launch_note(
        l,
        "%s: experts are divided over tensor ranks in Megatron-LM; a plan gives tensor ranks whole experts where "
        "their number allows it",
        megatron_from(m, F_EXPERT_TENSOR));
  launch_pin_int(l, "expert", whole ? expert / tensor : expert, megatron_from(m, F_EXPERT));
}

static void pin_context(megatron *m, int64_t context) {
  launch_pin_int(m->l, "context", context, megatron_from(m, F_CONTEXT));
  if (context == 1) return;
  const char *by = megatron_text(m, F_CONTEXT_COMM, "p2p");
  if (m->l->model.sequence % (2 * context) != 0)
    launch_complain(m->l, m->given[F_CONTEXT].at,
                    "--seq-length %lld is no multiple of 2 * --context-parallel-size %lld",
                    (long long)m->l->model.sequence, (long long)context);
  bool heads = strcmp(by, "a2a") == 0;
  launch_pin(m->l, "context_by", heads ? "\"heads\"" : "\"keys\"", megatron_from(m, F_CONTEXT_COMM));
  if (strcmp(by, "p2p") == 0)
    launch_note(m->l, "%s: planned as all_gather, which sends as many keys and values, at once",
                megatron_from(m, F_CONTEXT_COMM));
  if (strcmp(by, "a2a+p2p") == 0)
    launch_note(m->l, "--cp-comm-type a2a+p2p is not planned: keys and values are exchanged over all context ranks");
}

/* ---- state ---- */

static int zero_of(megatron *m, const char **from) {
  static const char *const strategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  megatron_clash(m, F_TORCH_FSDP, F_DISTRIBUTED, "FSDP2 shards the optimizer itself");
  megatron_clash(m, F_TORCH_FSDP, F_FSDP, "they are two kinds of FSDP");
  megatron_clash(m, F_TORCH_FSDP, F_FP16, "FSDP2 is not there for fp16");
  *from = megatron_from(m, F_TORCH_FSDP);
  if (megatron_has(m, F_TORCH_FSDP)) return 3;
  *from = megatron_from(m, F_DISTRIBUTED);
  if (!megatron_has(m, F_FSDP)) return megatron_has(m, F_DISTRIBUTED);
  const char *word = megatron_text(m, F_SHARDING, strategies[3]);
  *from = zp_format(m->l->arena, "--use-megatron-fsdp, %s", megatron_from(m, F_SHARDING));
  for (int i = 0; i < 4; i++)
    if (strcmp(strategies[i], word) == 0) return i;
  launch_complain(m->l, m->given[F_SHARDING].at,
                  "--data-parallel-sharding-strategy is no_shard, optim, optim_grads or optim_grads_params, not `%s`",
                  word);
  return 3;
}

/* core/transformer/transformer_config.py: what --cpu-offloading-num-layers goes without. */
static void pin_saved(megatron *m, int64_t pipeline) {
  launch *l = m->l;
  int64_t layers = megatron_int(m, F_SAVED_OFFLOAD, 0);
  if (layers < 1) return;
  if (pipeline > 1) megatron_clash(m, F_PIPELINE, F_SAVED_OFFLOAD, "activations are offloaded without a pipeline");
  if (megatron_has(m, F_RECOMPUTE) || megatron_has(m, F_RECOMPUTE_OLD))
    megatron_clash(m, megatron_has(m, F_RECOMPUTE) ? F_RECOMPUTE : F_RECOMPUTE_OLD, F_SAVED_OFFLOAD,
                   "activations are offloaded without recomputation");
  if (layers >= l->model.layers)
    launch_complain(l, m->given[F_SAVED_OFFLOAD].at, "--cpu-offloading-num-layers %lld is not below %lld layers",
                    (long long)layers, (long long)l->model.layers);
  launch_permit(l, "offload[activations]", "[\"none\", \"cpu\"]", megatron_from(m, F_SAVED_OFFLOAD));
  launch_note(l, "%s: which share of the activations leaves the device is the plan's",
              megatron_from(m, F_SAVED_OFFLOAD));
}

static void pin_state(megatron *m, int64_t pipeline, int64_t data) {
  launch *l = m->l;
  const char *from;
  int zero = zero_of(m, &from);
  launch_pin_int(l, "zero", zero, from);
  if (megatron_has(m, F_TORCH_FSDP) && pipeline > 1)
    megatron_clash(m, F_PIPELINE, F_TORCH_FSDP, "FSDP2 has no pipeline");
  int64_t instances = degree(m, F_INSTANCES);
  if (instances > 1 && data > 0) {
    if (data % instances != 0)
      launch_complain(l, m->given[F_INSTANCES].at,
                      "--num-distributed-optimizer-instances %lld does not divide %lld data ranks",
                      (long long)instances, (long long)data);
    else
      launch_pin_int(l, "shard", data / instances, megatron_from(m, F_INSTANCES));
  }
  if (megatron_has(m, F_OVERLAP_PARAM) && zero == 0)
    launch_complain(l, m->given[F_OVERLAP_PARAM].at, "--overlap-param-gather wants --use-distributed-optimizer");
  if (megatron_has(m, F_OVERLAP_PARAM) && !megatron_has(m, F_OVERLAP_GRAD))
    launch_complain(l, m->given[F_OVERLAP_PARAM].at, "--overlap-param-gather wants --overlap-grad-reduce");
  if (data > 1 && !megatron_has(m, F_OVERLAP_GRAD))
    launch_note(l,
                "--overlap-grad-reduce is not given: the predicted step has gradients summed alongside backward, and "
                "Megatron-LM sums them after it");
  if (megatron_has(m, F_REDUCE_BF16)) {
    l->word = "megatron-bridge";
    launch_note(l, "--grad-reduce-in-bf16: planned with the profile megatron-bridge, whose gradients have 16 bits");
  }
  if (megatron_has(m, F_FP16) && !megatron_has(m, F_SUM_FP32))
    launch_note(l,
                "--accumulate-allreduce-grads-in-fp32 is not given: gradients are counted with 4 bytes all the same");
  pin_saved(m, pipeline);
  if (!megatron_has(m, F_OPTIMIZER_OFFLOAD)) {
    launch_pin(l, "offload[optimizer]", "\"none\"", NULL);
    return;
  }
  launch_pin(l, "offload[optimizer]", "\"cpu\"", megatron_from(m, F_OPTIMIZER_OFFLOAD));
  if (megatron_real(m, F_OFFLOAD_FRACTION, 1) < 1)
    launch_note(l, "%s: which share of the optimizer leaves the device is the plan's",
                megatron_from(m, F_OFFLOAD_FRACTION));
}

/* ---- recomputation ---- */

static void pin_full(megatron *m, int64_t tensor) {
  launch *l = m->l;
  const char *method = megatron_text(m, F_RECOMPUTE_METHOD, "");
  const char *from = zp_format(l->arena, "--recompute-granularity full --recompute-method %s", method);
  int64_t layers = megatron_int(m, F_RECOMPUTE_LAYERS, 0);
  launch_pin(l, "recompute", "\"full\"", from);
  bool block = strcmp(method, "block") == 0;
  if (!block && strcmp(method, "uniform") != 0)
    launch_complain(l, m->given[F_RECOMPUTE].at,
                    "--recompute-granularity full wants --recompute-method uniform or block");
  else if (layers < 1)
    launch_complain(l, m->given[F_RECOMPUTE].at, "--recompute-granularity full wants --recompute-num-layers");
  else if (block)
    launch_pin_int(l, "recompute_layers", layers, megatron_from(m, F_RECOMPUTE_LAYERS));
  else if (layers > 1)
    launch_note(l, "--recompute-num-layers %lld with uniform: inputs of all layers are counted, not of every %lld-th",
                (long long)layers, (long long)layers);
  bool split = megatron_has(m, F_DISTRIBUTE_SAVED);
  if (split && tensor == 1)
    launch_complain(l, m->given[F_DISTRIBUTE_SAVED].at,
                    "--distribute-saved-activations wants --tensor-model-parallel-size above 1");
  megatron_clash(m, F_SEQUENCE_PARALLEL, F_DISTRIBUTE_SAVED, "what is kept is split along the sequence already");
  if (tensor > 1 && !megatron_has(m, F_SEQUENCE_PARALLEL))
    launch_pin(l, "recompute_shard", split ? "\"tensor\"" : "\"none\"", megatron_from(m, F_DISTRIBUTE_SAVED));
}

static void pin_recompute(megatron *m, int64_t tensor) {
  launch *l = m->l;
  const char *word = megatron_text(m, F_RECOMPUTE, megatron_has(m, F_RECOMPUTE_OLD) ? "selective" : "none");
  if (strcmp(word, "full") == 0) {
    megatron_clash(m, F_RECOMPUTE, F_RECOMPUTE_OLD, "the latter is selective recomputation");
    pin_full(m, tensor);
    return;
  }
  if (strcmp(word, "none") != 0 && strcmp(word, "selective") != 0)
    launch_complain(l, m->given[F_RECOMPUTE].at, "--recompute-granularity is full or selective, not `%s`", word);
  if (strcmp(word, "selective") == 0)
    megatron_clash(m, F_RECOMPUTE, F_RECOMPUTE_METHOD, "a method is for full recomputation");
  if (strcmp(word, "selective") == 0)
    megatron_clash(m, F_RECOMPUTE, F_RECOMPUTE_LAYERS, "layers are counted with full recomputation");
  const char *modules = megatron_text(m, F_RECOMPUTE_MODULES, "core_attn");
  bool more = strcmp(word, "selective") == 0 && strcmp(modules, "core_attn") != 0;
  const char *from = megatron_has(m, F_RECOMPUTE) ? zp_format(l->arena, "%s, %s", megatron_from(m, F_RECOMPUTE),
                                                              megatron_from(m, F_RECOMPUTE_MODULES))
                                                  : megatron_from(m, F_RECOMPUTE);
  launch_pin(l, "recompute", more ? "\"selective\"" : "\"none\"", from);
  if (more)
    launch_note(l, "--recompute-modules %s: planned as `selective`, which rebuilds norms and activations", modules);
  else if (strcmp(word, "selective") == 0)
    launch_note(
        l, "--recompute-granularity selective of core_attn: planned as no recomputation, because attention keeps no "
           "scores; its time in backward is not counted");
}

/* ---- all of it ---- */

static void check_batch(megatron *m) {
  megatron_clash(m, F_GLOBAL, F_STEP_BATCH, "Megatron-LM takes the batch from one of them");
  if (megatron_has(m, F_RAMPUP))
    launch_note(m->l, "%s is not planned: every step has the full batch", megatron_from(m, F_RAMPUP));
  if (megatron_has(m, F_STEP_BATCH) && !megatron_has(m, F_GLOBAL))
    launch_refuse(m->l, m->given[F_STEP_BATCH].at,
                  "--step-batch-size-schedule: a plan is for one batch; give the one to plan, "
                  "-- --global-batch-size N, without the schedule");
}

void megatron_plan(megatron *m) {
  launch *l = m->l;
  int64_t tensor = degree(m, F_TENSOR), pipeline = degree(m, F_PIPELINE), context = degree(m, F_CONTEXT);
  int64_t micro = degree(m, F_MICRO), ranks = tensor * pipeline * context;
  if (!megatron_has(m, F_MICRO))
    launch_complain(l, ZP_NO_SPAN, "--micro-batch-size is missing, which Megatron-LM needs");
  check_batch(m);
  check_divides(m, tensor);
  launch_pin_int(l, "tensor", tensor, megatron_from(m, F_TENSOR));
  bool sequence = tensor > 1 && megatron_has(m, F_SEQUENCE_PARALLEL);
  launch_pin(l, "sequence", sequence ? "true" : "false", megatron_from(m, F_SEQUENCE_PARALLEL));
  pin_pipeline(m, pipeline);
  pin_context(m, context);
  pin_experts(m, tensor);
  bool good = launch_batch(l, ranks,
                           zp_format(l->arena, "tensor %lld x pipeline %lld x context %lld", (long long)tensor,
                                     (long long)pipeline, (long long)context),
                           micro, megatron_from(m, F_MICRO), megatron_has(m, F_GLOBAL) ? degree(m, F_GLOBAL) : 0,
                           megatron_from(m, F_GLOBAL), m->given[F_GLOBAL].at);
  int64_t data = good ? l->gpus / ranks : 0, expert = degree(m, F_EXPERT);
  int64_t width = megatron_has(m, F_EXPERT_TENSOR) ? degree(m, F_EXPERT_TENSOR) : tensor;
  if (good && l->model.experts && l->gpus / pipeline % (expert * width) != 0)
    launch_complain(l, m->given[F_EXPERT].at,
                    "--expert-model-parallel-size %lld times experts' tensor ranks %lld do not divide the "
                    "%lld ranks of a stage",
                    (long long)expert, (long long)width, (long long)(l->gpus / pipeline));
  pin_state(m, pipeline, data);
  pin_recompute(m, tensor);
}
