/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between members of a context group while units compute: by NCCL in a stream of their own, or staged, which
 * makes the host wait. Two events keep the stream and that of the units apart:
 *
 *   units      ... record(given[i])  compute ...            wait(arrived[i]) ...
 *   transfers      wait(given[i])  send and receive  record(arrived[i])      ...
 *
 * Members start them in one order, and a group call has both directions, so none waits for another one's. */
#include <assert.h>
#include <stdlib.h>
#include "nccl.h"

typedef struct zpr_ring_stream {
  void *stream, *given[ZPR_TRANSFERS], *arrived[ZPR_TRANSFERS];
} ring_stream;

void zpr_nccl_open_ring(zpr *c) {
  zpr_device *d = c->state->device;
  if (!c->program->context_ring) return;
  ring_stream *r = d->nccl->ring = zpr_alloc(c, 1, sizeof *r);
  zpr_cuda(c, d->api.new_stream(&r->stream, 1), "make a stream for messages"); /* CU_STREAM_NON_BLOCKING */
  for (int i = 0; i < ZPR_TRANSFERS; i++) {
    zpr_cuda(c, d->api.new_event(&r->given[i], 2), "make an event"); /* CU_EVENT_DISABLE_TIMING */
    zpr_cuda(c, d->api.new_event(&r->arrived[i], 2), "make an event");
  }
}

void zpr_nccl_close_ring(zpr *c) {
  zpr_device *d = c->state->device;
  ring_stream *r = d->nccl->ring;
  if (!r) return;
  for (int i = 0; i < ZPR_TRANSFERS; i++) {
    d->api.release_event(r->given[i]);
    d->api.release_event(r->arrived[i]);
  }
  d->api.release_stream(r->stream);
  free(r);
}

static void by_nccl(zpr *c, int i, const zpr_transfer *t) {
  zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  const ring_stream *r = d->nccl->ring;
  zpr_cuda(c, d->api.record(r->given[i], d->stream), "mark work as given");
  zpr_cuda(c, d->api.stream_waits(r->stream, r->given[i], 0), "wait for the units");
  zpr_nccl_check(c, nccl->group_start(), "pass keys on");
  if (t->in_bytes > 0)
    zpr_nccl_check(c, nccl->receive(t->in, (size_t)t->in_bytes, NCCL_U8, t->from, d->nccl->context, r->stream),
                   "receive keys");
  if (t->out_bytes > 0)
    zpr_nccl_check(c, nccl->send(t->out, (size_t)t->out_bytes, NCCL_U8, t->to, d->nccl->context, r->stream),
                   "send keys");
  zpr_nccl_check(c, nccl->group_end(), "pass keys on");
  zpr_comm_count(c, ZPR_CONTEXT, t->out_bytes, zpr_axis_group(c, ZPR_CONTEXT).rank[t->to]);
  zpr_cuda(c, d->api.record(r->arrived[i], r->stream), "mark a message as received");
}

static void staged(zpr *c, int i, const zpr_transfer *t) {
  zpr_device *d = c->state->device;
  char *host = zpr_exchange_room(c, t->out_bytes + t->in_bytes);
  zpr_transfer there = *t;
  there.out = host, there.in = host + t->out_bytes;
  zpr_cuda(c, d->api.to_host(host, zpr_gpu(t->out), (size_t)t->out_bytes, d->stream), "copy from the GPU");
  zpr_cuda_wait(c);
  zpr_host_transfer_start(c, i, &there);
  zpr_host_transfer_wait(c, i);
  zpr_cuda(c, d->api.to_device(zpr_gpu(t->in), there.in, (size_t)t->in_bytes, d->stream), "copy to the GPU");
}

void zpr_transfer_start(zpr *c, int i, const zpr_transfer *t) {
  assert(i >= 0 && i < ZPR_TRANSFERS && t->out_bytes >= 0 && t->in_bytes >= 0);
  if (c->state->rehearses) return;
  if (c->state->device->nccl)
    by_nccl(c, i, t);
  else
    staged(c, i, t);
}

void zpr_transfer_wait(zpr *c, int i) {
  zpr_device *d = c->state->device;
  assert(i >= 0 && i < ZPR_TRANSFERS);
  if (c->state->rehearses || !d->nccl) return; /* staged: the stream is in order */
  const ring_stream *r = d->nccl->ring;
  zpr_cuda(c, d->api.stream_waits(d->stream, r->arrived[i], 0), "wait for keys");
}
