/* DeepSeek-V3 (arXiv 2412.19437) as transformers has it: fields, the model as .dz text out of the blocks of std.models,
 * names of tensors. Dense layers and those with experts are two repeats here, numbered through there. */
#include "hf.h"

#include <stdlib.h>

/* What would make another model than std.models' blocks are. */
static void refuse_others(hf_reader *r) {
  hf_model *m = r->model;
  if (!hf_is_sound(r)) return;
  if (!hf_value(r, "q_lora_rank") && zp_json_get(r->root, "q_lora_rank"))
    hf_refuse(
        r, "q_lora_rank", NULL,
        "queries are made by one matrix, q_proj; deepseek_attention of std.models makes them through few columns");
  if (!hf_flag(r, "rope_interleave", true))
    hf_refuse(r, "rope_interleave", NULL,
              "rotary positions turn halves of the columns; deepseek_attention of std.models turns neighbours");
  if (hf_flag(r, "attention_bias", false))
    hf_refuse(r, "attention_bias", NULL, "latent attention with biases, which deepseek_attention of std.models lacks");
  if (!hf_flag(r, "norm_topk_prob", true))
    hf_refuse(r, "norm_topk_prob", NULL,
              "weights of a token's experts do not sum to one; deepseek_moe of std.models makes them do so");
  const char *scoring = hf_word(r, "scoring_func", "sigmoid"), *method = hf_word(r, "topk_method", "noaux_tc");
  if (strcmp(scoring, "sigmoid") != 0)
    hf_refuse(r, "scoring_func", NULL, "affinities to experts are `%s`; the import writes sigmoids", scoring);
  if (strcmp(method, "noaux_tc") != 0)
    hf_refuse(r, "topk_method", NULL, "experts are chosen by `%s`; the import writes a choice with biases", method);
  if (hf_size(r, "moe_layer_freq", 1, HF_MOST_LAYERS) != 1)
    hf_refuse(r, "moe_layer_freq", NULL,
              "layers with experts and without take turns: all layers of a repeat are alike");
  if (m->kv_heads != m->heads)
    hf_refuse(r, "num_key_value_heads", NULL, "%lld key/value heads for %lld heads: latent attention has one for each",
              (long long)m->kv_heads, (long long)m->heads);
  if (m->value > m->nope + m->rotary)
    hf_refuse(r, "v_head_dim", NULL,
              "values of %lld columns a head (`v_head_dim`) are wider than queries and keys, of %lld",
              (long long)m->value, (long long)(m->nope + m->rotary));
}

static void read_experts(hf_reader *r) {
  hf_model *m = r->model;
  m->experts = hf_size(r, "n_routed_experts", 256, HF_MOST_EXPERTS);
  m->top_k = hf_size(r, "num_experts_per_tok", 8, HF_MOST_TOP_K);
  m->groups = hf_size(r, "n_group", 8, HF_MOST_EXPERTS);
  m->top_groups = hf_size(r, "topk_group", 4, HF_MOST_EXPERTS);
  m->shared = hf_size(r, "n_shared_experts", 1, HF_MOST_EXPERTS);
  m->expert_ff = hf_size(r, "moe_intermediate_size", 2048, HF_MOST_WIDTH);
  m->scale = hf_real(r, "routed_scaling_factor", 2.5, 0, 1e6);
  if (!hf_is_sound(r)) return;
  if (m->experts % m->groups != 0 || m->top_groups > m->groups)
    zp_report(r->diags, ZP_Z0683, hf_place(r, "n_group"), "%lld experts do not lie in %lld of %lld groups",
              (long long)m->experts, (long long)m->top_groups, (long long)m->groups);
  else if (m->top_k > m->experts / m->groups * m->top_groups)
    zp_report(r->diags, ZP_Z0683, hf_place(r, "num_experts_per_tok"),
              "a token takes %lld (`num_experts_per_tok`) of the %lld experts of %lld groups", (long long)m->top_k,
              (long long)(m->experts / m->groups * m->top_groups), (long long)m->top_groups);
  if (m->top_k == 1)
    hf_refuse(
        r, "num_experts_per_tok", NULL,
        "a token takes one expert, whose normalized weight is always the same: no gradient would reach the router");
  hf_note(r,
          "`capacity` is experts / top_k, so that no token is dropped, as published; lower it to save memory and time");
}

