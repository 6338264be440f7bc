/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's tensor cores, ldmatrix and asynchronous copies: who holds which element, against tables of another
 * source; what arrives when; what is refused. */
#include <math.h>
#include "cuda_objects.h"
#include "mma_fragments.h"
#include "narrow_testing.h"

/* Registers of every lane come from global memory and go there, so the table alone says where elements are. */
static const char mma_text[] = "#include \"zpd_mma.cuh\"\n"
                               "struct given { const unsigned *a, *b; float *d; };\n"
                               "ZPD_KERNEL(multiply, given) {\n"
                               "  const int lane = threadIdx.x;\n"
                               "  unsigned left[4];\n"
                               "  float d[4];\n"
                               "  for (int i = 0; i < 4; i++) left[i] = a.a[4 * lane + i], d[i] = a.d[4 * lane + i];\n"
                               "  zpd_mma_m16n8k16(d, left, a.b[2 * lane], a.b[2 * lane + 1]);\n"
                               "  for (int i = 0; i < 4; i++) a.d[4 * lane + i] = d[i];\n"
                               "}\n";

static uint16_t small(zpk_dtype dtype, int i) { return narrow_of(dtype, (i * 37 % 31 - 15) / 8.0); }

static unsigned in_register(uint16_t low, uint16_t high) { return low | (unsigned)high << 16; }

/* All numbers are multiples of 1 / 64 below 2^10, so sums are exact in any order. */
static void check_mma(zpk_dtype dtype) {
  uint16_t a[16][16], b[8][16]; /* [m][k], [n][k] */
  unsigned a_of[32][4], b_of[32][2];
  float d_of[32][4];
  struct {
    const void *a, *b;
    float *d;
  } args = {a_of, b_of, d_of[0]};
  host_object o = host_load(mma_text, dtype);
  for (int i = 0; i < 16 * 16; i++) a[i / 16][i % 16] = small(dtype, i);
  for (int i = 0; i < 8 * 16; i++) b[i / 16][i % 16] = small(dtype, 1000 + 5 * i);
  for (int l = 0; l < 32; l++) {
    uint16_t left[8], right[4];
    for (int v = 0; v < 8; v++) left[v] = a[fragment_a[l][v][0]][fragment_a[l][v][1]];
    for (int v = 0; v < 4; v++) right[v] = b[fragment_b[l][v][0]][fragment_b[l][v][1]];
    for (int r = 0; r < 4; r++) a_of[l][r] = in_register(left[2 * r], left[2 * r + 1]);
    for (int r = 0; r < 2; r++) b_of[l][r] = in_register(right[2 * r], right[2 * r + 1]);
    for (int v = 0; v < 4; v++) d_of[l][v] = (float)(fragment_d[l][v][0] - 2 * fragment_d[l][v][1]);
  }
  cr_assert_eq(host_run(&o, "multiply", &args, 1, 32), 0);
  for (int l = 0; l < 32; l++)
    for (int v = 0; v < 4; v++) {
      int m = fragment_d[l][v][0], n = fragment_d[l][v][1];
      double want = m - 2 * n;
      for (int k = 0; k < 16; k++) want += wide_of(dtype, a[m][k]) * wide_of(dtype, b[n][k]);
      cr_assert_eq(d_of[l][v], want, "lane %d, value %d", l, v);
    }
  host_unload(&o);
}

/* Every number of 16 bits, times 1: 128 at a time are a [16, 8] of the result. */
static void check_numbers(zpk_dtype dtype) {
  unsigned a_of[32][4], b_of[32][2];
  float d_of[32][4];
  struct {
    const void *a, *b;
    float *d;
  } args = {a_of, b_of, d_of[0]};
  host_object o = host_load(mma_text, dtype);
  for (unsigned first = 0; first < 0x10000; first += 128) {
    for (int l = 0; l < 32; l++) {
      uint16_t left[8], right[4];
      for (int v = 0; v < 8;
           v++) /* a[m][k] = 1 where k = m: the rows of b one by one, whose column n has number 8 k + n */
        left[v] = narrow_of(dtype, fragment_a[l][v][0] == fragment_a[l][v][1]);
      for (int v = 0; v < 4; v++) right[v] = (uint16_t)(first + 8u * fragment_b[l][v][1] + fragment_b[l][v][0]);
      for (int r = 0; r < 4; r++) a_of[l][r] = in_register(left[2 * r], left[2 * r + 1]);
      for (int r = 0; r < 2; r++) b_of[l][r] = in_register(right[2 * r], right[2 * r + 1]);
    }
    bool finite = true; /* 0 times infinity would reach the others */
    for (unsigned i = 0; i < 128; i++) finite &= isfinite(wide_of(dtype, (uint16_t)(first + i))) != 0;
    if (!finite) continue;
    memset(d_of, 0, sizeof d_of);
    cr_assert_eq(host_run(&o, "multiply", &args, 1, 32), 0);
    for (int l = 0; l < 32; l++)
      for (int v = 0; v < 4; v++)
        cr_assert_eq(d_of[l][v], wide_of(dtype, (uint16_t)(first + 8u * fragment_d[l][v][0] + fragment_d[l][v][1])));
  }
  host_unload(&o);
}

