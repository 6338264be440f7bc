/* SPDX-License-Identifier: Apache-2.0 */
/* zplan-calibrate: measures this machine with the kernels and messages that trainers use. `zplan calibrate` runs it and
 * turns its rows into a file.
 *
 *   zplan-calibrate compute SECONDS [FOLDER]   all but messages; FOLDER: where the disk is measured
 *   zplan-calibrate products SECONDS           what multiplies matrices, for `zplan doctor`
 *   zplan-calibrate gpu SECONDS                the first GPU, if there is one
 *   mpirun -n RANKS zplan-calibrate-mpi links SECONDS RANKS         an even number of them */
#define _GNU_SOURCE
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "calibrate.h"

/* ---- rows ---- */

enum { PASSES = 3, MOST_ROWS = 2048, NAME_SIZE = 64, HOW_SIZE = 320 };

static struct row {
  char name[NAME_SIZE], how[HOW_SIZE];
  const char *unit;
  double values[PASSES];
  int n;
} rows[MOST_ROWS];
static int n_rows;

void put_row(const char *name, double value, const char *unit, const char *how, ...) {
  int at = 0;
  while (at < n_rows && strcmp(rows[at].name, name) != 0) at++;
  if (at == MOST_ROWS || rows[at].n == PASSES) return;
  struct row *row = &rows[at];
  if (at == n_rows) {
    n_rows++;
    snprintf(row->name, sizeof row->name, "%s", name);
    va_list args;
    va_start(args, how);
    vsnprintf(row->how, sizeof row->how, how, args);
    va_end(args);
    row->unit = unit;
  }
  row->values[row->n++] = value;
}

static int print_rows(void) {
  for (int i = 0; i < n_rows; i++) {
    struct row *row = &rows[i];
    qsort(row->values, (size_t)row->n, sizeof *row->values, by_size);
    printf("%s\t%.6g\t%s\t%s\n", row->name, row->values[row->n / 2], row->unit, row->how);
  }
  return fflush(stdout) != 0;
}

int machine_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void open_rank(zpr *c, zpr_program *program, int threads) {
  static zpr_stage stage;
  stage.arena_bytes = zpk_is_narrow(program->dtype) ? ZPR_MAX_WORKERS * ZPR_PRODUCT_BYTES : 256;
  zpr_options options = zpr_default_options;
  int argc = 0;
  char **argv = NULL;
  program->stages = &stage;
  program->batch = program->sequence = 1;
  options.threads = threads;
  zpr_open(c, program, &options, &argc, &argv);
  time_threads(c);
}

void close_rank(zpr *c) {
  time_threads(NULL);
  zpr_close(c);
}

/* ---- what is measured ---- */

static void nothing(void *arg, int64_t begin, int64_t end, int worker) {
  (void)arg, (void)begin, (void)end, (void)worker;
}

enum { TASKS = 1000 };
static void start_tasks(void *arg) {
  for (int i = 0; i < TASKS; i++) zpr_parallel(arg, ZPR_MAX_WORKERS, 1, nothing, NULL);
}

/* A rank with one thread starts none: it calls the task. */
static void measure_kernels(double budget_s) {
  zpr_program program = {.dtype = ZPK_F32, .tensor = 1, .pipeline = 1, .data = 1};
  zpr c;
  open_rank(&c, &program, 1);
  put_row("task_t1_s", time_call(start_tasks, &c, 0.01 * budget_s) / TASKS, "s",
          "an empty task of a rank with one thread");
  close_rank(&c);
  open_rank(&c, &program, 0);
  put_row("task_s", time_call(start_tasks, &c, 0.05 * budget_s) / TASKS, "s", "an empty task on all threads");
  measure_streams(&c, 0.2 * budget_s);
  measure_rows(&c, 0.3 * budget_s);
  measure_attention(&c, 0.45 * budget_s);
  close_rank(&c);
}

/* Is the middle of the next pass within the budget, if it takes as long as those before it? */
static bool has_time(int passes, double elapsed_s, double budget_s) {
  return passes == 0 || elapsed_s * (passes + 0.5) / passes <= budget_s;
}

/* Several passes over everything: something else that keeps a core busy for seconds disturbs one of them. Where passes
 * take longer than they may, there are fewer; in a short time the largest products are left out. */
enum { SHORT_SECONDS = 8 };
static void measure_compute(double budget_s, const char *folder) {
  int cores = machine_cores() < ZPR_MAX_WORKERS ? machine_cores() : ZPR_MAX_WORKERS;
  put_row("cores", cores, "cores", "that this process may use, at most the %d threads of a rank", ZPR_MAX_WORKERS);
  double share = budget_s / PASSES * (cores > 1 ? 0.5 : 1); /* ranks with all threads, and with one */
  double bf16 = multiplies_bf16() ? 0.2 : 0;                /* otherwise f32's rates are those of bf16 */
  int sides = budget_s < SHORT_SECONDS ? 3 : 4;
  double begin = now();
  for (int pass = 0; pass < PASSES && has_time(pass, now() - begin, budget_s); pass++) {
    measure_libraries(0.02 * budget_s / PASSES);
    measure_gemm(ZPK_F32, cores, sides, (0.4 - bf16 / 2) * share);
    if (cores > 1) measure_gemm(ZPK_F32, 1, sides, (0.4 - bf16 / 2) * share);
    measure_kernels(0.28 * budget_s / PASSES);
    measure_gemm(ZPK_F64, cores, sides, (0.3 - bf16 / 2) * share);
    if (cores > 1) measure_gemm(ZPK_F64, 1, sides, (0.3 - bf16 / 2) * share);
    if (bf16 > 0) measure_gemm(ZPK_BF16, cores, sides, bf16 * share);
    if (bf16 > 0 && cores > 1) measure_gemm(ZPK_BF16, 1, sides, bf16 * share);
  }
  if (folder) measure_disk(folder);
}

int main(int argc, char **argv) {
  double budget_s = argc > 2 ? strtod(argv[2], NULL) : 0;
  if ((argc == 3 || argc == 4) && strcmp(argv[1], "compute") == 0 && budget_s > 0) {
    measure_compute(budget_s, argc == 4 ? argv[3] : NULL);
    return print_rows();
  }
  if (argc == 3 && strcmp(argv[1], "products") == 0 && budget_s > 0) {
    show_libraries(budget_s);
    return print_rows();
  }
  int ranks = argc == 4 ? atoi(argv[3]) : 0;
  if (argc == 4 && strcmp(argv[1], "links") == 0 && budget_s > 0 && ranks > 0 && ranks % 2 == 0)
    return measure_links(argc, argv, ranks, budget_s) || print_rows();
  if (argc == 3 && strcmp(argv[1], "gpu") == 0 && budget_s > 0) return measure_gpu(budget_s) || print_rows();
  fprintf(stderr,
          "usage: zplan-calibrate compute SECONDS [FOLDER] | products SECONDS | gpu SECONDS | links SECONDS RANKS\n");
  return 2;
}
