/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B (PipeDream-flush; arXiv 2006.09503, section 3.2): warm-up forwards, then one forward and one backward in turn,
 * then the remaining backwards. A stage holds at most pipeline - stage micro-batches. */
#include <zplan/schedule.h>

#include <assert.h>

void zp_order_1f1b(int pipeline, int stage, int64_t microbatches, zp_action *out) {
  assert(stage >= 0 && stage < pipeline && microbatches >= 1 && out);
  int64_t warmup = pipeline - 1 - stage, forward = 0, backward = 0;
  if (warmup > microbatches) warmup = microbatches;
  while (forward < warmup) *out++ = zp_act_of(ZP_ACT_F, 0, forward++);
  while (forward < microbatches) {
    *out++ = zp_act_of(ZP_ACT_F, 0, forward++);
    *out++ = zp_act_of(ZP_ACT_B, 0, backward++);
  }
  while (backward < microbatches) *out++ = zp_act_of(ZP_ACT_B, 0, backward++);
}
