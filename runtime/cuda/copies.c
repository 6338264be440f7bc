/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between the arena and memory of the host, in a stream for each direction, so that both run alongside kernels.
 *
 * A ticket is the copy's number in its direction, doubled, and the direction. Its event is one of a few that take
 * turns: when it was recorded again, for a later copy of the same stream, whoever waits for it waits longer than
 * needed, never less. */
#include "cuda.h"
#include <stdlib.h>
#include "tier.h"

enum { DOWN, UP, WAYS, EVENTS = 8, NO_TIMING = 2 /* CU_EVENT_DISABLE_TIMING */, NON_BLOCKING = 1 };

struct zpr_copies {
  void *stream[WAYS], *event[WAYS][EVENTS];
  void *given; /* recorded in the stream of kernels: what a copy waits for */
  int64_t n[WAYS];
};

void *zpr_pinned_open(zpr *c, int64_t bytes) {
  void *memory = NULL;
  return c->state->device->api.allocate_host(&memory, (size_t)bytes) == 0 ? memory : NULL;
}

void zpr_pinned_close(zpr *c, void *memory, int64_t bytes) {
  (void)bytes;
  zpr_copies_close(c);
  zpr_cuda(c, c->state->device->api.release_host(memory), "free pinned memory of the host");
}

static struct zpr_copies *open_copies(zpr *c) {
  zpr_device *d = c->state->device;
  if (d->copies) return d->copies;
  struct zpr_copies *k = d->copies = zpr_alloc(c, 1, sizeof *k);
  for (int w = 0; w < WAYS; w++) {
    zpr_cuda(c, d->api.new_stream(&k->stream[w], NON_BLOCKING), "make a stream for copies");
    for (int i = 0; i < EVENTS; i++) zpr_cuda(c, d->api.new_event(&k->event[w][i], NO_TIMING), "make an event");
  }
  zpr_cuda(c, d->api.new_event(&k->given, NO_TIMING), "make an event");
  return k;
}

void zpr_copies_close(zpr *c) {
  zpr_device *d = c->state->device;
  struct zpr_copies *k = d->copies;
  if (!k) return;
  for (int w = 0; w < WAYS; w++) {
    zpr_cuda_wait_stream(c, k->stream[w], "finish the copies");
    for (int i = 0; i < EVENTS; i++) d->api.release_event(k->event[w][i]);
    d->api.release_stream(k->stream[w]);
  }
  d->api.release_event(k->given);
  free(k);
  d->copies = NULL;
}

static void *event_of(const struct zpr_copies *k, int64_t ticket) { return k->event[ticket % 2][ticket / 2 % EVENTS]; }

/* The stream of a copy that may start when the kernels so far, and another copy, have ended. */
static void *begin(zpr *c, struct zpr_copies *k, int way, int64_t after) {
  zpr_device *d = c->state->device;
  zpr_cuda(c, d->api.record(k->given, d->stream), "mark the end of kernels");
  zpr_cuda(c, d->api.stream_waits(k->stream[way], k->given, 0), "let a copy wait for kernels");
  if (after) zpr_cuda(c, d->api.stream_waits(k->stream[way], event_of(k, after), 0), "let a copy wait for another");
  return k->stream[way];
}

static int64_t end(zpr *c, struct zpr_copies *k, int way) {
  int64_t ticket = 2 * ++k->n[way] + way;
  zpr_cuda(c, c->state->device->api.record(event_of(k, ticket), k->stream[way]), "mark the end of a copy");
  return ticket;
}

int64_t zpr_copy_down(zpr *c, void *host, const void *device, int64_t bytes) {
  struct zpr_copies *k = open_copies(c);
  if (bytes <= 0) return 0;
  void *stream = begin(c, k, DOWN, 0);
  zpr_count_move(c, ZPR_DOWN, bytes);
  zpr_cuda(c, c->state->device->api.to_host(host, zpr_gpu(device), (size_t)bytes, stream), "copy to the host");
  return end(c, k, DOWN);
}

int64_t zpr_copy_up(zpr *c, void *device, const void *host, int64_t bytes, int64_t after) {
  struct zpr_copies *k = open_copies(c);
  if (bytes <= 0) return 0;
  void *stream = begin(c, k, UP, after);
  zpr_count_move(c, ZPR_UP, bytes);
  zpr_cuda(c, c->state->device->api.to_device(zpr_gpu(device), host, (size_t)bytes, stream), "copy from the host");
  return end(c, k, UP);
}

void zpr_copy_wait(zpr *c, int64_t ticket) {
  const zpr_device *d = c->state->device;
  if (ticket) zpr_cuda_wait_event(c, event_of(d->copies, ticket), "finish a copy");
}

void zpr_copy_before(zpr *c, int64_t ticket) {
  const zpr_device *d = c->state->device;
  if (ticket) zpr_cuda(c, d->api.stream_waits(d->stream, event_of(d->copies, ticket), 0), "wait for a copy");
}
