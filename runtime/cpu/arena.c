/* SPDX-License-Identifier: Apache-2.0 */
/* The arena of a rank: exactly as large as the plan says, between two guard pages. With --check-memory it is filled
 * with a pattern first, and the highest byte that no longer shows it is the measured peak. 0xE7 is chosen because no
 * ordinary number ends in it: as the last byte of an f32 or f64 it means a magnitude beyond 1e24. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <stdlib.h>
#include <unistd.h>
#include "arena.h"
#include "blas.h"
#include "device.h"
#include "state.h"

enum { PATTERN = 0xE7, ALIGN = 256 };

struct zpr_device {
  char *map;
  size_t map_bytes, page;
  bool check;
};

void zpr_device_open(zpr *c) {
  zpr_error error = {0};
  if (c->state->options.comm)
    zpr_error_set(&error, "Z0853", "--comm is for trainers of GPUs: this one was built for CPU ranks");
  if (c->state->options.sync)
    zpr_error_set(&error, "Z0851", "--sync is for trainers of GPUs: this one was built for CPU ranks");
  zpr_agree(c, &error);
  zpr_blas_open(c);
  c->state->device = zpr_alloc(c, 1, sizeof *c->state->device);
}

/* Nothing is loaded late, and MPI has connected the ranks. */
void zpr_prepare(zpr *c) { (void)c; }

void zpr_device_close(zpr *c) {
  free(c->state->device);
  c->state->device = NULL;
}

/* Libraries of the host say by name and kernels what they are (zpr_device_describe). */
void zpr_device_products(zpr *c, zpr_products_used *used) {
  (void)c;
  *used = (zpr_products_used){0};
}

bool zpr_device_product_text(zpr *c, int i, char *text, size_t size) {
  (void)c, (void)i, (void)text, (void)size;
  return false;
}

void zpr_device_describe(zpr *c, zpr_device_text *text) {
  snprintf(text->device, sizeof text->device, "threads per rank %d", zpr_threads(c));
  zpr_blas_describe(c->program->dtype, text->products, sizeof text->products);
  zpr_blas_warning(c->program->dtype, text->warning, sizeof text->warning);
}

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* The arena ends at the upper guard page (as closely as its alignment lets it): writing one element too far is a
 * fault. */
void zpr_arena_open(zpr *c, bool check) {
  zpr_device *a = c->state->device;
  a->page = (size_t)sysconf(_SC_PAGESIZE);
  a->check = check;
  int64_t bytes = round_up(c->stage->arena_bytes, ALIGN), body = round_up(bytes, (int64_t)a->page);
  a->map_bytes = (size_t)body + 2 * a->page;
  a->map = mmap(NULL, a->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (a->map == MAP_FAILED || mprotect(a->map + a->page, (size_t)body, PROT_READ | PROT_WRITE) != 0)
    zpr_fail(c, "Z0822", "cannot map an arena of %lld bytes: %s", (long long)c->stage->arena_bytes, strerror(errno));
  madvise(a->map + a->page, (size_t)body, MADV_HUGEPAGE); /* only faster; a kernel without it is fine */
  c->arena = a->map + a->page + (body - bytes);
  if (check) zpr_arena_forget(c->arena, c->stage->arena_bytes);
}

void zpr_arena_close(zpr *c) {
  munmap(c->state->device->map, c->state->device->map_bytes);
  c->arena = NULL;
}

int64_t zpr_arena_measured_peak(zpr *c) {
  return c->state->device->check ? zpr_arena_written(c->arena, c->stage->arena_bytes) : 0;
}

int64_t zpr_device_used_bytes(zpr *c) {
  (void)c;
  return zpr_peak_rss_bytes();
}

void zpr_arena_forget(void *part, int64_t bytes) { memset(part, PATTERN, (size_t)bytes); }

/* A block whose bytes equal their successors, and whose last one is the pattern, was not written: memcmp takes a
 * thirtieth of the time of a loop over bytes. */
int64_t zpr_arena_written(const void *part, int64_t bytes) {
  enum { BLOCK = 1024 };
  const unsigned char *at = part;
  while (bytes >= BLOCK && at[bytes - 1] == PATTERN &&
         memcmp(at + bytes - BLOCK, at + bytes - BLOCK + 1, BLOCK - 1) == 0)
    bytes -= BLOCK;
  while (bytes > 0 && at[bytes - 1] == PATTERN) bytes--;
  return bytes;
}

/* The arena is here: a window is the place itself. */
int64_t zpr_window_bytes(const zpr *c) {
  (void)c;
  return INT64_MAX;
}

void *zpr_window_open(zpr *c, void *part, int64_t bytes, bool to_read) {
  (void)c, (void)bytes, (void)to_read;
  return part;
}

void zpr_window_close(zpr *c) { (void)c; }
