/* The config.json of BERT or T5 for a model that was written by hand. A model with attention across sequences may be a
 * T5, one whose attention sees both ways a BERT. Sizes are read off single operations, wherever they stand. */
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

static void set_sizes(zp_json *o, const char *const names[4], const zp_model *model, found attention, found table) {
  found activation = find(model, is_activation, true);
  zp_json_set_int(o, names[0], shape_of(table, 1)->dim[1]);
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
  set_sizes(o, names, model, attention, words);
  zp_json_set_int(o, "vocab_size", shape_of(words, 1)->dim[0]);
  zp_json_set_int(o, "type_vocab_size", shape_of(table_of(model, false), 1)->dim[0]);
  zp_json_set_int(o, "max_position_embeddings", model->sequence);
  zp_json_set_real(o, "layer_norm_eps", norm.node->attr.eps);
  bool relu = gelu.node && gelu.node->op == ZP_OP_RELU, tanh_form = gelu.node && gelu.node->attr.tanh_form;
  zp_json_set_string(o, "hidden_act", relu ? "relu" : tanh_form ? "gelu_new" : "gelu");
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
  set_sizes(o, names, model, cross, table);
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

zp_json *zp_export_encoder_config(const zp_model *model) {
  found cross = find(model, is_cross, true), both = find(model, is_both_ways, true);
  if (cross.node) return t5(model, cross);
  return both.node ? bert(model, both) : NULL;
}
