/* Kernel text to a shared object for this machine: the same text as C++, with the emulator's scheduler behind it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "compile.h"
#include "process.h"

static const char *compiler(void) {
  static const char *const names[] = {"c++", "g++", "clang++"};
  const char *chosen = getenv("CXX");
  if (chosen && *chosen) return chosen;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (zp_is_on_path(names[i])) return names[i];
  return names[0];
}

/* Contraction stays off, so that every compiler rounds alike. Names of files in messages of the emulator have no
 * folders: the object is the same wherever zplan is installed. */
static void push_options(zp_arena *arena, const zp_cuda_source *source, zp_strings *argv) {
  static const char *const fixed[] = {"-std=c++17", "-fPIC", "-shared", "-ffp-contract=off",    "-fno-exceptions",
                                      "-fno-rtti",  "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-unused-function",
                                      "-DZPD_HOST"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) zp_push(arena, argv, fixed[i]);
  if (zp_cuda_define(source->dtype)) zp_push(arena, argv, zp_cuda_define(source->dtype));
  zp_push(arena, argv, source->sanitize ? "-O1" : "-O2");
  if (source->sanitize) {
    zp_push(arena, argv, "-g1"); /* lines for backtraces, in two thirds of the time */
    zp_push(arena, argv, "-fsanitize=address,undefined");
    zp_push(arena, argv, "-fno-sanitize-recover=all");
  }
  for (int i = 0; i < source->n_include_dirs; i++) {
    zp_push(arena, argv, zp_format(arena, "-I%s", source->include_dirs[i]));
    zp_push(arena, argv, zp_format(arena, "-fmacro-prefix-map=%s/=", source->include_dirs[i]));
  }
}

bool zp_cuda_compile_host(zp_arena *arena, const zp_cuda_source *source, const char *out_path, const char **error) {
  const char *text =
      zp_format(arena, "#line 1 \"%s\"\n%s\n#include \"zpd_host_scheduler.h\"\n", source->name, source->text);
  const char *text_path = zp_format(arena, "%s.cc", out_path), *fresh = zp_format(arena, "%s.new", out_path);
  if (!zp_write_file(arena, text_path, text, strlen(text), error)) return false;
  zp_strings argv = {0};
  zp_push(arena, &argv, compiler());
  push_options(arena, source, &argv);
  const char *rest[] = {text_path, "-o", fresh, "-lm", "-ldl"};
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) zp_push(arena, &argv, rest[i]);
  bool ok = zp_run_compiler(arena, &argv, source->name, error);
  unlink(text_path);
  if (ok && rename(fresh, out_path) != 0) {
    *error = zp_format(arena, "cannot publish %s: %s", out_path, strerror(errno));
    ok = false;
  }
  return ok;
}
