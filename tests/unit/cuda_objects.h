/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles kernel text for the host and launches its kernels through the emulator, for the tests of codegen/cuda. */
#ifndef CUDA_OBJECTS_H
#define CUDA_OBJECTS_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zplan/cuda.h>
#include "kept_objects.h"
#include <zplan/rowkernel.h>
#include "../../codegen/cuda/emulator/zpd_host_counts.h"
#include "../../kernels/include/zplan/zpd.h"

/* Dtypes of a test that both builds have: sanitizers see f32 and bf16, elements of 4 and of 2 bytes. The other build
 * sees all or, where it is known that both builds are tested, the two others. */
#ifdef __SANITIZE_ADDRESS__
static const bool sanitized = true;
enum { FIRST_DTYPE = ZPK_F32, NEXT_DTYPE = ZPK_BF16 - ZPK_F32 };
#else
static const bool sanitized = false;
#ifdef ZPLAN_TESTS_ONCE
#define SANITIZED_ELSEWHERE
enum { FIRST_DTYPE = ZPK_F64, NEXT_DTYPE = ZPK_F16 - ZPK_F64 };
#else
enum { FIRST_DTYPE = ZPK_F32, NEXT_DTYPE = 1 };
#endif
#endif
/* Half of the shapes are enough, and what sanitizers see need not be seen again: the other build is tested, too. */
#ifdef SANITIZED_ELSEWHERE
static const bool sanitized_elsewhere = true;
#else
static const bool sanitized_elsewhere = false;
#endif

static const char *const cuda_include_dirs[] = {ZPLAN_SOURCE_DIR "/kernels/include", ZPLAN_SOURCE_DIR "/kernels/cuda",
                                                ZPLAN_SOURCE_DIR "/codegen/cuda/emulator"};

static inline zp_cuda_source cuda_source(const char *text, zpk_dtype dtype) {
  return (zp_cuda_source){.text = text,
                          .name = "kernels.cu",
                          .include_dirs = cuda_include_dirs,
                          .n_include_dirs = 3,
                          .dtype = dtype,
                          .sanitize = sanitized};
}

typedef int host_launch(void (*kernel)(const void *args), const void *args, const unsigned grid[3],
                        const unsigned block[3], unsigned shared_bytes);
typedef struct host_object {
  void *library;
  host_launch *launch;
} host_object;

#ifdef ZPLAN_TEST_ON_GPU /* tests/gpu/kernels: these tests on a GPU */
void host_find(const host_object *o, const char *symbol, void *place);
host_object host_load_as(const char *text, zpk_dtype dtype, bool watch);
void host_unload(host_object *o);
#else
/* C converts no object pointer to that of a function. */
static inline void host_find(const host_object *o, const char *symbol, void *place) {
  void *address = dlsym(o->library, symbol);
  cr_assert_not_null(address, "no symbol %s", symbol);
  memcpy(place, &address, sizeof address);
}

/* In a folder of its own, which it leaves as it was. */
static inline void host_compile(zp_arena *arena, const zp_cuda_source *source, const char *out) {
  const char *error = NULL, *folder = zp_format(arena, "%s.XXXXXX", out);
  const char *path = zp_format(arena, "%s/kernels.so", mkdtemp((char *)(uintptr_t)folder));
  cr_assert(zp_cuda_compile(arena, source, "host", path, &error), "%s", error);
  cr_assert_eq(rename(path, out), 0);
  cr_assert_eq(rmdir(folder), 0, "the compiler left files behind");
}

/* The scheduler of all texts of a build: it takes as long to compile as a small text. */
static inline const char *host_scheduler(zp_arena *arena, const zp_cuda_source *of) {
  zp_cuda_source source = *of;
  const char *error = NULL;
  source.text = "scheduler";
  source.dtype = ZPK_F32;
  const char *path = kept_object(arena, &source, ".o"), *fresh = zp_format(arena, "%s.new", path);
  int lock = kept_lock(arena, path);
  if (access(path, R_OK) != 0) {
    cr_assert(zp_cuda_compile_scheduler(arena, &source, fresh, &error), "%s", error);
    cr_assert_eq(rename(fresh, path), 0);
  }
  close(lock);
  return path;
}

