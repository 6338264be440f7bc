/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer, learning rate and precision as keys of DeepSpeed (deepspeed/runtime/engine.py, lr_schedules.py). */
#include "deepspeed.h"

#include <assert.h>
#include <math.h>

static void put_onebit(zp_exporter *e, zp_json *optimizer, zp_json *params) {
  const zp_train *t = &e->spec->train;
  zp_json_set_string(optimizer, "type", "OneBitAdam");
  if (t->variance_every > 0) zp_export_refuse(e, "freeze_step = N", "freeze = growing: exports have no 0/1 Adam");
  if (t->freeze_threshold > 0)
    zp_export_refuse(e, "freeze_step = N", "freeze = auto: DeepSpeed's 1-bit Adam is told the step");
  zp_json_set_int(params, "freeze_step", zp_freeze_step(t));
  zp_json_set_string(params, "comm_backend_name", "nccl");
  zp_export_note(e, "1-bit Adam sends uncompressed gradients for the first %lld steps (freeze_step)",
                 (long long)zp_freeze_step(t));
  if (e->choice->zero > 0)
    zp_export_refuse(e, "--set zero=0", "1-bit Adam with ZeRO %d: DeepSpeed refuses the two together", e->choice->zero);
  if (!zp_optimizer_facts(t)->is_adam)
    zp_export_refuse(e, "adamw, or --set compress=false", "1-bit compression of no Adam");
}

/* The numbers of the optimizer's call: DeepSpeed and torch name them as the language does. */
static void put_options(const zp_train *t, const zp_optimizer *row, zp_json *params) {
  for (int i = 0; i < row->n_options; i++) {
    const zp_optimizer_option *o = &row->options[i];
    if (o->kind == ZP_OPTION_REAL) zp_json_set_real(params, o->name, zp_setting_real(t, o->value[0].at));
    if (o->kind != ZP_OPTION_LIST) continue;
    zp_json *list = zp_json_set(params, o->name, zp_json_array());
    for (int k = 0; k < o->n; k++) zp_json_append_real(list, zp_setting_real(t, o->value[k].at));
  }
}

static void put_optimizer(zp_exporter *e, zp_json *root) {
  const zp_train *t = &e->spec->train;
  zp_json *optimizer = zp_json_set(root, "optimizer", zp_json_object()), *params = zp_json_object();
  const zp_optimizer *row = zp_optimizer_facts(t);
  if (!row->deepspeed) zp_export_refuse(e, "adamw", "%s: its settings for DeepSpeed are not written", row->name);
  if (e->choice->compress)
    put_onebit(e, optimizer, params);
  else
    zp_json_set_string(optimizer, "type", row->deepspeed ? row->deepspeed : "");
  put_options(t, row, params);
  if (row->is_adam && row->decay_in_gradient && !e->choice->compress) zp_json_set_bool(params, "adam_w_mode", false);
  if (t->groups.len > 0)
    zp_export_refuse(e, "no groups", "groups of parameters: DeepSpeed takes them from the program, not from this file");
  zp_json_set(optimizer, "params", params);
  if (row->deepspeed && !row->is_adam && e->choice->zero > 0)
    zp_json_set_bool(root, "zero_allow_untested_optimizer", true);
  if (t->weight_decay > 0 && !t->decay_all)
    zp_export_note(e,
                   "weight decay is for matrices alone: give biases and norms a parameter group with weight_decay 0");
}

