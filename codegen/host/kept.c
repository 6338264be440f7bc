/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that were compiled before: FOLDER/KEY.o and KEY.ll, KEY of everything that LLVM is given.
 *
 * Files appear whole under their names, so builds may share a folder. Nothing is ever removed from it. The last line of
 * the text has a sum of both; what differs from it, a file that lost its end or a bit, is compiled and written
 * again. */
#include <zplan/buf.h>
#include <zplan/hash.h>
#include "emit.h"

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

const char *zp_kept_base(zp_arena *arena, const char *folder, const char *text) {
  return zp_format(arena, "%s/%s", folder, key_of(arena, text, strlen(text)));
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
