/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text. */
#include <assert.h>
#include <string.h>
#include <zplan/buf.h>
#include <zplan/path.h>
#include <zplan/vec.h>

const char *zp_path_tidy(zp_arena *arena, const char *path) {
  assert(path);
  zp_strings parts = {0};
  for (const char *p = path; *p;) {
    size_t n = strcspn(p, "/");
    bool up = n == 2 && strncmp(p, "..", 2) == 0;
    bool at_root = *path == '/' && parts.len == 0;
    if (up && parts.len && strcmp(parts.data[parts.len - 1], "..") != 0)
      parts.len--;
    else if (!(up && at_root) && n && !(n == 1 && *p == '.'))
      zp_push(arena, &parts, zp_strndup(arena, p, n));
    p += n + (p[n] == '/');
  }
  const char *text = *path == '/' ? "/" : "";
  for (int i = 0; i < parts.len; i++) text = zp_format(arena, "%s%s%s", text, i ? "/" : "", parts.data[i]);
  return text;
}

const char *zp_path_alongside(zp_arena *arena, const char *file, const char *name) {
  assert(file && name);
  const char *slash = strrchr(file, '/');
  if (name[0] == '/' || !slash) return zp_path_tidy(arena, name);
  return zp_path_tidy(arena, zp_format(arena, "%.*s/%s", (int)(slash - file), file, name));
}

/* Up from the file's folder to the last folder that both share, then down. */
const char *zp_path_from(zp_arena *arena, const char *file, const char *target) {
  assert(file && target);
  file = zp_path_tidy(arena, file);
  target = zp_path_tidy(arena, target);
  if ((*file == '/') != (*target == '/')) return target;
  size_t shared = 0;
  for (size_t i = 0; file[i] && file[i] == target[i]; i++)
    if (file[i] == '/') shared = i + 1;
  const char *up = "";
  for (const char *p = file + shared; (p = strchr(p, '/')); p++) up = zp_format(arena, "%s../", up);
  return zp_format(arena, "%s%s", up, target + shared);
}
