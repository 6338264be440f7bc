/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of the parameters that hold all experts: of a folder of PEFT into those of the model. */
#include "peft_read.h"

#include <math.h>
#include <stdlib.h>
#include <zplan/buf.h>

/* ---- rank_pattern, alpha_pattern, target_parameters ---- */

/* Keys of patterns are regular expressions of what names end with. ".*\.gate_up_proj" -> "gate_up_proj". NULL: more
 * than dots and that beginning. */
static const char *name_of_key(zp_arena *arena, const char *key) {
  static const char any[] = ".*\\.";
  if (strncmp(key, any, sizeof any - 1) == 0) key += sizeof any - 1;
  zp_buf name = {.arena = arena};
  for (; *key; key++) {
    if (key[0] == '\\' && key[1] == '.') key++;
    if (strchr("\\*+?()[]{}|^$", *key)) return NULL;
    zp_buf_printf(&name, "%c", *key);
  }
  return name.len > 0 ? name.data : NULL;
}

static bool is_of_params(zp_peft_reader *r, const char *key) {
  const char *name = name_of_key(r->arena, key);
  bool any = false;
  for (int i = 0; name && i < r->params.len; i++) any |= zp_peft_targets(name, r->params.data[i].name);
  for (int i = 0; any && i < r->modules.len; i++) any = !zp_peft_targets(name, r->modules.data[i].name);
  return any;
}

bool zp_peft_check_patterns(zp_peft_reader *r) {
  static const char *const fields[][2] = {{"rank_pattern", "ranks"}, {"alpha_pattern", "alphas"}};
  for (int i = 0; i < 2; i++) {
    const zp_json *patterns = zp_json_get(r->config, fields[i][0]);
    for (int k = 0; zp_json_is_object(patterns) && zp_json_key(patterns, k); k++) {
      const char *key = zp_json_key(patterns, k);
      if (!is_of_params(r, key))
        return zp_peft_refuse_folder(
            r, zp_format(r->arena, "`%s` asks for %s that differ, of `%.60s`", fields[i][0], fields[i][1], key));
      if (isnan(zp_json_real(zp_json_get(patterns, key), NAN)))
        return zp_peft_refuse_folder(r, zp_format(r->arena, "`%.60s` of `%s` is no number", key, fields[i][0]));
    }
  }
  return true;
}

static double pattern(zp_peft_reader *r, const char *field, const char *name, double otherwise) {
  const zp_json *patterns = zp_json_get(r->config, field);
  for (int k = 0; zp_json_is_object(patterns) && zp_json_key(patterns, k); k++) {
    const char *key = zp_json_key(patterns, k);
    if (zp_peft_targets(name_of_key(r->arena, key), name)) return zp_json_get_real(patterns, key, otherwise);
  }
  return otherwise;
}

static void compare_param(zp_peft_reader *r, zp_peft_param *p) {
  const zp_adapt *adapt = &r->spec->train.adapt;
  const char *target = zp_peft_target_of(p->name);
  if (!zp_peft_names(r, "target_parameters", p->name))
    zp_peft_differs(r, "another target: `target_parameters` does not name `%s`, which has an adapter here", target);
  double own = (double)zp_json_get_int(r->config, "r", ZP_PEFT_DEFAULT);
  double alpha = zp_json_get_real(r->config, "lora_alpha", ZP_PEFT_DEFAULT);
  double rank = pattern(r, "rank_pattern", p->name, own);
  bool shared = rank == (double)adapt->rank && rank != (double)p->rank && zp_peft_share(p);
  if (shared) {
    const char *note = zp_format(r->arena, "parts of `%s` share an adapter's a in %s, and are trained apart here",
                                 target, r->folder->path);
    bool known = r->notes->len > 0 && strcmp(r->notes->data[r->notes->len - 1], note) == 0;
    if (!known) zp_push(r->arena, r->notes, note);
  }
  if (rank != (double)p->rank) {
    zp_peft_differs(r, "another rank: that of `%s` is %g, and %lld here", target, rank, (long long)p->rank);
    return;
  }
  alpha = pattern(r, "alpha_pattern", p->name, alpha);
  double want = zp_peft_alpha(adapt, p->rank);
  if (fabs(alpha - want) > 1e-11 * want)
    zp_peft_differs(r, "another scale: `lora_alpha` of `%s` is %g, and that of rank %lld would be %g", target, alpha,
                    (long long)p->rank, want);
}

