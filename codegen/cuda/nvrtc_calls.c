/* Opens NVRTC. It stays open to the end of the process. */
#include <dlfcn.h>
#include <stdlib.h>
#include "nvrtc_calls.h"

zp_nvrtc_calls zp_nvrtc;

static const char *const symbols[] = {
#define NVRTC_CALL(member, symbol, arguments) symbol,
#include "nvrtc_calls.def"
#undef NVRTC_CALL
};
enum { N_CALLS = sizeof symbols / sizeof *symbols };

typedef void function(void);
_Static_assert(sizeof zp_nvrtc == N_CALLS * sizeof(function *),
               "the table is its pointers, in the order of the symbols");

static char file[4096];

const char *zp_nvrtc_file(void) { return file; }

/* Newest first. Older ones lack nvrtcGetCUBIN or archs that zplan knows. */
static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

static void *open_in(zp_arena *arena, const char *folder) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = folder ? zp_format(arena, "%s/%s", folder, names[i]) : names[i];
    void *library = strlen(path) < sizeof file ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (!library) continue;
    strcpy(file, path);
    return library;
  }
  return NULL;
}

static void *open_below(zp_arena *arena, const char *toolkit) {
  static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
  void *library = NULL;
  for (size_t i = 0; toolkit && *toolkit && !library && i < sizeof folders / sizeof *folders; i++)
    library = open_in(arena, zp_format(arena, "%s/%s", toolkit, folders[i]));
  return library;
}

static const char *open_library(zp_arena *arena) {
  void *library = open_below(arena, getenv("CUDA_HOME"));
  if (!library) library = open_below(arena, getenv("CUDA_PATH"));
  if (!library) library = open_in(arena, NULL);
  if (!library) library = open_below(arena, "/usr/local/cuda");
  if (!library)
    return "there is no NVRTC (libnvrtc.so.13 or .12, of the CUDA toolkit); CUDA_HOME may say where the toolkit is";
  for (int i = 0; i < N_CALLS; i++) {
    void *address = dlsym(library, symbols[i]);
    if (!address) return zp_format(arena, "%s has no function %s", file, symbols[i]);
    memcpy((char *)&zp_nvrtc + (size_t)i * sizeof address, &address, sizeof address);
  }
  return NULL;
}

bool zp_nvrtc_open(zp_arena *arena, const char **error) {
  static bool opened;
  if (opened) return true;
  const char *failure = open_library(arena);
  opened = !failure;
  if (failure) *error = failure;
  return opened;
}
