/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kernels/cuda on the host, for the tests test_kernels_cuda*.c. Only addresses of the host are in
 * use. */
#ifndef DEVICE_KERNELS_H
#define DEVICE_KERNELS_H

#include "cuda_objects.h"
#include <zplan/zpk.h>

/* `text`: CUDA C that includes files of kernels/cuda; `head`: ZPD_HEAD; `watch`: as in zp_cuda_source. */
static inline host_object device_open_as(const char *text, zpk_dtype dtype, int head, bool watch) {
  char whole[16384];
  cr_assert_lt(snprintf(whole, sizeof whole, "#define ZPD_HEAD %d\n%s", head, text), (int)sizeof whole);
  return host_load_as(whole, dtype, watch);
}

static inline host_object device_open(const char *text, zpk_dtype dtype, int head) {
  return device_open_as(text, dtype, head, false);
}

/* A text in several dtypes, each compiled when it is first asked for: tests run in processes of their own, and few need
 * all. */
typedef struct device_texts {
  const char *text;
  host_object of[ZPK_DTYPES];
} device_texts;

static inline const host_object *device_text(device_texts *texts, zpk_dtype dtype) {
  if (!texts->of[dtype].library) texts->of[dtype] = device_open(texts->text, dtype, 64);
  return &texts->of[dtype];
}

static inline void device_texts_close(device_texts *texts) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    if (texts->of[dtype].library) host_unload(&texts->of[dtype]);
}

static inline void device_launch_with(const host_object *o, const char *name, const void *args, int64_t x, int64_t y,
                                      int64_t z, unsigned threads, unsigned shared_bytes) {
  char symbol[128];
  void (*kernel)(const void *args);
  snprintf(symbol, sizeof symbol, "zpd_host_%s", name);
  host_find(o, symbol, &kernel);
  const unsigned grid[3] = {(unsigned)x, (unsigned)y, (unsigned)z}, block[3] = {threads, 1, 1};
  cr_assert_eq(o->launch(kernel, args, grid, block, shared_bytes), 0, "%s", name);
}

static inline void device_launch(const host_object *o, const char *name, const void *args, int64_t x, int64_t y,
                                 int64_t z, unsigned threads) {
  device_launch_with(o, name, args, x, y, z, threads, 0);
}

#endif