/* A parameter may be all that a module has: a router's weight. */
static bool has_adapter(zp_peft_reader *r, const char *target) {
  for (int i = 0; i < r->params.len; i++)
    if (zp_peft_targets(target, r->params.data[i].name)) return true;
  for (int i = 0; i < r->modules.len; i++) {
    const char *now = zp_hf_name_now(r->arena, r->map->imported, r->modules.data[i].name);
    if (zp_peft_targets(target, zp_format(r->arena, "%s.weight", now))) return true;
  }
  return false;
}

void zp_peft_compare_params(zp_peft_reader *r) {
  const zp_json *targets = zp_json_get(r->config, "target_parameters");
  for (int i = 0; zp_json_is_array(targets) && i < zp_json_count(targets); i++) {
    const char *target = zp_json_string(zp_json_at(targets, i), "");
    if (!has_adapter(r, target))
      zp_peft_differs(r, "another target: `target_parameters` names `%.60s`, which has no adapter here", target);
  }
  for (int i = 0; i < r->params.len; i++) compare_param(r, &r->params.data[i]);
}

/* ---- adapter_model.safetensors ---- */

/* [experts, rank, in] and [experts, out, rank] here. */
static void add_part(zp_peft_reader *r, const zp_peft_param *p, int index, zp_mapped_tensor *to_a,
                     zp_mapped_tensor *to_b) {
  const zp_merge *x = p->part[index].adapter;
  int64_t columns = p->rank * p->experts, at = p->part[index].rank_at;
  zp_weight_part a = {.ours = x->a, .param = x->a, .n = 2, .from = at * x->in};
  a.extents[0] = p->experts, a.strides[0] = p->rank * x->in;
  a.extents[1] = x->rank * x->in, a.strides[1] = 1;
  zp_weight_part b = {.ours = x->b, .param = x->b, .n = 3, .from = index * p->out * columns + at * p->experts};
  b.extents[0] = p->experts, b.strides[0] = 1;
  b.extents[1] = x->out, b.strides[1] = columns;
  b.extents[2] = x->rank, b.strides[2] = p->experts;
  zp_push(r->arena, &to_a->parts, a);
  zp_push(r->arena, &to_b->parts, b);
}

/* Where no adapter of ours is, b adds nothing there. */
static void check_zeros(zp_peft_reader *r, const zp_peft_param *p, const zp_mapped_tensor *tensor) {
  const zp_weight_tensor *found = zp_weights_find(r->folder, tensor->name);
  bool fits = found && found->rank == 2 && found->shape[0] == tensor->shape[0] && found->shape[1] == tensor->shape[1];
  if (!fits || zp_weight_dtype_bytes(found->dtype) == 0) return; /* told elsewhere */
  double *values = zp_weights_read_all(r->diags, r->folder, found);
  bool good = true;
  for (int64_t i = 0; values && good && i < tensor->shape[0]; i++)
    for (int64_t k = 0; good && k < tensor->shape[1]; k++) {
      const zp_peft_part *part = &p->part[i / p->out];
      int64_t rank = k / p->experts - part->rank_at;
      if (part->adapter && rank >= 0 && rank < part->adapter->rank) continue;
      double value = values[i * tensor->shape[1] + k];
      good = value == 0;
      if (!good)
        zp_peft_differs(r, "another adapter: row %lld of %s has %g in column %lld, where the adapters here add nothing",
                        (long long)i, tensor->name, value, (long long)k);
    }
  free(values);
}

static void add_param(zp_peft_reader *r, const zp_peft_param *p) {
  int64_t ranks = p->rank * p->experts;
  zp_mapped_tensor a = {.rank = 2, .shape = {ranks, p->in}, .of_peft = true},
                   b = {.rank = 2, .shape = {p->parts * p->out, ranks}, .of_peft = true};
  a.name = zp_peft_with_prefix(r, zp_peft_param_tensor(r->arena, p, 'A'));
  b.name = zp_peft_with_prefix(r, zp_peft_param_tensor(r->arena, p, 'B'));
  for (int i = 0; i < p->parts; i++)
    if (p->part[i].adapter) add_part(r, p, i, &a, &b);
  check_zeros(r, p, &b);
  zp_push(r->arena, &r->map->tensors, a);
  zp_push(r->arena, &r->map->tensors, b);
}

void zp_peft_add_params(zp_peft_reader *r) {
  for (int i = 0; i < r->params.len; i++) add_param(r, &r->params.data[i]);
}
