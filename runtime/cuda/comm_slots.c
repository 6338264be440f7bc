/* SPDX-License-Identifier: Apache-2.0 */
/* What is exchanged side by side: slots of an expert group, heads of a context group, and records of 1-bit Adam. By
 * NCCL, or staged. */
#include "cuda.h"

#include <assert.h>

char *zpr_exchange_room(zpr *c, int64_t bytes) {
  zpr_device *d = c->state->device;
  zpr_message_buffer *b = &d->exchange;
  zpr_cuda_wait(c); /* a copy from it may not have ended */
  if (b->bytes < bytes) {
    if (b->memory) zpr_cuda(c, d->api.release_host(b->memory), "free pinned memory of the host");
    *b = (zpr_message_buffer){0};
    zpr_cuda(c, d->api.allocate_host(&b->memory, (size_t)bytes), "get pinned memory of the host for exchanges");
    b->bytes = bytes;
  }
  return b->memory;
}

static void fetch(zpr *c, char *to, const char *from, int64_t bytes) {
  zpr_device *d = c->state->device;
  zpr_cuda(c, d->api.to_host(to, zpr_gpu(from), (size_t)bytes, d->stream), "copy from the GPU");
}

static void put(zpr *c, char *to, const char *from, int64_t bytes) {
  zpr_device *d = c->state->device;
  zpr_cuda(c, d->api.to_device(zpr_gpu(to), from, (size_t)bytes, d->stream), "copy to the GPU");
}

/* ---- slots ---- */

/* What belongs to one sample stands together on both sides, so samples go one after the other. */
void zpr_exchange_slots(zpr *c, zpr_axis axis, bool spread, const void *from, int64_t samples, int64_t experts,
                        int64_t elements, void *to) {
  assert(samples >= 0 && experts >= 1 && elements >= 0);
  int64_t bytes = zpr_axis_group(c, axis).n * experts * elements * zpk_bytes(c->program->dtype);
  const char *in = from;
  char *out = to;
  if (c->state->rehearses) return;
  for (int64_t b = 0; b < samples && bytes > 0; b++, in += bytes, out += bytes) {
    if (c->state->device->nccl) {
      zpr_nccl_exchange_slots(c, axis, spread, in, experts, elements, out);
      continue;
    }
    char *host = zpr_exchange_room(c, 2 * bytes);
    fetch(c, host, in, bytes);
    zpr_cuda_wait(c);
    zpr_host_exchange_slots(c, axis, spread, host, 1, experts, elements, host + bytes);
    put(c, out, host + bytes, bytes);
  }
}

/* ---- records ---- */

/* stride 0: all get the same bytes. */
void zpr_group_exchange(zpr *c, const zpr_group *g, zpr_axis counted_as, const void *send, int64_t stride,
                        int64_t bytes, void *recv) {
  if (bytes == 0) return;
  if (c->state->device->nccl) {
    zpr_nccl_group_exchange(c, g, counted_as, send, stride, bytes, recv);
    return;
  }
  int64_t sent = (g->n - 1) * stride + bytes;
  char *host = zpr_exchange_room(c, sent + g->n * bytes);
  fetch(c, host, send, sent);
  zpr_cuda_wait(c);
  zpr_host_exchange(c, g, counted_as, host, stride, bytes, host + sent);
  put(c, recv, host + sent, g->n * bytes);
}
