/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a measured run as a .dz file, with the library's blocks: those with experts, with latent attention and
 * with adapters. Dense models are built op by op (model.c). */
#include <math.h>
#include <zplan/buf.h>
#include <zplan/constants.h>
#include "validate_internal.h"

bool zp_run_is_written(const zp_measured *run) {
  return run->shape.experts > 0 || run->adapters || run->shape.kv_rank > 0;
}

/* Keys that a window costs besides. */
static double window_fill(const zp_measured *run) {
  bool blackwell = run->gpu && (strstr(run->gpu, "B200") || strstr(run->gpu, "B300"));
  return zp_cost_constant(blackwell ? ZP_COST_WINDOW_FILL_SM100 : ZP_COST_WINDOW_FILL_SM90);
}

/* One window for all layers, where every second sees all: a position costs as many keys on average. */
static int64_t mean_window(const zp_measured *run) {
  double s = (double)run->seq, w = (double)run->shape.window;
  if (w <= 0 || w >= s) return run->seq;
  double mean = fmin(s / 2, (s / 2 + w - w * w / (2 * s) + window_fill(run)) / 2);
  return (int64_t)round(s * (1 - sqrt(fmax(0, 1 - 2 * mean / s))));
}

static void add_latent_layer(zp_buf *b, const zp_measured *run) {
  zp_buf_printf(
      b,
      "deepseek_layer(x, heads = %lld, q_rank = %lld, kv_rank = %lld, nope = %lld, rotary = %lld, value = %lld, ff = "
      "%lld)",
      (long long)run->shape.heads, (long long)run->shape.q_rank, (long long)run->shape.kv_rank,
      (long long)(run->shape.head - run->shape.rotary_head), (long long)run->shape.rotary_head,
      (long long)run->shape.value_head, (long long)run->shape.ffn);
}

/* Experts of every layer take every token that chooses them: `capacity` has room for all. */
static void add_expert_layer(zp_buf *b, const zp_measured *run, const char *x) {
  if (run->shape.kv_rank > 0) {
    zp_buf_printf(b, "latent_layer(%s, ff = %lld)", x, (long long)run->shape.expert_ffn);
    return;
  }
  const char *block = run->shape.shared_experts > 0 ? "qwen2_moe" : run->shape.head_norms ? "qwen3_moe" : "mixtral";
  zp_buf_printf(b, "%s_layer(%s, heads = %lld, kv_heads = %lld, head = %lld, experts = %lld, top_k = %lld, ff = %lld, ",
                block, x, (long long)run->shape.heads, (long long)run->shape.kv_heads,
                (long long)(run->shape.head ? run->shape.head : run->shape.hidden / run->shape.heads),
                (long long)run->shape.experts, (long long)run->shape.top_k, (long long)run->shape.expert_ffn);
  if (run->shape.shared_experts > 0)
    zp_buf_printf(b, "shared_ff = %lld, ", (long long)(run->shape.shared_experts * run->shape.expert_ffn));
  else if (!run->shape.head_norms)
    zp_buf_printf(b, "window = %lld, ", (long long)mean_window(run));
  zp_buf_printf(b, "capacity = %lld.0)", (long long)run->shape.experts);
}

/* DeepSeek-V3's layer with experts (examples/deepseek_v3.dz). */
static void add_latent_block(zp_buf *b, const zp_measured *run) {
  zp_buf_printf(b,
                "block latent_layer(x: [B, S, d], ff: int) -> [B, S, d] {\n"
                "  input_layernorm = rms_norm(x, eps = 1e-6)\n"
                "  self_attn = deepseek_attention(input_layernorm, heads = %lld, q_rank = %lld, kv_rank = %lld, nope = "
                "%lld, rotary = %lld, value = %lld)\n"
                "  a = x + self_attn\n"
                "  post_attention_layernorm = rms_norm(a, eps = 1e-6)\n"
                "  mlp = deepseek_moe(post_attention_layernorm, experts = %lld, top_k = %lld, ff = ff, shared = %lld, "
                "capacity = %lld.0, groups = %lld, top_groups = %lld)\n"
                "  return a + mlp\n"
                "}\n",
                (long long)run->shape.heads, (long long)run->shape.q_rank, (long long)run->shape.kv_rank,
                (long long)(run->shape.head - run->shape.rotary_head), (long long)run->shape.rotary_head,
                (long long)run->shape.value_head, (long long)run->shape.experts, (long long)run->shape.top_k,
                (long long)run->shape.shared_experts, (long long)run->shape.experts,
                (long long)(run->shape.expert_groups > 0 ? run->shape.expert_groups : 1),
                (long long)(run->shape.top_groups > 0 ? run->shape.top_groups : 1));
}

