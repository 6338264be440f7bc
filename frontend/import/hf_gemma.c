/* Gemma 2 and the text models of Gemma 3: fields and defaults (those of Gemma2Config and Gemma3TextConfig of
 * transformers), the model, names of tensors. Layers whose attention sees a window take turns with layers that see all,
 * so an iteration of the repeat is a group of layers; what is left behind the last whole group is a repeat of its own.
 */
#include "hf.h"

#include <assert.h>
#include <stdlib.h>

enum { MOST_OF_A_GROUP = 16 };

/* The smallest group that all layers are repetitions of, with layers of one kind behind the last whole one. */
static void find_group(hf_reader *r, const bool *full) {
  hf_model *m = r->model;
  for (int64_t n = 1; n <= m->layers && n <= MOST_OF_A_GROUP; n++) {
    int64_t whole = m->layers / n * n;
    bool good = true;
    for (int64_t i = n; good && i < m->layers; i++) good = full[i] == full[i % n];
    for (int64_t i = whole + 1; good && i < m->layers; i++) good = full[i] == full[whole];
    if (!good) continue;
    m->group = n;
    for (int64_t i = 0; i < n; i++) m->full[i] = full[i];
    return;
  }
  hf_refuse(r, "layer_types", NULL, "layers with and without a window do not take turns in groups of at most %d",
            MOST_OF_A_GROUP);
}

/* `pattern`: every so many layers one sees all, where the file does not list them. */
static void read_layer_types(hf_reader *r, int64_t pattern) {
  hf_model *m = r->model;
  const zp_json *types = hf_value(r, "layer_types");
  if (!hf_is_sound(r)) return;
  bool *full = ZP_NEW_ARRAY(r->arena, bool, m->layers);
  if (types && zp_json_count(types) != m->layers) {
    zp_report(r->diags, ZP_Z0683, hf_place(r, "layer_types"), "`layer_types` has %d entries for %lld layers",
              zp_json_count(types), (long long)m->layers);
    return;
  }
  for (int i = 0; i < m->layers; i++) {
    const char *type = types ? zp_json_string(zp_json_at(types, i), "") : "";
    full[i] = types ? strcmp(type, "full_attention") == 0 : (i + 1) % pattern == 0;
    if (!types || full[i] || strcmp(type, "sliding_attention") == 0) continue;
    hf_refuse(r, "layer_types", "known are sliding_attention and full_attention", "layer %d has `%s`", i, type);
    return;
  }
  find_group(r, full);
}

static void read_gemma(hf_reader *r) {
  hf_model *m = r->model;
  m->layers_are = HF_GEMMA;
  m->vocabulary = hf_size(r, "vocab_size", -1, INT32_MAX);
  m->hidden = hf_size(r, "hidden_size", -1, HF_MOST_WIDTH);
  m->layers = hf_size(r, "num_hidden_layers", -1, HF_MOST_LAYERS);
  m->heads = hf_size(r, "num_attention_heads", -1, HF_MOST_WIDTH);
  m->kv_heads = hf_size(r, "num_key_value_heads", 4, HF_MOST_WIDTH);
  m->head_size = hf_size(r, "head_dim", 256, HF_MOST_WIDTH);
  m->ff = hf_size(r, "intermediate_size", -1, HF_MOST_WIDTH);
  m->eps = hf_real(r, "rms_norm_eps", 1e-6, 0, 1);
  m->std = hf_real(r, "initializer_range", 0.02, 0, 10);
  m->tied = hf_flag(r, "tie_word_embeddings", true);
  m->qkv_bias = m->proj_bias = hf_flag(r, "attention_bias", false);
  hf_read_activation(r, "hidden_activation", "gelu_pytorch_tanh");
  hf_note_attention_dropout(r, "attention_dropout", 0);
  m->query_scalar = hf_real(r, "query_pre_attn_scalar", 256, 1e-6, 1e9);
  m->local_window = hf_size(r, "sliding_window", 4096, INT32_MAX);
  if (hf_flag(r, "use_bidirectional_attention", false))
    hf_refuse(r, "use_bidirectional_attention", NULL, "attention sees what follows; the import writes decoders");
  if (hf_is_sound(r) && m->head_size % 2 != 0)
    zp_report(r->diags, ZP_Z0683, hf_place(r, "head_dim"), "a head of %lld has no pairs for rotary positions",
              (long long)m->head_size);
  hf_check_heads(r, "num_attention_heads");
}

/* null: none. */
static double read_cap(hf_reader *r, const char *key, double missing) {
  return hf_is_null(r, key) ? 0 : hf_real(r, key, missing, 1e-6, 1e9);
}

