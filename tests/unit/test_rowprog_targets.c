/* SPDX-License-Identifier: Apache-2.0 */
/* Row kernels for other instruction sets than this machine's best. */
#include "rowprog_objects.h"

static const int64_t sizes[] = {17, 96};

/* Every x86 machine has SSE2. */
Test(rowprog_targets, sse2) {
#ifndef __x86_64__
  cr_skip_test("not an x86 machine");
#endif
  check_sizes(sizes, 1, ZPK_F64, "x86-64", "", f64_bound);
  check_sizes(sizes, 1, ZPK_F32, "x86-64", "", f32_bound);
  check_sizes(sizes, 1, ZPK_F16, "x86-64", "", f16_bound);
}

Test(rowprog_targets, avx2) {
#ifdef __x86_64__
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) cr_skip_test("no AVX2 here");
  if (!__builtin_cpu_supports("avx512f") && !getenv("ZPLAN_LONG"))
    cr_skip_test("this machine's best: test_rowprog_llvm");
  check_sizes(sizes, 2, ZPK_F32, "x86-64", "+avx2,+fma", f32_bound);
  check_sizes(sizes, 1, ZPK_F64, "x86-64", "+avx2,+fma", f64_bound);
  if (__builtin_cpu_supports("f16c")) check_sizes(sizes, 2, ZPK_F16, "x86-64", "+avx2,+fma,+f16c", f16_bound);
#else
  cr_skip_test("not an x86 machine");
#endif
}

/* Compiles for machines that this one need not be; the object is not run. */
Test(rowprog_targets, other_targets_compile) {
#ifdef __x86_64__
  static const char *const features[] = {"", "+avx", "+avx2,+fma", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+fma"};
  row_world w = row_world_new(&row_cases[3], 17);
  for (size_t i = 0; i < sizeof features / sizeof *features; i++)
    for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
      zp_kernel_set *set = zp_kernels_new(w.k.arena, (zpk_dtype)dtype);
      for (int n = 0; n < w.graph->nodes.len; n++)
        if (is_fused(&w.graph->nodes.data[n])) zp_kernels_add(set, w.graph, &w.graph->nodes.data[n], "k");
      loaded_set l = load_set(set, "x86-64", features[i]);
      unload_set(&l);
    }
  row_world_free(&w);
#endif
}
