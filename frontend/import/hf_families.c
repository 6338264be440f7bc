/* The families of models: which fields they have, under which names, with which defaults (those of the configuration
 * classes of transformers, src/transformers/models/FAMILY/configuration_FAMILY.py), and what of them the language
 * lacks. */
#include "hf.h"

enum {
  MOST_WIDTH = HF_MOST_WIDTH,
  MOST_LAYERS = HF_MOST_LAYERS,
  MOST_EXPERTS = HF_MOST_EXPERTS,
  MOST_TOP_K = HF_MOST_TOP_K
};

void hf_read_activation(hf_reader *r, const char *key, const char *usual) {
  static const struct {
    const char *word, *text;
  } rows[] = {{"gelu_new", "gelu(x, approximate = \"tanh\")"},
              {"gelu_pytorch_tanh", "gelu(x, approximate = \"tanh\")"},
              {"gelu_fast", "gelu(x, approximate = \"tanh\")"},
              {"gelu", "gelu(x)"},
              {"relu", "relu(x)"},
              {"silu", "silu(x)"}};
  const char *word = hf_word(r, key, usual);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].word, word) == 0) r->model->activation = rows[i].text;
  if (!r->model->activation)
    hf_refuse(r, key, "known are gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, relu, silu",
              "activation `%s` is not an op of the "
              "language",
              word);
}

void hf_note_attention_dropout(hf_reader *r, const char *key, double usual) {
  double rate = hf_is_null(r, key) ? 0 : hf_real(r, key, usual, 0, 1);
  if (rate > 0) hf_note(r, "`%s` %g was left out: `attention(..., dropout = %g)` has it", key, rate, rate);
}

static void read_dropouts(hf_reader *r, const char *embedding, const char *residual, double usual) {
  r->model->embedding_dropout = hf_real(r, embedding, usual, 0, 0.999);
  r->model->dropout = hf_real(r, residual, usual, 0, 0.999);
}

void hf_check_heads(hf_reader *r, const char *heads_key) {
  hf_model *m = r->model;
  if (!hf_is_sound(r)) return;
  if (m->hidden % m->heads != 0 && m->head_size * m->heads == m->hidden / m->heads * m->heads)
    zp_report(r->diags, ZP_Z0683, hf_place(r, heads_key), "%lld heads (`%s`) do not divide the hidden size %lld",
              (long long)m->heads, heads_key, (long long)m->hidden);
  if (m->heads % m->kv_heads != 0)
    zp_report(r->diags, ZP_Z0683, hf_place(r, "num_key_value_heads"),
              "%lld key/value heads (`num_key_value_heads`%s) do not divide %lld heads", (long long)m->kv_heads,
              hf_value(r, "num_key_value_heads") ? "" : ", of the class", (long long)m->heads);
}

void hf_read_encoder(hf_reader *r, double dropout) {
  hf_model *m = r->model;
  m->hidden = hf_size(r, "hidden_size", 768, HF_MOST_WIDTH);
  m->layers = hf_size(r, "num_hidden_layers", 12, HF_MOST_LAYERS);
  m->heads = m->kv_heads = hf_size(r, "num_attention_heads", 12, HF_MOST_WIDTH);
  m->head_size = m->hidden / m->heads;
  m->ff = hf_size(r, "intermediate_size", 3072, HF_MOST_WIDTH);
  m->eps = hf_real(r, "layer_norm_eps", 1e-12, 0, 1);
  m->std = hf_real(r, "initializer_range", 0.02, 0, 10);
  hf_read_activation(r, "hidden_act", "gelu");
  m->embedding_dropout = m->dropout = hf_real(r, "hidden_dropout_prob", dropout, 0, 0.999);
  hf_note_attention_dropout(r, "attention_probs_dropout_prob", dropout);
}

