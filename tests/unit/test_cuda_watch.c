/* SPDX-License-Identifier: Apache-2.0 */
/* Watched kernel text: races are errors, orders that a GPU guarantees are not; counts against those made by hand. */
#include "cuda_objects.h"

/* Thread `writer` writes, thread `reader` reads (or writes, too), and `kind` says what is between. */
static const char race_text[] = "#include \"zpd_mma.cuh\"\n"
                                "struct given { const int *from; int *out; int writer, reader, kind, writes; };\n"
                                "ZPD_KERNEL(race, given) {\n"
                                "  __shared__ int x[64];\n"
                                "  if ((int)threadIdx.x == a.writer) x[5] = 7;\n"
                                "  if (a.kind == 1) __syncthreads();\n"
                                "  if (a.kind == 2) __syncwarp();\n"
                                "  if (a.kind == 3) *a.out += __shfl_xor_sync(0xffffffffu, 1, 1);\n"
                                "  if ((int)threadIdx.x == a.reader) {\n"
                                "    if (a.writes) x[5] = 8;\n"
                                "    else *a.out = x[5];\n"
                                "  }\n"
                                "}\n"
                                /* One warp reads what the other one has copied: with a wait, a barrier, or both. */
                                "ZPD_KERNEL(copied, given) {\n"
                                "  ZPD_DYNAMIC_SHARED(shared);\n"
                                "  if (threadIdx.x == 0) zpd_cp_async_16(shared, a.from, 16);\n"
                                "  zpd_cp_async_commit();\n"
                                "  if (a.kind & 2) zpd_cp_async_wait<0>();\n"
                                "  if (a.kind & 1) __syncthreads();\n"
                                "  if (threadIdx.x == 40) *a.out = ((int *)shared)[3];\n"
                                "  if (!(a.kind & 2)) zpd_cp_async_wait<0>();\n"
                                "}\n"
                                /* A ring of one buffer: the next copy begins while the others still read. */
                                "ZPD_KERNEL(ring, given) {\n"
                                "  ZPD_DYNAMIC_SHARED(shared);\n"
                                "  for (int i = 0; i < 3; i++) {\n"
                                "    if (threadIdx.x == 0) zpd_cp_async_16(shared, a.from + 4 * i, 16);\n"
                                "    zpd_cp_async_commit();\n"
                                "    zpd_cp_async_wait<0>();\n"
                                "    __syncthreads();\n"
                                "    if (threadIdx.x == 40) a.out[i] = ((int *)shared)[i];\n"
                                "    if (a.kind) __syncthreads();\n"
                                "  }\n"
                                "}\n"
                                "ZPD_KERNEL(beyond, given) {\n"
                                "  ZPD_DYNAMIC_SHARED(shared);\n"
                                "  *a.out = shared[64];\n"
                                "}\n";

typedef struct race_args {
  const int *from;
  int *out, writer, reader, kind, writes;
} race_args;

enum { NOTHING, BARRIER, WARP_BARRIER, SHUFFLE };

