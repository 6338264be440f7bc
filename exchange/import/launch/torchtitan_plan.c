/* SPDX-License-Identifier: Apache-2.0 */
/* Degrees, batch, sharding, stages and recomputation of torchtitan's configuration as limits of a plan block. */
#include "torchtitan.h"

#include <stdlib.h>

/* Ranks of each axis. */
typedef struct degrees {
  int64_t replicate, shard, tensor, pipeline, context;
} degrees;

static int64_t degree(config *d, const char *path) { return config_int(d, path, 1, 1, MOST_RANKS); }

/* data_parallel_shard_degree -1 takes what is left of the GPUs; without it the degrees say how many there are. */
static bool read_degrees(config *d, degrees *n) {
  launch *l = d->l;
  *n = (degrees){.replicate = degree(d, "parallelism.data_parallel_replicate_degree"),
                 .shard = config_int(d, "parallelism.data_parallel_shard_degree", -1, -1, MOST_RANKS),
                 .tensor = degree(d, "parallelism.tensor_parallel_degree"),
                 .pipeline = degree(d, "parallelism.pipeline_parallel_degree"),
                 .context = degree(d, "parallelism.context_parallel_degree")};
  if (!launch_is_sound(l)) return false;
  int64_t others = launch_times(launch_times(n->replicate, n->tensor), launch_times(n->pipeline, n->context));
  if (n->shard == 0) {
    launch_complain(l, config_at(d, "parallelism.data_parallel_shard_degree"),
                    "data_parallel_shard_degree is 0: -1 takes the GPUs that are left");
    return false;
  }
  if (launch_times(others, n->shard > 0 ? n->shard : 1) > MOST_RANKS) {
    launch_complain(l, ZP_NO_SPAN, "the degrees are of more than %d GPUs", MOST_RANKS);
    return false;
  }
  if (n->shard > 0 && l->gpus == 0) {
    l->gpus = others * n->shard;
    l->gpus_from = "the product of the degrees";
  }
  if (l->gpus == 0) {
    launch_complain(l, ZP_NO_SPAN,
                    "%s does not say how many GPUs there are (data_parallel_shard_degree -1): give --gpus N", l->path);
    return false;
  }
  if (n->shard < 0 && l->gpus % others == 0) n->shard = l->gpus / others;
  if (n->shard > 0 && others * n->shard == l->gpus) return true;
  launch_complain(l, config_at(d, "parallelism.data_parallel_shard_degree"),
                  "replicate %lld x shard %lld x tensor %lld x pipeline %lld x context %lld are not the %lld GPUs (%s)",
                  (long long)n->replicate, (long long)n->shard, (long long)n->tensor, (long long)n->pipeline,
                  (long long)n->context, (long long)l->gpus, l->gpus_from);
  return false;
}

/* ---- batch ---- */

/* Samples of a data rank; -1 after complaining. Today's configurations count tokens. */
static int64_t local_batch(config *d, const char **from) {
  launch *l = d->l;
  const char *tokens = "training.num_tokens_per_microbatch_per_dp_rank";
  *from = config_has(d, "training.batch_size") ? "training.batch_size" : "training.local_batch_size";
  if (!config_has(d, tokens)) return config_int(d, *from, 8, 1, MOST_BATCH);
  if (config_has(d, *from)) {
    launch_complain(l, config_at(d, *from), "%s and %s contradict each other: both are the batch of a data rank", *from,
                    tokens);
    return -1;
  }
  *from = tokens;
  int64_t n = config_int(d, tokens, 0, 1, INT64_C(1) << 40), length = l->model.sequence;
  if (length > 0 && n % length == 0) return n / length;
  launch_complain(l, config_at(d, tokens), "%s %lld is no multiple of training.max_context_length %lld", tokens,
                  (long long)n, (long long)length);
  return -1;
}

