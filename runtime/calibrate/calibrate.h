/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the measuring program: timing, output and one function per kind of measurement. */
#ifndef ZPLAN_CALIBRATE_H
#define ZPLAN_CALIBRATE_H

#include "internal.h"

/* ---- timing.c ---- */
/* Wall-clock seconds. */
double now(void);
/* For qsort: doubles, the smallest first. */
int by_size(const void *a, const void *b);
/* The rank whose threads work in the calls that follow; NULL: the caller's alone. */
void time_threads(const zpr *c);
/* Seconds of one call of `work`: it is repeated for about `budget_s`, at least three times after a warm-up; the first
 * quartile. */
double time_call(void (*work)(void *arg), void *arg, double budget_s);
/* One of several works that are timed in turns. */
typedef struct timing {
  void (*work)(void *arg);
  void *arg;
  bool warm;      /* every timed call follows one that is not timed: what it needs is in the caches, if it fits */
  double seconds; /* out: of one call */
} timing;
/* Rounds over all of them for about `budget_s`, at least one: a disturbance of the machine lasts longer than one call
 * and must not decide about one work alone. The median, because a trainer's steps are as disturbed as these calls. */
void time_in_turns(timing *timings, int n, double budget_s);
/* Bytes that no page fault interrupts any more, on large pages where the system has them, as a trainer's arena; all 0.
 * Ends the program when there is no memory. give_back returns them. */
void *touched(int64_t bytes);
void give_back(void *memory, int64_t bytes);

/* ---- main.c ---- */
/* A row: name, value, unit and how it was measured. A name that comes again, in another pass, gives the row the median
 * of the values. main prints the rows at the end, a line each, tabs between. */
void put_row(const char *name, double value, const char *unit, const char *how, ...)
    __attribute__((format(printf, 4, 5)));
/* A rank with `threads` threads and no model: what the runtime's own kernels need to run. */
void open_rank(zpr *c, zpr_program *program, int threads);
void close_rank(zpr *c);
int machine_cores(void);

/* ---- gemm.c: products of trainers' shapes. With fewer threads than cores the other cores are kept as busy by copies
 * of this process, as they are when every rank has its own. n_sides: the smallest of the grid, at most 4. ---- */
void measure_gemm(zpk_dtype dtype, int threads, int n_sides, double budget_s);
/* ---- libraries.c: which library and kernels multiply ---- */
void measure_libraries(double budget_s);
/* Does the processor multiply bf16 itself? */
bool multiplies_bf16(void);
/* For `zplan doctor`: the processor's features, the rows of measure_libraries, warnings. */
void show_libraries(double budget_s);
/* ---- rows.c, attention.c, streams.c: on all threads of the rank ---- */
void measure_rows(zpr *c, double budget_s);
void measure_attention(zpr *c, double budget_s);
void measure_streams(zpr *c, double budget_s);
/* ---- disk.c ---- */
void measure_disk(const char *folder);
/* ---- links.c: under mpirun, of an even number of ranks ---- */
int measure_links(int argc, char **argv, int ranks, double budget_s);
/* ---- gpu.c: the first GPU, if there is one; exit status ---- */
int measure_gpu(double budget_s);

#endif
