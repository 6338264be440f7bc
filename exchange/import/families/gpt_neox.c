/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-NeoX (arXiv 2204.06745) as GPTNeoXConfig of transformers has it. Where a part of a head turns, rows of
 * query_key_value are in the order of the checkpoints; else those of all queries come first. */
#include "hf.h"

/* clang-format off */
static const hf_row rows[] = {
    LET("rotary", "0"),
    SIZE("vocab_size", "vocabulary", NULL, INT32_MAX),
    SIZE("max_position_embeddings", "positions", "2048", HF_MOST_WIDTH),
    SIZE("hidden_size", "hidden", NULL, HF_MOST_WIDTH),
    SIZE("num_hidden_layers", "layers", NULL, HF_MOST_LAYERS),
    SIZE("num_attention_heads", "heads", NULL, HF_MOST_WIDTH),
    LET("head_size", "hidden / heads"),
    SIZE("intermediate_size", "ff", NULL, HF_MOST_WIDTH),
    REAL("layer_norm_eps", "eps", "1e-5", 0, 1),
    REAL("initializer_range", "std", "0.02", 0, 10),
    FLAG("tie_word_embeddings", "tied", "0"),
    FLAG("use_parallel_residual", "parallel", "1"),
    FLAG("attention_bias", "attention_bias", "1"),
    ACTIVATION("hidden_act", "'gelu'"),
    REAL("hidden_dropout", "dropout", "0.0", 0, 0.999),
    LET("embedding_dropout", "dropout"),
    REAL_OR_NULL("attention_dropout", "attention_dropout", "0.0", "0.0", 0, 1),
    TELL("attention_dropout > 0",
         "`attention_dropout` ${attention_dropout} was left out: `attention(..., dropout = ${attention_dropout})` has "
         "it"),
    REAL_OR_NULL("rotary_emb_base", "theta", "10000.0", "0.0", 1, 1e12), /* null: that of rope_parameters alone */
    REAL("rotary_pct", "rotary_share", "0.25", 0, 1),
    CALL(hf_read_neox_rope),
    END};

static const hf_row head_rows[] = {
    TELL("!rotary",
         "rows of query_key_value: the checkpoint has q, k, v of every head together, the .dz file all q, then all k, "
         "then all v"),
    WRONG("num_attention_heads", "hidden % heads != 0",
          "${heads} heads (`num_attention_heads`) do not divide the hidden size ${hidden}"),
    END};
/* clang-format on */

static const hf_name names[] = {NAME("embed_out", "embed_out.weight"),
                                NAME("embed_in", "gpt_neox.embed_in.weight"),
                                NAME_WHEN("!rotary", HF_BY_HEAD, "layers.{}.attention.query_key_value",
                                          "gpt_neox.layers.${i}.attention.query_key_value"),
                                NAME("layers.{}", "gpt_neox.layers.${i}"),
                                NAME("final_layer_norm", "gpt_neox.final_layer_norm"),
                                NAME_END};

const hf_family hf_gpt_neox = {.type = "gpt_neox",
                               .classes = {{"GPTNeoXForCausalLM", 0}, {"GPTNeoXModel", 0}},
                               .rows = {rows, hf_whole_heads, head_rows},
                               .text = "gpt_neox",
                               .prefix = "gpt_neox.",
                               .names = names,
                               .ties = {{"embed_out.weight", "tied", "gpt_neox.embed_in.weight", true}}};
