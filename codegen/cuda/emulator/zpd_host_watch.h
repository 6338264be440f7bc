/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the accesses of kernel text. Part of zpd_host_scheduler.h; without ZPD_HOST_WATCH nothing is watched.
 *
 * Text to be watched is compiled with -fsanitize=thread, which calls __tsan_read4(address) and its kin before every
 * access that may be of memory; those functions are here, not the sanitizer's. Accesses of the operations in
 * zpd_host_warp.h are told by these.
 *
 * Races: two accesses of one byte of shared memory by different threads of a block, at least one of them a write, are
 * ordered by a barrier of the block between them, or by a __syncwarp when both are of one warp, and by nothing else
 * (shuffles, ldmatrix and mma order no memory). An asynchronous copy writes when it is asked for and when it was waited
 * for.
 *
 * Counts: the accesses of the lanes of a warp at the same instruction, for the same time since they last met, are one
 * access of the warp. */
#ifndef ZPD_HOST_WATCH_H
#define ZPD_HOST_WATCH_H

#include "zpd_host_counts.h"

/* A trouble that ends the launch; empty: none. */
static char zpd_host_trouble[512];

#ifndef ZPD_HOST_WATCH
static inline void zpd_host_watch_block() {}
static inline void zpd_host_watch_barrier() {}
static inline void zpd_host_watch_warp_barrier() {}
static inline void zpd_host_watch_shared(int, const void *, unsigned, bool) {}
static inline void zpd_host_watch_async(const void *, const void *, const void *, int) {}
static inline void zpd_host_watch_move(const void *, const void *, const void *, unsigned) {}
static inline void zpd_host_watch_met(int, int) {}
static inline void zpd_host_count_launch() {}
static inline void zpd_host_count_ldmatrix() {}
static inline void zpd_host_count_mma() {}
static inline void zpd_host_count_rows(const void *const[8]) {}
#else

#include <algorithm>
#include <vector>

/* ---- races ---- */

/* Who has touched a byte of shared memory last. Numbers of barriers go on from block to block, so a new block begins
 * after a barrier. */
struct zpd_host_byte {
  unsigned write_barrier, write_warp_barrier, read_barrier, read_warp_barrier;
  unsigned readers, reading_lanes; /* warps since that barrier; lanes of the last warp since its barrier */
  short writer, read_warp;
};

static std::vector<zpd_host_byte> zpd_host_bytes;
static unsigned zpd_host_barriers = 1, zpd_host_warp_barriers[32];

static void zpd_host_watch_block() { zpd_host_barriers++; }
static void zpd_host_watch_barrier() { zpd_host_barriers++; }
static void zpd_host_watch_warp_barrier() { zpd_host_warp_barriers[zpd_host_warp_begin / ZPD_HOST_LANES]++; }

static const char *zpd_host_passed(int thread, char *text, size_t bytes) {
  const zpd_host_thread *t = &zpd_host_threads[thread];
  const char *slash = t->passed_file ? strrchr(t->passed_file, '/') : nullptr;
  if (t->passed_file)
    snprintf(text, bytes, "the barrier at %s:%d", slash ? slash + 1 : t->passed_file, t->passed_line);
  else
    snprintf(text, bytes, "its begin");
  return text;
}

/* `other`: a thread, or -1 - warp when only that is known. */
static void zpd_host_race(int thread, bool write, int other, bool other_wrote, size_t at) {
  char passed[160];
  if (zpd_host_trouble[0]) return;
  size_t fixed = zpd_host_static_bytes();
  snprintf(
      zpd_host_trouble, sizeof zpd_host_trouble,
      "race: thread %d %s byte %zu of %s shared memory, which %s %d has %s, and no barrier is between; thread %d has "
      "passed %s",
      thread, write ? "writes" : "reads", at < fixed ? at : at - fixed, at < fixed ? "static" : "dynamic",
      other < 0 ? "warp" : "thread", other < 0 ? -1 - other : other, other_wrote ? "written" : "read", thread,
      zpd_host_passed(thread, passed, sizeof passed));
}

