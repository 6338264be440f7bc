/* SPDX-License-Identifier: Apache-2.0 */
/* Precision, optimizer, learning rate and length of torchtitan's configuration as settings of a train block. */
#include "torchtitan.h"

#include <math.h>

/* A norm that no gradient reaches: `export torchtitan` writes it where gradients are not clipped. */
#define NO_CLIP 1e9

static void set_precision(config *d) {
  launch *l = d->l;
  const char *path = "training.mixed_precision_param", *word = config_text(d, path, "bfloat16");
  bool brain = strcmp(word, "bfloat16") == 0;
  if (!brain && strcmp(word, "float32") != 0)
    launch_complain(l, config_at(d, path), "%s is bfloat16 or float32, not `%s`", path, word);
  launch_set(l, "precision", brain ? "\"mixed_bf16\"" : "\"fp32\"", config_from(d, path));
  const zp_json *model = zp_json_get(d->root, "model"), *list = model ? zp_json_get(model, "converters") : NULL;
  for (int i = 0; zp_json_is_array(list) && i < zp_json_count(list); i++) {
    const zp_json *entry = zp_json_at(list, i);
    const char *name = zp_json_is_object(entry) ? zp_json_get_string(entry, "value", "") : zp_json_string(entry, "");
    launch_note(l, "`model.converters` (%s) is not planned: products are counted in bf16", name);
  }
}

static void set_optimizer(config *d) {
  launch *l = d->l;
  zp_arena *a = l->arena;
  const char *name = config_text(d, "optimizer.name", "AdamW");
  bool adamw = strcmp(name, "AdamW") == 0;
  if (!adamw && strcmp(name, "Adam") != 0) {
    launch_refuse(l, config_at(d, "optimizer.name"), "optimizer.name %s is not planned: Adam and AdamW are", name);
    return;
  }
  if (strcmp(config_text(d, "optimizer.pattern", ".*"), ".*") != 0)
    launch_refuse(l, config_at(d, "optimizer.pattern"),
                  "groups of parameters: the first of optimizer.param_groups is not all of them");
  double decay = config_real(d, "optimizer.weight_decay", 0.1, 0, 1e6); /* of one group, which holds norms, too */
  launch_set(l, "optimizer",
             zp_format(a, "%s(lr = %s, betas = [%s, %s], eps = %s, weight_decay = %s%s)", adamw ? "adamw" : "adam",
                       launch_number(a, config_real(d, "optimizer.lr", 8e-4, 1e-30, 1e6)),
                       launch_number(a, config_real(d, "optimizer.beta1", 0.9, 0, 0.999999999)),
                       launch_number(a, config_real(d, "optimizer.beta2", 0.95, 0, 0.999999999)),
                       launch_number(a, config_real(d, "optimizer.eps", 1e-8, 1e-30, 1)), launch_number(a, decay),
                       decay > 0 ? ", decay = \"all\"" : ""),
             config_from(d, "optimizer.name"));
}

/* Without decay_ratio the rate falls from the warm-up to the end. */
static void set_schedule(config *d, int64_t steps) {
  launch *l = d->l;
  int64_t warmup = config_int(d, "lr_scheduler.warmup_steps", 200, 0, INT64_C(1) << 40);
  const char *type = config_text(d, "lr_scheduler.decay_type", "linear");
  const char *floor = config_has(d, "lr_scheduler.lr_min") ? "lr_scheduler.lr_min" : "lr_scheduler.min_lr_factor";
  double least = config_real(d, floor, 0, 0, 1) * config_real(d, "optimizer.lr", 8e-4, 1e-30, 1e6);
  int64_t decay = llround(config_real(d, "lr_scheduler.decay_ratio", 1, 0, 1) * (double)steps);
  bool stays = config_has(d, "lr_scheduler.decay_ratio");
  if (warmup >= steps) {
    launch_note(l, "a warm-up of %lld steps does not end within the training's %lld: none stands there",
                (long long)warmup, (long long)steps);
    warmup = 0;
  }
  const char *from = zp_format(l->arena, "%s, %s", config_from(d, "lr_scheduler.warmup_steps"),
                               config_from(d, "lr_scheduler.decay_type"));
  const char *tail =
      zp_format(l->arena, "warmup = %lld, min_lr = %s", (long long)warmup, launch_number(l->arena, least));
  if (stays && decay >= 1 && decay + warmup <= steps && strcmp(type, "linear") == 0)
    launch_set(l, "schedule", zp_format(l->arena, "wsd(decay = %lld, %s)", (long long)decay, tail), from);
  else if (stays && decay == 0)
    launch_set(l, "schedule", zp_format(l->arena, "constant(warmup = %lld)", (long long)warmup), from);
  else if (!stays && launch_among("linear cosine", type))
    launch_set(l, "schedule", zp_format(l->arena, "%s(%s)", type, tail), from);
  else
    launch_note(l, "lr_scheduler: a decay of type %s is not written; the rate is constant, which changes no plan",
                type);
}

void torchtitan_train(config *d) {
  launch *l = d->l;
  int64_t steps = config_int(d, "training.steps", 10000, 1, INT64_C(1) << 40);
  launch_set(l, "steps", zp_format(l->arena, "%lld", (long long)steps), config_from(d, "training.steps"));
  set_precision(d);
  set_optimizer(d);
  set_schedule(d, steps);
  double clip = config_real(d, "training.max_norm", 1, 0, NO_CLIP);
  if (clip > 0 && clip < NO_CLIP)
    launch_set(l, "clip", launch_number(l->arena, clip), config_from(d, "training.max_norm"));
  if (l->words->dropout > 0) launch_set(l, "dropout", launch_number(l->arena, l->words->dropout), "the model's");
  if (!config_bool(d, "compile.enable", false))
    launch_note(l, "compile.enable is false: the predicted step is that of compiled layers, which take less time");
}
