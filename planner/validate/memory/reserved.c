/* SPDX-License-Identifier: Apache-2.0 */
/* What the caching allocator of PyTorch has taken from the driver, which is what nvidia-smi shows: blocks go back to a
 * pool and are cut for smaller requests, never joined for larger ones (c10/cuda/CUDACachingAllocator.cpp).
 *
 * Blocks of the micro-batches are small against those that follow them: these take new memory, in the order that the
 * program asks for them. Sizes are rounded as the allocator rounds: 512 bytes; small ones share segments of 2 MiB,
 * those below 10 MiB segments of 20 MiB, larger ones have their own in steps of 2 MiB. Left out: how the small blocks
 * of a micro-batch fall apart. */
#include "software_memory.h"

enum {
  GRAIN = 512,
  SMALL = 1 << 20,
  SMALL_SEGMENT = 2 << 20,
  MIDDLE = 10 << 20,
  MIDDLE_SEGMENT = 20 << 20,
  STEP = 2 << 20
};

static int64_t round_up(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

int64_t zp_reserved_segment(int64_t bytes) {
  if (bytes <= SMALL) return SMALL_SEGMENT;
  return bytes < MIDDLE ? MIDDLE_SEGMENT : round_up(bytes, STEP);
}

/* The smallest free block that holds the request; -1: none. */
static int best_fit(const zp_reserved *r, int64_t bytes) {
  int best = -1;
  for (int i = 0; i < r->n; i++)
    if (r->free[i] >= bytes && (best < 0 || r->free[i] < r->free[best])) best = i;
  return best;
}

void zp_reserved_take(zp_reserved *r, int64_t bytes) {
  if (bytes <= 0) return;
  bytes = round_up(bytes, GRAIN);
  int at = best_fit(r, bytes);
  if (at >= 0) {
    r->free[at] -= bytes;
    return;
  }
  int64_t segment = zp_reserved_segment(bytes);
  r->bytes += segment;
  zp_reserved_give(r, segment - bytes);
}

void zp_reserved_give(zp_reserved *r, int64_t bytes) {
  if (bytes > 0 && r->n < ZP_RESERVED_BLOCKS) r->free[r->n++] = round_up(bytes, GRAIN);
}
