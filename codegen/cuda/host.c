/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel text to a shared object for this machine: the same text as C++, with the emulator's scheduler behind it. */
#include <assert.h>
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

static const char *level_of(const zp_cuda_source *source) { return source->sanitize ? "-Og" : "-O2"; }

/* Contraction stays off, so that every compiler rounds alike. Names of files in messages of the emulator have no
 * folders: the object is the same wherever zplan is installed. */
static void push_options(zp_arena *arena, const zp_cuda_source *source, zp_strings *argv) {
  static const char *const fixed[] = {
      "-std=c++17", "-fPIC",   "-ffp-contract=off",    "-fno-exceptions",      "-fno-rtti",
      "-Wall",      "-Wextra", "-Wno-unknown-pragmas", "-Wno-unused-function", "-DZPD_HOST"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) zp_push(arena, argv, fixed[i]);
  if (zp_cuda_define(source->dtype)) zp_push(arena, argv, zp_cuda_define(source->dtype));
  zp_push(arena, argv, level_of(source));
  if (source->sanitize) {
    zp_push(arena, argv, "-g1"); /* lines for backtraces, in two thirds of the time */
    zp_push(arena, argv, "-fsanitize=address,undefined");
    zp_push(arena, argv, "-fno-sanitize=null,object-size,pointer-overflow"); /* the address sanitizer sees the access */
    zp_push(arena, argv, "-fno-sanitize-recover=all");
  }
  for (int i = 0; i < source->n_include_dirs; i++) {
    zp_push(arena, argv, zp_format(arena, "-I%s", source->include_dirs[i]));
    zp_push(arena, argv, zp_format(arena, "-fmacro-prefix-map=%s/=", source->include_dirs[i]));
  }
}

/* Text in a file to an object or, with "-shared", to what can be loaded. */
static bool run(zp_arena *arena, const zp_cuda_source *source, const char *const *words, size_t n, const char **error) {
  zp_strings argv = {0};
  zp_push(arena, &argv, compiler());
  push_options(arena, source, &argv);
  for (size_t i = 0; i < n; i++) zp_push(arena, &argv, words[i]);
  return zp_run_compiler(arena, &argv, source->name, error);
}

#define RUN(...)                                                                                                       \
  run(arena, source, (const char *const[]){__VA_ARGS__}, sizeof(const char *[]){__VA_ARGS__} / sizeof(char *), error)

/* The text and the scheduler as one. */
static bool compile_whole(zp_arena *arena, const zp_cuda_source *source, const char *out, const char **error) {
  const char *text =
      zp_format(arena, "#line 1 \"%s\"\n%s\n#include \"zpd_host_scheduler.h\"\n", source->name, source->text);
  const char *path = zp_format(arena, "%s.cc", out);
  if (!zp_write_file(arena, path, text, strlen(text), error)) return false;
  bool ok = RUN(path, "-shared", "-o", out, "-lm", "-ldl");
  unlink(path);
  return ok;
}

/* One of the two to an object; `watching`: an option for sources that are watched. */
static bool compile_part(zp_arena *arena, const zp_cuda_source *source, const char *text, const char *level,
                         const char *watching, const char *out, const char **error) {
  const char *path = zp_format(arena, "%s.cc", out), *words[] = {path, "-c", "-o", out, level, watching};
  bool ok =
      zp_write_file(arena, path, text, strlen(text), error) && run(arena, source, words, source->watch ? 6 : 5, error);
  unlink(path);
  return ok;
}

bool zp_cuda_compile_scheduler(zp_arena *arena, const zp_cuda_source *source, const char *out, const char **error) {
  return compile_part(arena, source, "#include \"zpd_host_scheduler.h\"\n", "-O2", "-DZPD_HOST_WATCH", out, error);
}

/* No library of a sanitizer is linked: a scheduler that watches has its functions, or the program that loads this. */
static bool link_parts(zp_arena *arena, const zp_cuda_source *compiled, const char *object, const char *scheduler,
                       const char *out, const char **error) {
  zp_cuda_source plain = *compiled, *source = &plain;
  plain.sanitize = false;
  return RUN(object, scheduler, "-shared", "-o", out, "-lm", "-ldl");
}

/* Only the text calls what watches it, so the scheduler is compiled apart, here or by the caller. */
static bool compile_apart(zp_arena *arena, const zp_cuda_source *source, const char *out, const char **error) {
  const char *text = zp_format(arena, "#line 1 \"%s\"\n%s\n", source->name, source->text);
  const char *object = zp_format(arena, "%s.o", out), *own = zp_format(arena, "%s.own.o", out);
  bool ok = (source->scheduler || zp_cuda_compile_scheduler(arena, source, own, error)) &&
            compile_part(arena, source, text, level_of(source), "-fsanitize=thread", object, error) &&
            link_parts(arena, source, object, source->scheduler ? source->scheduler : own, out, error);
  unlink(object);
  unlink(own);
  return ok;
}

bool zp_cuda_compile_host(zp_arena *arena, const zp_cuda_source *source, const char *out_path, const char **error) {
  assert(!(source->watch && source->sanitize));
  const char *fresh = zp_format(arena, "%s.new", out_path);
  bool ok = (source->watch || source->scheduler ? compile_apart : compile_whole)(arena, source, fresh, error);
  if (ok && rename(fresh, out_path) != 0) {
    *error = zp_format(arena, "cannot publish %s: %s", out_path, strerror(errno));
    ok = false;
  }
  return ok;
}
