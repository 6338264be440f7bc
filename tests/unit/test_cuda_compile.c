/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel text to cubins where NVRTC is installed, and the errors of both compilers. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <elf.h>
#include <fcntl.h>
#include "cuda_objects.h"
#include "rowprog_testing.h"
#include <zplan/buf.h>

/* A machine without NVRTC: the test says so and counts nothing. */
static const char *archs_or_skip(zp_arena *arena) {
  const char *error = NULL, *archs = zp_cuda_archs(arena, &error);
  if (!archs) cr_skip_test("%s", error);
  return archs;
}

static void check_cubin(zp_arena *arena, const char *text, zpk_dtype dtype, const char *arch, size_t *bytes,
                        char **cubin) {
  char folder[] = "zplan-nvrtc-XXXXXX", path[64];
  const char *error = NULL;
  zp_cuda_source source = cuda_source(text, dtype);
  cr_assert_not_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/kernels.cubin", folder);
  cr_assert(zp_cuda_compile(arena, &source, arch, path, &error), "%s", error);
  *cubin = zp_read_file(arena, path, bytes, &error);
  cr_assert_not_null(*cubin, "%s", error);
  cr_assert(*bytes > SELFMAG && memcmp(*cubin, ELFMAG, SELFMAG) == 0);
  unlink(path);
  cr_assert_eq(rmdir(folder), 0);
}

static bool holds(const char *bytes, size_t count, const char *word) {
  size_t n = strlen(word) + 1;
  for (size_t i = 0; i + n <= count; i++)
    if (memcmp(bytes + i, word, n) == 0) return true;
  return false;
}

/* All models of one size, for one arch; every kernel is in the cubin. */
static void check_models(zp_arena *arena, int64_t cols, zpk_dtype dtype, const char *arch) {
  row_models *m = calloc(1, sizeof *m);
  const char *error = NULL;
  size_t bytes;
  char *cubin;
  row_models_open(m, &cols, 1, dtype);
  const char *text = zp_kernels_cuda_text(m->set, &error);
  cr_assert_not_null(text, "%s", error);
  check_cubin(arena, text, dtype, arch, &bytes, &cubin);
  for (int k = 0; k < zp_kernels_count(m->set); k++)
    cr_assert(holds(cubin, bytes, zp_kernels_symbol(m->set, k)), "%s: %s", arch, zp_kernels_symbol(m->set, k));
  row_models_close(m);
  free(m);
}

/* Rows of one column a thread, and of several with a tail. */
Test(cuda_compile, row_kernels_become_cubins) {
  if (!getenv("ZPLAN_LONG")) cr_skip_test("a part of tests/long.sh; tests/diff/cuda.py compiles those of models");
  zp_arena *arena = zp_arena_new("cubins");
  const char *archs = archs_or_skip(arena);
  check_models(arena, 12, ZPK_F32, zp_strndup(arena, archs, strcspn(archs, " ")));
  check_models(arena, 770, ZPK_F64, "sm_90");
  zp_arena_free(arena);
}

Test(cuda_compile, cubins_are_deterministic) {
  if (sanitized) cr_skip_test("NVRTC compiles the same text with sanitizers and without");
  zp_arena *arena = zp_arena_new("cubins");
  archs_or_skip(arena);
  row_world w = row_world_new(&row_cases[3], 96);
  zp_kernel_set *set = zp_kernels_new(arena, ZPK_F32);
  zp_kernels_add(set, w.graph, first_node(&w, ZP_OP_FUSED_GRAD), "k");
  size_t bytes[2];
  char *cubin[2];
  const char *error = NULL, *text = zp_kernels_cuda_text(set, &error);
  for (int i = 0; i < 2; i++) check_cubin(arena, text, ZPK_F32, "sm_90", &bytes[i], &cubin[i]);
  cr_assert_eq(bytes[0], bytes[1]);
  cr_assert_eq(memcmp(cubin[0], cubin[1], bytes[0]), 0);
  row_world_free(&w);
  zp_arena_free(arena);
}

/* ---- errors ---- */

static const char *error_of(zp_arena *arena, const char *text, const char *arch, const char *path) {
  zp_cuda_source source = cuda_source(text, ZPK_F32);
  const char *error = NULL;
  cr_assert_not(zp_cuda_compile(arena, &source, arch, path, &error));
  cr_assert_not_null(error);
  return error;
}

Test(cuda_compile, archs_that_nvrtc_does_not_take_are_named_with_those_it_takes) {
  static const char *const wrong[] = {"sm_35", "sm_9", "90", "sm_90b", "sm_", "gfx90a", ""};
  zp_arena *arena = zp_arena_new("errors");
  const char *archs = archs_or_skip(arena);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const char *error = error_of(arena, "#include \"zpd_device.h\"\n", wrong[i], "never-written.cubin");
    cr_assert_not_null(strstr(error, zp_format(arena, "`%s`", wrong[i])), "%s", error);
    cr_assert_not_null(strstr(error, archs), "%s", error);
  }
  cr_assert_neq(access("never-written.cubin", F_OK), 0);
  zp_arena_free(arena);
}

Test(cuda_compile, the_log_of_nvrtc_is_on_stderr) {
  zp_arena *arena = zp_arena_new("errors");
  archs_or_skip(arena);
  cr_redirect_stderr(); /* where compilers that are programs of their own say why */
  const char *error = error_of(arena, "int x = y_is_not_there;\n", "sm_90", "never-written.cubin");
  char log[2048] = "";
  fflush(stderr);
  size_t len = fread(log, 1, sizeof log - 1, cr_get_redirected_stderr());
  cr_assert(len > 0 && strstr(log, "kernels.cu(1)") && strstr(log, "y_is_not_there"), "%s", log);
  cr_assert_not_null(strstr(error, "NVRTC failed on kernels.cu for sm_90"), "%s", error);
  zp_arena_free(arena);
}

Test(cuda_compile, no_nvrtc_is_an_error_that_says_what_is_missing) {
  zp_arena *arena = zp_arena_new("errors");
  const char *error = NULL;
  if (zp_cuda_archs(arena, &error)) cr_skip_test("NVRTC is here");
  cr_assert_not_null(strstr(error, "NVRTC"), "%s", error);
  cr_assert_null(zp_cuda_library(arena, NULL, &error));
  cr_assert_not_null(strstr(error_of(arena, "", "sm_90", "never-written.cubin"), "NVRTC"));
  zp_arena_free(arena);
}

/* The host's compiler; its messages go to stderr. */
Test(cuda_compile, text_that_is_no_cpp_and_folders_that_are_not_there) {
  zp_arena *arena = zp_arena_new("errors");
  cr_assert_eq(dup2(open("/dev/null", O_WRONLY), 2), 2);
  const char *error = error_of(arena, "int x = y_is_not_there;\n", "host", "never-written.so");
  cr_assert_not_null(strstr(error, "failed on kernels.cu"), "%s", error);
  cr_assert_neq(access("never-written.so", F_OK), 0);
  cr_assert_neq(access("never-written.so.cc", F_OK), 0, "the text is left behind");
  error_of(arena, "", "host", "/nonexistent-folder/kernels.so");
  setenv("CXX", "no-such-compiler", 1);
  cr_assert_not_null(strstr(error_of(arena, "", "host", "never-written.so"), "`no-such-compiler` was not found"));
  zp_arena_free(arena);
}
