/* How parameters of an imported model stand in the checkpoints of its family: the names of tensors, and their order.
 *
 * Imported models name their parameters as the checkpoints do, but for what the language writes otherwise: tables
 * without ".weight", one parameter for the matrices of all experts. */
#include "hf.h"

#include <assert.h>
#include <stdlib.h>

/* What stands in front of all tensors but the head's in a checkpoint of a model with a head, and of none without. */
static const char *const prefixes[] = {[HF_GPT2] = "transformer.", [HF_NEOX] = "gpt_neox.", [HF_LLAMA] = "model.",
                                       [HF_DEEPSEEK] = "model.",   [HF_BERT] = "bert.",     [HF_T5] = "",
                                       [HF_VIT] = "vit.",          [HF_GEMMA] = "model."};

const char *zp_hf_prefix(const zp_imported *imported) { return prefixes[imported->model->layers_are]; }

static bool ends_with(const char *name, const char *ending) {
  size_t n = strlen(name), k = strlen(ending);
  return n >= k && strcmp(name + n - k, ending) == 0;
}

static bool is_one_of(const char *name, const char *const *endings) {
  for (; *endings; endings++)
    if (ends_with(name, *endings)) return true;
  return false;
}

bool zp_hf_is_buffer(const char *name) {
  static const char *const endings[] = {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
                                        ".rotary_emb.inv_freq", "embeddings.position_ids",
                                        /* The first checkpoints of T5 have it, and nothing reads it. */
                                        ".EncDecAttention.relative_attention_bias.weight", NULL};
  return is_one_of(name, endings);
}

bool zp_hf_is_position_table(const char *name) {
  static const char *const endings[] = {"wpe.weight", "position_embeddings.weight", NULL};
  return is_one_of(name, endings);
}

/* GPT-2 has its matrices as [in, out] (Conv1D). */
static bool is_transposed(const hf_model *m, const char *name) {
  static const char *const endings[] = {".c_attn.weight", ".c_proj.weight", ".c_fc.weight", NULL};
  return m->layers_are == HF_GPT2 && is_one_of(name, endings);
}

/* Rows of all queries, then keys, then values here; of every head its query, key and value there, and here where a
 * part of a head turns. */
static bool is_by_head(const hf_model *m, const char *name) {
  return m->layers_are == HF_NEOX && !m->rotary && strstr(name, ".query_key_value.") != NULL;
}

static zp_hf_part plain(const char *name, const zp_hf_param *p) {
  zp_hf_part part = {.name = name, .rank = p->rank, .n = p->rank};
  int64_t stride = 1;
  for (int k = p->rank - 1; k >= 0; stride *= p->shape[k--]) {
    part.shape[k] = part.extents[k] = p->shape[k];
    part.strides[k] = stride;
  }
  return part;
}

static zp_hf_part transposed(const char *name, const zp_hf_param *p) {
  assert(p->rank == 2);
  int64_t out = p->shape[0], in = p->shape[1];
  return (zp_hf_part){.name = name, .rank = 2, .shape = {in, out}, .n = 2, .extents = {out, in}, .strides = {1, out}};
}

static zp_hf_part by_head(const char *name, const hf_model *m, const zp_hf_param *p) {
  zp_hf_part part = plain(name, p);
  int64_t columns = p->rank == 2 ? p->shape[1] : 1, head = m->head_size * columns;
  part.n = 4;
  part.extents[0] = 3, part.strides[0] = head;
  part.extents[1] = m->heads, part.strides[1] = 3 * head;
  part.extents[2] = m->head_size, part.strides[2] = columns;
  part.extents[3] = columns, part.strides[3] = 1;
  return part;
}

/* "layers.3.block_sparse_moe.w1" [experts, ff, d]: one tensor an expert. */
static void push_experts(zp_arena *arena, zp_hf_parts *parts, const char *name, const zp_hf_param *p) {
  const char *dot = strrchr(name, '.');
  zp_hf_param one = {.rank = 2, .shape = {p->shape[1], p->shape[2]}};
  for (int64_t e = 0; e < p->shape[0]; e++) {
    zp_hf_part part =
        plain(zp_format(arena, "%.*s.experts.%lld.%s.weight", (int)(dot - name), name, (long long)e, dot + 1), &one);
    part.begin = e * one.shape[0] * one.shape[1];
    zp_push(arena, parts, part);
  }
}

