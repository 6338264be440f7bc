/* SPDX-License-Identifier: Apache-2.0 */
/* How parameters of an imported model stand in the checkpoints of its family, by the family's table of names: the names
 * of tensors, and their order. */
#include "hf.h"

#include <assert.h>
#include <stdlib.h>

const char *zp_hf_prefix(const zp_imported *imported) { return imported->model->family->prefix; }

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

/* Every head has its query, key and value together. */
static zp_hf_part by_head(const char *name, const hf_model *m, const zp_hf_param *p) {
  zp_hf_part part = plain(name, p);
  int64_t columns = p->rank == 2 ? p->shape[1] : 1, heads = hf_int(m, "heads"), size = hf_int(m, "head_size");
  int64_t head = size * columns;
  part.n = 4;
  part.extents[0] = 3, part.strides[0] = head;
  part.extents[1] = heads, part.strides[1] = 3 * head;
  part.extents[2] = size, part.strides[2] = columns;
  part.extents[3] = columns, part.strides[3] = 1;
  return part;
}

/* [1, n, d]: for all samples. */
static zp_hf_part shared(const char *name, const zp_hf_param *p) {
  zp_hf_part part = plain(name, p);
  assert(p->rank == 2);
  part.rank = 3;
  part.shape[2] = part.shape[1], part.shape[1] = part.shape[0], part.shape[0] = 1;
  return part;
}

/* [out, channels, side, side] */
static zp_hf_part windows(const char *name, const hf_model *m, const zp_hf_param *p) {
  zp_hf_part part = plain(name, p);
  part.rank = 4;
  part.shape[1] = hf_int(m, "channels"), part.shape[2] = part.shape[3] = hf_int(m, "patch");
  return part;
}

/* [experts, out, in]: a matrix of one expert. */
static zp_hf_part of_expert(const char *name, const zp_hf_param *p, int64_t expert) {
  assert(p->rank == 3);
  zp_hf_part part = plain(name, &(zp_hf_param){.rank = 2, .shape = {p->shape[1], p->shape[2]}});
  part.begin = expert * p->shape[1] * p->shape[2];
  return part;
}

/* Does the pattern "layers.{}.mlp" begin the name "layers.3.mlp.weight"? What is after it, ".weight"; NULL: no. Its
 * numbers are i and j of the scope. */
static const char *behind_pattern(const char *pattern, const char *name, hf_scope *scope) {
  static const char digits[] = "0123456789";
  int64_t *const numbers[] = {&scope->i, &scope->j};
  for (int n = 0; *pattern;) {
    if (strncmp(pattern, "{}", 2) != 0) {
      if (*pattern++ != *name++) return NULL;
      continue;
    }
    size_t count = strspn(name, digits);
    assert(n < 2);
    if (count == 0) return NULL;
    *numbers[n++] = strtoll(name, NULL, 10);
    pattern += 2, name += count;
  }
  return !*name || *name == '.' ? name : NULL;
}

zp_hf_parts zp_hf_parts_of(zp_arena *arena, const zp_imported *imported, const zp_hf_param *p) {
  const hf_model *m = imported->model;
  hf_scope scope = {.arena = arena, .model = m};
  zp_hf_parts parts = {0};
  const hf_name *row = m->family->names;
  const char *rest = NULL;
  while (row->ours && (!hf_holds(&scope, row->when) || !(rest = behind_pattern(row->ours, p->name, &scope)))) row++;
  assert(row->ours && "a parameter of the import has no name in checkpoints");
  int64_t n = row->layout == HF_EXPERTS ? p->shape[0] : 1;
  for (scope.expert = 0; scope.expert < n; scope.expert++) {
    const char *name = zp_format(arena, "%s%s", hf_fill_in(&scope, row->theirs), rest);
    zp_hf_part part;
    switch (row->layout) {
    case HF_PLAIN: part = plain(name, p); break;
    case HF_TRANSPOSED: part = transposed(name, p); break;
    case HF_BY_HEAD: part = by_head(name, m, p); break;
    case HF_EXPERTS: part = of_expert(name, p, scope.expert); break;
    case HF_SHARED: part = shared(name, p); break;
    case HF_WINDOWS: part = windows(name, m, p); break;
    }
    zp_push(arena, &parts, part);
  }
  return parts;
}

static const char block_of_experts[] = ".block_sparse_moe";

const char *zp_hf_name_now(zp_arena *arena, const zp_imported *imported, const char *name) {
  const char *at = hf_int(imported->model, "experts") ? strstr(name, block_of_experts) : NULL;
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
  const char *at = hf_int(imported->model, "experts") ? strstr(tensor, experts) : NULL;
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

/* The row that makes a tensor another name of one that there is; NULL: it is none. */
static const hf_tie *tie_of(const zp_imported *imported, const char *name) {
  const hf_tie *ties = imported->model->family->ties;
  for (int i = 0; ties[i].name; i++)
    if (imported->model->tied[i] && ends_with(name, ties[i].name)) return &ties[i];
  return NULL;
}

bool zp_hf_is_tied_copy(const zp_imported *imported, const char *name) { return tie_of(imported, name) != NULL; }

const char *zp_hf_tied_to(const zp_imported *imported, const char *name) {
  const hf_tie *tie = tie_of(imported, name);
  return tie ? tie->of : NULL;
}

bool zp_hf_is_tied_table(const zp_imported *imported, const char *name) {
  for (const hf_tie *tie = imported->model->family->ties; tie->name; tie++)
    if (tie->is_head && strcmp(tie->of, name) == 0 && zp_hf_is_tied_copy(imported, tie->name)) return true;
  return false;
}

const char *zp_hf_old_name(zp_arena *arena, const zp_imported *imported, const char *name) {
  for (const hf_name *row = imported->model->family->old_names; row && row->ours; row++)
    if (ends_with(name, row->ours))
      return zp_format(arena, "%.*s%s", (int)(strlen(name) - strlen(row->ours)), name, row->theirs);
  return NULL;
}
