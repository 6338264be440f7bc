/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO, offloading and kept activations as keys of DeepSpeed (deepspeed/runtime/zero/config.py, offload_config.py). */
#include "deepspeed.h"

static bool offloaded(const zp_exporter *e, zp_state state) { return e->choice->home[state].tier != ZP_TIER_DEVICE; }

/* Why the file needs a stage that the plan does not have; NULL: it does not. Without ZeRO gradients of 16 bits are
 * summed in 16 bits (deepspeed/runtime/engine.py, _do_optimizer_sanity_check). */
static const char *reason_of(const zp_exporter *e, int *stage) {
  bool sums = zp_is_mixed(&e->spec->train) && zp_export_grad_bytes(e) == 4;
  *stage = offloaded(e, ZP_STATE_GRADIENTS) ? 2 : offloaded(e, ZP_STATE_OPTIMIZER) || sums ? 1 : 0;
  if (*stage <= e->choice->zero) return NULL;
  if (*stage == 2) return "gradients off the device";
  return offloaded(e, ZP_STATE_OPTIMIZER) ? "the optimizer off the device" : "fp32 sums of 16-bit gradients";
}

/* The stage to write. One rank shards nothing at any stage. */
static int stage_of(zp_exporter *e) {
  int needed = 0;
  const char *reason = reason_of(e, &needed);
  if (!reason) return e->choice->zero;
  if (e->choice->data > 1)
    zp_export_refuse(e, zp_format(e->arena, "--set zero=%d", needed),
                     "%s: DeepSpeed has that from ZeRO %d on, the plan has ZeRO %d", reason, needed, e->choice->zero);
  else
    zp_export_note(
        e, "ZeRO %d of one data rank is written as stage %d, which %s needs and which shards nothing over one rank",
        e->choice->zero, needed,
        needed == 1 && !offloaded(e, ZP_STATE_OPTIMIZER) ? "an fp32 sum of gradients" : "offloading");
  return needed;
}

static const char *device_of(zp_tier tier) { return tier == ZP_TIER_NVME ? "nvme" : "cpu"; }

static zp_json *put_device(zp_exporter *e, zp_json *zero, const char *key, zp_state state) {
  zp_tier tier = e->choice->home[state].tier;
  zp_json *offload = zp_json_set(zero, key, zp_json_object());
  zp_json_set_string(offload, "device", device_of(tier));
  if (tier == ZP_TIER_NVME) {
    zp_json_set_string(offload, "nvme_path", "/local_nvme");
    zp_export_note(e, "%s: nvme_path is to be set to the folder of the node's disks", key);
  }
  zp_json_set_bool(offload, "pin_memory", true);
  return offload;
}

static void put_optimizer(zp_exporter *e, zp_json *zero, int stage) {
  zp_home home = e->choice->home[ZP_STATE_OPTIMIZER];
  if (!offloaded(e, ZP_STATE_OPTIMIZER)) return;
  const zp_optimizer *row = zp_optimizer_facts(&e->spec->train);
  if (row->deepspeed && !row->is_adam)
    zp_export_refuse(e, "adamw, or --set 'offload[optimizer]=none'", "%s off the device: DeepSpeed offloads Adam",
                     row->name);
  if (home.tier == ZP_TIER_NVME && stage < 3)
    zp_export_refuse(e, "--set zero=3, or --set 'offload[optimizer]=cpu'",
                     "the optimizer on NVMe with ZeRO %d: DeepSpeed has "
                     "that with ZeRO 3",
                     stage);
  zp_json *offload = put_device(e, zero, "offload_optimizer", ZP_STATE_OPTIMIZER);
  if (home.eighths == 8) return;
  if (stage < 3 || home.tier == ZP_TIER_NVME)
    zp_export_note(
        e,
        "all of the optimizer goes to the %s, not %d/8: DeepSpeed divides it with ZeRO 3 and the host alone; it "
        "takes more memory there and more time",
        zp_tier_name(home.tier), home.eighths);
  else
    zp_json_set_real(offload, "ratio", home.eighths / 8.0);
}

static void put_others(zp_exporter *e, zp_json *zero, int stage) {
  const zp_home *home = e->choice->home;
  zp_home gradients = home[ZP_STATE_GRADIENTS], params = home[ZP_STATE_PARAMS];
  if (offloaded(e, ZP_STATE_GRADIENTS) && !offloaded(e, ZP_STATE_OPTIMIZER))
    zp_export_refuse(e, "--set 'offload[optimizer]=cpu'", "gradients off the device and the optimizer on it");
  if (offloaded(e, ZP_STATE_GRADIENTS) && gradients.tier != home[ZP_STATE_OPTIMIZER].tier)
    zp_export_note(e, "gradients go where the optimizer is, in the plan to the %s", zp_tier_name(gradients.tier));
  if (offloaded(e, ZP_STATE_GRADIENTS) && gradients.eighths < 8)
    zp_export_note(e, "all gradients leave the device, not %d/8: that takes more memory there and more time",
                   gradients.eighths);
  if (!offloaded(e, ZP_STATE_PARAMS)) return;
  if (stage < 3)
    zp_export_refuse(e, "--set zero=3", "parameters off the device with ZeRO %d: DeepSpeed has that with ZeRO 3",
                     stage);
  put_device(e, zero, "offload_param", ZP_STATE_PARAMS);
  if (params.eighths < 8)
    zp_export_note(e, "all parameters go to the %s, not %d/8: that takes more memory there and more time",
                   zp_tier_name(params.tier), params.eighths);
}