static const char block_of_experts[] = ".block_sparse_moe";

const char *zp_hf_name_now(zp_arena *arena, const zp_imported *imported, const char *name) {
  const char *at = imported->model->experts ? strstr(name, block_of_experts) : NULL;
  if (!at) return name;
  return zp_format(arena, "%.*s.mlp%s", (int)(at - name), name, at + sizeof block_of_experts - 1);
}

bool zp_hf_expert_of(zp_arena *arena, const zp_imported *imported, const char *tensor, zp_hf_expert *to) {
  static const char experts[] = ".experts.";
  static const struct {
    const char *name, *param;
    int place, part, parts;
  } rows[] = {{"w1", "gate_up_proj", 0, 0, 2},      {"w3", "gate_up_proj", 0, 1, 2},
              {"w2", "down_proj", 1, 0, 1},         {"gate_proj", "gate_up_proj", 0, 0, 2},
              {"up_proj", "gate_up_proj", 0, 1, 2}, {"down_proj", "down_proj", 1, 0, 1}};
  const char *at = imported->model->experts ? strstr(tensor, experts) : NULL;
  if (!at) return false;
  char *end;
  int64_t expert = strtoll(at + sizeof experts - 1, &end, 10);
  for (size_t i = 0; *end == '.' && i < sizeof rows / sizeof *rows; i++) {
    size_t n = strlen(rows[i].name);
    if (strncmp(end + 1, rows[i].name, n) != 0 || strcmp(end + 1 + n, ".weight") != 0) continue;
    const char *module = zp_strndup(arena, tensor, (size_t)(at - tensor) + strlen(".experts"));
    *to = (zp_hf_expert){.module = zp_hf_name_now(arena, imported, module),
                         .param = rows[i].param,
                         .place = rows[i].place,
                         .expert = expert,
                         .part = rows[i].part,
                         .parts = rows[i].parts};
    return true;
  }
  return false;
}

/* "layer.3.dense.bias" by the row {"layer.{}.dense", "encoder.layer.{}.output.dense"}:
 * "encoder.layer.3.output.dense.bias". NULL: another name. */
static const char *renamed(zp_arena *arena, const hf_name *row, const char *name) {
  static const char digits[] = "0123456789";
  const char *place = strstr(row->ours, "{}"), *number = NULL, *rest = name;
  size_t before = place ? (size_t)(place - row->ours) : strlen(row->ours), n = 0;
  if (strncmp(name, row->ours, before) != 0) return NULL;
  rest += before;
  if (place) {
    number = rest;
    n = strspn(rest, digits);
    rest += n;
    size_t after = strlen(place + 2);
    if (n == 0 || strncmp(rest, place + 2, after) != 0) return NULL;
    rest += after;
  }
  if (*rest && *rest != '.') return NULL;
  const char *to = strstr(row->theirs, "{}");
  if (!to) return zp_format(arena, "%s%s", row->theirs, rest);
  return zp_format(arena, "%.*s%.*s%s%s", (int)(to - row->theirs), row->theirs, (int)n, number, to + 2, rest);
}

static const char *by_table(zp_arena *arena, const hf_name *table, const char *name) {
  for (; table->ours; table++) {
    const char *theirs = renamed(arena, table, name);
    if (theirs) return theirs;
  }
  assert(!"a parameter of the import has no name in checkpoints");
  return name;
}

static const hf_name *table_of(const hf_model *m) {
  switch (m->layers_are) {
  case HF_BERT: return hf_bert_names;
  case HF_T5: return hf_t5_names;
  case HF_VIT: return hf_vit_names;
  default: return NULL;
  }
}

/* "layers.2.mlp.up_proj" -> "layers.5.mlp.up_proj", behind three layers of a repeat of their own. */
static const char *numbered_through(zp_arena *arena, const hf_model *m, const char *name) {
  static const char first[] = "first.", layers[] = "layers.";
  bool in_front = strncmp(name, first, sizeof first - 1) == 0;
  if (!in_front && strncmp(name, layers, sizeof layers - 1) != 0) return name;
  char *rest;
  int64_t number = strtoll(name + (in_front ? sizeof first : sizeof layers) - 1, &rest, 10);
  return zp_format(arena, "layers.%lld%s", (long long)(in_front ? number : number + m->full_layers), rest);
}

