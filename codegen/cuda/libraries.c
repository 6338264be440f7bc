/* SPDX-License-Identifier: Apache-2.0 */
/* What of CUDA is on this machine besides NVRTC, for who asks why a trainer does not start: opened, asked and closed. A
 * trainer decides the same for itself (runtime/cuda/gpu_api.c), by the rules of <zplan/cuda_places.h>. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/buf.h>
#include <zplan/cuda.h>
#include <zplan/cuda_places.h>

typedef int ask_number(int *value);
typedef int ask_property(int which, int *value);

/* Where a function's library is. */
static const char *file_of(zp_arena *arena, void *function, const char *asked) {
  Dl_info info;
  bool known = function && !strchr(asked, '/') && dladdr(function, &info) != 0 && info.dli_fname;
  return zp_strdup(arena, known ? info.dli_fname : asked);
}

/* ---- cuBLASLt ---- */

typedef struct cublas {
  const char *path, *real; /* real: without links, so that one file counts once */
  int major, minor;
} cublas;
typedef ZP_VEC(cublas) all_cublas;

static bool ask_cublas(zp_arena *arena, const char *path, cublas *out) {
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL),
       *function = library ? dlsym(library, "cublasLtGetProperty") : NULL;
  ask_property *property;
  memcpy(&property, &function, sizeof property);
  bool answers = property && property(0, &out->major) == 0 && property(1, &out->minor) == 0;
  if (answers) out->path = file_of(arena, function, path);
  char *real = answers ? realpath(out->path, NULL) : NULL;
  out->real = real ? zp_strdup(arena, real) : out->path;
  free(real);
  if (library) dlclose(library);
  return answers;
}

/* Looked for once: opening a library of half a gigabyte takes most of a second. */
static const all_cublas *find_cublas(void) {
  static all_cublas all;
  static zp_arena *arena; /* lives as long as the process */
  if (arena) return &all;
  arena = zp_arena_new("cuBLASLt");
  zpr_cuda_files *files = ZP_NEW(arena, zpr_cuda_files);
  zpr_cuda_find_files("libcublasLt.so", files);
  for (int i = 0; i < files->n; i++) {
    cublas l = {0};
    bool known = !ask_cublas(arena, files->path[i], &l);
    for (int k = 0; k < all.len && !known; k++) known = strcmp(all.data[k].real, l.real) == 0;
    if (!known) zp_push(arena, &all, l);
  }
  return &all;
}

static const char *name_of(zp_arena *arena, const cublas *l) {
  return zp_format(arena, "%s (%d.%d)", l->path, l->major, l->minor);
}

zp_strings zp_cublas_libraries(zp_arena *arena) {
  const all_cublas *all = find_cublas();
  zp_strings names = {0};
  for (int i = 0; i < all->len; i++) zp_push(arena, &names, name_of(arena, &all->data[i]));
  return names;
}

const char *zp_cublas_library(zp_arena *arena, const char *arch, const char **error) {
  const all_cublas *all = find_cublas();
  int capability = atoi(arch + strcspn(arch, "0123456789"));
  for (int i = 0; i < all->len; i++)
    if (zpr_cublas_serves(all->data[i].major, all->data[i].minor, capability)) return name_of(arena, &all->data[i]);
  *error = all->len == 0 ? "there is no libcublasLt.so.13 or .12"
                         : zp_format(arena, "%s has no kernels for %s", name_of(arena, &all->data[0]), arch);
  return NULL;
}

/* ---- driver, NCCL ---- */

const char *zp_cuda_driver(zp_arena *arena) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL),
       *function = library ? dlsym(library, "cuDriverGetVersion") : NULL;
  ask_number *version;
  int number = 0;
  memcpy(&version, &function, sizeof version);
  if (!library) return NULL;
  bool answers = version && version(&number) == 0;
  const char *path = file_of(arena, function, "libcuda.so.1"),
             *text = answers ? zp_format(arena, "%s (CUDA %d.%d)%s", path, number / 1000, number % 1000 / 10,
                                         number < ZPR_LEAST_DRIVER ? ": too old, 12.0 is the oldest" : "")
                             : zp_format(arena, "%s, which does not say its version", path);
  dlclose(library);
  return text;
}

const char *zp_nccl_library(zp_arena *arena) {
  zpr_cuda_files *files = ZP_NEW(arena, zpr_cuda_files);
  zpr_cuda_find_file("libnccl.so.2", files);
  const char *text = NULL;
  for (int i = 0; i < files->n && !text; i++) {
    void *library = dlopen(files->path[i], RTLD_LAZY | RTLD_LOCAL),
         *function = library ? dlsym(library, "ncclGetVersion") : NULL;
    ask_number *version;
    int number = 0;
    memcpy(&version, &function, sizeof version);
    if (version && version(&number) == 0) /* 22703: 2.27.3 */
      text = zp_format(arena, "%s (%d.%d.%d)", file_of(arena, function, files->path[i]), number / 10000,
                       number / 100 % 100, number % 100);
    if (library) dlclose(library);
  }
  return text;
}
