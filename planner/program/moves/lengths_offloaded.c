/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths of whole tensors, which LAMB and Adafactor need before any element moves, of state that is off the device: a
 * pass of its own over it, before the update's (runtime/optimizer/host_lamb.c, host_adafactor.c).
 *
 * LAMB makes its moments in this pass and keeps them, and the update reads everything again: a disk reads 6 numbers of
 * an element and writes 3, where Adam's reads 3. Updates kept in memory of the host would save reading moments again
 * for a number an element of memory, which state is on disks for want of; to keep a piece until its tensors' lengths
 * are known would make all ranks meet at every piece.
 *
 * Adafactor's statistics stay on the device, which sums squares of the gradients that it has, and of their updates. Of
 * gradients off the device the host does, in two passes; of state it reads the weights. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) {
  return zp_eighths_offloaded(x, ZP_STATE_OPTIMIZER) > 0 &&
         zp_needs_lengths(zp_optimizer_facts(&x->lowered->spec->train));
}

static void make_state(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_host_pass pass = zp_host_lengths(x->lowered);
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER), pages = zp_state_pages(x);
  zp_move move = zp_move_begin(x, &zp_lengths_offloaded, ZP_MOVE_OPTIMIZER, ZP_WHEN_AT_HOST_LENGTHS, ZP_WAIT_AT_ONCE);
  zp_emit_copy(x, &move, ZP_QUEUE_HOST_MEMORY, gone, pass.read + pass.written, emit, user);
  if (!zp_on_disk(x, ZP_STATE_OPTIMIZER)) return;
  zp_emit_copy(x, &move, ZP_QUEUE_READ, pages, pass.read, emit, user);
  if (pass.written > 0) zp_emit_copy(x, &move, ZP_QUEUE_WRITE, pages, pass.written, emit, user);
}

/* LAMB takes them once, wherever they are, Adafactor those off the device twice. Gradients on the device whose state is
 * not it reads there. */
static void make_gradients(const zp_move_scope *x, zp_on_move *emit, void *user) {
  int64_t state = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER), gone = zp_scope_offloaded(x, ZP_STATE_GRADIENTS);
  int bytes = x->lowered->grad_bytes;
  zp_move move = zp_move_begin(x, &zp_lengths_offloaded, ZP_MOVE_GRADIENTS, ZP_WHEN_AT_HOST_LENGTHS, ZP_WAIT_AT_ONCE);
  if (zp_optimizer_facts(&x->lowered->spec->train)->needs == ZP_NEEDS_LENGTHS) {
    zp_emit_copy(x, &move, ZP_QUEUE_HOST_MEMORY, state, bytes, emit, user);
    return;
  }
  zp_emit_copy(x, &move, ZP_QUEUE_HOST_MEMORY, gone, 2 * bytes, emit, user);
  if (zp_on_disk(x, ZP_STATE_GRADIENTS)) zp_emit_copy(x, &move, ZP_QUEUE_READ, gone, 2 * bytes, emit, user);
  move.when = ZP_WHEN_AT_DEVICE_UPDATE;
  zp_emit_copy(x, &move, ZP_QUEUE_DEVICE_MEMORY, state - gone, 2 * bytes, emit, user);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  make_state(x, emit, user);
  make_gradients(x, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "%s: lengths of tensors before the update, in a pass over what is %s",
                   zp_optimizer_name(x->lowered->spec->train.optimizer),
                   zp_on_disk(x, ZP_STATE_OPTIMIZER) ? "on disks, which read it twice" : "on the host");
}

/* The device's pieces of parameters would have to come up for every pass. What 1-bit LAMB does once its variance is
 * frozen the host has no pass for. */
static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  const char *const *not_with = zp_optimizer_facts(&spec->train)->not_with;
  if (c->compress && c->home[ZP_STATE_OPTIMIZER].eighths > 0 && not_with[ZP_LIMIT_ONE_BIT_OFFLOAD])
    return not_with[ZP_LIMIT_ONE_BIT_OFFLOAD];
  if (c->home[ZP_STATE_GRADIENTS].eighths > c->home[ZP_STATE_OPTIMIZER].eighths ||
      c->home[ZP_STATE_PARAMS].eighths > c->home[ZP_STATE_OPTIMIZER].eighths)
    return not_with[ZP_LIMIT_BEYOND_STATE];
  return NULL;
}

const zp_move_strategy zp_lengths_offloaded = {
    .name = "lengths offloaded",
    .applies = applies,
    .make = make,
    .explain = explain,
    .refuses = refuses,
};
