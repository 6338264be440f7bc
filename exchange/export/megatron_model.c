/* SPDX-License-Identifier: Apache-2.0 */
/* The model and its precision as arguments of Megatron-LM. */
#include "megatron.h"

#include <math.h>

#define PUT(flag) zp_megatron_put(m, ZP_MEGATRON_##flag)
#define PUT_INT(flag, value) zp_megatron_put_int(m, ZP_MEGATRON_##flag, value)
#define PUT_REAL(flag, value) zp_megatron_put_real(m, ZP_MEGATRON_##flag, value)
#define PUT_TEXT(flag, value) zp_megatron_put_text(m, ZP_MEGATRON_##flag, value)

static int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/* The vocabulary is padded to a multiple of this times the tensor degree: the largest power of two up to Megatron-LM's
 * own 128 that pads no more than an even split does. */
static int64_t vocabulary_multiple(int64_t vocabulary, int64_t tensor) {
  int64_t multiple = 128;
  while (multiple > 1 && round_up(vocabulary, multiple * tensor) != round_up(vocabulary, tensor)) multiple /= 2;
  return multiple;
}

static void put_positions(zp_megatron *m) {
  const zp_gpt *gpt = m->gpt;
  PUT_INT(SEQ_LENGTH, gpt->sequence);
  PUT_INT(MAX_POSITIONS, gpt->rope ? gpt->sequence : gpt->positions);
  PUT_TEXT(POSITIONS, gpt->rope ? "rope" : "learned_absolute");
  if (!gpt->rope) return;
  if (gpt->theta != floor(gpt->theta) || gpt->theta > 1e15)
    zp_export_refuse(m->e, NULL, "rope's theta is %g; --rotary-base takes whole numbers", gpt->theta);
  else
    PUT_INT(ROTARY_BASE, (int64_t)gpt->theta);
  if (gpt->rope_interleaved) PUT(ROTARY_INTERLEAVED);
}

/* --disable-bias-linear, or all biases, or those of q, k, v alone. */
static void put_biases(zp_megatron *m) {
  const zp_gpt *gpt = m->gpt;
  bool all = gpt->qkv_bias && gpt->proj_bias && gpt->mlp_bias,
       none = !gpt->qkv_bias && !gpt->proj_bias && !gpt->mlp_bias;
  if (all) return;
  PUT(NO_BIAS);
  if (none) return;
  if (gpt->qkv_bias && !gpt->proj_bias && !gpt->mlp_bias)
    PUT(QKV_BIAS);
  else
    zp_export_refuse(m->e, NULL,
                     "biases of q, k, v: %s, of attention's output: %s, of the MLP: %s; Megatron-LM has all, "
                     "none, or those of q, k, v alone",
                     gpt->qkv_bias ? "yes" : "no", gpt->proj_bias ? "yes" : "no", gpt->mlp_bias ? "yes" : "no");
}

/* Megatron-LM's fused form of bias and GELU is the one with tanh, its plain form the one with erf. */
static void put_activation(zp_megatron *m) {
  const zp_gpt *gpt = m->gpt;
  switch (gpt->activation) {
  case ZP_GPT_SWIGLU: PUT(SWIGLU); break;
  case ZP_GPT_GELU_ERF: PUT(NO_GELU_FUSION); break;
  case ZP_GPT_GELU_TANH:
    if (!gpt->mlp_bias)
      zp_export_refuse(m->e, "gelu(approximate = \"none\"), or biases",
                       "gelu with tanh in an MLP without biases: Megatron-LM has that form only fused with a bias");
    break;
  case ZP_GPT_RELU: zp_export_refuse(m->e, NULL, "relu: Megatron-LM has gelu, SwiGLU and squared relu"); break;
  }
}

/* Share of a standard deviation: people write so many digits of 0.02 / sqrt(2 * layers). */
static const double AS_WRITTEN = 1e-6;

/* --init-method-std, and std / sqrt(2 layers) for what is added to the residual stream. */
static void put_start(zp_megatron *m) {
  const zp_gpt *gpt = m->gpt;
  const double *std = gpt->std;
  double inner = std[ZP_GPT_INNER], scaled = inner / sqrt(2.0 * (double)gpt->layers);
  PUT_REAL(INIT_STD, inner);
  bool same = gpt->one_std && std[ZP_GPT_TABLE] == inner && fabs(std[ZP_GPT_RESIDUAL] - scaled) <= AS_WRITTEN * scaled;
  if (!same)
    zp_export_note(m->e,
                   "initial values: tables start with a deviation of %g, matrices that end a branch of a layer with "
                   "%.4g; in the plan's model with %g and %.4g%s",
                   inner, scaled, std[ZP_GPT_TABLE], std[ZP_GPT_RESIDUAL],
                   gpt->one_std ? "" : ", and not all of a kind alike");
}

