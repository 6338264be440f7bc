/* From the config.json of a Hugging Face model to a .dz file: parse, read the fields of its family, write. */
#include "hf.h"

#include <assert.h>

enum { AS_WRITTEN = -1 };

static void choose(hf_model *m, int head) {
  m->head = head;
  if (m->layers_are != HF_LLAMA || head != HF_ALIKE) return;
  m->longest = m->window;
  m->window = m->full_layers = 0;
}

static zp_imported *import_head(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len,
                                int head, bool for_weights) {
  assert(path && (json || len == 0));
  const char *error = NULL;
  hf_reader r = {.arena = arena,
                 .diags = diags,
                 .errors_before = zp_diags_errors(diags),
                 .for_weights = for_weights,
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
  if (head != AS_WRITTEN) choose(r.model, head);
  if (ok) r.result->text = hf_write(arena, r.model);
  r.result->model = r.model;
  zp_json_free(root);
  return ok ? r.result : NULL;
}

int64_t zp_hf_longest(const zp_imported *imported) { return imported->model->longest; }

zp_imported *zp_import_hf(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len) {
  return import_head(arena, diags, path, json, len, AS_WRITTEN, false);
}

zp_imported *zp_import_hf_weights(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len) {
  return import_head(arena, diags, path, json, len, AS_WRITTEN, true);
}

zp_imported *zp_import_hf_head(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len,
                               int head) {
  return import_head(arena, diags, path, json, len, head, true);
}

const char *zp_hf_config_of_head(zp_arena *arena, const zp_imported *imported, const char *json, size_t len) {
  const hf_model *m = imported->model;
  const char *error = NULL;
  zp_json *root = m->layers_are == HF_BERT ? zp_json_parse(arena, json, len, &error) : NULL;
  if (!root) return NULL; /* files of T5 are the same, tied or not: what is loaded decides */
  const char *class = zp_json_string(zp_json_at(zp_json_get(root, "architectures"), 0), "");
  const char *text = NULL;
  if (strcmp(class, hf_bert_classes[m->head]) != 0) {
    zp_json_append_string(zp_json_set(root, "architectures", zp_json_array()), hf_bert_classes[m->head]);
    text = zp_format(arena, "%s\n", zp_json_text(arena, root, true));
  }
  zp_json_free(root);
  return text;
}
