/* SPDX-License-Identifier: Apache-2.0 */
/* Where the command and libzplan find their files: installed in PREFIX/lib/zplan, alongside PREFIX/bin where the binary
 * is, else in the source tree that built it. Both have the same folders inside. */
#define _GNU_SOURCE /* dladdr */
#include "driver.h"

#include <zplan/hosted.h>
#include <zplan/path.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static const char *folder_of(zp_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? zp_strndup(arena, path, (size_t)(slash - path)) : ".";
}

const char *zp_program_dir(zp_arena *arena) {
  char path[4096];
  Dl_info here;
  char *real = zp_is_hosted() && dladdr(&folder_of, &here) && here.dli_fname ? realpath(here.dli_fname, path) : NULL;
  if (real) return folder_of(arena, real);
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return ".";
  path[n] = '\0';
  return folder_of(arena, path);
}

/* A build folder says how to get from it to the tree that it was built from. */
static const char *source_of(zp_arena *arena, const char *build) {
  size_t len;
  const char *error, *path = zp_read_file(arena, zp_format(arena, "%s/zplan.source", build), &len, &error);
  return path ? zp_path_tidy(arena, zp_format(arena, "%s/%s", build, path)) : NULL;
}

/* PREFIX/lib/zplan from PREFIX/bin or PREFIX/lib, or from a folder in that which is named after the machine. */
static const char *installed(zp_arena *arena, const char *dir) {
  const char *home = zp_path_tidy(arena, zp_format(arena, "%s/../lib/zplan", dir));
  const char *above = zp_path_tidy(arena, zp_format(arena, "%s/../zplan", dir));
  return access(home, F_OK) != 0 && access(above, F_OK) == 0 ? above : home;
}

/* The folder that has runtime/include, kernels/cuda, frontend/library; build: the one with the runtime's libraries. */
static const char *find_home(zp_arena *arena, const char **build) {
  const char *dir = zp_program_dir(arena), *source = source_of(arena, dir);
  if (!source) dir = source = installed(arena, dir);
  *build = dir;
  return source;
}

/* ZPLAN_LIBRARY overrides. */
const char *zp_library_dir(zp_arena *arena) {
  const char *wish = getenv("ZPLAN_LIBRARY"), *build;
  if (wish && *wish) return zp_strdup(arena, wish);
  return zp_format(arena, "%s/frontend/library", find_home(arena, &build));
}

const char *zp_find_tool(zp_arena *arena, const char *tool) {
  const char *path = getenv("PATH");
  while (path && *path) {
    size_t n = strcspn(path, ":");
    const char *file = zp_format(arena, "%.*s/%s", (int)n, path, tool);
    if (access(file, X_OK) == 0) return file;
    path += n + (path[n] == ':');
  }
  return NULL;
}

/* ZPLAN_KEPT_KERNELS: a folder. */
static const char *kept_kernels(void) {
  const char *wish = getenv("ZPLAN_KEPT_KERNELS");
  return wish && *wish ? wish : NULL;
}

zp_toolchain zp_find_toolchain(zp_arena *arena) {
  const char *dir, *root = find_home(arena, &dir);
  zp_toolchain tools = {
      .source_dir = root,
      .build_dir = dir,
      .kept_kernels = kept_kernels(),
      .include_dirs = {zp_format(arena, "%s/runtime/include", root), zp_format(arena, "%s/kernels/include", root)},
      .library_dirs = {zp_format(arena, "%s/runtime", dir), zp_format(arena, "%s/kernels", dir)},
      .device_dirs = {zp_format(arena, "%s/kernels/include", root), zp_format(arena, "%s/kernels/cuda", root),
                      zp_format(arena, "%s/codegen/cuda/emulator", root)}};
#ifdef __SANITIZE_ADDRESS__
  tools.sanitize = true;
#endif
  return tools;
}
