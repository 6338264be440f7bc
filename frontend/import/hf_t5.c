/* T5 and T5 v1.1 (arXiv 1910.10683) as transformers has them: fields, the model as .dz text out of the blocks of
 * std.models, names of tensors. The head is the table of both embeddings, or a matrix of its own. */
#include "hf.h"

const hf_name hf_t5_names[] = {{"shared", "shared.weight"},
                               {"lm_head", "lm_head.weight"},
                               {"encoder_bias", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
                               {"decoder_bias", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
                               {"encoder.{}.norm_1", "encoder.block.{}.layer.0.layer_norm"},
                               {"encoder.{}.attention.q", "encoder.block.{}.layer.0.SelfAttention.q"},
                               {"encoder.{}.attention.k", "encoder.block.{}.layer.0.SelfAttention.k"},
                               {"encoder.{}.attention.v", "encoder.block.{}.layer.0.SelfAttention.v"},
                               {"encoder.{}.attention.o", "encoder.block.{}.layer.0.SelfAttention.o"},
                               {"encoder.{}.norm_2", "encoder.block.{}.layer.1.layer_norm"},
                               {"encoder.{}.mlp.wi", "encoder.block.{}.layer.1.DenseReluDense.wi"},
                               {"encoder.{}.mlp.wi_0", "encoder.block.{}.layer.1.DenseReluDense.wi_0"},
                               {"encoder.{}.mlp.wi_1", "encoder.block.{}.layer.1.DenseReluDense.wi_1"},
                               {"encoder.{}.mlp.wo", "encoder.block.{}.layer.1.DenseReluDense.wo"},
                               {"encoder_norm", "encoder.final_layer_norm"},
                               {"decoder.{}.norm_1", "decoder.block.{}.layer.0.layer_norm"},
                               {"decoder.{}.attention.q", "decoder.block.{}.layer.0.SelfAttention.q"},
                               {"decoder.{}.attention.k", "decoder.block.{}.layer.0.SelfAttention.k"},
                               {"decoder.{}.attention.v", "decoder.block.{}.layer.0.SelfAttention.v"},
                               {"decoder.{}.attention.o", "decoder.block.{}.layer.0.SelfAttention.o"},
                               {"decoder.{}.norm_2", "decoder.block.{}.layer.1.layer_norm"},
                               {"decoder.{}.cross.q", "decoder.block.{}.layer.1.EncDecAttention.q"},
                               {"decoder.{}.cross.k", "decoder.block.{}.layer.1.EncDecAttention.k"},
                               {"decoder.{}.cross.v", "decoder.block.{}.layer.1.EncDecAttention.v"},
                               {"decoder.{}.cross.o", "decoder.block.{}.layer.1.EncDecAttention.o"},
                               {"decoder.{}.norm_3", "decoder.block.{}.layer.2.layer_norm"},
                               {"decoder.{}.mlp.wi", "decoder.block.{}.layer.2.DenseReluDense.wi"},
                               {"decoder.{}.mlp.wi_0", "decoder.block.{}.layer.2.DenseReluDense.wi_0"},
                               {"decoder.{}.mlp.wi_1", "decoder.block.{}.layer.2.DenseReluDense.wi_1"},
                               {"decoder.{}.mlp.wo", "decoder.block.{}.layer.2.DenseReluDense.wo"},
                               {"decoder_norm", "decoder.final_layer_norm"},
                               {NULL, NULL}};

/* `dense_act_fn` and `is_gated_act` of newer files say the same once more. */
static void read_feed_forward(hf_reader *r) {
  const char *word = hf_word(r, "feed_forward_proj", "relu");
  r->model->gated = strcmp(word, "gated-gelu") == 0;
  if (!r->model->gated && strcmp(word, "relu") != 0)
    hf_refuse(r, "feed_forward_proj", "known are relu (T5) and gated-gelu (T5 v1.1)",
              "the network of a layer is `%s`, which the blocks of std.models lack", word);
  const char *once_more = r->model->gated ? "gelu_new" : "relu", *act = hf_word(r, "dense_act_fn", once_more);
  if (strcmp(act, once_more) != 0 && hf_is_sound(r))
    hf_refuse(r, "dense_act_fn", NULL, "the activation is `%s`, and `feed_forward_proj` is `%s`", act, word);
  if (hf_flag(r, "is_gated_act", r->model->gated) != r->model->gated && hf_is_sound(r))
    hf_refuse(r, "is_gated_act", NULL, "it says otherwise than `feed_forward_proj`, `%s`", word);
}

/* transformers 5 writes tie_word_embeddings = true in any case, and says with scale_decoder_outputs what it was. */
static void read_head(hf_reader *r) {
  hf_model *m = r->model;
  bool tied = hf_is_null(r, "tie_word_embeddings") || hf_flag(r, "tie_word_embeddings", true);
  m->scaled = hf_flag(r, "scale_decoder_outputs", tied);
  m->head = tied ? HF_T5_TIED : HF_T5_UNTIED;
}

void hf_read_t5(hf_reader *r) {
  hf_model *m = r->model;
  m->layers_are = HF_T5;
  m->n_heads = HF_T5_HEADS;
  m->vocabulary = hf_size(r, "vocab_size", 32128, INT32_MAX);
  m->positions = hf_size(r, "n_positions", 512, HF_MOST_WIDTH);
  m->hidden = hf_size(r, "d_model", 512, HF_MOST_WIDTH);
  m->head_size = hf_size(r, "d_kv", 64, HF_MOST_WIDTH);
  m->ff = hf_size(r, "d_ff", 2048, HF_MOST_WIDTH);
  m->layers = hf_size(r, "num_layers", 6, HF_MOST_LAYERS);
  m->decoder_layers = hf_size_or_null(r, "num_decoder_layers", m->layers, HF_MOST_LAYERS);
  m->heads = m->kv_heads = hf_size(r, "num_heads", 8, HF_MOST_WIDTH);
  m->buckets = hf_size(r, "relative_attention_num_buckets", 32, HF_MOST_WIDTH);
  m->max_distance = hf_size(r, "relative_attention_max_distance", 128, HF_MOST_WIDTH);
  m->eps = hf_real(r, "layer_norm_epsilon", 1e-6, 0, 1);
  m->dropout = m->embedding_dropout = hf_real(r, "dropout_rate", 0.1, 0, 0.999);
  read_feed_forward(r);
  read_head(r);
  if (hf_real(r, "initializer_factor", 1, 0, 1e6) != 1)
    hf_note(r, "`initializer_factor` was left out: weights begin as those of factor 1");
  if (m->dropout > 0)
    hf_note(
        r,
        "`dropout_rate` means probabilities of attention as well: `attention(..., dropout = %g)`, which was left out",
        m->dropout);
  if (hf_flag(r, "is_decoder", false) || !hf_flag(r, "is_encoder_decoder", true))
    hf_refuse(r, hf_flag(r, "is_decoder", false) ? "is_decoder" : "is_encoder_decoder", NULL,
              "one half of the model: the import writes an encoder and a decoder");
}

static void write_sizes(zp_buf *out, const hf_model *m) {
  zp_buf_printf(
      out,
      "model t5(V = %lld, S = %lld, T = %lld, d = %lld, layers = %lld, decoder_layers = %lld, heads = %lld, head = "
      "%lld,\n         ff = %lld, buckets = %lld) {\n",
      (long long)m->vocabulary, (long long)m->positions, (long long)m->positions, (long long)m->hidden,
      (long long)m->layers, (long long)m->decoder_layers, (long long)m->heads, (long long)m->head_size,
      (long long)m->ff, (long long)m->buckets);
  zp_buf_puts(out, "  input source: i32[B, S]\n  input target: i32[B, T]  # the labels, one position later\n"
                   "  input labels: i32[B, T]\n  input lengths: i32[B]  # of the sources\n\n"
                   "  param shared: [V, d] ~ normal(std = 1.0)\n"
                   "  param encoder_bias: [buckets, heads] ~ normal(std = rsqrt(d))\n"
                   "  param decoder_bias: [buckets, heads] ~ normal(std = rsqrt(d))\n");
  if (m->head == HF_T5_UNTIED) zp_buf_puts(out, "  param lm_head: [V, d] ~ normal(std = 1.0)\n");
}

void hf_write_t5(zp_buf *out, const hf_model *m) {
  const char *eps = hf_number(out->arena, m->eps);
  const char *layer = zp_format(out->arena, "head = head, ff = ff, gated = %s, max_distance = %lld, eps = %s",
                                m->gated ? "true" : "false", (long long)m->max_distance, eps);
  write_sizes(out, m);
  zp_buf_printf(out, "\n  x = %s\n  repeat encoder in 0..layers {\n", hf_dropped(out, m, "embedding(source, shared)"));
  zp_buf_printf(out, "    x = t5_encoder_layer(x, lengths, encoder_bias, %s)\n  }\n", layer);
  zp_buf_printf(out, "  encoder_norm = t5_norm(x, eps = %s)\n", eps);
  zp_buf_printf(out, "  memory       = %s\n", hf_dropped(out, m, "encoder_norm"));
  zp_buf_printf(out, "  y            = %s\n", hf_dropped(out, m, "embedding(target, shared)"));
  zp_buf_printf(
      out,
      "  repeat decoder in 0..decoder_layers {\n    y = t5_decoder_layer(y, memory, lengths, decoder_bias, %s)\n  }\n",
      layer);
  zp_buf_printf(out, "  decoder_norm = t5_norm(y, eps = %s)\n", eps);
  zp_buf_printf(out, "  logits       = matmul(%s%s, transpose(%s))\n", hf_dropped(out, m, "decoder_norm"),
                m->scaled ? " * rsqrt(d)" : "", m->head == HF_T5_TIED ? "shared" : "lm_head");
  zp_buf_puts(out, "  output loss = cross_entropy(logits, labels)\n}\n");
}
