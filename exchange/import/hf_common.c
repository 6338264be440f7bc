/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that several families share. */
#include "hf.h"

/* clang-format off */
const hf_row hf_head_columns[] = {
    WRONG("head_dim", "head_size % 2 != 0", "a head of ${head_size} has no pairs for rotary positions"),
    WRONG("num_attention_heads", "hidden % heads != 0 & head_size == hidden / heads",
          "${heads} heads (`num_attention_heads`) do not divide the hidden size ${hidden}"),
    WRONG("num_key_value_heads", "heads % kv_heads != 0",
          "${kv_heads} key/value heads (`num_key_value_heads`${?!given(num_key_value_heads):, of the class}) do not "
          "divide ${heads} heads"),
    END};

const hf_row hf_llama_sizes[] = {
    LET("experts", "0"),
    LET("qk_norm", "0"),
    LET("qkv_bias", "0"),
    LET("proj_bias", "0"),
    LET("mlp_bias", "0"),
    LET("window", "0"),
    LET("full_layers", "0"),
    SIZE("vocab_size", "vocabulary", NULL, INT32_MAX),
    SIZE("max_position_embeddings", "positions", NULL, INT32_MAX),
    SIZE("hidden_size", "hidden", NULL, HF_MOST_WIDTH),
    SIZE("num_hidden_layers", "layers", NULL, HF_MOST_LAYERS),
    SIZE("num_attention_heads", "heads", NULL, HF_MOST_WIDTH),
    /* null: as many, whatever the class has */
    SIZE_OR_NULL("num_key_value_heads", "kv_heads", "kv_heads_of_class ? kv_heads_of_class : heads", "heads",
                 HF_MOST_WIDTH),
    SIZE("intermediate_size", "ff", NULL, HF_MOST_WIDTH),
    REAL("rms_norm_eps", "eps", "eps_of_class", 0, 1),
    REAL("initializer_range", "std", "0.02", 0, 10),
    FLAG("tie_word_embeddings", "tied", "0"),
    WORD("hidden_act", "gate", "'silu'"),
    REFUSED("hidden_act", "gate != 'silu'", "the gate of the MLP is `${gate}`; the import writes silu", NULL),
    REAL_OR_NULL("attention_dropout", "attention_dropout", "0.0", "0.0", 0, 1),
    TELL("attention_dropout > 0",
         "`attention_dropout` ${attention_dropout} was left out: `attention(..., dropout = ${attention_dropout})` has "
         "it"),
    REAL_OR_NULL("rope_theta", "theta", "theta_of_class", "0.0", 1, 1e12), /* null: that of rope_parameters alone */
    CALL(hf_read_rope),
    END};

const hf_row hf_head_dim[] = {
    SIZE_OR_NULL("head_dim", "head_size", "hidden / heads", "hidden / heads", HF_MOST_WIDTH),
    END};

const hf_row hf_encoder_sizes[] = {
    SIZE("hidden_size", "hidden", "768", HF_MOST_WIDTH),
    SIZE("num_hidden_layers", "layers", "12", HF_MOST_LAYERS),
    SIZE("num_attention_heads", "heads", "12", HF_MOST_WIDTH),
    LET("head_size", "hidden / heads"),
    SIZE("intermediate_size", "ff", "3072", HF_MOST_WIDTH),
    REAL("layer_norm_eps", "eps", "eps_of_class", 0, 1),
    REAL("initializer_range", "std", "0.02", 0, 10),
    ACTIVATION("hidden_act", "'gelu'"),
    REAL("hidden_dropout_prob", "dropout", "dropout_of_class", 0, 0.999),
    LET("embedding_dropout", "dropout"),
    REAL_OR_NULL("attention_probs_dropout_prob", "attention_dropout", "dropout_of_class", "0.0", 0, 1),
    TELL("attention_dropout > 0",
         "`attention_probs_dropout_prob` ${attention_dropout} was left out: `attention(..., dropout = "
         "${attention_dropout})` has it"),
    WRONG("num_attention_heads", "hidden % heads != 0",
          "${heads} heads (`num_attention_heads`) do not divide the hidden size ${hidden}"),
    END};

const hf_row hf_whole_heads[] = {
    SIZE("head_dim", "head_dim", "head_size", HF_MOST_WIDTH),
    REFUSED("head_dim", "head_dim != head_size",
            "heads of other columns than the hidden size over the heads, ${head_size}", NULL),
    END};

const hf_row hf_expert_choice[] = {
    WRONG("num_experts_per_tok", "top_k > experts",
          "a token takes ${top_k} of ${experts} experts (`num_experts_per_tok`)"),
    REFUSED("num_experts_per_tok", "top_k == 1 & experts > 0 & normalized",
            "a token takes one expert, whose normalized weight is always 1: no gradient would reach the router", NULL),
    END};

const hf_row hf_capacity_note[] = {
    TELL(NULL,
         "`capacity` is experts / top_k, so that no token is dropped, as published; lower it to save memory and time, "
         "or write `dropless` (CPU clusters)"),
    END};

const hf_row hf_std_note[] = {
    TELL("std != 0.02",
         "`initializer_range` is of the tables alone: the blocks of std.models draw their matrices with a standard "
         "deviation of 0.02"),
    END};

/* transformers adds the balancing loss where the logits of routers are put out, and it is another one than that of
 * top_k_gate: shares and probabilities are means over all layers together, before they are multiplied. */
/* clang-format off */
const hf_row hf_balance[] = {
    REAL("router_aux_loss_coef", "balance", "0.001", 0, 1e6),
    FLAG("output_router_logits", "balanced", "0"),
    REFUSED("output_router_logits", "balanced & balance != 0 & !for_weights",
            "a balancing loss (`router_aux_loss_coef` ${balance}) over the choices of all layers together, which the "
            "language lacks",
            "a copy of the file with `output_router_logits` false is trained without; `balance` of top_k_gate has one "
            "a layer"),
    END};
/* clang-format on */

const hf_name hf_llama_names[] = {
    NAME("embed_tokens", "model.embed_tokens.weight"),
    NAME("lm_head", "lm_head.weight"),
    NAME("first.{}", "model.layers.${i}"),
    NAME_AS(HF_EXPERTS, "layers.{}.block_sparse_moe.w1",
            "model.layers.${i + full_layers}.block_sparse_moe.experts.${expert}.w1.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.block_sparse_moe.w2",
            "model.layers.${i + full_layers}.block_sparse_moe.experts.${expert}.w2.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.block_sparse_moe.w3",
            "model.layers.${i + full_layers}.block_sparse_moe.experts.${expert}.w3.weight"),
    NAME("layers.{}", "model.layers.${i + full_layers}"),
    NAME("norm", "model.norm"),
    NAME_END};
