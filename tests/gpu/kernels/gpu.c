/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU behind the tests. They hand kernels the addresses of what they allocate and of their variables, so both lie
 * in managed memory, which host and GPU see at one address: the linker turns malloc of the test files and of zplan's
 * libraries into __wrap_malloc (not that of the C library or of the driver), and a test has its stack there. */
#define _GNU_SOURCE
#include "gpu.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "gpu_api.h"
#include "objects.h"

enum { ATTACH_GLOBAL = 1 /* CU_MEM_ATTACH_GLOBAL */, ALIGN = 64, LISTS = 1024 };
static const size_t pool_bytes = (size_t)2 << 30, stack_bytes = (size_t)8 << 20;

gpu_api gpu_driver;
static int device;

/* ---- memory ---- */

typedef struct block {
  size_t bytes;
  struct block *next; /* of those that were given back */
} block;

static char *pool, *pool_free;
static block *given_back[LISTS]; /* by size: tests ask for the same sizes again and again */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void __wrap_free(void *memory);

static bool is_shared(const void *p) { return pool && (const char *)p >= pool && (const char *)p < pool + pool_bytes; }

static block *block_of(void *memory) { return (block *)(void *)((char *)memory - ALIGN); }

static void *take(size_t bytes) {
  size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN;
  for (block **at = &given_back[room / ALIGN % LISTS]; *at; at = &(*at)->next)
    if ((*at)->bytes == room) {
      block *found = *at;
      *at = found->next;
      return (char *)found + ALIGN;
    }
  if (room > (size_t)(pool + pool_bytes - pool_free)) return NULL;
  block *fresh = (block *)(void *)pool_free;
  pool_free += room;
  fresh->bytes = room;
  return (char *)fresh + ALIGN;
}

void *__wrap_malloc(size_t bytes) { return pool ? take(bytes) : __real_malloc(bytes); }

void *__wrap_calloc(size_t n, size_t bytes) {
  if (!pool) return __real_calloc(n, bytes);
  void *memory = bytes == 0 || n <= SIZE_MAX / bytes ? take(n * bytes) : NULL;
  return memory ? memset(memory, 0, n * bytes) : NULL;
}

void *__wrap_aligned_alloc(size_t align, size_t bytes) {
  return pool && align <= ALIGN ? take(bytes) : __real_aligned_alloc(align, bytes);
}

void __wrap_free(void *memory) {
  if (!is_shared(memory)) {
    __real_free(memory);
    return;
  }
  block *b = block_of(memory), **list = &given_back[b->bytes / ALIGN % LISTS];
  b->next = *list;
  *list = b;
}

void *__wrap_realloc(void *memory, size_t bytes) {
  if (!pool || (memory && !is_shared(memory))) return __real_realloc(memory, bytes);
  void *larger = take(bytes);
  size_t old = memory ? block_of(memory)->bytes - ALIGN : 0;
  if (larger && memory) memcpy(larger, memory, old < bytes ? old : bytes);
  if (larger) __wrap_free(memory);
  return larger;
}

/* ---- opening ---- */

void gpu_must(int result, const char *what) {
  const char *name = "an unknown error", *text = "";
  if (result == 0) return;
  gpu_driver.error_name(result, &name);
  gpu_driver.error_text(result, &text);
  printf("  cannot %s: %s, %s\n", what, name, text);
  fflush(stdout);
  _exit(1);
}

static _Noreturn void give_up(const char *why) {
  printf("  %s\n", why);
  fflush(stdout);
  _exit(1);
}

static void open_device(void) {
  const char *why_not = "";
  void *context = NULL;
  if (!gpu_api_open(&gpu_driver, gpu.emulated, &why_not)) give_up(why_not);
  int count = 0;
  gpu_must(gpu_driver.init(0), "start the driver");
  gpu_must(gpu_driver.device_count(&count), "find a GPU");
  if (count == 0) give_up("the CUDA driver finds no GPU");
  gpu_must(gpu_driver.device(&device, 0), "find a GPU");
  gpu_must(gpu_driver.retain_context(&context, device), "make a context");
  gpu_must(gpu_driver.set_context(context), "enter the context");
}

