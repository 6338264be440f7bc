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
  zp_peft_saved saved;
} peft;

/* ---- adapter_config.json ---- */

/* "transformer.h.0.attn.c_attn" -> "attn.c_attn": PEFT takes every module that ends so. */
static const char *target_of(const char *name) {
  const char *rest = name;
  for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
    size_t digits = strspn(dot + 1, "0123456789");
    if (digits > 0 && dot[1 + digits] == '.') rest = dot + 2 + digits;
  }
  return rest;
}

static void add_targets(peft *p, zp_json *list) {
  zp_strings seen = {0};
  for (int i = 0; i < p->modules.len; i++) {
    const char *target = target_of(p->modules.data[i].name);
    bool known = false;
    for (int k = 0; k < seen.len && !known; k++) known = strcmp(seen.data[k], target) == 0;
    if (known) continue;
    zp_push(p->arena, &seen, target);
    zp_json_append_string(list, target);
  }
}

static void add_saved(peft *p, zp_json *list) {
  const char *before = "";
  for (int i = 0; i < p->saved.len; i++) {
    const char *module = zp_peft_module_of(p->arena, p->saved.data[i]->name);
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
  if (adapt->alpha == (double)(int64_t)adapt->alpha) /* a whole number in nearly all of them */
    zp_json_set_int(o, "lora_alpha", (int64_t)adapt->alpha);
  else
    zp_json_set_real(o, "lora_alpha", adapt->alpha);
  zp_json_set_real(o, "lora_dropout", adapt->dropout);
  zp_json_set_string(o, "bias", "none");
  bool fan_in = false;
  for (int i = 0; i < p->modules.len; i++) fan_in |= p->modules.data[i].fan_in;
  zp_json_set_bool(o, "fan_in_fan_out", fan_in);
  zp_json_set_bool(o, "init_lora_weights", true);
  zp_json_set_bool(o, "use_rslora", adapt->by_root);
  zp_json_set_bool(o, "inference_mode", true);
  add_targets(p, zp_json_set(o, "target_modules", zp_json_array()));
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

static bool write_tensors(peft *p, zp_out_folder *out) {
  int n = 2 * p->modules.len, all = n + p->saved.len;
  zp_out_tensor *list = ZP_NEW_ARRAY(p->arena, zp_out_tensor, all);
  int64_t begin = 0, size = zp_weight_dtype_bytes(p->job->dtype);
  for (int i = 0; i < n; i++) {
    const zp_peft_module *m = &p->modules.data[i / 2];
    int64_t rank = m->adapter->rank, rows = i % 2 ? m->out : rank, cols = i % 2 ? rank : m->adapter->in;
    list[i] = (zp_out_tensor){.rank = 2, .shape = {rows, cols}, .begin = begin, .bytes = rows * cols * size};
    list[i].name = zp_peft_tensor_name(p->arena, m, "AB"[i % 2]);
    begin += list[i].bytes;
  }
  for (int i = n; i < all; i++) {
    const zp_mapped_tensor *t = p->saved.data[i - n];
    list[i] = (zp_out_tensor){.rank = t->rank, .begin = begin, .bytes = size};
    list[i].name = zp_format(p->arena, "base_model.model.%s", t->name);
    for (int k = 0; k < t->rank; k++) list[i].bytes *= list[i].shape[k] = t->shape[k];
    begin += list[i].bytes;
  }
  zp_buf header = zp_safetensors_header(p->arena, p->job->dtype, list, all);
  bool good = zp_out_begin(out, "adapter_model.safetensors") && zp_out_put(out, header.data, header.len);
  for (int i = 0; good && i < n; i++) good = write_matrix(p, out, &p->modules.data[i / 2], i % 2);
  for (int i = n; good && i < all; i++) good = write_saved(p, out, p->saved.data[i - n], list[i].bytes);
  return zp_out_end(out) && good;
}

int zp_weights_export_peft(zp_arena *arena, zp_diags *diags, const zp_peft_export *job) {
  assert(job->checkpoint && job->map && job->spec->model->adapters.len > 0);
  peft p = {.arena = arena, .diags = diags, .job = job};
  if (!zp_peft_modules_of(arena, diags, job->spec, job->map, &p.modules) ||
      !zp_peft_saved_of(arena, diags, job->spec, job->map, &p.saved))
    return 0;
  assert(p.modules.len > 0);
  zp_out_folder *out = zp_out_open(arena, diags, job->folder);
  if (!out) return 0;
  bool good = write_config(&p, out) && write_tensors(&p, out);
  return zp_out_close(out, good) ? 2 * p.modules.len + p.saved.len : 0;
}
