/* BERT (arXiv 1810.04805) as transformers has it: fields, the model as .dz text, names of tensors. Checkpoints come
 * with one of three heads: masked tokens (BertForMaskedLM), those and whether the second sentence follows the first
 * (BertForPreTraining), and spans (BertForQuestionAnswering). */
#include "hf.h"

const char *const hf_bert_classes[HF_BERT_HEADS] = {[HF_BERT_MASKED] = "BertForMaskedLM",
                                                    [HF_BERT_PRETRAINING] = "BertForPreTraining",
                                                    [HF_BERT_QUESTIONS] = "BertForQuestionAnswering"};

const hf_name hf_bert_names[] = {{"word", "bert.embeddings.word_embeddings.weight"},
                                 {"position", "bert.embeddings.position_embeddings.weight"},
                                 {"segment", "bert.embeddings.token_type_embeddings.weight"},
                                 {"embeddings", "bert.embeddings.LayerNorm"},
                                 {"layer.{}.attention.query", "bert.encoder.layer.{}.attention.self.query"},
                                 {"layer.{}.attention.key", "bert.encoder.layer.{}.attention.self.key"},
                                 {"layer.{}.attention.value", "bert.encoder.layer.{}.attention.self.value"},
                                 {"layer.{}.attention.dense", "bert.encoder.layer.{}.attention.output.dense"},
                                 {"layer.{}.attention_norm", "bert.encoder.layer.{}.attention.output.LayerNorm"},
                                 {"layer.{}.intermediate", "bert.encoder.layer.{}.intermediate.dense"},
                                 {"layer.{}.dense", "bert.encoder.layer.{}.output.dense"},
                                 {"layer.{}.output_norm", "bert.encoder.layer.{}.output.LayerNorm"},
                                 {"pooler", "bert.pooler.dense"},
                                 {"transform", "cls.predictions.transform.dense"},
                                 {"head_norm", "cls.predictions.transform.LayerNorm"},
                                 {"head_bias", "cls.predictions.bias"},
                                 {"seq_relationship", "cls.seq_relationship"},
                                 {"qa_outputs", "qa_outputs"},
                                 {NULL, NULL}};

static int head_of(hf_reader *r) {
  const char *class = zp_json_string(zp_json_at(hf_value(r, "architectures"), 0), NULL);
  for (int i = 0; class && i < HF_BERT_HEADS; i++)
    if (strcmp(hf_bert_classes[i], class) == 0) return i;
  return HF_BERT_MASKED;
}

void hf_read_bert(hf_reader *r) {
  hf_model *m = r->model;
  m->layers_are = HF_BERT;
  m->n_heads = HF_BERT_HEADS;
  m->head = head_of(r);
  m->vocabulary = hf_size(r, "vocab_size", 30522, INT32_MAX);
  m->positions = hf_size(r, "max_position_embeddings", 512, HF_MOST_WIDTH);
  m->types = hf_size(r, "type_vocab_size", 2, HF_MOST_WIDTH);
  hf_read_encoder(r, 0.1);
  m->tied = hf_flag(r, "tie_word_embeddings", true);
  m->qkv_bias = m->proj_bias = m->mlp_bias = true;
  if (!m->tied && m->head != HF_BERT_QUESTIONS)
    hf_refuse(r, "tie_word_embeddings", NULL, "a decoder of its own: the import writes one that is the table of words");
  if (strcmp(hf_word(r, "position_embedding_type", "absolute"), "absolute") != 0)
    hf_refuse(r, "position_embedding_type", NULL, "relative positions: the import writes a table of absolute ones");
  if (hf_flag(r, "is_decoder", false) || hf_flag(r, "add_cross_attention", false))
    hf_refuse(r, hf_flag(r, "is_decoder", false) ? "is_decoder" : "add_cross_attention", NULL,
              "a decoder: the import writes encoders, whose attention sees both ways");
  hf_check_heads(r, "num_attention_heads");
}

/* ---- the text ---- */

