/* SPDX-License-Identifier: Apache-2.0 */
/* Opens NVRTC. A machine may have several: 13 has no Volta any more, and old ones lack new archs, so what an arch needs
 * decides. Which archs a library has it says itself. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/buf.h>
#include <zplan/cuda_places.h>
#include "nvrtc_calls.h"

zp_nvrtc_calls zp_nvrtc;

static const char *const symbols[] = {
#define NVRTC_CALL(member, symbol, arguments) symbol,
#include "nvrtc_calls.def"
#undef NVRTC_CALL
};
enum { N_CALLS = sizeof symbols / sizeof *symbols };

typedef void function(void);
_Static_assert(sizeof(zp_nvrtc_calls) == N_CALLS * sizeof(function *),
               "the table is its pointers, in the order of the symbols");

static struct {
  bool searched;
  zp_arena *arena; /* to the end of the process */
  const char *broken;
  int n;
  zp_nvrtc_library library[ZPR_CUDA_FILES];
} found;

/* Where the loader found what was asked for by a bare name. */
static const char *path_of(const zp_nvrtc_library *l, const char *asked) {
  Dl_info info;
  void *address;
  memcpy(&address, &l->call.version, sizeof address);
  bool known = !strchr(asked, '/') && dladdr(address, &info) != 0 && info.dli_fname;
  return zp_strdup(found.arena, known ? info.dli_fname : asked);
}

/* It opens its builtins by their bare name; in a wheel they stand alongside it, where the loader does not look. */
static void open_builtins(const zp_nvrtc_library *l) {
  const char *slash = strrchr(l->path, '/');
  if (slash)
    dlopen(
        zp_format(found.arena, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - l->path), l->path, l->major, l->minor),
        RTLD_LAZY | RTLD_GLOBAL);
}

/* NULL, or why the library cannot be used. */
static const char *fill(zp_nvrtc_library *l, void *library, const char *asked) {
  for (int i = 0; i < N_CALLS; i++) {
    void *address = dlsym(library, symbols[i]);
    if (!address) return zp_format(found.arena, "%s has no function %s", asked, symbols[i]);
    memcpy((char *)&l->call + (size_t)i * sizeof address, &address, sizeof address);
  }
  l->path = path_of(l, asked);
  if (l->call.version(&l->major, &l->minor) != 0) return zp_format(found.arena, "%s does not say its version", l->path);
  int *archs = NULL;
  if (l->call.count_archs(&l->n_archs) == 0 && l->n_archs > 0) archs = ZP_NEW_ARRAY(found.arena, int, l->n_archs);
  if (!archs || l->call.archs(archs) != 0)
    return zp_format(found.arena, "%s does not say which archs it compiles for", l->path);
  l->archs = archs;
  return NULL;
}

static bool is_known(const zp_nvrtc_library *l) {
  for (int i = 0; i < found.n; i++)
    if (found.library[i].call.version == l->call.version) return true;
  return false;
}

static void search(void) {
  static zpr_cuda_files files;
  found.searched = true;
  found.arena = zp_arena_new("nvrtc");
  zpr_cuda_find_files("libnvrtc.so", &files);
  for (int i = 0; i < files.n; i++) {
    zp_nvrtc_library l = {0};
    void *library = dlopen(files.path[i], RTLD_LAZY | RTLD_LOCAL);
    const char *broken = library ? fill(&l, library, files.path[i]) : NULL;
    if (broken) found.broken = broken;
    if (!library || broken || is_known(&l)) continue;
    open_builtins(&l);
    found.library[found.n++] = l;
  }
}

const zp_nvrtc_library *zp_nvrtc_all(int *count, const char **broken) {
  if (!found.searched) search();
  *count = found.n;
  *broken = found.broken;
  return found.library;
}

/* "sm_90" and "sm_90a" are there when 90 is. Whether a letter is legal is left to NVRTC. */
static bool compiles_for(const zp_nvrtc_library *l, const char *arch) {
  char *end = NULL;
  long number = strncmp(arch, "sm_", 3) == 0 ? strtol(arch + 3, &end, 10) : 0;
  bool letter = end && (*end == 'a' || *end == 'f');
  if (!end || end[letter] != '\0') return false;
  for (int i = 0; i < l->n_archs; i++)
    if (l->archs[i] == number) return true;
  return false;
}

static const char *why_none(zp_arena *arena, const char *arch, int n) {
  if (n == 0)
    return zp_format(
        arena,
        "there is no NVRTC (libnvrtc.so.13 or .12, of the CUDA toolkit or of a wheel of python3); CUDA_HOME "
        "may say where the toolkit is%s%s",
        found.broken ? "; " : "", found.broken ? found.broken : "");
  zp_buf text = zp_buf_new(arena);
  for (int i = 0; i < n; i++) {
    const zp_nvrtc_library *l = &found.library[i];
    zp_buf_printf(&text, "%s%s (%d.%d) takes", i ? "; " : "", l->path, l->major, l->minor);
    for (int k = 0; k < l->n_archs; k++) zp_buf_printf(&text, " sm_%d", l->archs[k]);
  }
  bool volta = strcmp(arch, "sm_70") == 0 || strcmp(arch, "sm_72") == 0;
  return zp_format(arena, "no NVRTC of this machine compiles for `%s`%s; %s", arch,
                   volta ? ", which needs that of CUDA 12, because 13 has no Volta" : "", text.data);
}

const zp_nvrtc_library *zp_nvrtc_use(zp_arena *arena, const char *arch, const char **error) {
  int n;
  const char *broken;
  const zp_nvrtc_library *all = zp_nvrtc_all(&n, &broken);
  for (int i = 0; i < n; i++) {
    if (arch && !compiles_for(&all[i], arch)) continue;
    zp_nvrtc = all[i].call;
    return &all[i];
  }
  *error = why_none(arena, arch ? arch : "", n);
  return NULL;
}
