/* SPDX-License-Identifier: Apache-2.0 */
/* Which modules of theirs have an adapter of ours, and which rows of it.
 *
 * A module of theirs may be some rows of a weight of ours (q, k and v fused here and apart there): then it has our a
 * whole, and its rows of b. Several weights of ours in one of theirs have adapters of their own, of which no single
 * pair is the sum: refused. */
#include "weights_internal.h"

#include <assert.h>

static bool refuse(zp_diags *diags, const zp_spec *spec, const char *tensor, const char *why) {
  zp_diag *d =
      zp_report(diags, ZP_Z0682, spec->train.adapt.span, "PEFT has no adapter like that of `%s`: %s", tensor, why);
  zp_diag_help(d, "`zplan export hf` writes the model with its adapters added to its weights");
  return false;
}

/* Are elements (i, o) of our weight elements (i, row) of theirs, all of one row together? Fills in m->row. */
static bool find_rows(zp_peft_module *m, const zp_weight_part *part, const int64_t shape[2], bool fan_in) {
  const zp_merge *x = m->adapter;
  int64_t index[ZP_WEIGHT_DIMS] = {0}, place = part->from, count = 1;
  for (int k = 0; k < part->n; k++) count *= part->extents[k];
  for (int64_t i = 0; i < count; i++) {
    int64_t e = part->begin + i, cols = x->trans ? x->in : x->out;
    int64_t in = x->trans ? e % cols : e / cols, out = x->trans ? e / cols : e % cols;
    int64_t their_in = fan_in ? place / shape[1] : place % shape[1], row = fan_in ? place % shape[1] : place / shape[1];
    if (their_in != in || (m->row[row] >= 0 && m->row[row] != out)) return false;
    m->row[row] = out;
    for (int k = part->n - 1; k >= 0; k--) {
      place += part->strides[k];
      if (++index[k] < part->extents[k]) break;
      place -= part->strides[k] * part->extents[k];
      index[k] = 0;
    }
  }
  return true;
}

static bool find_module_rows(zp_arena *arena, zp_peft_module *m, const zp_mapped_tensor *t, bool fan_in) {
  m->fan_in = fan_in;
  m->out = t->shape[fan_in ? 1 : 0];
  m->row = ZP_NEW_ARRAY(arena, int64_t, m->out);
  for (int64_t i = 0; i < m->out; i++) m->row[i] = -1;
  if (t->shape[fan_in ? 0 : 1] != m->adapter->in) return false;
  for (int i = 0; i < t->parts.len; i++)
    if (!find_rows(m, &t->parts.data[i], t->shape, fan_in)) return false;
  for (int64_t i = 0; i < m->out; i++)
    if (m->row[i] < 0) return false;
  return true;
}

/* The embedding's table is [in, out], with tokens for inputs. */
static bool find_all_rows(zp_arena *arena, zp_peft_module *m, const zp_mapped_tensor *t) {
  if (!m->adapter->lookup) return find_module_rows(arena, m, t, false) || find_module_rows(arena, m, t, true);
  bool good = find_module_rows(arena, m, t, true);
  m->fan_in = false;
  return good;
}

/* Matrices of experts are matched as they are, [out, in] here and there: millions of elements, of which none is looked
 * at. Modules of equal height share their rows. */
static void take_rows(zp_arena *arena, const zp_peft_modules *before, zp_peft_module *m) {
  assert(m->adapter->trans);
  m->out = m->adapter->out;
  for (int i = before->len - 1; i >= 0 && !m->row; i--)
    if (before->data[i].adapter->experts && before->data[i].out == m->out) m->row = before->data[i].row;
  if (m->row) return;
  m->row = ZP_NEW_ARRAY(arena, int64_t, m->out);
  for (int64_t i = 0; i < m->out; i++) m->row[i] = i;
}

/* NULL, or why not. The tensor has no adapter: *m stays as it was. */
static const char *read_module(zp_arena *arena, const zp_merges *adapters, const zp_mapped_tensor *t,
                               const zp_peft_modules *before, zp_peft_module *m) {
  static const char tail[] = ".weight";
  size_t len = strlen(t->name), n = sizeof tail - 1;
  const zp_merge *adapter = NULL;
  for (int i = 0; i < t->parts.len; i++) {
    const zp_merge *x = zp_merge_of(adapters, t->parts.data[i].ours);
    if (i > 0 && x != adapter) return "it is made of several weights here";
    adapter = x;
  }
  if (!adapter) return NULL;
  if (t->rank != 2 || len <= n || strcmp(t->name + len - n, tail) != 0) return "it is no weight of a linear layer";
  *m = (zp_peft_module){.name = zp_strndup(arena, t->name, len - n), .adapter = adapter};
  if (adapter->experts) {
    m->expert = t->parts.data[0].begin / (adapter->in * adapter->out);
    take_rows(arena, before, m);
    return NULL;
  }
  return find_all_rows(arena, m, t) ? NULL : "it is only a part of its inputs";
}

bool zp_peft_modules_of(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const zp_weight_map *map,
                        zp_peft_modules *to) {
  const zp_merges *adapters = zp_merges_of(arena, spec->model);
  for (int i = 0; i < map->tensors.len; i++) {
    zp_peft_module m = {.adapter = NULL};
    const char *why = read_module(arena, adapters, &map->tensors.data[i], to, &m);
    if (why) return refuse(diags, spec, map->tensors.data[i].name, why);
    if (m.adapter) zp_push(arena, to, m);
  }
  const zp_peft_module *first = NULL;
  for (int i = 0; i < to->len; i++) {
    const zp_peft_module *m = &to->data[i];
    if (m->adapter->lookup) continue;
    if (first && m->fan_in != first->fan_in)
      return refuse(diags, spec, m->name, "some weights are stored [in, out] and others [out, in]");
    first = m;
  }
  return true;
}

const char *zp_peft_tensor_name(zp_arena *arena, const zp_peft_module *m, char which) {
  if (m->adapter->lookup) return zp_format(arena, "base_model.model.%s.lora_embedding_%c", m->name, which);
  return zp_format(arena, "base_model.model.%s.lora_%c.weight", m->name, which);
}

const char *zp_peft_target_of(const char *name) {
  const char *rest = name;
  for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
    size_t digits = strspn(dot + 1, "0123456789");
    if (digits > 0 && dot[1 + digits] == '.') rest = dot + 2 + digits;
  }
  return rest;
}

bool zp_peft_targets(const char *target, const char *module) {
  size_t n = strlen(target), len = strlen(module);
  if (n > len || strcmp(module + len - n, target) != 0) return false;
  return n == len || module[len - n - 1] == '.';
}
