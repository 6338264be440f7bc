/* SPDX-License-Identifier: Apache-2.0 */
/* Searches one model with every prover of planner/cuts, and without one of them after the other. Prints a line a
 * search: what was left out ("-": nothing), step, bound of all that was searched, bound of all plans, CPU
 * seconds. For cut_provers.py.
 *
 *   cut_provers FILE.dz GPUS [KEY=VALUE]... */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <zplan/plan.h>
#include "../support/user_spec.h"

static double cpu_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void measure(const zp_spec *spec, int gpus, const char *name, unsigned without) {
  zp_arena *arena = zp_arena_new("plan");
  double begin = cpu_s();
  const zp_plan *plan = zp_search(arena, spec, gpus, &(zp_search_options){.without = without, .no_miss = true});
  double seconds = cpu_s() - begin;
  const zp_certificate *c = &plan->certificate;
  printf("%s\t%d\t%.17g\t%.17g\t%.17g\t%.6f\n", name, plan->feasible, c->best_s, c->searched_s, c->bound_s, seconds);
  zp_arena_free(arena);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: cut_provers FILE.dz GPUS [KEY=VALUE]...\n");
    return 2;
  }
  zp_arena *arena = zp_arena_new("spec");
  int gpus = atoi(argv[2]);
  const zp_spec *spec = user_spec_on(arena, argv[1], gpus, (const char *const *)argv + 3, argc - 3);
  if (!spec) return 2;
  measure(spec, gpus, "-", 0);
  for (int i = 0; i < ZP_CUT_PROVERS; i++) measure(spec, gpus, zp_cut_provers[i].name, 1u << i);
  zp_arena_free(arena);
  return 0;
}
