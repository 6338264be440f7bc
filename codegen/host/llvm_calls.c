/* SPDX-License-Identifier: Apache-2.0 */
/* Opens LLVM. It stays open to the end of the process. */
#include <dlfcn.h>
#include <unistd.h>
#include <zplan/rowkernel.h>
#include "llvm_calls.h"

zp_llvm_calls zp_llvm;

/* Where zplan was built, a development package may have it in a folder of its own; machines that run zplan need the
 * library alone, by the name that the linker of programs finds. */
const char *zp_kernels_library(void) {
  static const char *const places[] = {ZPLAN_LLVM_LIBRARY, "/usr/lib/" ZPLAN_LLVM_NAME, "/usr/lib64/" ZPLAN_LLVM_NAME,
                                       "/usr/local/lib/" ZPLAN_LLVM_NAME,
                                       "/usr/lib/" ZPLAN_ARCHITECTURE ZPLAN_LLVM_NAME};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (access(places[i], R_OK) == 0) return places[i];
  return ZPLAN_LLVM_LIBRARY;
}

static const char *const names[] = {
#define LLVM_CALL(name) #name,
#include "llvm_calls.def"
#undef LLVM_CALL
};
enum { N_CALLS = sizeof names / sizeof *names };

typedef void function(void);
_Static_assert(sizeof zp_llvm == N_CALLS * sizeof(function *), "the table is its pointers, in the order of the names");

/* C converts no object pointer, which dlsym returns, to that of a function. */
static bool find_call(void *library, const char *name, void *place) {
  void *address = dlsym(library, name);
  memcpy(place, &address, sizeof address);
  return address;
}

/* The parts of LLVM's native target, as llvm-c/Target.h names them; without a result. */
#define NAME_OF(function) NAME_OF_EXPANDED(function)
#define NAME_OF_EXPANDED(function) #function
static const char *const native_parts[] = {NAME_OF(LLVM_NATIVE_TARGETINFO), NAME_OF(LLVM_NATIVE_TARGET),
                                           NAME_OF(LLVM_NATIVE_TARGETMC), NAME_OF(LLVM_NATIVE_ASMPRINTER)};

static const char *open_library(zp_arena *arena) {
  void *library = dlopen(zp_kernels_library(), RTLD_LAZY | RTLD_LOCAL);
  if (!library) return zp_format(arena, "could not load LLVM: %s", dlerror());
  for (int i = 0; i < N_CALLS; i++)
    if (!find_call(library, names[i], (char *)&zp_llvm + (size_t)i * sizeof(function *)))
      return zp_format(arena, "%s has no function %s", zp_kernels_library(), names[i]);
  for (size_t i = 0; i < sizeof native_parts / sizeof *native_parts; i++) {
    function *initialize;
    if (!find_call(library, native_parts[i], &initialize)) return "LLVM has no code generator for this machine";
    initialize();
  }
  return NULL;
}

bool zp_llvm_open(zp_arena *arena, const char **error) {
  static bool opened;
  if (opened) return true;
  const char *failure = open_library(arena);
  opened = !failure;
  if (failure) *error = failure;
  return opened;
}