Test(cuda_warp, numbers_bf16) { check_numbers(ZPK_BF16); }
Test(cuda_warp, numbers_f16) { check_numbers(ZPK_F16); }
Test(cuda_warp, mma_bf16) { check_mma(ZPK_BF16); }
Test(cuda_warp, mma_f16) { check_mma(ZPK_F16); }

/* Volta's: each quad pair has matrices of its own. */
static const char quads_text[] = "#define ZPD_VOLTA\n"
                                 "#include \"zpd_mma.cuh\"\n"
                                 "struct given { const unsigned *a, *b; float *d; };\n"
                                 "template <bool ROWS> ZPD_DEVICE void multiply(const given &g) {\n"
                                 "  const int lane = threadIdx.x;\n"
                                 "  float low[4], high[4], *d = g.d + 8 * lane;\n"
                                 "  for (int i = 0; i < 4; i++) low[i] = d[i], high[i] = d[4 + i];\n"
                                 "  zpd_mma_m8n8k4<ROWS>(low, high, g.a[2 * lane], g.a[2 * lane + 1], g.b[2 * lane],\n"
                                 "                       g.b[2 * lane + 1]);\n"
                                 "  for (int i = 0; i < 4; i++) d[i] = low[i], d[4 + i] = high[i];\n"
                                 "}\n"
                                 "ZPD_KERNEL(by_columns, given) { multiply<false>(a); }\n"
                                 "ZPD_KERNEL(by_rows, given) { multiply<true>(a); }\n";

static void check_quads(const host_object *o, const char *kernel, const unsigned char b_at[8][4][2]) {
  uint16_t a[4][8][4], b[4][8][4]; /* of each pair [m][k], [n][k] */
  unsigned a_of[32][2], b_of[32][2];
  float d_of[32][8];
  struct {
    const void *a, *b;
    float *d;
  } args = {a_of, b_of, d_of[0]};
  for (int i = 0; i < 4 * 8 * 4; i++) a[i / 32][i / 4 % 8][i % 4] = small(ZPK_F16, i);
  for (int i = 0; i < 4 * 8 * 4; i++) b[i / 32][i / 4 % 8][i % 4] = small(ZPK_F16, 1000 + 5 * i);
  for (int q = 0; q < 4; q++)
    for (int t = 0; t < 8; t++) {
      int lane = quad_lane[t] + 4 * q;
      uint16_t left[4], right[4];
      for (int v = 0; v < 4; v++) left[v] = a[q][quad_factor[t][v][0]][quad_factor[t][v][1]];
      for (int v = 0; v < 4; v++) right[v] = b[q][b_at[t][v][0]][b_at[t][v][1]];
      for (int r = 0; r < 2; r++) a_of[lane][r] = in_register(left[2 * r], left[2 * r + 1]);
      for (int r = 0; r < 2; r++) b_of[lane][r] = in_register(right[2 * r], right[2 * r + 1]);
      for (int v = 0; v < 8; v++) d_of[lane][v] = (float)(quad_d[t][v][0] - 2 * quad_d[t][v][1] + 100 * q);
    }
  cr_assert_eq(host_run(o, kernel, &args, 1, 32), 0);
  for (int q = 0; q < 4; q++)
    for (int t = 0; t < 8; t++)
      for (int v = 0; v < 8; v++) {
        int m = quad_d[t][v][0], n = quad_d[t][v][1];
        double want = m - 2 * n + 100 * q;
        for (int k = 0; k < 4; k++) want += wide_of(ZPK_F16, a[q][m][k]) * wide_of(ZPK_F16, b[q][n][k]);
        cr_assert_eq(d_of[quad_lane[t] + 4 * q][v], want, "%s: pair %d, thread %d, value %d", kernel, q, t, v);
      }
}

