/* SPDX-License-Identifier: Apache-2.0 */
/* Points in time of a GPU: events in the stream of the units, which the GPU passes when the work before them is done.
 * So the time of a step is that between its begin and the next one's in the stream, and where the host gives work more
 * slowly than the GPU does it, the wait for the host is in it. */
#include "cuda.h"
#include <assert.h>
#include <stdlib.h>

struct zpr_points {
  void *stream; /* of the units; what moves alongside them has another one */
  void *first;  /* of the training step */
  int room;
  void **event; /* [room] */
};

static void new_event(zpr *c, void **event) {
  zpr_cuda(c, c->state->device->api.new_event(event, 0), "make an event for --profile"); /* 0: with times */
}

static void close_points(zpr *c) {
  zpr_device *d = c->state->device;
  if (!d->points) return;
  for (int i = 0; i < d->points->room; i++) d->api.release_event(d->points->event[i]);
  d->api.release_event(d->points->first);
  free(d->points->event);
  free(d->points);
  d->points = NULL;
}

void zpr_points_open(zpr *c, int n) {
  zpr_device *d = c->state->device;
  close_points(c);
  if (n == 0) return;
  struct zpr_points *p = d->points = zpr_alloc(c, 1, sizeof *p);
  p->stream = d->stream;
  p->room = n;
  p->event = zpr_alloc(c, (size_t)n, sizeof *p->event);
  for (int i = 0; i < n; i++) new_event(c, &p->event[i]);
  new_event(c, &p->first);
}

void zpr_point(zpr *c, int i, bool first) {
  zpr_device *d = c->state->device;
  struct zpr_points *p = d->points;
  assert(i >= 0 && i < p->room);
  if (first) zpr_cuda(c, d->api.record(p->first, p->stream), "mark the begin of a step");
  zpr_cuda(c, d->api.record(p->event[i], p->stream), "mark a point in time");
}

/* Milliseconds come as a float, whose steps are 1/16 us after half a second: hence from the begin of the step. */
void zpr_points_read(zpr *c, int n, double *at_ns) {
  zpr_device *d = c->state->device;
  struct zpr_points *p = d->points;
  assert(n >= 0 && n <= p->room);
  if (n > 0) zpr_cuda_wait_event(c, p->event[n - 1], "wait for a point in time");
  for (int i = 0; i < n; i++) {
    float ms = 0;
    zpr_cuda(c, d->api.elapsed(&ms, p->first, p->event[i]), "ask for the time between events");
    at_ns[i] = (double)ms * 1e6;
  }
}
