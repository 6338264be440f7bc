/* 1-bit Adam has no device kernels yet. `zplan build` refuses such a plan for GPUs; whoever calls the runtime without
 * it is told here. */
#include "compress.h"

void zpr_compressed_update(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  (void)blocks, (void)n, (void)rule;
  zpr_fail(c, "Z0852", "1-bit Adam is not run on GPUs: build this plan for CPU ranks");
}