Test(cuda_warp, mma_of_quad_pairs) {
  host_object o = host_load(quads_text, ZPK_F16);
  check_quads(&o, "by_columns", quad_factor);
  check_quads(&o, "by_rows", quad_factor_rows);
  host_unload(&o);
}

/* Rows of matrices lie in shared memory in an order of their own. */
static const char ldmatrix_text[] =
    "#include \"zpd_mma.cuh\"\n"
    "struct given { const unsigned short *from; unsigned *to; int kind; };\n"
    "template <bool T, int N> ZPD_DEVICE void load(const given &a, const unsigned short (*row)[8]) {\n"
    "  unsigned to[N];\n"
    "  zpd_ldmatrix<T>(to, row[threadIdx.x < 8 * N ? 31 - threadIdx.x : 0]);\n"
    "  for (int i = 0; i < N; i++) a.to[N * threadIdx.x + i] = to[i];\n"
    "}\n"
    "ZPD_KERNEL(load_matrices, given) {\n"
    "  ZPD_DYNAMIC_SHARED(shared);\n"
    "  unsigned short (*row)[8] = (unsigned short (*)[8])shared;\n"
    "  for (int c = 0; c < 8; c++) row[31 - threadIdx.x][c] = a.from[8 * threadIdx.x + c];\n"
    "  __syncwarp();\n"
    "  switch (a.kind) {\n"
    "  case 0: load<false, 1>(a, row); break;\n"
    "  case 1: load<false, 2>(a, row); break;\n"
    "  case 2: load<false, 4>(a, row); break;\n"
    "  case 3: load<true, 1>(a, row); break;\n"
    "  case 4: load<true, 2>(a, row); break;\n"
    "  case 5: load<true, 4>(a, row); break;\n"
    "  }\n"
    "}\n";

Test(cuda_warp, ldmatrix) {
  uint16_t from[32][8];
  unsigned to[32 * 4];
  struct {
    const void *from;
    unsigned *to;
    int kind;
  } args = {from, to, 0};
  host_object o = host_load(ldmatrix_text, ZPK_BF16);
  for (int i = 0; i < 32 * 8; i++) from[i / 8][i % 8] = (uint16_t)(i * 251);
  for (; args.kind < 6; args.kind++) {
    int count = 1 << args.kind % 3;
    cr_assert_eq(host_run_with(&o, "load_matrices", &args, 1, 32, 512), 0);
    for (int l = 0; l < 32; l++)
      for (int m = 0; m < count; m++) {
        const unsigned char(*at)[2] = args.kind < 3 ? fragment_ldmatrix[l] : fragment_ldmatrix_trans[l];
        unsigned want = in_register(from[8 * m + at[0][0]][at[0][1]], from[8 * m + at[1][0]][at[1][1]]);
        cr_assert_eq(to[count * l + m], want, "kind %d, lane %d, matrix %d", args.kind, l, m);
      }
  }
  host_unload(&o);
}

/* Three groups of one copy; before each wait the thread reads what was asked for. */
static const char copies_text[] = "#include \"zpd_mma.cuh\"\n"
                                  "struct given { const unsigned *from; unsigned *seen; int bytes; };\n"
                                  "ZPD_DEVICE void look(const given &a, const unsigned *at, int time) {\n"
                                  "  for (int i = 0; i < 12; i++) a.seen[12 * time + i] = at[i];\n"
                                  "}\n"
                                  "ZPD_KERNEL(copies, given) {\n"
                                  "  ZPD_DYNAMIC_SHARED(shared);\n"
                                  "  unsigned *at = (unsigned *)shared;\n"
                                  "  for (int i = 0; i < 12; i++) at[i] = 5;\n"
                                  "  for (int g = 0; g < 3; g++) {\n"
                                  "    zpd_cp_async_16(at + 4 * g, a.from + 4 * g, a.bytes);\n"
                                  "    zpd_cp_async_commit();\n"
                                  "  }\n"
                                  "  look(a, at, 0);\n"
                                  "  zpd_cp_async_wait<1>();\n"
                                  "  look(a, at, 1);\n"
                                  "  zpd_cp_async_wait<0>();\n"
                                  "  look(a, at, 2);\n"
                                  "}\n"
                                  "ZPD_KERNEL(nobody_waits, given) {\n"
                                  "  ZPD_DYNAMIC_SHARED(shared);\n"
                                  "  zpd_cp_async_16(shared, a.from, 16);\n"
                                  "  zpd_cp_async_commit();\n"
                                  "}\n"
                                  "ZPD_KERNEL(to_global, given) { zpd_cp_async_16(a.seen, a.from, 16); }\n"
                                  "ZPD_KERNEL(unaligned, given) {\n"
                                  "  ZPD_DYNAMIC_SHARED(shared);\n"
                                  "  zpd_cp_async_16(shared, a.from + 1, 16);\n"
                                  "}\n"
                                  "ZPD_KERNEL(some_lanes, given) {\n"
                                  "  float d[4] = {0, 0, 0, 0};\n"
                                  "  unsigned left[4] = {0, 0, 0, 0};\n"
                                  "  if (threadIdx.x != 9) zpd_mma_m16n8k16(d, left, 0, 0);\n"
                                  "  a.seen[0] = (unsigned)d[0];\n"
                                  "}\n"
                                  "ZPD_KERNEL(two_places, given) {\n"
                                  "  float d[4] = {0, 0, 0, 0};\n"
                                  "  unsigned left[4] = {0, 0, 0, 0};\n"
                                  "  if (threadIdx.x < 16) zpd_mma_m16n8k16(d, left, 0, 0);\n"
                                  "  else zpd_mma_m16n8k16(d, left, 0, 0);\n"
                                  "  a.seen[0] = (unsigned)d[0];\n"
                                  "}\n"
                                  "ZPD_KERNEL(row_of_global, given) {\n"
                                  "  unsigned to[4];\n"
                                  "  zpd_ldmatrix<false>(to, a.from);\n"
                                  "  a.seen[0] = to[0];\n"
                                  "}\n";

