/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a grid on the host. Appended to the kernel text, so that a shared object holds its kernels and what runs them:
 *
 *   int zpd_host_launch(void (*kernel)(const void *args), const void *args, const unsigned grid[3],
 *                       const unsigned block[3], unsigned shared_bytes)
 *
 * `shared_bytes`: dynamic shared memory. It returns 0, or 1 after a message on stderr. Not for several OS threads at
 * once.
 *
 * A warp runs until its lanes wait at a barrier of the block or have finished; then the next warp. Every other block
 * runs its warps and lanes from the last to the first: a barrier that is missing between who writes and who reads shows
 * in one of the two orders. A fiber that has finished its thread takes the warp's next one, so kernels without barriers
 * use one stack and are a plain loop. */
#include <dlfcn.h>
#include "zpd_host_fiber.h"

enum { ZPD_HOST_LANES = 32, ZPD_HOST_THREADS = 1024 };

enum zpd_host_state {
  ZPD_HOST_READY,
  ZPD_HOST_RUNNING,
  ZPD_HOST_AT_WARP,
  ZPD_HOST_AT_BLOCK,
  ZPD_HOST_REFUSED, /* at an operation that is not played */
  ZPD_HOST_FINISHED
};

/* An asynchronous copy, and those of a thread in the order of their groups. */
struct zpd_host_copy {
  void *to;
  const void *from;
  int bytes, group;
};
enum { ZPD_HOST_COPIES = 256 };
struct zpd_host_pending {
  int n, group; /* copies on their way, the group that is being filled */
};

struct zpd_host_thread {
  zpd_host_state state;
  zpd_host_dim index;
  const char *file; /* where it waits */
  int line;
  zpd_host_fiber *fiber; /* NULL: not begun, or finished */
  zpd_host_act *act;     /* of the warp, and what this lane brings */
  void *mine;
  const char *what;        /* it waits for, or is refused */
  zpd_host_pending copies; /* asynchronous ones on their way */
  const char *passed_file; /* the last barrier that it has passed */
  int passed_line;
};

static zpd_host_thread zpd_host_threads[ZPD_HOST_THREADS];
static zpd_host_copy zpd_host_copying[ZPD_HOST_THREADS][ZPD_HOST_COPIES];
static zpd_host_fiber zpd_host_fibers[ZPD_HOST_THREADS];
static zpd_host_fiber *zpd_host_idle[ZPD_HOST_THREADS];
static int zpd_host_n_fibers, zpd_host_n_idle;
static int zpd_host_current;                       /* thread that runs */
static int zpd_host_warp_begin, zpd_host_warp_end; /* its warp */
static bool zpd_host_backwards;                    /* order of the block */
static void (*zpd_host_kernel)(const void *args);
static const void *zpd_host_args;

zpd_host_dim threadIdx, blockIdx, blockDim, gridDim;

/* ---- threads and fibers ---- */

/* The k-th of [begin, end) in the order of the block. */
ZPD_HOST_UNCHECKED static int zpd_host_nth(int begin, int end, int k) {
  return zpd_host_backwards ? end - 1 - k : begin + k;
}

static zpd_host_fiber *zpd_host_take_fiber() {
  if (zpd_host_n_idle) return zpd_host_idle[--zpd_host_n_idle];
  zpd_host_fiber *fiber = &zpd_host_fibers[zpd_host_n_fibers++];
  zpd_host_fiber_new(fiber);
  return fiber;
}

/* Makes a thread the one that runs. One that has not begun gets `fiber`, or any when that is NULL. */
ZPD_HOST_UNCHECKED static zpd_host_fiber *zpd_host_enter(int thread, zpd_host_fiber *fiber) {
  zpd_host_thread *t = &zpd_host_threads[thread];
  if (!t->fiber) t->fiber = fiber ? fiber : zpd_host_take_fiber();
  t->state = ZPD_HOST_RUNNING;
  zpd_host_current = thread;
  threadIdx = t->index;
  return t->fiber;
}

/* The lane after this one when it can run, else -1. */
ZPD_HOST_UNCHECKED static int zpd_host_next() {
  int next = zpd_host_current + (zpd_host_backwards ? -1 : 1);
  bool inside = next >= zpd_host_warp_begin && next < zpd_host_warp_end;
  return inside && zpd_host_threads[next].state == ZPD_HOST_READY ? next : -1;
}