static void read_gpt2(hf_reader *r) {
  hf_model *m = r->model;
  m->layers_are = HF_GPT2;
  m->vocabulary = hf_size(r, "vocab_size", -1, INT32_MAX);
  m->positions = hf_size(r, "n_positions", -1, MOST_WIDTH);
  m->hidden = hf_size(r, "n_embd", -1, MOST_WIDTH);
  m->layers = hf_size(r, "n_layer", -1, MOST_LAYERS);
  m->heads = m->kv_heads = hf_size(r, "n_head", -1, MOST_WIDTH);
  m->head_size = m->hidden / m->heads;
  m->ff = hf_size_or_null(r, "n_inner", 4 * m->hidden, MOST_WIDTH);
  m->eps = hf_real(r, "layer_norm_epsilon", 1e-5, 0, 1);
  m->std = hf_real(r, "initializer_range", 0.02, 0, 10);
  m->tied = hf_flag(r, "tie_word_embeddings", true);
  m->qkv_bias = m->proj_bias = m->mlp_bias = true;
  hf_read_activation(r, "activation_function", "gelu_new");
  read_dropouts(r, "embd_pdrop", "resid_pdrop", 0.1);
  hf_note_attention_dropout(r, "attn_pdrop", 0.1);
  if (!hf_flag(r, "scale_attn_weights", true))
    hf_refuse(r, "scale_attn_weights", NULL,
              "scores of attention are not scaled; the import writes 1 / sqrt(head size)");
  if (hf_flag(r, "scale_attn_by_inverse_layer_idx", false))
    hf_refuse(r, "scale_attn_by_inverse_layer_idx", NULL,
              "every layer has another scale: all layers of a repeat are alike");
  if (hf_flag(r, "add_cross_attention", false))
    hf_refuse(r, "add_cross_attention", NULL, "cross-attention: the import writes decoders alone");
  hf_check_heads(r, "n_head");
}

/* Keys beside the type and theta. Those of other types than `default` are read by nobody then. */
static void look_at_rope(hf_reader *r, const char *key, const zp_json *rope) {
  static const char *const known[] = {"rope_type", "type", "rope_theta"};
  const char *inner;
  for (int i = 0; (inner = zp_json_key(rope, i)) != NULL; i++) {
    const zp_json *value = zp_json_get(rope, inner);
    bool is_known = strcmp(inner, "partial_rotary_factor") == 0 && r->model->layers_are == HF_NEOX;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) is_known |= strcmp(inner, known[k]) == 0;
    if (is_known || zp_json_is_null(value)) continue;
    if (zp_json_is_object(value))
      hf_refuse(r, key, NULL, "`%s` has rotary positions for `%s` alone: layers of this type have the same ones", key,
                inner);
    else
      hf_note(r, "`%s` (%s) of `%s` was left out: rotary positions of type `default` do not read it", inner,
              hf_shown(r, value), key);
  }
}

/* What is there must be a number: null is not the class's. */
static double read_theta(hf_reader *r, const char *key, const zp_json *rope, double usual) {
  static const char wanted[] = "a number from 1 to 1e12 is expected";
  const zp_json *value = zp_json_get(rope, "rope_theta");
  double theta = value ? zp_json_real(value, 0) : usual;
  if (theta >= 1 && theta <= 1e12) return theta;
  if (value)
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`rope_theta` of `%s` is %s, %s", key, hf_shown(r, value), wanted);
  else
    zp_report(r->diags, ZP_Z0683, hf_place(r, "rope_theta"), "`rope_theta` is null, %s", wanted);
  return 1;
}

/* `rope_type`, or `type` of older files; "" where it is no word. */
static const char *rope_type(const zp_json *rope) {
  const zp_json *value = zp_json_get(rope, "rope_type");
  if (!value) value = zp_json_get(rope, "type");
  return value ? zp_json_string(value, "") : "default";
}

