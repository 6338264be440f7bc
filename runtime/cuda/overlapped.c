/* SPDX-License-Identifier: Apache-2.0 */
/* What moves alongside the units: with ZeRO 2 and 3 the next unit's parameters come while a unit computes, and
 * gradients of the one before go; with ZeRO 0 and 1 the gradients of the last micro-batch are summed over the data
 * ranks. That has a lane of its own; events keep it and the units apart:
 *
 *   units       ... wait(moved[b])  unit in buffer b      record(computed[b]) ...
 *   alongside      ... wait(computed[b])  gather or scatter  record(moved[b])    ...
 *
 * So a buffer is never written while it is read. Everything that the two lanes share besides the rings (shards, NCCL's
 * data group and its scratch memory) is kept in order by zpr_overlapped_join, before and after the micro-batches.
 * Staged messages make the host wait for what they move: little goes on alongside them then. */
#include "cuda.h"
#include <assert.h>
#include <stdlib.h>

enum { RINGS = 2, BUFFERS = 2 };

typedef struct zpr_overlapped {
  zpr_lane other; /* the lane that is not in use: the device has the other one */

  void *computed[RINGS][BUFFERS], *moved[RINGS][BUFFERS];
  void *joined[2];
} overlapped;

static void *new_event(zpr *c) {
  void *event = NULL;
  zpr_cuda(c, c->state->device->api.new_event(&event, 2), "make an event"); /* CU_EVENT_DISABLE_TIMING */
  return event;
}

void zpr_cuda_overlapped_open(zpr *c) {
  zpr_device *d = c->state->device;
  if (!c->program->moves_overlap) return;
  overlapped *b = d->overlapped = zpr_alloc(c, 1, sizeof *b);
  zpr_cuda(c, d->api.new_stream(&b->other.stream, 1), "make a stream for what moves"); /* CU_STREAM_NON_BLOCKING */
  zpr_cuda(c, d->api.allocate_host((void **)&b->other.pinned, ZPR_PINNED_BYTES), "get pinned memory of the host");
  for (int r = 0; r < RINGS; r++)
    for (int i = 0; i < BUFFERS; i++) {
      b->computed[r][i] = new_event(c);
      b->moved[r][i] = new_event(c);
    }
  for (int i = 0; i < 2; i++) b->joined[i] = new_event(c);
}

void zpr_cuda_overlapped_close(zpr *c) {
  zpr_device *d = c->state->device;
  overlapped *b = d->overlapped;
  if (!b) return;
  for (int r = 0; r < RINGS; r++)
    for (int i = 0; i < BUFFERS; i++) {
      d->api.release_event(b->computed[r][i]);
      d->api.release_event(b->moved[r][i]);
    }
  for (int i = 0; i < 2; i++) d->api.release_event(b->joined[i]);
  d->api.release_stream(b->other.stream);
  d->api.release_host(b->other.pinned);
  free(b);
  d->overlapped = NULL;
}

static void wait_for(zpr *c, void *stream, void *event) {
  zpr_cuda(c, c->state->device->api.stream_waits(stream, event, 0), "let one stream wait for the other");
}

static void record(zpr *c, void *event, void *stream) {
  zpr_cuda(c, c->state->device->api.record(event, stream), "mark a place in a stream");
}

/* Everything that the runtime starts goes to the device's lane; products stay in the stream of the units. */
static void change_lanes(zpr *c) {
  zpr_device *d = c->state->device;
  overlapped *b = d->overlapped;
  zpr_lane now = {d->stream, d->pinned, d->pinned_busy};
  d->stream = b->other.stream;
  d->pinned = b->other.pinned;
  d->pinned_busy = b->other.pinned_busy;
  b->other = now;
}

void zpr_overlapped(zpr *c, zpr_ring ring, int64_t buffer) {
  assert(ring <= ZPR_GRAD_RING && (buffer == 0 || buffer == 1));
  overlapped *b = c->state->device->overlapped;
  change_lanes(c);
  wait_for(c, c->state->device->stream, b->computed[ring][buffer]);
}

void zpr_overlapped_end(zpr *c, zpr_ring ring, int64_t buffer) {
  assert(ring <= ZPR_GRAD_RING && (buffer == 0 || buffer == 1));
  overlapped *b = c->state->device->overlapped;
  record(c, b->moved[ring][buffer], c->state->device->stream);
  change_lanes(c);
}

void zpr_ring_wait(zpr *c, zpr_ring ring, int64_t buffer) {
  assert(ring <= ZPR_GRAD_RING && (buffer == 0 || buffer == 1));
  wait_for(c, c->state->device->stream, c->state->device->overlapped->moved[ring][buffer]);
}

void zpr_ring_done(zpr *c, zpr_ring ring, int64_t buffer) {
  assert(ring <= ZPR_GRAD_RING && (buffer == 0 || buffer == 1));
  record(c, c->state->device->overlapped->computed[ring][buffer], c->state->device->stream);
}

void zpr_overlapped_join(zpr *c) {
  zpr_device *d = c->state->device;
  overlapped *b = d->overlapped;
  if (!b) return;
  record(c, b->joined[0], d->stream);
  record(c, b->joined[1], b->other.stream);
  wait_for(c, d->stream, b->joined[1]);
  wait_for(c, b->other.stream, b->joined[0]);
}
