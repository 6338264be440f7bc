/* A model that begins with a part of another's checkpoint: `init = weights("DIR", drawn = [...], unread = [...])`. Both
 * are said, so that a name that was mistyped is not drawn, and nothing is left behind unnoticed. */
#include "weights_internal.h"

static bool is_unread(const zp_weight_folder *folder, const zp_weight_map *map, const zp_name_pattern *pattern) {
  for (int i = 0; i < folder->tensors.len; i++) {
    const char *name = folder->tensors.data[i].name;
    bool wanted = false;
    for (int k = 0; k < map->tensors.len && !wanted; k++) wanted = strcmp(map->tensors.data[k].name, name) == 0;
    if (!wanted && zp_matches_pattern(pattern->pattern, name)) return true;
  }
  return false;
}

static bool is_drawn(const zp_weight_map *map, const zp_name_pattern *pattern) {
  for (int i = 0; i < map->tensors.len; i++)
    if (zp_matches_pattern(pattern->pattern, map->tensors.data[i].param)) return true;
  return false;
}

static void check_patterns(zp_diags *diags, const zp_initial *init, const zp_weight_map *map,
                           const zp_weight_folder *folder) {
  for (int i = 0; i < init->drawn.len; i++) {
    const zp_name_pattern *pattern = &init->drawn.data[i];
    if (is_drawn(map, pattern)) continue;
    zp_diag *d = zp_report(diags, ZP_Z0304, pattern->span, "no parameter has a name like `%s`", pattern->pattern);
    zp_diag_help(d, "`zplan check --json` lists the names; {} stands for the layer");
  }
  for (int i = 0; i < init->unread.len; i++) {
    const zp_name_pattern *pattern = &init->unread.data[i];
    if (is_unread(folder, map, pattern)) continue;
    zp_diag *d = zp_report(diags, ZP_Z0304, pattern->span, "no tensor of %s that the model lacks has a name like `%s`",
                           folder->path, pattern->pattern);
    zp_diag_help(d, "`unread` names tensors of the checkpoint that the model has no place for");
  }
}

bool zp_weights_take_part(zp_arena *arena, zp_diags *diags, const zp_initial *init, zp_weight_map *map,
                          const zp_weight_folder *folder) {
  int before = zp_diags_errors(diags), kept = 0;
  if (init->drawn.len == 0 && init->unread.len == 0) return true;
  if (!folder->of_zplan) {
    zp_diag *d = zp_report(diags, ZP_Z0216, init->span, "a part of a checkpoint of Hugging Face is not built yet");
    zp_diag_help(d, "`drawn` and `unread` go with checkpoints of zplan");
    return false;
  }
  check_patterns(diags, init, map, folder);
  for (int i = 0; i < map->tensors.len; i++) {
    const zp_mapped_tensor *tensor = &map->tensors.data[i];
    if (zp_matches_some(&init->drawn, tensor->param))
      zp_push(arena, &map->drawn, tensor->name);
    else
      map->tensors.data[kept++] = *tensor;
  }
  map->tensors.len = kept;
  map->unread = &init->unread;
  return zp_diags_errors(diags) == before;
}
