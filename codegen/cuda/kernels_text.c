/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel set as CUDA C: includes, then kernel after kernel. */
#include "kernel_set.h"

#include <assert.h>
#include "text.h"
#include "wrap.h"

static bool check_operands(const zp_kernel_set *set, const zp_kernel *k, const char **error) {
  int most = k->program->n_in;
  if (k->program->n_out > most) most = k->program->n_out;
  if (k->program->n_partial > most) most = k->program->n_partial;
  if (most <= ZPD_OPERANDS) return true;
  *error = zp_format(set->arena, "the kernel %s (%s) has %d operands of one kind; kernels for GPUs have at most %d",
                     k->symbol, k->about, most, ZPD_OPERANDS);
  return false;
}

int zp_kernels_cuda_tiles(const zp_kernel_set *set, int index) {
  zp_cuda_text t = {.arena = set->arena,
                    .real_bytes = (int)zpk_real_bytes(set->dtype),
                    .elem_bytes = (int)zpk_bytes(set->dtype),
                    .program = set->kernels.data[index].program};
  zp_cuda_choose_sharing(&t);
  return zp_cuda_tiles(&t);
}

const char *zp_kernels_cuda_text(const zp_kernel_set *set, const char **error) {
  assert(error);
  zp_cuda_text t = {.arena = set->arena,
                    .out = zp_buf_new(set->arena),
                    .real_bytes = (int)zpk_real_bytes(set->dtype),
                    .elem_bytes = (int)zpk_bytes(set->dtype)};
  zp_buf_line(
      &t.out,
      "/* Row kernels: warps take tiles of columns, where a row is reduced whole rows; of wide ones, a block. */");
  zp_buf_line(&t.out, "#include \"zpd_device.h\"");
  zp_buf_line(&t.out, "#include \"zpd_rows.cuh\"");
  for (int i = 0; i < set->kernels.len; i++) {
    const zp_kernel *k = &set->kernels.data[i];
    if (!check_operands(set, k, error)) return NULL;
    zp_buf_line(&t.out, "");
    zp_cuda_print_kernel(&t, k->program, k->symbol, k->about);
  }
  return zp_wrap(set->arena, t.out.data);
}