static void write_layer(zp_buf *out, const hf_model *m) {
  const char *plain = hf_linear_options(out, m, true), *eps = hf_number(out->arena, m->eps);
  zp_buf_puts(out, "block self_attention(x: [B, S, d], lengths: i32[B], heads: int) -> [B, S, d] {\n");
  zp_buf_printf(out, "  query = linear(x, d%s)\n  key   = linear(x, d%s)\n  value = linear(x, d%s)\n", plain, plain,
                plain);
  zp_buf_puts(out, "  y     = attention(query, key, value, heads = heads, causal = false, lengths = lengths)\n");
  zp_buf_printf(out, "  dense = linear(y, d%s)\n  return dropout(dense)\n}\n\n", plain);
  zp_buf_puts(out, "block bert_layer(x: [B, S, d], lengths: i32[B], heads: int, ff: int) -> [B, S, d] {\n"
                   "  attention      = self_attention(x, lengths, heads = heads)\n");
  zp_buf_printf(out, "  attention_norm = layer_norm(x + attention, eps = %s)\n", eps);
  zp_buf_printf(out, "  intermediate   = linear(attention_norm, ff%s)\n", plain);
  zp_buf_printf(out, "  dense          = linear(%s, d%s)\n", hf_activation_of(out, m, "intermediate"), plain);
  zp_buf_printf(out, "  output_norm    = layer_norm(attention_norm + dropout(dense), eps = %s)\n", eps);
  zp_buf_puts(out, "  return output_norm\n}\n\n");
}

static void write_inputs(zp_buf *out, const hf_model *m) {
  zp_buf_puts(out, "  input tokens: i32[B, S]\n  input types: i32[B, S]  # 0: the first sentence, 1: the second\n");
  if (m->head == HF_BERT_QUESTIONS)
    zp_buf_puts(out, "  input lengths: i32[B]\n  input start: i32[B]\n  input end: i32[B]\n\n");
  else
    zp_buf_puts(out, "  input labels: i32[B, S]  # of the masked tokens\n  input lengths: i32[B]\n");
  if (m->head == HF_BERT_PRETRAINING)
    zp_buf_puts(out, "  input random_next: i32[B]  # 0: the second sentence follows the first, 1: it was drawn\n");
  if (m->head != HF_BERT_QUESTIONS) zp_buf_puts(out, "\n");
}

static void write_masked_head(zp_buf *out, const hf_model *m) {
  zp_buf_printf(out, "  transform = linear(x, d%s)\n", hf_linear_options(out, m, true));
  zp_buf_printf(out, "  head_norm = layer_norm(%s, eps = %s)\n", hf_activation_of(out, m, "transform"),
                hf_number(out->arena, m->eps));
  zp_buf_puts(out, "  param head_bias: [V] ~ zeros()\n"
                   "  logits = matmul(head_norm, transpose(word)) + head_bias  # the table of words: tied\n");
}

static void write_head(zp_buf *out, const hf_model *m) {
  const char *plain = hf_linear_options(out, m, true);
  if (m->head == HF_BERT_QUESTIONS) {
    zp_buf_printf(out, "  qa_outputs = linear(x, 2%s)\n", plain);
    zp_buf_puts(out, "  start_loss = cross_entropy(select(qa_outputs, 0, axis = -1), start, lengths = lengths)\n"
                     "  end_loss   = cross_entropy(select(qa_outputs, 1, axis = -1), end, lengths = lengths)\n"
                     "  output loss = (start_loss + end_loss) / 2\n}\n");
    return;
  }
  write_masked_head(out, m);
  if (m->head == HF_BERT_MASKED) {
    zp_buf_puts(out, "  output loss = cross_entropy(logits, labels)\n}\n");
    return;
  }
  zp_buf_printf(out, "  pooler           = sample_linear(select(x, 0), d%s)\n", plain);
  zp_buf_printf(out, "  seq_relationship = sample_linear(tanh(pooler), 2%s)\n", plain);
  zp_buf_puts(out, "  masked_loss      = cross_entropy(logits, labels)\n"
                   "  next_loss        = cross_entropy(seq_relationship, random_next)\n"
                   "  output loss = masked_loss + next_loss\n}\n");
}

void hf_write_bert(zp_buf *out, const hf_model *m) {
  const char *std = hf_number(out->arena, m->std);
  write_layer(out, m);
  zp_buf_printf(out,
                "model bert(V = %lld, S = %lld, d = %lld, layers = %lld, heads = %lld, ff = %lld, segments = %lld) {\n",
                (long long)m->vocabulary, (long long)m->positions, (long long)m->hidden, (long long)m->layers,
                (long long)m->heads, (long long)m->ff, (long long)m->types);
  write_inputs(out, m);
  zp_buf_printf(out,
                "  param word: [V, d] ~ normal(std = %s)\n  param position: [S, d] ~ normal(std = %s)\n"
                "  param segment: [segments, d] ~ normal(std = %s)\n\n",
                std, std, std);
  zp_buf_printf(out,
                "  embeddings = layer_norm(embedding(tokens, word) + embedding(types, segment) + position, eps = %s)\n",
                hf_number(out->arena, m->eps));
  zp_buf_printf(out, "  x = %s\n  repeat layer in 0..layers {\n", hf_dropped(out, m, "embeddings"));
  zp_buf_puts(out, "    x = bert_layer(x, lengths, heads = heads, ff = ff)\n  }\n");
  write_head(out, m);
}
