/* Which compiler an arch asks for. */
#include "compile.h"

bool zp_cuda_compile(zp_arena *arena, const zp_cuda_source *source, const char *arch, const char *out_path,
                     const char **error) {
  if (strcmp(arch, "host") == 0) return zp_cuda_compile_host(arena, source, out_path, error);
  return zp_cuda_compile_device(arena, source, arch, out_path, error);
}