Test(cuda_watch, races) {
  int out[3] = {0};
  char text[1024], want[64];
  host_object o = host_load_as(race_text, ZPK_BF16, true);
  static const struct {
    int writer, reader, kind;
    bool races;
  } cases[] = {{3, 3, NOTHING, false},     {3, 4, NOTHING, true},       {4, 3, NOTHING, true},
               {3, 40, NOTHING, true},     {3, 40, BARRIER, false},     {3, 4, BARRIER, false},
               {3, 4, SHUFFLE, true},      {3, 4, WARP_BARRIER, false}, {3, 40, WARP_BARRIER, true},
               {40, 3, WARP_BARRIER, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int writes = 0; writes < 2; writes++)
      for (unsigned grid = 1; grid < 3; grid++) { /* the second block runs backwards */
        race_args args = {NULL, out, cases[i].writer, cases[i].reader, cases[i].kind, writes};
        int status = host_run_caught(&o, "race", &args, grid, 64, 0, text, sizeof text);
        cr_assert_eq(status, cases[i].races, "case %zu, writes %d: %s", i, writes, text);
        if (!status) continue;
        bool reads_first = cases[i].writer > cases[i].reader;
        snprintf(want, sizeof want, "race: thread %d ", reads_first ? cases[i].writer : cases[i].reader);
        cr_expect_not_null(strstr(text, want), "case %zu: %s", i, text);
        cr_expect_not_null(strstr(text, "static shared memory"), "%s", text);
      }
  host_unload(&o);
}

Test(cuda_watch, copies_need_a_wait_and_a_barrier) {
  _Alignas(16) int from[12];
  int out[3] = {0};
  char text[1024];
  host_object o = host_load_as(race_text, ZPK_BF16, true);
  for (int i = 0; i < 12; i++) from[i] = i + 10;
  for (int kind = 0; kind < 4; kind++) {
    race_args args = {.from = from, .out = out, .kind = kind};
    int status = host_run_caught(&o, "copied", &args, 1, 64, 64, text, sizeof text);
    if (kind != 1) cr_expect_eq(status, kind != 3, "kind %d: %s", kind, text);
    if (kind == 1) cr_expect(status == 1 || out[0] == -1, "it has not arrived"); /* read, then written by the wait */
    if (kind == 3) cr_expect_eq(out[0], 13);
  }
  for (int kind = 0; kind < 2; kind++) {
    race_args args = {.from = from, .out = out, .kind = kind};
    cr_expect_eq(host_run_caught(&o, "ring", &args, 1, 64, 64, text, sizeof text), !kind, "%s", text);
    cr_expect(kind || strstr(text, "race: thread 40 reads byte 0 of dynamic"), "%s", text);
  }
  cr_expect(out[0] == 10 && out[1] == 15 && out[2] == 20);
  race_args args = {.from = from, .out = out};
  cr_expect_eq(host_run_caught(&o, "beyond", &args, 1, 1, 64, text, sizeof text), 1);
  cr_expect_not_null(strstr(text, "touches byte 64 of dynamic shared memory, of which there are 64"), "%s", text);
  host_unload(&o);
}

/* Each kernel makes accesses of one kind; by hand: what a warp asks for and what moves. */
static const char count_text[] = "#include \"zpd_mma.cuh\"\n"
                                 "struct given { const float *from; float *to; int step; };\n"
                                 "ZPD_KERNEL(global, given) { a.to[threadIdx.x] = a.from[threadIdx.x * a.step]; }\n"
                                 "ZPD_KERNEL(banks, given) {\n"
                                 "  ZPD_DYNAMIC_SHARED(shared);\n"
                                 "  float *x = (float *)shared;\n"
                                 "  x[threadIdx.x * a.step] = 1;\n"
                                 "}\n"
                                 "ZPD_KERNEL(rows, given) {\n"
                                 "  ZPD_DYNAMIC_SHARED(shared);\n"
                                 "  unsigned to[4];\n"
                                 "  float d[4] = {0, 0, 0, 0};\n"
                                 "  zpd_cp_async_16(shared + threadIdx.x * a.step, a.from + 4 * threadIdx.x, 16);\n"
                                 "  zpd_cp_async_commit();\n"
                                 "  zpd_cp_async_wait<0>();\n"
                                 "  __syncthreads();\n"
                                 "  zpd_ldmatrix<false>(to, shared + threadIdx.x * a.step);\n"
                                 "  zpd_mma_m16n8k16(d, to, to[0], to[1]);\n"
                                 "  zpd_move_16(a.to + 4 * threadIdx.x, shared + threadIdx.x * a.step);\n"
                                 "}\n";

typedef struct count_args {
  const float *from;
  float *to;
  int step;
} count_args;

static zpd_host_counts counted(const host_object *o, const char *kernel, const count_args *args) {
  static const zpd_host_counts none;
  const zpd_host_counts *before = &none;
  zpd_host_counts was, now;
  zpd_host_counts_fn *counts_of;
  void (*function)(const void *);
  char symbol[64];
  snprintf(symbol, sizeof symbol, "zpd_host_%s", kernel);
  host_find(o, symbol, &function);
  host_find(o, ZPD_HOST_COUNTS_SYMBOL, &counts_of);
  if (counts_of(function)) before = counts_of(function);
  was = *before;
  cr_assert_eq(host_run_with(o, kernel, args, 1, 64, 16384), 0);
  now = host_counts(o, kernel);
  return (zpd_host_counts){.launches = now.launches - was.launches,
                           .blocks = now.blocks - was.blocks,
                           .sectors_asked = now.sectors_asked - was.sectors_asked,
                           .sectors_moved = now.sectors_moved - was.sectors_moved,
                           .passes_least = now.passes_least - was.passes_least,
                           .passes = now.passes - was.passes,
                           .mma = now.mma - was.mma,
                           .ldmatrix = now.ldmatrix - was.ldmatrix,
                           .async_copies = now.async_copies - was.async_copies};
}

Test(cuda_watch, counts) {
  static _Alignas(128) float from[64 * 16], to[64 * 16];
  host_object o = host_load_as(count_text, ZPK_BF16, true);
  /* Two warps of 32 floats, 4 sectors each to read and 4 to write; reads with a distance lie in up to 32 sectors. */
  for (int step = 1; step <= 16; step *= 2) {
    zpd_host_counts c = counted(&o, "global", &(count_args){from, to, step});
    cr_expect_eq(c.launches, 1);
    cr_expect_eq(c.blocks, 1);
    cr_expect_eq(c.sectors_asked, 2 * (4 + 4));
    cr_expect_eq(c.sectors_moved, 2 * (4 + (step > 8 ? 32 : 4 * step)), "step %d: %ld", step, c.sectors_moved);
  }
  /* 32 words at a distance of 1, 2, 4, ... meet in one bank that often; an odd distance never. */
  for (int step = 1; step <= 64; step = step % 2 ? step + 1 : 2 * step - (step == 2)) {
    zpd_host_counts c = counted(&o, "banks", &(count_args){from, to, step});
    int meet = step % 2 ? 1 : step > 32 ? 32 : step;
    cr_expect_eq(c.passes_least, 2);
    cr_expect_eq(c.passes, 2 * meet, "step %d: %ld", step, c.passes);
  }
  /* Rows of 16 bytes: eight of them fill the banks, when they lie side by side or at an odd distance. */
  for (int step = 16; step <= 128; step *= 2)
    for (int odd = 0; odd < 2; odd++) {
      int distance = step + (odd && step > 16 ? 16 : 0), meet = odd || step == 16 ? 1 : step / 16;
      zpd_host_counts c = counted(&o, "rows", &(count_args){from, to, distance});
      cr_expect_eq(c.ldmatrix, 2);
      cr_expect_eq(c.mma, 2);
      cr_expect_eq(c.async_copies, 64);
      cr_expect_eq(c.passes_least, 3 * 8, "copies, ldmatrix, moves: 4 passes a warp");
      cr_expect_eq(c.passes, 3 * 8 * meet, "distance %d: %ld", distance, c.passes);
      cr_expect_eq(c.sectors_asked, 64);
      cr_expect_eq(c.sectors_moved, 64);
    }
  host_unload(&o);
}
