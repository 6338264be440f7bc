/* Messages and all-reduces between two ranks of this machine, through the runtime's own collectives. */
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
    if (c->rank == 0) {
      zpr_send(c, 0, true, e->data, e->count, i);
      zpr_recv(c, 0, false, e->data, e->count, i);
    } else {
      zpr_recv(c, 0, true, e->data, e->count, i);
      zpr_send(c, 0, false, e->data, e->count, i);
    }
    zpr_send_wait(c, 0, c->rank == 0, i);
  }
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Both ranks must repeat equally often, so the number of repetitions comes from one timed call of rank 0. */
static double time_exchange(void (*work)(exchange *e), exchange *e, double budget_s) {
  enum { MOST = 200 };
  static double seconds[MOST];
  work(e);
  zpr_barrier(e->c);
  double begin = now();
  work(e);
  int64_t n = (int64_t)(budget_s / (now() - begin + 1e-9));
  n = zpr_world_min(e->c, n < 3 ? 3 : n > MOST ? MOST : n);
  for (int64_t i = 0; i < n; i++) {
    zpr_barrier(e->c);
    begin = now();
    work(e);
    seconds[i] = (now() - begin) / e->calls;
  }
  qsort(seconds, (size_t)n, sizeof *seconds, by_size);
  return seconds[n / 4];
}

static void measure_exchanges(zpr *c, double budget_s) {
  exchange e = {.c = c, .data = touched(LARGE * (int64_t)sizeof(float)), .count = SMALL, .calls = CALLS};
  double small_reduce = time_exchange(reduce, &e, budget_s / 4), small_ping = time_exchange(ping, &e, budget_s / 4);
  e.count = LARGE, e.calls = 1;
  double reduce_s = time_exchange(reduce, &e, budget_s / 4), ping_s = time_exchange(ping, &e, budget_s / 4);
  double bytes = LARGE * (double)sizeof(float);
  if (c->rank == 0) {
    put_row("message_latency_s", small_ping / 2, "s", "half of a round trip of %d bytes", SMALL * (int)sizeof(float));
    put_row("message_bytes_per_s", bytes / (ping_s / 2), "B/s", "half of a round trip of %d MiB",
            (int)(bytes / (1 << 20)));
    /* Two ranks: reduce-scatter and all-gather, one round each, half of the array a round. */
    put_row("all_reduce_latency_s", small_reduce / 2, "s", "one of two rounds, two ranks, %d bytes",
            SMALL * (int)sizeof(float));
    put_row("all_reduce_bytes_per_s", bytes / reduce_s, "B/s", "a rank's sending rate, two ranks, %d MiB",
            (int)(bytes / (1 << 20)));
  }
  give_back(e.data, LARGE * (int64_t)sizeof(float));
}

int measure_links(int argc, char **argv, double budget_s) {
  static zpr_stage stages[2] = {{.arena_bytes = 256}, {.arena_bytes = 256}};
  zpr_program program = {.dtype = ZPK_F32,
                         .tensor = 1,
                         .pipeline = 2,
                         .data = 1,
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
