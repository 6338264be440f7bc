/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of the emulated GPU: allocations, addresses, copies and fills. */
#define _DEFAULT_SOURCE /* mincore */
#include "emulator.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 256, ALIGN = 256, FRESH = 0xFF /* NaN */ };
#define FIRST_ADDRESS ((gpu_pointer)1 << 52)
#define GAP ((gpu_pointer)1 << 32)

typedef struct allocation {
  gpu_pointer at;
  size_t bytes, map_bytes;
  char *map, *memory;
} allocation;

static allocation allocations[MOST];
static gpu_pointer next_address = FIRST_ADDRESS;

typedef struct pinned_block {
  char *memory;
  size_t bytes;
} pinned_block;
static pinned_block pinned[MOST];

/* Managed memory: host and device have one address for it. */
static pinned_block managed[MOST];
static size_t in_use; /* bytes of the device */

/* ---- addresses ---- */

static allocation *find(gpu_pointer at, size_t bytes) {
  for (int i = 0; i < MOST; i++) {
    allocation *a = &allocations[i];
    if (a->map && at >= a->at && at - a->at <= a->bytes && bytes <= a->bytes - (at - a->at)) return a;
  }
  return NULL;
}

void *emu_host(gpu_pointer at, size_t bytes) {
  const allocation *a = find(at, bytes);
  return a ? a->memory + (at - a->at) : NULL;
}

bool emu_translate(gpu_pointer *word) {
  if (*word < FIRST_ADDRESS || *word >= next_address) return true;
  void *host = emu_host(*word, 0);
  *word = (gpu_pointer)(uintptr_t)host;
  return host != NULL;
}

static bool lies_in(const pinned_block blocks[MOST], uintptr_t at, size_t bytes) {
  for (int i = 0; i < MOST; i++) {
    uintptr_t begin = (uintptr_t)blocks[i].memory;
    if (begin && at >= begin && at - begin <= blocks[i].bytes && bytes <= blocks[i].bytes - (at - begin)) return true;
  }
  return false;
}

bool emu_is_pinned(const void *memory, size_t bytes) { return lies_in(pinned, (uintptr_t)memory, bytes); }

/* Between the two bounds lie programs, heaps and stacks of Linux; below them what two small numbers in one word look
 * like, where AddressSanitizer has memory of its own. */
bool emu_is_foreign(gpu_pointer word) {
  const gpu_pointer lowest = (gpu_pointer)1 << 45, highest = (gpu_pointer)1 << 47;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)word;
  unsigned char resident;
  if (word < lowest || word >= highest || lies_in(managed, at, 0) || lies_in(pinned, at, 0)) return false;
  return mincore((void *)(at / page * page), 1, &resident) == 0;
}

/* ---- allocations ---- */

/* As large as the machine's memory, unless trouble is asked for. */
static size_t size_of_device(void) {
  size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  long long asked = emu_trouble("memory", -1);
  return asked < 0 ? all : (size_t)asked > in_use ? (size_t)asked : in_use;
}

/* The memory ends at a page that faults, as closely as its alignment lets it. */
EMU_EXPORT(cuMemAlloc_v2, (gpu_pointer * memory, size_t bytes));
int cuMemAlloc_v2(gpu_pointer *memory, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes == 0 || bytes > SIZE_MAX / 2) return EMU_INVALID_VALUE;
  if (bytes > size_of_device() - in_use) return EMU_OUT_OF_MEMORY;
  size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN, body = (room + page - 1) / page * page;
  allocation *a = NULL;
  for (int i = 0; i < MOST && !a; i++)
    if (!allocations[i].map) a = &allocations[i];
  if (!a) return EMU_OUT_OF_MEMORY;
  char *map = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return EMU_OUT_OF_MEMORY;
  mprotect(map + body, page, PROT_NONE);
  *a = (allocation){next_address, bytes, body + page, map, map + body - room};
  memset(a->memory, FRESH, bytes);
  in_use += bytes;
  next_address += (bytes + GAP - 1) / GAP * GAP + GAP;
  *memory = a->at;
  return EMU_SUCCESS;
}

EMU_EXPORT(cuMemFree_v2, (gpu_pointer memory));
int cuMemFree_v2(gpu_pointer memory) {
  int result = emu_run_all();
  allocation *a = find(memory, 0);
  if (!a || a->at != memory) return EMU_INVALID_VALUE;
  munmap(a->map, a->map_bytes);
  in_use -= a->bytes;
  *a = (allocation){0};
  return result;
}

