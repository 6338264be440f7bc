/* SPDX-License-Identifier: Apache-2.0 */
/* From the config.json of a Hugging Face model to a .dz file: parse, read the rows of its family, fill in its
 * template. */
#include "hf.h"

#include <assert.h>

enum { AS_WRITTEN = -1 };

static void write(hf_reader *r) {
  const hf_family *f = r->model->family;
  if (f->of_head) hf_read_rows(r, f->of_head);
  hf_scope scope = hf_scope_of(r);
  for (int i = 0; f->ties[i].name; i++) r->model->tied[i] = hf_holds(&scope, f->ties[i].when);
  r->result->text = hf_expand(r->arena, r->model, hf_template(f->text));
}

/* What is read the file for? The text has blocks to fill in, the model alone is written, or the weights alongside it
 * count. */
typedef enum purpose { WHOLE_FILE, MODEL_ALONE, WEIGHTS } purpose;

static zp_imported *import_head(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len,
                                int head, purpose use, const char *name) {
  assert(path && (json || len == 0));
  const char *error = NULL;
  hf_reader r = {.arena = arena,
                 .diags = diags,
                 .errors_before = zp_diags_errors(diags),
                 .for_weights = use == WEIGHTS,
                 .result = ZP_NEW(arena, zp_imported),
                 .model = ZP_NEW(arena, hf_model)};
  zp_json *root = zp_json_parse(arena, json, len, &error);
  if (!root || !zp_json_is_object(root)) {
    zp_report(diags, ZP_Z0683, ZP_NO_SPAN, "%s: %s", path, error ? error : "no JSON object");
    if (root) zp_json_free(root);
    return NULL;
  }
  r.file = zp_diags_add_source(diags, path, json, len);
  r.root = root;
  if (hf_read_model(&r)) hf_look_at_others(&r);
  bool ok = hf_is_sound(&r);
  if (head != AS_WRITTEN) hf_set_int(arena, r.model, "head", head);
  hf_set_int(arena, r.model, "alone", use == MODEL_ALONE);
  if (name) hf_set_text(arena, r.model, "name", name);
  if (ok) write(&r);
  r.result->model = r.model;
  zp_json_free(root);
  return ok ? r.result : NULL;
}

int64_t zp_hf_longest(const zp_imported *imported) { return hf_int(imported->model, "longest"); }
int zp_hf_heads(const zp_imported *imported) { return (int)hf_int(imported->model, "variants"); }
int zp_hf_head(const zp_imported *imported) { return (int)hf_int(imported->model, "head"); }
bool zp_hf_takes_arrays(const zp_imported *imported) { return hf_int(imported->model, "takes_arrays") != 0; }
const char *zp_hf_model_name(const zp_imported *imported) { return hf_model_name(imported->model); }
double zp_hf_dropout(const zp_imported *imported) { return hf_real(imported->model, "dropout"); }
const char *zp_hf_type(const zp_imported *imported) { return imported->model->family->type; }

zp_imported *zp_import_hf(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len) {
  return import_head(arena, diags, path, json, len, AS_WRITTEN, WHOLE_FILE, NULL);
}

zp_imported *zp_import_hf_model(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len,
                                const char *name) {
  return import_head(arena, diags, path, json, len, AS_WRITTEN, MODEL_ALONE, name);
}

zp_imported *zp_import_hf_weights(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len) {
  return import_head(arena, diags, path, json, len, AS_WRITTEN, WEIGHTS, NULL);
}

zp_imported *zp_import_hf_head(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len,
                               int head) {
  return import_head(arena, diags, path, json, len, head, WEIGHTS, NULL);
}

/* The class of a head; NULL: one class has several, as T5's, whose files are the same: what is loaded decides. */
static const char *class_of_head(const zp_imported *imported) {
  const hf_class *classes = imported->model->family->classes;
  bool by_class = false;
  for (int i = 0; classes[i].name; i++) by_class |= classes[i].head > 0;
  for (int i = 0; by_class && classes[i].name; i++)
    if (classes[i].head == zp_hf_head(imported)) return classes[i].name;
  return NULL;
}

const char *zp_hf_config_of_head(zp_arena *arena, const zp_imported *imported, const char *json, size_t len) {
  static const char key[] = "architectures";
  const char *error = NULL, *class = class_of_head(imported), *text = NULL;
  zp_json *root = class ? zp_json_parse(arena, json, len, &error) : NULL;
  if (!root) return NULL;
  if (strcmp(zp_json_string(zp_json_at(zp_json_get(root, key), 0), ""), class) != 0) {
    zp_json_append_string(zp_json_set(root, key, zp_json_array()), class);
    text = zp_format(arena, "%s\n", zp_json_text(arena, root, true));
  }
  zp_json_free(root);
  return text;
}
