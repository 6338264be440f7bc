/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a launch as blocks of the language: a decoder with the options that launches name. */
#include "launch.h"

static const char *norm(const launch_model *m) { return m->rms_norm ? "rms_norm" : "layer_norm"; }

static const char *boolean(bool value) { return value ? "true" : "false"; }

/* Queries or keys: a product, maybe normalised by head, maybe turned. The last result is `side`. */
static void put_head(zp_buf *out, const launch_model *m, const char *side, const char *heads) {
  zp_arena *arena = out->arena;
  bool turns = !m->positions && !m->no_positions;
  const char *last = side, *product = turns || m->qk_norm ? zp_format(arena, "%s_proj", side) : last;
  zp_buf_printf(out, "  %s = linear(x, %s * head, bias = %s, std = std)\n", product, heads, boolean(m->qkv_bias));
  const char *normal = turns ? zp_format(arena, "%s_norm", side) : last;
  if (m->qk_norm)
    zp_buf_printf(out, "  %s = head_norm(%s, heads = %s, eps = %s)\n", normal, product, heads,
                  launch_number(arena, m->eps));
  if (turns)
    zp_buf_printf(out, "  %s = rope(%s, heads = %s, theta = %s%s)\n", last, m->qk_norm ? normal : product, heads,
                  launch_number(arena, m->theta), m->interleaved ? ", interleaved = true" : "");
}

static void put_attention(zp_buf *out, const launch_model *m) {
  zp_buf_puts(out, "block attention_of(x: [B, S, d], heads: int, kv_heads: int, head: int, std: float, "
                   "residual_std: float) -> [B, S, d] {\n");
  put_head(out, m, "q", "heads");
  put_head(out, m, "k", "kv_heads");
  zp_buf_printf(out, "  v = linear(x, kv_heads * head, bias = %s, std = std)\n", boolean(m->qkv_bias));
  zp_buf_puts(out, "  y = attention(q, k, v, heads = heads, kv_heads = kv_heads");
  if (m->attention_dropout > 0) zp_buf_printf(out, ", dropout = %s", launch_number(out->arena, m->attention_dropout));
  zp_buf_printf(out, ")\n  proj = linear(y, d, bias = %s, std = residual_std)\n  return %s\n}\n\n", boolean(m->bias),
                m->dropout ? "dropout(proj)" : "proj");
}

/* A network of width ff; its result is `down`. */
static void put_network(zp_buf *out, const launch_model *m) {
  const char *bias = boolean(m->bias);
  if (m->activation == LAUNCH_SWIGLU) {
    zp_buf_printf(out, "  gate = linear(x, ff, bias = %s, std = std)\n  up = linear(x, ff, bias = %s, std = std)\n",
                  bias, bias);
    zp_buf_printf(out, "  down = linear(silu(gate) * up, d, bias = %s, std = residual_std)\n", bias);
    return;
  }
  zp_buf_printf(out, "  up = linear(x, ff, bias = %s, std = std)\n", bias);
  if (m->activation == LAUNCH_SQUARED_RELU) zp_buf_puts(out, "  positive = relu(up)\n");
  static const char *const acts[] = {[LAUNCH_GELU_TANH] = "gelu(up, approximate = \"tanh\")",
                                     [LAUNCH_GELU] = "gelu(up)",
                                     [LAUNCH_SQUARED_RELU] = "positive * positive"};
  zp_buf_printf(out, "  down = linear(%s, d, bias = %s, std = residual_std)\n", acts[m->activation], bias);
}

static void put_mlp(zp_buf *out, const launch_model *m, const char *name, bool drops) {
  zp_buf_printf(out, "block %s(x: [B, S, d], ff: int, std: float, residual_std: float) -> [B, S, d] {\n", name);
  put_network(out, m);
  zp_buf_printf(out, "  return %s\n}\n\n", drops ? "dropout(down)" : "down");
}

