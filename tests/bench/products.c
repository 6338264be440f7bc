/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of GPT-2 124M, batch 4 x 64 tokens, through the runtime: one row a shape.
 *
 *   bench_products LIBRARY DTYPE THREADS      openblas, onednn or choose; f32, f64 or bf16
 *
 * Rates are per second of processor time of a thread, the median of ROUNDS: other work on the machine disturbs them
 * less than wall time. products.sh runs it for several libraries and kernels and lays the rows alongside each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "internal.h"

static const struct {
  bool trans_a, trans_b;
  int m, n, k;
} shapes[] = {{false, true, 256, 2304, 768},   {false, true, 256, 768, 768},   {false, true, 256, 3072, 768},
              {false, true, 256, 768, 3072},   {false, true, 256, 50304, 768}, {false, false, 256, 768, 2304},
              {false, false, 256, 768, 768},   {false, false, 256, 3072, 768}, {false, false, 256, 768, 3072},
              {false, false, 256, 768, 50304}, {true, false, 2304, 768, 256},  {true, false, 768, 768, 256},
              {true, false, 3072, 768, 256},   {true, false, 768, 3072, 256},  {true, false, 50304, 768, 256},
              {false, true, 64, 64, 64},       {false, true, 256, 50257, 768}};
enum { SHAPES = sizeof shapes / sizeof *shapes, ROUNDS = 7 };

static double processor_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Values of 16 bits that are ordinary numbers in bf16; as f32 and f64 they are, too. */
static void *matrix(int64_t bytes) {
  uint16_t *x = malloc((size_t)bytes);
  for (int64_t i = 0; x && i < bytes / 2; i++) x[i] = (uint16_t)(0x3E00 + i * 7919 % 0x200);
  if (!x) exit(1);
  return x;
}

static void measure(zpr *c, int i) {
  int64_t m = shapes[i].m, n = shapes[i].n, k = shapes[i].k, size = zpk_bytes(c->program->dtype);
  void *a = matrix(m * k * size), *b = matrix(k * n * size), *y = matrix(m * n * size);
  double flop = 2.0 * (double)m * (double)n * (double)k, rates[ROUNDS];
  int calls = flop < 1e7 ? 1000 : 1;
  for (int round = 0; round < ROUNDS; round++) {
    double begin = processor_s();
    for (int call = 0; call < calls; call++)
      zpr_gemm(c, shapes[i].trans_a, shapes[i].trans_b, m, n, k, a, shapes[i].trans_a ? m : k, b,
               shapes[i].trans_b ? k : n, false, y, n);
    rates[round] = flop * calls / (processor_s() - begin);
  }
  qsort(rates, ROUNDS, sizeof *rates, by_size);
  printf("%c%c %5d x %5d x %5d\t%.1f\n", shapes[i].trans_a ? 't' : 'n', shapes[i].trans_b ? 't' : 'n', (int)m, (int)n,
         (int)k, rates[ROUNDS / 2] * 1e-9);
  free(a), free(b), free(y);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: bench_products openblas|onednn|choose f32|f64|bf16 THREADS\n");
    return 2;
  }
  zpr_program program = {.dtype = strcmp(argv[2], "f64") == 0    ? ZPK_F64
                                  : strcmp(argv[2], "bf16") == 0 ? ZPK_BF16
                                                                 : ZPK_F32,
                         .tensor = 1,
                         .pipeline = 1,
                         .data = 1,
                         .batch = 1,
                         .sequence = 1};
  zpr_stage stage = {.arena_bytes = ZPR_MAX_WORKERS * ZPR_PRODUCT_BYTES};
  program.stages = &stage;
  zpr_options options = zpr_default_options;
  options.threads = atoi(argv[3]);
  options.products = strcmp(argv[1], "choose") == 0 ? NULL : argv[1];
  int none = 0;
  char **no_words = NULL;
  zpr c;
  zpr_open(&c, &program, &options, &none, &no_words);
  for (int i = 0; i < SHAPES; i++) measure(&c, i);
  zpr_close(&c);
  return 0;
}
