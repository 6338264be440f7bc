/* SPDX-License-Identifier: Apache-2.0 */
/* Device kernels compiled for GPUs by NVRTC, which needs no GPU: every text compiles without warnings and without any
 * toolkit header, and keeps its values in registers. Without NVRTC on the machine there is nothing to test, and it says
 * so. NVRTC takes 3 to 9 seconds a text: texts whose code another one has, too, wait for ZPLAN_LONG in the environment
 * (tests/long.sh), and those of tensor cores take turns. */
#include "cuda_objects.h"
#include "../../codegen/cuda/nvrtc_calls.h"

/* The log of ptxas, which names registers and spills of every kernel. In the arena. `define`: NULL or an option. */
static char *compile(zp_arena *arena, const char *text, const char *arch, int head, const char *define) {
  const char *options[] = {zp_format(arena, "-arch=%s", arch),
                           zp_format(arena, "-DZPD_HEAD=%d", head),
                           zp_format(arena, "--include-path=%s", cuda_include_dirs[0]),
                           zp_format(arena, "--include-path=%s", cuda_include_dirs[1]),
                           "--std=c++17",
                           "--ptxas-options=-v",
                           define};
  void *program = NULL;
  size_t log_bytes = 0, cubin_bytes = 0;
  cr_assert_eq(zp_nvrtc.create(&program, text, "kernels.cu", 0, NULL, NULL), 0);
  int status = zp_nvrtc.compile(program, define ? 7 : 6, options);
  cr_assert_eq(zp_nvrtc.log_bytes(program, &log_bytes), 0);
  char *log = zp_alloc(arena, log_bytes + 1);
  cr_assert_eq(zp_nvrtc.log(program, log), 0);
  cr_assert_eq(status, 0, "%s: %s", arch, log);
  cr_assert_eq(zp_nvrtc.cubin_bytes(program, &cubin_bytes), 0);
  cr_expect_gt(cubin_bytes, 10000);
  zp_nvrtc.destroy(&program);
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

/* Kernels of attention, of the end of a step, of layers. The first three: also in f64. */
/* clang-format off */
static const char *const kernels[] = {
    "zpd_attention_forward", "zpd_attention_grad_q", "zpd_attention_grad_kv", "zpd_attention_stretch",
    "zpd_adafactor_rows", "zpd_adafactor_cols", "zpd_adafactor_add", "zpd_adafactor_means", "zpd_adafactor_factors",
    "zpd_adafactor_squares", "zpd_adafactor_apply", "zpd_pack_signs", "zpd_average_signs", "zpd_unpack_signs",
    "zpd_momentum", "zpd_frozen_update", "zpd_add_to_error", "zpd_pack_error", "zpd_owner_update", "zpd_apply_signs",
    "zpd_lamb_fresh", "zpd_lamb_frozen", "zpd_variance", "zpd_local_add", "zpd_local_mean", "zpd_local_weights",
    "zpd_optimizer", "zpd_square_segments", "zpd_lamb_moments", "zpd_decide", "zpd_sum_parts", "zpd_muon_momentum",
    "zpd_muon_mix", "zpd_muon_apply", "zpd_muon_squares", "zpd_muon_place",
    "zpd_embedding", "zpd_embedding_grad", "zpd_position_grad", "zpd_ce_stats", "zpd_ce_loss", "zpd_ce_grad",
    "zpd_merge_parts", "zpd_move_positions", "zpd_mean_positions", "zpd_spread_positions", "zpd_gate_choose",
    "zpd_gate_places", "zpd_gate_grad", "zpd_dispatch", "zpd_combine", "zpd_combine_grad", "zpd_gather",
    "zpd_gather_grad", "zpd_reduce", "zpd_reduce_grad", "zpd_squared_error", "zpd_squared_error_grad",
    "zpd_transpose",
};
/* clang-format on */
enum { ATTENTION = 3, FIRST_OPTIMIZER = 4, FIRST_LAYER = 36, KERNELS = sizeof kernels / sizeof *kernels };

/* f64: division and square root are calls, for which ptxas saves registers; so only attention is checked. */
static void check(const char *text, int first, int end, const char *arch, int head, bool f64) {
  zp_arena *arena = zp_arena_new("nvrtc");
  const char *error = NULL;
  if (!zp_nvrtc_use(arena, NULL, &error)) cr_skip_test("%s", error);
  char *log = compile(arena, text, arch, head, f64 ? "-DZPD_F64" : NULL);
  cr_expect_null(strstr(log, "warning"), "%s, heads up to %d: %s", arch, head, log);
  for (int i = first; i < end; i++) {
    char quoted[64], what[128];
    snprintf(quoted, sizeof quoted, "'%s'", kernels[i]);
    snprintf(what, sizeof what, "%s, f%d, heads up to %d: %s", arch, f64 ? 64 : 32, head, kernels[i]);
    const char *of = strstr(log, quoted);
    cr_assert_not_null(of, "%s is not there", what);
    if (f64 && i >= ATTENTION) continue;
    cr_expect_eq(number_before(of, "bytes spill stores"), 0, "%s spills", what);
    cr_expect_eq(number_before(of, "bytes stack frame"), 0, "%s has arrays in memory", what);
  }
  zp_arena_free(arena);
}

static const char all[] =
    "#define ZPD_ADAFACTOR\n#define ZPD_AXES\n#define ZPD_CONTEXT_KEYS\n#define ZPD_DECODE\n#define ZPD_EXPERTS\n"
    "#define ZPD_MUON\n#define ZPD_ONE_BIT\n#define ZPD_ONE_BIT_LAMB\n"
    "#define ZPD_ZERO_ONE_ADAM\n#include \"zpd_kernels.cuh\"\n";

static void skip_until_long(void) {
  if (!getenv("ZPLAN_LONG")) cr_skip_test("a part of tests/long.sh");
}

/* What takes long has turns of its own by its place in this file. */
Test(kernels_cuda_nvrtc, f32_attention) {
  check("#include \"zpd_attention.cuh\"\n#include \"zpd_stretch.cuh\"\n", 0, FIRST_OPTIMIZER, "sm_80", 256, false);
}
Test(kernels_cuda_nvrtc, f32_optimizers) {
  check("#include \"zpd_adafactor.cuh\"\n#include \"zpd_one_bit_lamb.cuh\"\n#include \"zpd_one_bit_local.cuh\"\n"
        "#include \"zpd_flat.cuh\"\n#include \"zpd_muon.cuh\"\n",
        FIRST_OPTIMIZER, FIRST_LAYER, "sm_80", 256, false);
}
Test(kernels_cuda_nvrtc, f32_in_one_text) {
  skip_until_long(); /* the three texts around it */
  check(all, 0, KERNELS, "sm_80", 256, false);
}
Test(kernels_cuda_nvrtc, f32_layers) {
  check("#include \"zpd_cross_entropy.cuh\"\n#include \"zpd_experts.cuh\"\n#include \"zpd_lookup.cuh\"\n"
        "#include \"zpd_merge.cuh\"\n#include \"zpd_positions.cuh\"\n#include \"zpd_gather.cuh\"\n"
        "#include \"zpd_reduce.cuh\"\n#include \"zpd_squared_error.cuh\"\n#include \"zpd_transpose.cuh\"\n"
        "#include \"zpd_unfold.cuh\"\n",
        FIRST_LAYER, KERNELS, "sm_80", 256, false);
}
Test(kernels_cuda_nvrtc, f64) {
  skip_until_long(); /* the text of f32 in another type */
  check("#include \"zpd_attention.cuh\"\n", 0, ATTENTION, "sm_90", 128, true);
}
Test(kernels_cuda_nvrtc, f64_whole) {
  skip_until_long();
  check(all, 0, KERNELS, "sm_90", 128, true);
}

/* Attention of T5: keys of another sequence, relative biases, dropout. */
#define PAIRS "#define ZPD_CROSS\n#define ZPD_BIAS\n#define ZPD_DROPOUT\n"

static void check_options(const char *arch, const char *text, int head, const char *define, const char *const *names) {
  zp_arena *arena = zp_arena_new("nvrtc");
  const char *error = NULL;
  if (!zp_nvrtc_use(arena, arch, &error)) cr_skip_test("%s", error);
  char *log = compile(arena, text, arch, head, define);
  cr_expect_null(strstr(log, "): warning"), "%s: %s", arch, log);
  for (; *names; names++) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "'%s'", *names);
    const char *of = strstr(log, quoted);
    cr_assert_not_null(of, "%s is not there", quoted);
    cr_expect_eq(number_before(of, "bytes spill stores"), 0, "%s: %s spills", arch, quoted);
    cr_expect_eq(number_before(of, "bytes stack frame"), 0, "%s: %s has arrays in memory", arch, quoted);
  }
  zp_arena_free(arena);
}

