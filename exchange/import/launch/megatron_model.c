/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a launch of Megatron-LM. Defaults are the program's own (training/arguments.py,
 * core/transformer/transformer_config.py). */
#include "megatron.h"

#include <math.h>

enum { MOST_LAYERS = 100000 };
static const int64_t MOST_SIZE = INT64_C(1) << 32;

/* A size that has to be there; `other`: the flag that may say it instead. 1 after complaining. */
static int64_t size_of(megatron *m, megatron_flag flag, megatron_flag other, int64_t most) {
  if (!megatron_has(m, flag) && megatron_has(m, other)) flag = other;
  if (!megatron_has(m, flag)) {
    launch_complain(m->l, ZP_NO_SPAN, "%s is missing, which Megatron-LM needs", megatron_name(flag));
    return 1;
  }
  int64_t size = m->given[flag].whole;
  if (size >= 1 && size <= most) return size;
  launch_complain(m->l, m->given[flag].at, "%s %lld is not within 1 and %lld", megatron_name(flag), (long long)size,
                  (long long)most);
  return 1;
}

static int64_t size_or(megatron *m, megatron_flag flag, int64_t missing, int64_t most) {
  return megatron_has(m, flag) ? size_of(m, flag, flag, most) : missing;
}

/* Tokens of tokenizers that have one vocabulary; others have that of their model. */
static const struct {
  const char *type;
  int64_t tokens;
} tokenizers[] = {{"GPT2BPETokenizer", 50257}, {"Llama2Tokenizer", 32000}};

static int64_t tokens_of(megatron *m) {
  if (megatron_has(m, F_VOCABULARY)) return size_of(m, F_VOCABULARY, F_VOCABULARY, MOST_SIZE);
  const char *type =
      megatron_text(m, F_TOKENIZER, "GPT2BPETokenizer"); /* the one with files of words, as older scripts */
  for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++)
    if (strcmp(type, tokenizers[i].type) == 0) {
      launch_note(m->l, "the vocabulary has %lld tokens, as that of %s%s", (long long)tokenizers[i].tokens, type,
                  megatron_has(m, F_TOKENIZER) ? "" : ", which is taken where no --tokenizer-type is given");
      return tokenizers[i].tokens;
    }
  zp_diag *d = launch_complain(m->l, m->given[F_TOKENIZER].at, "how many tokens %s has is not in the launch", type);
  zp_diag_help(d, "give it after `--`: -- --vocab-size N");
  return 1;
}

/* Padded to a multiple of --make-vocab-size-divisible-by times the tensor ranks. */
static int64_t vocabulary(megatron *m) {
  if (megatron_has(m, F_PADDED)) return size_of(m, F_PADDED, F_PADDED, MOST_SIZE);
  int64_t tokens = tokens_of(m),
          step = size_or(m, F_VOCABULARY_MULTIPLE, 128, 1 << 20) * size_or(m, F_TENSOR, 1, 1 << 16);
  return megatron_has(m, F_NO_PADDING) ? tokens : (tokens + step - 1) / step * step;
}

static void read_heads(megatron *m, launch_model *model) {
  model->heads = size_of(m, F_HEADS, F_HEADS, 1 << 20);
  bool grouped = megatron_has(m, F_GQA);
  model->kv_heads = grouped ? size_or(m, F_KV_GROUPS, model->heads, 1 << 20) : model->heads;
  if (!grouped && megatron_has(m, F_KV_GROUPS) && megatron_int(m, F_KV_GROUPS, 0) != model->heads)
    launch_note(m->l, "--num-query-groups %lld has no effect without --group-query-attention",
                (long long)megatron_int(m, F_KV_GROUPS, 0));
  if (!megatron_has(m, F_KV_CHANNELS) && model->hidden % model->heads != 0)
    launch_complain(m->l, m->given[F_HEADS].at, "%lld heads (--num-attention-heads) do not divide --hidden-size %lld",
                    (long long)model->heads, (long long)model->hidden);
  if (model->heads % model->kv_heads != 0)
    launch_complain(m->l, m->given[F_KV_GROUPS].at,
                    "--num-query-groups %lld does not divide --num-attention-heads %lld", (long long)model->kv_heads,
                    (long long)model->heads);
  model->head = size_or(m, F_KV_CHANNELS, model->hidden / model->heads, 1 << 20);
}

static void read_positions(megatron *m, launch_model *model) {
  const char *type = megatron_text(m, F_POSITIONS, megatron_has(m, F_ROTARY_OLD) ? "rope" : "learned_absolute");
  int64_t longest = size_of(m, F_MAX_POSITIONS, F_MAX_POSITIONS, MOST_SIZE);
  model->theta = (double)size_or(m, F_ROTARY_BASE, 10000, INT64_C(1) << 40);
  model->interleaved = megatron_has(m, F_ROTARY_INTERLEAVED);
  if (longest < model->sequence && megatron_has(m, F_MAX_POSITIONS))
    launch_complain(m->l, m->given[F_MAX_POSITIONS].at, "--max-position-embeddings %lld is below --seq-length %lld",
                    (long long)longest, (long long)model->sequence);
  if (strcmp(type, "learned_absolute") == 0)
    model->positions = longest;
  else if (strcmp(type, "none") == 0)
    model->no_positions = true;
  else if (strcmp(type, "yarn") == 0)
    launch_note(m->l, "--position-embedding-type yarn: rotary positions are written, which cost the same");
  else if (strcmp(type, "rope") != 0)
    launch_refuse(m->l, m->given[F_POSITIONS].at, "--position-embedding-type %s is not written for a decoder", type);
  if (model->positions && megatron_has(m, F_NO_POSITIONS)) {
    model->positions = 0;
    model->no_positions = true;
  }
}

