/* SPDX-License-Identifier: Apache-2.0 */
/* Which compiler an arch asks for. */
#include "compile.h"

#include <assert.h>

const char *zp_cuda_define(zpk_dtype dtype) {
  assert(dtype <= ZPK_F16);
  static const char *const define[] = {
      [ZPK_F32] = NULL, [ZPK_F64] = "-DZPD_F64", [ZPK_BF16] = "-DZPD_BF16", [ZPK_F16] = "-DZPD_F16"};
  return define[dtype];
}

bool zp_cuda_compile(zp_arena *arena, const zp_cuda_source *source, const char *arch, const char *out_path,
                     const char **error) {
  assert(source->text && source->dtype <= ZPK_F16 && arch && out_path && error);
  if (strcmp(arch, "host") == 0) return zp_cuda_compile_host(arena, source, out_path, error);
  return zp_cuda_compile_device(arena, source, arch, out_path, error);
}
