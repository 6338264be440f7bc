/* SPDX-License-Identifier: Apache-2.0 */
/* T5, T5 v1.1 (arXiv 1910.10683) and mT5 (arXiv 2010.11934) as T5Config and MT5Config of transformers have them. The
 * head is the table of both embeddings (head 0), or a matrix of its own (head 1). */
#include "hf.h"

/* clang-format off */
static const hf_row of_t5[] = {
    LET("vocabulary_of_class", "32128"),
    LET("ff_of_class", "2048"),
    LET("layers_of_class", "6"),
    LET("heads_of_class", "8"),
    LET("network_of_class", "'relu'"),
    END};

static const hf_row of_mt5[] = {
    LET("vocabulary_of_class", "250112"),
    LET("ff_of_class", "1024"),
    LET("layers_of_class", "8"),
    LET("heads_of_class", "6"),
    LET("network_of_class", "'gated-gelu'"),
    END};

static const hf_row sizes[] = {
    LET("variants", "2"),
    LET("std", "0.02"), /* of no block that the template writes */
    SIZE("vocab_size", "vocabulary", "vocabulary_of_class", INT32_MAX),
    SIZE("n_positions", "positions", "512", HF_MOST_WIDTH),
    SIZE("d_model", "hidden", "512", HF_MOST_WIDTH),
    SIZE("d_kv", "head_size", "64", HF_MOST_WIDTH),
    SIZE("d_ff", "ff", "ff_of_class", HF_MOST_WIDTH),
    SIZE("num_layers", "layers", "layers_of_class", HF_MOST_LAYERS),
    SIZE_OR_NULL("num_decoder_layers", "decoder_layers", "layers", "layers", HF_MOST_LAYERS),
    SIZE("num_heads", "heads", "heads_of_class", HF_MOST_WIDTH),
    SIZE("relative_attention_num_buckets", "buckets", "32", HF_MOST_WIDTH),
    SIZE("relative_attention_max_distance", "max_distance", "128", HF_MOST_WIDTH),
    REAL("layer_norm_epsilon", "eps", "1e-6", 0, 1),
    REAL("dropout_rate", "dropout", "0.1", 0, 0.999),
    /* `dense_act_fn` and `is_gated_act` of newer files say the same once more. */
    WORD("feed_forward_proj", "network", "network_of_class"),
    LET("gated", "network == 'gated-gelu'"),
    REFUSED("feed_forward_proj", "!gated & network != 'relu'",
            "the network of a layer is `${network}`, which the blocks of std.models lack",
            "known are relu (T5) and gated-gelu (T5 v1.1)"),
    LET("once_more", "gated ? 'gelu_new' : 'relu'"),
    WORD("dense_act_fn", "activation", "once_more"),
    REFUSED("dense_act_fn", "activation != once_more & (gated | network == 'relu')",
            "the activation is `${activation}`, and `feed_forward_proj` is `${network}`", NULL),
    FLAG("is_gated_act", "gated_once_more", "gated"),
    REFUSED("is_gated_act", "gated_once_more != gated & activation == once_more & (gated | network == 'relu')",
            "it says otherwise than `feed_forward_proj`, `${network}`", NULL),
    FLAG_OR_NULL("tie_word_embeddings", "tied", "1", "1"),
    LET("head", "tied ? 0 : 1"),
    REAL("initializer_factor", "factor", "1.0", 0, 1e6),
    TELL("factor != 1", "`initializer_factor` was left out: weights begin as those of factor 1"),
    TELL("dropout > 0",
         "`dropout_rate` means probabilities of attention as well: `attention(..., dropout = ${dropout})`, which was "
         "left out"),
    FLAG("is_decoder", "decoder", "0"),
    FLAG("is_encoder_decoder", "both", "1"),
    REFUSED("is_decoder", "decoder", "one half of the model: the import writes an encoder and a decoder", NULL),
    REFUSED("is_encoder_decoder", "!both & !decoder",
            "one half of the model: the import writes an encoder and a decoder", NULL),
    SAME("hidden_size", "d_model"),
    SAME("num_attention_heads", "num_heads"),
    SAME("num_hidden_layers", "num_layers"),
    SAME("head_dim", "d_kv"),
    END};

/* transformers 5 writes tie_word_embeddings = true in any case, and scale_decoder_outputs says what it was. */
static const hf_row t5_head[] = {
    FLAG("scale_decoder_outputs", "scaled", "tied"),
    END};

static const hf_row mt5_head[] = {
    LET("scaled", "0"), /* the class scales nothing, tied or not */
    END};
/* clang-format on */

static const hf_name names[] = {
    NAME("shared", "shared.weight"),
    NAME("lm_head", "lm_head.weight"),
    NAME("encoder_bias", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    NAME("decoder_bias", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    NAME("encoder.{}.norm_1", "encoder.block.${i}.layer.0.layer_norm"),
    NAME("encoder.{}.attention", "encoder.block.${i}.layer.0.SelfAttention"),
    NAME("encoder.{}.norm_2", "encoder.block.${i}.layer.1.layer_norm"),
    NAME("encoder.{}.mlp", "encoder.block.${i}.layer.1.DenseReluDense"),
    NAME("encoder_norm", "encoder.final_layer_norm"),
    NAME("decoder.{}.norm_1", "decoder.block.${i}.layer.0.layer_norm"),
    NAME("decoder.{}.attention", "decoder.block.${i}.layer.0.SelfAttention"),
    NAME("decoder.{}.norm_2", "decoder.block.${i}.layer.1.layer_norm"),
    NAME("decoder.{}.cross", "decoder.block.${i}.layer.1.EncDecAttention"),
    NAME("decoder.{}.norm_3", "decoder.block.${i}.layer.2.layer_norm"),
    NAME("decoder.{}.mlp", "decoder.block.${i}.layer.2.DenseReluDense"),
    NAME("decoder_norm", "decoder.final_layer_norm"),
    NAME_END};

const hf_family hf_t5 = {.type = "t5",
                         .classes = {{"T5ForConditionalGeneration", 0}, {"T5WithLMHeadModel", 0}, {"T5Model", 0}},
                         .rows = {of_t5, sizes, t5_head},
                         .text = "t5",
                         .prefix = "",
                         .names = names,
                         /* An unscaled head is a matrix of its own, whatever config.json says. */
                         .ties = {{"encoder.embed_tokens.weight", "1", "shared.weight", false},
                                  {"decoder.embed_tokens.weight", "1", "shared.weight", false},
                                  {"lm_head.weight", "head == 0 & scaled", "shared.weight", true}}};

const hf_family hf_mt5 = {.type = "mt5",
                          .classes = {{"MT5ForConditionalGeneration", 0}, {"MT5Model", 0}},
                          .rows = {of_mt5, sizes, mt5_head},
                          .text = "t5",
                          .prefix = "",
                          .names = names,
                          .ties = {{"encoder.embed_tokens.weight", "1", "shared.weight", false},
                                   {"decoder.embed_tokens.weight", "1", "shared.weight", false},
                                   {"lm_head.weight", "head == 0", "shared.weight", true}}};
