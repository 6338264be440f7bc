/* 1F1B (PipeDream-flush; arXiv 2006.09503, section 3.2): warm-up forwards, then one forward and one backward in turn,
 * then the remaining backwards. A stage holds at most pipeline - stage micro-batches. */
#include <zplan/program.h>

void zp_order_1f1b(int pipeline, int stage, int64_t microbatches, zp_action *out) {
  int64_t warmup = pipeline - 1 - stage, forward = 0, backward = 0;
  if (warmup > microbatches) warmup = microbatches;
  while (forward < warmup) *out++ = (zp_action){true, forward++};
  while (forward < microbatches) {
    *out++ = (zp_action){true, forward++};
    *out++ = (zp_action){false, backward++};
  }
  while (backward < microbatches) *out++ = (zp_action){false, backward++};
}
