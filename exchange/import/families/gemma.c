/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 2 and the text models of Gemma 3 as Gemma2Config and Gemma3TextConfig of transformers have them. Layers whose
 * attention sees a window take turns with layers that see all, so an iteration of the repeat is a group of layers; what
 * is left after the last whole group is a repeat of its own. */
#include "hf.h"

/* clang-format off */
static const hf_row of_all[] = {
    SIZE("vocab_size", "vocabulary", NULL, INT32_MAX),
    SIZE("hidden_size", "hidden", NULL, HF_MOST_WIDTH),
    SIZE("num_hidden_layers", "layers", NULL, HF_MOST_LAYERS),
    SIZE("num_attention_heads", "heads", NULL, HF_MOST_WIDTH),
    SIZE("num_key_value_heads", "kv_heads", "4", HF_MOST_WIDTH),
    SIZE("head_dim", "head_size", "256", HF_MOST_WIDTH),
    SIZE("intermediate_size", "ff", NULL, HF_MOST_WIDTH),
    REAL("rms_norm_eps", "eps", "1e-6", 0, 1),
    REAL("initializer_range", "std", "0.02", 0, 10),
    FLAG("tie_word_embeddings", "tied", "1"),
    FLAG("attention_bias", "attention_bias", "0"),
    ACTIVATION("hidden_activation", "'gelu_pytorch_tanh'"),
    REAL_OR_NULL("attention_dropout", "attention_dropout", "0.0", "0.0", 0, 1),
    TELL("attention_dropout > 0",
         "`attention_dropout` ${attention_dropout} was left out: `attention(..., dropout = ${attention_dropout})` has "
         "it"),
    REAL("query_pre_attn_scalar", "query_scalar", "256.0", 1e-6, 1e9),
    SIZE("sliding_window", "window", "4096", INT32_MAX),
    FLAG("use_bidirectional_attention", "both_ways", "0"),
    REFUSED("use_bidirectional_attention", "both_ways", "attention sees what follows; the import writes decoders",
            NULL),
    NOTHING("hidden_act"), /* hidden_activation is read */
    END};

static const hf_row of_gemma2[] = {
    LET("qk_norm", "0"),
    SIZE("max_position_embeddings", "positions", "8192", INT32_MAX),
    REAL_OR_NULL("attn_logit_softcapping", "score_cap", "50.0", "0.0", 1e-6, 1e9),
    REAL_OR_NULL("final_logit_softcapping", "logit_cap", "30.0", "0.0", 1e-6, 1e9),
    REAL_OR_NULL("rope_theta", "theta", "10000.0", "0.0", 1, 1e12),
    CALL(hf_read_rope),
    LET("local_theta", "theta"),
    LET("pattern", "2"),
    CALL(hf_read_groups),
    END};

static const hf_row of_gemma3[] = {
    LET("qk_norm", "1"),
    LET("score_cap", "0"),
    SIZE("max_position_embeddings", "positions", "131072", INT32_MAX),
    REAL_OR_NULL("final_logit_softcapping", "logit_cap", "0.0", "0.0", 1e-6, 1e9),
    REAL("rope_theta", "theta", "1000000.0", 1, 1e12),
    REAL("rope_local_base_freq", "local_theta", "10000.0", 1, 1e12),
    CALL(hf_read_gemma3_rope),
    SIZE("sliding_window_pattern", "pattern", "6", HF_MOST_LAYERS),
    CALL(hf_read_groups),
    NOTHING("_sliding_window_pattern"),
    NOTED("attn_logit_softcapping", "was left out: transformers' Gemma 3 caps no scores of attention"),
    END};
/* clang-format on */

static const hf_name names[] = {NAME("embed_tokens", "model.embed_tokens.weight"),
                                NAME("lm_head", "lm_head.weight"),
                                NAME("layers.{}.layer_{}", "model.layers.${i * group + j}"),
                                NAME("rest.{}", "model.layers.${i + layers / group * group}"),
                                NAME("norm", "model.norm"),
                                NAME_END};

#define GEMMA                                                                                                          \
  .text = "gemma", .prefix = "model.", .names = names,                                                                 \
  .ties = {{"lm_head.weight", "tied", "model.embed_tokens.weight", true}}

const hf_family hf_gemma2 = {.type = "gemma2",
                             .classes = {{"Gemma2ForCausalLM", 0}, {"Gemma2Model", 0}},
                             .rows = {of_all, hf_head_columns, of_gemma2},
                             GEMMA};
const hf_family hf_gemma3_text = {.type = "gemma3_text",
                                  .classes = {{"Gemma3ForCausalLM", 0}, {"Gemma3TextModel", 0}},
                                  .rows = {of_all, hf_head_columns, of_gemma3},
                                  GEMMA};
