/* SPDX-License-Identifier: Apache-2.0 */
/* Precision, optimizer and learning rate of DeepSpeed's configuration as settings of a train block. */
#include "deepspeed_import.h"

#include <ctype.h>

static void set_precision(config *d) {
  launch *l = d->l;
  const char *path = config_has(d, "bfloat16.enabled") ? "bfloat16.enabled" : "bf16.enabled";
  bool half = config_bool(d, "fp16.enabled", false), brain = config_bool(d, path, false);
  if (half && brain)
    launch_complain(l, config_at(d, "fp16"), "fp16.enabled and %s contradict each other: a training has one type",
                    path);
  launch_set(l, "precision",
             half    ? "\"mixed_fp16\""
             : brain ? "\"mixed_bf16\""
                     : "\"fp32\"",
             half    ? "fp16.enabled"
             : brain ? path
                     : "neither fp16 nor bf16 is enabled");
  if (!half) return;
  int64_t scale = config_int(d, "fp16.loss_scale", 0, 0, INT64_C(1) << 40);
  int64_t window = config_int(d, "fp16.loss_scale_window", 1000, 1, INT64_C(1) << 40);
  bool power = scale > 0 && (scale & (scale - 1)) == 0;
  if (scale > 0 && !power)
    launch_note(l, "fp16.loss_scale %lld is no power of two: a moving one stands there", (long long)scale);
  launch_set(l, "loss_scale",
             power ? zp_format(l->arena, "%lld", (long long)scale)
                   : zp_format(l->arena, "dynamic(window = %lld)", (long long)window),
             config_from(d, power ? "fp16.loss_scale" : "fp16.loss_scale_window"));
}

/* Letters alone, small: DeepSpeed takes OneBitAdam and OnebitAdam. */
static const char *plain(zp_arena *arena, const char *type) {
  char *name = zp_strdup(arena, type), *to = name;
  for (const char *c = name; *c; c++)
    if (isalnum((unsigned char)*c)) *to++ = (char)tolower((unsigned char)*c);
  *to = '\0';
  return name;
}

static double rate_of(config *d) { return config_real(d, "optimizer.params.lr", 1e-4, 1e-30, 1e6); }

static void set_optimizer(config *d) {
  launch *l = d->l;
  zp_arena *a = l->arena;
  const char *type = plain(a, config_text(d, "optimizer.type", "adamw")), *value = NULL;
  bool said = config_has(d, "optimizer.type");
  if (!said) launch_note(l, "no optimizer is named: the program makes it; AdamW stands there");
  if (!config_has(d, "optimizer.params.lr")) launch_note(l, "optimizer.params.lr is no number: 1e-4 stands there");
  const char *lr = launch_number(a, rate_of(d));
  const char *decay = launch_number(a, config_real(d, "optimizer.params.weight_decay", 0, 0, 1e6));
  const zp_json *optimizer = zp_json_get(d->root, "optimizer");
  const zp_json *list = zp_json_get(zp_json_is_object(optimizer) ? zp_json_get(optimizer, "params") : NULL, "betas");
  bool two = zp_json_is_array(list) && zp_json_count(list) == 2;
  double beta1 = two ? zp_json_real(zp_json_at(list, 0), -1) : 0.9,
         beta2 = two ? zp_json_real(zp_json_at(list, 1), -1) : 0.999;
  if ((config_has(d, "optimizer.params.betas") && !two) || !(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1))
    launch_complain(l, config_at(d, "betas"), "optimizer.params.betas is no list of two numbers from 0 to below 1");
  const char *adam = zp_format(a, "lr = %s, betas = [%s, %s], eps = %s, weight_decay = %s", lr, launch_number(a, beta1),
                               launch_number(a, beta2),
                               launch_number(a, config_real(d, "optimizer.params.eps", 1e-8, 1e-30, 1)), decay);
  bool one_bit = strcmp(type, "onebitadam") == 0, lamb = strcmp(type, "onebitlamb") == 0;
  if (strcmp(type, "adamw") == 0 || (strcmp(type, "adam") == 0 && config_bool(d, "optimizer.params.adam_w_mode", true)))
    value = zp_format(a, "adamw(%s)", adam);
  else if (strcmp(type, "adam") == 0)
    value = zp_format(a, "adam(%s)", adam);
  else if (one_bit || lamb)
    value = zp_format(a, "%s(%s, freeze_step = %lld)", lamb ? "lamb" : "adamw", adam,
                      (long long)config_int(d, "optimizer.params.freeze_step", 100000, 1, INT64_C(1) << 40));
  else if (strcmp(type, "lamb") == 0 || strcmp(type, "fusedlamb") == 0)
    value = zp_format(a, "lamb(%s)", adam);
  else if (strcmp(type, "sgd") == 0)
    value = zp_format(a, "sgd(lr = %s, momentum = %s, weight_decay = %s)", lr,
                      launch_number(a, config_real(d, "optimizer.params.momentum", 0, 0, 0.999999)), decay);
  else if (strcmp(type, "lion") == 0)
    value = zp_format(a, "lion(lr = %s, betas = [%s, %s], weight_decay = %s)", lr, launch_number(a, beta1),
                      launch_number(a, beta2), decay);
  else
    launch_refuse(l, config_at(d, "optimizer"),
                  "optimizer.type %s is not planned: Adam, AdamW, Lamb, Lion, SGD, OneBitAdam and OneBitLamb are",
                  config_text(d, "optimizer.type", ""));
  if (value) launch_set(l, "optimizer", value, said ? config_from(d, "optimizer.type") : NULL);
  if (!one_bit && !lamb) return;
  int64_t stage = config_int(d, "zero_optimization.stage", 0, 0, 3);
  if (stage > 0)
    launch_complain(
        l, config_at(d, "optimizer"),
        "optimizer.type %s and zero_optimization.stage %lld contradict each other: 1-bit exchanges are without ZeRO",
        config_text(d, "optimizer.type", ""), (long long)stage);
  launch_pin(l, "compress", "true", config_from(d, "optimizer.type"));
}

