/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's blocks and threads: what they compute, and what they refuse that a GPU would leave undefined. */
#include <math.h>
#include "cuda_objects.h"

static const char geometry_text[] =
    "#include \"zpd_device.h\"\n"
    "struct given { unsigned *out; unsigned *n; };\n"
    "ZPD_KERNEL(geometry, given) {\n"
    "  unsigned *at = a.out + 6 * (*a.n)++;\n"
    "  at[0] = blockIdx.x, at[1] = blockIdx.y, at[2] = blockIdx.z;\n"
    "  at[3] = threadIdx.x, at[4] = threadIdx.y, at[5] = threadIdx.z;\n"
    "  if (gridDim.x != 2 || gridDim.y != 3 || blockDim.x != 5 || blockDim.z != 2) *a.n = 0;\n"
    "}\n";

/* Blocks in order; of a block without barriers all threads up, of the next one all threads down. */
Test(cuda_emulator, every_thread_of_every_block_runs_once) {
  enum { COUNT = 2 * 3 * 2 * 5 * 3 * 2 };
  static unsigned out[6 * (COUNT + 1)];
  unsigned n = 0, expected = 0;
  struct {
    unsigned *out, *n;
  } args = {out, &n};
  host_object o = host_load(geometry_text, ZPK_F32);
  void (*kernel)(const void *);
  host_find(&o, "zpd_host_geometry", &kernel);
  cr_assert_eq(o.launch(kernel, &args, (unsigned[]){2, 3, 2}, (unsigned[]){5, 3, 2}, 0), 0);
  cr_assert_eq(n, COUNT);
  for (unsigned block = 0; block < 12; block++)
    for (unsigned k = 0; k < 30; k++, expected++) {
      unsigned thread = block % 2 ? 29 - k : k;
      const unsigned want[] = {block % 2, block / 2 % 3, block / 6, thread % 5, thread / 5 % 3, thread / 15};
      cr_assert_eq(memcmp(out + 6 * expected, want, sizeof want), 0, "thread %u of block %u", thread, block);
    }
  host_unload(&o);
}

/* Reverses a block's numbers through shared memory, then sums neighbours' warps by shuffles, in a loop. */
static const char exchange_text[] =
    "#include \"zpd_device.h\"\n"
    "struct given { const real *x; real *reversed, *sum; int rounds; };\n"
    "ZPD_KERNEL(exchange, given) {\n"
    "  __shared__ real row[96];\n"
    "  const int t = threadIdx.x, at = blockIdx.x * 96 + t;\n"
    "  real x = a.x[at];\n"
    "  for (int round = 0; round < a.rounds; round++) {\n"
    "    row[t] = x;\n"
    "    __syncthreads();\n"
    "    x = row[95 - t];\n"
    "    __syncthreads();\n"
    "  }\n"
    "  a.reversed[at] = x;\n"
    "  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);\n"
    "  a.sum[at] = x;\n"
    "}\n";

static void check_exchange(const char *text) {
  enum { BLOCKS = 5, N = 96 * BLOCKS };
  double x[N], reversed[N], sum[N];
  struct {
    const double *x;
    double *reversed, *sum;
    int rounds;
  } args = {x, reversed, sum, 7};
  for (int i = 0; i < N; i++) x[i] = i * i % 1009;
  host_object o = host_load(text, ZPK_F64);
  for (int again = 0; again < 2; again++) {
    memset(reversed, 0, sizeof reversed);
    cr_assert_eq(host_run(&o, "exchange", &args, BLOCKS, 96), 0);
    for (int i = 0; i < N; i++) {
      int block = i / 96 * 96, other = block + 95 - i % 96, warp = other / 32 * 32;
      double want = 0;
      for (int lane = 0; lane < 32; lane++) want += x[warp + lane];
      cr_assert_eq(reversed[i], x[other]);
      cr_assert_eq(sum[i], want);
    }
  }
  host_unload(&o);
}

Test(cuda_emulator, barriers_and_shuffles) { check_exchange(exchange_text); }

/* The C library's contexts, which machines other than x86-64 use. */
Test(cuda_emulator, barriers_and_shuffles_with_ucontext) {
  char text[4096];
  snprintf(text, sizeof text, "#define ZPD_HOST_UCONTEXT 1\n%s", exchange_text);
  check_exchange(text);
}

/* One warp writes what another one reads. Without the barrier one of two blocks reads too early, whoever writes. */
static const char race_text[] = "#include \"zpd_device.h\"\n"
                                "struct given { int *out; int barrier, writer; };\n"
                                "ZPD_KERNEL(race, given) {\n"
                                "  __shared__ int x;\n"
                                "  if (threadIdx.x == 0) x = 0;\n"
                                "  __syncthreads();\n"
                                "  if ((int)threadIdx.x == a.writer) x = 7;\n"
                                "  if (a.barrier) __syncthreads();\n"
                                "  if ((int)threadIdx.x == 45) a.out[blockIdx.x] = x;\n"
                                "}\n";

Test(cuda_emulator, a_missing_barrier_shows) {
  host_object o = host_load(race_text, ZPK_F32);
  for (int writer = 3; writer < 64; writer += 57) {
    int out[2] = {0};
    struct {
      int *out, barrier, writer;
    } args = {out, 1, writer};
    cr_assert_eq(host_run(&o, "race", &args, 2, 64), 0);
    cr_assert(out[0] == 7 && out[1] == 7);
    args.barrier = 0;
    cr_assert_eq(host_run(&o, "race", &args, 2, 64), 0);
    cr_assert_eq(out[0] + out[1], 7, "writer %d: %d %d", writer, out[0], out[1]);
  }
  host_unload(&o);
}

