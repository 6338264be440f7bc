/* SPDX-License-Identifier: Apache-2.0 */
/* zp_load: a file becomes a zp_spec, or errors. */
#include "eval.h"

#include <assert.h>

static bool has_one_model(const zp_module *main) {
  int models = 0;
  for (int i = 0; i < main->file->items.len; i++) models += main->file->items.data[i]->kind == ZP_ITEM_MODEL;
  return models == 1;
}

zp_spec *zp_load(zp_arena *arena, zp_diags *diags, const char *path, const zp_source_text *sources, int n_sources,
                 const zp_load_options *options) {
  assert(path && options && (sources || n_sources == 0));
  assert(options->n_wishes >= 0 && options->n_wishes <= options->n_set);
  int errors = zp_diags_errors(diags);
  zp_spec *spec = ZP_NEW(arena, zp_spec);
  spec->path = zp_strdup(arena, path);
  zp_module *main = zp_module_load(arena, diags, spec, spec->path, sources, n_sources, options);
  if (!main || zp_diags_errors(diags) > errors) return NULL;
  const zp_expr *model_call = NULL;
  bool ok = zp_spec_read(arena, diags, spec, main, options, &model_call);
  /* The model is examined even when the rest has errors, so that one run tells all of them; not when the error may be
   * in what chooses the model. */
  if (ok || model_call || has_one_model(main))
    ok = zp_elaborate(arena, diags, spec, main, options, model_call, spec->train.dropout) && ok;
  if (ok && spec->train.adapt.rank > 0) spec->base = spec->model;
  if (spec->base) ok = zp_elaborate(arena, diags, spec, main, options, model_call, spec->train.dropout);
  ok = ok && zp_spec_finish(diags, spec);
  if (ok) zp_check_lookahead(diags, spec);
  return ok && zp_diags_errors(diags) == errors ? spec : NULL;
}
