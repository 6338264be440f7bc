/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles a kernel set and writes the files. No LLVM here: module.c compiles. */
#include "emit.h"

#include <assert.h>
#include "kernel_set.h"

bool zp_kernels_compile(zp_kernel_set *set, const char *cpu, const char *features, const char *kept,
                        const char *object_path, const char *ir_path, const char **error) {
  assert(object_path && error);
  int n = set->kernels.len;
  const zp_row_program **program = ZP_NEW_ARRAY(set->arena, const zp_row_program *, n);
  const char **symbol = ZP_NEW_ARRAY(set->arena, const char *, n);
  for (int i = 0; i < n; i++) {
    program[i] = set->kernels.data[i].program;
    symbol[i] = set->kernels.data[i].symbol;
  }
  zp_module_spec spec = {.dtype = set->dtype, .count = n, .program = program, .symbol = symbol};
  spec.cpu = cpu;
  spec.features = features;
  zp_compiled_module module = {0};
  const char *base = kept ? zp_kept_base(set->arena, kept, &spec) : NULL;
  if (!base || !zp_kept_read(set->arena, base, &module)) {
    if (!zp_module_compile(set->arena, &spec, &module, error)) return false;
    if (base && !zp_kept_write(set->arena, base, &module, error)) return false;
  }
  if (ir_path && !zp_write_file(set->arena, ir_path, module.ir, strlen(module.ir), error)) return false;
  return zp_write_file(set->arena, object_path, module.object, module.object_bytes, error);
}
