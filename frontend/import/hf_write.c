/* The .dz file of an imported model: the model around its layers, and blocks to fill in. */
#include "hf.h"

#include <stdlib.h>

enum { USUAL_SAMPLE = 8192 }; /* longest sample that is written by itself */

const char *hf_number(zp_arena *arena, double value) {
  char *text = NULL, *zeros;
  if (value == (double)(int64_t)value) return zp_format(arena, "%.1f", value);
  for (int digits = 1; digits <= 17; digits++) {
    text = zp_format(arena, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  if ((zeros = strstr(text, "e-0")) != NULL) memmove(zeros + 2, zeros + 3, strlen(zeros + 2)); /* 1e-05: 1e-5 */
  return text;
}

/* Learned positions fix the sample; rotary ones allow any. What is written is no longer than a window: so it is the
 * same for programs that know none. */
int64_t hf_sample(const hf_model *m) {
  if (m->layers_are == HF_GPT2 || m->layers_are == HF_BERT) return m->positions;
  int64_t s = m->positions < USUAL_SAMPLE ? m->positions : USUAL_SAMPLE;
  return m->window && m->window < s ? m->window : s;
}

static void write_comment(zp_buf *out, const hf_model *m) {
  zp_buf_printf(out,
                "# A model of type %s, imported from the config.json of Hugging Face. Parameters are named as in its "
                "checkpoints.\n",
                m->type);
  zp_buf_printf(
      out,
      "#\n#   zplan check FILE.dz        shapes, parameter count\n#   zplan FILE.dz --gpus 8     the best plan\n#\n");
  zp_buf_puts(out, "# The blocks `cluster`, `train` and `plan` at the end are to be filled in.");
  if (m->layers_are == HF_NEOX || m->layers_are == HF_LLAMA || m->layers_are == HF_DEEPSEEK ||
      m->layers_are == HF_GEMMA)
    zp_buf_printf(out, "\n# S, the length of a sample, may be up to %lld.", (long long)m->positions);
  zp_buf_printf(out, "\nuse std.nn\n%suse std.hw\n\n", m->layers_are == HF_T5 || m->rotary ? "use std.models\n" : "");
}

static void write_formals(zp_buf *out, const hf_model *m) {
  zp_buf_printf(out, "model %s(V = %lld, S = %lld, d = %lld, layers = %lld, heads = %lld, ", m->type,
                (long long)m->vocabulary, (long long)hf_sample(m), (long long)m->hidden, (long long)m->layers,
                (long long)m->heads);
  if (m->layers_are == HF_LLAMA)
    zp_buf_printf(out, "kv_heads = %lld, head_size = %lld, ", (long long)m->kv_heads, (long long)m->head_size);
  zp_buf_printf(out, "ff = %lld", (long long)m->ff);
  if (m->window) zp_buf_printf(out, ", window = %lld", (long long)m->window);
  if (m->full_layers) zp_buf_printf(out, ", full_layers = %lld", (long long)m->full_layers);
  if (m->rotary) zp_buf_printf(out, ", rotary = %lld", (long long)m->rotary);
  if (m->experts)
    zp_buf_printf(out, ", experts = %lld, top_k = %lld,\n              capacity = %s", (long long)m->experts,
                  (long long)m->top_k, hf_number(out->arena, (double)m->experts / (double)m->top_k));
  zp_buf_puts(out, ") {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n\n");
}

/* window: what attention sees, "" where the layers have none. */
static void write_layer_call(zp_buf *out, const hf_model *m, const char *window) {
  const char *theta = hf_number(out->arena, m->theta);
  if (m->layers_are == HF_GPT2)
    zp_buf_printf(out, "    x = layer(x, heads = heads, ff = ff, residual_std = %s / sqrt(2 * layers))\n",
                  hf_number(out->arena, m->std));
  else if (m->layers_are == HF_NEOX)
    zp_buf_printf(out, "    x = layer(x, heads = heads, ff = ff, %stheta = %s)\n", m->rotary ? "rotary = rotary, " : "",
                  theta);
  else
    zp_buf_printf(
        out, "    x = layer(x, heads = heads, kv_heads = kv_heads, head_size = head_size, %stheta = %s, ff = ff%s)\n",
        window, theta,
        m->experts ? zp_format(out->arena,
                               ", experts = experts, top_k = top_k,\n              capacity = capacity, balance = %s",
                               hf_number(out->arena, m->balance))
                   : "");
}

typedef struct names {
  const char *table, *head, *layers, *norm, *norm_op;
} names;
static const names names_of[] = {[HF_GPT2] = {"wte", "lm_head", "h", "ln_f", "layer_norm"},
                                 [HF_NEOX] = {"embed_in", "embed_out", "layers", "final_layer_norm", "layer_norm"},
                                 [HF_LLAMA] = {"embed_tokens", "lm_head", "layers", "norm", "rms_norm"}};

const char *hf_dropped(const zp_buf *out, const hf_model *m, const char *x) {
  if (m->layers_are == HF_LLAMA) return x;
  if (m->embedding_dropout == m->dropout) return zp_format(out->arena, "dropout(%s)", x);
  return zp_format(out->arena, "dropout(%s, rate = %s)", x, hf_number(out->arena, m->embedding_dropout));
}

static void write_model(zp_buf *out, const hf_model *m) {
  const names *n = &names_of[m->layers_are];
  const char *std = hf_number(out->arena, m->std);
  write_formals(out, m);
  zp_buf_printf(out, "  param %s: [V, d] ~ normal(std = %s)\n", n->table, std);
  if (m->layers_are == HF_GPT2) zp_buf_printf(out, "  param wpe: [S, d] ~ normal(std = %s)\n", std);
  if (!m->tied) zp_buf_printf(out, "  param %s: [V, d] ~ normal(std = %s)\n", n->head, std);
  const char *x = zp_format(out->arena, "embedding(tokens, %s)%s", n->table, m->layers_are == HF_GPT2 ? " + wpe" : "");
  zp_buf_printf(out, "\n  x = %s\n", hf_dropped(out, m, x));
  if (m->full_layers) {
    zp_buf_puts(out, "  repeat first in 0..full_layers {\n");
    write_layer_call(out, m, "window = S, ");
    zp_buf_puts(out, "  }\n");
  }
  zp_buf_printf(out, "  repeat %s in 0..layers%s {\n", n->layers, m->full_layers ? " - full_layers" : "");
  write_layer_call(out, m, m->window ? "window = window, " : "");
  int width = (int)strlen(n->norm) > 6 ? (int)strlen(n->norm) : 6;
  zp_buf_printf(out, "  }\n  %-*s = %s(x, eps = %s)\n", width, n->norm, n->norm_op, hf_number(out->arena, m->eps));
  zp_buf_printf(out, "  %-*s = matmul(%s, transpose(%s))%s\n", width, "logits", n->norm, m->tied ? n->table : n->head,
                m->tied ? "  # used twice: tied" : "");
  zp_buf_puts(out, "  output loss = cross_entropy(logits, labels)\n}\n");
}

static void write_rest(zp_buf *out, const hf_model *m) {
  zp_buf_puts(out, "\ncluster gpus {\n  nodes = 1\n  node  = std.hw.dgx_h100\n}\n\n");
  zp_buf_printf(out, "train {\n  model     = %s\n", m->type);
  zp_buf_puts(out, m->layers_are == HF_BERT || m->layers_are == HF_T5 || m->layers_are == HF_VIT
                       ? "  data      = arrays(\"data\")       # a file of NumPy for every input\n"
                       : "  data      = synthetic(seed = 1)  # or text(\"book.txt\"), tokens(\"data/*.bin\")\n");
  zp_buf_puts(out, "  batch     = 256                  # sequences per optimizer step\n"
                   "  steps     = 10000\n  precision = \"mixed_bf16\"\n");
  if (m->dropout > 0) zp_buf_printf(out, "  dropout   = %s\n", hf_number(out->arena, m->dropout));
  zp_buf_puts(out, "  optimizer = adamw(lr = 3e-4, betas = [0.9, 0.95], eps = 1e-8, weight_decay = 0.1)\n"
                   "  schedule  = cosine(warmup = 500, min_lr = 3e-5)\n  clip      = 1.0\n}\n\n"
                   "plan {\n  objective = minimize(step_time)\n  memory   <= 94%\n}\n");
}

const char *hf_write(zp_arena *arena, const hf_model *m) {
  zp_buf out = zp_buf_new(arena);
  write_comment(&out, m);
  if (m->layers_are == HF_BERT) {
    hf_write_bert(&out, m);
  } else if (m->layers_are == HF_DEEPSEEK) {
    hf_write_deepseek(&out, m);
  } else if (m->layers_are == HF_T5) {
    hf_write_t5(&out, m);
  } else if (m->layers_are == HF_VIT) {
    hf_write_vit(&out, m);
  } else if (m->layers_are == HF_GEMMA) {
    hf_write_gemma(&out, m);
  } else {
    hf_write_blocks(&out, m);
    zp_buf_puts(&out, "\n");
    write_model(&out, m);
  }
  write_rest(&out, m);
  return out.data;
}
