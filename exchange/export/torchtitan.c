/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as the arguments of torchtitan: a shell file that sets one array. This file writes it and names the model;
 * torchtitan_*.c have its sections. */
#include "torchtitan.h"

#include <zplan/quote.h>

#include <assert.h>

void zp_titan_put(zp_titan *t, const char *key) { zp_buf_printf(&t->out, "  --%s\n", key); }

void zp_titan_put_int(zp_titan *t, const char *key, int64_t value) {
  zp_buf_printf(&t->out, "  --%s=%lld\n", key, (long long)value);
}

void zp_titan_put_real(zp_titan *t, const char *key, double value) {
  zp_buf_printf(&t->out, "  --%s=%s\n", key, zp_export_number(t->e->arena, value));
}

void zp_titan_put_text(zp_titan *t, const char *key, const char *value) {
  zp_buf_printf(&t->out, "  --%s=%s\n", key, zp_quote_shell(t->e->arena, value));
}

void zp_titan_section(zp_titan *t, const char *title) { zp_buf_printf(&t->out, "\n  # %s\n", title); }

/* ---- the model ---- */

typedef struct model_row {
  const char *name, *flavor;
  int64_t d, layers, heads, kv_heads, head, ff, vocabulary;
  double theta, eps;
  bool qk_norm, tied;
  int64_t experts;
} model_row;

static const model_row models[] = {
#define SIZE(name, flavor, d, layers, heads, kv_heads, head, ff, vocabulary, theta, eps, qk_norm, tied, experts,       \
             top_k, expert_ff)                                                                                         \
  {name, flavor, d, layers, heads, kv_heads, head, ff, vocabulary, theta, eps, qk_norm, tied, experts},
#include <zplan/torchtitan_sizes.def>
};
enum { N_MODELS = sizeof models / sizeof *models };

static const struct {
  const char *module, *function, *flavor;
} functions[] = {
#define CONFIG(module, function, flavor, settings) {module, function, flavor},
#include <zplan/torchtitan_sizes.def>
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

/* A GPT has neither norms of heads nor, here, experts. */
static bool is_model(const zp_gpt *gpt, const model_row *m) {
  return gpt->hidden == m->d && gpt->layers == m->layers && gpt->heads == m->heads && gpt->kv_heads == m->kv_heads &&
         gpt->head_size == m->head && gpt->ff == m->ff && gpt->vocabulary == m->vocabulary && gpt->theta == m->theta &&
         gpt->norm_eps == m->eps && gpt->tied == m->tied && !m->qk_norm && m->experts == 0 && gpt->experts == 0;
}

/* What no decoder of torchtitan has; NULL: nothing. */
static const char *lacking(zp_arena *arena, const zp_gpt *gpt) {
  if (gpt->documents) return "attention within documents, which torchtitan finds by itself";
  if (!gpt->rms_norm) return "layer norm, torchtitan's decoders have RMS norm";
  if (!gpt->rope) return "learned positions, torchtitan's decoders have rotary ones";
  if (gpt->activation != ZP_GPT_SWIGLU) return "an MLP without a gate, torchtitan's decoders have SwiGLU";
  if (gpt->qkv_bias || gpt->proj_bias || gpt->mlp_bias) return "biases, torchtitan's Llama has none";
  if (gpt->dropout > 0 || gpt->attention_dropout > 0)
    return zp_format(arena, "dropout (%g, of attention %g), torchtitan has none", gpt->dropout, gpt->attention_dropout);
  return NULL;
}

static void refuse_model(zp_titan *t, zp_span span, const char *reason) {
  zp_export_refusal refusal = {.of_model = true, .span = span};
  refusal.reason =
      zp_format(t->e->arena, "`%s` is not a model that torchtitan has: %s", t->e->spec->model->name, reason);
  zp_push(t->e->arena, &t->e->result->refusals, refusal);
}

static bool find_model(zp_titan *t) {
  zp_arena *arena = t->e->arena;
  const char *reason = NULL;
  zp_span span = ZP_NO_SPAN;
  t->gpt = zp_gpt_recognise(arena, t->e->spec->model, &reason, &span);
  if (t->gpt) reason = lacking(arena, t->gpt);
  if (!t->gpt || reason) {
    refuse_model(t, span, reason);
    return false;
  }
  zp_buf known = zp_buf_new(arena);
  for (int f = 0; f < N_FUNCTIONS; f++)
    for (int i = 0; i < N_MODELS; i++) {
      const model_row *m = &models[i];
      if (strcmp(m->name, functions[f].module) != 0 || strcmp(m->flavor, functions[f].flavor) != 0) continue;
      if (!m->qk_norm)
        zp_buf_printf(&known, "%s%s (%lld layers, width %lld, vocabulary %lld)", known.len ? ", " : "",
                      functions[f].function, (long long)m->layers, (long long)m->d, (long long)m->vocabulary);
      if (!is_model(t->gpt, m)) continue;
      t->module = functions[f].module;
      t->function = functions[f].function;
      return true;
    }
  refuse_model(t, ZP_NO_SPAN,
               zp_format(arena, "its sizes are none of %s; other sizes are Python there, not arguments", known.data));
  return false;
}

/* ---- the file ---- */

void zp_export_torchtitan(zp_exporter *e) {
  zp_titan t = {.e = e, .out = zp_buf_new(e->arena)};
  zp_export_check_common(e);
  if (!find_model(&t)) return;
  zp_export_note(e, "initial values are torchtitan's, and its Llama scales rotary frequencies as Llama 3.1 does");
  zp_titan_parallel(&t);
  zp_titan_memory(&t);
  zp_titan_train(&t);
  zp_titan_checkpoint(&t);
  zp_buf out = zp_buf_new(e->arena);
  zp_export_head(&out, e, " " ZP_TORCHTITAN_VERSION);
  zp_buf_puts(&out, "#   torchrun ... -m torchtitan.train \"${TORCHTITAN_ARGS[@]}\"\n");
  zp_export_differences(&out, e);
  zp_buf_printf(&out, "\nTORCHTITAN_ARGS=(\n  --module=%s\n  --config=%s\n%s)\n", t.module, t.function, t.out.data);
  e->result->text = out.data;
}