/* The fiber goes to sleep: the warp's next lane runs, or the scheduler. */
ZPD_HOST_UNCHECKED static void zpd_host_leave(zpd_host_fiber *fiber) {
  int next = zpd_host_next();
  zpd_host_change(&fiber->context, next < 0 ? &zpd_host_scheduler : &zpd_host_enter(next, nullptr)->context);
}

ZPD_HOST_UNCHECKED static void zpd_host_fiber_main() {
  zpd_host_fiber *fiber = zpd_host_threads[zpd_host_current].fiber; /* this one */
  for (;;) {
    zpd_host_kernel(zpd_host_args);
    zpd_host_threads[zpd_host_current].state = ZPD_HOST_FINISHED;
    zpd_host_threads[zpd_host_current].fiber = nullptr;
    int next = zpd_host_next();
    if (next >= 0 && zpd_host_enter(next, fiber) == fiber) continue;
    zpd_host_idle[zpd_host_n_idle++] = fiber;
    zpd_host_change(&fiber->context, next < 0 ? &zpd_host_scheduler : &zpd_host_threads[next].fiber->context);
  }
}

/* Runs a thread, and those of its warp that come after it. */
ZPD_HOST_UNCHECKED static void zpd_host_resume(int thread) {
  zpd_host_change(&zpd_host_scheduler, &zpd_host_enter(thread, nullptr)->context);
}

ZPD_HOST_UNCHECKED static void zpd_host_wait(zpd_host_state state, const char *file, int line) {
  zpd_host_thread *t = &zpd_host_threads[zpd_host_current];
  t->state = state;
  t->file = file;
  t->line = line;
  zpd_host_leave(t->fiber);
}

ZPD_HOST_UNCHECKED void zpd_host_barrier(const char *file, int line) {
  zpd_host_wait(ZPD_HOST_AT_BLOCK, file, line);
  zpd_host_threads[zpd_host_current].passed_file = file;
  zpd_host_threads[zpd_host_current].passed_line = line;
}

void zpd_host_refuse(const char *why, const char *file, int line) {
  zpd_host_threads[zpd_host_current].what = why;
  zpd_host_wait(ZPD_HOST_REFUSED, file, line); /* nobody wakes it */
}

ZPD_HOST_UNCHECKED void zpd_host_meet(zpd_host_act *act, void *mine, const char *what, const char *file, int line) {
  zpd_host_thread *t = &zpd_host_threads[zpd_host_current];
  if (zpd_host_warp_end % ZPD_HOST_LANES != 0)
    zpd_host_refuse("an operation of a warp in one that has not all 32 lanes", file, line);
  t->act = act;
  t->mine = mine;
  t->what = what;
  zpd_host_wait(ZPD_HOST_AT_WARP, file, line);
}

/* ---- when threads do not meet ---- */

static const char *zpd_host_kernel_name() {
  static const char prefix[] = "zpd_host_";
  Dl_info info;
  if (!dladdr((void *)zpd_host_kernel, &info) || !info.dli_sname) return "?";
  return strncmp(info.dli_sname, prefix, sizeof prefix - 1) ? info.dli_sname : info.dli_sname + sizeof prefix - 1;
}

static int zpd_host_failure(const char *what) {
  fflush(stdout);
  fprintf(stderr, "emulated device: kernel %s, block (%u, %u, %u): %s\n", zpd_host_kernel_name(), blockIdx.x,
          blockIdx.y, blockIdx.z, what);
  return 1;
}

static const char *zpd_host_place(const zpd_host_thread *t, char *text, size_t bytes) {
  const char *slash = t->file ? strrchr(t->file, '/') : nullptr;
  if (t->state == ZPD_HOST_FINISHED)
    snprintf(text, bytes, "has finished");
  else
    snprintf(text, bytes, "waits at a %s (%s:%d)", t->state == ZPD_HOST_AT_WARP ? t->what : "barrier",
             slash ? slash + 1 : t->file, t->line);
  return text;
}

/* Names of files are compared when one file has two literals. */
ZPD_HOST_UNCHECKED static bool zpd_host_same_place(const zpd_host_thread *a, const zpd_host_thread *b) {
  return a->line == b->line && (a->file == b->file || strcmp(a->file, b->file) == 0);
}