/* Lanes of other threads in a set of lanes of the own warp: one of them, or -1. */
static int zpd_host_other_lane(unsigned lanes, int thread) {
  lanes &= ~(1u << thread % ZPD_HOST_LANES);
  return lanes ? thread - thread % ZPD_HOST_LANES + __builtin_ctz(lanes) : -1;
}

static void zpd_host_check_byte(zpd_host_byte *b, int thread, bool write, size_t at) {
  int warp = thread / ZPD_HOST_LANES;
  unsigned own = zpd_host_warp_barriers[warp];
  bool written = b->write_barrier == zpd_host_barriers && b->writer != thread;
  if (written && (b->writer / ZPD_HOST_LANES != warp || b->write_warp_barrier == own))
    zpd_host_race(thread, write, b->writer, true, at);
  bool read = b->read_barrier == zpd_host_barriers;
  if (write) {
    if (read && b->readers & ~(1u << warp))
      zpd_host_race(thread, true, -1 - __builtin_ctz(b->readers & ~(1u << warp)), false, at);
    int lane = read && b->read_warp == warp && b->read_warp_barrier == own
                   ? zpd_host_other_lane(b->reading_lanes, thread)
                   : -1;
    if (lane >= 0) zpd_host_race(thread, true, lane, false, at);
    b->write_barrier = zpd_host_barriers;
    b->write_warp_barrier = own;
    b->writer = (short)thread;
    return;
  }
  if (!read) b->readers = b->reading_lanes = 0;
  if (b->read_warp != warp || b->read_warp_barrier != own) b->reading_lanes = 0;
  b->readers |= 1u << warp;
  b->reading_lanes |= 1u << thread % ZPD_HOST_LANES;
  b->read_barrier = zpd_host_barriers;
  b->read_warp_barrier = own;
  b->read_warp = (short)warp;
}

static void zpd_host_watch_shared(int thread, const void *p, unsigned bytes, bool write) {
  size_t at = zpd_host_shared_offset(p);
  if (zpd_host_bytes.size() < at + bytes) zpd_host_bytes.resize(at + bytes);
  for (unsigned i = 0; i < bytes; i++) zpd_host_check_byte(&zpd_host_bytes[at + i], thread, write, at + i);
}

/* ---- counts ---- */

enum { ZPD_HOST_KERNELS = 256, ZPD_HOST_SECTOR = 32, ZPD_HOST_BANKS = 32, ZPD_HOST_WORD = 4 };

static struct {
  void (*kernel)(const void *args);
  zpd_host_counts counts;
} zpd_host_counted[ZPD_HOST_KERNELS];
static zpd_host_counts *zpd_host_counting = &zpd_host_counted[0].counts;

static void zpd_host_count_launch() {
  int i = 0;
  while (i < ZPD_HOST_KERNELS - 1 && zpd_host_counted[i].kernel && zpd_host_counted[i].kernel != zpd_host_kernel) i++;
  zpd_host_counted[i].kernel = zpd_host_kernel;
  zpd_host_counting = &zpd_host_counted[i].counts;
  zpd_host_counting->launches++;
  zpd_host_counting->blocks += (long)gridDim.x * gridDim.y * gridDim.z;
}

extern "C" const zpd_host_counts *zpd_host_counts_of(void (*kernel)(const void *args)) {
  for (int i = 0; i < ZPD_HOST_KERNELS; i++)
    if (zpd_host_counted[i].kernel == kernel) return &zpd_host_counted[i].counts;
  return nullptr;
}

static void zpd_host_count_ldmatrix() { zpd_host_counting->ldmatrix++; }
static void zpd_host_count_mma() { zpd_host_counting->mma++; }

