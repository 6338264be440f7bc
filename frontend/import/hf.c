/* From the config.json of a Hugging Face model to a .dz file: parse, read the fields of its family, write. */
#include "hf.h"

#include <assert.h>

zp_imported *zp_import_hf(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len) {
  assert(path && (json || len == 0));
  const char *error = NULL;
  int before = zp_diags_errors(diags);
  hf_reader r = {
      .arena = arena, .diags = diags, .result = ZP_NEW(arena, zp_imported), .model = ZP_NEW(arena, hf_model)};
  zp_json *root = zp_json_parse(arena, json, len, &error);
  if (!root || !zp_json_is_object(root)) {
    zp_report(diags, ZP_Z0683, ZP_NO_SPAN, "%s: %s", path, error ? error : "no JSON object");
    if (root) zp_json_free(root);
    return NULL;
  }
  r.file = zp_diags_add_source(diags, path, json, len);
  r.root = root;
  if (hf_read_model(&r)) hf_note_unused(&r);
  bool ok = zp_diags_errors(diags) == before;
  if (ok) r.result->text = hf_write(arena, r.model);
  r.result->model = r.model;
  zp_json_free(root);
  return ok ? r.result : NULL;
}
