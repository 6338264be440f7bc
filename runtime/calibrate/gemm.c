/* Rates of matrix products over a grid of shapes, through the runtime's zpr_gemm. Rows: gemm_f32_t2_256x64x1024, the
 * rate of one rank with 2 threads for m x n x k. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "calibrate.h"

static const int64_t sides[] = {32, 128, 512, 1536};
enum { N_SIDES = sizeof sides / sizeof *sides, LONGEST = 1536 };

typedef struct product {
  zpr *c;
  int64_t m, n, k;
  bool trans_a, trans_b;
  void *a, *b, *y;
  int calls; /* small products are timed several at a time */
} product;

static void multiply(void *arg) {
  const product *p = arg;
  for (int i = 0; i < p->calls; i++)
    zpr_gemm(p->c, p->trans_a, p->trans_b, p->m, p->n, p->k, p->a, p->trans_a ? p->m : p->k, p->b,
             p->trans_b ? p->k : p->n, false, p->y, p->n);
}

/* The three products of a linear layer take turns over the grid: forward, gradient of inputs (transposed weight),
 * gradient of the weight (transposed input). */
static void set_kind(product *p, int index) {
  p->trans_b = index % 3 == 1;
  p->trans_a = index % 3 == 2;
}

static void measure_grid(product *p, zpk_dtype dtype, int threads, double budget_s) {
  enum { SHAPES = N_SIDES * N_SIDES * N_SIDES };
  const double small = 4e6; /* FLOP that are long enough to time alone */
  for (int i = 0; i < SHAPES; i++) {
    p->m = sides[i / N_SIDES / N_SIDES];
    p->n = sides[i / N_SIDES % N_SIDES];
    p->k = sides[i % N_SIDES];
    set_kind(p, i);
    double flop = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    p->calls = flop < small ? (int)(small / flop) + 1 : 1;
    double seconds = time_call(multiply, p, budget_s / SHAPES) / p->calls;
    char name[64];
    snprintf(name, sizeof name, "gemm_%s_t%d_%dx%dx%d", dtype == ZPK_F64 ? "f64" : "f32", threads, (int)p->m, (int)p->n,
             (int)p->k);
    put_row(name, flop / seconds, "FLOP/s", "%s operand transposed", p->trans_a ? "left" : p->trans_b ? "right" : "no");
  }
}

/* Copies that keep the other cores busy with products until they are stopped. They end with this process. */
static void keep_busy(zpk_dtype dtype, int threads) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1};
  zpr c;
  open_rank(&c, &program, threads);
  int64_t bytes = 512 * 512 * zpk_bytes(dtype);
  product p = {.c = &c, .m = 512, .n = 512, .k = 512, .a = touched(bytes), .b = touched(bytes), .y = touched(bytes)};
  for (p.calls = 1;;) multiply(&p);
}

void measure_gemm(zpk_dtype dtype, int threads, double budget_s) {
  pid_t others[ZPR_MAX_WORKERS];
  int n_others = machine_cores() / threads - 1;
  if (n_others > ZPR_MAX_WORKERS - 1) n_others = ZPR_MAX_WORKERS - 1;
  fflush(stdout);
  for (int i = 0; i < n_others; i++) {
    others[i] = fork();
    if (others[i] == 0) keep_busy(dtype, threads);
  }
  zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1};
  zpr c;
  open_rank(&c, &program, threads);
  int64_t bytes = (int64_t)LONGEST * LONGEST * zpk_bytes(dtype);
  product p = {.c = &c, .a = touched(bytes), .b = touched(bytes), .y = touched(bytes)};
  measure_grid(&p, dtype, threads, budget_s);
  free(p.a), free(p.b), free(p.y);
  zpr_close(&c);
  for (int i = 0; i < n_others; i++) {
    if (others[i] < 0) continue;
    kill(others[i], SIGKILL);
    waitpid(others[i], NULL, 0);
  }
}
