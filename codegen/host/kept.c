/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that were compiled before: FOLDER/KEY.o and KEY.ll, KEY of everything that decides about them. None of it
 * takes LLVM to look at: loading LLVM and making its module would be a third of a build that finds its kernels here.
 *
 * Files appear whole under their names, so builds may share a folder. Nothing is ever removed from it. The last line of
 * the text has a sum of both; what differs from it, a file that lost its end or a bit, is compiled and written
 * again. */
#include <zplan/buf.h>
#include <zplan/hash.h>
#include <zplan/rowkernel.h>
#include "emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two hashes with other starts: one of 64 bits would be too few to trust without a comparison. */
static const char *key_of(zp_arena *arena, const char *bytes, size_t len) {
  uint64_t first = zp_hash(ZP_HASH_START, bytes, len), second = zp_hash(first ^ len, bytes, len);
  return zp_format(arena, "%016llx%016llx", (unsigned long long)first, (unsigned long long)second);
}

static const char *sum_line(zp_arena *arena, const zp_compiled_module *module) {
  return zp_format(arena, "; sums %s %s\n", key_of(arena, module->ir, strlen(module->ir)),
                   key_of(arena, module->object, module->object_bytes));
}

static const char *read_kept(zp_arena *arena, const char *base, const char *suffix, size_t *len) {
  const char *ignored = NULL, *path = zp_format(arena, "%s.%s", base, suffix);
  return access(path, R_OK) == 0 ? zp_read_file(arena, path, len, &ignored) : NULL;
}

/* A file as it is now: device, number, size, time. false: there is none. */
static bool put_mark(zp_buf *text, const char *path) {
  struct stat s;
  if (stat(path, &s) != 0) return false;
  zp_buf_printf(text, "%lld %lld %lld %lld.%09ld\n", (long long)s.st_dev, (long long)s.st_ino, (long long)s.st_size,
                (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
  return true;
}

/* The features of this CPU in Linux's words, which stand for LLVM's; false: they are not known. */
static bool put_features(zp_buf *text) {
  FILE *f = fopen("/proc/cpuinfo", "r");
  char *line = NULL;
  size_t room = 0;
  bool found = false;
  while (f && !found && getline(&line, &room, f) > 0)
    found = strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0;
  if (found) zp_buf_puts(text, line);
  free(line);
  if (f) fclose(f);
  return found;
}

/* Who compiles: this program, in which options of LLVM are, and the library. For what. Programs as kernels, which equal
 * texts make equal, and by name, as they are in the readable text. */
const char *zp_kept_base(zp_arena *arena, const char *folder, const zp_module_spec *spec) {
  zp_buf text = zp_buf_new(arena);
  if (!put_mark(&text, "/proc/self/exe") || !put_mark(&text, zp_kernels_library())) return NULL;
  zp_buf_printf(&text, "%s %d\n", spec->cpu ? spec->cpu : "generic", (int)spec->dtype);
  if (spec->features)
    zp_buf_printf(&text, "%s\n", spec->features);
  else if (!put_features(&text))
    return NULL;
  for (int i = 0; i < spec->count; i++)
    zp_buf_printf(&text, "%s\n%s%s", spec->symbol[i], zp_row_text(spec->program[i]),
                  zp_row_named_text(spec->program[i]));
  return zp_format(arena, "%s/%s", folder, key_of(arena, text.data, text.len));
}

bool zp_kept_read(zp_arena *arena, const char *base, zp_compiled_module *module) {
  zp_compiled_module kept = {0};
  size_t ir_bytes = 0;
  kept.object = read_kept(arena, base, "o", &kept.object_bytes);
  const char *text = kept.object ? read_kept(arena, base, "ll", &ir_bytes) : NULL;
  if (!text) return false;
  size_t sums = strlen(sum_line(arena, &(zp_compiled_module){.ir = "", .object = ""}));
  if (ir_bytes < sums) return false;
  kept.ir = zp_strndup(arena, text, ir_bytes - sums);
  if (strcmp(text + ir_bytes - sums, sum_line(arena, &kept)) != 0) return false;
  *module = kept;
  return true;
}

/* The object last: where it is, its text is, too. */
bool zp_kept_write(zp_arena *arena, const char *base, const zp_compiled_module *module, const char **error) {
  const char *text = zp_format(arena, "%s%s", module->ir, sum_line(arena, module));
  return zp_write_file(arena, zp_format(arena, "%s.ll", base), text, strlen(text), error) &&
         zp_write_file(arena, zp_format(arena, "%s.o", base), module->object, module->object_bytes, error);
}
