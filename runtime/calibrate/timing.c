/* SPDX-License-Identifier: Apache-2.0 */
/* How long a call takes on a machine that may be busy with something else. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "calibrate.h"

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double now(void) { return seconds_of(CLOCK_MONOTONIC); }

int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Processor time of every thread of the rank, the caller's first. The clock of the whole process is not used: it knows
 * what another thread has worked only up to that thread's last tick, which is up to 4 ms ago. */
static clockid_t clocks[ZPR_MAX_WORKERS] = {CLOCK_THREAD_CPUTIME_ID};
static int n_clocks = 1;

void time_threads(const zpr *c) { n_clocks = c ? 1 + zpr_pool_clocks(c, clocks + 1) : 1; }

typedef struct stamp {
  double wall_s, worked_s[ZPR_MAX_WORKERS];
} stamp;

static stamp stamp_now(void) {
  stamp s = {.wall_s = now()};
  for (int i = 0; i < n_clocks; i++) s.worked_s[i] = seconds_of(clocks[i]);
  return s;
}

/* At any time of a call a thread of the rank works, the caller or those that it waits for. Where the one that worked
 * longest did so for much less than the call took, something else had the cores, and the time is what that one
 * worked. */
static double seconds_since(const stamp *start) {
  const double DISTURBED = 1.2;
  stamp end = stamp_now();
  double wall = end.wall_s - start->wall_s, worked = 0;
  for (int i = 0; i < n_clocks; i++)
    if (end.worked_s[i] - start->worked_s[i] > worked) worked = end.worked_s[i] - start->worked_s[i];
  return wall > DISTURBED * worked ? worked : wall;
}

double time_call(void (*work)(void *arg), void *arg, double budget_s) {
  enum { LEAST = 3, MOST = 1000 };
  static double seconds[MOST];
  int n = 0;
  work(arg);
  double begin = now();
  do {
    stamp start = stamp_now();
    work(arg);
    seconds[n++] = seconds_since(&start);
  } while (n < MOST && (n < LEAST || now() - begin < budget_s));
  qsort(seconds, (size_t)n, sizeof *seconds, by_size);
  return seconds[n / 4];
}

void time_in_turns(timing *timings, int n, double budget_s) {
  enum { MOST = 200 };
  double *seconds = touched(n * MOST * (int64_t)sizeof *seconds);
  int rounds = 0;
  for (double begin = now(); rounds == 0 || (rounds < MOST && now() - begin < budget_s); rounds++)
    for (int i = 0; i < n; i++) {
      if (timings[i].warm) timings[i].work(timings[i].arg);
      stamp start = stamp_now();
      timings[i].work(timings[i].arg);
      seconds[i * MOST + rounds] = seconds_since(&start);
    }
  for (int i = 0; i < n; i++) {
    qsort(seconds + i * MOST, (size_t)rounds, sizeof *seconds, by_size);
    timings[i].seconds = seconds[i * MOST + rounds / 2];
  }
  give_back(seconds, n * MOST * (int64_t)sizeof *seconds);
}

void *touched(int64_t bytes) {
  void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "zplan-calibrate: no memory for %lld bytes\n", (long long)bytes);
    exit(1);
  }
  madvise(memory, (size_t)bytes, MADV_HUGEPAGE); /* only faster; a kernel without it is fine */
  memset(memory, 0, (size_t)bytes);
  return memory;
}

void give_back(void *memory, int64_t bytes) { munmap(memory, (size_t)bytes); }