double hf_rope_theta(hf_reader *r, const char *key, const zp_json *rope, double usual) {
  static const char help[] = "shapes, memory and time do not depend on it: plan a copy of the file without the field";
  if (!rope) return read_theta(r, key, NULL, usual);
  const char *type = rope_type(rope);
  if (!zp_json_is_object(rope))
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`%s` is no object", key);
  else if (!type[0])
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`rope_type` of `%s` is no word", key);
  else if (strcmp(type, "default") != 0)
    hf_refuse(r, key, help, "rotary positions are scaled (`%s`)", type);
  else
    look_at_rope(r, key, rope);
  return read_theta(r, key, rope, usual);
}

/* rope_scaling counts where both are, but for an empty one. */
static const char *rope_key(hf_reader *r) {
  const zp_json *scaling = hf_value(r, "rope_scaling");
  hf_value(r, "rope_parameters");
  bool empty = !scaling || (zp_json_is_object(scaling) && !zp_json_key(scaling, 0));
  return empty ? "rope_parameters" : "rope_scaling";
}

static void read_rope(hf_reader *r, const char *theta_key, double usual) {
  double theta = hf_is_null(r, theta_key) ? 0 : hf_real(r, theta_key, usual, 1, 1e12); /* null: that of `key` alone */
  const char *key = rope_key(r);
  r->model->theta = hf_rope_theta(r, key, hf_value(r, key), theta);
}

void hf_read_rope(hf_reader *r, double usual) { read_rope(r, "rope_theta", usual); }

void hf_check_head_size(hf_reader *r) {
  hf_model *m = r->model;
  if (hf_is_sound(r) && hf_size(r, "head_dim", m->head_size, MOST_WIDTH) != m->head_size && hf_is_sound(r))
    hf_refuse(r, "head_dim", NULL, "heads of other columns than the hidden size over the heads, %lld",
              (long long)m->head_size);
}

/* The share of a head that turns; newer files have it among rope_parameters, which count where both are. */
static void read_neox_rotary(hf_reader *r) {
  hf_model *m = r->model;
  if (!hf_is_sound(r)) return;
  double share = hf_real(r, "rotary_pct", 0.25, 0, 1);
  const char *key = rope_key(r);
  const zp_json *parameters = hf_value(r, key);
  bool newer = zp_json_get(parameters, "partial_rotary_factor") != NULL;
  if (newer) share = zp_json_get_real(parameters, "partial_rotary_factor", -1);
  zp_span place = hf_place(r, newer ? key : "rotary_pct");
  if (!(share >= 0 && share <= 1)) {
    zp_report(r->diags, ZP_Z0683, place, "`partial_rotary_factor` is no number from 0 to 1");
    return;
  }
  int64_t columns = (int64_t)((double)m->head_size * share);
  if (columns % 2 != 0 || columns == 0)
    zp_report(r->diags, ZP_Z0683, place, "%g of a head of %lld are no pairs for rotary positions", share,
              (long long)m->head_size);
  else if (columns < m->head_size)
    m->rotary = columns;
}

static void read_neox(hf_reader *r) {
  hf_model *m = r->model;
  m->layers_are = HF_NEOX;
  m->vocabulary = hf_size(r, "vocab_size", -1, INT32_MAX);
  m->positions = hf_size(r, "max_position_embeddings", 2048, MOST_WIDTH);
  m->hidden = hf_size(r, "hidden_size", -1, MOST_WIDTH);
  m->layers = hf_size(r, "num_hidden_layers", -1, MOST_LAYERS);
  m->heads = m->kv_heads = hf_size(r, "num_attention_heads", -1, MOST_WIDTH);
  m->head_size = m->hidden / m->heads;
  m->ff = hf_size(r, "intermediate_size", -1, MOST_WIDTH);
  m->eps = hf_real(r, "layer_norm_eps", 1e-5, 0, 1);
  m->std = hf_real(r, "initializer_range", 0.02, 0, 10);
  m->tied = hf_flag(r, "tie_word_embeddings", false);
  m->parallel = hf_flag(r, "use_parallel_residual", true);
  m->qkv_bias = m->proj_bias = hf_flag(r, "attention_bias", true);
  m->mlp_bias = true;
  hf_read_activation(r, "hidden_act", "gelu");
  read_dropouts(r, "hidden_dropout", "hidden_dropout", 0);
  hf_note_attention_dropout(r, "attention_dropout", 0);
  read_rope(r, "rotary_emb_base", 10000);
  read_neox_rotary(r);
  hf_check_head_size(r);
  if (!m->rotary)
    hf_note(r,
            "rows of query_key_value: the checkpoint has q, k, v of every head together, the .dz file all q, then all "
            "k, then "
            "all v");
  hf_check_heads(r, "num_attention_heads");
}

