/* The kernels that LLVM makes from row programs for this machine: against the graph's oracle, with strided rows, on
 * every way to cut the rows into chunks. */
#include "rowprog_objects.h"

static const int64_t small[] = {1, 5, 12}, large[] = {17, 96, 768}, wide[] = {3073};

Test(rowprog_llvm, f64_small) { check_sizes(small, 3, 8, NULL, NULL, f64_bound); }
Test(rowprog_llvm, f64_large) { check_sizes(large, 3, 8, NULL, NULL, f64_bound); }
Test(rowprog_llvm, f64_wide) { check_sizes(wide, 1, 8, NULL, NULL, f64_bound); }
Test(rowprog_llvm, f32_small) { check_sizes(small, 3, 4, NULL, NULL, f32_bound); }
Test(rowprog_llvm, f32_large) { check_sizes(large, 3, 4, NULL, NULL, f32_bound); }
Test(rowprog_llvm, f32_wide) { check_sizes(wide, 1, 4, NULL, NULL, f32_bound); }