static void pin_batch(config *d, const degrees *n) {
  launch *l = d->l;
  const char *from, *micro_from, *of_batch = "training.global_batch_size",
                                 *of_tokens = "training.num_tokens_per_train_step";
  int64_t local = local_batch(d, &from), data = n->replicate * n->shard, micro = local;
  if (local < 0) return;
  bool by_tokens = config_has(d, "training.num_tokens_per_microbatch_per_dp_rank");
  micro_from = config_from(d, from);
  int64_t batch = config_int(d, of_batch, -1, -1, MOST_BATCH);
  if (by_tokens) {
    int64_t tokens = config_int(d, of_tokens, -1, -1, INT64_C(1) << 50);
    batch = tokens > 0 ? tokens / l->model.sequence
                       : launch_times(local * data, config_int(d, "parallelism.num_pp_microbatches", 1, 1, MOST_BATCH));
    of_batch = of_tokens;
  } else if (n->pipeline > 1) {
    micro = config_int(d, "parallelism.pipeline_parallel_microbatch_size", 1, 1, MOST_BATCH);
    micro_from = config_from(d, "parallelism.pipeline_parallel_microbatch_size");
    if (local % micro != 0) {
      launch_complain(l, config_at(d, "pipeline_parallel_microbatch_size"),
                      "%s %lld is no multiple of pipeline_parallel_microbatch_size %lld", from, (long long)local,
                      (long long)micro);
      return;
    }
  }
  if (batch < 1) batch = local * data;
  launch_batch(l, n->tensor * n->pipeline * n->context,
               zp_format(l->arena, "tensor %lld x pipeline %lld x context %lld", (long long)n->tensor,
                         (long long)n->pipeline, (long long)n->context),
               micro, micro_from, batch,
               config_has(d, of_batch) ? config_from(d, of_batch) : zp_format(l->arena, "%s on every data rank", from),
               config_at(d, of_batch));
}

/* ---- pipeline ---- */

static void pin_pipeline(config *d, int64_t pipeline) {
  launch *l = d->l;
  const char *path = "parallelism.pipeline_parallel_schedule", *name = config_text(d, path, "1F1B");
  launch_pin_int(l, "pipeline", pipeline, config_from(d, "parallelism.pipeline_parallel_degree"));
  if (pipeline == 1) return;
  bool several = strcmp(name, "Interleaved1F1B") == 0 || strcmp(name, "InterleavedZeroBubble") == 0 ||
                 strcmp(name, "LoopedBFS") == 0 || strcmp(name, "ZBVZeroBubble") == 0 || strcmp(name, "DualPipeV") == 0;
  if (!several && strcmp(name, "1F1B") != 0 && strcmp(name, "GPipe") != 0) {
    launch_complain(l, config_at(d, path),
                    "%s is no schedule of torchtitan: 1F1B, GPipe, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, "
                    "ZBVZeroBubble and DualPipeV are",
                    name);
    return;
  }
  if (strcmp(name, "1F1B") != 0 && strcmp(name, "Interleaved1F1B") != 0)
    launch_note(l, "`%s` (%s) is not planned: %s is", path, name, several ? "Interleaved1F1B" : "1F1B");
  launch_pin(l, "schedule", several ? "\"interleaved\"" : "\"1f1b\"", config_from(d, path));
  torchtitan_cut(d, pipeline, several);
}

/* ---- state, recomputation ---- */

static void pin_state(config *d, const degrees *n) {
  launch *l = d->l;
  const char *path = "parallelism.fsdp_reshard_after_forward", *word = config_text(d, path, "default");
  if (!launch_among("default always never", word))
    launch_complain(l, config_at(d, path), "fsdp_reshard_after_forward is default, always or never, not `%s`", word);
  bool keeps = strcmp(word, "never") == 0 || (strcmp(word, "default") == 0 && n->pipeline > 1);
  launch_pin_int(l, "zero", keeps ? 2 : 3, config_from(d, path));
  if (n->replicate > 1)
    launch_pin_int(l, "shard", n->shard * n->context,
                   zp_format(l->arena, "data_parallel_shard_degree %lld x context %lld", (long long)n->shard,
                             (long long)n->context));
  if (config_bool(d, "training.enable_cpu_offload", false))
    launch_refuse(l, config_at(d, "training.enable_cpu_offload"),
                  "training.enable_cpu_offload: plans for FSDP keep all state on the device");
}

