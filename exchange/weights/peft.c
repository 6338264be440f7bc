/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of a checkpoint as PEFT keeps them: adapter_config.json and adapter_model.safetensors, in which the module
 * of a weight `transformer.h.0.attn.c_attn.weight` has `base_model.model.transformer.h.0.attn.c_attn.lora_A.weight`
 * [rank, in] and `...lora_B.weight` [out, rank]. */
#include "element.h"
#include "weights_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <zplan/json.h>

typedef struct peft {
  zp_arena *arena;
  zp_diags *diags;
  const zp_peft_export *job;
  zp_peft_modules modules;
  zp_peft_params params;
  zp_peft_saved saved;
} peft;

/* ---- adapter_config.json ---- */

static void add_target(peft *p, zp_strings *seen, zp_json *list, const char *name) {
  const char *target = zp_peft_target_of(name);
  for (int k = 0; k < seen->len; k++)
    if (strcmp(seen->data[k], target) == 0) return;
  zp_push(p->arena, seen, target);
  zp_json_append_string(list, target);
}

static void add_targets(peft *p, zp_json *list) {
  zp_strings seen = {0};
  for (int i = 0; i < p->modules.len; i++) add_target(p, &seen, list, p->modules.data[i].name);
}

/* A whole number in nearly all of them. */
static void set_number(zp_json *o, const char *key, double value) {
  if (value == (double)(int64_t)value)
    zp_json_set_int(o, key, (int64_t)value);
  else
    zp_json_set_real(o, key, value);
}

static void add_params(peft *p, zp_json *o) {
  const zp_adapt *adapt = &p->job->spec->train.adapt;
  zp_strings seen = {0};
  zp_json *list = zp_json_set(o, "target_parameters", zp_json_array()), *ranks = zp_json_object(),
          *alphas = zp_json_object();
  for (int i = 0; i < p->params.len; i++) {
    const zp_peft_param *param = &p->params.data[i];
    add_target(p, &seen, list, param->name);
    if (param->rank == adapt->rank) continue;
    zp_json_set_int(ranks, zp_peft_target_of(param->name), param->rank);
    set_number(alphas, zp_peft_target_of(param->name), zp_peft_alpha(adapt, param->rank));
  }
  zp_json_set(o, "rank_pattern", ranks);
  zp_json_set(o, "alpha_pattern", alphas);
}

static void add_saved(peft *p, zp_json *list) {
  const char *before = "";
  for (int i = 0; i < p->saved.len; i++) {
    const char *name = zp_hf_name_now(p->arena, p->job->map->imported, p->saved.data[i]->name);
    const char *module = zp_peft_module_of(p->arena, name);
    if (strcmp(module, before) != 0) zp_json_append_string(list, module);
    before = module;
  }
}

static bool write_config(peft *p, zp_out_folder *out) {
  const zp_adapt *adapt = &p->job->spec->train.adapt;
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "peft_type", "LORA");
  zp_json_set_string(o, "task_type", "CAUSAL_LM");
  zp_json_set_string(o, "base_model_name_or_path", p->job->base ? p->job->base : "");
  zp_json_set_int(o, "r", adapt->rank);
  set_number(o, "lora_alpha", adapt->alpha);
  zp_json_set_real(o, "lora_dropout", adapt->dropout);
  zp_json_set_string(o, "bias", "none");
  bool fan_in = false;
  for (int i = 0; i < p->modules.len; i++) fan_in |= p->modules.data[i].fan_in;
  zp_json_set_bool(o, "fan_in_fan_out", fan_in);
  zp_json_set_bool(o, "init_lora_weights", true);
  zp_json_set_bool(o, "use_rslora", adapt->by_root);
  zp_json_set_bool(o, "inference_mode", true);
  add_targets(p, zp_json_set(o, "target_modules", zp_json_array()));
  if (p->params.len > 0) add_params(p, o);
  if (p->saved.len > 0) add_saved(p, zp_json_set(o, "modules_to_save", zp_json_array()));
  const char *text = zp_format(p->arena, "%s\n", zp_json_text(p->arena, o, true));
  zp_json_free(o);
  return zp_out_file(out, "adapter_config.json", text, strlen(text));
}