/* Are all of [begin, end) in the same state at the same place? If not, says which are not. */
ZPD_HOST_UNCHECKED static bool zpd_host_together(int begin, int end) {
  const zpd_host_thread *first = &zpd_host_threads[begin];
  for (int i = begin + 1; i < end; i++) {
    const zpd_host_thread *t = &zpd_host_threads[i];
    if (t->state == first->state && (t->state == ZPD_HOST_FINISHED || zpd_host_same_place(t, first))) continue;
    char one[256], other[256], text[640];
    snprintf(text, sizeof text, "thread %d %s, but thread %d %s", begin, zpd_host_place(first, one, sizeof one), i,
             zpd_host_place(t, other, sizeof other));
    zpd_host_failure(text);
    return false;
  }
  return true;
}

/* ---- shared memory: static variables, one after the other, and after them the dynamic bytes of the launch ---- */

/* As much as a block of any GPU since sm_80 can have (sm_86, sm_89 and sm_120, which have least). */
enum { ZPD_HOST_DYNAMIC_BYTES = 99 * 1024 };
alignas(128) static unsigned char zpd_host_dynamic[ZPD_HOST_DYNAMIC_BYTES];
static unsigned zpd_host_dynamic_used;
unsigned char *const zpd_host_dynamic_shared = zpd_host_dynamic;
unsigned zpd_host_argument_bytes;

#ifndef ZPD_HOST_ASAN
/* The linker's names for the bounds of a section, which exists because of the variable. */
extern char __start_zpd_shared[] __attribute__((visibility("hidden")));
extern char __stop_zpd_shared[] __attribute__((visibility("hidden")));
static __attribute__((section("zpd_shared"), used)) char zpd_host_some_shared[8];
static inline size_t zpd_host_static_bytes() { return (size_t)(__stop_zpd_shared - __start_zpd_shared); }
#endif

/* NaN in f32, f64, bf16 and f16. */
static void zpd_host_spoil_shared() {
#ifndef ZPD_HOST_ASAN
  memset(__start_zpd_shared, 0xff, zpd_host_static_bytes());
#endif
  memset(zpd_host_dynamic, 0xff, zpd_host_dynamic_used);
}

/* Under AddressSanitizer static variables are known to nobody: it watches their bounds itself. */
static inline bool zpd_host_is_shared(const void *p, size_t bytes) {
  uintptr_t in = (uintptr_t)p - (uintptr_t)zpd_host_dynamic;
#ifdef ZPD_HOST_ASAN
  return in >= sizeof zpd_host_dynamic || in + bytes <= zpd_host_dynamic_used;
#else
  return in + bytes <= zpd_host_dynamic_used ||
         (uintptr_t)p - (uintptr_t)__start_zpd_shared + bytes <= zpd_host_static_bytes();
#endif
}

#ifdef ZPD_HOST_WATCH
static size_t zpd_host_shared_offset(const void *p) {
  size_t in = (uintptr_t)p - (uintptr_t)zpd_host_dynamic;
  return in < sizeof zpd_host_dynamic ? zpd_host_static_bytes() + in : (uintptr_t)p - (uintptr_t)__start_zpd_shared;
}
#endif

#include "zpd_host_watch.h"
#include "zpd_host_warp.h"

/* ---- warps, blocks, the grid ---- */

ZPD_HOST_UNCHECKED static bool zpd_host_act_together(int begin) {
  void *mine[ZPD_HOST_LANES];
  for (int i = 0; i < ZPD_HOST_LANES; i++) mine[i] = zpd_host_threads[begin + i].mine;
  zpd_host_threads[begin].act(mine);
  return !zpd_host_trouble[0] || !zpd_host_failure(zpd_host_trouble);
}

/* Copies that a thread does not wait for may arrive when the memory is another block's. */
ZPD_HOST_UNCHECKED static bool zpd_host_all_arrived(int threads) {
  for (int i = 0; i < threads; i++) {
    if (zpd_host_threads[i].copies.n == 0) continue;
    char text[96];
    snprintf(text, sizeof text, "thread %d has finished and not waited for its asynchronous copies", i);
    return !zpd_host_failure(text);
  }
  return true;
}