/* null: there is no window. */
static int64_t read_window(hf_reader *r, int64_t missing) {
  if (hf_is_null(r, "sliding_window")) return 0;
  return hf_size(r, "sliding_window", missing, INT32_MAX);
}

static void read_llama_sizes(hf_reader *r, double eps, double theta, int64_t kv_heads) {
  hf_model *m = r->model;
  m->layers_are = HF_LLAMA;
  m->vocabulary = hf_size(r, "vocab_size", -1, INT32_MAX);
  m->positions = hf_size(r, "max_position_embeddings", -1, INT32_MAX);
  m->hidden = hf_size(r, "hidden_size", -1, MOST_WIDTH);
  m->layers = hf_size(r, "num_hidden_layers", -1, MOST_LAYERS);
  m->heads = hf_size(r, "num_attention_heads", -1, MOST_WIDTH);
  if (kv_heads == 0 || hf_is_null(r, "num_key_value_heads"))
    kv_heads = m->heads; /* null: as many, whatever the class has */
  m->kv_heads = hf_size_or_null(r, "num_key_value_heads", kv_heads, MOST_WIDTH);
  m->ff = hf_size(r, "intermediate_size", -1, MOST_WIDTH);
  m->eps = hf_real(r, "rms_norm_eps", eps, 0, 1);
  m->std = hf_real(r, "initializer_range", 0.02, 0, 10);
  m->tied = hf_flag(r, "tie_word_embeddings", false);
  const char *act = hf_word(r, "hidden_act", "silu");
  if (strcmp(act, "silu") != 0)
    hf_refuse(r, "hidden_act", NULL, "the gate of the MLP is `%s`; the import writes silu", act);
  hf_note_attention_dropout(r, "attention_dropout", 0);
  hf_read_rope(r, theta);
}

/* head_size 0: heads make up the hidden size where the file has none. */
static void read_llama_like(hf_reader *r, double eps, double theta, int64_t kv_heads, int64_t head_size) {
  read_llama_sizes(r, eps, theta, kv_heads);
  r->model->head_size = head_size ? hf_size(r, "head_dim", head_size, MOST_WIDTH)
                                  : hf_size_or_null(r, "head_dim", r->model->hidden / r->model->heads, MOST_WIDTH);
  if (hf_is_sound(r) && r->model->head_size % 2 != 0)
    zp_report(r->diags, ZP_Z0683, hf_place(r, "head_dim"), "a head of %lld has no pairs for rotary positions",
              (long long)r->model->head_size);
  hf_check_heads(r, "num_attention_heads");
}

static void read_llama(hf_reader *r) {
  read_llama_like(r, 1e-6, 10000, 0, 0);
  r->model->qkv_bias = r->model->proj_bias = hf_flag(r, "attention_bias", false);
  r->model->mlp_bias = hf_flag(r, "mlp_bias", false);
}

static void read_mistral(hf_reader *r) {
  read_llama_like(r, 1e-6, 10000, 8, 0);
  r->model->window = read_window(r, 4096);
}

