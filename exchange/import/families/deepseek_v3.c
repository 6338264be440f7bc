/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3 (arXiv 2412.19437) as DeepseekV3Config of transformers has it. Dense layers and those with experts are
 * two repeats here, numbered through there. */
#include "hf.h"

/* clang-format off */
static const hf_row of_class[] = {
    OF_CLASS("10000.0", "1e-6", "0"),
    END};

static const hf_row attention[] = {
    SIZE_OR_NULL("q_lora_rank", "q_rank", "1536", "1536", HF_MOST_WIDTH),
    SIZE("kv_lora_rank", "kv_rank", "512", HF_MOST_WIDTH),
    SIZE("qk_nope_head_dim", "nope", "128", HF_MOST_WIDTH),
    SIZE("qk_rope_head_dim", "rotary", "64", HF_MOST_WIDTH),
    SIZE("v_head_dim", "value", "128", HF_MOST_WIDTH),
    WRONG("qk_rope_head_dim", "rotary % 2 != 0", "${rotary} columns have no pairs for rotary positions"),
    SIZE("qk_head_dim", "columns", "nope + rotary", 2 * HF_MOST_WIDTH),
    REFUSED("qk_head_dim", "columns != nope + rotary",
            "a head of other columns than ${nope} that stand and ${rotary} that turn", NULL),
    SAME("head_dim", "qk_rope_head_dim"),
    END};

static const hf_row experts[] = {
    COUNT("first_k_dense_replace", "dense", "3", HF_MOST_LAYERS),
    LET("dense", "dense > layers ? layers : dense"),
    LET("sparse", "dense < layers"),
    SIZE("n_routed_experts", "experts", "256", HF_MOST_EXPERTS),
    SIZE("num_experts_per_tok", "top_k", "8", HF_MOST_TOP_K),
    SIZE("n_group", "groups", "8", HF_MOST_EXPERTS),
    SIZE("topk_group", "top_groups", "4", HF_MOST_EXPERTS),
    SIZE("n_shared_experts", "shared", "1", HF_MOST_EXPERTS),
    SIZE("moe_intermediate_size", "expert_ff", "2048", HF_MOST_WIDTH),
    REAL("routed_scaling_factor", "scale", "2.5", 0, 1e6),
    WRONG("n_group", "sparse & (experts % groups != 0 | top_groups > groups)",
          "${experts} experts do not lie in ${top_groups} of ${groups} groups"),
    WRONG("num_experts_per_tok",
          "sparse & experts % groups == 0 & top_groups <= groups & top_k > experts / groups * top_groups",
          "a token takes ${top_k} (`num_experts_per_tok`) of the ${experts / groups * top_groups} experts of "
          "${top_groups} groups"),
    REFUSED("num_experts_per_tok", "sparse & top_k == 1",
            "a token takes one expert, whose normalized weight is always the same: no gradient would reach the router",
            NULL),
    TELL("sparse",
         "`capacity` is experts / top_k, so that no token is dropped, as published; lower it to save memory and time, "
         "or write `dropless` (CPU clusters)"),
    NOTHING("output_router_logits"), /* transformers has no balancing loss for it */
    NOTHING("ep_size num_nextn_predict_layers num_mtp_layers"),
    SAME("num_local_experts", "n_routed_experts"),
    END};
/* clang-format on */

/* What would make another model than std.models' blocks are. */
static void look_at_queries(hf_reader *r) { hf_set_int(r->arena, r->model, "direct", hf_is_null(r, "q_lora_rank")); }
/* clang-format off */
static const hf_row others[] = {
    CALL(look_at_queries),
    REFUSED("q_lora_rank", "direct",
            "queries are made by one matrix, q_proj; deepseek_attention of std.models makes them through few columns",
            NULL),
    FLAG("rope_interleave", "interleaved", "1"),
    REFUSED("rope_interleave", "!interleaved",
            "rotary positions turn halves of the columns; deepseek_attention of std.models turns neighbours", NULL),
    FLAG("attention_bias", "biased", "0"),
    REFUSED("attention_bias", "biased", "latent attention with biases, which deepseek_attention of std.models lacks",
            NULL),
    FLAG("norm_topk_prob", "normalized", "1"),
    REFUSED("norm_topk_prob", "!normalized",
            "weights of a token's experts do not sum to one; deepseek_moe of std.models makes them do so", NULL),
    WORD("scoring_func", "scoring", "'sigmoid'"),
    REFUSED("scoring_func", "scoring != 'sigmoid'",
            "affinities to experts are `${scoring}`; the import writes sigmoids", NULL),
    WORD("topk_method", "method", "'noaux_tc'"),
    REFUSED("topk_method", "method != 'noaux_tc'",
            "experts are chosen by `${method}`; the import writes a choice with biases", NULL),
    SIZE("moe_layer_freq", "every", "1", HF_MOST_LAYERS),
    REFUSED("moe_layer_freq", "every != 1",
            "layers with experts and without take turns: all layers of a repeat are alike", NULL),
    REFUSED("num_key_value_heads", "kv_heads != heads",
            "${kv_heads} key/value heads for ${heads} heads: latent attention has one for each", NULL),
    REFUSED("v_head_dim", "value > nope + rotary",
            "values of ${value} columns a head (`v_head_dim`) are wider than queries and keys, of ${nope + rotary}",
            NULL),
    TELL("std != 0.006",
         "`initializer_range` is of the tables alone: the blocks of std.models draw their matrices with the paper's "
         "standard deviation, 0.006"),
    TELL("given(num_nextn_predict_layers)",
         "predictions of further tokens were left out; where a checkpoint has their layer: unread = "
         "[\"model.layers.${layers}.*\"]"),
    END};
/* clang-format on */

#define LAYER "model.layers.${i + dense}"
static const hf_name names[] = {
    NAME("embed_tokens", "model.embed_tokens.weight"),
    NAME("lm_head", "lm_head.weight"),
    NAME("first.{}", "model.layers.${i}"),
    NAME("layers.{}.mlp.e_score_correction_bias", LAYER ".mlp.gate.e_score_correction_bias"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.w1", LAYER ".mlp.experts.${expert}.gate_proj.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.w2", LAYER ".mlp.experts.${expert}.down_proj.weight"),
    NAME_AS(HF_EXPERTS, "layers.{}.mlp.w3", LAYER ".mlp.experts.${expert}.up_proj.weight"),
    NAME("layers.{}", LAYER),
    NAME("norm", "model.norm"),
    NAME_END};

const hf_family hf_deepseek_v3 = {.type = "deepseek_v3",
                                  .classes = {{"DeepseekV3ForCausalLM", 0}, {"DeepseekV3Model", 0}},
                                  .rows = {of_class, hf_llama_sizes, attention, experts, others},
                                  .text = "deepseek_v3",
                                  .prefix = "model.",
                                  .names = names,
                                  .ties = {{"lm_head.weight", "tied", "model.embed_tokens.weight", true}}};