static void put_experts(zp_buf *out, const launch_model *m) {
  if (m->shared_ff) put_mlp(out, m, "shared_expert", false);
  bool gated = m->activation == LAUNCH_SWIGLU;
  zp_buf_puts(out, "block experts_of(x: [B, S, d], experts: int, top_k: int, ff: int, std: float, residual_std: float) "
                   "-> [B, S, d] {\n");
  zp_buf_puts(out, "  param w1: [experts, ff, d] ~ normal(std = std)\n  param w2: [experts, d, ff] ~ normal(std = "
                   "residual_std)\n");
  if (gated) zp_buf_puts(out, "  param w3: [experts, ff, d] ~ normal(std = std)\n");
  zp_buf_puts(out, "  router = linear(x, experts, bias = false, std = std)\n");
  const char *capacity = m->capacity > 0 ? launch_number(out->arena, m->capacity) : "dropless";
  zp_buf_printf(out, "  weight, slot = top_k_gate(router, k = top_k, capacity = %s, balance = %s, normalize = %s%s)\n",
                capacity, launch_number(out->arena, m->balance), boolean(m->normalize),
                m->sigmoid ? ", affinity = \"sigmoid\"" : "");
  zp_buf_puts(out, "  tokens = dispatch(x, slot)\n  up = batched_matmul(tokens, transpose(w1))\n");
  static const char *const acts[] = {[LAUNCH_GELU_TANH] = "gelu(up, approximate = \"tanh\")",
                                     [LAUNCH_GELU] = "gelu(up)",
                                     [LAUNCH_SQUARED_RELU] = "relu(up) * relu(up)",
                                     [LAUNCH_SWIGLU] = "silu(up) * batched_matmul(tokens, transpose(w3))"};
  zp_buf_printf(out, "  hidden = %s\n  routed = combine(batched_matmul(hidden, transpose(w2)), weight, slot)\n",
                acts[m->activation]);
  const char *sum = "routed";
  if (m->shared_ff) {
    zp_buf_printf(
        out,
        "  shared = shared_expert(x, ff = %lld, std = std, residual_std = residual_std)\n  all = routed + shared\n",
        (long long)m->shared_ff);
    sum = "all";
  }
  zp_buf_printf(out, m->dropout ? "  return dropout(%s)\n}\n\n" : "  return %s\n}\n\n", sum);
}

static void put_embedding(zp_buf *out, const launch_model *m) {
  zp_arena *arena = out->arena;
  const char *std = launch_number(arena, m->table_std);
  zp_buf_printf(out, "  param word_embeddings: [V, d] ~ normal(std = %s)\n", std);
  if (m->positions)
    zp_buf_printf(out, "  param position_embeddings: [%s, d] ~ normal(std = %s)\n",
                  m->positions == m->sequence ? "S" : zp_format(arena, "%lld", (long long)m->positions), std);
  if (!m->tied) zp_buf_printf(out, "  param output_layer: [V, d] ~ normal(std = %s)\n", std);
  const char *x = "embedding(tokens, word_embeddings)";
  if (m->positions == m->sequence) x = "embedding(tokens, word_embeddings) + position_embeddings";
  if (m->positions > m->sequence) x = "embedding(tokens, word_embeddings) + slice(position_embeddings, 0, S)";
  zp_buf_printf(out, m->dropout ? "\n  x = dropout(%s)\n" : "\n  x = %s\n", x);
}

void launch_put_model(zp_buf *out, const launch_model *m) {
  zp_arena *arena = out->arena;
  put_attention(out, m);
  if (m->experts)
    put_experts(out, m);
  else
    put_mlp(out, m, "mlp_of", m->dropout);
  zp_buf_printf(
      out,
      "model %s(V = %lld, S = %lld, d = %lld, layers = %lld, heads = %lld, kv_heads = %lld, head = %lld, ff = %lld",
      m->name, (long long)m->vocabulary, (long long)m->sequence, (long long)m->hidden, (long long)m->layers,
      (long long)m->heads, (long long)m->kv_heads, (long long)m->head, (long long)(m->experts ? m->expert_ff : m->ff));
  if (m->experts) zp_buf_printf(out, ", experts = %lld, top_k = %lld", (long long)m->experts, (long long)m->top_k);
  zp_buf_puts(out, ") {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n\n");
  put_embedding(out, m);
  const char *stds = zp_format(arena, "std = %s, residual_std = %s", launch_number(arena, m->std),
                               launch_number(arena, m->residual_std));
  const char *eps = zp_format(arena, "eps = %s", launch_number(arena, m->eps));
  zp_buf_printf(out,
                "  repeat layer in 0..layers {\n    input_norm = %s(x, %s)\n    self_attention = "
                "attention_of(input_norm, heads = heads, kv_heads = kv_heads, head = head, %s)\n    a = x + "
                "self_attention\n    mlp_norm = %s(a, %s)\n",
                norm(m), eps, stds, norm(m), eps);
  if (m->experts)
    zp_buf_printf(
        out, "    mixture = experts_of(mlp_norm, experts = experts, top_k = top_k, ff = ff, %s)\n    x = a + mixture\n",
        stds);
  else
    zp_buf_printf(out, "    mlp = mlp_of(mlp_norm, ff = ff, %s)\n    x = a + mlp\n", stds);
  zp_buf_printf(out, "  }\n  final_norm = %s(x, %s)\n  logits = matmul(final_norm, transpose(%s))\n", norm(m), eps,
                m->tied ? "word_embeddings" : "output_layer");
  zp_buf_puts(out, "  output loss = cross_entropy(logits, labels)\n}\n");
}
