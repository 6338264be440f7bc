/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a batch: two places in pinned memory take turns, so that a batch is made and copied while the GPU computes
 * with the one before. */
#include "cuda.h"
#include <assert.h>
#include <stdlib.h>

enum { TURNS = 2, NO_TIMING = 2 /* CU_EVENT_DISABLE_TIMING */ };

typedef struct zpr_tokens {
  int32_t *pinned[TURNS], *place;
  void *copied[TURNS];
  int64_t room, count, n; /* n: batches so far */
} tokens;

static tokens *open_tokens(zpr *c, int64_t count) {
  zpr_device *d = c->state->device;
  if (d->tokens) return d->tokens;
  tokens *t = d->tokens = zpr_alloc(c, 1, sizeof *t);
  t->room = count;
  for (int i = 0; i < TURNS; i++) {
    zpr_cuda(c, d->api.allocate_host((void **)&t->pinned[i], (size_t)count * sizeof *t->pinned[i]),
             "get pinned memory of the host");
    zpr_cuda(c, d->api.new_event(&t->copied[i], NO_TIMING), "make an event");
  }
  return t;
}

void zpr_cuda_tokens_close(zpr *c) {
  zpr_device *d = c->state->device;
  tokens *t = d->tokens;
  if (!t) return;
  for (int i = 0; i < TURNS; i++) {
    d->api.release_event(t->copied[i]);
    d->api.release_host(t->pinned[i]);
  }
  free(t);
  d->tokens = NULL;
}

/* What is there may be written again once its copy has ended, which is a batch ago. */
int32_t *zpr_tokens_open(zpr *c, int32_t *place, int64_t count) {
  tokens *t = open_tokens(c, count);
  int turn = (int)(t->n % TURNS);
  assert(count <= t->room);
  if (t->n >= TURNS) zpr_cuda(c, c->state->device->api.await_event(t->copied[turn]), "finish a copy");
  t->place = place;
  t->count = count;
  return t->pinned[turn];
}

void zpr_tokens_close(zpr *c) {
  zpr_device *d = c->state->device;
  tokens *t = d->tokens;
  int turn = (int)(t->n++ % TURNS);
  zpr_cuda(c,
           d->api.to_device(zpr_gpu(t->place), t->pinned[turn], (size_t)t->count * sizeof *t->pinned[turn], d->stream),
           "copy to the GPU");
  zpr_cuda(c, d->api.record(t->copied[turn], d->stream), "mark a place in a stream");
}

const int32_t *zpr_tokens_on_host(const zpr *c, const int32_t *place) {
  const tokens *t = c->state->device->tokens;
  assert(t && t->n > 0 && place >= t->place && place < t->place + t->count);
  return t->pinned[(t->n - 1) % TURNS] + (place - t->place);
}
