/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of PEFT alongside the base model's: adapter_config.json is compared with `adapt` of the train block, and the
 * tensors of adapter_model.safetensors get their places in the model's adapters. */
#include "peft_read.h"

#include <math.h>
#include <zplan/buf.h>

typedef zp_peft_reader reader;

/* ---- adapter_config.json ---- */

bool zp_peft_refuse_folder(reader *r, const char *why) {
  zp_diag *d = zp_report(r->diags, ZP_Z0692, ZP_NO_SPAN, "the adapters of %s are not read: %s", r->config_path, why);
  zp_diag_help(d, "PEFT adds them to the model's weights, which are read: "
                  "model.merge_and_unload().save_pretrained(\"NEW\")");
  return false;
}

bool zp_peft_names(const reader *r, const char *list, const char *name) {
  const zp_json *targets = zp_json_get(r->config, list);
  for (int i = 0; zp_json_is_array(targets) && i < zp_json_count(targets); i++)
    if (zp_peft_targets(zp_json_string(zp_json_at(targets, i), ""), name)) return true;
  return false;
}

void zp_peft_differs(reader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = zp_vformat(r->arena, format, args);
  va_end(args);
  for (int i = 0; i < r->map->differences.len; i++)
    if (strcmp(r->map->differences.data[i], text) == 0) return;
  zp_push(r->arena, &r->map->differences, text);
}

/* A list names modules by their ends; a text is a regular expression, of which the tensors alone tell what it meant. */
static void compare_targets(reader *r) {
  if (!zp_json_is_array(zp_json_get(r->config, "target_modules"))) return;
  for (int i = 0; i < r->modules.len; i++) {
    const char *name = r->modules.data[i].name, *now = zp_hf_name_now(r->arena, r->map->imported, name);
    if (!zp_peft_names(r, "target_modules", name) && !zp_peft_names(r, "target_modules", now) &&
        !zp_peft_names(r, "target_parameters", zp_format(r->arena, "%s.weight", now)))
      zp_peft_differs(r, "another target: `target_modules` does not name %s, which has an adapter here", name);
  }
}

static void compare_config(reader *r) {
  const zp_adapt *adapt = &r->spec->train.adapt;
  int64_t rank = zp_json_get_int(r->config, "r", ZP_PEFT_DEFAULT);
  double alpha = zp_json_get_real(r->config, "lora_alpha", ZP_PEFT_DEFAULT),
         rate = zp_json_get_real(r->config, "lora_dropout", 0);
  bool by_root = zp_json_get_bool(r->config, "use_rslora", false);
  if (rank != adapt->rank)
    zp_peft_differs(r, "another rank: `r` is %lld, and `rank` %lld here", (long long)rank, (long long)adapt->rank);
  if (fabs(alpha - adapt->alpha) > 1e-11 * adapt->alpha) /* as many digits as JSON files have */
    zp_peft_differs(r, "another scale: `lora_alpha` is %g, and `alpha` %g here", alpha, adapt->alpha);
  if (by_root != adapt->by_root)
    zp_peft_differs(r, "another scale: `use_rslora` is %s, and `rslora` %s here", by_root ? "true" : "false",
                    adapt->by_root ? "true" : "false");
  compare_targets(r);
  zp_peft_compare_params(r);
  /* What is dropped is a matter of this training; PEFT takes fan_in_fan_out from the layer, whatever is written. */
  if (rate != adapt->dropout)
    zp_push(r->arena, r->notes,
            zp_format(r->arena, "adapters are trained with dropout %g here, by %s with %g", adapt->dropout,
                      r->config_path, rate));
  for (int i = 0; i < r->modules.len; i++) {
    bool fan_in = zp_json_get_bool(r->config, "fan_in_fan_out", false);
    if (r->modules.data[i].adapter->lookup || r->modules.data[i].fan_in == fan_in) continue;
    zp_push(r->arena, r->notes,
            zp_format(r->arena, "`fan_in_fan_out` of %s is not that of %s, and is not considered", r->config_path,
                      r->modules.data[i].name));
    break;
  }
}