zp_hf_parts zp_hf_parts_of(zp_arena *arena, const zp_imported *imported, const zp_hf_param *p) {
  const hf_model *m = imported->model;
  zp_hf_parts parts = {0};
  const char *name = p->name, *head = m->layers_are == HF_NEOX ? "embed_out" : "lm_head";
  if (table_of(m)) {
    zp_hf_part part = plain(by_table(arena, table_of(m), name), p);
    if (m->layers_are == HF_VIT) hf_shape_of_vit(m, &part);
    zp_push(arena, &parts, part);
    return parts;
  }
  if (m->layers_are == HF_GEMMA) {
    zp_push(arena, &parts, plain(hf_gemma_name(arena, m, name), p));
    return parts;
  }
  if (m->layers_are == HF_DEEPSEEK) name = hf_deepseek_name(arena, m, name);
  if (m->full_layers) name = numbered_through(arena, m, name);
  bool is_head = strcmp(name, head) == 0, is_table = !strchr(name, '.');
  if (p->rank == 3) {
    push_experts(arena, &parts, zp_format(arena, "%s%s", prefixes[m->layers_are], name), p);
    return parts;
  }
  const char *theirs =
      zp_format(arena, "%s%s%s", is_head ? "" : prefixes[m->layers_are], name, is_table ? ".weight" : "");
  zp_hf_part part = is_transposed(m, name) ? transposed(theirs, p)
                    : is_by_head(m, name)  ? by_head(theirs, m, p)
                                           : plain(theirs, p);
  zp_push(arena, &parts, part);
  return parts;
}

/* Where the table of tokens stands that a tied head is, as embeddings have it. */
static const char *table_tensor(const hf_model *m) {
  switch (m->layers_are) {
  case HF_GPT2: return "transformer.wte.weight";
  case HF_NEOX: return "gpt_neox.embed_in.weight";
  case HF_BERT: return "bert.embeddings.word_embeddings.weight";
  case HF_T5: return "shared.weight";
  default: return "model.embed_tokens.weight";
  }
}

bool zp_hf_is_tied_table(const zp_imported *imported, const char *name) {
  static const char *const heads[] = {"cls.predictions.decoder.weight", "embed_out.weight", "lm_head.weight"};
  bool tied = false;
  for (int i = 0; i < 3; i++) tied |= zp_hf_is_tied_copy(imported, heads[i]);
  return tied && strcmp(name, table_tensor(imported->model)) == 0;
}

const char *zp_hf_tied_to(const zp_imported *imported, const char *name) {
  if (!zp_hf_is_tied_copy(imported, name)) return NULL;
  return ends_with(name, "predictions.decoder.bias") ? "cls.predictions.bias" : table_tensor(imported->model);
}

bool zp_hf_is_tied_copy(const zp_imported *imported, const char *name) {
  const hf_model *m = imported->model;
  static const char *const of_bert[] = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", NULL};
  static const char *const of_t5[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", NULL};
  if (m->layers_are == HF_BERT) return m->head != HF_BERT_QUESTIONS && is_one_of(name, of_bert);
  if (m->layers_are == HF_T5 && is_one_of(name, of_t5)) return true;
  /* An unscaled head of T5 is a matrix of its own, whatever config.json says. */
  bool tied = m->layers_are == HF_T5 ? m->head == HF_T5_TIED && m->scaled : m->tied;
  return tied && strcmp(name, m->layers_are == HF_NEOX ? "embed_out.weight" : "lm_head.weight") == 0;
}

const char *zp_hf_old_name(zp_arena *arena, const zp_imported *imported, const char *name) {
  static const char *const rows[][2] = {{"LayerNorm.weight", "gamma"}, {"LayerNorm.bias", "beta"}};
  for (int i = 0; imported->model->layers_are == HF_BERT && i < 2; i++)
    if (ends_with(name, rows[i][0]))
      return zp_format(arena, "%.*s.%s", (int)(strrchr(name, '.') - name), name, rows[i][1]);
  return NULL;
}

int zp_hf_heads(const zp_imported *imported) { return imported->model->n_heads > 1 ? imported->model->n_heads : 1; }
int zp_hf_head(const zp_imported *imported) { return imported->model->head; }

const char *zp_hf_type(const zp_imported *imported) { return imported->model->type; }
