/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a generated folder, which a person may edit: what was edited is not written over.
 *
 * FOLDER/generated has a line "HASH FILE" for every text that was ever written there. A file whose hash has no line was
 * edited since. A line is on the disk before its text is, so that an interrupted build leaves no file that looks
 * edited. A folder without the list that has a trainer is an older one, all of whose files count as ours; in any other,
 * files with our names are a person's. */
#include "emit.h"
#include <zplan/hash.h>

#include <unistd.h>

static const char *line_of(zp_arena *arena, const char *file, const char *text, size_t len) {
  return zp_format(arena, "\n%016llx %s\n", (unsigned long long)zp_hash(ZP_HASH_START, text, len), file);
}

/* The list with an empty line in front; "" where there is none. */
static const char *read_list(zp_arena *arena, const char *path) {
  const char *ignored = NULL, *text = access(path, R_OK) == 0 ? zp_read_file(arena, path, NULL, &ignored) : NULL;
  return text ? zp_format(arena, "\n%s", text) : "";
}

static bool is_there(zp_arena *arena, const char *dir, const char *file) {
  return access(zp_format(arena, "%s/%s", dir, file), F_OK) == 0;
}

bool zp_generated_may_begin(zp_arena *arena, const char *dir, const char **error) {
  static const char *const names[] = {"trainer.c",  "rows.txt",      "Makefile",        "zplan.mk",
                                      "plan.json",  "kernels.cu",    "kernels_image.S", "kernels.o",
                                      "kernels.ll", "kernels.image", "trainer"};
  if (is_there(arena, dir, "generated")) return true;
  if (is_there(arena, dir, "trainer.c") && is_there(arena, dir, "zplan.mk")) return true; /* an older one */
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!is_there(arena, dir, names[i])) continue;
    *error = zp_format(arena,
                       "%s/%s is there already, and zplan did not write it; --force writes over it, another "
                       "folder (-o) leaves it as it is",
                       dir, names[i]);
    return false;
  }
  return true;
}

bool zp_generated_write(zp_arena *arena, const char *dir, const char *file, const char *text, bool force, bool *changed,
                        const char **error) {
  const char *path = zp_format(arena, "%s/%s", dir, file), *list_path = zp_format(arena, "%s/generated", dir);
  size_t len = strlen(text), old_len = 0;
  const char *ignored = NULL, *old = access(path, R_OK) == 0 ? zp_read_file(arena, path, &old_len, &ignored) : NULL;
  if (old && old_len == len && memcmp(old, text, len) == 0) return true;
  const char *list = read_list(arena, list_path), *line = line_of(arena, file, text, len);
  bool listed = strstr(list, zp_format(arena, " %s\n", file)) != NULL;
  if (old && !force && listed && !strstr(list, line_of(arena, file, old, old_len))) {
    *error = zp_format(
        arena, "%s was edited since zplan wrote it; --force writes it anew, another folder (-o) leaves it as it is",
        path);
    return false;
  }
  if (!strstr(list, line)) {
    const char *more = zp_format(arena, "%s%s", *list ? list + 1 : "", line + 1);
    if (!zp_write_file(arena, list_path, more, strlen(more), error)) return false;
  }
  *changed = true;
  return zp_write_file(arena, path, text, len, error);
}
