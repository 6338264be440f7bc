/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a rank around the training: who it is, its arena, its threads. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "offloaded.h"
#include "device.h"
#include "loads.h"
#include "state.h"
#include "tier.h"

static void check_ranks(zpr *c) {
  const zpr_program *p = c->program;
  int want = p->tensor * p->pipeline * p->data;
  zpr_error error = {0};
  if (c->ranks != want)
    zpr_error_set(&error, "Z0820",
                  "this trainer was built for %d rank%s (tensor %d x pipeline %d x data %d), started with %d", want,
                  want == 1 ? "" : "s", p->tensor, p->pipeline, p->data, c->ranks);
  zpr_agree(c, &error);
}

static int cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

static void start_threads(zpr *c) {
  int on_host = zpr_ranks_on_host(c), threads = c->state->options.threads;
  if (threads == 0) threads = cores() / on_host;
  if (threads < 1) threads = 1;
  if (threads > ZPR_MAX_WORKERS) threads = ZPR_MAX_WORKERS;
  zpr_pool_start(c, threads, threads * on_host <= cores());
}

enum { LIBRARIES = 64 << 20, SPARE = 32 << 20 }; /* what is loaded next; what a step takes and a checkpoint maps */

/* Where address space is limited, what is missing is told before it is asked for: a library that cannot be mapped looks
 * as if it were not there. */
static void check_address_space(zpr *c, size_t bytes) {
  struct rlimit limit;
  zpr_error error = {0};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place != MAP_FAILED)
      munmap(place, bytes);
    else
      zpr_error_set(&error, "Z0822",
                    "address space is limited to %lld bytes (ulimit -v), too few to train: %lld more are needed",
                    (long long)limit.rlim_cur, (long long)bytes);
  }
  zpr_agree(c, &error);
}

void zpr_open(zpr *c, const zpr_program *program, const zpr_options *options, int *argc, char ***argv) {
  *c = (zpr){.program = program, .ranks = 1, .training = true};
  c->state = zpr_alloc(c, 1, sizeof *c->state);
  c->state->options = *options;
  zpr_comm_init(c, argc, argv);
  check_ranks(c);
  c->stage = &program->stages[c->p];
  zpr_loss_scale_start(c);
  for (int i = 0; i < ZPR_MOST_LOSSES; i++)
    c->token_weight[i] = 1 / ((double)program->batch * (double)program->sequence);
  c->first_sample = c->d / zpr_context_ranks(program) * program->microbatches * program->microbatch;
  start_threads(c);
  check_address_space(c, LIBRARIES);
  zpr_device_open(c);
  zpr_arena_open(c, options->check_memory);
  zpr_tier_open(c, options->check_memory);
  zpr_saved_open(c);
  zpr_offloaded_open(c);
  zpr_loads_open(c);
  zpr_prepare(c);
  check_address_space(c, SPARE);
}

void zpr_close(zpr *c) {
  zpr_saved_close(c);
  zpr_offloaded_close(c);
  zpr_tier_close(c);
  zpr_loads_close(c);
  zpr_arena_close(c);
  zpr_device_close(c);
  zpr_pool_stop(c);
  zpr_comm_finish(c);
  free(c->state);
  c->state = NULL;
}
