/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 as GPT2Config of transformers has it. */
#include "hf.h"

/* clang-format off */
static const hf_row rows[] = {
    SIZE("vocab_size", "vocabulary", NULL, INT32_MAX),
    SIZE("n_positions", "positions", NULL, HF_MOST_WIDTH),
    SIZE("n_embd", "hidden", NULL, HF_MOST_WIDTH),
    SIZE("n_layer", "layers", NULL, HF_MOST_LAYERS),
    SIZE("n_head", "heads", NULL, HF_MOST_WIDTH),
    SIZE_OR_NULL("n_inner", "ff", "4 * hidden", "4 * hidden", HF_MOST_WIDTH),
    REAL("layer_norm_epsilon", "eps", "1e-5", 0, 1),
    REAL("initializer_range", "std", "0.02", 0, 10),
    FLAG("tie_word_embeddings", "tied", "1"),
    ACTIVATION("activation_function", "'gelu_new'"),
    REAL("embd_pdrop", "embedding_dropout", "0.1", 0, 0.999),
    REAL("resid_pdrop", "dropout", "0.1", 0, 0.999),
    REAL_OR_NULL("attn_pdrop", "attention_dropout", "0.1", "0.0", 0, 1),
    TELL("attention_dropout > 0",
         "`attn_pdrop` ${attention_dropout} was left out: `attention(..., dropout = ${attention_dropout})` has it"),
    FLAG("scale_attn_weights", "scaled", "1"),
    REFUSED("scale_attn_weights", "!scaled",
            "scores of attention are not scaled; the import writes 1 / sqrt(head size)", NULL),
    FLAG("scale_attn_by_inverse_layer_idx", "scaled_by_layer", "0"),
    REFUSED("scale_attn_by_inverse_layer_idx", "scaled_by_layer",
            "every layer has another scale: all layers of a repeat are alike", NULL),
    FLAG("add_cross_attention", "cross", "0"),
    REFUSED("add_cross_attention", "cross", "cross-attention: the import writes decoders alone", NULL),
    WRONG("n_head", "hidden % heads != 0", "${heads} heads (`n_head`) do not divide the hidden size ${hidden}"),
    /* heads that are not written */
    NOTHING("predict_special_tokens summary_activation summary_first_dropout summary_proj_to_labels "
            "summary_type summary_use_proj n_ctx n_special"),
    SAME("hidden_size", "n_embd"),
    SAME("num_attention_heads", "n_head"),
    SAME("num_hidden_layers", "n_layer"),
    SAME("max_position_embeddings", "n_positions"),
    END};
/* clang-format on */

static const hf_name names[] = {
    NAME("lm_head", "lm_head.weight"),
    NAME("wte", "transformer.wte.weight"),
    NAME("wpe", "transformer.wpe.weight"),
    NAME_AS(HF_TRANSPOSED, "h.{}.attn.c_attn.weight", "transformer.h.${i}.attn.c_attn.weight"),
    NAME_AS(HF_TRANSPOSED, "h.{}.attn.c_proj.weight", "transformer.h.${i}.attn.c_proj.weight"),
    NAME_AS(HF_TRANSPOSED, "h.{}.mlp.c_fc.weight", "transformer.h.${i}.mlp.c_fc.weight"),
    NAME_AS(HF_TRANSPOSED, "h.{}.mlp.c_proj.weight", "transformer.h.${i}.mlp.c_proj.weight"),
    NAME("h.{}", "transformer.h.${i}"),
    NAME("ln_f", "transformer.ln_f"),
    NAME_END};

const hf_family hf_gpt2 = {.type = "gpt2",
                           .classes = {{"GPT2LMHeadModel", 0}, {"GPT2Model", 0}},
                           .rows = {rows},
                           .text = "gpt2",
                           .prefix = "transformer.",
                           .names = names,
                           .ties = {{"lm_head.weight", "tied", "transformer.wte.weight", true}}};