/* ---- adapter_model.safetensors ---- */

/* Modules of a model that was saved without its head have no prefix. */
const char *zp_peft_with_prefix(const reader *r, const char *name) {
  static const char front[] = "base_model.model.";
  const char *prefix = zp_hf_prefix(r->map->imported), *rest = name + sizeof front - 1;
  size_t n = strlen(prefix);
  if (zp_weights_find(r->folder, name) || strncmp(rest, prefix, n) != 0) return name;
  const char *other = zp_format(r->arena, "%s%s", front, rest + n);
  return zp_weights_find(r->folder, other) ? other : name;
}

/* As it is called now, where the folder has that; else as before. */
static const char *found_name(const reader *r, const char *now, const char *before) {
  const char *name = zp_peft_with_prefix(r, now);
  return zp_weights_find(r->folder, name) ? name : zp_peft_with_prefix(r, before);
}

static const char *name_of(const reader *r, const zp_peft_module *m, char which) {
  zp_peft_module now = *m;
  now.name = zp_hf_name_now(r->arena, r->map->imported, m->name);
  return found_name(r, zp_peft_tensor_name(r->arena, &now, which), zp_peft_tensor_name(r->arena, m, which));
}

static zp_mapped_tensor tensor_of(const reader *r, const zp_peft_module *m, char which, int64_t rows, int64_t cols) {
  return (zp_mapped_tensor){.name = name_of(r, m, which), .rank = 2, .shape = {rows, cols}, .of_peft = true};
}

/* [rank, in] there, of an expert where it is one of many. Modules that are rows of one weight here share its a. */
static void add_a(reader *r, int index) {
  const zp_peft_module *m = &r->modules.data[index];
  const zp_merge *x = m->adapter;
  zp_mapped_tensor tensor = tensor_of(r, m, 'A', x->rank, x->in);
  for (int i = 0; i < index && !tensor.same_as; i++)
    if (r->modules.data[i].adapter == x && r->modules.data[i].expert == m->expert)
      tensor.same_as = name_of(r, &r->modules.data[i], 'A');
  zp_weight_part part = {.ours = x->a, .param = x->a, .n = 2, .extents = {x->rank, x->in}, .strides = {x->in, 1}};
  if (!x->trans) part.extents[0] = x->in, part.extents[1] = x->rank, part.strides[0] = 1, part.strides[1] = x->in;
  part.begin = m->expert * x->rank * x->in;
  if (!tensor.same_as) zp_push(r->arena, &tensor.parts, part);
  zp_push(r->arena, &r->map->tensors, tensor);
}

/* [out, rank] there: rows [first, first + n) are n rows of ours that follow each other, or columns. */
static void add_rows(reader *r, zp_mapped_tensor *tensor, const zp_peft_module *m, int64_t first, int64_t n) {
  const zp_merge *x = m->adapter;
  zp_weight_part part = {.ours = x->b, .param = x->b, .from = first * x->rank};
  if (x->trans) {
    part.begin = (m->expert * x->out + m->row[first]) * x->rank;
    part.n = 1, part.extents[0] = n * x->rank, part.strides[0] = 1;
    zp_push(r->arena, &tensor->parts, part);
    return;
  }
  for (int64_t k = 0; k < x->rank; k++, part.from++) {
    part.begin = (m->expert * x->rank + k) * x->out + m->row[first];
    part.n = 1, part.extents[0] = n, part.strides[0] = x->rank;
    zp_push(r->arena, &tensor->parts, part);
  }
}

static void add_b(reader *r, const zp_peft_module *m) {
  zp_mapped_tensor tensor = tensor_of(r, m, 'B', m->out, m->adapter->rank);
  for (int64_t i = 0, n; i < m->out; i += n) {
    for (n = 1; i + n < m->out && m->row[i + n] == m->row[i] + n;) n++;
    add_rows(r, &tensor, m, i, n);
  }
  zp_push(r->arena, &r->map->tensors, tensor);
}

