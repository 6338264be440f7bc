/* Private to the measuring program: timing, output and one function per kind of measurement. */
#ifndef ZPLAN_CALIBRATE_H
#define ZPLAN_CALIBRATE_H

#include "internal.h"

/* ---- main.c ---- */
/* One row on stdout: name, value, unit and how it was measured, separated by tabs. */
void put_row(const char *name, double value, const char *unit, const char *how, ...)
    __attribute__((format(printf, 4, 5)));
/* Wall-clock seconds. */
double now(void);
/* Seconds of one call of `work`: it is repeated for about `budget_s`, at least three times after a warm-up; the first
 * quartile, because other programs on the machine only ever make a call slower. */
double time_call(void (*work)(void *arg), void *arg, double budget_s);
/* A rank with `threads` threads and no model: what the runtime's own kernels need to run. */
void open_rank(zpr *c, zpr_program *program, int threads);
/* Bytes that no page fault interrupts any more. Ends the program when there is no memory. */
void *touched(int64_t bytes);
int machine_cores(void);

/* ---- gemm.c: products of trainers' shapes. With fewer threads than cores the other cores are kept as busy by copies
 * of this process, as they are when every rank has its own. ---- */
void measure_gemm(zpk_dtype dtype, int threads, double budget_s);
/* ---- kernels.c: memory, row kernels, attention, start of a task; all cores ---- */
void measure_kernels(double budget_s);
/* ---- disk.c ---- */
void measure_disk(const char *folder);
/* ---- links.c: two ranks, under mpirun ---- */
int measure_links(int argc, char **argv, double budget_s);
/* ---- gpu.c: the first GPU, if there is one; exit status ---- */
int measure_gpu(double budget_s);

#endif
