/* The blocks of a layer as .dz text, with parameters named as in the checkpoints of Hugging Face. */
#include "hf.h"

const char *hf_linear_options(const zp_buf *out, const hf_model *m, bool bias) {
  const char *std = m->std == 0.02 ? "" : zp_format(out->arena, ", std = %s", hf_number(out->arena, m->std));
  return zp_format(out->arena, "%s%s", bias ? "" : ", bias = false", std);
}

static const char *eps_of(const zp_buf *out, const hf_model *m) { return hf_number(out->arena, m->eps); }

const char *hf_activation_of(const zp_buf *out, const hf_model *m, const char *argument) {
  const char *x = strchr(m->activation, 'x');
  while (x[-1] != '(') x = strchr(x + 1, 'x');
  return zp_format(out->arena, "%.*s%s%s", (int)(x - m->activation), m->activation, argument, x + 1);
}

/* GPT-2 scales the matrices that end a branch, so that the sum over all layers keeps its size. */
static void write_gpt2(zp_buf *out, const hf_model *m) {
  const char *plain = hf_linear_options(out, m, true);
  zp_buf_printf(out, "block mlp(x: [B, S, d], ff: int, residual_std: float) -> [B, S, d] {\n");
  zp_buf_printf(out, "  c_fc   = linear(x, ff%s)\n", plain);
  zp_buf_printf(out, "  c_proj = linear(%s, d, std = residual_std)\n", hf_activation_of(out, m, "c_fc"));
  zp_buf_puts(out, "  return dropout(c_proj)\n}\n\n");
  zp_buf_puts(out, "block self_attention(x: [B, S, d], heads: int, residual_std: float) -> [B, S, d] {\n");
  zp_buf_printf(out, "  c_attn  = linear(x, 3 * d%s)\n  q, k, v = split(c_attn, 3)\n", plain);
  zp_buf_puts(out, "  y       = attention(q, k, v, heads = heads)\n  c_proj  = linear(y, d, std = residual_std)\n"
                   "  return dropout(c_proj)\n}\n\n");
  zp_buf_puts(out, "block layer(x: [B, S, d], heads: int, ff: int, residual_std: float) -> [B, S, d] {\n");
  zp_buf_printf(out, "  ln_1 = layer_norm(x, eps = %s)\n", eps_of(out, m));
  zp_buf_puts(out, "  attn = self_attention(ln_1, heads = heads, residual_std = residual_std)\n  a    = x + attn\n");
  zp_buf_printf(out, "  ln_2 = layer_norm(a, eps = %s)\n", eps_of(out, m));
  zp_buf_puts(out, "  mlp  = mlp(ln_2, ff = ff, residual_std = residual_std)\n  return a + mlp\n}\n");
}

/* Columns of query_key_value as the checkpoint has them: head by head its query, key and value. */
static void write_turned_parts(zp_buf *out) {
  zp_buf_puts(out, "  # Of every head its query, key and value; the first `rotary` columns of the former two turn.\n");
  static const char *const parts[][3] = {{"query", "0", "d / heads"}, {"key  ", "d / heads", "2 * d / heads"}};
  for (int i = 0; i < 2; i++)
    zp_buf_printf(out,
                  "  %s = neox_turn(query_key_value, heads = heads, begin = %s, end = %s, rotary = rotary, "
                  "theta = theta)\n",
                  parts[i][0], parts[i][1], parts[i][2]);
  zp_buf_puts(out, "  value = slice(query_key_value, 2 * d / heads, axis = -1, heads = heads)\n"
                   "  y     = attention(query, key, value, heads = heads)\n");
}

static void write_neox(zp_buf *out, const hf_model *m) {
  const char *attention = hf_linear_options(out, m, m->qkv_bias), *plain = hf_linear_options(out, m, true);
  zp_buf_puts(out, "block mlp(x: [B, S, d], ff: int) -> [B, S, d] {\n");
  zp_buf_printf(out, "  dense_h_to_4h = linear(x, ff%s)\n", plain);
  zp_buf_printf(out, "  dense_4h_to_h = linear(%s, d%s)\n", hf_activation_of(out, m, "dense_h_to_4h"), plain);
  zp_buf_puts(out, "  return dropout(dense_4h_to_h)\n}\n\n");
  const char *formal = m->rotary ? "rotary: int, theta: float" : "theta: float",
             *given = m->rotary ? "rotary = rotary, theta = theta" : "theta = theta";
  zp_buf_printf(out, "block self_attention(x: [B, S, d], heads: int, %s) -> [B, S, d] {\n", formal);
  zp_buf_printf(out, "  query_key_value = linear(x, 3 * d%s)\n", attention);
  if (m->rotary)
    write_turned_parts(out);
  else
    zp_buf_puts(out, "  q, k, v         = split(query_key_value, 3)\n"
                     "  query           = rope(q, heads = heads, theta = theta)\n"
                     "  key             = rope(k, heads = heads, theta = theta)\n"
                     "  y               = attention(query, key, v, heads = heads)\n");
  zp_buf_printf(out, "  dense           = linear(y, d%s)\n  return dropout(dense)\n}\n\n", attention);
  zp_buf_printf(out, "block layer(x: [B, S, d], heads: int, ff: int, %s) -> [B, S, d] {\n", formal);
  zp_buf_printf(out, "  input_layernorm          = layer_norm(x, eps = %s)\n", eps_of(out, m));
  zp_buf_printf(out, "  attention                = self_attention(input_layernorm, heads = heads, %s)\n", given);
  if (!m->parallel) zp_buf_puts(out, "  a                        = x + attention\n");
  zp_buf_printf(out, "  post_attention_layernorm = layer_norm(%s, eps = %s)\n", m->parallel ? "x" : "a",
                eps_of(out, m));
  zp_buf_puts(out, "  mlp                      = mlp(post_attention_layernorm, ff = ff)\n");
  zp_buf_printf(out, "  return %s + mlp\n}\n", m->parallel ? "x + attention" : "a");
}

