/* SPDX-License-Identifier: Apache-2.0 */
/* ZB-H1 (arXiv 2401.10241, section 2.1): 1F1B with backward split. Stage s delays its weight gradients by s
 * micro-batches, so that every stage holds as many micro-batches as the first one of 1F1B, and they fill the waits of
 * the drain. Bubble (p - 1)(F + BI - BW). zp_order_split is shared with ZB-H2. */
#include <zplan/schedule.h>

#include <assert.h>

int64_t zp_order_split(int64_t microbatches, int64_t depth, int64_t delay, zp_action *out) {
  assert(microbatches >= 1 && depth >= 1 && delay >= 0 && out);
  int64_t forward = 0, weights = 0;
  while (forward < depth && forward < microbatches) *out++ = zp_act_of(ZP_ACT_F, 0, forward++);
  for (int64_t inputs = 0; inputs < microbatches; inputs++) {
    *out++ = zp_act_of(ZP_ACT_BI, 0, inputs);
    if (inputs - weights >= delay) *out++ = zp_act_of(ZP_ACT_BW, 0, weights++);
    if (forward < microbatches) *out++ = zp_act_of(ZP_ACT_F, 0, forward++);
  }
  while (weights < microbatches) *out++ = zp_act_of(ZP_ACT_BW, 0, weights++);
  return 3 * microbatches;
}

int64_t zp_order_zb_h1(int pipeline, int stage, int64_t microbatches, zp_action *out) {
  assert(stage >= 0 && stage < pipeline);
  return zp_order_split(microbatches, pipeline - stage, stage, out);
}