typedef struct copies_args {
  const unsigned *from;
  unsigned *seen;
  int bytes;
} copies_args;

Test(cuda_warp, copies_arrive_at_the_wait) {
  _Alignas(16) unsigned from[12];
  unsigned seen[36];
  copies_args args = {from, seen, 0};
  host_object o = host_load(copies_text, ZPK_BF16);
  for (unsigned i = 0; i < 12; i++) from[i] = 100 + i;
  for (args.bytes = 0; args.bytes <= 16; args.bytes += 8) {
    cr_assert_eq(host_run_with(&o, "copies", &args, 1, 1, 48), 0);
    for (int time = 0; time < 3; time++)
      for (int i = 0; i < 12; i++) {
        bool arrived = i / 4 < (time == 0 ? 0 : time + 1);
        unsigned want = !arrived ? 0xffffffffu : i % 4 * 4 < args.bytes ? from[i] : 0;
        cr_assert_eq(seen[12 * time + i], want, "%d bytes, time %d, word %d", args.bytes, time, i);
      }
  }
  host_unload(&o);
}

Test(cuda_warp, what_a_gpu_leaves_undefined_is_refused) {
  static const struct {
    const char *kernel, *message;
    unsigned shared_bytes;
  } wrong[] = {
      {"nobody_waits", "thread 0 has finished and not waited for its asynchronous copies", 48},
      {"to_global", "an asynchronous copy that is not of up to 16 aligned bytes to shared memory", 48},
      {"unaligned", "an asynchronous copy that is not of up to 16 aligned bytes to shared memory", 48},
      {"copies", "an asynchronous copy that is not of up to 16 aligned bytes to shared memory", 32},
      {"some_lanes", "thread 0 waits at a mma (kernels.cu:33), but thread 9 has finished", 48},
      {"two_places", "thread 0 waits at a mma (kernels.cu:39), but thread 16 waits at a mma (kernels.cu:40)", 48},
      {"row_of_global", "ldmatrix of a row that is not 16 aligned bytes of shared memory", 48},
      {"copies", "99 KiB", 99 * 1024 + 1}};
  _Alignas(16) unsigned from[12] = {0}, seen[36];
  copies_args args = {from, seen, 16};
  host_object o = host_load(copies_text, ZPK_BF16);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char text[1024];
    if (sanitized && wrong[i].shared_bytes < 48) continue;          /* it watches the writes before */
    if (sanitized && (strstr(wrong[i].kernel, "global"))) continue; /* where it knows of no static shared memory */
    cr_assert_eq(host_run_caught(&o, wrong[i].kernel, &args, 2, 32, wrong[i].shared_bytes, text, sizeof text), 1, "%s",
                 wrong[i].kernel);
    cr_assert_not_null(strstr(text, wrong[i].message), "%s: %s", wrong[i].kernel, text);
    cr_assert_eq(host_run_with(&o, "copies", &args, 2, 64, 64 * 48), 0, "the next launch is disturbed");
  }
  host_unload(&o);
}
