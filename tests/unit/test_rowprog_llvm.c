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

static const int64_t small[] = {1, 5, 12}, large[] = {17, 96, 768}, wide[] = {3073};

Test(rowprog_llvm, f64_small) { check_sizes(small, 3, ZPK_F64, NULL, NULL, f64_bound); }
Test(rowprog_llvm, f64_large) { check_sizes(large, 3, ZPK_F64, NULL, NULL, f64_bound); }
Test(rowprog_llvm, f64_wide) { check_sizes(wide, 1, ZPK_F64, NULL, NULL, f64_bound); }
Test(rowprog_llvm, f32_small) { check_sizes(small, 3, ZPK_F32, NULL, NULL, f32_bound); }
Test(rowprog_llvm, f32_large) { check_sizes(large, 3, ZPK_F32, NULL, NULL, f32_bound); }
Test(rowprog_llvm, f32_wide) { check_sizes(wide, 1, ZPK_F32, NULL, NULL, f32_bound); }

Test(rowprog_llvm, bf16_small) { check_sizes(small, 3, ZPK_BF16, NULL, NULL, bf16_bound); }
Test(rowprog_llvm, bf16_large) { check_sizes(large, 3, ZPK_BF16, NULL, NULL, bf16_bound); }
Test(rowprog_llvm, bf16_wide) { check_sizes(wide, 1, ZPK_BF16, NULL, NULL, bf16_bound); }

Test(rowprog_llvm, f16_small) { check_sizes(small, 3, ZPK_F16, NULL, NULL, f16_bound); }
Test(rowprog_llvm, f16_large) { check_sizes(large, 3, ZPK_F16, NULL, NULL, f16_bound); }
Test(rowprog_llvm, f16_wide) { check_sizes(wide, 1, ZPK_F16, NULL, NULL, f16_bound); }

/* Commands that compile nothing do not load LLVM. */
Test(rowprog_llvm, opened_by_the_first_module) {
  cr_expect_not(has_llvm());
  check_sizes(small, 1, ZPK_F64, NULL, NULL, f64_bound);
  cr_expect(has_llvm());
}