/* WarmupLR, WarmupDecayLR (falls to 0) and WarmupCosineLR; their warm-up is in a line and takes at least two steps. */
static void put_scheduler(zp_exporter *e, zp_json *root) {
  const zp_train *t = &e->spec->train;
  int64_t end = t->decay_steps > 0 ? t->decay_steps : t->steps;
  if (t->schedule == ZP_LR_RELATIVE) return; /* refused with its optimizer */
  if (t->schedule == ZP_LR_WSD) {
    zp_export_refuse(e, "constant, linear or cosine",
                     "learning rate schedule wsd: DeepSpeed has none that stays and then falls");
    return;
  }
  if (t->schedule == ZP_LR_CONSTANT && t->warmup == 0) return;
  if (t->warmup < 2)
    zp_export_refuse(e, "warmup = 2", "a warm-up of %lld steps: DeepSpeed's schedules take at least two",
                     (long long)t->warmup);
  if (t->schedule == ZP_LR_LINEAR && t->min_lr > 0)
    zp_export_refuse(e, "min_lr = 0, or cosine", "linear decay to min_lr = %g: DeepSpeed's falls to 0", t->min_lr);
  zp_json *scheduler = zp_json_set(root, "scheduler", zp_json_object()), *params = zp_json_object();
  static const char *const types[] = {
      [ZP_LR_CONSTANT] = "WarmupLR", [ZP_LR_LINEAR] = "WarmupDecayLR", [ZP_LR_COSINE] = "WarmupCosineLR"};
  zp_json_set_string(scheduler, "type", types[t->schedule]);
  if (t->schedule != ZP_LR_CONSTANT) zp_json_set_int(params, "total_num_steps", end);
  if (t->schedule == ZP_LR_COSINE) {
    zp_json_set_real(params, "warmup_min_ratio", 0);
    zp_json_set_real(params, "cos_min_ratio", t->min_lr / t->lr);
  } else {
    zp_json_set_real(params, "warmup_min_lr", 0);
    zp_json_set_real(params, "warmup_max_lr", t->lr);
  }
  zp_json_set_int(params, "warmup_num_steps", t->warmup);
  zp_json_set_string(params, "warmup_type", "linear");
  zp_json_set(scheduler, "params", params);
  zp_export_note(e, "learning rates come one step later: DeepSpeed's first step has rate 0");
}

/* zplan's scale halves at every overflow and not below 1; DeepSpeed's (runtime/fp16/loss_scaler.py) does with a
 * hysteresis of 1. A scale of 0 asks for one that moves. */
static void put_fp16(const zp_train *t, zp_json *fp16) {
  zp_json_set_bool(fp16, "enabled", true);
  zp_json_set_int(fp16, "loss_scale", t->scale_window == 0 ? t->loss_scale : 0);
  if (t->scale_window == 0) return;
  int power = 0;
  while (INT64_C(1) << power < t->loss_scale) power++; /* a power of two (spec.h) */
  zp_json_set_int(fp16, "initial_scale_power", power);
  zp_json_set_int(fp16, "loss_scale_window", t->scale_window);
  zp_json_set_int(fp16, "hysteresis", 1);
  zp_json_set_int(fp16, "min_loss_scale", 1);
}

/* Without grad_accum_dtype gradients are summed in the type of the model (docs/_pages/config-json.md, data types). */
static void put_precision(zp_exporter *e, zp_json *root) {
  zp_precision p = e->spec->train.precision;
  if (p == ZP_PREC_MIXED_FP16) put_fp16(&e->spec->train, zp_json_set(root, "fp16", zp_json_object()));
  assert(!zp_precision_recipe(p)); /* no profile of it has them, and CPU clusters are not exported (Z0681) */
  if (p == ZP_PREC_MIXED_BF16) zp_json_set_bool(zp_json_set(root, "bf16", zp_json_object()), "enabled", true);
  if (zp_is_mixed(&e->spec->train) && zp_export_grad_bytes(e) == 4)
    zp_json_set_string(zp_json_set(root, "data_types", zp_json_object()), "grad_accum_dtype", "fp32");
}

void zp_deepspeed_train(zp_exporter *e, zp_json *root) {
  put_precision(e, root);
  zp_json_set_real(root, "gradient_clipping", e->spec->train.clip);
  put_optimizer(e, root);
  put_scheduler(e, root);
  zp_json_set_int(root, "steps_per_print", e->spec->train.log_every > 0 ? e->spec->train.log_every : 1);
}