/* The keys of activation_checkpointing act where model code calls deepspeed.checkpointing. */
static void put_activations(zp_exporter *e, zp_json *root) {
  const zp_choice *c = e->choice;
  zp_home home = c->home[ZP_STATE_ACTIVATIONS];
  zp_recompute mode = zp_export_recompute(e);
  bool split = false;
  for (int s = 0; s < c->pipeline; s++) split |= zp_stage_mode_split(zp_choice_mode(c, s));
  if (offloaded(e, ZP_STATE_ACTIVATIONS) && (mode != ZP_RECOMPUTE_FULL || home.tier == ZP_TIER_NVME))
    zp_export_refuse(e, "--set recompute=full --set 'offload[activations]=cpu'",
                     "activations on %s with recompute %s: DeepSpeed moves the inputs of recomputed layers to the host",
                     zp_tier_name(home.tier), zp_recompute_name(mode));
  if (offloaded(e, ZP_STATE_ACTIVATIONS) && home.eighths < 8)
    zp_export_note(e, "the inputs of all layers go to the host, not %d/8: that takes more memory there and more time",
                   home.eighths);
  if (mode == ZP_RECOMPUTE_SELECTIVE)
    zp_export_note(e, "recompute selective is the model's: it has to rebuild norms and activations in backward");
  if (mode != ZP_RECOMPUTE_FULL) return;
  zp_json *keys = zp_json_set(root, "activation_checkpointing", zp_json_object());
  zp_json_set_bool(keys, "partition_activations", split);
  zp_json_set_bool(keys, "cpu_checkpointing", offloaded(e, ZP_STATE_ACTIVATIONS));
  zp_export_note(e, c->pipeline > 1
                        ? "recompute full: PipelineModule(..., activation_checkpoint_interval=1)"
                        : "recompute full: the model has to call deepspeed.checkpointing.checkpoint on every layer");
}

/* Shard groups of the whole world (deepspeed/runtime/zero/mics_utils.py); with ZeRO 1 and 2, and where state leaves the
 * device, there are none (mics.py). */
static void put_groups(zp_exporter *e, zp_json *zero, int stage) {
  const zp_choice *c = e->choice;
  bool leaves = offloaded(e, ZP_STATE_OPTIMIZER) || offloaded(e, ZP_STATE_GRADIENTS) || offloaded(e, ZP_STATE_PARAMS);
  if (c->shard == 0) return;
  if (stage < 3 || c->tensor > 1 || c->pipeline > 1 || leaves)
    zp_export_refuse(e, zp_format(e->arena, "--set shard=%d", c->data),
                     "ZeRO %d in groups of %d data ranks: DeepSpeed has such groups (MiCS) with ZeRO 3 alone, without "
                     "tensor ranks, stages and state off the device",
                     c->zero, c->shard);
  zp_json_set_int(zero, "mics_shard_size", c->shard);
  zp_export_note(e,
                 "shard groups are MiCS: the model is made inside deepspeed.zero.MiCS_Init(config_dict_or_path=...)");
}

/* A second copy of the parameters among neighbours of the whole world (deepspeed/utils/groups.py,
 * _create_zero_param_parallel_group). */
static void put_hpz(zp_exporter *e, zp_json *zero) {
  const zp_choice *c = e->choice;
  if (c->hpz == 0) return;
  if (c->tensor > 1 || c->pipeline > 1)
    zp_export_refuse(
        e, "--set hpz=1",
        "a second copy of the parameters among %d data ranks: DeepSpeed's hpZ groups are neighbours of all "
        "ranks, without tensor ranks and stages",
        c->hpz);
  zp_json_set_int(zero, "zero_hpz_partition_size", c->hpz);
}

void zp_deepspeed_memory(zp_exporter *e, zp_json *root) {
  int stage = stage_of(e);
  if (stage > 0) {
    zp_json *zero = zp_json_set(root, "zero_optimization", zp_json_object());
    zp_json_set_int(zero, "stage", stage);
    zp_json_set_bool(zero, "overlap_comm", true);
    zp_json_set_bool(zero, "contiguous_gradients", true);
    put_groups(e, zero, stage);
    put_hpz(e, zero);
    put_optimizer(e, zero, stage);
    put_others(e, zero, stage);
  }
  put_activations(e, root);
}
