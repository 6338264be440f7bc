/* Kernel text to a cubin for one arch. */
#include <assert.h>
#include <stdlib.h>
#include <zplan/vec.h>
#include "compile.h"
#include "nvrtc_calls.h"

const char *zp_cuda_library(zp_arena *arena, const char **error) {
  assert(error);
  int major = 0, minor = 0;
  if (!zp_nvrtc_open(arena, error)) return NULL;
  zp_nvrtc.version(&major, &minor);
  return zp_format(arena, "%s (%d.%d)", zp_nvrtc_file(), major, minor);
}

/* Compute capabilities times ten, ascending; NULL with *error. */
static int *supported(zp_arena *arena, int *count, const char **error) {
  if (!zp_nvrtc_open(arena, error)) return NULL;
  if (zp_nvrtc.count_archs(count) != 0 || *count <= 0) {
    *error = zp_format(arena, "%s does not say which archs it compiles for", zp_nvrtc_file());
    return NULL;
  }
  int *archs = ZP_NEW_ARRAY(arena, int, *count);
  if (zp_nvrtc.archs(archs) == 0) return archs;
  *error = zp_format(arena, "%s does not say which archs it compiles for", zp_nvrtc_file());
  return NULL;
}

const char *zp_cuda_archs(zp_arena *arena, const char **error) {
  assert(error);
  int count = 0;
  const int *archs = supported(arena, &count, error);
  if (!archs) return NULL;
  zp_buf text = zp_buf_new(arena);
  for (int i = 0; i < count; i++) zp_buf_printf(&text, "%ssm_%d", i ? " " : "", archs[i]);
  return text.data;
}

/* "sm_90" and "sm_90a" are there when 90 is. Whether a letter is legal is left to NVRTC. */
static bool check_arch(zp_arena *arena, const char *arch, const char **error) {
  int count = 0;
  const int *archs = supported(arena, &count, error);
  if (!archs) return false;
  char *end = NULL;
  long number = strncmp(arch, "sm_", 3) == 0 ? strtol(arch + 3, &end, 10) : 0;
  bool letter = end && (*end == 'a' || *end == 'f');
  if (end && end[letter] == '\0')
    for (int i = 0; i < count; i++)
      if (archs[i] == number) return true;
  *error = zp_format(arena, "%s does not compile for `%s`; it takes %s", zp_cuda_library(arena, error), arch,
                     zp_cuda_archs(arena, error));
  return false;
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

static bool write_cubin(zp_arena *arena, void *program, const char *out_path, const char **error) {
  size_t bytes = 0;
  char *cubin = zp_nvrtc.cubin_bytes(program, &bytes) == 0 && bytes ? zp_alloc(arena, bytes) : NULL;
  if (cubin && zp_nvrtc.cubin(program, cubin) == 0) return zp_write_file(arena, out_path, cubin, bytes, error);
  *error = zp_format(arena, "%s gave no cubin", zp_nvrtc_file());
  return false;
}

bool zp_cuda_compile_device(zp_arena *arena, const zp_cuda_source *source, const char *arch, const char *out_path,
                            const char **error) {
  if (!check_arch(arena, arch, error)) return false;
  zp_strings options = options_of(arena, source, arch);
  void *program = NULL;
  if (zp_nvrtc.create(&program, source->text, source->name, 0, NULL, NULL) != 0) {
    *error = zp_format(arena, "%s could not take the text of %s", zp_nvrtc_file(), source->name);
    return false;
  }
  bool ok = zp_nvrtc.compile(program, options.len, options.data) == 0;
  if (!ok) *error = zp_format(arena, "NVRTC failed on %s for %s:\n%s", source->name, arch, log_of(arena, program));
  ok = ok && write_cubin(arena, program, out_path, error);
  zp_nvrtc.destroy(&program);
  return ok;
}