static void add_dense_layer(zp_buf *b, const zp_measured *run) {
  if (run->shape.kv_rank > 0) {
    add_latent_layer(b, run);
    return;
  }
  bool bias = run->model && strstr(run->model, "Qwen2") != NULL;
  zp_buf_printf(b, "llama_layer(x, heads = %lld, kv_heads = %lld, head = %lld, ff = %lld, window = S%s)",
                (long long)run->shape.heads, (long long)run->shape.kv_heads,
                (long long)(run->shape.head ? run->shape.head : run->shape.hidden / run->shape.heads),
                (long long)run->shape.ffn, bias ? ", qkv_bias = true" : "");
}

static void add_layers(zp_buf *b, const zp_measured *run) {
  int64_t dense = run->shape.experts ? run->shape.dense_layers : run->shape.layers;
  if (dense > run->shape.layers) dense = run->shape.layers;
  if (dense > 0) {
    zp_buf_printf(b, "  repeat dense in 0..%lld {\n    x = ", (long long)dense);
    add_dense_layer(b, run);
    zp_buf_printf(b, "\n  }\n");
  }
  if (run->shape.layers == dense) return;
  zp_buf_printf(b, "  repeat layers in 0..%lld {\n    x = ", (long long)(run->shape.layers - dense));
  add_expert_layer(b, run, "x");
  zp_buf_printf(b, "\n  }\n");
}

/* A further token's layer reads what the layers before made of the position, and the next token (arXiv 2412.19437,
 * section 2.2); its tokens and labels stand for those that are shifted. */
static void add_further(zp_buf *b, const zp_measured *run) {
  for (int64_t k = 1; k <= run->shape.further; k++) {
    zp_buf_printf(b,
                  "  hnorm%lld = rms_norm(x)\n"
                  "  enorm%lld = rms_norm(embedding(tokens, embed_tokens))\n"
                  "  joined%lld = linear(concat(enorm%lld, hnorm%lld, axis = -1), d, bias = false)\n"
                  "  further%lld = ",
                  (long long)k, (long long)k, (long long)k, (long long)k, (long long)k, (long long)k);
    add_expert_layer(b, run, zp_format(b->arena, "joined%lld", (long long)k));
    zp_buf_printf(b,
                  "\n  fnorm%lld = rms_norm(further%lld)\n"
                  "  loss%lld = cross_entropy(matmul(fnorm%lld, transpose(lm_head)), labels)\n",
                  (long long)k, (long long)k, (long long)k, (long long)k);
  }
}

static void add_adapters(zp_buf *b, const zp_measured *run) {
  static const char *const queries[] = {"q_proj", "k_proj", "v_proj"};
  zp_buf_printf(b, "  adapt = lora(rank = %lld, alpha = 32, of = [",
                (long long)(run->lora_rank > 0 ? run->lora_rank : 16));
  if (zp_run_says(run->lora_of, "qkv"))
    for (int i = 0; i < 3; i++) zp_buf_printf(b, "%s\"dense.{}.self_attn.%s.weight\"", i ? ", " : "", queries[i]);
  else
    zp_buf_printf(b, "\"dense.{}.self_attn.*.weight\", \"dense.{}.mlp.*.weight\"");
  zp_buf_printf(b, "])\n");
}

const char *zp_run_text(zp_arena *arena, const zp_measured *run) {
  zp_buf b = zp_buf_new(arena);
  zp_buf_printf(&b, "use std.nn\nuse std.models\nuse std.hw\n");
  if (run->shape.kv_rank > 0) add_latent_block(&b, run);
  zp_buf_printf(&b,
                "model measured(V = %lld, S = %lld, d = %lld) {\n"
                "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n"
                "  param embed_tokens: [V, d]\n  param lm_head: [V, d]\n"
                "  x = embedding(tokens, embed_tokens)\n",
                (long long)run->shape.vocab, (long long)run->seq, (long long)run->shape.hidden);
  add_layers(&b, run);
  zp_buf_printf(&b, "  norm = rms_norm(x)\n  loss0 = cross_entropy(matmul(norm, transpose(lm_head)), labels)\n");
  add_further(&b, run);
  zp_buf_printf(&b, "  output loss = loss0");
  for (int64_t k = 1; k <= run->shape.further; k++) zp_buf_printf(&b, " + loss%lld", (long long)k);
  zp_buf_printf(&b, "\n}\ncluster c { nodes = 1  node = std.hw.dgx_h100 }\n"
                    "train {\n  model = measured  batch = 1024  steps = 1  precision = \"mixed_bf16\"\n"
                    "  optimizer = adam(lr = 1e-4)\n");
  if (run->adapters) add_adapters(&b, run);
  zp_buf_printf(&b, "}\n");
  return b.data;
}