/* Until no lane waits for the warp. */
ZPD_HOST_UNCHECKED static bool zpd_host_run_warp(int begin, int end) {
  zpd_host_warp_begin = begin;
  zpd_host_warp_end = end;
  for (;;) {
    for (int k = 0; k < end - begin; k++) {
      int i = zpd_host_nth(begin, end, k);
      if (zpd_host_threads[i].state == ZPD_HOST_READY) zpd_host_resume(i);
    }
    zpd_host_watch_met(begin, end);
    bool meets = false;
    for (int i = begin; i < end; i++) {
      if (zpd_host_threads[i].state == ZPD_HOST_REFUSED) return !zpd_host_failure(zpd_host_threads[i].what);
      meets |= zpd_host_threads[i].state == ZPD_HOST_AT_WARP;
    }
    if (!meets) return true;
    if (!zpd_host_together(begin, end) || !zpd_host_act_together(begin)) return false;
    for (int i = begin; i < end; i++) zpd_host_threads[i].state = ZPD_HOST_READY;
  }
}

ZPD_HOST_UNCHECKED static bool zpd_host_run_block(int threads) {
  int warps = (threads + ZPD_HOST_LANES - 1) / ZPD_HOST_LANES;
  zpd_host_spoil_shared();
  zpd_host_watch_block();
  for (int i = 0; i < threads; i++) {
    zpd_host_threads[i].state = ZPD_HOST_READY;
    zpd_host_threads[i].passed_file = nullptr;
  }
  for (;;) {
    for (int k = 0; k < warps; k++) {
      int begin = zpd_host_nth(0, warps, k) * ZPD_HOST_LANES;
      int end = begin + ZPD_HOST_LANES < threads ? begin + ZPD_HOST_LANES : threads;
      if (!zpd_host_run_warp(begin, end)) return false;
    }
    if (!zpd_host_together(0, threads)) return false;
    if (zpd_host_threads[0].state == ZPD_HOST_FINISHED) return zpd_host_all_arrived(threads);
    zpd_host_watch_barrier();
    for (int i = 0; i < threads; i++) zpd_host_threads[i].state = ZPD_HOST_READY;
  }
}

/* After a failure threads are left where they wait: their fibers begin anew. */
static void zpd_host_abandon() {
  for (int i = 0; i < zpd_host_n_fibers; i++) {
    zpd_host_fiber_reset(&zpd_host_fibers[i]);
    zpd_host_idle[i] = &zpd_host_fibers[i];
  }
  zpd_host_n_idle = zpd_host_n_fibers;
  zpd_host_trouble[0] = '\0';
}

ZPD_HOST_UNCHECKED static void zpd_host_begin_thread(unsigned i, const unsigned block[3]) {
  zpd_host_threads[i] = zpd_host_thread{};
  zpd_host_threads[i].index = zpd_host_dim{i % block[0], i / block[0] % block[1], i / (block[0] * block[1])};
}

static bool zpd_host_geometry_is_legal(const unsigned grid[3], const unsigned block[3]) {
  unsigned long threads = 1;
  for (int i = 0; i < 3; i++) {
    if (grid[i] == 0 || block[i] == 0 || grid[i] > (i ? 65535u : 2147483647u) || block[i] > (i == 2 ? 64u : 1024u))
      return false;
    threads *= block[i];
  }
  return threads <= ZPD_HOST_THREADS;
}

extern "C" int zpd_host_launch(void (*kernel)(const void *args), const void *args, const unsigned grid[3],
                               const unsigned block[3], unsigned shared_bytes) {
  zpd_host_kernel = kernel;
  zpd_host_args = args;
  blockIdx = zpd_host_dim{0, 0, 0};
  if (!zpd_host_geometry_is_legal(grid, block))
    return zpd_host_failure("a grid or a block of a size that no device takes");
  if (shared_bytes > ZPD_HOST_DYNAMIC_BYTES)
    return zpd_host_failure("more than the 99 KiB of shared memory that a block of every GPU since sm_80 can have");
  zpd_host_dynamic_used = shared_bytes;
  gridDim = zpd_host_dim{grid[0], grid[1], grid[2]};
  blockDim = zpd_host_dim{block[0], block[1], block[2]};
  int threads = (int)(block[0] * block[1] * block[2]);
  for (unsigned i = 0; i < (unsigned)threads; i++) zpd_host_begin_thread(i, block);
  zpd_host_count_launch();
  zpd_host_backwards = false;
  for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) {
        if (!zpd_host_run_block(threads)) {
          zpd_host_abandon();
          return 1;
        }
        zpd_host_backwards = !zpd_host_backwards;
      }
  return 0;
}
