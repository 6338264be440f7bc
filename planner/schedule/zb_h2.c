/* SPDX-License-Identifier: Apache-2.0 */
/* ZB-H2 (arXiv 2401.10241, section 2.2): twice as many forwards before the first backward, so that no stage waits
 * between its first and its last action when F, BI and BW are equally long. Every stage holds 2 p - 1 micro-batches. */
#include <zplan/schedule.h>

#include <assert.h>

int64_t zp_order_zb_h2(int pipeline, int stage, int64_t microbatches, zp_action *out) {
  assert(stage >= 0 && stage < pipeline);
  return zp_order_split(microbatches, 2 * (int64_t)(pipeline - stage) - 1, 2 * (int64_t)stage, out);
}
