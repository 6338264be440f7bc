/* SPDX-License-Identifier: Apache-2.0 */
/* The config.json of BERT, T5 or ViT for a model that was written by hand. A model with attention across sequences may
 * be a T5, one whose attention sees both ways a BERT, and without a table of words a ViT. Sizes are read off single
 * operations, wherever they stand. */
#include "export_internal.h"

#include <zplan/json.h>

typedef struct found {
  const zp_graph *graph;
  const zp_node *node; /* NULL: there is none */
} found;

static bool is_cross(const zp_node *n) { return n->op == ZP_OP_ATTENTION && n->attr.cross; }
static bool is_both_ways(const zp_node *n) { return n->op == ZP_OP_ATTENTION && !n->attr.causal && !n->attr.cross; }
static bool has_buckets(const zp_node *n) { return n->op == ZP_OP_ATTENTION && n->attr.max_distance > 0; }
static bool is_layer_norm(const zp_node *n) { return n->op == ZP_OP_LAYER_NORM; }
static bool is_rms_norm(const zp_node *n) { return n->op == ZP_OP_RMS_NORM; }
static bool is_activation(const zp_node *n) { return n->op == ZP_OP_GELU || n->op == ZP_OP_RELU; }
static bool is_embedding(const zp_node *n) { return n->op == ZP_OP_EMBEDDING; }
static bool is_dropout(const zp_node *n) { return n->op == ZP_OP_DROPOUT; }
static bool is_column(const zp_node *n) { return n->op == ZP_OP_COLUMN; }
static bool is_number_times(const zp_node *n) { return n->op == ZP_OP_MUL_CONST; }
static bool is_unfold(const zp_node *n) { return n->op == ZP_OP_UNFOLD; }
static bool is_product(const zp_node *n) { return n->op == ZP_OP_MATMUL; }
static bool is_loss(const zp_node *n) { return n->op == ZP_OP_CROSS_ENTROPY; }

/* The first such operation; repeated: of layers alone. */
static found find(const zp_model *model, bool (*is)(const zp_node *), bool repeated) {
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *g = model->segments.data[s].graph;
    for (int i = 0; i < g->nodes.len; i++)
      if (is(&g->nodes.data[i]) && (!repeated || model->segments.data[s].is_repeat))
        return (found){g, &g->nodes.data[i]};
  }
  return (found){NULL, NULL};
}

static const zp_shape *shape_of(found f, int operand) { return &f.graph->tensors.data[f.node->in.data[operand]].shape; }

static int64_t count_of_repeat(const zp_model *model, int n) {
  for (int s = 0; s < model->segments.len; s++)
    if (model->segments.data[s].is_repeat && n-- == 0) return model->segments.data[s].count;
  return 0;
}

static void set_sizes(zp_json *o, const char *const names[4], const zp_model *model, found attention, int64_t hidden) {
  found activation = find(model, is_activation, true);
  zp_json_set_int(o, names[0], hidden);
  zp_json_set_int(o, names[1], count_of_repeat(model, 0));
  zp_json_set_int(o, names[2], attention.node->attr.heads);
  zp_json_set_int(o, names[3], activation.node ? zp_shape_cols(shape_of(activation, 0)) : 1);
}

static double dropout_of(const zp_model *model) {
  found dropout = find(model, is_dropout, false);
  return dropout.node ? dropout.node->attr.rate : 0;
}

static void set_class(zp_json *o, const char *class, const char *type) {
  zp_json_append_string(zp_json_set(o, "architectures", zp_json_array()), class);
  zp_json_set_string(o, "model_type", type);
}

static const char *activation_word(found f) {
  if (f.node && f.node->op == ZP_OP_RELU) return "relu";
  return f.node && f.node->attr.tanh_form ? "gelu_new" : "gelu";
}

/* ---- BERT ---- */

/* Words are the larger table, types of tokens the other one. */
static found table_of(const zp_model *model, bool words) {
  found best = {NULL, NULL};
  const zp_graph *g = model->segments.data[0].graph;
  for (int i = 0; i < g->nodes.len; i++) {
    found f = {g, &g->nodes.data[i]};
    if (!is_embedding(f.node)) continue;
    bool more = best.node && shape_of(f, 1)->dim[0] > shape_of(best, 1)->dim[0];
    if (!best.node || more == words) best = f;
  }
  return best;
}

static int count_losses(const zp_model *model) {
  int n = 0;
  for (int s = 0; s < model->segments.len; s++)
    for (int i = 0; i < model->segments.data[s].graph->nodes.len; i++)
      n += is_loss(&model->segments.data[s].graph->nodes.data[i]);
  return n;
}

