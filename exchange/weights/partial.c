/* SPDX-License-Identifier: Apache-2.0 */
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
    for (int k = 0; k < map->tensors.data[i].parts.len; k++)
      if (zp_matches_pattern(pattern->pattern, map->tensors.data[i].parts.data[k].param)) return true;
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

/* A tensor of a checkpoint may be parts of several parameters, and several tensors make up one. */
static bool take_drawn(zp_arena *arena, zp_diags *diags, const zp_initial *init, zp_weight_map *map,
                       const zp_mapped_tensor *tensor) {
  int n = 0;
  for (int k = 0; k < tensor->parts.len; k++) n += zp_matches_some(&init->drawn, tensor->parts.data[k].param);
  if (n == 0) return false;
  if (n < tensor->parts.len)
    zp_report(diags, ZP_Z0694, init->span, "`%s` is drawn, and `%s` is not: both are parts of the tensor %s",
              tensor->parts.data[0].param, tensor->parts.data[1].param, tensor->name);
  for (int k = 0; k < tensor->parts.len; k++) {
    bool known = false;
    for (int i = 0; i < map->drawn.len && !known; i++)
      known = strcmp(map->drawn.data[i], tensor->parts.data[k].ours) == 0;
    if (!known) zp_push(arena, &map->drawn, tensor->parts.data[k].ours);
  }
  zp_push(arena, &map->left, tensor->name);
  return true;
}

bool zp_weights_take_part(zp_arena *arena, zp_diags *diags, const zp_initial *init, zp_weight_map *map,
                          const zp_weight_folder *folder) {
  int before = zp_diags_errors(diags), kept = 0;
  if (init->drawn.len == 0 && init->unread.len == 0) return true;
  check_patterns(diags, init, map, folder);
  for (int i = 0; i < map->tensors.len; i++) {
    const zp_mapped_tensor tensor = map->tensors.data[i];
    if (!take_drawn(arena, diags, init, map, &tensor)) map->tensors.data[kept++] = tensor;
  }
  map->tensors.len = kept;
  map->unread = &init->unread;
  return zp_diags_errors(diags) == before;
}
