/* SPDX-License-Identifier: Apache-2.0 */
/* Where the model of a plan stands, as seen from the plan file: relative, so that both may move together. */
#include <assert.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zplan/path.h>
#include <zplan/plan_file.h>

/* Links on the way are followed, so that ".." means the folder above. NULL: there is no such folder. */
static const char *real_folder(zp_arena *arena, const char *file) {
  const char *slash = strrchr(file, '/');
  char *found = realpath(slash ? zp_format(arena, "%.*s", (int)(slash - file + 1), file) : ".", NULL);
  const char *folder = found ? zp_strdup(arena, found) : NULL;
  free(found);
  return folder;
}

void zp_set_model_folder(zp_arena *arena, zp_json *json, const zp_spec *spec, const char *path) {
  assert(json && path);
  struct stat info;
  if (spec->sources.len == 0) return;
  const char *model = spec->sources.data[0].path;
  if (stat(model, &info) != 0 || !S_ISREG(info.st_mode)) return; /* what came through a pipe stands nowhere */
  const char *here = real_folder(arena, path), *there = real_folder(arena, model);
  if (!here || !there || strcmp(here, there) == 0) return;
  zp_json_set_string(json, "model_folder", zp_path_from(arena, zp_format(arena, "%s/plan", here), there));
}