static zp_json *bert(const zp_model *model, found attention) {
  static const char *const names[] = {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"};
  found words = table_of(model, true), norm = find(model, is_layer_norm, false),
        gelu = find(model, is_activation, true);
  if (!words.node || !norm.node) return NULL;
  zp_json *o = zp_json_object();
  set_class(o,
            find(model, is_column, false).node ? "BertForQuestionAnswering"
            : count_losses(model) > 1          ? "BertForPreTraining"
                                               : "BertForMaskedLM",
            "bert");
  set_sizes(o, names, model, attention, shape_of(words, 1)->dim[1]);
  zp_json_set_int(o, "vocab_size", shape_of(words, 1)->dim[0]);
  zp_json_set_int(o, "type_vocab_size", shape_of(table_of(model, false), 1)->dim[0]);
  zp_json_set_int(o, "max_position_embeddings", model->sequence);
  zp_json_set_real(o, "layer_norm_eps", norm.node->attr.eps);
  zp_json_set_string(o, "hidden_act", activation_word(gelu));
  zp_json_set_real(o, "hidden_dropout_prob", dropout_of(model));
  zp_json_set_real(o, "attention_probs_dropout_prob", attention.node->attr.rate);
  zp_json_set_bool(o, "tie_word_embeddings", true);
  zp_json_set_int(o, "pad_token_id", 0);
  return o;
}

/* ---- T5 ---- */

static zp_json *t5(const zp_model *model, found cross) {
  static const char *const names[] = {"d_model", "num_layers", "num_heads", "d_ff"};
  found table = find(model, is_embedding, false), norm = find(model, is_rms_norm, false),
        biased = find(model, has_buckets, true), activation = find(model, is_activation, true);
  if (!table.node || !norm.node || !biased.node) return NULL;
  bool scaled = find(model, is_number_times, false).node != NULL;
  zp_json *o = zp_json_object();
  set_class(o, "T5ForConditionalGeneration", "t5");
  set_sizes(o, names, model, cross, shape_of(table, 1)->dim[1]);
  zp_json_set_int(o, "num_decoder_layers", count_of_repeat(model, 1));
  zp_json_set_int(o, "d_kv", zp_shape_cols(shape_of(cross, 0)) / cross.node->attr.heads);
  zp_json_set_int(o, "vocab_size", shape_of(table, 1)->dim[0]);
  zp_json_set_int(o, "relative_attention_num_buckets", shape_of(biased, biased.node->in.len - 1)->dim[0]);
  zp_json_set_int(o, "relative_attention_max_distance", biased.node->attr.max_distance);
  zp_json_set_real(o, "layer_norm_epsilon", norm.node->attr.eps);
  zp_json_set_real(o, "dropout_rate", dropout_of(model));
  zp_json_set_string(o, "feed_forward_proj",
                     activation.node && activation.node->op == ZP_OP_RELU ? "relu" : "gated-gelu");
  zp_json_set_bool(o, "tie_word_embeddings", scaled); /* transformers scales where it is true */
  zp_json_set_bool(o, "is_encoder_decoder", true);
  zp_json_set_int(o, "decoder_start_token_id", 0);
  zp_json_set_int(o, "pad_token_id", 0);
  zp_json_set_int(o, "eos_token_id", 1);
  return o;
}

/* ---- ViT ---- */

static int64_t root_of(int64_t square) {
  int64_t side = 0;
  while (side * side < square) side++;
  return side * side == square ? side : 0;
}

/* Pixels of a side of a patch and of the picture, and channels: of windows, or of rows that are patches of three
 * channels. False: neither. */
static bool find_patches(const zp_model *model, int64_t *patch, int64_t *image, int64_t *channels) {
  found unfold = find(model, is_unfold, false), product = find(model, is_product, false);
  if (unfold.node) {
    const zp_windows *w = unfold.node->attr.windows;
    *patch = w->kernel[0], *image = w->size[0], *channels = zp_shape_cols(shape_of(unfold, 0));
    return w->size[0] == w->size[1];
  }
  if (!product.node) return false;
  const zp_shape *rows = shape_of(product, 0);
  *channels = 3;
  *patch = root_of(zp_shape_cols(rows) / 3);
  *image = rows->rank == 3 ? *patch * root_of(rows->dim[1]) : 0;
  return zp_shape_cols(rows) == 3 * *patch * *patch && *image > 0;
}

static zp_json *vit(const zp_model *model, found attention) {
  static const char *const names[] = {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"};
  found norm = find(model, is_layer_norm, false), loss = find(model, is_loss, false);
  int64_t patch, image, channels;
  if (!norm.node || !loss.node || !find_patches(model, &patch, &image, &channels)) return NULL;
  zp_json *o = zp_json_object();
  set_class(o, "ViTForImageClassification", "vit");
  set_sizes(o, names, model, attention, zp_shape_cols(shape_of(norm, 0)));
  zp_json_set_int(o, "image_size", image);
  zp_json_set_int(o, "patch_size", patch);
  zp_json_set_int(o, "num_channels", channels);
  zp_json_set_real(o, "layer_norm_eps", norm.node->attr.eps);
  zp_json_set_string(o, "hidden_act", activation_word(find(model, is_activation, true)));
  zp_json_set_real(o, "hidden_dropout_prob", dropout_of(model));
  zp_json_set_real(o, "attention_probs_dropout_prob", attention.node->attr.rate);
  zp_json_set_bool(o, "qkv_bias", true);
  zp_json *labels = zp_json_set(o, "id2label", zp_json_object());
  for (int64_t i = 0; i < zp_shape_cols(shape_of(loss, 0)); i++) {
    char key[24], label[32];
    snprintf(key, sizeof key, "%lld", (long long)i);
    snprintf(label, sizeof label, "LABEL_%lld", (long long)i);
    zp_json_set_string(labels, key, label);
  }
  return o;
}

zp_json *zp_export_encoder_config(const zp_model *model) {
  found cross = find(model, is_cross, true), both = find(model, is_both_ways, true);
  if (cross.node) return t5(model, cross);
  if (!both.node) return NULL;
  return find(model, is_embedding, false).node ? bert(model, both) : vit(model, both);
}