static void write_swiglu(zp_buf *out, const hf_model *m) {
  const char *options = hf_linear_options(out, m, m->mlp_bias);
  zp_buf_puts(out, "block swiglu(x: [B, S, d], ff: int) -> [B, S, d] {\n");
  zp_buf_printf(out, "  gate_proj = linear(x, ff%s)\n  up_proj   = linear(x, ff%s)\n", options, options);
  zp_buf_printf(out, "  down_proj = linear(silu(gate_proj) * up_proj, d%s)\n  return down_proj\n}\n\n", options);
}

static void write_experts(zp_buf *out, const hf_model *m) {
  const char *std = hf_number(out->arena, m->std);
  zp_buf_puts(
      out,
      "# Weights are [experts, out, in]. `capacity`: slots of an expert as a multiple of its even share of a sample's "
      "tokens.\n"
      "block block_sparse_moe(x: [B, S, d], experts: int, top_k: int, ff: int, capacity: float, balance: float) -> "
      "[B, S, d] {\n");
  zp_buf_printf(out,
                "  param w1: [experts, ff, d] ~ normal(std = %s)\n  param w2: [experts, d, ff] ~ normal(std = %s)\n"
                "  param w3: [experts, ff, d] ~ normal(std = %s)\n",
                std, std, std);
  zp_buf_printf(out, "  gate         = linear(x, experts%s)\n", hf_linear_options(out, m, false));
  zp_buf_puts(out,
              "  weight, slot = top_k_gate(gate, k = top_k, capacity = capacity, balance = balance)\n"
              "  tokens       = dispatch(x, slot)\n"
              "  hidden       = silu(batched_matmul(tokens, transpose(w1))) * batched_matmul(tokens, transpose(w3))\n"
              "  return combine(batched_matmul(hidden, transpose(w2)), weight, slot)\n}\n\n");
}

static void write_llama(zp_buf *out, const hf_model *m) {
  const char *qkv = hf_linear_options(out, m, m->qkv_bias), *proj = hf_linear_options(out, m, m->proj_bias);
  const char *formal = m->window ? "window: int, theta: float" : "theta: float";
  zp_buf_printf(out,
                "block attention_layer(x: [B, S, d], heads: int, kv_heads: int, head_size: int, %s) -> [B, S, d] {\n",
                formal);
  zp_buf_printf(out,
                "  q_proj = linear(x, heads * head_size%s)\n  k_proj = linear(x, kv_heads * head_size%s)\n"
                "  v_proj = linear(x, kv_heads * head_size%s)\n",
                qkv, qkv, qkv);
  if (m->qk_norm)
    zp_buf_printf(out,
                  "  q_norm = head_norm(q_proj, heads = heads, eps = %s)\n"
                  "  k_norm = head_norm(k_proj, heads = kv_heads, eps = %s)\n",
                  eps_of(out, m), eps_of(out, m));
  const char *part = m->qk_norm ? "norm" : "proj";
  zp_buf_printf(out,
                "  q      = rope(q_%s, heads = heads, theta = theta)\n"
                "  k      = rope(k_%s, heads = kv_heads, theta = theta)\n"
                "  y      = attention(q, k, v_proj, heads = heads, kv_heads = kv_heads%s)\n",
                part, part, m->window ? ", window = window" : "");
  zp_buf_printf(out, "  o_proj = linear(y, d%s)\n  return o_proj\n}\n\n", proj);
  if (m->experts)
    write_experts(out, m);
  else
    write_swiglu(out, m);
  const char *more = m->experts ? ", experts: int, top_k: int, capacity: float, balance: float" : "";
  const char *mlp = m->experts ? "block_sparse_moe" : "mlp";
  zp_buf_printf(out,
                "block layer(x: [B, S, d], heads: int, kv_heads: int, head_size: int, %s, ff: int%s) -> [B, S, d] {\n",
                formal, more);
  zp_buf_printf(out, "  input_layernorm          = rms_norm(x, eps = %s)\n", eps_of(out, m));
  zp_buf_printf(
      out,
      "  self_attn                = attention_layer(input_layernorm, heads = heads, kv_heads = kv_heads, "
      "head_size = head_size,\n"
      "                                             %stheta = theta)\n  a                        = x + self_attn\n",
      m->window ? "window = window, " : "");
  zp_buf_printf(out, "  post_attention_layernorm = rms_norm(a, eps = %s)\n", eps_of(out, m));
  zp_buf_printf(out, "  %-24s = %s\n", mlp,
                m->experts ? "block_sparse_moe(post_attention_layernorm, experts = experts, top_k = top_k, ff = ff,\n"
                             "                                              capacity = capacity, balance = balance)"
                           : "swiglu(post_attention_layernorm, ff = ff)");
  zp_buf_printf(out, "  return a + %s\n}\n", mlp);
}

void hf_write_blocks(zp_buf *out, const hf_model *m) {
  static void (*const write[])(zp_buf *, const hf_model *) = {
      [HF_GPT2] = write_gpt2, [HF_NEOX] = write_neox, [HF_LLAMA] = write_llama};
  write[m->layers_are](out, m);
}
