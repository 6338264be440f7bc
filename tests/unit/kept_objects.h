/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of the emulator that were compiled once serve every test of a build that asks for the same text: tests run in
 * processes of their own, and compiling a text takes longer than most of them compute. */
#ifndef KEPT_OBJECTS_H
#define KEPT_OBJECTS_H

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zplan/buf.h>
#include <zplan/cuda.h>
#include <zplan/hash.h>

static inline uint64_t hash_of_file(zp_arena *arena, uint64_t hash, const char *path) {
  size_t length = 0;
  const char *error = NULL, *text = zp_read_file(arena, path, &length, &error);
  return text ? zp_hash(hash, text, length) : hash;
}

/* All that texts include, and what has them compiled; a sum, because folders list their files in any order. */
static inline uint64_t hash_of_kernels(zp_arena *arena, const zp_cuda_source *source) {
  uint64_t hash = hash_of_file(arena, ZP_HASH_START, ZPLAN_SOURCE_DIR "/codegen/cuda/host.c"), sum = 0;
  for (int i = 0; i <= source->n_include_dirs; i++) {
    const char *path = i > 0 ? source->include_dirs[i - 1] : ZPLAN_SOURCE_DIR "/kernels/include/zplan";
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));)
      sum += hash_of_file(arena, hash, zp_format(arena, "%s/%s", path, e->d_name));
    if (folder) closedir(folder);
  }
  return hash + sum;
}

/* Where what is made of a source lies, or is to lie: under a name that says all that it is made of, and ends with
 * `end`. Objects of other kernels than today's are removed. */
static inline const char *kept_object(zp_arena *arena, const zp_cuda_source *source, const char *end) {
  static const char all[] = ZPLAN_BUILD_DIR "/tests/emulated";
  unsigned long long now = hash_of_kernels(arena, source);
  const char *folder = zp_format(arena, "%s/%016llx", all, now);
  mkdir(all, 0777);
  if (mkdir(folder, 0777) == 0 && /* one of the tests that want it makes it, and tidies up */
      system(zp_format(arena, "cd '%s' && ls | grep -v %016llx | xargs rm -rf", all, now)) != 0)
    return NULL;
  /* Tests that run together have several compilers. */
  const char *cxx = getenv("CXX");
  uint64_t hash = zp_hash(ZP_HASH_START, source->text, strlen(source->text));
  if (cxx) hash = hash_of_file(arena, zp_hash(hash, cxx, strlen(cxx)), cxx);
  return zp_format(arena, "%s/%016llx-%d%s%s%s", folder, (unsigned long long)hash, (int)source->dtype,
                   source->watch ? "-watched" : "", source->sanitize ? "-sanitized" : "", end);
}

/* Waits until nobody else makes the object; to be closed. */
static inline int kept_lock(zp_arena *arena, const char *path) {
  int file = open(zp_format(arena, "%s.lock", path), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) flock(file, LOCK_EX);
  return file;
}

#endif