/* The only function of the driver that tests need and trainers do not. */
static char *allocate_shared(void) {
  int (*allocate)(gpu_pointer * memory, size_t bytes, unsigned flags) = NULL;
  gpu_pointer memory = 0;
  void *library = dlopen(gpu.emulated ? gpu.emulated : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void *function = library ? dlsym(library, "cuMemAllocManaged") : NULL;
  memcpy(&allocate, &function, sizeof allocate);
  gpu_must(allocate ? allocate(&memory, pool_bytes, ATTACH_GLOBAL) : 500 /* CUDA_ERROR_NOT_FOUND */,
           "get memory that host and GPU share");
  return (char *)(uintptr_t)memory;
}

void gpu_open(void) {
  char *memory;
  if (gpu.collect) {
    memory = mmap(NULL, pool_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) zpt_skip("no memory");
  } else {
    open_device();
    memory = allocate_shared();
  }
  pool_free = memory;
  pool = memory;
}

static ucontext_t here, there; /* the process's own stack, the shared one */
static struct {
  void (*run)(void *with);
  void *with;
} asked; /* what the test wants to be done on the process's own stack; run NULL: nothing */

void gpu_run_on_shared_stack(void (*body)(void)) {
  getcontext(&there);
  there.uc_stack.ss_sp = take(stack_bytes);
  there.uc_stack.ss_size = stack_bytes;
  there.uc_link = &here;
  makecontext(&there, body, 0);
  for (;;) {
    asked.run = NULL;
    swapcontext(&here, &there);
    if (!asked.run) return;
    asked.run(asked.with);
  }
}

void gpu_run_on_own_stack(void (*run)(void *with), void *with) {
  asked.run = run;
  asked.with = with;
  swapcontext(&there, &here);
}

/* ---- what is here ---- */

/* Files with versions in their names are behind the links that were opened. */
static void list_libraries(void) {
  static const char *const names[] = {"/libcuda.", "/libcublas.", "/libcublasLt.", "/libzplan_emulated_gpu."};
  char line[4096], last[4096] = "";
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) {
    char *path = strchr(line, '/');
    if (!path || strcmp(path, last) == 0) continue;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (strstr(path, names[i])) {
        printf("library       %s", path);
        snprintf(last, sizeof last, "%s", path);
      }
  }
  if (maps) fclose(maps);
}

void gpu_describe(void) {
  int version = 0, major = 0, minor = 0, multiprocessors = 0;
  size_t available = 0, total = 0;
  char name[96] = "";
  const char *why_not = "";
  open_device();
  gpu_must(gpu_driver.driver_version(&version), "ask for the driver's version");
  gpu_must(gpu_driver.device_name(name, sizeof name, device), "ask for the GPU's name");
  gpu_must(gpu_driver.attribute(&major, GPU_CAPABILITY_MAJOR, device), "ask for the GPU's kind");
  gpu_must(gpu_driver.attribute(&minor, GPU_CAPABILITY_MINOR, device), "ask for the GPU's kind");
  gpu_must(gpu_driver.attribute(&multiprocessors, GPU_MULTIPROCESSORS, device), "ask for the GPU's size");
  gpu_must(gpu_driver.memory_info(&available, &total), "ask for the GPU's memory");
  printf("gpu           %s\narch          sm_%d%d\n", name, major, minor);
  printf("gpu size      %d multiprocessors, %.1f GiB, %.1f GiB of them free\n", multiprocessors,
         (double)total / (1 << 30), (double)available / (1 << 30));
  printf("driver        CUDA %d.%d\n", version / 1000, version % 1000 / 10);
  if (!gpu_api_open_blas(&gpu_driver, device, &why_not)) printf("cuBLAS        none: %s\n", why_not);
  list_libraries();
}
