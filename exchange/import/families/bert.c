/* SPDX-License-Identifier: Apache-2.0 */
/* BERT (arXiv 1810.04805) and RoBERTa (arXiv 1907.11692) as BertConfig and RobertaConfig of transformers have them.
 * BERT's checkpoints come with one of three heads: masked tokens, those and whether the second sentence follows the
 * first, and spans. */
#include "hf.h"

enum { MASKED, QUESTIONS, PRETRAINING }; /* `head` in expressions */

/* clang-format off */
static const hf_row of_bert[] = {
    LET("variants", "3"),
    LET("eps_of_class", "1e-12"),
    LET("dropout_of_class", "0.1"),
    SIZE("vocab_size", "vocabulary", "30522", INT32_MAX),
    SIZE("max_position_embeddings", "positions", "512", HF_MOST_WIDTH),
    SIZE("type_vocab_size", "types", "2", HF_MOST_WIDTH),
    END};

static const hf_row encoder[] = {
    FLAG("tie_word_embeddings", "tied", "1"),
    REFUSED("tie_word_embeddings", "!tied & head != 1",
            "a decoder of its own: the import writes one that is the table of words", NULL),
    WORD("position_embedding_type", "position_type", "'absolute'"),
    REFUSED("position_embedding_type", "position_type != 'absolute'",
            "relative positions: the import writes a table of absolute ones", NULL),
    FLAG("is_decoder", "decoder", "0"),
    FLAG("add_cross_attention", "cross", "0"),
    REFUSED("is_decoder", "decoder", "a decoder: the import writes encoders, whose attention sees both ways", NULL),
    REFUSED("add_cross_attention", "cross & !decoder",
            "a decoder: the import writes encoders, whose attention sees both ways", NULL),
    END};

static const hf_row bert_keys[] = {
    LET("first", "0"),
    LET("head_act", "act"),
    LET("head_act_end", "act_end"),
    NOTHING("pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
            "directionality"),
    END};

/* Positions begin after the number of the padding token. */
static const hf_row of_roberta[] = {
    LET("variants", "2"),
    LET("eps_of_class", "1e-12"),
    LET("dropout_of_class", "0.1"),
    SIZE("vocab_size", "vocabulary", "50265", INT32_MAX),
    SIZE("max_position_embeddings", "positions", "512", HF_MOST_WIDTH),
    SIZE("type_vocab_size", "types", "2", HF_MOST_WIDTH),
    COUNT("pad_token_id", "pad", "1", INT32_MAX - 1),
    LET("first", "pad + 1"),
    WRONG("max_position_embeddings", "positions <= first",
          "${positions} positions, and those of tokens begin after `pad_token_id`, ${pad}"),
    LET("head_act", "'gelu('"),
    LET("head_act_end", "')'"),
    TELL(NULL, "positions count the tokens of a sample; tokens that are `pad_token_id` (${pad}), which transformers "
               "leaves out of the count, may stand behind its end alone"),
    END};
/* clang-format on */

#define LAYERS(prefix)                                                                                                 \
  NAME("word", prefix "embeddings.word_embeddings.weight"), NAME("position", prefix "embeddings.position_embeddings"), \
      NAME("segment", prefix "embeddings.token_type_embeddings.weight"),                                               \
      NAME("embeddings", prefix "embeddings.LayerNorm"),                                                               \
      NAME("layer.{}.attention.dense", prefix "encoder.layer.${i}.attention.output.dense"),                            \
      NAME("layer.{}.attention", prefix "encoder.layer.${i}.attention.self"),                                          \
      NAME("layer.{}.attention_norm", prefix "encoder.layer.${i}.attention.output.LayerNorm"),                         \
      NAME("layer.{}.intermediate", prefix "encoder.layer.${i}.intermediate.dense"),                                   \
      NAME("layer.{}.dense", prefix "encoder.layer.${i}.output.dense"),                                                \
      NAME("layer.{}.output_norm", prefix "encoder.layer.${i}.output.LayerNorm"), NAME("qa_outputs", "qa_outputs")

static const hf_name bert_names[] = {NAME("position", "bert.embeddings.position_embeddings.weight"),
                                     LAYERS("bert."),
                                     NAME("pooler", "bert.pooler.dense"),
                                     NAME("transform", "cls.predictions.transform.dense"),
                                     NAME("head_norm", "cls.predictions.transform.LayerNorm"),
                                     NAME("head_bias", "cls.predictions.bias"),
                                     NAME("seq_relationship", "cls.seq_relationship"),
                                     NAME_END};
static const hf_name old_names[] = {NAME("LayerNorm.weight", "LayerNorm.gamma"),
                                    NAME("LayerNorm.bias", "LayerNorm.beta"), NAME_END};

const hf_family hf_bert = {
    .type = "bert",
    .classes = {{"BertForMaskedLM", MASKED},
                {"BertForPreTraining", PRETRAINING},
                {"BertForQuestionAnswering", QUESTIONS},
                {"BertModel", MASKED}},
    .rows = {of_bert, hf_encoder_sizes, encoder, bert_keys},
    .text = "bert",
    .prefix = "bert.",
    .names = bert_names,
    .ties = {{"cls.predictions.decoder.weight", "head != 1", "bert.embeddings.word_embeddings.weight", true},
             {"cls.predictions.decoder.bias", "head != 1", "cls.predictions.bias", false}},
    .old_names = old_names};

static const hf_name roberta_names[] = {LAYERS("roberta."), NAME("transform", "lm_head.dense"),
                                        NAME("head_norm", "lm_head.layer_norm"), NAME("head_bias", "lm_head.bias"),
                                        NAME_END};

const hf_family hf_roberta = {
    .type = "roberta",
    .classes = {{"RobertaForMaskedLM", MASKED}, {"RobertaForQuestionAnswering", QUESTIONS}, {"RobertaModel", MASKED}},
    .rows = {of_roberta, hf_encoder_sizes, encoder},
    .text = "bert",
    .prefix = "roberta.",
    .names = roberta_names,
    .ties = {{"lm_head.decoder.weight", "head != 1", "roberta.embeddings.word_embeddings.weight", true},
             {"lm_head.decoder.bias", "head != 1", "lm_head.bias", false}}};
