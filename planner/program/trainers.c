/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions that do not go together in the program that a plan is for. What one key decides is in narrow.c. */
#include <zplan/abilities.h>

#include <assert.h>
#include <zplan/moves.h>
#include <zplan/software.h>

static bool leaves(const zp_choice *c, zp_state state) { return c->home[state].eighths > 0; }

/* --cpu-offloading-num-layers, of fewer layers than there are (core/transformer/transformer_config.py of d98e8a64;
 * opened). */
static const char *refuse_saved_of_megatron(const zp_choice *c) {
  if (c->pipeline > 1) return "Megatron-LM offloads activations without a pipeline alone";
  if (c->recompute != ZP_RECOMPUTE_NONE || zp_choice_has_modes(c) || c->mix)
    return "Megatron-LM does not offload activations where it recomputes some";
  return c->home[ZP_STATE_ACTIVATIONS].eighths >= 8 ? "Megatron-LM keeps activations of a layer on the device" : NULL;
}

/* The distributed optimizer is ZeRO 1; ZeRO 2 and 3 are Megatron FSDP, without a pipeline. */
static const char *refuse_megatron(const zp_train *train, const zp_choice *c) {
  const char *saved = leaves(c, ZP_STATE_ACTIVATIONS) ? refuse_saved_of_megatron(c) : NULL;
  if (saved) return saved;
  if (c->zero >= 2 && c->pipeline > 1) return "Megatron FSDP, which is ZeRO 2 and 3, goes without a pipeline";
  if (!leaves(c, ZP_STATE_OPTIMIZER)) return NULL;
  if (!zp_optimizer_facts(train)->is_adam) return "Megatron-LM offloads Adam, no other optimizer";
  return c->zero == 0 && c->data > 1 ? "Megatron-LM offloads the distributed optimizer, which is ZeRO 1" : NULL;
}

/* Source of the rules: deepspeed/runtime/zero/config.py and offload_config.py, as in ../export/deepspeed_memory.c. */
static const char *refuse_deepspeed(const zp_train *train, const zp_choice *c) {
  int zero = c->data > 1 ? c->zero : 3; /* one rank shards nothing at any stage */
  const zp_home *home = c->home;
  if (c->zero >= 2 && c->pipeline > 1) return "DeepSpeed refuses ZeRO 2 and 3 with a pipeline";
  if (c->shard > 0 && (c->zero < 3 || c->tensor > 1 || c->pipeline > 1))
    return "DeepSpeed's shard groups (MiCS) are of ZeRO 3, without tensor ranks and stages";
  if (c->shard > 0 && (leaves(c, ZP_STATE_OPTIMIZER) || leaves(c, ZP_STATE_GRADIENTS) || leaves(c, ZP_STATE_PARAMS)))
    return "DeepSpeed's shard groups (MiCS) keep their state on the device";
  if (c->hpz > 0 && c->tensor > 1) return "DeepSpeed's hpZ groups are neighbours of all ranks, without tensor ranks";
  if (c->compress && c->zero > 0) return "DeepSpeed refuses 1-bit Adam with ZeRO";
  if (train->precision == ZP_PREC_MIXED_BF16 && zero < 1) return "DeepSpeed sums bf16 gradients in fp32 from ZeRO 1 on";
  if (leaves(c, ZP_STATE_OPTIMIZER)) {
    if (!zp_optimizer_facts(train)->is_adam) return "DeepSpeed offloads Adam, no other optimizer";
    if (zero < 1) return "DeepSpeed offloads the optimizer from ZeRO 1 on";
    if (home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_NVME && zero < 3) return "DeepSpeed uses disks with ZeRO 3";
  }
  if (leaves(c, ZP_STATE_GRADIENTS)) {
    if (zero < 2) return "DeepSpeed offloads gradients from ZeRO 2 on";
    if (!leaves(c, ZP_STATE_OPTIMIZER)) return "DeepSpeed keeps gradients where the optimizer is";
  }
  if (leaves(c, ZP_STATE_PARAMS) && (zero < 3 || (c->data > 1 && c->zero < 3)))
    return "DeepSpeed offloads parameters with ZeRO 3";
  bool full = c->recompute == ZP_RECOMPUTE_FULL && !zp_choice_has_modes(c);
  if (leaves(c, ZP_STATE_ACTIVATIONS) && !full) return "DeepSpeed moves the inputs of recomputed layers to the host";
  return NULL;
}

const char *zp_trainer_refusal(zp_trainer trainer, const zp_train *train, const zp_choice *choice) {
  assert(trainer < ZP_TRAINER_COUNT && zp_choice_has_degrees(choice));
  bool other = trainer == ZP_TRAINER_MEGATRON || trainer == ZP_TRAINER_DEEPSPEED || trainer == ZP_TRAINER_FSDP;
  if (other && train->ema > 0) return "an average of the weights is planned for zplan's own trainer alone";
  if (other && choice->hpz > 0 && trainer != ZP_TRAINER_DEEPSPEED)
    return "a second copy of the parameters (`hpz`) is planned for DeepSpeed and zplan's own trainer alone";
  const char *optimizer = zp_optimizer_facts(train)->not_with[ZP_LIMIT_OTHER_TRAINERS];
  if (other && optimizer) return optimizer;
  if (other && zp_loss_chunks(choice) > 1) return "the loss in chunks is planned for zplan's own trainer alone";
  switch (trainer) {
  case ZP_TRAINER_ZPLAN: return zp_choice_lacking(choice);
  case ZP_TRAINER_MEGATRON: return refuse_megatron(train, choice);
  case ZP_TRAINER_DEEPSPEED: return refuse_deepspeed(train, choice);
  case ZP_TRAINER_FSDP:
  case ZP_TRAINER_NONE:
  case ZP_TRAINER_COUNT: break;
  }
  return NULL;
}
