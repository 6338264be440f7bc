/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that a trainer starts from: `init = weights(...)` of the train block, --init. The map that says where they
 * are is written into the trainer's folder; the weights themselves stay where they are. */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/weights.h>

#include <stdio.h>
#include <string.h>

bool zp_find_weights(zp_run_state *run, const zp_spec *spec) {
  const zp_options *o = &run->options;
  const char *folder = o->init ? o->init : spec->train.init.path;
  const char *adapters = o->adapters ? o->adapters : spec->train.init.adapters;
  zp_strings notes = {0};
  if (!folder && adapters) {
    zp_diag *d = zp_report(run->diags, ZP_Z0691, ZP_NO_SPAN, "the adapters of %s go with weights of a model", adapters);
    zp_diag_help(d, "name its folder: --init FOLDER");
    return zp_flush_diags(run);
  }
  if (!folder) return true;
  run->weights = zp_weights_for(run->arena, run->diags, spec, o->load.library_dir, folder, adapters, &notes);
  if (!run->weights) return zp_flush_diags(run);
  if (adapters) zp_say_line(stderr, "note: adapters are those of %s", adapters);
  for (int i = 0; i < notes.len; i++) zp_say_line(stderr, "note: %s", notes.data[i]);
  return true;
}

/* A trainer whose program says that it starts from weights looks for weights.json; the map of another folder has
 * another name, and the trainer is told it. */
bool zp_write_weights(zp_run_state *run) {
  const char *error = NULL;
  if (!run->weights) return true;
  bool told = run->options.init || run->options.adapters;
  const char *path = zp_format(run->arena, "%s/%s", zp_tree_dir(run), told ? "init.json" : "weights.json");
  if (told) run->weights_path = path;
  if (zp_tree_in_use(run->arena, zp_tree_dir(run))) {
    size_t len;
    const char *old = zp_read_file(run->arena, path, &len, &error);
    if (old && len == strlen(run->weights) && memcmp(old, run->weights, len) == 0) return true;
    error = zp_tree_busy(run->arena, zp_tree_dir(run));
  } else if (zp_write_file(run->arena, path, run->weights, strlen(run->weights), &error))
    return true;
  zp_report(run->diags, ZP_Z0703, ZP_NO_SPAN, "%s", error);
  return zp_flush_diags(run);
}