Test(kernels_cuda_nvrtc, pairs_f32) {
  skip_until_long(); /* on tensor cores: mma_with_all_options */
  static const char *const names[] = {"zpd_attention_forward",
                                      "zpd_attention_grad_q",
                                      "zpd_attention_grad_kv",
                                      "zpd_bias_lines",
                                      "zpd_bias_grad",
                                      "zpd_attention_stretch",
                                      NULL};
  check_options("sm_80", PAIRS "#include \"zpd_stretch.cuh\"\n", 64, NULL, names);
}

/* Attention on tensor cores: with all tiles of layouts, and dense alone. Tiles of 32 and 16 rows look up where the rows
 * of a step are in a few bytes of local memory. */
static const char layouts_text[] = "#include \"zpd_device.h\"\n"
                                   "ZPD_TABLE int first[] = {0, 1};\n"
                                   "ZPD_TABLE zpd_run runs[] = {{0, 1}};\n"
                                   "#define ZPD_LAYOUTS 1\n"
                                   "ZPD_DEVICE zpd_layout zpd_layout_of(int) {\n"
                                   "  return {64, {first, runs}, {first, runs}};\n"
                                   "}\n"
                                   "#include \"zpd_mma_attention_grad.cuh\"\n";

static void check_mma_text(const char *arch, int head, const char *define, const char *text, bool layouts) {
  static const char *const names[] = {"zpd_mma_forward", "zpd_mma_grad_q", "zpd_mma_grad_kv"};
  static const char *const tiles[] = {"", "_64", "_32", "_16"};
  zp_arena *arena = zp_arena_new("nvrtc");
  const char *error = NULL;
  if (!zp_nvrtc_use(arena, arch, &error)) cr_skip_test("%s", error);
  char *log = compile(arena, text, arch, head, define);
  bool volta = strcmp(arch, "sm_70") == 0; /* NVRTC 12.9 warns that it is old */
  cr_expect_null(strstr(log, volta ? "): warning" : "warning"), "%s, heads up to %d: %s", arch, head, log);
  for (int i = 0; i < 3; i++)
    for (int t = 0; t < (layouts ? 4 : 1); t++) {
      char quoted[64];
      snprintf(quoted, sizeof quoted, "'%s%s'", names[i], tiles[t]);
      const char *of = strstr(log, quoted);
      cr_assert_not_null(of, "%s is not there", quoted);
      cr_expect_eq(number_before(of, "bytes spill stores"), 0, "%s, heads up to %d: %s spills", arch, head, quoted);
      cr_expect_leq(number_before(of, "bytes stack frame"), t < 2 ? 0 : 64,
                    "%s, heads up to %d: %s has arrays in memory", arch, head, quoted);
    }
  zp_arena_free(arena);
}