/* ---- adapter_model.safetensors ---- */

/* a is [rank, in], b [out, rank] there, whichever way they are stored here. */
static bool write_matrix(peft *p, zp_out_folder *out, const zp_peft_module *m, bool is_b) {
  const zp_merge *x = m->adapter;
  int64_t rows = is_b ? m->out : x->rank, cols = is_b ? x->rank : x->in, size = zp_weight_dtype_bytes(p->job->dtype);
  const zp_weight_tensor *source = zp_weights_source(p->arena, p->job->checkpoint, is_b ? x->b : x->a, size >= 4);
  double *from = zp_weights_read_all(p->diags, p->job->checkpoint, source);
  void *to = from ? malloc((size_t)(rows * cols * size)) : NULL;
  if (from && !to) zp_report(p->diags, ZP_Z0695, ZP_NO_SPAN, "no memory for an adapter of %s", m->name);
  for (int64_t i = 0; to && i < rows; i++)
    for (int64_t k = 0; k < cols; k++) {
      int64_t row = is_b ? m->row[i] : i, height = is_b ? x->out : x->rank;
      zp_element_write(p->job->dtype, to, i * cols + k, from[x->trans ? row * cols + k : k * height + row]);
    }
  bool good = to && zp_out_put(out, to, (size_t)(rows * cols * size));
  free(from);
  free(to);
  return good;
}

static bool write_saved(peft *p, zp_out_folder *out, const zp_mapped_tensor *tensor, int64_t bytes) {
  static const zp_merges none = {0};
  const zp_gather values = {p->arena, p->diags, p->job->checkpoint, &none, p->job->dtype};
  void *data = malloc((size_t)bytes);
  if (!data) zp_report(p->diags, ZP_Z0695, ZP_NO_SPAN, "no memory for tensor %s", tensor->name);
  bool good = data && zp_weights_gather(&values, tensor, data) && zp_out_put(out, data, (size_t)bytes);
  free(data);
  return good;
}

/* A part's matrices of all experts to their places in lora_A or lora_B. */
static bool put_part(peft *p, const zp_peft_param *param, int index, bool is_b, void *to) {
  const zp_merge *x = param->part[index].adapter;
  const zp_weight_tensor *source =
      zp_weights_source(p->arena, p->job->checkpoint, is_b ? x->b : x->a, zp_weight_dtype_bytes(p->job->dtype) >= 4);
  double *from = zp_weights_read_all(p->diags, p->job->checkpoint, source);
  int64_t n = is_b ? x->out : x->in, columns = param->rank * param->experts;
  for (int64_t e = 0; from && e < param->experts; e++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t k = 0; k < x->rank; k++) {
        int64_t rank = param->part[index].rank_at + k;
        int64_t place = is_b ? (index * param->out + i) * columns + rank * param->experts + e
                             : (e * param->rank + rank) * param->in + i;
        double value = from[e * n * x->rank + (is_b ? i * x->rank + k : k * n + i)];
        zp_element_write(p->job->dtype, to, place, value);
      }
  free(from);
  return from != NULL;
}

static bool write_param(peft *p, zp_out_folder *out, const zp_peft_param *param, bool is_b, int64_t bytes) {
  void *to = calloc(1, (size_t)bytes); /* zero outside the blocks, in every type */
  if (!to) zp_report(p->diags, ZP_Z0695, ZP_NO_SPAN, "no memory for an adapter of %s", param->name);
  bool good = to != NULL;
  for (int i = 0; good && i < param->parts; i++)
    if (param->part[i].adapter) good = put_part(p, param, i, is_b, to);
  good = good && zp_out_put(out, to, (size_t)bytes);
  free(to);
  return good;
}

