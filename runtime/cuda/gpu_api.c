/* Opens the CUDA driver and cuBLAS where the system has them. */
#include "gpu_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct symbol {
  const char *name;
  size_t member; /* offset in gpu_api */
} symbol;

static const symbol driver_symbols[] = {
#define GPU_SYMBOL(member, symbol, arguments) {symbol, offsetof(gpu_api, member)},
    GPU_DRIVER_FUNCTIONS(GPU_SYMBOL)};
static const symbol blas_symbols[] = {GPU_BLAS_FUNCTIONS(GPU_SYMBOL)};
#undef GPU_SYMBOL

/* The name of a missing function, NULL when all are there. */
static const char *find_all(gpu_api *api, void *library, const symbol *symbols, size_t n) {
  for (size_t i = 0; i < n; i++) {
    void *function = dlsym(library, symbols[i].name);
    if (!function) return symbols[i].name;
    memcpy((char *)api + symbols[i].member, &function, sizeof function);
  }
  return NULL;
}

static void *open_first(const char *const *names) {
  void *library = NULL;
  for (int i = 0; names[i] && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  return library;
}

bool gpu_api_open(gpu_api *api, const char *emulated, const char **why_not) {
  static const char *const driver_names[] = {"libcuda.so.1", NULL};
  static const char *const blas_names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", NULL};
  static char reason[256];
  *why_not = reason;
  memset(api, 0, sizeof *api);
  void *driver = emulated ? dlopen(emulated, RTLD_NOW | RTLD_LOCAL) : open_first(driver_names);
  if (!driver) {
    snprintf(reason, sizeof reason, "%s", emulated ? dlerror() : "there is no CUDA driver (libcuda.so.1)");
    return false;
  }
  const char *missing = find_all(api, driver, driver_symbols, sizeof driver_symbols / sizeof *driver_symbols);
  if (missing) {
    snprintf(reason, sizeof reason, "the CUDA driver has no function %s", missing);
    return false;
  }
  void *blas = emulated ? driver : open_first(blas_names);
  api->has_blas = blas && !find_all(api, blas, blas_symbols, sizeof blas_symbols / sizeof *blas_symbols);
  return true;
}
