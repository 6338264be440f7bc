/* SPDX-License-Identifier: Apache-2.0 */
/* The model of an exported script: GPT-2 with the names that zplan's files and checkpoints of it have. */
#include "fsdp2.h"

#define LAYER "h.{}."

/* Parameters of the script's modules. Vectors begin as nn.LayerNorm and a bias do. */
static const struct {
  const char *name;
  bool matrix;
  double begins; /* of a vector */
} parameters[] = {{"wte", true, 0},
                  {"wpe", true, 0},
                  {LAYER "ln_1.weight", false, 1},
                  {LAYER "ln_1.bias", false, 0},
                  {LAYER "attn.c_attn.weight", true, 0},
                  {LAYER "attn.c_attn.bias", false, 0},
                  {LAYER "attn.c_proj.weight", true, 0},
                  {LAYER "attn.c_proj.bias", false, 0},
                  {LAYER "ln_2.weight", false, 1},
                  {LAYER "ln_2.bias", false, 0},
                  {LAYER "mlp.c_fc.weight", true, 0},
                  {LAYER "mlp.c_fc.bias", false, 0},
                  {LAYER "mlp.c_proj.weight", true, 0},
                  {LAYER "mlp.c_proj.bias", false, 0},
                  {"ln_f.weight", false, 1},
                  {"ln_f.bias", false, 0}};
enum { N_PARAMETERS = sizeof parameters / sizeof *parameters };

/* What GPT-2 does not have; NULL: nothing. */
static const char *foreign(zp_arena *arena, const zp_gpt *gpt) {
  if (gpt->experts > 0) return "experts in place of the MLP";
  if (gpt->documents) return "attention within documents";
  if (gpt->rms_norm) return "RMS norm";
  if (gpt->rope) return "rotary positions";
  if (gpt->activation == ZP_GPT_SWIGLU) return "an MLP with a gate";
  if (!gpt->tied) return "a head with weights of its own";
  if (gpt->kv_heads != gpt->heads)
    return zp_format(arena, "%lld heads on %lld of keys and values", (long long)gpt->heads, (long long)gpt->kv_heads);
  if (gpt->heads * gpt->head_size != gpt->hidden)
    return zp_format(arena, "%lld heads of %lld columns on a width of %lld", (long long)gpt->heads,
                     (long long)gpt->head_size, (long long)gpt->hidden);
  return NULL;
}

static const zp_param *find(const zp_model *model, const char *name) {
  for (int i = 0; i < model->params.len; i++)
    if (strcmp(model->params.data[i].name, name) == 0) return &model->params.data[i];
  return NULL;
}

/* The first parameter that the script's modules lack or have otherwise; NULL: none. */
static const char *unknown_parameter(zp_arena *arena, const zp_model *model, zp_span *span) {
  for (int i = 0; i < model->params.len; i++) {
    const zp_param *p = &model->params.data[i];
    int row = 0;
    while (row < N_PARAMETERS && strcmp(parameters[row].name, p->name) != 0) row++;
    *span = p->span;
    if (row == N_PARAMETERS) return zp_format(arena, "GPT-2 has no parameter `%s`", p->name);
    if (!parameters[row].matrix && (p->init != ZP_INIT_CONSTANT || p->init_a != parameters[row].begins))
      return zp_format(arena, "`%s` does not begin as %g", p->name, parameters[row].begins);
  }
  *span = ZP_NO_SPAN;
  for (int row = 0; row < N_PARAMETERS; row++)
    if (!find(model, parameters[row].name))
      return zp_format(arena, "it has no parameter `%s`, which GPT-2 has", parameters[row].name);
  return NULL;
}

static void put_sizes(zp_fsdp2 *f) {
  const zp_gpt *gpt = f->gpt;
  static const char *const activations[] = {
      [ZP_GPT_GELU_TANH] = "gelu_tanh", [ZP_GPT_GELU_ERF] = "gelu", [ZP_GPT_RELU] = "relu"};
  zp_fsdp2_put_int(f, "VOCABULARY", gpt->vocabulary);
  zp_fsdp2_put_int(f, "POSITIONS", gpt->positions);
  zp_fsdp2_put_int(f, "SEQUENCE", gpt->sequence);
  zp_fsdp2_put_int(f, "LAYERS", gpt->layers);
  zp_fsdp2_put_int(f, "WIDTH", gpt->hidden);
  zp_fsdp2_put_int(f, "HEADS", gpt->heads);
  zp_fsdp2_put_int(f, "MLP_WIDTH", gpt->ff);
  zp_fsdp2_put_text(f, "ACTIVATION", activations[gpt->activation]);
  zp_fsdp2_put_real(f, "NORM_EPS", gpt->norm_eps);
  zp_fsdp2_put_real(f, "DROPOUT", gpt->dropout);
  zp_fsdp2_put_real(f, "ATTENTION_DROPOUT", gpt->attention_dropout);
  if (gpt->dropout > 0 || gpt->attention_dropout > 0)
    zp_export_note(f->e, "dropout draws PyTorch's random numbers, not zplan's");
}

/* {} stands for the number of a layer. The recogniser has seen normal distributions around 0. */
static void put_initial(zp_fsdp2 *f) {
  zp_buf rows = zp_buf_new(f->e->arena);
  for (int row = 0; row < N_PARAMETERS; row++)
    if (parameters[row].matrix)
      zp_buf_printf(&rows, "%s\n    \"%s\": %s", rows.len ? "," : "", parameters[row].name,
                    zp_export_number(f->e->arena, find(f->e->spec->model, parameters[row].name)->init_b));
  zp_fsdp2_put_words(f, "INITIAL_STD", zp_format(f->e->arena, "{%s}", rows.data));
}

bool zp_fsdp2_model(zp_fsdp2 *f) {
  zp_exporter *e = f->e;
  const char *reason = NULL;
  zp_span span = ZP_NO_SPAN;
  f->gpt = zp_gpt_recognise(e->arena, e->spec->model, &reason, &span);
  if (f->gpt) reason = foreign(e->arena, f->gpt);
  if (f->gpt && !reason) reason = unknown_parameter(e->arena, e->spec->model, &span);
  if (reason) {
    zp_export_refusal refusal = {.of_model = true, .span = span};
    refusal.reason =
        zp_format(e->arena, "`%s` is not GPT-2, the model of the script: %s", e->spec->model->name, reason);
    zp_push(e->arena, &e->result->refusals, refusal);
    return false;
  }
  put_sizes(f);
  put_initial(f);
  return true;
}
