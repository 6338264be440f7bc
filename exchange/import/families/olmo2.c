/* SPDX-License-Identifier: Apache-2.0 */
/* OLMo 2 (arXiv 2501.00656) as Olmo2Config of transformers has it. */
#include "hf.h"

/* clang-format off */
static const hf_row of_olmo2[] = {
    OF_CLASS("10000.0", "1e-5", "0"),
    LET("has_rotary_share", "1"),
    END};

static const hf_row biases[] = {
    FLAG("attention_bias", "qkv_bias", "0"),
    END};
/* clang-format on */

const hf_family hf_olmo2 = {.type = "olmo2",
                            .classes = {{"Olmo2ForCausalLM", 0}, {"Olmo2Model", 0}},
                            .rows = {of_olmo2, hf_llama_sizes, hf_head_dim, hf_head_columns, biases, hf_std_note},
                            .text = "olmo2",
                            .prefix = "model.",
                            .names = hf_llama_names,
                            .ties = {{"lm_head.weight", "tied", "model.embed_tokens.weight", true}}};
