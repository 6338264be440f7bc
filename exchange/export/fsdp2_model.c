/* SPDX-License-Identifier: Apache-2.0 */
/* The model of an exported script: GPT-2 or Llama with the names that zplan's files and checkpoints of these have. */
#include "fsdp2.h"

#define LAYER "h.{}."
#define LLAMA_LAYER "layers.{}."

/* Parameters of the script's modules. Vectors begin as the modules of PyTorch do. */
typedef struct module_row {
  const char *name;
  bool matrix;
  double begins; /* of a vector */
} module_row;

static const module_row gpt2[] = {{"wte", true, 0},
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

static const char of_head[] = "lm_head"; /* of a head that is not tied */
static const module_row llama[] = {{"embed_tokens", true, 0},
                                   {of_head, true, 0},
                                   {LLAMA_LAYER "input_layernorm.weight", false, 1},
                                   {LLAMA_LAYER "self_attn.q_proj.weight", true, 0},
                                   {LLAMA_LAYER "self_attn.k_proj.weight", true, 0},
                                   {LLAMA_LAYER "self_attn.v_proj.weight", true, 0},
                                   {LLAMA_LAYER "self_attn.o_proj.weight", true, 0},
                                   {LLAMA_LAYER "post_attention_layernorm.weight", false, 1},
                                   {LLAMA_LAYER "mlp.gate_proj.weight", true, 0},
                                   {LLAMA_LAYER "mlp.up_proj.weight", true, 0},
                                   {LLAMA_LAYER "mlp.down_proj.weight", true, 0},
                                   {"norm.weight", false, 1}};

/* A model of the script: its modules, what it does not have (NULL: nothing), and constants. */
typedef struct script_model {
  const char *name;
  const module_row *rows;
  int n_rows;
  const char *(*foreign)(zp_arena *arena, const zp_gpt *gpt);
  void (*put)(zp_fsdp2 *f); /* constants that the other has not */
} script_model;

static const char *foreign_to_gpt2(zp_arena *arena, const zp_gpt *gpt) {
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

static const char *foreign_to_llama(zp_arena *arena, const zp_gpt *gpt) {
  if (!gpt->rope) return "learned positions";
  if (gpt->rope_interleaved) return "rotary positions that turn neighbouring columns";
  if (gpt->activation != ZP_GPT_SWIGLU) return "an MLP without a gate";
  if (gpt->dropout > 0 || gpt->attention_dropout > 0)
    return zp_format(arena, "dropout %g, of attention %g", gpt->dropout, gpt->attention_dropout);
  return NULL;
}

static void put_gpt2(zp_fsdp2 *f) {
  static const char *const activations[] = {
      [ZP_GPT_GELU_TANH] = "gelu_tanh", [ZP_GPT_GELU_ERF] = "gelu", [ZP_GPT_RELU] = "relu"};
  const zp_gpt *gpt = f->gpt;
  zp_fsdp2_put_int(f, "POSITIONS", gpt->positions);
  zp_fsdp2_put_text(f, "ACTIVATION", activations[gpt->activation]);
  zp_fsdp2_put_real(f, "DROPOUT", gpt->dropout);
  zp_fsdp2_put_real(f, "ATTENTION_DROPOUT", gpt->attention_dropout);
  if (gpt->dropout > 0 || gpt->attention_dropout > 0)
    zp_export_note(f->e, "dropout draws PyTorch's random numbers, not zplan's");
}

static void put_llama(zp_fsdp2 *f) {
  zp_fsdp2_put_int(f, "KV_HEADS", f->gpt->kv_heads);
  zp_fsdp2_put_int(f, "HEAD_WIDTH", f->gpt->head_size);
  zp_fsdp2_put_real(f, "THETA", f->gpt->theta);
  zp_fsdp2_put_flag(f, "TIED", f->gpt->tied);
}

static const script_model models[] = {{"GPT-2", gpt2, sizeof gpt2 / sizeof *gpt2, foreign_to_gpt2, put_gpt2},
                                      {"Llama", llama, sizeof llama / sizeof *llama, foreign_to_llama, put_llama}};

static const script_model *model_of(const zp_gpt *gpt) { return &models[zp_fsdp2_is_llama(gpt)]; }

static const char *foreign(zp_arena *arena, const zp_gpt *gpt) {
  if (gpt->experts > 0) return "experts in place of the MLP";
  if (gpt->documents) return "attention within documents";
  return model_of(gpt)->foreign(arena, gpt);
}

/* Does the model lack it by its own kind? */
static bool is_left_out(const zp_gpt *gpt, const module_row *row) { return gpt->tied && row->name == of_head; }

static const zp_param *find(const zp_model *model, const char *name) {
  for (int i = 0; i < model->params.len; i++)
    if (strcmp(model->params.data[i].name, name) == 0) return &model->params.data[i];
  return NULL;
}

/* The first parameter that the script's modules lack or have otherwise; NULL: none. */
static const char *unknown_parameter(zp_arena *arena, const zp_model *model, const zp_gpt *gpt, zp_span *span) {
  const script_model *m = model_of(gpt);
  for (int i = 0; i < model->params.len; i++) {
    const zp_param *p = &model->params.data[i];
    int row = 0;
    while (row < m->n_rows && strcmp(m->rows[row].name, p->name) != 0) row++;
    *span = p->span;
    if (row == m->n_rows) return zp_format(arena, "%s has no parameter `%s`", m->name, p->name);
    if (!m->rows[row].matrix && (p->init != ZP_INIT_CONSTANT || p->init_a != m->rows[row].begins))
      return zp_format(arena, "`%s` does not begin as %g", p->name, m->rows[row].begins);
  }
  *span = ZP_NO_SPAN;
  for (int row = 0; row < m->n_rows; row++)
    if (!is_left_out(gpt, &m->rows[row]) && !find(model, m->rows[row].name))
      return zp_format(arena, "it has no parameter `%s`, which %s has", m->rows[row].name, m->name);
  return NULL;
}

static void put_sizes(zp_fsdp2 *f) {
  const zp_gpt *gpt = f->gpt;
  zp_fsdp2_put_int(f, "VOCABULARY", gpt->vocabulary);
  zp_fsdp2_put_int(f, "SEQUENCE", gpt->sequence);
  zp_fsdp2_put_int(f, "LAYERS", gpt->layers);
  zp_fsdp2_put_int(f, "WIDTH", gpt->hidden);
  zp_fsdp2_put_int(f, "HEADS", gpt->heads);
  zp_fsdp2_put_int(f, "MLP_WIDTH", gpt->ff);
  zp_fsdp2_put_real(f, "NORM_EPS", gpt->norm_eps);
  model_of(gpt)->put(f);
}

/* {} stands for the number of a layer. The recogniser has seen normal distributions around 0. */
static void put_initial(zp_fsdp2 *f) {
  zp_buf rows = zp_buf_new(f->e->arena);
  const script_model *m = model_of(f->gpt);
  for (int row = 0; row < m->n_rows; row++)
    if (m->rows[row].matrix && !is_left_out(f->gpt, &m->rows[row]))
      zp_buf_printf(&rows, "%s\n    \"%s\": %s", rows.len ? "," : "", m->rows[row].name,
                    zp_export_number(f->e->arena, find(f->e->spec->model, m->rows[row].name)->init_b));
  zp_fsdp2_put_words(f, "INITIAL_STD", zp_format(f->e->arena, "{%s}", rows.data));
}

bool zp_fsdp2_model(zp_fsdp2 *f) {
  zp_exporter *e = f->e;
  const char *reason = NULL, *which = "neither GPT-2 nor Llama, the models of the script";
  zp_span span = ZP_NO_SPAN;
  f->gpt = zp_gpt_recognise(e->arena, e->spec->model, &reason, &span);
  if (f->gpt) which = zp_format(e->arena, "not %s as in the script", model_of(f->gpt)->name);
  if (f->gpt) reason = foreign(e->arena, f->gpt);
  if (f->gpt && !reason) reason = unknown_parameter(e->arena, e->spec->model, f->gpt, &span);
  if (reason) {
    zp_export_refusal refusal = {.of_model = true, .span = span};
    refusal.reason = zp_format(e->arena, "`%s` is %s: %s", e->spec->model->name, which, reason);
    zp_push(e->arena, &e->result->refusals, refusal);
    return false;
  }
  put_sizes(f);
  put_initial(f);
  return true;
}