/* Layers in front that see all positions: `layer_types` says which, and `max_window_layers` where there is no list. */
static int64_t read_full_layers(hf_reader *r, bool windowed) {
  hf_model *m = r->model;
  static const char most[] = "max_window_layers", listed[] = "layer_types";
  int64_t full = zp_json_is_int(hf_value(r, most)) && zp_json_int(hf_value(r, most), 1) == 0
                     ? 0
                     : hf_size(r, most, 28, MOST_LAYERS);
  const zp_json *types = hf_value(r, listed);
  if (!types) return full;
  if (!zp_json_is_array(types) || zp_json_count(types) != m->layers) {
    zp_report(r->diags, ZP_Z0683, hf_place(r, listed), "`layer_types` has %d entries for %lld layers",
              zp_json_is_array(types) ? zp_json_count(types) : 0, (long long)m->layers);
    return full;
  }
  full = 0;
  for (int i = 0; i < m->layers; i++) {
    const char *type = zp_json_string(zp_json_at(types, i), "");
    bool sees_all = strcmp(type, "full_attention") == 0;
    if (sees_all && full == i) full++;
    if (sees_all ? full > i : windowed && strcmp(type, "sliding_attention") == 0) continue;
    hf_refuse(r, listed, "known are layers of `full_attention`, and behind them those of `sliding_attention`",
              "layer %d has `%s`%s", i, type, windowed ? "" : ", and `use_sliding_window` asks for no window");
    break;
  }
  return full;
}

static void read_qwen_window(hf_reader *r) {
  hf_model *m = r->model;
  bool asked = hf_flag(r, "use_sliding_window", false);
  int64_t window = read_window(r, 4096), full = read_full_layers(r, asked && window);
  if (!asked || full >= m->layers) return;
  m->window = window;
  m->full_layers = window ? full : 0;
  if (m->full_layers) m->n_heads = HF_ALIKE_VARIANTS;
}

static void read_qwen2(hf_reader *r) {
  read_llama_like(r, 1e-6, 10000, 32, 0);
  r->model->qkv_bias = true;
  read_qwen_window(r);
}

static void read_qwen3(hf_reader *r) {
  read_llama_like(r, 1e-6, 10000, 32, 128);
  hf_model *m = r->model;
  m->qkv_bias = m->proj_bias = hf_flag(r, "attention_bias", false);
  m->qk_norm = true;
  read_qwen_window(r);
}

/* transformers adds the balancing loss where the logits of routers are put out, and it is another one than that of
 * top_k_gate: shares and probabilities are means over all layers together, before they are multiplied. */
static void read_balance(hf_reader *r) {
  static const char key[] = "router_aux_loss_coef";
  double weight = hf_real(r, key, 0.001, 0, 1e6);
  if (!hf_flag(r, "output_router_logits", false) || weight == 0 || r->for_weights) return;
  hf_refuse(r, "output_router_logits",
            "a copy of the file with `output_router_logits` false is trained without; `balance` of top_k_gate has one "
            "a layer",
            "a balancing loss (`%s` %g) over the choices of all layers together, which the language lacks", key,
            weight);
}

static void read_mixtral(hf_reader *r) {
  read_llama_like(r, 1e-5, 1e6, 8, 0);
  hf_model *m = r->model;
  m->window = read_window(r, 0);
  m->experts = hf_size(r, "num_local_experts", 8, MOST_EXPERTS);
  m->top_k = hf_size(r, "num_experts_per_tok", 2, MOST_TOP_K);
  read_balance(r);
  if (!hf_is_sound(r)) return;
  if (m->top_k > m->experts)
    zp_report(r->diags, ZP_Z0683, hf_place(r, "num_experts_per_tok"), "a token takes %lld of %lld experts",
              (long long)m->top_k, (long long)m->experts);
  else if (m->top_k == 1)
    hf_refuse(r, "num_experts_per_tok", NULL,
              "a token takes one expert, whose normalized weight is always 1: no gradient would reach the router");
  if (hf_real(r, "router_jitter_noise", 0, 0, 1e6) > 0 && !r->for_weights)
    hf_refuse(r, "router_jitter_noise", NULL, "the router's input is made noisy in training; there is no such op");
  hf_note(r,
          "`capacity` is experts / top_k, so that no token is dropped, as published; lower it to save memory and time");
}

