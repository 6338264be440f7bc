/* Adapters of the parameters that hold all experts: of a folder of PEFT into those of the model. */
#include "peft_read.h"

#include <math.h>
#include <stdlib.h>
#include <zplan/buf.h>

/* ---- rank_pattern, alpha_pattern, target_parameters ---- */

/* Keys of patterns are regular expressions of what names end with. ".*\.gate_up_proj" -> "gate_up_proj". NULL: more than
 * dots and that beginning. */
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
        return zp_peft_refuse_folder(r, zp_format(r->arena, "`%s` asks for %s that differ, of `%.60s`", fields[i][0],
                                                  fields[i][1], key));
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
    const char *note = zp_format(r->arena, "parts of `%s` share an adapter's a in %s, and are trained apart here", target,
                                 r->folder->path);
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
    const char *now = zp_hf_module_now(r->arena, r->map->imported, r->modules.data[i].name);
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

static void add_a(zp_peft_reader *r, zp_mapped_tensor *tensor, const zp_peft_param *p, const zp_peft_part *part,
                  int64_t expert) {
  const zp_merge *x = part->module->adapter;
  zp_weight_part to = {.ours = x->a, .param = x->a, .n = 2, .extents = {x->rank, x->in}, .strides = {x->in, 1}};
  if (!x->trans) to.extents[0] = x->in, to.extents[1] = x->rank, to.strides[0] = 1, to.strides[1] = x->in;
  to.begin = expert * x->rank * x->in;
  to.from = (expert * p->rank + part->rank_at) * x->in;
  zp_push(r->arena, &tensor->parts, to);
}

/* Rows [first, first + n) of the part, which follow each other in ours. */
static void add_rows(zp_peft_reader *r, zp_mapped_tensor *tensor, const zp_peft_param *p, int index, int64_t expert,
                     int64_t first, int64_t n) {
  const zp_peft_part *part = &p->part[index];
  const zp_merge *x = part->module->adapter;
  int64_t row = part->module->row[first], columns = p->rank * p->experts;
  zp_weight_part to = {.ours = x->b, .param = x->b, .n = 2, .extents = {n, x->rank}};
  to.strides[0] = columns, to.strides[1] = p->experts;
  to.begin = (expert * x->out + row) * x->rank;
  to.from = (index * p->rows + first) * columns + part->rank_at * p->experts + expert;
  if (x->trans) zp_push(r->arena, &tensor->parts, to);
  to.n = 1;
  for (int64_t k = 0; !x->trans && k < x->rank; k++, to.from += p->experts) {
    to.begin = (expert * x->rank + k) * x->out + row;
    zp_push(r->arena, &tensor->parts, to);
  }
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
      const zp_peft_part *part = &p->part[i / p->rows];
      int64_t rank = k / p->experts - part->rank_at;
      if (part->module && rank >= 0 && rank < part->module->adapter->rank) continue;
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
                   b = {.rank = 2, .shape = {p->parts * p->rows, ranks}, .of_peft = true};
  a.name = zp_peft_with_prefix(r, zp_peft_param_tensor(r->arena, p, 'A'));
  b.name = zp_peft_with_prefix(r, zp_peft_param_tensor(r->arena, p, 'B'));
  for (int i = 0; i < p->parts; i++) {
    const zp_peft_module *m = p->part[i].module;
    bool again = i > 0 && m && p->part[0].module && p->part[0].module->adapter == m->adapter; /* one a here, too */
    for (int64_t e = 0; m && e < p->experts; e++) {
      if (!again) add_a(r, &a, p, &p->part[i], e);
      for (int64_t k = 0, n; k < m->out; k += n) {
        for (n = 1; k + n < m->out && m->row[k + n] == m->row[k] + n;) n++;
        add_rows(r, &b, p, i, e, k, n);
      }
    }
  }
  check_zeros(r, p, &b);
  zp_push(r->arena, &r->map->tensors, a);
  zp_push(r->arena, &r->map->tensors, b);
}

void zp_peft_add_params(zp_peft_reader *r) {
  for (int i = 0; i < r->params.len; i++) add_param(r, &r->params.data[i]);
}
