/* SPDX-License-Identifier: Apache-2.0 */
/* GPipe (arXiv 1811.06965): all forwards, then all backwards, both in the order of the micro-batches: the first
 * backward of a step is then micro-batch 0, whose gradients overwrite those of the step before. Everything is in flight
 * at the turn. */
#include <zplan/schedule.h>

#include <assert.h>

int64_t zp_order_gpipe(int64_t microbatches, zp_action *out) {
  assert(microbatches >= 1 && out);
  for (int64_t i = 0; i < microbatches; i++) *out++ = zp_act_of(ZP_ACT_F, 0, i);
  for (int64_t i = 0; i < microbatches; i++) *out++ = zp_act_of(ZP_ACT_B, 0, i);
  return 2 * microbatches;
}