/* ---- modules that PEFT trained whole ---- */

/* `modules_to_save` names them by what their names end with. */
static bool is_saved(const reader *r, const char *tensor) {
  const zp_json *list = zp_json_get(r->config, "modules_to_save");
  const char *dot = strrchr(tensor, '.');
  if (!zp_json_is_array(list)) return false;
  size_t len = dot ? (size_t)(dot - tensor) : 0;
  for (int i = 0; i < zp_json_count(list); i++) {
    const char *end = zp_json_string(zp_json_at(list, i), "");
    size_t n = strlen(end);
    if (n > 0 && n <= len && strncmp(tensor + len - n, end, n) == 0) return true;
  }
  return false;
}

static bool is_frozen(const reader *r, const zp_mapped_tensor *tensor) {
  const zp_model *model = r->spec->model;
  for (int i = 0; i < tensor->parts.len; i++)
    for (int k = 0; k < model->params.len; k++)
      if (model->params.data[k].frozen && strcmp(model->params.data[k].name, tensor->parts.data[i].param) == 0)
        return true;
  return false;
}

/* Their values take the place of the base model's. */
static bool take_saved(reader *r) {
  const char *prefix = zp_hf_prefix(r->map->imported);
  size_t n = strlen(prefix);
  for (int i = 0; i < r->map->tensors.len; i++) {
    zp_mapped_tensor *t = &r->map->tensors.data[i];
    const char *now = zp_hf_name_now(r->arena, r->map->imported, t->name);
    if (t->of_peft || (!is_saved(r, t->name) && !is_saved(r, now))) continue;
    if (zp_hf_is_tied_table(r->map->imported, t->name) && !zp_json_get_bool(r->config, "ensure_weight_tying", false))
      return zp_peft_refuse_folder(
          r, zp_format(
                 r->arena,
                 "`modules_to_save` has %s, which is the head as well, and `ensure_weight_tying` is not set: PEFT has "
                 "the head as it was",
                 t->name));
    if (is_frozen(r, t))
      zp_push(r->arena, r->notes,
              zp_format(r->arena, "`%s` was trained alongside the adapters of %s, and is frozen here", t->name,
                        r->folder->path));
    zp_push(r->arena, &r->map->left, t->name);
    if (strncmp(t->name, prefix, n) == 0) zp_push(r->arena, &r->map->left, t->name + n);
    t->name = found_name(r, zp_format(r->arena, "base_model.model.%s", now),
                         zp_format(r->arena, "base_model.model.%s", t->name));
    t->of_peft = true;
  }
  return true;
}

/* `layers_to_transform` says which layers have adapters; here all of them have. */
static bool check_layers(reader *r) {
  const zp_json *layers = zp_json_get(r->config, "layers_to_transform");
  if (!zp_peft_is_set(layers)) return true;
  for (int i = 0; i < r->modules.len; i++) {
    const zp_peft_module *m = &r->modules.data[i];
    if (zp_weights_find(r->folder, name_of(r, m, 'A'))) continue;
    return zp_peft_refuse_folder(r, zp_format(r->arena,
                                              "`layers_to_transform` is %.60s, and `%s` has no adapter; here every "
                                              "layer has one",
                                              zp_json_text(r->arena, layers, false), m->name));
  }
  return true;
}

/* ---- a folder ---- */

