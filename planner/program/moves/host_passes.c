/* Passes of the update over state that is off the device: what they read and write of an element. Most optimizers have
 * one; LAMB and Adafactor have another one before it (lengths_away.c). */
#include "strategy.h"

static bool is_lamb(const zp_lowered *l) { return l->spec->train.optimizer == ZP_OPT_LAMB; }

bool zp_asks_for_lengths(const zp_train *train) {
  return train->optimizer == ZP_OPT_LAMB || train->optimizer == ZP_OPT_ADAFACTOR;
}

zp_move_when zp_gradients_come_down(const zp_lowered *l) {
  return is_lamb(l) ? ZP_WHEN_AT_HOST_LENGTHS : ZP_WHEN_AT_HOST_UPDATE;
}

/* Weights of the state are as wide as a moment. */
zp_host_pass zp_host_lengths(const zp_lowered *l) {
  int moments = zp_update_state_bytes(l) - l->average_bytes - l->stat_bytes;
  if (!zp_asks_for_lengths(&l->spec->train)) return (zp_host_pass){0, 0};
  return is_lamb(l) ? (zp_host_pass){l->stat_bytes + moments, moments} : (zp_host_pass){l->stat_bytes, 0};
}

zp_host_pass zp_host_update(const zp_lowered *l) {
  int all = zp_update_state_bytes(l);
  return (zp_host_pass){all, is_lamb(l) ? l->stat_bytes + l->average_bytes : all};
}

int64_t zp_state_pages(const zp_move_scope *x) {
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER);
  return x->together ? gone : zp_round_up(gone, ZP_PAGE_BYTES / 2);
}