/* zplan's scale halves at every overflow and not below 1; Megatron-LM's (core/optimizer/grad_scaler.py) does with a
 * hysteresis of 1, and has no upper end. */
static void put_loss_scale(zp_megatron *m) {
  const zp_train *t = &m->e->spec->train;
  if (t->scale_window == 0) {
    PUT_INT(LOSS_SCALE, t->loss_scale);
    return;
  }
  PUT_INT(INITIAL_SCALE, t->loss_scale);
  PUT_INT(MIN_SCALE, 1);
  PUT_INT(SCALE_WINDOW, t->scale_window);
  PUT_INT(HYSTERESIS, 1);
}

/* Their weights as casts alone, where the plan has them so. MXFP8's are gathered in 16 bits by way of the gradients'
 * buffer; Megatron FSDP has none of these. */
static void put_weights(zp_megatron *m) {
  const zp_spec *spec = m->e->spec;
  if (!zp_software_casts_alone(spec->cluster.software, &spec->train, m->e->choice)) return;
  if (spec->train.precision == ZP_PREC_MIXED_NVFP4) {
    PUT(FP4_WEIGHTS);
    return;
  }
  PUT(FP8_WEIGHTS);
  if (spec->train.precision == ZP_PREC_MIXED_MXFP8 && m->e->choice->zero == 1) PUT(MXFP8_REUSE);
}

/* Products of layers in 8 or 4 bits, as the plan prices them. */
static void put_recipe(zp_megatron *m) {
  switch (m->e->spec->train.precision) {
  case ZP_PREC_MIXED_FP8:
  case ZP_PREC_MIXED_FP8_DELAYED:
    PUT_TEXT(FP8, "hybrid");
    PUT_TEXT(FP8_RECIPE, m->e->spec->train.precision == ZP_PREC_MIXED_FP8 ? "tensorwise" : "delayed");
    return;
  case ZP_PREC_MIXED_MXFP8:
    PUT_TEXT(FP8, "e4m3");
    PUT_TEXT(FP8_RECIPE, "mxfp8");
    return;
  case ZP_PREC_MIXED_NVFP4:
    PUT_TEXT(FP4, "e2m1");
    PUT_TEXT(FP4_RECIPE, "nvfp4");
    return;
  default: return;
  }
}

static void put_precision(zp_megatron *m) {
  const zp_train *t = &m->e->spec->train;
  bool halves = zp_export_grad_bytes(m->e) == 2;
  if (t->precision == ZP_PREC_MIXED_FP16) {
    PUT(FP16);
    if (!halves) PUT(SUM_FP32); /* without it in fp16 */
    put_loss_scale(m);
  }
  if (zp_computes_bf16(t->precision)) {
    PUT(BF16);
    if (halves) PUT(REDUCE_BF16); /* without it in fp32 */
  }
  put_recipe(m);
  put_weights(m);
  if (!m->e->spec->cluster.node.device.has_bf16) {
    PUT_TEXT(IMPLEMENTATION, "local");
    zp_export_note(m->e, "device %s has no bf16, so no Transformer Engine is asked for: %s",
                   m->e->spec->cluster.node.device.name, m->words->local);
  }
}

void zp_megatron_model(zp_megatron *m) {
  const zp_gpt *gpt = m->gpt;
  zp_megatron_section(m, zp_format(m->e->arena, "%s", m->e->spec->model->name));
  PUT_INT(LAYERS, gpt->layers);
  PUT_INT(HIDDEN, gpt->hidden);
  PUT_INT(FFN, gpt->ff);
  PUT_INT(HEADS, gpt->heads);
  if (gpt->kv_heads != gpt->heads) {
    PUT(GQA);
    PUT_INT(KV_GROUPS, gpt->kv_heads);
  }
  if (gpt->head_size * gpt->heads != gpt->hidden) PUT_INT(KV_CHANNELS, gpt->head_size);
  put_positions(m);
  PUT_INT(VOCABULARY, gpt->vocabulary);
  PUT_INT(VOCABULARY_MULTIPLE, vocabulary_multiple(gpt->vocabulary, m->e->choice->tensor));
  PUT_TEXT(NORM, gpt->rms_norm ? "RMSNorm" : "LayerNorm");
  PUT_REAL(NORM_EPS, gpt->norm_eps);
  put_activation(m);
  put_biases(m);
  if (!gpt->tied) PUT(UNTIED);
  PUT_REAL(HIDDEN_DROPOUT, gpt->dropout);
  PUT_REAL(ATTENTION_DROPOUT, gpt->attention_dropout);
  put_start(m);
  put_precision(m);
}