/* ---- what is refused ---- */

static const char wrong_text[] = "#include \"zpd_device.h\"\n"
                                 "struct given { int *n; };\n"
                                 "ZPD_KERNEL(some_finish, given) {\n"
                                 "  if (threadIdx.x == 70) return;\n"
                                 "  __syncthreads();\n"
                                 "  ++*a.n;\n"
                                 "}\n"
                                 "ZPD_KERNEL(two_barriers, given) {\n"
                                 "  if (threadIdx.x < 64)\n"
                                 "    __syncthreads();\n"
                                 "  else\n"
                                 "    __syncthreads();\n"
                                 "  ++*a.n;\n"
                                 "}\n"
                                 "ZPD_KERNEL(some_lanes, given) {\n"
                                 "  if (threadIdx.x % 2) *a.n += __shfl_xor_sync(0xffffffffu, 1, 1);\n"
                                 "}\n"
                                 "ZPD_KERNEL(a_barrier_in_a_warp, given) {\n"
                                 "  if (threadIdx.x % 2) __syncthreads();\n"
                                 "  else *a.n += __shfl_xor_sync(0xffffffffu, 1, 1);\n"
                                 "}\n"
                                 "ZPD_KERNEL(part_of_the_lanes, given) { *a.n += __shfl_xor_sync(0xffffu, 1, 1); }\n"
                                 "ZPD_KERNEL(all_meet, given) {\n"
                                 "  __syncthreads();\n"
                                 "  *a.n += __shfl_xor_sync(0xffffffffu, 1, 1);\n"
                                 "}\n";

Test(cuda_emulator, threads_that_do_not_meet_are_an_error_that_names_the_kernel) {
  static const struct {
    const char *kernel, *message;
  } wrong[] = {
      {"some_finish", "thread 0 waits at a barrier (kernels.cu:5), but thread 70 has finished"},
      {"two_barriers", "thread 0 waits at a barrier (kernels.cu:10), but thread 64 waits at a barrier (kernels.cu:12)"},
      {"some_lanes", "thread 0 has finished, but thread 1 waits at a shuffle (kernels.cu:16)"},
      {"a_barrier_in_a_warp", "thread 0 waits at a shuffle (kernels.cu:20), but thread 1 waits at a barrier"},
      {"part_of_the_lanes", "a shuffle that is not one of up to 8 bytes between all 32 lanes of a warp"}};
  int n = 0;
  struct {
    int *n;
  } args = {&n};
  host_object o = host_load(wrong_text, ZPK_F32);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char text[1024];
    n = 0;
    cr_assert_eq(host_run_caught(&o, wrong[i].kernel, &args, 3, 96, 0, text, sizeof text), 1, "%s", wrong[i].kernel);
    cr_assert_not_null(strstr(text, wrong[i].kernel), "%s", text);
    cr_assert_not_null(strstr(text, "block (0, 0, 0)"), "%s", text);
    cr_assert_not_null(strstr(text, wrong[i].message), "%s", text);
    cr_assert_eq(n, 0, "%s went on", wrong[i].kernel);
    /* The next launch is not disturbed by threads that were left where they waited. */
    cr_assert_eq(host_run(&o, "all_meet", &args, 2, 64), 0);
    cr_assert_eq(n, 128);
  }
  char text[1024];
  cr_assert_eq(host_run_caught(&o, "all_meet", &args, 1, 40, 0, text, sizeof text), 1,
               "8 lanes of a warp are not there");
  host_unload(&o);
}

Test(cuda_emulator, sizes_that_no_device_takes_are_an_error) {
  int n = 0;
  struct {
    int *n;
  } args = {&n};
  char text[1024];
  host_object o = host_load(wrong_text, ZPK_F32);
  cr_assert_eq(host_run_caught(&o, "all_meet", &args, 0, 32, 0, text, sizeof text), 1);
  cr_assert_eq(host_run_caught(&o, "all_meet", &args, 1, 0, 0, text, sizeof text), 1);
  cr_assert_eq(host_run_caught(&o, "all_meet", &args, 1, 1056, 0, text, sizeof text), 1);
  cr_assert_not_null(strstr(text, "all_meet"), "%s", text);
  cr_assert_eq(n, 0);
  host_unload(&o);
}

/* Each block finds NaN in shared memory, not what the block before it has left. */
Test(cuda_emulator, shared_memory_is_fresh_for_every_block) {
  static const char text[] = "#include \"zpd_device.h\"\n"
                             "struct given { real *found; };\n"
                             "ZPD_KERNEL(fresh, given) {\n"
                             "  __shared__ real row[32];\n"
                             "  a.found[blockIdx.x * 32 + threadIdx.x] = row[threadIdx.x];\n"
                             "  row[threadIdx.x] = 1;\n"
                             "}\n";
  if (sanitized) cr_skip_test("AddressSanitizer watches the bounds of shared memory instead");
  for (zpk_dtype dtype = ZPK_F32; dtype <= ZPK_F64; dtype++) {
    double found[3 * 32];
    struct {
      double *found;
    } args = {found};
    host_object o = host_load(text, dtype);
    cr_assert_eq(host_run(&o, "fresh", &args, 3, 32), 0);
    for (int i = 0; i < 3 * 32; i++)
      cr_assert(isnan(dtype == ZPK_F64 ? found[i] : (double)((float *)found)[i]), "%d", i);
    host_unload(&o);
  }
}
