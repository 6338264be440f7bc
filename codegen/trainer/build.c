/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a generated tree and compiles it with the system compiler. */
#include "device.h"
#include "emit.h"
#include "process.h"
#include <zplan/cuda.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool says(zp_arena *arena, const char *path, const char *text) {
  size_t len = strlen(text), old_len = 0;
  const char *ignored = NULL;
  char *old = access(path, R_OK) == 0 ? zp_read_file(arena, path, &old_len, &ignored) : NULL;
  return old && old_len == len && memcmp(old, text, len) == 0;
}

/* A generated folder, and what its binary is made with. */
typedef struct tree {
  zp_arena *arena;
  const char *dir;
  const zp_toolchain *tools;
  bool mpi, gpu;
  zpk_dtype dtype;
} tree;

static const char *in_tree(const tree *t, const char *file) { return zp_format(t->arena, "%s/%s", t->dir, file); }

static bool is_emulated(const tree *t) { return t->gpu && strcmp(t->tools->arch, "host") == 0; }

static const char *compiler(const tree *t) {
  if (t->tools->cc) return t->tools->cc;
  if (t->mpi) return zp_is_on_path("mpicc.openmpi") ? "mpicc.openmpi" : "mpicc";
  return getenv("CC") ? getenv("CC") : "cc";
}

/* The runtime and its back end call each other: it stands on both sides. */
static void push_libraries(const tree *t, zp_strings *argv) {
  const char *transport = t->mpi ? "-lzplanrt_mpi" : "-lzplanrt_self";
  const char *cpu[] = {"-lzplanrt",       "-lzplanrt_cpu", "-lzplanrt", transport,
                       "-lzplan_kernels", "-lpthread",     "-ldl",      "-lm"};
  const char *gpu[] = {"-lzplanrt",       "-lzplanrt_cuda", "-lzplanrt", transport,
                       "-lzplan_kernels", "-lpthread",      "-ldl",      "-lm"};
  const char **libs = t->gpu ? gpu : cpu;
  size_t n = t->gpu ? sizeof gpu / sizeof *gpu : sizeof cpu / sizeof *cpu;
  for (int i = 0; i < 2; i++) zp_push(t->arena, argv, zp_format(t->arena, "-L%s", t->tools->library_dirs[i]));
  for (size_t i = 0; i < n; i++) zp_push(t->arena, argv, libs[i]);
  /* The emulated driver is opened by its name, as the real one is. The old kind of path also counts when a sanitizer's
   * library is who opens it. */
  if (!is_emulated(t)) return;
  const char *words[] = {"--disable-new-dtags", "-rpath", t->tools->library_dirs[0]}; /* -Wl would end at a comma */
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    zp_push(t->arena, argv, "-Xlinker");
    zp_push(t->arena, argv, words[i]);
  }
}

