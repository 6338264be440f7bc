/* Writes a generated tree and compiles it with the system compiler. */
#include "emit.h"
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool make_dirs(zp_arena *arena, const char *dir, const char **error) {
  char *path = zp_strdup(arena, dir);
  for (char *p = path + 1;; p++) {
    if (*p && *p != '/') continue;
    char end = *p;
    *p = '\0';
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
      *error = zp_format(arena, "cannot create the folder %s: %s", path, strerror(errno));
      return false;
    }
    if (!end) return true;
    *p = end;
  }
}

/* Leaves the file alone when it already says this, so that nothing is rebuilt for nothing. *changed is set, never
 * cleared. */
static bool write_if_changed(zp_arena *arena, const char *path, const char *text, bool *changed, const char **error) {
  size_t len = strlen(text), old_len = 0;
  const char *ignored = NULL;
  char *old = access(path, R_OK) == 0 ? zp_read_file(arena, path, &old_len, &ignored) : NULL;
  if (old && old_len == len && memcmp(old, text, len) == 0) return true;
  *changed = true;
  return zp_write_file(arena, path, text, len, error);
}

static const char *compiler(const zp_toolchain *tools, bool mpi) {
  if (tools->cc) return tools->cc;
  if (mpi) return zp_is_on_path("mpicc.openmpi") ? "mpicc.openmpi" : "mpicc";
  return getenv("CC") ? getenv("CC") : "cc";
}

static bool compile(zp_arena *arena, const zp_toolchain *tools, const char *dir, bool mpi, const char **error) {
  zp_strings argv = {0};
  const char *fixed[] = {compiler(tools, mpi), "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) zp_push(arena, &argv, fixed[i]);
  if (tools->sanitize) zp_push(arena, &argv, "-fsanitize=address,undefined");
  for (int i = 0; i < 2; i++) zp_push(arena, &argv, zp_format(arena, "-I%s", tools->include_dirs[i]));
  zp_push(arena, &argv, zp_format(arena, "%s/trainer.c", dir));
  zp_push(arena, &argv, zp_format(arena, "%s/kernels.o", dir));
  zp_push(arena, &argv, "-o");
  zp_push(arena, &argv, zp_format(arena, "%s/trainer.new", dir));
  for (int i = 0; i < 2; i++) zp_push(arena, &argv, zp_format(arena, "-L%s", tools->library_dirs[i]));
  const char *libs[] = {
      "-lzplanrt", mpi ? "-lzplanrt_mpi" : "-lzplanrt_self", "-lzplan_kernels", "-lopenblas", "-lpthread", "-lm"};
  for (size_t i = 0; i < sizeof libs / sizeof *libs; i++) zp_push(arena, &argv, libs[i]);
  if (!zp_run_compiler(arena, &argv, "the generated trainer", error)) return false;
  const char *from = zp_format(arena, "%s/trainer.new", dir), *to = zp_format(arena, "%s/trainer", dir);
  if (rename(from, to) == 0) return true;
  *error = zp_format(arena, "cannot publish %s: %s", to, strerror(errno));
  return false;
}

static bool newer(const char *a, const char *b) {
  struct stat x, y;
  if (stat(a, &x) != 0 || stat(b, &y) != 0) return false;
  return x.st_mtim.tv_sec != y.st_mtim.tv_sec ? x.st_mtim.tv_sec > y.st_mtim.tv_sec
                                              : x.st_mtim.tv_nsec >= y.st_mtim.tv_nsec;
}

/* Was the binary made from what the folder holds? A build that was interrupted leaves new sources beside an old binary.
 * Sources keep their time when they are not rewritten. */
static bool is_current(zp_arena *arena, const zp_toolchain *tools, const char *dir, bool mpi) {
  const char *binary = zp_format(arena, "%s/trainer", dir), *object = zp_format(arena, "%s/kernels.o", dir);
  const char *runtime = tools->library_dirs[0];
  return newer(object, zp_format(arena, "%s/rows.txt", dir)) && newer(binary, object) &&
         newer(binary, zp_format(arena, "%s/trainer.c", dir)) &&
         newer(binary, zp_format(arena, "%s/libzplanrt.a", runtime)) &&
         newer(binary, zp_format(arena, "%s/libzplanrt_%s.a", runtime, mpi ? "mpi" : "self")) &&
         newer(binary, zp_format(arena, "%s/libzplan_kernels.a", tools->library_dirs[1]));
}

/* Builds in one folder wait for each other, so that no trainer is made of two plans. The lock goes with the file
 * descriptor; -1 with *error. */
static int lock_folder(zp_arena *arena, const char *dir, const char **error) {
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && flock(fd, LOCK_EX) == 0) return fd;
  *error = zp_format(arena, "cannot lock the folder %s: %s", dir, strerror(errno));
  if (fd >= 0) close(fd);
  return -1;
}

static const char *build_in(zp_arena *arena, const zp_plan *plan, const zp_trainer_text *text, const char *plan_text,
                            const zp_toolchain *tools, const char *dir, const char **error) {
  const zp_choice *c = &plan->best.choice;
  bool mpi = c->tensor * c->pipeline * c->data > 1, changed = false, ignored = false;
  const char *binary = zp_format(arena, "%s/trainer", dir), *object = zp_format(arena, "%s/kernels.o", dir);
  if (!write_if_changed(arena, zp_format(arena, "%s/trainer.c", dir), text->trainer_c, &changed, error) ||
      !write_if_changed(arena, zp_format(arena, "%s/rows.txt", dir), zp_kernels_text(text->kernels), &changed, error) ||
      !write_if_changed(arena, zp_format(arena, "%s/Makefile", dir), text->makefile, &ignored, error) ||
      !write_if_changed(arena, zp_format(arena, "%s/plan.json", dir), plan_text, &ignored, error))
    return NULL;
  if (!changed && is_current(arena, tools, dir, mpi)) return binary;
  if (!zp_kernels_compile(text->kernels, NULL, NULL, object, zp_format(arena, "%s/kernels.ll", dir), error))
    return NULL;
  return compile(arena, tools, dir, mpi, error) ? binary : NULL;
}

const char *zp_trainer_build(zp_arena *arena, const zp_plan *plan, const zp_diags *diags, const zp_toolchain *tools,
                             const char *dir, const char **error) {
  *error = NULL;
  zp_trainer_text text = zp_trainer_print(arena, plan, diags);
  zp_json *json = zp_plan_to_json(arena, plan);
  const char *plan_text = zp_json_text(arena, json, true);
  zp_json_free(json);
  if (!make_dirs(arena, dir, error)) return NULL;
  int lock = lock_folder(arena, dir, error);
  if (lock < 0) return NULL;
  const char *binary = build_in(arena, plan, &text, plan_text, tools, dir, error);
  close(lock);
  return binary;
}