static inline host_object host_load_as(const char *text, zpk_dtype dtype, bool watch) {
  host_object o = {0};
  zp_arena *arena = zp_arena_new("emulator");
  zp_cuda_source source = cuda_source(text, dtype);
  source.watch = watch;
  source.sanitize = sanitized && !watch;
  const char *path = kept_object(arena, &source, ".so");
  int lock = kept_lock(arena, path); /* tests that begin together ask for one text together */
  if (access(path, R_OK) != 0) {
    if (!strstr(text, "ZPD_HOST_UCONTEXT")) source.scheduler = host_scheduler(arena, &source);
    host_compile(arena, &source, path);
  }
  close(lock);
  o.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  cr_assert_not_null(o.library, "%s", dlerror());
  zp_arena_free(arena);
  host_find(&o, "zpd_host_launch", &o.launch);
  return o;
}

static inline void host_unload(host_object *o) { dlclose(o->library); }
#endif

static inline host_object host_load(const char *text, zpk_dtype dtype) { return host_load_as(text, dtype, false); }

/* What zpd_host_launch returns. `tiles`: the grid's second dimension; `shared_bytes`: dynamic shared memory. */
static inline int host_run_grid(const host_object *o, const char *kernel, const void *args, unsigned grid,
                                unsigned tiles, unsigned block, unsigned shared_bytes) {
  char symbol[256];
  void (*function)(const void *args);
  snprintf(symbol, sizeof symbol, "zpd_host_%s", kernel);
  host_find(o, symbol, &function);
  return o->launch(function, args, (unsigned[]){grid, tiles, 1}, (unsigned[]){block, 1, 1}, shared_bytes);
}

static inline int host_run_tiles(const host_object *o, const char *kernel, const void *args, unsigned grid,
                                 unsigned tiles, unsigned block) {
  return host_run_grid(o, kernel, args, grid, tiles, block, 0);
}

/* In one dimension. */
static inline int host_run_with(const host_object *o, const char *kernel, const void *args, unsigned grid,
                                unsigned block, unsigned shared_bytes) {
  return host_run_grid(o, kernel, args, grid, 1, block, shared_bytes);
}

static inline int host_run(const host_object *o, const char *kernel, const void *args, unsigned grid, unsigned block) {
  return host_run_with(o, kernel, args, grid, block, 0);
}

/* Runs with stderr caught in `text`. */
static inline int host_run_caught(const host_object *o, const char *kernel, const void *args, unsigned grid,
                                  unsigned block, unsigned shared_bytes, char *text, size_t bytes) {
  char path[] = "zplan-stderr-XXXXXX";
  int file = mkstemp(path), old = dup(2);
  cr_assert(file >= 0 && old >= 0);
  unlink(path);
  fflush(stderr);
  dup2(file, 2);
  int status = host_run_with(o, kernel, args, grid, block, shared_bytes);
  dup2(old, 2);
  close(old);
  ssize_t n = pread(file, text, bytes - 1, 0);
  cr_assert(n >= 0);
  text[n] = '\0';
  close(file);
  return status;
}

/* What a watched object has counted of a kernel. */
static inline zpd_host_counts host_counts(const host_object *o, const char *kernel) {
  char symbol[256];
  void (*function)(const void *args);
  zpd_host_counts_fn *counts_of;
  snprintf(symbol, sizeof symbol, "zpd_host_%s", kernel);
  host_find(o, symbol, &function);
  host_find(o, ZPD_HOST_COUNTS_SYMBOL, &counts_of);
  const zpd_host_counts *counts = counts_of(function);
  cr_assert_not_null(counts, "%s was not launched", kernel);
  return *counts;
}

#endif
