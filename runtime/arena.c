/* The arena of a rank: exactly as large as the plan says, between two guard pages. With --check-memory it is filled
 * with a pattern first, and the highest byte that no longer shows it is the measured peak. 0xE7 is chosen because no
 * ordinary number ends in it: as the last byte of an f32 or f64 it means a magnitude beyond 1e24. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <stdlib.h>
#include <unistd.h>
#include "state.h"

enum { PATTERN = 0xE7, ALIGN = 256 };

struct zpr_arena {
  char *map;
  size_t map_bytes, page;
  bool check;
};

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* The arena ends at the upper guard page (as closely as its alignment lets it): writing one element too far is a fault.
 */
void zpr_arena_open(zpr *c, bool check) {
  zpr_arena *a = c->state->arena = zpr_alloc(c, 1, sizeof *a);
  a->page = (size_t)sysconf(_SC_PAGESIZE);
  a->check = check;
  int64_t bytes = round_up(c->stage->arena_bytes, ALIGN), body = round_up(bytes, (int64_t)a->page);
  a->map_bytes = (size_t)body + 2 * a->page;
  a->map = mmap(NULL, a->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (a->map == MAP_FAILED || mprotect(a->map + a->page, (size_t)body, PROT_READ | PROT_WRITE) != 0)
    zpr_fail(c, "Z0822", "cannot map an arena of %lld bytes: %s", (long long)c->stage->arena_bytes, strerror(errno));
  madvise(a->map + a->page, (size_t)body, MADV_HUGEPAGE); /* only faster; a kernel without it is fine */
  c->arena = a->map + a->page + (body - bytes);
  if (check) memset(c->arena, PATTERN, (size_t)c->stage->arena_bytes);
}

void zpr_arena_close(zpr *c) {
  zpr_arena *a = c->state->arena;
  if (!a) return;
  munmap(a->map, a->map_bytes);
  free(a);
  c->state->arena = NULL;
  c->arena = NULL;
}

int64_t zpr_arena_measured_peak(zpr *c) {
  if (!c->state->arena->check) return 0;
  int64_t end = c->stage->arena_bytes;
  while (end > 0 && (unsigned char)c->arena[end - 1] == PATTERN) end--;
  return end;
}

int64_t zpr_peak_rss_bytes(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return (int64_t)usage.ru_maxrss * 1024;
}