/* Adds one pass over the banks that must be made, and those that are: a bank gives one word of 4 bytes in a pass. */
static void zpd_host_count_pass(const size_t *at, const unsigned *bytes, int n) {
  size_t words[ZPD_HOST_BANKS][32];
  int count[ZPD_HOST_BANKS] = {0}, most = 0;
  for (int i = 0; i < n; i++)
    for (size_t word = at[i] / ZPD_HOST_WORD; word <= (at[i] + bytes[i] - 1) / ZPD_HOST_WORD; word++) {
      int bank = (int)(word % ZPD_HOST_BANKS), k = 0;
      while (k < count[bank] && words[bank][k] != word) k++;
      if (k == count[bank] && k < 32) words[bank][count[bank]++] = word;
      most = std::max(most, count[bank]);
    }
  if (most) zpd_host_counting->passes_least++;
  zpd_host_counting->passes += most;
}

static void zpd_host_count_rows(const void *const rows[8]) {
  size_t at[8];
  const unsigned bytes[8] = {16, 16, 16, 16, 16, 16, 16, 16};
  for (int i = 0; i < 8; i++) at[i] = zpd_host_shared_offset(rows[i]);
  zpd_host_count_pass(at, bytes, 8);
}

struct zpd_host_access {
  const void *instruction;
  int time, lane; /* how often the lane was there since the warp has met */
  size_t at;
  unsigned bytes;
  bool shared;
};
static std::vector<zpd_host_access> zpd_host_log;

/* Half of a warp at once when each lane moves 8 bytes, a quarter when 16. */
static void zpd_host_count_shared(const zpd_host_access *a, int n) {
  int lanes = a->bytes <= 4 ? 32 : a->bytes <= 8 ? 16 : 8;
  for (int first = 0; first < ZPD_HOST_LANES; first += lanes) {
    size_t at[32];
    unsigned bytes[32];
    int k = 0;
    for (int i = 0; i < n; i++)
      if (a[i].lane >= first && a[i].lane < first + lanes) at[k] = a[i].at, bytes[k++] = a[i].bytes;
    zpd_host_count_pass(at, bytes, k);
  }
}

static void zpd_host_count_global(const zpd_host_access *a, int n) {
  std::vector<size_t> all, sectors;
  for (int i = 0; i < n; i++)
    for (unsigned b = 0; b < a[i].bytes; b++) all.push_back(a[i].at + b);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (size_t at : all)
    if (sectors.empty() || sectors.back() != at / ZPD_HOST_SECTOR) sectors.push_back(at / ZPD_HOST_SECTOR);
  zpd_host_counting->sectors_asked += (long)((all.size() + ZPD_HOST_SECTOR - 1) / ZPD_HOST_SECTOR);
  zpd_host_counting->sectors_moved += (long)sectors.size();
}

/* The lanes have met, or wait for the block, or have finished. */
static void zpd_host_watch_met(int, int) {
  std::vector<zpd_host_access> &log = zpd_host_log;
  auto same = [](const zpd_host_access &x, const zpd_host_access &y) {
    return x.instruction == y.instruction && x.shared == y.shared && x.time == y.time;
  };
  std::stable_sort(log.begin(), log.end(), [](const zpd_host_access &x, const zpd_host_access &y) {
    return x.instruction != y.instruction ? x.instruction < y.instruction
           : x.shared != y.shared         ? x.shared < y.shared
                                          : x.lane < y.lane;
  });
  for (size_t i = 1; i < log.size(); i++) {
    const zpd_host_access &x = log[i - 1];
    if (x.instruction == log[i].instruction && x.shared == log[i].shared && x.lane == log[i].lane)
      log[i].time = x.time + 1;
  }
  std::stable_sort(log.begin(), log.end(), [](const zpd_host_access &x, const zpd_host_access &y) {
    return x.instruction != y.instruction ? x.instruction < y.instruction
           : x.shared != y.shared         ? x.shared < y.shared
                                          : x.time < y.time;
  });
  for (size_t i = 0, end; i < log.size(); i = end) {
    for (end = i + 1; end < log.size() && same(log[i], log[end]);) end++;
    (log[i].shared ? zpd_host_count_shared : zpd_host_count_global)(&log[i], (int)(end - i));
  }
  log.clear();
}

