/* SPDX-License-Identifier: Apache-2.0 */
/* Phi-3 (arXiv 2404.14219) as Phi3Config of transformers has it, without LongRoPE. */
#include "hf.h"

/* clang-format off */
static const hf_row of_phi3[] = {
    OF_CLASS("10000.0", "1e-5", "0"),
    LET("has_rotary_share", "1"),
    END};

static const hf_row others[] = {
    SIZE_OR_NULL("sliding_window", "window", "0", "0", INT32_MAX),
    REAL("resid_pdrop", "dropout", "0.0", 0, 0.999),
    NOTHING("embd_pdrop original_max_position_embeddings"), /* no layer of type `default` reads them */
    END};
/* clang-format on */

const hf_family hf_phi3 = {.type = "phi3",
                           .classes = {{"Phi3ForCausalLM", 0}, {"Phi3Model", 0}},
                           .rows = {of_phi3, hf_llama_sizes, hf_head_dim, hf_head_columns, others, hf_std_note},
                           .text = "phi3",
                           .prefix = "model.",
                           .names = hf_llama_names,
                           .ties = {{"lm_head.weight", "tied", "model.embed_tokens.weight", true}}};
