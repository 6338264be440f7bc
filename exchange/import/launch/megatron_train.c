/* SPDX-License-Identifier: Apache-2.0 */
/* Length, precision, optimizer and learning rate of a launch of Megatron-LM as settings of a train block. */
#include "megatron.h"

#include <math.h>
#include <stdlib.h>

static int64_t batch_of(const megatron *m) {
  for (int i = 0; i < m->l->train.len; i++)
    if (strcmp(m->l->train.data[i].key, "batch") == 0) return strtoll(m->l->train.data[i].value, NULL, 10);
  return 1;
}

static int64_t steps_of(megatron *m) {
  megatron_clash(m, F_ITERATIONS, F_SAMPLES, "a training counts steps or samples");
  megatron_clash(m, F_ITERATIONS, F_DECAY_SAMPLES, "a training counts steps or samples");
  megatron_clash(m, F_ITERATIONS, F_WARMUP_SAMPLES, "a training counts steps or samples");
  megatron_clash(m, F_SAMPLES, F_LR_ITERATIONS, "a training counts steps or samples");
  megatron_clash(m, F_SAMPLES, F_LR_WARMUP, "a training counts steps or samples");
  megatron_clash(m, F_LR_WARMUP, F_WARMUP_FRACTION, "each says how long the warm-up is");
  int64_t steps =
      megatron_has(m, F_SAMPLES) ? m->given[F_SAMPLES].whole / batch_of(m) : megatron_int(m, F_ITERATIONS, 1000);
  if (steps < 1) steps = 1;
  bool said = megatron_has(m, F_SAMPLES) || megatron_has(m, F_ITERATIONS);
  if (!said) launch_note(m->l, "neither --train-iters nor --train-samples is given: 1000 steps stand there");
  launch_set(m->l, "steps", zp_format(m->l->arena, "%lld", (long long)steps),
             said ? megatron_from(m, megatron_has(m, F_SAMPLES) ? F_SAMPLES : F_ITERATIONS) : NULL);
  return steps;
}

/* ---- precision ---- */

static const char *recipe(megatron *m, const char **from) {
  static const struct {
    const char *recipe, *precision;
  } rows[] = {{"delayed", "mixed_fp8_delayed"}, {"tensorwise", "mixed_fp8"}, {"mxfp8", "mixed_mxfp8"}};
  megatron_clash(m, F_FP8, F_FP4, "products are in 8 bits or in 4");
  if (megatron_has(m, F_FP4)) {
    *from = megatron_from(m, F_FP4);
    return "mixed_nvfp4";
  }
  if (!megatron_has(m, F_FP8)) return NULL;
  const char *word = megatron_text(m, F_FP8_RECIPE, "delayed");
  *from = zp_format(m->l->arena, "%s, %s", megatron_from(m, F_FP8), megatron_from(m, F_FP8_RECIPE));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].recipe, word) == 0) return rows[i].precision;
  launch_note(m->l, "--fp8-recipe %s is not planned for GPUs: products are counted in bf16", word);
  return NULL;
}

/* training/arguments.py: assertions on --fp8-param-gather. */
static void set_weights(megatron *m) {
  launch *l = m->l;
  megatron_flag flag = megatron_has(m, F_FP4) ? F_FP4_WEIGHTS : F_FP8_WEIGHTS;
  bool alone = megatron_has(m, flag), shards = megatron_has(m, F_DISTRIBUTED) || megatron_has(m, F_FSDP);
  if (alone && !shards)
    launch_complain(l, m->given[flag].at, "%s wants --use-distributed-optimizer or --use-megatron-fsdp",
                    megatron_name(flag));
  if (alone && megatron_has(m, F_OPTIMIZER_OFFLOAD) &&
      strcmp(megatron_text(m, F_FP8_RECIPE, "delayed"), "delayed") != 0)
    launch_complain(l, m->given[flag].at, "%s with --optimizer-cpu-offload wants --fp8-recipe delayed",
                    megatron_name(flag));
  launch_set(l, "product_weights", alone ? "\"casts\"" : "\"bf16\"", megatron_from(m, flag));
}

static void set_precision(megatron *m) {
  launch *l = m->l;
  megatron_clash(m, F_BF16, F_FP16, "a training has one type");
  const char *from = megatron_has(m, F_FP16)   ? "--fp16"
                     : megatron_has(m, F_BF16) ? "--bf16"
                                               : "neither --bf16 nor --fp16";
  const char *word = megatron_has(m, F_FP16) ? "mixed_fp16" : megatron_has(m, F_BF16) ? "mixed_bf16" : "fp32";
  const char *eight = recipe(m, &from);
  if (eight && !megatron_has(m, F_BF16)) {
    launch_complain(l, m->given[megatron_has(m, F_FP8) ? F_FP8 : F_FP4].at, "products in 8 or 4 bits want --bf16");
    eight = NULL;
  }
  launch_set(l, "precision", zp_format(l->arena, "\"%s\"", eight ? eight : word), from);
  if (eight) set_weights(m);
  if (!megatron_has(m, F_FP16)) return;
  int64_t scale = megatron_int(m, F_LOSS_SCALE, 0), window = megatron_int(m, F_SCALE_WINDOW, 1000);
  bool power = scale > 0 && (scale & (scale - 1)) == 0;
  if (power) launch_set(l, "loss_scale", zp_format(l->arena, "%lld", (long long)scale), megatron_from(m, F_LOSS_SCALE));
  if (scale > 0 && !power)
    launch_note(l, "--loss-scale %lld is no power of two: a moving one stands there", (long long)scale);
  if (!megatron_has(m, F_LOSS_SCALE) && window >= 1)
    launch_set(l, "loss_scale", zp_format(l->arena, "dynamic(window = %lld)", (long long)window),
               megatron_from(m, F_SCALE_WINDOW));
}