/* Megatron-LM's fused form of bias and GELU is the one with tanh, its plain form the one with erf. */
static void read_activation(megatron *m, launch_model *model) {
  bool fused = !megatron_has(m, F_NO_GELU_FUSION);
  megatron_clash(m, F_SWIGLU, F_SQUARED_RELU, "a network has one activation");
  model->activation = megatron_has(m, F_SWIGLU)         ? LAUNCH_SWIGLU
                      : megatron_has(m, F_SQUARED_RELU) ? LAUNCH_SQUARED_RELU
                      : fused                           ? LAUNCH_GELU_TANH
                                                        : LAUNCH_GELU;
  if (model->activation == LAUNCH_GELU_TANH && !model->bias && !model->experts)
    zp_diag_help(launch_complain(m->l, m->given[F_NO_BIAS].at,
                                 "--disable-bias-linear and gelu contradict each other: Megatron-LM fuses gelu with a "
                                 "bias"),
                 "--no-bias-gelu-fusion, or --swiglu");
}

static void read_start(megatron *m, launch_model *model) {
  model->std = megatron_real(m, F_INIT_STD, 0.02);
  model->table_std = megatron_real(m, F_TABLE_STD, model->std);
  model->residual_std = model->std / sqrt(2.0 * (double)model->layers);
  model->attention_dropout = megatron_real(m, F_ATTENTION_DROPOUT, 0.1);
  double dropout = megatron_real(m, F_HIDDEN_DROPOUT, 0.1);
  model->dropout = dropout > 0;
  const struct {
    megatron_flag flag;
    double value, most;
  } rows[] = {{F_INIT_STD, model->std, 100},
              {F_TABLE_STD, model->table_std, 100},
              {F_ATTENTION_DROPOUT, model->attention_dropout, 0.999},
              {F_HIDDEN_DROPOUT, dropout, 0.999}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].value < 0 || rows[i].value > rows[i].most)
      launch_complain(m->l, m->given[rows[i].flag].at, "%s %g is not within 0 and %g", megatron_name(rows[i].flag),
                      rows[i].value, rows[i].most);
}

static void read_experts(megatron *m, launch_model *model) {
  if (!megatron_has(m, F_EXPERTS)) return;
  model->experts = size_of(m, F_EXPERTS, F_EXPERTS, 1 << 16);
  model->top_k = size_or(m, F_TOP_K, 2, model->experts);
  model->expert_ff = size_or(m, F_MOE_FFN, model->ff, MOST_SIZE);
  model->shared_ff = size_or(m, F_SHARED_FFN, 0, MOST_SIZE);
  model->normalize = !megatron_has(m, F_PRE_SOFTMAX);
  const char *score = megatron_text(m, F_SCORE, "softmax");
  model->sigmoid = strcmp(score, "sigmoid") == 0;
  if (!model->sigmoid && strcmp(score, "softmax") != 0)
    launch_refuse(m->l, m->given[F_SCORE].at, "--moe-router-score-function %s", score);
  bool balanced = strstr(megatron_text(m, F_BALANCING, "aux_loss"), "aux_loss") != NULL;
  model->balance = balanced ? megatron_real(m, F_BALANCE, 0) : 0;
  double capacity = megatron_real(m, F_CAPACITY, 0);
  model->capacity = capacity * (double)model->top_k < (double)model->experts ? capacity : 0;
}

void megatron_model(megatron *m) {
  launch_model *model = &m->l->model;
  model->layers = size_of(m, F_LAYERS, F_ENCODER_LAYERS, MOST_LAYERS);
  model->hidden = size_of(m, F_HIDDEN, F_HIDDEN, MOST_SIZE);
  model->sequence = size_of(m, F_SEQ_LENGTH, F_ENCODER_LENGTH, MOST_SIZE);
  megatron_clash(m, F_LAYERS, F_ENCODER_LAYERS, "both are the number of layers");
  megatron_clash(m, F_SEQ_LENGTH, F_ENCODER_LENGTH, "both are the length of a sample");
  bool gated = megatron_has(m, F_SWIGLU);
  model->ff = size_or(m, F_FFN, gated ? model->hidden * 8 / 3 / 64 * 64 : 4 * model->hidden, MOST_SIZE);
  if (model->ff < 1) model->ff = 1;
  model->vocabulary = vocabulary(m);
  read_heads(m, model);
  read_positions(m, model);
  const char *norm = megatron_text(m, F_NORM, "LayerNorm");
  model->rms_norm = strcmp(norm, "RMSNorm") == 0;
  if (!model->rms_norm && strcmp(norm, "LayerNorm") != 0)
    launch_refuse(m->l, m->given[F_NORM].at, "--normalization %s", norm);
  model->eps = megatron_real(m, F_NORM_EPS, 1e-5);
  if (model->eps <= 0 || model->eps > 1)
    launch_complain(m->l, m->given[F_NORM_EPS].at, "--norm-epsilon %g is not above 0 and at most 1", model->eps);
  model->tied = !megatron_has(m, F_UNTIED);
  model->bias = !megatron_has(m, F_NO_BIAS);
  model->qkv_bias = model->bias || megatron_has(m, F_QKV_BIAS);
  model->qk_norm = megatron_has(m, F_QK_NORM);
  if (model->qk_norm && !model->rms_norm)
    launch_note(m->l, "--qk-layernorm: heads are normalised by RMS, without the shift of a layer norm");
  read_experts(m, model);
  read_activation(m, model);
  read_start(m, model);
  if (model->experts && model->bias)
    launch_note(m->l, "biases of experts are left out: --disable-bias-linear is not given");
}