static void zpd_host_log_access(const void *instruction, const void *p, unsigned bytes, bool shared) {
  if (bytes == 0) return;
  size_t at = shared ? zpd_host_shared_offset(p) : (size_t)(uintptr_t)p;
  zpd_host_log.push_back({instruction, 0, zpd_host_current % ZPD_HOST_LANES, at, bytes, shared});
}

/* ---- accesses ---- */

static bool zpd_host_inside(const void *p, const void *from, size_t bytes) {
  return (uintptr_t)p - (uintptr_t)from < bytes;
}

static void zpd_host_touch(const void *instruction, const void *p, unsigned bytes, bool write) {
  const zpd_host_context *context = &zpd_host_threads[zpd_host_current].fiber->context;
  if (zpd_host_inside(p, context->stack, context->stack_bytes)) return;
  if (zpd_host_inside(p, zpd_host_args, zpd_host_argument_bytes)) return;
  if (zpd_host_inside(p, &threadIdx, sizeof threadIdx) || zpd_host_inside(p, &blockIdx, sizeof blockIdx) ||
      zpd_host_inside(p, &blockDim, sizeof blockDim) || zpd_host_inside(p, &gridDim, sizeof gridDim) ||
      zpd_host_inside(p, &zpd_host_argument_bytes, sizeof zpd_host_argument_bytes) ||
      zpd_host_inside(p, &zpd_host_dynamic_shared, sizeof zpd_host_dynamic_shared))
    return;
  bool shared = zpd_host_is_shared(p, bytes);
  if (!shared && zpd_host_inside(p, zpd_host_dynamic_shared, ZPD_HOST_DYNAMIC_BYTES))
    snprintf(zpd_host_trouble, sizeof zpd_host_trouble,
             "thread %d touches byte %zu of dynamic shared memory, of which there are %u", zpd_host_current,
             (size_t)((uintptr_t)p - (uintptr_t)zpd_host_dynamic_shared), zpd_host_dynamic_used);
  if (shared) zpd_host_watch_shared(zpd_host_current, p, bytes, write);
  zpd_host_log_access(instruction, p, bytes, shared);
  if (zpd_host_trouble[0]) zpd_host_refuse(zpd_host_trouble, __FILE__, __LINE__);
}

static void zpd_host_watch_async(const void *instruction, const void *shared, const void *global, int bytes) {
  zpd_host_counting->async_copies++;
  zpd_host_touch(instruction, shared, 16, true);
  zpd_host_log_access(instruction, global, (unsigned)bytes, false);
}

static void zpd_host_watch_move(const void *instruction, const void *to, const void *from, unsigned bytes) {
  zpd_host_touch(instruction, from, bytes, false);
  zpd_host_touch(instruction, to, bytes, true);
}

#define ZPD_HOST_TOUCHES(bytes)                                                                                        \
  extern "C" void __tsan_read##bytes(void *p) { zpd_host_touch(__builtin_return_address(0), p, bytes, false); }        \
  extern "C" void __tsan_write##bytes(void *p) { zpd_host_touch(__builtin_return_address(0), p, bytes, true); }        \
  extern "C" void __tsan_unaligned_read##bytes(void *p) {                                                              \
    zpd_host_touch(__builtin_return_address(0), p, bytes, false);                                                      \
  }                                                                                                                    \
  extern "C" void __tsan_unaligned_write##bytes(void *p) {                                                             \
    zpd_host_touch(__builtin_return_address(0), p, bytes, true);                                                       \
  }
ZPD_HOST_TOUCHES(1)
ZPD_HOST_TOUCHES(2)
ZPD_HOST_TOUCHES(4)
ZPD_HOST_TOUCHES(8)
ZPD_HOST_TOUCHES(16)
#undef ZPD_HOST_TOUCHES
extern "C" void __tsan_read_range(void *p, size_t bytes) {
  zpd_host_touch(__builtin_return_address(0), p, (unsigned)bytes, false);
}
extern "C" void __tsan_write_range(void *p, size_t bytes) {
  zpd_host_touch(__builtin_return_address(0), p, (unsigned)bytes, true);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}

#endif
#endif
