/* Compiles kernel sets to shared objects and loads them, for the tests of codegen/host. */
#ifndef ROWPROG_OBJECTS_H
#define ROWPROG_OBJECTS_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zplan/rowkernel.h>

typedef struct loaded_set {
  char folder[64];
  void *library;
} loaded_set;

static inline loaded_set load_set(zp_kernel_set *set, const char *cpu, const char *features) {
  loaded_set l = {.folder = "/tmp/zplan-rowprog-XXXXXX"};
  cr_assert_not_null(mkdtemp(l.folder));
  char object[128], shared[128], command[512];
  snprintf(object, sizeof object, "%s/kernels.o", l.folder);
  snprintf(shared, sizeof shared, "%s/kernels.so", l.folder);
  snprintf(command, sizeof command, "cc -shared -o %s %s -lm", shared, object);
  const char *error = NULL;
  cr_assert(zp_kernels_compile(set, cpu, features, object, NULL, &error), "%s", error);
  cr_assert_eq(system(command), 0, "%s", command);
  l.library = dlopen(shared, RTLD_NOW | RTLD_LOCAL);
  cr_assert_not_null(l.library, "%s", dlerror());
  unlink(object);
  unlink(shared);
  rmdir(l.folder);
  return l;
}

static inline void *find_symbol(const loaded_set *l, const char *symbol) {
  void *address = dlsym(l->library, symbol);
  cr_assert_not_null(address, "no symbol %s", symbol);
  return address;
}

static inline void unload_set(loaded_set *l) { dlclose(l->library); }

#endif
