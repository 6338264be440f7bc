/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of matrix products over a grid of shapes, through the runtime's zpr_gemm. Rows: gemm_f32_t2_nt_256x64x1024, the
 * rate of one rank with 2 threads for m x n x k. Kinds are the three products of a linear layer: nt forward, the rows
 * of the weight are columns of the product; nn gradient of the inputs; tn gradient of the weight.
 *
 * In a training step an operand comes back after the steps of a whole layer, so the calls for a shape take turns over
 * SETS operand sets: those of small products stay in the caches, those of large ones come from memory, as there. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "calibrate.h"

static const int64_t sides[] = {32, 128, 384, 1024};
static const char *const kinds[] = {"nt", "nn", "tn"};
enum { MOST_SIDES = sizeof sides / sizeof *sides, KINDS = 3, BUSY_SIDE = 512 };
enum { SETS = 16 };
/* Sets together stay within POOL_BYTES; up to CACHED_BYTES of them are all visited, untimed and timed. */
static const int64_t pool_bytes = 128 << 20, cached_bytes = 16 << 20;

typedef struct product {
  zpr *c;
  int64_t m, n, k, sets, set_bytes;
  bool trans_a, trans_b;
  char *pool;
  int calls, turn; /* a visit times several calls of a small product */
} product;

static void multiply(void *arg) {
  product *p = arg;
  int64_t size = zpk_bytes(p->c->program->dtype);
  for (int i = 0; i < p->calls; i++) {
    char *a = p->pool + p->turn++ % p->sets * p->set_bytes, *b = a + p->m * p->k * size, *y = b + p->k * p->n * size;
    zpr_gemm(p->c, p->trans_a, p->trans_b, p->m, p->n, p->k, a, p->trans_a ? p->m : p->k, b, p->trans_b ? p->k : p->n,
             false, y, p->n);
  }
}

static void set_shape(product *p, int64_t m, int64_t n, int64_t k) {
  const double small = 4e6; /* FLOP that are long enough to time alone */
  double flop = 2.0 * (double)m * (double)n * (double)k;
  p->m = m, p->n = n, p->k = k;
  p->set_bytes = (m * k + k * n + m * n) * zpk_bytes(p->c->program->dtype);
  p->sets = pool_bytes / p->set_bytes < SETS ? pool_bytes / p->set_bytes : SETS;
  p->calls = flop < small ? (int)(small / flop) + 1 : 1;
  if (p->sets * p->set_bytes <= cached_bytes && p->calls < p->sets) p->calls = (int)p->sets;
}

static void measure_grid(zpr *c, int threads, int n, double budget_s) {
  static const char *const dtypes[] = {[ZPK_F32] = "f32", [ZPK_F64] = "f64", [ZPK_BF16] = "bf16"};
  product products[KINDS * MOST_SIDES * MOST_SIDES * MOST_SIDES];
  timing timings[KINDS * MOST_SIDES * MOST_SIDES * MOST_SIDES];
  int cube = n * n * n, shapes = KINDS * cube;
  int64_t bytes = 0;
  for (int i = 0; i < shapes; i++) {
    product *p = &products[i];
    *p = (product){.c = c, .trans_b = i / cube == 0, .trans_a = i / cube == 2};
    set_shape(p, sides[i % cube / n / n], sides[i / n % n], sides[i % n]);
    if (p->sets * p->set_bytes > bytes) bytes = p->sets * p->set_bytes;
    timings[i] = (timing){.work = multiply, .arg = p, .warm = p->sets * p->set_bytes <= cached_bytes};
  }
  char *pool = touched(bytes);
  for (int i = 0; i < shapes; i++) products[i].pool = pool;
  time_in_turns(timings, shapes, budget_s);
  give_back(pool, bytes);
  for (int i = 0; i < shapes; i++) {
    const product *p = &products[i];
    char name[64];
    snprintf(name, sizeof name, "gemm_%s_t%d_%s_%dx%dx%d", dtypes[c->program->dtype], threads, kinds[i / cube],
             (int)p->m, (int)p->n, (int)p->k);
    put_row(name, 2.0 * (double)p->m * (double)p->n * (double)p->k * p->calls / timings[i].seconds, "FLOP/s",
            "%d operand sets in turn", (int)p->sets);
  }
}

/* Copies that keep the other cores busy with products until they are stopped. They end with this process. */
static void keep_busy(zpk_dtype dtype, int threads, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0); /* it has ended already */
  zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1};
  zpr c;
  open_rank(&c, &program, threads);
  product p = {.c = &c};
  set_shape(&p, BUSY_SIDE, BUSY_SIDE, BUSY_SIDE);
  p.pool = touched(p.sets * p.set_bytes);
  for (;;) multiply(&p);
}

void measure_gemm(zpk_dtype dtype, int threads, int n_sides, double budget_s) {
  if (n_sides > MOST_SIDES) n_sides = MOST_SIDES;
  pid_t others[ZPR_MAX_WORKERS], self = getpid();
  int n_others = machine_cores() / threads - 1;
  if (n_others > ZPR_MAX_WORKERS - 1) n_others = ZPR_MAX_WORKERS - 1;
  for (int i = 0; i < n_others; i++) {
    others[i] = fork();
    if (others[i] == 0) keep_busy(dtype, threads, self);
  }
  zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1};
  zpr c;
  open_rank(&c, &program, threads);
  measure_grid(&c, threads, n_sides, budget_s);
  close_rank(&c);
  for (int i = 0; i < n_others; i++) {
    if (others[i] < 0) continue;
    kill(others[i], SIGKILL);
    waitpid(others[i], NULL, 0);
  }
}
