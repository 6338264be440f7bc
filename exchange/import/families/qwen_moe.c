/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen 2 and Qwen 3 with experts as Qwen2MoeConfig and Qwen3MoeConfig of transformers have them. */
#include "hf.h"

/* Layers with one network among those with experts. */
static void refuse_dense_layers(hf_reader *r) {
  static const char key[] = "mlp_only_layers";
  const zp_json *list = hf_json(r, key);
  if (list && (!zp_json_is_array(list) || zp_json_count(list) > 0))
    hf_refuse(r, key, NULL, "`%s` is %s: all layers of a repeat are alike, each with experts", key, hf_shown(r, list));
}

/* clang-format off */
static const hf_row experts[] = {
    SIZE("num_local_experts", "local_experts", "experts_of_class", HF_MOST_EXPERTS),
    SIZE("num_experts", "experts", "local_experts", HF_MOST_EXPERTS),
    REFUSED("num_local_experts", "given(num_local_experts) & local_experts != experts",
            "`num_local_experts` is ${local_experts}, and `num_experts`, which it is another name of here, is "
            "${experts}", NULL),
    SIZE("num_experts_per_tok", "top_k", "top_k_of_class", HF_MOST_TOP_K),
    FLAG("norm_topk_prob", "normalized", "0"),
    SIZE("moe_intermediate_size", "expert_ff", "expert_ff_of_class", HF_MOST_WIDTH),
    LET("ff", "expert_ff"),
    SIZE("decoder_sparse_step", "every", "1", HF_MOST_LAYERS),
    REFUSED("decoder_sparse_step", "every != 1",
            "layers with experts and without take turns: all layers of a repeat are alike", NULL),
    CALL(refuse_dense_layers),
    END};

static const hf_row of_qwen3_moe[] = {
    OF_CLASS("10000.0", "1e-6", "4"),
    LET("has_rotary_share", "1"),
    LET("experts_of_class", "128"),
    LET("top_k_of_class", "8"),
    LET("expert_ff_of_class", "768"),
    END};

static const hf_row qwen3_attention[] = {
    SIZE("head_dim", "head_size", "hidden / heads", HF_MOST_WIDTH),
    FLAG("attention_bias", "qkv_bias", "0"),
    FLAG("use_sliding_window", "asked", "0"),
    SIZE_OR_NULL("sliding_window", "given_window", "4096", "0", INT32_MAX),
    LET("window", "asked ? given_window : 0"),
    END};

static const hf_row of_qwen2_moe[] = {
    OF_CLASS("10000.0", "1e-6", "16"),
    LET("has_rotary_share", "1"),
    LET("experts_of_class", "60"),
    LET("top_k_of_class", "4"),
    LET("expert_ff_of_class", "1408"),
    END};

static const hf_row qwen2_attention[] = {
    FLAG("qkv_bias", "qkv_bias", "1"),
    FLAG("use_sliding_window", "asked", "0"),
    REFUSED("use_sliding_window", "asked",
            "layers with a window and without take turns; the import writes layers that see all", NULL),
    SIZE_OR_NULL("sliding_window", "given_window", "4096", "0", INT32_MAX),
    COUNT("max_window_layers", "full_layers", "28", HF_MOST_LAYERS),
    CALL(hf_read_full_layers),
    LET("full_layers", "0"),
    SIZE("shared_expert_intermediate_size", "shared_ff", "5632", HF_MOST_WIDTH),
    END};
/* clang-format on */

static const hf_name qwen3_names[] = {
    NAME("embed_tokens", "model.embed_tokens.weight"),
    NAME("lm_head", "lm_head.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.w1", "model.layers.${i}.mlp.experts.${expert}.gate_proj.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.w2", "model.layers.${i}.mlp.experts.${expert}.down_proj.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.w3", "model.layers.${i}.mlp.experts.${expert}.up_proj.weight"),
    NAME("layers.{}", "model.layers.${i}"),
    NAME("norm", "model.norm"),
    NAME_END};

#define MLP "model.layers.${i}.mlp."
static const hf_name qwen2_names[] = {
    NAME("embed_tokens", "model.embed_tokens.weight"),
    NAME("lm_head", "lm_head.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.routed.w1", MLP "experts.${expert}.gate_proj.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.routed.w2", MLP "experts.${expert}.down_proj.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.routed.w3", MLP "experts.${expert}.up_proj.weight"),
    NAME("layers.{}.mlp.routed.gate", MLP "gate"),
    NAME("layers.{}", "model.layers.${i}"),
    NAME("norm", "model.norm"),
    NAME_END};

const hf_family hf_qwen2_moe = {.type = "qwen2_moe",
                                .classes = {{"Qwen2MoeForCausalLM", 0}, {"Qwen2MoeModel", 0}},
                                .rows = {of_qwen2_moe, hf_llama_sizes, hf_head_dim, hf_head_columns, qwen2_attention,
                                         experts, hf_expert_choice, hf_balance, hf_capacity_note, hf_std_note},
                                .text = "qwen2_moe",
                                .prefix = "model.",
                                .names = qwen2_names,
                                .ties = {{"lm_head.weight", "tied", "model.embed_tokens.weight", true}}};

const hf_family hf_qwen3_moe = {.type = "qwen3_moe",
                                .classes = {{"Qwen3MoeForCausalLM", 0}, {"Qwen3MoeModel", 0}},
                                .rows = {of_qwen3_moe, hf_llama_sizes, qwen3_attention, hf_head_columns, experts,
                                         hf_expert_choice, hf_balance, hf_capacity_note, hf_std_note},
                                .text = "qwen3_moe",
                                .prefix = "model.",
                                .names = qwen3_names,
                                .ties = {{"lm_head.weight", "tied", "model.embed_tokens.weight", true}}};
