/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles a text that check_kernels has collected.
 *
 *   compile_kernels ROOT TEXT.cu ARCH IMAGE      ROOT: the source tree; the text's name ends with its dtype */
#include <stdio.h>
#include <string.h>
#include <zplan/buf.h>
#include <zplan/cuda.h>

static bool dtype_of(const char *path, zpk_dtype *dtype) {
  static const char *const ends[] = {
      [ZPK_F32] = "_f32.cu", [ZPK_F64] = "_f64.cu", [ZPK_BF16] = "_bf16.cu", [ZPK_F16] = "_f16.cu"};
  for (int i = 0; i < ZPK_DTYPES; i++)
    if (strstr(path, ends[i])) {
      *dtype = (zpk_dtype)i;
      return true;
    }
  return false;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: compile_kernels ROOT TEXT.cu ARCH IMAGE\n");
    return 2;
  }
  zp_arena *arena = zp_arena_new("compile");
  const char *error = "the name says no dtype";
  const char *folders[] = {zp_format(arena, "%s/kernels/include", argv[1]),
                           zp_format(arena, "%s/kernels/cuda", argv[1]),
                           zp_format(arena, "%s/codegen/cuda/emulator", argv[1])};
  size_t length = 0;
  zp_cuda_source source = {.name = "kernels.cu", .include_dirs = folders, .n_include_dirs = 3};
  bool good = dtype_of(argv[2], &source.dtype) && (source.text = zp_read_file(arena, argv[2], &length, &error)) &&
              zp_cuda_compile(arena, &source, argv[3], argv[4], &error);
  if (!good) fprintf(stderr, "%s: %s\n", argv[2], error);
  zp_arena_free(arena);
  return !good;
}