/* ---- optimizer ---- */

static void set_optimizer(megatron *m) {
  launch *l = m->l;
  zp_arena *a = l->arena;
  const char *name = megatron_text(m, F_OPTIMIZER, "adam"), *value = NULL;
  if (!megatron_has(m, F_LR)) launch_note(l, "--lr is not given: 1e-4 stands there");
  const char *lr = launch_number(a, megatron_real(m, F_LR, 1e-4));
  const char *decay = launch_number(a, megatron_real(m, F_WEIGHT_DECAY, 0.01));
  const char *betas = zp_format(a, "[%s, %s]", launch_number(a, megatron_real(m, F_BETA1, 0.9)),
                                launch_number(a, megatron_real(m, F_BETA2, 0.999)));
  if (strcmp(name, "adam") == 0)
    value = zp_format(a, "adamw(lr = %s, betas = %s, eps = %s, weight_decay = %s)", lr, betas,
                      launch_number(a, megatron_real(m, F_ADAM_EPS, 1e-8)), decay);
  else if (strcmp(name, "sgd") == 0)
    value = zp_format(a, "sgd(lr = %s, momentum = %s, weight_decay = %s)", lr,
                      launch_number(a, megatron_real(m, F_MOMENTUM, 0.9)), decay);
  else
    launch_refuse(l, m->given[F_OPTIMIZER].at, "--optimizer %s is not planned for Megatron-LM: adam and sgd are", name);
  if (value) launch_set(l, "optimizer", value, megatron_from(m, F_OPTIMIZER));
}

/* ---- learning rate ---- */

static int64_t warmup_of(megatron *m, int64_t end) {
  if (megatron_has(m, F_WARMUP_FRACTION)) return (int64_t)(fmin(m->given[F_WARMUP_FRACTION].real, 1) * (double)end);
  if (megatron_has(m, F_WARMUP_SAMPLES)) return m->given[F_WARMUP_SAMPLES].whole / batch_of(m);
  return megatron_int(m, F_LR_WARMUP, 0);
}

static void set_schedule(megatron *m, int64_t steps) {
  launch *l = m->l;
  const char *style = megatron_text(m, F_LR_STYLE, "linear");
  int64_t end = megatron_has(m, F_DECAY_SAMPLES) ? m->given[F_DECAY_SAMPLES].whole / batch_of(m)
                                                 : megatron_int(m, F_LR_ITERATIONS, steps);
  int64_t warmup = warmup_of(m, end);
  double lr = megatron_real(m, F_LR, 1e-4), least = megatron_real(m, F_MIN_LR, 0);
  if (least > lr && megatron_has(m, F_LR))
    launch_complain(l, m->given[F_MIN_LR].at, "--min-lr %g is above --lr %g", least, lr);
  if (warmup < 0 || warmup >= steps) {
    launch_note(l, "a warm-up of %lld steps does not end within the training's %lld: none stands there",
                (long long)warmup, (long long)steps);
    warmup = 0;
  }
  const char *min =
      zp_format(l->arena, "warmup = %lld, min_lr = %s", (long long)warmup, launch_number(l->arena, least));
  const char *value = NULL;
  if (strcmp(style, "cosine") == 0 || strcmp(style, "linear") == 0)
    value = zp_format(l->arena, "%s(%s)", style, min);
  else if (strcmp(style, "constant") == 0)
    value = zp_format(l->arena, "constant(warmup = %lld)", (long long)warmup);
  else if (strcmp(style, "WSD") == 0 && megatron_int(m, F_WSD_ITERATIONS, 0) >= 1 &&
           warmup + m->given[F_WSD_ITERATIONS].whole <= steps)
    value = zp_format(l->arena, "wsd(decay = %lld, %s)", (long long)m->given[F_WSD_ITERATIONS].whole, min);
  else
    launch_note(l, "--lr-decay-style %s is not written: the rate is constant, which changes no plan", style);
  if (value && end != steps && strcmp(style, "constant") != 0)
    launch_note(l, "the learning rate falls over the %lld steps of the training, in the launch over %lld",
                (long long)steps, (long long)end);
  if (value) launch_set(l, "schedule", value, megatron_from(m, F_LR_STYLE));
}

void megatron_train(megatron *m) {
  launch *l = m->l;
  int64_t steps = steps_of(m);
  set_precision(m);
  double dropout = megatron_real(m, F_HIDDEN_DROPOUT, 0.1);
  if (dropout > 0) launch_set(l, "dropout", launch_number(l->arena, dropout), megatron_from(m, F_HIDDEN_DROPOUT));
  set_optimizer(m);
  set_schedule(m, steps);
  double clip = megatron_real(m, F_CLIP, 1);
  if (clip > 0) launch_set(l, "clip", launch_number(l->arena, clip), megatron_from(m, F_CLIP));
  launch_set(l, "seed", zp_format(l->arena, "%lld", (long long)megatron_int(m, F_SEED, 1234)),
             megatron_from(m, F_SEED));
}
