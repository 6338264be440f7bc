/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel text to a cubin for one arch. */
#include <assert.h>
#include <zplan/buf.h>
#include <zplan/quote.h>
#include <zplan/vec.h>
#include "compile.h"
#include "nvrtc_calls.h"

static const char *name_of(zp_arena *arena, const zp_nvrtc_library *l) {
  return zp_format(arena, "%s (%d.%d)", l->path, l->major, l->minor);
}

const char *zp_cuda_library(zp_arena *arena, const char *arch, const char **error) {
  const zp_nvrtc_library *l = zp_nvrtc_use(arena, arch, error);
  return l ? name_of(arena, l) : NULL;
}

zp_strings zp_cuda_libraries(zp_arena *arena) {
  int n;
  const char *broken;
  const zp_nvrtc_library *all = zp_nvrtc_all(&n, &broken);
  zp_strings names = {0};
  for (int i = 0; i < n; i++) zp_push(arena, &names, name_of(arena, &all[i]));
  return names;
}

const char *zp_cuda_archs(zp_arena *arena, const char **error) {
  assert(error);
  const zp_nvrtc_library *l = zp_nvrtc_use(arena, NULL, error);
  if (!l) return NULL;
  zp_buf text = zp_buf_new(arena);
  for (int i = 0; i < l->n_archs; i++) zp_buf_printf(&text, "%ssm_%d", i ? " " : "", l->archs[i]);
  return text.data;
}

static zp_strings options_of(zp_arena *arena, const zp_cuda_source *source, const char *arch) {
  zp_strings options = {0};
  zp_push(arena, &options, zp_format(arena, "--gpu-architecture=%s", arch));
  zp_push(arena, &options, "--std=c++17");
  if (zp_cuda_define(source->dtype)) zp_push(arena, &options, zp_cuda_define(source->dtype));
  for (int i = 0; i < source->n_include_dirs; i++)
    zp_push(arena, &options, zp_format(arena, "--include-path=%s", source->include_dirs[i]));
  return options;
}

static const char *log_of(zp_arena *arena, void *program) {
  size_t bytes = 0;
  if (zp_nvrtc.log_bytes(program, &bytes) != 0 || bytes <= 1) return "no reason given";
  char *log = zp_alloc(arena, bytes + 1);
  return zp_nvrtc.log(program, log) == 0 ? log : "no reason given";
}

static bool write_cubin(zp_arena *arena, const zp_nvrtc_library *library, void *program, const char *out_path,
                        const char **error) {
  size_t bytes = 0;
  char *cubin = zp_nvrtc.cubin_bytes(program, &bytes) == 0 && bytes ? zp_alloc(arena, bytes) : NULL;
  if (cubin && zp_nvrtc.cubin(program, cubin) == 0) return zp_write_file(arena, out_path, cubin, bytes, error);
  *error = zp_format(arena, "%s gave no cubin", library->path);
  return false;
}

bool zp_cuda_compile_device(zp_arena *arena, const zp_cuda_source *source, const char *arch, const char *out_path,
                            const char **error) {
  const zp_nvrtc_library *library = zp_nvrtc_use(arena, arch, error);
  if (!library) return false;
  zp_strings options = options_of(arena, source, arch);
  void *program = NULL;
  if (zp_nvrtc.create(&program, source->text, source->name, 0, NULL, NULL) != 0) {
    *error = zp_format(arena, "%s could not take the text of %s", library->path, source->name);
    return false;
  }
  bool ok = zp_nvrtc.compile(program, options.len, options.data) == 0;
  if (!ok) { /* as a compiler that is a program of its own does, it says why on stderr */
    zp_say(stderr, "%s\n", log_of(arena, program));
    *error = zp_format(arena, "NVRTC failed on %s for %s", source->name, arch);
  }
  ok = ok && write_cubin(arena, library, program, out_path, error);
  zp_nvrtc.destroy(&program);
  return ok;
}
