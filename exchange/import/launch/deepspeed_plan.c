/* SPDX-License-Identifier: Apache-2.0 */
/* Batch, ZeRO, offloading and kept activations of DeepSpeed's configuration as limits of a plan block. */
#include "deepspeed_import.h"

/* Two of batch, micro-batch and accumulation give the third; one of them alone is without accumulation
 * (runtime/config.py, _set_batch_related_parameters). */
static void pin_batch(config *d, int64_t ranks) {
  launch *l = d->l;
  int64_t batch = config_int(d, "train_batch_size", 0, 1, MOST_BATCH);
  int64_t micro = config_int(d, "train_micro_batch_size_per_gpu", 0, 1, MOST_BATCH);
  int64_t steps = config_int(d, "gradient_accumulation_steps", 0, 1, MOST_BATCH);
  if (!launch_is_sound(l)) return;
  if (!batch && !micro) {
    zp_diag *diag =
        launch_complain(l, ZP_NO_SPAN, "neither train_batch_size nor train_micro_batch_size_per_gpu is a number");
    zp_diag_help(diag, "give it after `--`: -- train_micro_batch_size_per_gpu=4");
    return;
  }
  if (l->gpus > 0 && l->gpus % ranks == 0) {
    int64_t data = l->gpus / ranks, times = data * (steps ? steps : 1);
    int64_t all = launch_times(micro, times);
    if (batch && micro && steps && batch != all) {
      launch_complain(
          l, config_at(d, "train_batch_size"),
          "train_batch_size %lld is not train_micro_batch_size_per_gpu %lld x gradient_accumulation_steps %lld x "
          "%lld data ranks = %lld",
          (long long)batch, (long long)micro, (long long)steps, (long long)data, (long long)all);
      return;
    }
    if (!micro && batch % times != 0) {
      launch_complain(l, config_at(d, "train_batch_size"),
                      "train_batch_size %lld does not divide over %lld data ranks and gradient_accumulation_steps %lld",
                      (long long)batch, (long long)data, (long long)(steps ? steps : 1));
      return;
    }
    if (!micro) micro = batch / times;
    if (!batch) batch = all;
  }
  launch_batch(l, ranks, config_from(d, "tensor_parallel.autotp_size"), micro ? micro : 1,
               config_from(d, "train_micro_batch_size_per_gpu"), batch, config_from(d, "train_batch_size"),
               config_at(d, "train_batch_size"));
}

static const char *device_of(config *d, const char *path, const char *old) {
  const char *device = config_text(d, path, config_bool(d, old, false) ? "cpu" : "none");
  if (launch_among("none cpu nvme", device)) return device;
  launch_complain(d->l, config_at(d, path), "`%s` is none, cpu or nvme, not `%s`", path, device);
  return "none";
}

static void pin_offload(config *d, int64_t stage) {
  launch *l = d->l;
  const char *path = "zero_optimization.offload_optimizer.device",
             *of_params = "zero_optimization.offload_param.device";
  const char *optimizer = device_of(d, path, "zero_optimization.cpu_offload");
  const char *params = device_of(d, of_params, "zero_optimization.cpu_offload_params");
  bool leaves = strcmp(optimizer, "none") != 0, params_leave = strcmp(params, "none") != 0;
  if (leaves && stage == 0)
    launch_complain(l, config_at(d, path),
                    "offload_optimizer and zero_optimization.stage 0 contradict each other: ZeRO 1 to 3 offload");
  if (params_leave && stage < 3)
    launch_complain(l, config_at(d, of_params),
                    "offload_param and zero_optimization.stage %lld contradict each other: ZeRO 3 offloads parameters",
                    (long long)stage);
  if (strcmp(optimizer, "nvme") == 0 && stage < 3)
    launch_complain(l, config_at(d, path),
                    "offload_optimizer on nvme and zero_optimization.stage %lld contradict each other: ZeRO 3 has that",
                    (long long)stage);
  launch_pin(l, "offload[optimizer]", zp_format(l->arena, "\"%s\"", optimizer), config_from(d, path));
  if (leaves && stage >= 2)
    launch_pin(l, "offload[gradients]", "\"cpu\"", "gradients go to the host with the optimizer from ZeRO 2 on");
  if (params_leave) launch_pin(l, "offload[params]", zp_format(l->arena, "\"%s\"", params), config_from(d, of_params));
  if (config_real(d, "zero_optimization.offload_optimizer.ratio", 1, 0, 1) < 1)
    launch_note(
        l, "zero_optimization.offload_optimizer.ratio: which share of the optimizer leaves the device is the plan's");
}