static void read_deepseek(hf_reader *r) {
  read_llama_sizes(r, 1e-6, 10000, 0);
  hf_read_deepseek(r);
}

static const struct {
  const char *type;
  void (*read)(hf_reader *r);
  const char *classes[4]; /* whose head is written, and last the one without a head */
} families[] = {
    {"bert", hf_read_bert, {"BertForMaskedLM", "BertForPreTraining", "BertForQuestionAnswering", "BertModel"}},
    {"deepseek_v3", read_deepseek, {"DeepseekV3ForCausalLM", "DeepseekV3Model"}},
    {"gemma2", hf_read_gemma2, {"Gemma2ForCausalLM", "Gemma2Model"}},
    {"gemma3_text", hf_read_gemma3, {"Gemma3ForCausalLM", "Gemma3TextModel"}},
    {"gpt2", read_gpt2, {"GPT2LMHeadModel", "GPT2Model"}},
    {"gpt_neox", read_neox, {"GPTNeoXForCausalLM", "GPTNeoXModel"}},
    {"llama", read_llama, {"LlamaForCausalLM", "LlamaModel"}},
    {"mistral", read_mistral, {"MistralForCausalLM", "MistralModel"}},
    {"mixtral", read_mixtral, {"MixtralForCausalLM", "MixtralModel"}},
    {"qwen2", read_qwen2, {"Qwen2ForCausalLM", "Qwen2Model"}},
    {"qwen3", read_qwen3, {"Qwen3ForCausalLM", "Qwen3Model"}},
    {"t5", hf_read_t5, {"T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model"}},
    {"vit", hf_read_vit, {"ViTForImageClassification", "ViTModel"}}};
enum { N_FAMILIES = sizeof families / sizeof *families, MOST_CLASSES = 4 };

/* Weights may have any head: missing and surplus tensors are reported, and what is drawn and unread. */
static void check_class(hf_reader *r, int family) {
  static const char key[] = "architectures";
  const char *const *known = families[family].classes;
  const zp_json *list = hf_value(r, key);
  if (!list || r->for_weights) return;
  const char *class = zp_json_string(zp_json_at(list, 0), NULL);
  int n = 0;
  while (n < MOST_CLASSES && known[n]) n++;
  for (int i = 0; class && i < n; i++) {
    if (strcmp(known[i], class) != 0) continue;
    if (i == n - 1) hf_note(r, "%s has no head: that of %s was written", class, known[0]);
    return;
  }
  if (!class)
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`%s` is %s, a list of one class is expected", key,
              hf_shown(r, list));
  else
    hf_refuse(r, key,
              zp_format(r->arena, "a copy of the file with [\"%s\"] is of the same layers with its head", known[0]),
              "%s has a head that this import does not write", class);
}

bool hf_read_model(hf_reader *r) {
  const char *type = hf_word(r, "model_type", NULL), *names[N_FAMILIES];
  for (int i = 0; i < N_FAMILIES; i++) {
    names[i] = families[i].type;
    if (strcmp(families[i].type, type) != 0) continue;
    r->model->type = families[i].type;
    if (!hf_is_whole(r)) return false;
    families[i].read(r);
    check_class(r, i);
    return true;
  }
  if (!zp_json_string(hf_value(r, "model_type"), NULL)) return false; /* reported already */
  if (strcmp(type, "gemma3") == 0) {
    hf_refuse(r, "model_type", "a file with what stands in `text_config` is of its text model, `gemma3_text`",
              "a model of type `gemma3` reads pictures beside text");
    return false;
  }
  zp_diag *d =
      zp_report(r->diags, ZP_Z0684, hf_place(r, "model_type"), "model_type `%s` is not known to this import", type);
  zp_diag_did_you_mean(d, type, names, N_FAMILIES);
  zp_buf list = zp_buf_new(r->arena);
  for (int i = 0; i < N_FAMILIES; i++) zp_buf_printf(&list, "%s%s", i ? ", " : "", names[i]);
  zp_diag_note(d, "known are %s", list.data);
  return false;
}