static void check_mma(const char *arch, int head, const char *define, bool layouts) {
  check_mma_text(arch, head, define, layouts ? layouts_text : "#include \"zpd_mma_attention_grad.cuh\"\n", layouts);
}

Test(kernels_cuda_nvrtc, mma_with_layouts) {
  skip_until_long(); /* smaller tiles, which take fewer registers, of the code below */
  check_mma("sm_80", 64, "-DZPD_BF16", true);
}

Test(kernels_cuda_nvrtc, mma_dense) { /* takes most registers */
  check_mma("sm_80", 256, "-DZPD_BF16", false);
}
Test(kernels_cuda_nvrtc, mma_dense_on_newer_gpus) {
  skip_until_long();
  check_mma("sm_90", 128, "-DZPD_BF16", false);
  check_mma("sm_100", 64, "-DZPD_F16", false);
}

Test(kernels_cuda_nvrtc, mma_with_all_options) {
  static const char *const names[] = {"zpd_mma_forward", "zpd_mma_grad_q", "zpd_mma_grad_q_bias", "zpd_mma_grad_kv",
                                      NULL};
  check_options("sm_90",
                "#define ZPD_WINDOWS\n#define ZPD_DOCUMENTS\n" PAIRS "#include \"zpd_mma_attention_grad.cuh\"\n", 128,
                "-DZPD_BF16", names);
}

/* Where there is NVRTC 12. */
Test(kernels_cuda_nvrtc, mma_of_volta) {
  bool whole = getenv("ZPLAN_LONG") != NULL;
  check_mma("sm_70", 64, "-DZPD_F16", whole); /* whole: also on the tiles of layouts */
  if (whole) check_mma("sm_70", 128, "-DZPD_F16", false);
}

Test(kernels_cuda_nvrtc, older_gpus_have_the_other_kernels) {
  skip_until_long(); /* kernels of f32; which ones is decided in ten lines of zpd_kernels.cuh */
  zp_arena *arena = zp_arena_new("nvrtc");
  const char *error = NULL;
  if (!zp_nvrtc_use(arena, NULL, &error)) cr_skip_test("%s", error);
  const char *log =
      compile(arena, "#define ZPD_TENSOR_CORES\n#include \"zpd_kernels.cuh\"\n", "sm_75", 16, "-DZPD_F16");
  cr_expect_not_null(strstr(log, "'zpd_attention_grad_kv'"));
  cr_expect_null(strstr(log, "zpd_mma"));
  zp_arena_free(arena);
}