/* NULL, or which field is of another type. */
static const char *find_wrong_type(reader *r) {
  static const char *const numbers[] = {"lora_alpha", "lora_dropout"}, *const truths[] = {"use_rslora",
                                                                                          "fan_in_fan_out"};
  for (int i = 0; i < 2; i++) {
    const zp_json *number = zp_json_get(r->config, numbers[i]), *truth = zp_json_get(r->config, truths[i]);
    if (number && isnan(zp_json_real(number, NAN))) return zp_format(r->arena, "`%s` is no number", numbers[i]);
    if (truth && !zp_json_is_bool(truth)) return zp_format(r->arena, "`%s` is neither true nor false", truths[i]);
  }
  const zp_json *rank = zp_json_get(r->config, "r"), *saved = zp_json_get(r->config, "modules_to_save");
  if (saved && !zp_json_is_null(saved) && !zp_json_is_array(saved)) return "`modules_to_save` is no list";
  const zp_json *params = zp_json_get(r->config, "target_parameters");
  if (params && !zp_json_is_null(params) && !zp_json_is_array(params)) return "`target_parameters` is no list";
  static const char *const patterns[] = {"rank_pattern", "alpha_pattern"};
  for (int i = 0; i < 2; i++) {
    const zp_json *pattern = zp_json_get(r->config, patterns[i]);
    if (pattern && !zp_json_is_null(pattern) && !zp_json_is_object(pattern))
      return zp_format(r->arena, "`%s` is no object", patterns[i]);
  }
  return rank && !zp_json_is_int(rank) ? "`r` is no whole number" : NULL;
}

static bool read_config(reader *r, const char *path) {
  size_t len;
  const char *error = NULL, *text = zp_read_file(r->arena, path, &len, &error);
  r->config_path = path;
  r->config = text ? zp_json_parse(r->arena, text, len, &error) : NULL;
  if (r->config && !zp_json_is_object(r->config)) error = "it is no object";
  if (r->config && !error) error = find_wrong_type(r);
  if (error) {
    zp_diag *d = zp_report(r->diags, ZP_Z0691, ZP_NO_SPAN, "cannot read the adapters' %s: %s", path, error);
    zp_diag_help(d, "a folder of PEFT has adapter_config.json and adapter_model.safetensors");
  }
  return !error;
}

static bool has_adapters(reader *r) {
  const zp_model *model = r->spec->model;
  if (model->adapters.len > 0) return true;
  zp_diag *d = zp_report(r->diags, ZP_Z0694, model->span, "model `%s` has no adapters, and those of %s are asked for",
                         model->name, r->folder->path);
  zp_diag_help(d, "`train { adapt = lora(rank = %lld, alpha = %g, of = [...]) }` adds them",
               (long long)zp_json_get_int(r->config, "r", ZP_PEFT_DEFAULT),
               zp_json_get_real(r->config, "lora_alpha", ZP_PEFT_DEFAULT));
  return false;
}

bool zp_weights_add_adapters(zp_arena *arena, zp_diags *diags, const zp_spec *spec, zp_weight_map *map,
                             const char *folder, zp_strings *notes) {
  reader r = {.arena = arena, .diags = diags, .spec = spec, .map = map, .notes = notes};
  if (!map->imported) {
    zp_report(diags, ZP_Z0692, ZP_NO_SPAN,
              "the adapters of %s go with weights of Hugging Face, whose modules they name; a checkpoint of zplan has "
              "its own adapters",
              folder);
    return false;
  }
  r.folder = zp_weights_open_peft(arena, diags, folder);
  if (!r.folder) return false;
  bool good = read_config(&r, r.folder->config_path) && zp_peft_check_fields(&r) && has_adapters(&r) &&
              zp_peft_modules_of(arena, diags, spec, map, &r.modules);
  if (good && zp_peft_is_set(zp_json_get(r.config, "target_parameters")))
    r.params = zp_peft_params_of(arena, map, &r.modules);
  good = good && zp_peft_check_patterns(&r) && check_layers(&r);
  if (good) {
    compare_config(&r);
    map->peft = r.folder;
    good = take_saved(&r);
    for (int i = 0; i < r.modules.len; i++) {
      add_a(&r, i);
      add_b(&r, &r.modules.data[i]);
    }
    zp_peft_add_params(&r);
  }
  if (r.config) zp_json_free((zp_json *)r.config);
  return good;
}
