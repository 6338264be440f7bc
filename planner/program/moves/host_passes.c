/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of the update over state that is off the device: what they read and write of an element. Most optimizers have
 * one; LAMB and Adafactor have another one before it (lengths_offloaded.c). */
#include "strategy.h"

/* LAMB's first pass makes the moments. */
static bool makes_moments(const zp_lowered *l) {
  return zp_optimizer_facts(&l->spec->train)->needs == ZP_NEEDS_LENGTHS;
}

zp_move_when zp_gradients_come_down(const zp_lowered *l) {
  return makes_moments(l) ? ZP_WHEN_AT_HOST_LENGTHS : ZP_WHEN_AT_HOST_UPDATE;
}

/* Weights of the state are as wide as a moment. */
zp_host_pass zp_host_lengths(const zp_lowered *l) {
  int moments = zp_update_state_bytes(l) - l->average_bytes - l->stat_bytes;
  if (!zp_needs_lengths(zp_optimizer_facts(&l->spec->train))) return (zp_host_pass){0, 0};
  return makes_moments(l) ? (zp_host_pass){l->stat_bytes + moments, moments} : (zp_host_pass){l->stat_bytes, 0};
}

zp_host_pass zp_host_update(const zp_lowered *l) {
  int all = zp_update_state_bytes(l);
  return (zp_host_pass){all, makes_moments(l) ? l->stat_bytes + l->average_bytes : all};
}

int64_t zp_state_pages(const zp_move_scope *x) {
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER);
  return x->together ? gone : zp_round_up(gone, ZP_PAGE_BYTES / 2);
}