void hf_read_gemma2(hf_reader *r) {
  hf_model *m = r->model;
  read_gemma(r);
  m->positions = hf_size(r, "max_position_embeddings", 8192, INT32_MAX);
  m->score_cap = read_cap(r, "attn_logit_softcapping", 50);
  m->logit_cap = read_cap(r, "final_logit_softcapping", 30);
  hf_read_rope(r, 10000);
  m->local_theta = m->theta;
  read_layer_types(r, 2);
}

/* Frequencies of layers with a window are others. Newer files have both among rope_parameters. */
void hf_read_gemma3(hf_reader *r) {
  hf_model *m = r->model;
  read_gemma(r);
  m->qk_norm = true;
  m->positions = hf_size(r, "max_position_embeddings", 131072, INT32_MAX);
  m->logit_cap = read_cap(r, "final_logit_softcapping", 0);
  const zp_json *both = hf_value(r, "rope_parameters"), *scaling = hf_value(r, "rope_scaling");
  if (both && !zp_json_get(both, "full_attention") && !zp_json_get(both, "sliding_attention"))
    zp_report(r->diags, ZP_Z0683, hf_place(r, "rope_parameters"),
              "`rope_parameters` has neither `full_attention` nor `sliding_attention`");
  m->theta = hf_real(r, "rope_theta", 1e6, 1, 1e12);
  m->local_theta = hf_real(r, "rope_local_base_freq", 1e4, 1, 1e12);
  m->theta = hf_rope_theta(r, "rope_parameters", zp_json_get(both, "full_attention"), m->theta);
  m->theta = hf_rope_theta(r, "rope_scaling", scaling, m->theta); /* of layers that see all, and before the other */
  m->local_theta = hf_rope_theta(r, "rope_parameters", zp_json_get(both, "sliding_attention"), m->local_theta);
  read_layer_types(r, hf_size(r, "sliding_window_pattern", 6, HF_MOST_LAYERS));
}

/* ---- the model ---- */

static void write_norm(zp_buf *out, const hf_model *m, bool of_heads) {
  zp_buf_printf(out, "block %s -> [B, S, %s] {\n  param weight: [%s] ~ zeros()\n",
                of_heads ? "norm_of_heads(x: [B, S, n], heads: int)" : "norm_of_rows(x: [B, S, d])",
                of_heads ? "n" : "d", of_heads ? "n / heads" : "d");
  zp_buf_printf(out, "  return rms_normalize(x, weight, eps = %s, offset = 1%s)\n}\n\n", hf_number(out->arena, m->eps),
                of_heads ? ", heads = heads" : "");
}

static void write_attention(zp_buf *out, const hf_model *m) {
  const char *qkv = hf_linear_options(out, m, m->qkv_bias), *part = m->qk_norm ? "norm" : "proj";
  zp_buf_puts(out, "block attention_layer(x: [B, S, d], heads: int, kv_heads: int, head_size: int, window: int, "
                   "theta: float) -> [B, S, d] {\n");
  zp_buf_printf(out,
                "  q_proj = linear(x, heads * head_size%s)\n  k_proj = linear(x, kv_heads * head_size%s)\n"
                "  v_proj = linear(x, kv_heads * head_size%s)\n",
                qkv, qkv, qkv);
  if (m->qk_norm)
    zp_buf_puts(out, "  q_norm = norm_of_heads(q_proj, heads = heads)\n"
                     "  k_norm = norm_of_heads(k_proj, heads = kv_heads)\n");
  zp_buf_printf(out,
                "  q      = rope(q_%s, heads = heads, theta = theta)\n"
                "  k      = rope(k_%s, heads = kv_heads, theta = theta)\n"
                "  y      = attention(q, k, v_proj, heads = heads, kv_heads = kv_heads, window = window, scale = "
                "rsqrt(%s)%s)\n",
                part, part, hf_number(out->arena, m->query_scalar),
                m->score_cap > 0 ? zp_format(out->arena, ", softcap = %s", hf_number(out->arena, m->score_cap)) : "");
  zp_buf_printf(out, "  o_proj = linear(y, d%s)\n  return o_proj\n}\n\n", hf_linear_options(out, m, m->proj_bias));
}

static void write_layer(zp_buf *out, const hf_model *m) {
  const char *options = hf_linear_options(out, m, false);
  zp_buf_puts(out, "block gated(x: [B, S, d], ff: int) -> [B, S, d] {\n");
  zp_buf_printf(out, "  gate_proj = linear(x, ff%s)\n  up_proj   = linear(x, ff%s)\n", options, options);
  zp_buf_printf(out, "  down_proj = linear(%s * up_proj, d%s)\n  return down_proj\n}\n\n",
                hf_activation_of(out, m, "gate_proj"), options);
  zp_buf_puts(out, "block layer(x: [B, S, d], heads: int, kv_heads: int, head_size: int, ff: int, window: int, theta: "
                   "float) -> [B, S, d] {\n"
                   "  input_layernorm = norm_of_rows(x)\n"
                   "  self_attn = attention_layer(input_layernorm, heads = heads, kv_heads = kv_heads, head_size = "
                   "head_size,\n"
                   "                              window = window, theta = theta)\n"
                   "  post_attention_layernorm   = norm_of_rows(self_attn)\n"
                   "  a                          = x + post_attention_layernorm\n"
                   "  pre_feedforward_layernorm  = norm_of_rows(a)\n"
                   "  mlp                        = gated(pre_feedforward_layernorm, ff = ff)\n"
                   "  post_feedforward_layernorm = norm_of_rows(mlp)\n"
                   "  return a + post_feedforward_layernorm\n}\n\n");
}