EMU_EXPORT(cuMemAllocHost_v2, (void **memory, size_t bytes));
int cuMemAllocHost_v2(void **memory, size_t bytes) {
  for (int i = 0; i < MOST; i++) {
    if (pinned[i].memory) continue;
    void *block = NULL; /* a real one begins at a page, too */
    if (posix_memalign(&block, (size_t)sysconf(_SC_PAGESIZE), bytes ? bytes : 1) != 0) return EMU_OUT_OF_MEMORY;
    pinned[i] = (pinned_block){block, bytes};
    *memory = pinned[i].memory;
    return *memory ? EMU_SUCCESS : EMU_OUT_OF_MEMORY;
  }
  return EMU_OUT_OF_MEMORY;
}

EMU_EXPORT(cuMemFreeHost, (void *memory));
int cuMemFreeHost(void *memory) {
  int result = emu_run_all();
  for (int i = 0; i < MOST; i++) {
    if (!memory || pinned[i].memory != memory) continue;
    free(memory);
    pinned[i] = (pinned_block){0};
    return result;
  }
  return EMU_INVALID_VALUE;
}

EMU_EXPORT(cuMemGetInfo_v2, (size_t * available, size_t *total));
int cuMemGetInfo_v2(size_t *available, size_t *total) {
  size_t free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  *total = size_of_device();
  *available = emu_trouble("memory", -1) < 0 ? free_bytes : *total - in_use;
  return EMU_SUCCESS;
}

/* For tests of kernels: as ordinary memory of the host, in which kernels find what the host has put there. */
EMU_EXPORT(cuMemAllocManaged, (gpu_pointer * memory, size_t bytes, unsigned flags));
int cuMemAllocManaged(gpu_pointer *memory, size_t bytes, unsigned flags) {
  (void)flags;
  for (int i = 0; i < MOST; i++) {
    if (managed[i].memory) continue;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return EMU_OUT_OF_MEMORY;
    managed[i] = (pinned_block){map, bytes};
    *memory = (gpu_pointer)(uintptr_t)map;
    return EMU_SUCCESS;
  }
  return EMU_OUT_OF_MEMORY;
}

/* ---- copies and fills ---- */

typedef struct move {
  void *to;
  const void *from;
  size_t bytes;
} move;

static int run_move(void *work) {
  const move *m = work;
  memmove(m->to, m->from, m->bytes);
  return EMU_SUCCESS;
}

static int move_later(void *stream, void *to, const void *from, size_t bytes) {
  emu_count(EMU_COPIES);
  return emu_later(stream, run_move, &(move){to, from, bytes}, sizeof(move));
}

/* A real driver stages memory that is not pinned; the runtime never gives it any. */
static bool check_pinned(const void *memory, size_t bytes) {
  if (emu_is_pinned(memory, bytes)) return true;
  fprintf(stderr, "emulated GPU: a copy with host memory that is not pinned\n");
  return false;
}

EMU_EXPORT(cuMemcpyHtoDAsync_v2, (gpu_pointer to, const void *from, size_t bytes, void *stream));
int cuMemcpyHtoDAsync_v2(gpu_pointer to, const void *from, size_t bytes, void *stream) {
  void *host = emu_host(to, bytes);
  if (!check_pinned(from, bytes)) return EMU_NOT_SUPPORTED;
  return host ? move_later(stream, host, from, bytes) : EMU_INVALID_VALUE;
}

EMU_EXPORT(cuMemcpyDtoHAsync_v2, (void *to, gpu_pointer from, size_t bytes, void *stream));
int cuMemcpyDtoHAsync_v2(void *to, gpu_pointer from, size_t bytes, void *stream) {
  const void *host = emu_host(from, bytes);
  if (!check_pinned(to, bytes)) return EMU_NOT_SUPPORTED;
  return host ? move_later(stream, to, host, bytes) : EMU_INVALID_VALUE;
}

EMU_EXPORT(cuMemcpyDtoDAsync_v2, (gpu_pointer to, gpu_pointer from, size_t bytes, void *stream));
int cuMemcpyDtoDAsync_v2(gpu_pointer to, gpu_pointer from, size_t bytes, void *stream) {
  void *a = emu_host(to, bytes);
  const void *b = emu_host(from, bytes);
  return a && b ? move_later(stream, a, b, bytes) : EMU_INVALID_VALUE;
}

typedef struct fill {
  unsigned char *to;
  size_t bytes;
  unsigned char value;
} fill;

static int run_fill(void *work) {
  const fill *f = work;
  memset(f->to, f->value, f->bytes);
  return EMU_SUCCESS;
}

EMU_EXPORT(cuMemsetD8Async, (gpu_pointer to, unsigned char value, size_t bytes, void *stream));
int cuMemsetD8Async(gpu_pointer to, unsigned char value, size_t bytes, void *stream) {
  unsigned char *host = bytes > 0 ? emu_host(to, bytes) : NULL;
  if (!host) return EMU_INVALID_VALUE;
  emu_count(EMU_FILLS);
  return emu_later(stream, run_fill, &(fill){host, bytes, value}, sizeof(fill));
}