/* The tensors' names and places: modules, parameters, what is trained whole. */
static zp_out_tensor *list_tensors(peft *p, int n) {
  zp_out_tensor *list = ZP_NEW_ARRAY(p->arena, zp_out_tensor, n);
  int count = 0;
  for (int i = 0; i < 2 * p->modules.len; i++) {
    const zp_peft_module *m = &p->modules.data[i / 2];
    int64_t rank = m->adapter->rank, rows = i % 2 ? m->out : rank, cols = i % 2 ? rank : m->adapter->in;
    list[count++] =
        (zp_out_tensor){.rank = 2, .shape = {rows, cols}, .name = zp_peft_tensor_name(p->arena, m, "AB"[i % 2])};
  }
  for (int i = 0; i < 2 * p->params.len; i++) {
    const zp_peft_param *x = &p->params.data[i / 2];
    int64_t ranks = x->rank * x->experts, rows = i % 2 ? x->parts * x->out : ranks, cols = i % 2 ? ranks : x->in;
    list[count++] =
        (zp_out_tensor){.rank = 2, .shape = {rows, cols}, .name = zp_peft_param_tensor(p->arena, x, "AB"[i % 2])};
  }
  for (int i = 0; i < p->saved.len; i++) {
    const zp_mapped_tensor *t = p->saved.data[i];
    const char *name = zp_hf_name_now(p->arena, p->job->map->imported, t->name);
    list[count] = (zp_out_tensor){.rank = t->rank, .name = zp_format(p->arena, "base_model.model.%s", name)};
    memcpy(list[count++].shape, t->shape, sizeof t->shape);
  }
  assert(count == n);
  int64_t begin = 0;
  for (int i = 0; i < n; begin += list[i++].bytes) {
    list[i].begin = begin;
    list[i].bytes = zp_weight_dtype_bytes(p->job->dtype);
    for (int k = 0; k < list[i].rank; k++) list[i].bytes *= list[i].shape[k];
  }
  return list;
}

static bool write_tensors(peft *p, zp_out_folder *out, int n) {
  zp_out_tensor *list = list_tensors(p, n);
  int modules = 2 * p->modules.len, params = modules + 2 * p->params.len;
  zp_buf header = zp_safetensors_header(p->arena, p->job->dtype, list, n);
  bool good = zp_out_begin(out, "adapter_model.safetensors") && zp_out_put(out, header.data, header.len);
  for (int i = 0; good && i < n; i++) {
    if (i < modules)
      good = write_matrix(p, out, &p->modules.data[i / 2], i % 2);
    else if (i < params)
      good = write_param(p, out, &p->params.data[(i - modules) / 2], i % 2, list[i].bytes);
    else
      good = write_saved(p, out, p->saved.data[i - params], list[i].bytes);
  }
  return zp_out_end(out) && good;
}

int zp_weights_export_peft(zp_arena *arena, zp_diags *diags, const zp_peft_export *job) {
  assert(job->checkpoint && job->map && job->spec->model->adapters.len > 0);
  peft p = {.arena = arena, .diags = diags, .job = job};
  if (!zp_peft_modules_of(arena, diags, job->spec, job->map, &p.modules) ||
      !zp_peft_saved_of(arena, diags, job->spec, job->map, &p.saved))
    return 0;
  p.params = zp_peft_params_of(arena, job->map, &p.modules);
  int n = 2 * p.modules.len + 2 * p.params.len + p.saved.len;
  assert(n > p.saved.len);
  assert(p.params.len == 0 || job->spec->train.adapt.dropout == 0); /* experts have none */
  zp_out_folder *out = zp_out_open(arena, diags, job->folder);
  if (!out) return 0;
  bool good = write_config(&p, out) && write_tensors(&p, out, n);
  return zp_out_close(out, good) ? n : 0;
}