static void pin_groups(config *d, int64_t stage, int64_t data) {
  launch *l = d->l;
  int64_t group = config_int(d, "zero_optimization.mics_shard_size", -1, -1, MOST_RANKS);
  if (group > 0 && stage < 3)
    launch_complain(l, config_at(d, "mics_shard_size"),
                    "mics_shard_size %lld and zero_optimization.stage %lld contradict each other: MiCS is ZeRO 3",
                    (long long)group, (long long)stage);
  else if (group > 0 && data % group != 0)
    launch_complain(l, config_at(d, "mics_shard_size"), "mics_shard_size %lld does not divide %lld data ranks",
                    (long long)group, (long long)data);
  else if (group > 0 && group < data)
    launch_pin_int(l, "shard", group, config_from(d, "zero_optimization.mics_shard_size"));
  int64_t copies = config_int(d, "zero_optimization.zero_hpz_partition_size", 1, 0, MOST_RANKS);
  if (copies > 1 && stage < 3)
    launch_note(l, "`zero_optimization.zero_hpz_partition_size` (%lld) has no effect: ZeRO %lld divides no parameters",
                (long long)copies, (long long)stage);
  else if (copies > 1 && data % copies != 0)
    launch_complain(l, config_at(d, "zero_hpz_partition_size"),
                    "zero_hpz_partition_size %lld does not divide %lld data ranks", (long long)copies, (long long)data);
  else if (copies > 1 && group > 0 && group < data)
    launch_complain(l, config_at(d, "zero_hpz_partition_size"),
                    "zero_hpz_partition_size %lld and mics_shard_size %lld contradict each other: hpZ divides state "
                    "among all data ranks",
                    (long long)copies, (long long)group);
  else if (copies > 1 && copies < data)
    launch_pin_int(l, "hpz", copies, config_from(d, "zero_optimization.zero_hpz_partition_size"));
}

/* The keys act where the model's code calls deepspeed.checkpointing. */
static void pin_activations(config *d, int64_t tensor) {
  launch *l = d->l;
  bool split = config_bool(d, "activation_checkpointing.partition_activations", false);
  bool host = config_bool(d, "activation_checkpointing.cpu_checkpointing", false);
  bool any = config_has(d, "activation_checkpointing");
  launch_pin(l, "recompute", any ? "\"full\"" : "\"none\"",
             any ? "activation_checkpointing" : "no activation_checkpointing");
  if (any && tensor > 1)
    launch_pin(l, "recompute_shard", split ? "\"tensor\"" : "\"none\"",
               config_from(d, "activation_checkpointing.partition_activations"));
  if (host)
    launch_pin(l, "offload[activations]", "\"cpu\"", config_from(d, "activation_checkpointing.cpu_checkpointing"));
  if (!any)
    launch_note(l, "recompute = \"none\" is pinned: whether layers are recomputed is the model's code; --set "
                   "recompute=full plans that");
}

void deepspeed_plan(config *d) {
  launch *l = d->l;
  int64_t stage = config_int(d, "zero_optimization.stage", 0, 0, 3);
  int64_t tensor = config_int(d, "tensor_parallel.autotp_size", 1, 0, MOST_RANKS);
  int64_t pipeline = config_int(d, "pipeline.stages", 1, 1, MOST_RANKS);
  if (tensor == 0) tensor = 1;
  if (pipeline > 1 && stage >= 2)
    launch_complain(
        l, config_at(d, "stages"),
        "pipeline.stages %lld and zero_optimization.stage %lld contradict each other: a pipeline takes ZeRO 0 or 1",
        (long long)pipeline, (long long)stage);
  launch_pin_int(l, "tensor", tensor, config_from(d, "tensor_parallel.autotp_size"));
  launch_pin_int(l, "pipeline", pipeline,
                 config_has(d, "pipeline.stages") ? config_from(d, "pipeline.stages")
                                                  : "stages are Python: -- pipeline.stages=N says how many");
  launch_pin(l, "sequence", "false", NULL);
  if (pipeline > 1) launch_pin(l, "schedule", "\"1f1b\"", NULL);
  if (pipeline > 1) deepspeed_cut(d, pipeline);
  pin_batch(d, tensor * pipeline);
  if (!launch_is_sound(l)) return;
  launch_pin_int(l, "zero", stage, config_from(d, "zero_optimization.stage"));
  pin_groups(d, stage, l->gpus / (tensor * pipeline));
  pin_offload(d, stage);
  pin_activations(d, tensor);
}