static bool compile_trainer(const tree *t, const char **error) {
  zp_arena *arena = t->arena;
  zp_strings argv = {0};
  const char *fixed[] = {compiler(t), "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) zp_push(arena, &argv, fixed[i]);
  if (t->tools->sanitize) zp_push(arena, &argv, "-fsanitize=address,undefined");
  for (int i = 0; i < 2; i++) zp_push(arena, &argv, zp_format(arena, "-I%s", t->tools->include_dirs[i]));
  zp_push(arena, &argv, in_tree(t, "trainer.c"));
  if (t->gpu) {
    const char *alongside[] = {"-Xassembler", "-I", "-Xassembler", t->dir}; /* where .incbin finds kernels.image */
    for (size_t i = 0; i < sizeof alongside / sizeof *alongside; i++) zp_push(arena, &argv, alongside[i]);
    zp_push(arena, &argv, in_tree(t, "kernels_image.S"));
  } else {
    zp_push(arena, &argv, in_tree(t, "kernels.o"));
  }
  zp_push(arena, &argv, "-o");
  zp_push(arena, &argv, in_tree(t, "trainer.new"));
  push_libraries(t, &argv);
  if (!zp_run_compiler(arena, &argv, "the generated trainer", error)) return false;
  const char *from = in_tree(t, "trainer.new"), *to = in_tree(t, "trainer");
  if (rename(from, to) == 0) return true;
  *error = zp_format(arena, "cannot publish %s: %s", to, strerror(errno));
  return false;
}

static bool compile_kernels(const tree *t, const zp_trainer_text *text, const char *kernels_cu, const char **error) {
  if (!t->gpu)
    return zp_kernels_compile(text->kernels, NULL, NULL, t->tools->kept_kernels, in_tree(t, "kernels.o"),
                              in_tree(t, "kernels.ll"), error);
  const zp_cuda_source source = {.text = kernels_cu,
                                 .name = "kernels.cu",
                                 .include_dirs = t->tools->device_dirs,
                                 .n_include_dirs = sizeof t->tools->device_dirs / sizeof *t->tools->device_dirs,
                                 .dtype = t->dtype,
                                 .sanitize = t->tools->sanitize};
  return zp_cuda_compile(t->arena, &source, t->tools->arch, in_tree(t, "kernels.image"), error);
}

static bool newer(const char *a, const char *b) {
  struct stat x, y;
  if (stat(a, &x) != 0 || stat(b, &y) != 0) return false;
  return x.st_mtim.tv_sec != y.st_mtim.tv_sec ? x.st_mtim.tv_sec > y.st_mtim.tv_sec
                                              : x.st_mtim.tv_nsec >= y.st_mtim.tv_nsec;
}

/* Is `file` newer than every header in the folder? */
static bool newer_than_headers(zp_arena *arena, const char *file, const char *folder) {
  DIR *dir = opendir(folder);
  bool all = dir != NULL;
  for (struct dirent *entry; all && (entry = readdir(dir)) != NULL;)
    if (strstr(entry->d_name, ".h") || strstr(entry->d_name, ".cuh") || strstr(entry->d_name, ".def"))
      all = newer(file, zp_format(arena, "%s/%s", folder, entry->d_name));
  if (dir) closedir(dir);
  return all;
}

static bool kernels_are_current(const tree *t) {
  if (!t->gpu) return newer(in_tree(t, "kernels.o"), in_tree(t, "rows.txt"));
  const char *image = in_tree(t, "kernels.image");
  return newer(image, in_tree(t, "kernels.cu")) && newer(image, in_tree(t, "Makefile")) && /* it names the arch */
         newer_than_headers(t->arena, image, zp_format(t->arena, "%s/zplan", t->tools->device_dirs[0])) &&
         newer_than_headers(t->arena, image, t->tools->device_dirs[1]) &&
         newer_than_headers(t->arena, image, t->tools->device_dirs[2]);
}

/* Was the binary made from what the folder holds? A build that was interrupted leaves new sources alongside an old
 * binary. Sources keep their time when they are not rewritten. */
static bool is_current(const tree *t) {
  const char *binary = in_tree(t, "trainer"), *runtime = t->tools->library_dirs[0];
  return kernels_are_current(t) && newer(binary, in_tree(t, t->gpu ? "kernels.image" : "kernels.o")) &&
         newer(binary, in_tree(t, "trainer.c")) && newer(binary, zp_format(t->arena, "%s/libzplanrt.a", runtime)) &&
         newer(binary, zp_format(t->arena, "%s/libzplanrt_%s.a", runtime, t->gpu ? "cuda" : "cpu")) &&
         newer(binary, zp_format(t->arena, "%s/libzplanrt_%s.a", runtime, t->mpi ? "mpi" : "self")) &&
         newer(binary, zp_format(t->arena, "%s/libzplan_kernels.a", t->tools->library_dirs[1]));
}

/* Leaves *changed alone where only what is not compiled would change. dry: nothing is written. */
static bool write_sources(const tree *t, const zp_trainer_text *text, const char *kernels_cu, const char *plan_text,
                          bool *changed, bool dry, const char **error) {
  const struct {
    const char *file, *text;
    bool rebuilds; /* does a change of it change the binary? */
  } files[] = {{"trainer.c", text->trainer_c, true},
               {"rows.txt", zp_kernels_text(text->kernels), true},
               {"Makefile", text->makefile, t->gpu},
               {"zplan.mk", zp_emit_zplan_mk(t->arena, t->tools, compiler(t)), false},
               {"plan.json", plan_text, false},
               {"kernels.cu", kernels_cu, true},
               {"kernels_image.S", zp_kernels_image_s, true}};
  size_t n = sizeof files / sizeof *files - (t->gpu ? 0 : 2);
  bool ignored = false;
  for (size_t i = 0; i < n; i++)
    if (dry)
      *changed |= files[i].rebuilds && !says(t->arena, in_tree(t, files[i].file), files[i].text);
    else if (!zp_generated_write(t->arena, t->dir, files[i].file, files[i].text, t->tools->force,
                                 files[i].rebuilds ? changed : &ignored, error))
      return false;
  return true;
}

static const char *build_in(const tree *t, const zp_plan *plan, const zp_trainer_text *text, const char *plan_text,
                            const char **error) {
  bool changed = false;
  const char *kernels_cu =
      t->gpu ? zp_trainer_kernels_cu(t->arena, plan, text->kernels, t->tools->arch, t->tools->extras, error) : NULL;
  if (t->gpu && !kernels_cu) return NULL;
  if (zp_tree_in_use(t->arena, t->dir)) {
    if (!write_sources(t, text, kernels_cu, plan_text, &changed, true, error)) return NULL;
    if (!changed && is_current(t)) return in_tree(t, "trainer");
    *error = zp_tree_busy(t->arena, t->dir);
    return NULL;
  }
  if (!t->tools->force && !zp_generated_may_begin(t->arena, t->dir, error)) return NULL;
  if (!write_sources(t, text, kernels_cu, plan_text, &changed, false, error)) return NULL;
  if (!changed && is_current(t)) return in_tree(t, "trainer");
  if (!compile_kernels(t, text, kernels_cu, error)) return NULL;
  return compile_trainer(t, error) ? in_tree(t, "trainer") : NULL;
}

const char *zp_trainer_build(zp_arena *arena, const zp_plan *plan, const zp_diags *diags, const zp_toolchain *tools,
                             const char *dir, const char **error) {
  assert(plan->feasible && tools && dir && error);
  *error = NULL;
  tree t = {.arena = arena, .dir = dir, .tools = tools, .mpi = zp_choice_ranks(&plan->best.choice) > 1};
  t.gpu = !plan->spec->cluster.node.device.is_cpu;
  t.dtype = zp_trainer_dtype(plan);
  zp_trainer_text text = zp_trainer_print(arena, plan, diags, tools->arch, tools->extras);
  zp_json *json = zp_plan_to_json(arena, plan);
  zp_set_model_folder(arena, json, plan->spec, in_tree(&t, "plan.json"));
  const char *plan_text = zp_json_text(arena, json, true);
  zp_json_free(json);
  return build_in(&t, plan, &text, plan_text, error);
}