/* A layer of `x`; kind: its place in a group. */
static const char *layer_of(zp_arena *arena, const hf_model *m, const char *x, int64_t kind) {
  return zp_format(arena,
                   "layer(%s, heads = heads, kv_heads = kv_heads, head_size = head_size, ff = ff, window = %s, "
                   "theta = %s)",
                   x, m->full[kind] ? "S" : "window", hf_number(arena, m->full[kind] ? m->theta : m->local_theta));
}

static void write_layers(zp_buf *out, const hf_model *m) {
  zp_arena *arena = out->arena;
  const char *x = "x";
  zp_buf_puts(out, "  repeat layers in 0..groups {\n");
  for (int64_t i = 0; i < m->group; i++) {
    const char *name = zp_format(arena, "layer_%lld", (long long)i);
    zp_buf_printf(out, "    %s = %s\n", name, layer_of(arena, m, x, i));
    x = name;
  }
  zp_buf_printf(out, "    x = %s\n  }\n", x);
  if (m->layers % m->group != 0)
    zp_buf_printf(out, "  repeat rest in 0..%lld {\n    x = %s\n  }\n", (long long)(m->layers % m->group),
                  layer_of(arena, m, "x", 0));
}

void hf_write_gemma(zp_buf *out, const hf_model *m) {
  const char *std = hf_number(out->arena, m->std), *cap = hf_number(out->arena, m->logit_cap);
  write_norm(out, m, false);
  if (m->qk_norm) write_norm(out, m, true);
  write_attention(out, m);
  write_layer(out, m);
  zp_buf_printf(out,
                "model %s(V = %lld, S = %lld, d = %lld, groups = %lld, heads = %lld, kv_heads = %lld, head_size = "
                "%lld, ff = %lld,\n    window = %lld) {\n",
                m->type, (long long)m->vocabulary, (long long)hf_sample(m), (long long)m->hidden,
                (long long)(m->layers / m->group), (long long)m->heads, (long long)m->kv_heads, (long long)m->head_size,
                (long long)m->ff, (long long)m->local_window);
  zp_buf_printf(out,
                "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n\n"
                "  param embed_tokens: [V, d] ~ normal(std = %s)\n",
                std);
  if (!m->tied) zp_buf_printf(out, "  param lm_head: [V, d] ~ normal(std = %s)\n", std);
  zp_buf_puts(out, "\n  x = embedding(tokens, embed_tokens) * sqrt(d)\n");
  write_layers(out, m);
  const char *logits = zp_format(out->arena, "matmul(norm, transpose(%s))", m->tied ? "embed_tokens" : "lm_head");
  if (m->logit_cap > 0) logits = zp_format(out->arena, "tanh(%s / %s) * %s", logits, cap, cap);
  zp_buf_printf(out, "  norm   = norm_of_rows(x)\n  logits = %s%s\n  output loss = cross_entropy(logits, labels)\n}\n",
                logits, m->tied ? "  # embed_tokens is used twice: tied" : "");
}

/* ---- names of tensors ---- */

/* "layers.3.layer_1.mlp.up_proj.weight" -> "model.layers.7.mlp.up_proj.weight" where groups are of two layers. */
const char *hf_gemma_name(zp_arena *arena, const hf_model *m, const char *name) {
  static const char layers[] = "layers.", rest[] = "rest.", of_group[] = ".layer_";
  bool behind = strncmp(name, rest, sizeof rest - 1) == 0;
  if (strcmp(name, "lm_head") == 0) return "lm_head.weight";
  if (!behind && strncmp(name, layers, sizeof layers - 1) != 0)
    return zp_format(arena, "model.%s%s", name, strchr(name, '.') ? "" : ".weight");
  char *end;
  int64_t layer = strtoll(name + (behind ? sizeof rest : sizeof layers) - 1, &end, 10);
  if (behind) {
    layer += m->layers / m->group * m->group;
  } else {
    assert(strncmp(end, of_group, sizeof of_group - 1) == 0);
    layer = layer * m->group + strtoll(end + sizeof of_group - 1, &end, 10);
  }
  return zp_format(arena, "model.layers.%lld%s", (long long)layer, end);
}
