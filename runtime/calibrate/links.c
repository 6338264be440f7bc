/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and all-reduces in pairs of ranks of this machine, all pairs at the same time, through the runtime's own
 * collectives: what ranks that share cores, or memory's bandwidth, take from each other is in the times. */
#include <stdlib.h>
#include "calibrate.h"

enum { SMALL = 16, LARGE = 4 << 20, CALLS = 20 }; /* elements of f32; repetitions of a small call */

typedef struct exchange {
  zpr *c;
  float *data;
  int64_t count;
  int calls;
} exchange;

static void reduce(exchange *e) {
  for (int i = 0; i < e->calls; i++) zpr_all_reduce(e->c, ZPR_PIPELINE, e->data, e->count);
}

/* There and back: two messages. */
static void ping(exchange *e) {
  zpr *c = e->c;
  for (int i = 0; i < e->calls; i++) {
    if (c->p == 0) {
      zpr_send(c, 0, true, e->data, e->count, i);
      zpr_recv(c, 0, false, e->data, e->count, i);
    } else {
      zpr_recv(c, 0, true, e->data, e->count, i);
      zpr_send(c, 0, false, e->data, e->count, i);
    }
    zpr_send_wait(c, 0, c->p == 0, i);
  }
}

/* All ranks repeat equally often: before every call they agree that there is time left. That takes much longer than a
 * call where other work has the cores. */
static double time_exchange(void (*work)(exchange *e), exchange *e, double budget_s) {
  enum { LEAST = 3, MOST = 200 };
  static double seconds[MOST];
  int n = 0;
  work(e);
  double end = now() + budget_s;
  while (zpr_world_min(e->c, n < LEAST || (n < MOST && now() < end))) {
    double begin = now();
    work(e);
    seconds[n++] = (now() - begin) / e->calls;
  }
  qsort(seconds, (size_t)n, sizeof *seconds, by_size);
  return seconds[n / 4];
}

static const char *name_of(const char *kind, int ranks, int bytes) {
  static char name[64];
  snprintf(name, sizeof name, "%s_%dx%d", kind, ranks, bytes);
  return name;
}

/* Elements of the arrays: a short hop, a wait, a tensor group's activations, a data group's gradients. */
static const int64_t counts[] = {SMALL, 1 << 10, 16 << 10, 256 << 10, LARGE};
enum { SIZES = sizeof counts / sizeof *counts };

static void measure_exchanges(zpr *c, double budget_s) {
  exchange e = {.c = c, .data = touched(LARGE * (int64_t)sizeof(float))};
  for (int i = 0; i < SIZES; i++) {
    e.count = counts[i];
    e.calls = counts[i] < 256 << 10 ? CALLS : 1;
    int bytes = (int)(counts[i] * (int64_t)sizeof(float));
    double reduce_s = time_exchange(reduce, &e, budget_s / (2 * SIZES)) / 2;
    double ping_s = time_exchange(ping, &e, budget_s / (2 * SIZES)) / 2;
    if (c->rank != 0) continue;
    /* Two ranks: reduce-scatter and all-gather, one round each, half of the array a round. */
    put_row(name_of("reduce_round_s", c->ranks, bytes / 2), reduce_s, "s",
            "half of an all-reduce in a pair of ranks, %d pairs at once", c->ranks / 2);
    put_row(name_of("message_s", c->ranks, bytes), ping_s, "s",
            "half of a round trip in a pair of ranks, %d pairs at once", c->ranks / 2);
  }
  give_back(e.data, LARGE * (int64_t)sizeof(float));
}

int measure_links(int argc, char **argv, int ranks, double budget_s) {
  static zpr_stage stages[2] = {{.arena_bytes = 256}, {.arena_bytes = 256}};
  zpr_program program = {.dtype = ZPK_F32,
                         .tensor = 1,
                         .pipeline = 2,
                         .data = ranks / 2,
                         .batch = 1,
                         .sequence = 1,
                         .microbatches = CALLS,
                         .stages = stages};
  zpr_options options = zpr_default_options;
  options.threads = 1;
  zpr c;
  zpr_open(&c, &program, &options, &argc, &argv);
  measure_exchanges(&c, budget_s);
  zpr_close(&c);
  return 0;
}
