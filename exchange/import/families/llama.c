/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA, Mistral, Mixtral, Qwen 2 and Qwen 3 as their configuration classes of transformers have them. */
#include "hf.h"

#define LLAMA_CLASSES(name)                                                                                            \
  {                                                                                                                    \
    {name "ForCausalLM", 0}, { name "Model", 0 }                                                                       \
  }
#define LLAMA                                                                                                          \
  .text = "llama", .prefix = "model.", .names = hf_llama_names,                                                        \
  .ties = {{"lm_head.weight", "tied", "model.embed_tokens.weight", true}}

/* ---- llama ---- */

/* clang-format off */
static const hf_row of_llama[] = {
    OF_CLASS("10000.0", "1e-6", "0"),
    END};
static const hf_row llama_biases[] = {
    FLAG("attention_bias", "qkv_bias", "0"),
    LET("proj_bias", "qkv_bias"),
    FLAG("mlp_bias", "mlp_bias", "0"),
    END};
/* clang-format on */

const hf_family hf_llama = {.type = "llama",
                            .classes = LLAMA_CLASSES("Llama"),
                            .rows = {of_llama, hf_llama_sizes, hf_head_dim, hf_head_columns, llama_biases},
                            LLAMA};

/* ---- mistral, mixtral ---- */

/* clang-format off */
static const hf_row of_mistral[] = {
    OF_CLASS("10000.0", "1e-6", "8"),
    END};
static const hf_row mistral_window[] = {
    SIZE_OR_NULL("sliding_window", "window", "4096", "0", INT32_MAX),
    END};
/* clang-format on */

const hf_family hf_mistral = {.type = "mistral",
                              .classes = LLAMA_CLASSES("Mistral"),
                              .rows = {of_mistral, hf_llama_sizes, hf_head_dim, hf_head_columns, mistral_window},
                              LLAMA};

/* clang-format off */
static const hf_row of_mixtral[] = {
    OF_CLASS("1000000.0", "1e-5", "8"),
    LET("normalized", "1"),
    END};
/* clang-format on */
static const hf_row mixtral_experts[] = {SIZE_OR_NULL("sliding_window", "window", "0", "0", INT32_MAX),
                                         SIZE("num_local_experts", "experts", "8", HF_MOST_EXPERTS),
                                         SIZE("num_experts_per_tok", "top_k", "2", HF_MOST_TOP_K),
                                         REAL("router_jitter_noise", "jitter", "0.0", 0, 1e6),
                                         REFUSED("router_jitter_noise", "jitter > 0 & !for_weights",
                                                 "the router's input is made noisy in training; there is no such op",
                                                 NULL),
                                         SAME("num_experts", "num_local_experts"),
                                         END};
/* clang-format on */

const hf_family hf_mixtral = {.type = "mixtral",
                              .classes = LLAMA_CLASSES("Mixtral"),
                              .rows = {of_mixtral, hf_llama_sizes, hf_head_dim, hf_head_columns, mixtral_experts,
                                       hf_balance, hf_expert_choice, hf_capacity_note},
                              LLAMA};

/* ---- qwen2, qwen3 ---- */

/* clang-format off */
static const hf_row of_qwen[] = {
    OF_CLASS("10000.0", "1e-6", "32"),
    END};
/* clang-format on */

/* With `use_sliding_window` the layers after the first ones have a window: two kinds of layers, or one kind for samples
 * that no window cuts. */
/* clang-format off */
static const hf_row qwen_window[] = {
    FLAG("use_sliding_window", "asked", "0"),
    SIZE_OR_NULL("sliding_window", "given_window", "4096", "0", INT32_MAX),
    COUNT("max_window_layers", "full_layers", "28", HF_MOST_LAYERS),
    CALL(hf_read_full_layers),
    LET("window", "asked & full_layers < layers ? given_window : 0"),
    LET("full_layers", "window ? full_layers : 0"),
    LET("variants", "full_layers ? 2 : 1"),
    END};
static const hf_row qwen_alike[] = {
    LET("longest", "head == 1 ? window : 0"),
    LET("window", "head == 1 ? 0 : window"),
    LET("full_layers", "head == 1 ? 0 : full_layers"),
    END};

static const hf_row qwen2_biases[] = {
    LET("qkv_bias", "1"),
    END};
/* clang-format on */
const hf_family hf_qwen2 = {.type = "qwen2",
                            .classes = LLAMA_CLASSES("Qwen2"),
                            .rows = {of_qwen, hf_llama_sizes, hf_head_dim, hf_head_columns, qwen2_biases, qwen_window},
                            .of_head = qwen_alike,
                            LLAMA};

/* clang-format off */
static const hf_row qwen3_heads[] = {
    SIZE("head_dim", "head_size", "128", HF_MOST_WIDTH),
    LET("qk_norm", "1"),
    FLAG("attention_bias", "qkv_bias", "0"),
    LET("proj_bias", "qkv_bias"),
    END};
/* clang-format on */
const hf_family hf_qwen3 = {.type = "qwen3",
                            .classes = LLAMA_CLASSES("Qwen3"),
                            .rows = {of_qwen, hf_llama_sizes, qwen3_heads, hf_head_columns, qwen_window},
                            .of_head = qwen_alike,
                            LLAMA};
