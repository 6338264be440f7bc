/* SPDX-License-Identifier: Apache-2.0 */
/* The config.json of Hugging Face for a model that was written by hand: the family that has its norms, positions and
 * MLP, and its sizes. That the family then computes the same is proven elsewhere, by matching the models. */
#include "export_internal.h"

#include <zplan/json.h>

typedef struct family {
  const char *type, *class;
} family;

/* NULL with *reason: no family has such a layer. */
static const family *family_of(const zp_gpt *g, const char **reason) {
  static const family gpt2 = {"gpt2", "GPT2LMHeadModel"}, neox = {"gpt_neox", "GPTNeoXForCausalLM"},
                      llama = {"llama", "LlamaForCausalLM"}, qwen2 = {"qwen2", "Qwen2ForCausalLM"},
                      mixtral = {"mixtral", "MixtralForCausalLM"};
  bool all_biases = g->qkv_bias && g->proj_bias && g->mlp_bias, plain = g->activation != ZP_GPT_SWIGLU;
  bool square = g->heads == g->kv_heads && g->heads * g->head_size == g->hidden;
  if (!g->rms_norm && plain && square && all_biases && !g->rope) return &gpt2;
  if (!g->rms_norm && plain && square && all_biases && !g->rope_interleaved) return &neox;
  bool modern = g->rms_norm && !plain && g->rope && !g->rope_interleaved;
  if (modern && g->experts && g->normalize && !g->qkv_bias && !g->proj_bias) return &mixtral;
  if (modern && !g->experts && g->qkv_bias == g->proj_bias) return &llama;
  if (modern && !g->experts && g->qkv_bias && !g->mlp_bias && g->heads * g->head_size == g->hidden) return &qwen2;
  *reason =
      "its norms, positions, biases and MLP are together those of no family that is known (gpt2, gpt_neox, llama, "
      "mixtral, qwen2)";
  return NULL;
}

static const char *activation_of(const zp_gpt *g) {
  static const char *const words[] = {
      [ZP_GPT_GELU_TANH] = "gelu_new", [ZP_GPT_GELU_ERF] = "gelu", [ZP_GPT_RELU] = "relu", [ZP_GPT_SWIGLU] = "silu"};
  return words[g->activation];
}

static void set_gpt2(zp_json *o, const zp_gpt *g) {
  zp_json_set_int(o, "n_positions", g->positions);
  zp_json_set_int(o, "n_embd", g->hidden);
  zp_json_set_int(o, "n_layer", g->layers);
  zp_json_set_int(o, "n_head", g->heads);
  zp_json_set_int(o, "n_inner", g->ff);
  zp_json_set_string(o, "activation_function", activation_of(g));
  zp_json_set_real(o, "layer_norm_epsilon", g->norm_eps);
  zp_json_set_real(o, "embd_pdrop", g->dropout);
  zp_json_set_real(o, "resid_pdrop", g->dropout);
  zp_json_set_real(o, "attn_pdrop", g->attention_dropout);
}

static void set_others(zp_json *o, const zp_gpt *g) {
  zp_json_set_int(o, "max_position_embeddings", g->sequence);
  zp_json_set_int(o, "hidden_size", g->hidden);
  zp_json_set_int(o, "num_hidden_layers", g->layers);
  zp_json_set_int(o, "num_attention_heads", g->heads);
  zp_json_set_int(o, "intermediate_size", g->ff);
  zp_json_set_string(o, "hidden_act", activation_of(g));
  zp_json_set_real(o, "rope_theta", g->theta);
  zp_json_set_real(o, "attention_dropout", g->attention_dropout);
}

static void set_neox(zp_json *o, const zp_gpt *g) {
  set_others(o, g);
  zp_json_set_real(o, "layer_norm_eps", g->norm_eps);
  zp_json_set_real(o, "rotary_pct", 1);
  zp_json_set_bool(o, "use_parallel_residual", false);
  zp_json_set_bool(o, "attention_bias", true);
  zp_json_set_real(o, "hidden_dropout", g->dropout);
}

static void set_llama(zp_json *o, const zp_gpt *g, const char *type) {
  set_others(o, g);
  zp_json_set_int(o, "num_key_value_heads", g->kv_heads);
  if (strcmp(type, "qwen2") != 0) zp_json_set_int(o, "head_dim", g->head_size);
  zp_json_set_real(o, "rms_norm_eps", g->norm_eps);
  if (strcmp(type, "llama") == 0) {
    zp_json_set_bool(o, "attention_bias", g->qkv_bias);
    zp_json_set_bool(o, "mlp_bias", g->mlp_bias);
  }
  if (!g->experts) return;
  zp_json_set_int(o, "num_local_experts", g->experts);
  zp_json_set_int(o, "num_experts_per_tok", g->top_k);
  zp_json_set_real(o, "router_aux_loss_coef", g->balance);
  zp_json_set_string(o, "sliding_window", NULL);
}

static const char *finish(zp_arena *arena, zp_json *o, const char *dtype) {
  zp_json_set_string(o, "torch_dtype", dtype);
  zp_json_set_bool(o, "use_cache", true);
  const char *text = zp_format(arena, "%s\n", zp_json_text(arena, o, true));
  zp_json_free(o);
  return text;
}

const char *zp_export_hf_config(zp_arena *arena, const zp_model *model, const char *dtype, const char **reason,
                                zp_span *span) {
  zp_json *encoder = zp_export_encoder_config(model);
  if (encoder) return finish(arena, encoder, dtype);
  const zp_gpt *g = zp_gpt_recognise(arena, model, reason, span);
  const family *f = NULL;
  if (g) {
    *span = model->span;
    f = family_of(g, reason);
  }
  if (!f) return NULL;
  zp_json *o = zp_json_object();
  zp_json_append_string(zp_json_set(o, "architectures", zp_json_array()), f->class);
  zp_json_set_string(o, "model_type", f->type);
  zp_json_set_int(o, "vocab_size", g->vocabulary);
  if (strcmp(f->type, "gpt2") == 0)
    set_gpt2(o, g);
  else if (strcmp(f->type, "gpt_neox") == 0)
    set_neox(o, g);
  else
    set_llama(o, g, f->type);
  zp_json_set_real(o, "initializer_range", g->std[ZP_GPT_INNER]);
  zp_json_set_bool(o, "tie_word_embeddings", g->tied);
  zp_json_set_string(o, "bos_token_id", NULL);
  zp_json_set_string(o, "eos_token_id", NULL);
  return finish(arena, o, dtype);
}
