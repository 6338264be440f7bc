/* Device kernels on the host: compiles files of kernels/cuda with the system's C++ compiler under the emulation of
 * codegen/cuda/emulator, loads them and launches kernels. Only addresses of the host are in use. */
#ifndef DEVICE_KERNELS_H
#define DEVICE_KERNELS_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zplan/zpd.h>
#include <zplan/zpk.h>

#if defined __SANITIZE_ADDRESS__
#define DEVICE_SANITIZE "-fsanitize=address,undefined -fno-sanitize-recover=all"
#else
#define DEVICE_SANITIZE ""
#endif

typedef struct device_kernels {
  void *library;
  int (*launch)(void (*kernel)(const void *), const void *args, const unsigned grid[3], const unsigned block[3]);
} device_kernels;

/* `text`: C++ that includes files of kernels/cuda; `head`: ZPD_HEAD. Warnings are errors, but gcc does not know
 * `unroll`. */
static inline device_kernels device_open(const char *text, zpk_dtype dtype, int head) {
  char folder[] = "zplan-device-XXXXXX", source[64], shared[64], command[1024];
  cr_assert_not_null(mkdtemp(folder));
  snprintf(source, sizeof source, "%s/kernels.cpp", folder);
  snprintf(shared, sizeof shared, "./%s/kernels.so", folder);
  FILE *file = fopen(source, "w");
  cr_assert_not_null(file);
  fprintf(file, "%s#include \"zpd_host_scheduler.h\"\n", text); /* the emulation wants to come last */
  fclose(file);
  const char *root = ZPLAN_SOURCE_DIR, *compiler = getenv("CXX");
  int length = snprintf(command, sizeof command,
                        "%s -std=c++17 -O2 -Wall -Wextra -Werror -Wno-unknown-pragmas " DEVICE_SANITIZE
                        " -fPIC -shared -DZPD_HOST %s -DZPD_HEAD=%d -I%s/kernels/include -I%s/kernels/cuda "
                        "-I%s/codegen/cuda/emulator -o %s %s",
                        compiler ? compiler : "c++", dtype == ZPK_F64 ? "-DZPD_F64" : "", head, root, root, root,
                        shared, source);
  cr_assert_lt(length, (int)sizeof command);
  cr_assert_eq(system(command), 0, "%s", command);
  device_kernels k = {.library = dlopen(shared, RTLD_NOW | RTLD_LOCAL)};
  cr_assert_not_null(k.library, "%s", dlerror());
  unlink(source);
  unlink(shared);
  rmdir(folder);
  *(void **)&k.launch = dlsym(k.library, "zpd_host_launch");
  cr_assert_not_null(*(void **)&k.launch);
  return k;
}

static inline void device_close(device_kernels *k) { dlclose(k->library); }

static inline void device_launch(const device_kernels *k, const char *name, const void *args, unsigned x, unsigned y,
                                 unsigned z, unsigned threads) {
  char symbol[64];
  void (*kernel)(const void *);
  snprintf(symbol, sizeof symbol, "zpd_host_%s", name);
  *(void **)&kernel = dlsym(k->library, symbol);
  cr_assert_not_null(*(void **)&kernel, "no kernel %s", name);
  const unsigned grid[3] = {x, y, z}, block[3] = {threads, 1, 1};
  cr_assert_eq(k->launch(kernel, args, grid, block), 0, "%s", name);
}

#endif