static void set_schedule(config *d) {
  launch *l = d->l;
  const char *type = config_text(d, "scheduler.type", "");
  int64_t steps = config_int(d, "scheduler.params.total_num_steps", 0, 1, INT64_C(1) << 40);
  if (steps == 0) launch_note(l, "how many steps the training has is the program's: 1000 stand there");
  if (steps == 0) steps = 1000;
  launch_set(l, "steps", zp_format(l->arena, "%lld", (long long)steps),
             config_has(d, "scheduler.params.total_num_steps") ? config_from(d, "scheduler.params.total_num_steps")
                                                               : NULL);
  if (!*type) return;
  int64_t warmup = config_int(d, "scheduler.params.warmup_num_steps", 1000, 0, INT64_C(1) << 40);
  if (warmup >= steps) {
    launch_note(l, "a warm-up of %lld steps does not end within %lld: none stands there", (long long)warmup,
                (long long)steps);
    warmup = 0;
  }
  const char *from = config_from(d, "scheduler.type");
  if (strcmp(type, "WarmupLR") == 0)
    launch_set(l, "schedule", zp_format(l->arena, "constant(warmup = %lld)", (long long)warmup), from);
  else if (strcmp(type, "WarmupDecayLR") == 0)
    launch_set(l, "schedule", zp_format(l->arena, "linear(warmup = %lld)", (long long)warmup), from);
  else if (strcmp(type, "WarmupCosineLR") == 0)
    launch_set(
        l, "schedule",
        zp_format(l->arena, "cosine(warmup = %lld, min_lr = %s)", (long long)warmup,
                  launch_number(l->arena, config_real(d, "scheduler.params.cos_min_ratio", 0.0001, 0, 1) * rate_of(d))),
        from);
  else
    launch_note(l, "scheduler.type %s is not written: the rate is constant, which changes no plan", type);
}

void deepspeed_train(config *d) {
  set_precision(d);
  double dropout = d->l->words->dropout;
  if (dropout > 0) launch_set(d->l, "dropout", launch_number(d->l->arena, dropout), "the model's");
  set_optimizer(d);
  set_schedule(d);
  double clip = config_real(d, "gradient_clipping", 0, 0, 1e6);
  if (clip > 0) launch_set(d->l, "clip", launch_number(d->l->arena, clip), config_from(d, "gradient_clipping"));
}