void hf_read_deepseek(hf_reader *r) {
  hf_model *m = r->model;
  m->layers_are = HF_DEEPSEEK;
  m->q_rank = hf_size_or_null(r, "q_lora_rank", 1536, HF_MOST_WIDTH);
  m->kv_rank = hf_size(r, "kv_lora_rank", 512, HF_MOST_WIDTH);
  m->nope = hf_size(r, "qk_nope_head_dim", 128, HF_MOST_WIDTH);
  m->rotary = hf_size(r, "qk_rope_head_dim", 64, HF_MOST_WIDTH);
  m->value = hf_size(r, "v_head_dim", 128, HF_MOST_WIDTH);
  if (hf_is_sound(r) && m->rotary % 2 != 0)
    zp_report(r->diags, ZP_Z0683, hf_place(r, "qk_rope_head_dim"), "%lld columns have no pairs for rotary positions",
              (long long)m->rotary);
  int64_t columns = m->nope + m->rotary;
  if (hf_size(r, "qk_head_dim", columns, 2 * HF_MOST_WIDTH) != columns && hf_is_sound(r))
    hf_refuse(r, "qk_head_dim", NULL, "a head of other columns than %lld that stand and %lld that turn",
              (long long)m->nope, (long long)m->rotary);
  static const char first[] = "first_k_dense_replace"; /* 0: none */
  m->dense = zp_json_int(hf_value(r, first), 3) == 0 ? 0 : hf_size(r, first, 3, HF_MOST_LAYERS);
  if (m->dense > m->layers) m->dense = m->layers;
  if (m->dense < m->layers) read_experts(r);
  refuse_others(r);
  if (m->std != 0.006)
    hf_note(r, "`initializer_range` is of the tables alone: the blocks of std.models draw their matrices with the "
               "paper's standard deviation, 0.006");
  if (hf_value(r, "num_nextn_predict_layers"))
    hf_note(r,
            "predictions of further tokens were left out; where a checkpoint has their layer: unread = "
            "[\"model.layers.%lld.*\"]",
            (long long)m->layers);
}

/* "layers.2.mlp.w1" -> "layers.5.mlp.gate_proj", of three dense layers. */
const char *hf_deepseek_name(zp_arena *arena, const hf_model *m, const char *name) {
  static const char *const rows[][2] = {{"mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias"},
                                        {"mlp.w1", "mlp.gate_proj"},
                                        {"mlp.w2", "mlp.down_proj"},
                                        {"mlp.w3", "mlp.up_proj"}};
  static const char *const repeats[] = {"first.", "layers."};
  for (int i = 0; i < 2; i++) {
    size_t n = strlen(repeats[i]);
    if (strncmp(name, repeats[i], n) != 0) continue;
    char *rest;
    int64_t number = strtoll(name + n, &rest, 10) + (i == 1 ? m->dense : 0);
    const char *inner = rest + 1; /* behind the dot */
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
      if (strcmp(inner, rows[k][0]) == 0) inner = rows[k][1];
    return zp_format(arena, "layers.%lld.%s", (long long)number, inner);
  }
  return name;
}

