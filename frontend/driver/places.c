/* Where the command finds its own files: beside the binary, or in the source tree that built it. */
#include "driver.h"

#include <zplan/path.h>

#include <stdlib.h>
#include <unistd.h>

const char *zp_program_dir(zp_arena *arena) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return ".";
  path[n] = '\0';
  char *slash = strrchr(path, '/');
  if (slash) *slash = '\0';
  return zp_strdup(arena, path);
}

/* Uninstalled: the source tree that built the binary. ZPLAN_LIBRARY overrides. */
const char *zp_library_dir(zp_arena *arena) {
  const char *wish = getenv("ZPLAN_LIBRARY");
  if (wish && *wish) return zp_strdup(arena, wish);
  const char *near = zp_format(arena, "%s/../../frontend/library", zp_program_dir(arena));
  return access(near, R_OK) == 0 ? near : ZPLAN_SOURCE_DIR "/frontend/library";
}

zp_toolchain zp_find_toolchain(zp_arena *arena) {
  const char *dir = zp_program_dir(arena), *root = zp_format(arena, "%s/../..", dir);
  if (access(zp_format(arena, "%s/runtime/include/zplan/rt.h", root), R_OK) != 0) root = ZPLAN_SOURCE_DIR;
  zp_toolchain tools = {
      .source_dir = zp_path_tidy(arena, root),
      .build_dir = dir,
      .include_dirs = {zp_format(arena, "%s/runtime/include", root), zp_format(arena, "%s/kernels/include", root)},
      .library_dirs = {zp_format(arena, "%s/runtime", dir), zp_format(arena, "%s/kernels", dir)},
      .device_dirs = {zp_format(arena, "%s/kernels/include", root), zp_format(arena, "%s/kernels/cuda", root),
                      zp_format(arena, "%s/codegen/cuda/emulator", root)}};
#ifdef __SANITIZE_ADDRESS__
  tools.sanitize = true;
#endif
  return tools;
}
