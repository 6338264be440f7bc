/* Device kernels compiled for GPUs by NVRTC, which needs no GPU: every text compiles without warnings and without any
 * toolkit header, and keeps its values in registers. Without NVRTC on the machine there is nothing to test, and it says
 * so. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvrtc {
  int (*create)(void **program, const char *text, const char *name, int n_headers, const char *const *headers,
                const char *const *names);
  int (*compile)(void *program, int n_options, const char *const *options);
  int (*log_size)(void *program, size_t *bytes);
  int (*log)(void *program, char *log);
  int (*cubin_size)(void *program, size_t *bytes);
  int (*destroy)(void **program);
} nvrtc;

static void *open_library(void) {
  const char *home = getenv("CUDA_HOME");
  char at_home[512];
  snprintf(at_home, sizeof at_home, "%s/lib64/libnvrtc.so", home ? home : "/usr/local/cuda");
  const char *names[] = {"libnvrtc.so.13", "libnvrtc.so.12", at_home};
  void *library = NULL;
  for (int i = 0; i < 3 && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  return library;
}

static bool open_nvrtc(nvrtc *n) {
  void *library = open_library();
  if (!library) {
    cr_log_info("no NVRTC here: nothing was compiled for GPUs");
    return false;
  }
  *(void **)&n->create = dlsym(library, "nvrtcCreateProgram");
  *(void **)&n->compile = dlsym(library, "nvrtcCompileProgram");
  *(void **)&n->log_size = dlsym(library, "nvrtcGetProgramLogSize");
  *(void **)&n->log = dlsym(library, "nvrtcGetProgramLog");
  *(void **)&n->cubin_size = dlsym(library, "nvrtcGetCUBINSize");
  *(void **)&n->destroy = dlsym(library, "nvrtcDestroyProgram");
  return n->create && n->compile && n->log_size && n->log && n->cubin_size && n->destroy;
}

static char *read_file(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s/%s", ZPLAN_SOURCE_DIR, folder, name);
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file, "%s", path);
  char *text = calloc(1, 1 << 16);
  cr_assert_lt(fread(text, 1, 1 << 16, file), 1 << 16);
  fclose(file);
  return text;
}

static const char *const headers[] = {
    "zplan/zpd.h",           "zpd_device.h", "zpd_kernels.cuh", "zpd_attention_tile.cuh", "zpd_attention.cuh",
    "zpd_cross_entropy.cuh", "zpd_flat.cuh", "zpd_lookup.cuh",  "zpd_optimizer.cuh"};
enum { HEADERS = sizeof headers / sizeof *headers };

/* The log of ptxas, which names registers and spills of every kernel. Owned. */
static char *compile(const nvrtc *n, const char *arch, int head, bool f64) {
  char *texts[HEADERS], of_arch[32], of_head[32];
  for (int i = 0; i < HEADERS; i++) texts[i] = read_file(i ? "kernels/cuda" : "kernels/include", headers[i]);
  snprintf(of_arch, sizeof of_arch, "-arch=%s", arch);
  snprintf(of_head, sizeof of_head, "-DZPD_HEAD=%d", head);
  const char *options[] = {of_arch, of_head, "-std=c++17", "--ptxas-options=-v", "-DZPD_F64"};
  void *program = NULL;
  size_t log_bytes = 0, cubin_bytes = 0;
  cr_assert_eq(
      n->create(&program, "#include \"zpd_kernels.cuh\"\n", "kernels.cu", HEADERS, (const char *const *)texts, headers),
      0);
  int status = n->compile(program, f64 ? 5 : 4, options);
  cr_assert_eq(n->log_size(program, &log_bytes), 0);
  char *log = calloc(1, log_bytes + 1);
  cr_assert_eq(n->log(program, log), 0);
  cr_assert_eq(status, 0, "%s: %s", arch, log);
  cr_assert_eq(n->cubin_size(program, &cubin_bytes), 0);
  cr_expect_gt(cubin_bytes, 10000);
  n->destroy(&program);
  for (int i = 0; i < HEADERS; i++) free(texts[i]);
  return log;
}

/* The number before `what` in the log; the first after `from`. */
static long number_before(const char *from, const char *what) {
  const char *at = strstr(from, what);
  cr_assert_not_null(at, "no \"%s\" in %s", what, from);
  while (at > from && at[-1] == ' ') at--;
  while (at > from && at[-1] >= '0' && at[-1] <= '9') at--;
  return strtol(at, NULL, 10);
}

static const char *const kernels[] = {
    "zpd_attention_forward", "zpd_attention_grad_q", "zpd_attention_grad_kv", /* the first three: also in f64 */
    "zpd_embedding",         "zpd_embedding_grad",   "zpd_position_grad",     "zpd_ce_stats", "zpd_ce_loss",
    "zpd_ce_grad",           "zpd_optimizer",        "zpd_sum_squares",       "zpd_add",      "zpd_fill",
    "zpd_add_chunks"};
enum { ATTENTION = 3, KERNELS = sizeof kernels / sizeof *kernels };

/* f64: division and square root are calls, for which ptxas saves registers; so only attention is looked at. */
static void check(const nvrtc *n, const char *arch, int head, bool f64) {
  char *log = compile(n, arch, head, f64);
  cr_expect_null(strstr(log, "warning"), "%s, heads up to %d: %s", arch, head, log);
  for (int i = 0; i < KERNELS; i++) {
    char quoted[64], what[128];
    snprintf(quoted, sizeof quoted, "'%s'", kernels[i]);
    snprintf(what, sizeof what, "%s, f%d, heads up to %d: %s", arch, f64 ? 64 : 32, head, kernels[i]);
    const char *of = strstr(log, quoted);
    cr_assert_not_null(of, "%s is not there", what);
    if (f64 && i >= ATTENTION) continue;
    cr_expect_eq(number_before(of, "bytes spill stores"), 0, "%s spills", what);
    cr_expect_eq(number_before(of, "bytes stack frame"), 0, "%s has arrays in memory", what);
  }
  free(log);
}

Test(kernels_cuda_nvrtc, f32_heads_of_64) {
  nvrtc n;
  if (!open_nvrtc(&n)) return;
  check(&n, "sm_80", 64, false);
  check(&n, "sm_90", 64, false);
}

Test(kernels_cuda_nvrtc, f32_heads_of_128_and_256) {
  nvrtc n;
  if (!open_nvrtc(&n)) return;
  check(&n, "sm_80", 128, false);
  check(&n, "sm_90", 256, false);
}

Test(kernels_cuda_nvrtc, f64) {
  nvrtc n;
  if (!open_nvrtc(&n)) return;
  check(&n, "sm_80", 64, true);
  check(&n, "sm_90", 128, true);
}
