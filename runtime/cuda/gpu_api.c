/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the CUDA driver and cuBLASLt where the system has them. */
#include "gpu_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <zplan/cuda_places.h>

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

static char reason[ZPR_CUDA_PATH + 256];

static bool open_driver(gpu_api *api, const char *emulated) {
  void *driver = dlopen(emulated ? emulated : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) {
    snprintf(reason, sizeof reason, "%s", emulated ? dlerror() : "there is no CUDA driver (libcuda.so.1)");
    return false;
  }
  int version = 0;
  const char *missing = find_all(api, driver, driver_symbols, sizeof driver_symbols / sizeof *driver_symbols);
  bool old = api->driver_version && !api->driver_version(&version) && version < ZPR_LEAST_DRIVER;
  if (old)
    snprintf(reason, sizeof reason, "the CUDA driver is one of CUDA %d.%d, and 12.0 is the oldest that can be used",
             version / 1000, version % 1000 / 10);
  else if (missing)
    snprintf(reason, sizeof reason, "the CUDA driver has no function %s", missing);
  if (old || missing) return false;
  if (emulated) api->has_blas = !find_all(api, driver, blas_symbols, sizeof blas_symbols / sizeof *blas_symbols);
  return true;
}

bool gpu_api_open(gpu_api *api, const char *emulated, const char **why_not) {
  *why_not = reason;
  memset(api, 0, sizeof *api);
  return open_driver(api, emulated);
}

/* ---- cuBLASLt ---- */

typedef struct version {
  int major, minor;
} version;

static version version_of(void *blas) {
  int (*property)(int which, int *value) = NULL; /* cublasLtGetProperty: MAJOR_VERSION 0, MINOR_VERSION 1 */
  void *function = dlsym(blas, "cublasLtGetProperty");
  memcpy(&property, &function, sizeof function);
  version v = {0, 0};
  if (!property || property(0, &v.major) || property(1, &v.minor)) return (version){0, 0};
  return v;
}

/* Whether the library will do; the reason if not. */
static bool take(gpu_api *api, void *blas, const char *path, int capability, int driver) {
  version v = version_of(blas);
  const char *missing = find_all(api, blas, blas_symbols, sizeof blas_symbols / sizeof *blas_symbols);
  if (v.major == 0)
    snprintf(reason, sizeof reason, "%s does not say its version", path);
  else if (missing)
    snprintf(reason, sizeof reason, "%s has no function %s", path, missing);
  else if (!zpr_cublas_serves(v.major, v.minor, capability))
    snprintf(reason, sizeof reason, "%s (cuBLASLt %d.%d) has no kernels for sm_%d, which needs cuBLAS %s", path,
             v.major, v.minor, capability, capability < 75 ? "12" : "12.8 or 13");
  else if (v.major > driver / 1000)
    snprintf(reason, sizeof reason, "%s (cuBLASLt %d.%d) needs a driver of CUDA %d, and this one is of CUDA %d.%d",
             path, v.major, v.minor, v.major, driver / 1000, driver % 1000 / 10);
  else
    return true;
  return false;
}

bool gpu_api_open_blas(gpu_api *api, int device, const char **why_not) {
  *why_not = reason;
  if (api->has_blas) return true;
  int major = 0, minor = 0, driver = 0;
  if (api->attribute(&major, GPU_CAPABILITY_MAJOR, device) || api->attribute(&minor, GPU_CAPABILITY_MINOR, device) ||
      api->driver_version(&driver)) {
    snprintf(reason, sizeof reason, "the driver does not say which GPU it is");
    return false;
  }
  static zpr_cuda_files files;
  zpr_cuda_find_files("libcublasLt.so", &files);
  snprintf(reason, sizeof reason, "there is no libcublasLt.so.13 or .12; CUDA_HOME may say where the toolkit is");
  for (int i = 0; i < files.n && !api->has_blas; i++) {
    void *blas = dlopen(files.path[i], RTLD_NOW | RTLD_LOCAL);
    api->has_blas = blas && take(api, blas, files.path[i], 10 * major + minor, driver);
    if (blas && !api->has_blas) dlclose(blas);
  }
  return api->has_blas;
}