static void pin_recompute(config *d, int64_t pipeline) {
  launch *l = d->l;
  const char *mode = config_text(d, "activation_checkpoint.mode", "selective"),
             *of_option = "activation_checkpoint.selective_ac_option";
  const char *from = config_from(d, "activation_checkpoint.mode");
  const zp_json *section = zp_json_get(d->root, "activation_checkpoint"),
                *value = section ? zp_json_get(section, "selective_ac_option") : NULL;
  const char *option = value ? zp_json_string(value, NULL) : "2";
  int64_t every = option ? strtoll(option, NULL, 10) : zp_json_int(value, 0);
  if (strcmp(mode, "none") == 0 || strcmp(mode, "full") == 0) {
    launch_pin(l, "recompute", zp_format(l->arena, "\"%s\"", mode), from);
  } else if (strcmp(mode, "memory_budget") == 0) {
    launch_pin(l, "recompute", "\"selective\"", from);
    launch_note(l, "activation_checkpoint.mode memory_budget: planned as selective recomputation");
  } else if (strcmp(mode, "selective") != 0) {
    launch_complain(l, config_at(d, "activation_checkpoint.mode"),
                    "activation_checkpoint.mode is none, selective, full or memory_budget, not `%s`", mode);
  } else if (option && strcmp(option, "op") == 0) {
    launch_pin(l, "recompute", "\"selective\"", "activation_checkpoint.selective_ac_option op");
    launch_note(
        l,
        "activation_checkpoint.selective_ac_option op: planned as `selective`, which rebuilds norms and activations; "
        "torchtitan rebuilds every second product, too, and keeps less");
  } else if (every < 1) {
    launch_complain(l, config_at(d, of_option), "selective_ac_option is op or a number of layers, not `%s`",
                    option ? option : zp_json_text(l->arena, value, false));
  } else {
    launch_pin(l, "recompute", "\"full\"",
               value ? config_from(d, of_option) : "activation_checkpoint.selective_ac_option 2, by default");
    int64_t of_stage = l->model.layers / pipeline / every;
    if (every > 1 && of_stage > 0)
      launch_pin_int(
          l, "recompute_layers", of_stage,
          zp_format(l->arena, "every %lld-th layer recomputes; here the first ones of a stage", (long long)every));
  }
}

void torchtitan_plan(config *d) {
  launch *l = d->l;
  degrees n;
  if (!read_degrees(d, &n)) return;
  if (l->model.layers &&
      (l->model.heads % n.tensor != 0 || (l->model.kv_heads % n.tensor != 0 && n.tensor % l->model.kv_heads != 0)))
    launch_complain(l, config_at(d, "tensor_parallel_degree"),
                    "%lld heads and %lld of keys and values do not divide over tensor_parallel_degree %lld",
                    (long long)l->model.heads, (long long)l->model.kv_heads, (long long)n.tensor);
  launch_pin_int(l, "tensor", n.tensor, config_from(d, "parallelism.tensor_parallel_degree"));
  bool sequence = n.tensor > 1 && config_bool(d, "parallelism.enable_sequence_parallel", true);
  launch_pin(l, "sequence", sequence ? "true" : "false", NULL);
  pin_pipeline(d, n.pipeline);
  launch_pin_int(l, "context", n.context, config_from(d, "parallelism.context_parallel_degree"));
  if (n.context > 1) launch_pin(l, "context_by", "\"keys\"", "torchtitan passes keys and values on");
  int64_t expert = degree(d, "parallelism.expert_parallel_degree");
  if (l->model.experts)
    launch_pin_int(l, "expert", expert, config_from(d, "parallelism.expert_parallel_degree"));
  else if (expert > 1 && !l->model_text)
    launch_complain(l, config_at(d, "expert_parallel_degree"),
                    "expert_parallel_degree %lld, and the model has no experts", (long long)expert);
  pin_batch(d, &n);
  pin_state(d, &n);
  pin_recompute(d, n.pipeline);
}
