/* SPDX-License-Identifier: Apache-2.0 */
/* The arena on the GPU: one allocation, exactly as large as the plan says, and the ways into it and out of it. With
 * --check-memory it is filled with a pattern first, as on the host (cpu/arena.c). */
#include "cuda.h"
#include <assert.h>
#include <string.h>

enum { PATTERN = 0xE7, OUT_OF_MEMORY = 2 /* CUDA_ERROR_OUT_OF_MEMORY */ };

void zpr_arena_open(zpr *c, bool check) {
  zpr_device *d = c->state->device;
  size_t bytes = (size_t)c->stage->arena_bytes;
  int result = d->api.allocate(&d->arena, bytes);
  if (result == OUT_OF_MEMORY) {
    size_t available = 0, total = 0;
    d->api.memory_info(&available, &total);
    zpr_fail(c, "Z0822", "cannot get an arena of %zu bytes on GPU %d (%s): %zu of %zu bytes are free", bytes,
             d->ordinal, d->name, available, total);
  }
  zpr_cuda(c, result, "get the arena");
  c->arena = zpr_gpu_host(d->arena);
  d->check = check;
  if (check) zpr_cuda(c, d->api.fill_bytes(d->arena, PATTERN, bytes, d->stream), "fill the arena");
}

void zpr_arena_close(zpr *c) {
  zpr_device *d = c->state->device;
  zpr_cuda_wait(c);
  zpr_cuda(c, d->api.release(d->arena), "free the arena");
  c->arena = NULL;
}

/* Looks from the end, a window at a time. */
int64_t zpr_arena_measured_peak(zpr *c) {
  if (!c->state->device->check) return 0;
  int64_t end = c->stage->arena_bytes;
  while (end > 0) {
    int64_t bytes = end < ZPR_PINNED_BYTES ? end : ZPR_PINNED_BYTES;
    const unsigned char *part = zpr_window_open(c, c->arena + end - bytes, bytes, true);
    int64_t left = bytes;
    while (left > 0 && part[left - 1] == PATTERN) left--;
    zpr_window_close(c);
    if (left > 0) return end - bytes + left;
    end -= bytes;
  }
  return 0;
}

int64_t zpr_device_used_bytes(zpr *c) {
  size_t available = 0, total = 0;
  zpr_cuda(c, c->state->device->api.memory_info(&available, &total), "ask for free memory");
  return (int64_t)(total - available);
}

/* ---- windows ---- */

int64_t zpr_window_bytes(const zpr *c) {
  (void)c;
  return ZPR_PINNED_BYTES;
}

void *zpr_window_open(zpr *c, void *part, int64_t bytes, bool to_read) {
  zpr_device *d = c->state->device;
  d->window = to_read ? 0 : zpr_gpu(part);
  d->window_bytes = bytes;
  if (to_read) zpr_cuda(c, d->api.to_host(d->pinned, zpr_gpu(part), (size_t)bytes, d->stream), "copy from the GPU");
  if (to_read || d->pinned_busy) zpr_cuda_wait(c);
  d->pinned_busy = false;
  return d->pinned;
}

void zpr_window_close(zpr *c) {
  zpr_device *d = c->state->device;
  if (!d->window) return;
  zpr_cuda(c, d->api.to_device(d->window, d->pinned, (size_t)d->window_bytes, d->stream), "copy to the GPU");
  d->pinned_busy = true;
  d->window = 0;
}

/* ---- bytes ---- */

void zpr_copy(zpr *c, void *dst, const void *src, int64_t bytes) {
  assert(bytes >= 0 && ((dst && src) || bytes == 0));
  zpr_device *d = c->state->device;
  if (bytes > 0 && !c->state->rehearses)
    zpr_cuda(c, d->api.copy(zpr_gpu(dst), zpr_gpu(src), (size_t)bytes, d->stream), "copy on the GPU");
}

void zpr_zero(zpr *c, void *dst, int64_t bytes) {
  assert(bytes >= 0 && (dst || bytes == 0));
  zpr_device *d = c->state->device;
  if (bytes > 0 && !c->state->rehearses)
    zpr_cuda(c, d->api.fill_bytes(zpr_gpu(dst), 0, (size_t)bytes, d->stream), "clear memory of the GPU");
}
