/* SPDX-License-Identifier: Apache-2.0 */
/* No shared libraries: none is found. */
#ifndef ZPLAN_ABSENT_DLFCN_H
#define ZPLAN_ABSENT_DLFCN_H

#include <stddef.h>

typedef struct Dl_info {
  const char *dli_fname;
} Dl_info;
enum { RTLD_LOCAL, RTLD_LAZY, RTLD_NOW };

static inline void *dlopen(const char *path, int how) { return (void)path, (void)how, NULL; }
static inline void *dlsym(void *library, const char *name) { return (void)library, (void)name, NULL; }
static inline int dladdr(const void *address, Dl_info *found) { return (void)address, (void)found, 0; }
static inline int dlclose(void *library) { return (void)library, 0; }
static inline char *dlerror(void) { return (char *)"no shared libraries here"; }

#endif
