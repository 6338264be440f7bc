/* BERT (arXiv 1810.04805) as BertConfig of transformers has it. Checkpoints come with one of three heads: masked
 * tokens, those and whether the second sentence follows the first, and spans. */
#include "hf.h"

enum { MASKED, PRETRAINING, QUESTIONS }; /* `head` in expressions */

/* clang-format off */
static const hf_row of_bert[] = {
    LET("variants", "3"),
    LET("eps_of_class", "1e-12"),
    LET("dropout_of_class", "0.1"),
    SIZE("vocab_size", "vocabulary", "30522", INT32_MAX),
    SIZE("max_position_embeddings", "positions", "512", HF_MOST_WIDTH),
    SIZE("type_vocab_size", "types", "2", HF_MOST_WIDTH),
    END};

static const hf_row others[] = {
    FLAG("tie_word_embeddings", "tied", "1"),
    REFUSED("tie_word_embeddings", "!tied & head != 2",
            "a decoder of its own: the import writes one that is the table of words", NULL),
    WORD("position_embedding_type", "position_type", "'absolute'"),
    REFUSED("position_embedding_type", "position_type != 'absolute'",
            "relative positions: the import writes a table of absolute ones", NULL),
    FLAG("is_decoder", "decoder", "0"),
    FLAG("add_cross_attention", "cross", "0"),
    REFUSED("is_decoder", "decoder", "a decoder: the import writes encoders, whose attention sees both ways", NULL),
    REFUSED("add_cross_attention", "cross & !decoder",
            "a decoder: the import writes encoders, whose attention sees both ways", NULL),
    NOTHING("pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
            "directionality"),
    END};
/* clang-format on */

static const hf_name names[] = {NAME("word", "bert.embeddings.word_embeddings.weight"),
                                NAME("position", "bert.embeddings.position_embeddings.weight"),
                                NAME("segment", "bert.embeddings.token_type_embeddings.weight"),
                                NAME("embeddings", "bert.embeddings.LayerNorm"),
                                NAME("layer.{}.attention.query", "bert.encoder.layer.${i}.attention.self.query"),
                                NAME("layer.{}.attention.key", "bert.encoder.layer.${i}.attention.self.key"),
                                NAME("layer.{}.attention.value", "bert.encoder.layer.${i}.attention.self.value"),
                                NAME("layer.{}.attention.dense", "bert.encoder.layer.${i}.attention.output.dense"),
                                NAME("layer.{}.attention_norm", "bert.encoder.layer.${i}.attention.output.LayerNorm"),
                                NAME("layer.{}.intermediate", "bert.encoder.layer.${i}.intermediate.dense"),
                                NAME("layer.{}.dense", "bert.encoder.layer.${i}.output.dense"),
                                NAME("layer.{}.output_norm", "bert.encoder.layer.${i}.output.LayerNorm"),
                                NAME("pooler", "bert.pooler.dense"),
                                NAME("transform", "cls.predictions.transform.dense"),
                                NAME("head_norm", "cls.predictions.transform.LayerNorm"),
                                NAME("head_bias", "cls.predictions.bias"),
                                NAME("seq_relationship", "cls.seq_relationship"),
                                NAME("qa_outputs", "qa_outputs"),
                                NAME_END};
static const hf_name old_names[] = {NAME("LayerNorm.weight", "LayerNorm.gamma"),
                                    NAME("LayerNorm.bias", "LayerNorm.beta"), NAME_END};

const hf_family hf_bert = {
    .type = "bert",
    .classes = {{"BertForMaskedLM", MASKED},
                {"BertForPreTraining", PRETRAINING},
                {"BertForQuestionAnswering", QUESTIONS},
                {"BertModel", MASKED}},
    .rows = {of_bert, hf_encoder_sizes, others},
    .text = "bert",
    .prefix = "bert.",
    .names = names,
    .ties = {{"cls.predictions.decoder.weight", "head != 2", "bert.embeddings.word_embeddings.weight", true},
             {"cls.predictions.decoder.bias", "head != 2", "cls.predictions.bias", false}},
    .old_names = old_names};
