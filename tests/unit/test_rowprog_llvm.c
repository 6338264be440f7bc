/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that LLVM makes from row programs for this machine: against the graph's oracle, with strided rows, on
 * every way to cut the rows into chunks. */
#include "rowprog_objects.h"

static bool has_llvm(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096];
  bool found = false;
  cr_assert(maps);
  while (fgets(line, sizeof line, maps)) found |= strstr(line, "libLLVM") != NULL;
  fclose(maps);
  return found;
}

/* Sanitizers see the compiler, not what it compiled: sizes and types that are written differently, each once. */
static void check(const int64_t *sizes, int n_sizes, zpk_dtype dtype, double bound) {
#ifdef __SANITIZE_ADDRESS__
  if (!((dtype == ZPK_BF16 && n_sizes == 3 && sizes[2] > 12) || (dtype == ZPK_F32 && n_sizes == 1) ||
        (dtype == ZPK_F64 && n_sizes == 3 && sizes[2] == 12)))
    cr_skip_test("sanitizers see f64 with few columns, bf16 with many, f32 with more than fit");
#endif
  check_sizes(sizes, n_sizes, dtype, NULL, NULL, bound);
}

/* Types and numbers of columns are decided apart: every type with few columns and with one of the longer ones, the rest
 * with ZPLAN_LONG in the environment (tests/long.sh). */
static void check_when_long(const int64_t *sizes, int n_sizes, zpk_dtype dtype, double bound) {
#ifndef __SANITIZE_ADDRESS__
  if (!getenv("ZPLAN_LONG")) cr_skip_test("a part of tests/long.sh");
#endif
  check(sizes, n_sizes, dtype, bound);
}

static const int64_t small[] = {1, 5, 12}, large[] = {17, 96, 768}, wide[] = {3073};

Test(rowprog_llvm, f64_small) { check(small, 3, ZPK_F64, f64_bound); }
Test(rowprog_llvm, f64_large) { check_when_long(large, 3, ZPK_F64, f64_bound); }
Test(rowprog_llvm, f64_wide) { check(wide, 1, ZPK_F64, f64_bound); }
Test(rowprog_llvm, f32_small) { check(small, 3, ZPK_F32, f32_bound); }
Test(rowprog_llvm, f32_large) { check(large, 3, ZPK_F32, f32_bound); }
Test(rowprog_llvm, f32_wide) { check_when_long(wide, 1, ZPK_F32, f32_bound); }

Test(rowprog_llvm, bf16_small) { check(small, 3, ZPK_BF16, bf16_bound); }
Test(rowprog_llvm, bf16_large) { check_when_long(large, 3, ZPK_BF16, bf16_bound); }
Test(rowprog_llvm, bf16_wide) { check(wide, 1, ZPK_BF16, bf16_bound); }

Test(rowprog_llvm, f16_small) { check(small, 3, ZPK_F16, f16_bound); }
Test(rowprog_llvm, f16_large) { check(large, 3, ZPK_F16, f16_bound); }
Test(rowprog_llvm, f16_wide) { check_when_long(wide, 1, ZPK_F16, f16_bound); }

/* Commands that compile nothing do not load LLVM. */
Test(rowprog_llvm, opened_by_the_first_module) {
  cr_expect_not(has_llvm());
  check_sizes(small, 1, ZPK_F64, NULL, NULL, f64_bound);
  cr_expect(has_llvm());
}