static void write_layer(zp_buf *out, const hf_model *m, bool experts) {
  const char *eps = hf_number(out->arena, m->eps);
  zp_buf_printf(out,
                "block %s(x: [B, S, d], heads: int, q_rank: int, kv_rank: int, nope: int, rotary: int, value: int, "
                "theta: float, ff: int%s) -> [B, S, d] {\n",
                experts ? "expert_layer" : "dense_layer",
                experts ? ", experts: int, top_k: int, groups: int, top_groups: int, capacity: float" : "");
  zp_buf_printf(out, "  input_layernorm = rms_norm(x, eps = %s)\n", eps);
  zp_buf_puts(out, "  self_attn = deepseek_attention(input_layernorm, heads = heads, q_rank = q_rank, kv_rank = "
                   "kv_rank, nope = nope,\n    rotary = rotary, value = value, theta = theta)\n"
                   "  a                        = x + self_attn\n");
  zp_buf_printf(out, "  post_attention_layernorm = rms_norm(a, eps = %s)\n", eps);
  if (experts)
    zp_buf_printf(out,
                  "  mlp = deepseek_moe(post_attention_layernorm, experts = experts, top_k = top_k, ff = ff, shared = "
                  "%lld, scale = %s,\n    capacity = capacity, groups = groups, top_groups = top_groups)\n",
                  (long long)m->shared, hf_number(out->arena, m->scale));
  else
    zp_buf_puts(out, "  mlp                      = qwen3_mlp(post_attention_layernorm, ff = ff)\n");
  zp_buf_puts(out, "  return a + mlp\n}\n\n");
}

static void write_repeat(zp_buf *out, const hf_model *m, bool experts) {
  if (experts)
    zp_buf_printf(out, "  repeat layers in 0..%s {\n", m->dense ? "layers - dense" : "layers");
  else
    zp_buf_printf(out, "  repeat first in 0..dense {\n");
  zp_buf_printf(out,
                "    x = %s(x, heads = heads, q_rank = q_rank, kv_rank = kv_rank, nope = nope, rotary = rotary, value "
                "= value,\n      theta = %s, ff = %s%s)\n  }\n",
                experts ? "expert_layer" : "dense_layer", hf_number(out->arena, m->theta), experts ? "expert_ff" : "ff",
                experts ? ", experts = experts, top_k = top_k, groups = groups, top_groups = top_groups, capacity = "
                          "capacity"
                        : "");
}

static void write_sizes(zp_buf *out, const hf_model *m) {
  zp_buf_printf(out, "model deepseek_v3(V = %lld, S = %lld, d = %lld, ", (long long)m->vocabulary,
                (long long)hf_sample(m), (long long)m->hidden);
  if (m->dense) zp_buf_printf(out, "dense = %lld, ", (long long)m->dense);
  if (m->dense < m->layers) zp_buf_printf(out, "layers = %lld, ", (long long)m->layers);
  zp_buf_printf(out, "heads = %lld, q_rank = %lld, kv_rank = %lld, nope = %lld, rotary = %lld, value = %lld",
                (long long)m->heads, (long long)m->q_rank, (long long)m->kv_rank, (long long)m->nope,
                (long long)m->rotary, (long long)m->value);
  if (m->dense) zp_buf_printf(out, ", ff = %lld", (long long)m->ff);
  if (m->dense < m->layers)
    zp_buf_printf(
        out, ",\n  experts = %lld, top_k = %lld, groups = %lld, top_groups = %lld, expert_ff = %lld, capacity = %s",
        (long long)m->experts, (long long)m->top_k, (long long)m->groups, (long long)m->top_groups,
        (long long)m->expert_ff, hf_number(out->arena, (double)m->experts / (double)m->top_k));
  zp_buf_puts(out, ") {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n\n");
}

void hf_write_deepseek(zp_buf *out, const hf_model *m) {
  const char *std = hf_number(out->arena, m->std);
  if (m->dense) write_layer(out, m, false);
  if (m->dense < m->layers) write_layer(out, m, true);
  write_sizes(out, m);
  zp_buf_printf(out, "  param embed_tokens: [V, d] ~ normal(std = %s)\n", std);
  if (!m->tied) zp_buf_printf(out, "  param lm_head: [V, d] ~ normal(std = %s)\n", std);
  zp_buf_puts(out, "\n  x = embedding(tokens, embed_tokens)\n");
  if (m->dense) write_repeat(out, m, false);
  if (m->dense < m->layers) write_repeat(out, m, true);
  zp_buf_printf(out, "  norm   = rms_norm(x, eps = %s)\n  logits = matmul(norm, transpose(%s))\n",
                hf_number(out->arena, m->eps), m->tied ? "embed_tokens" : "lm_head");
  zp_buf_puts(out, "  output loss = cross_entropy(logits, labels)\n}\n");
}
