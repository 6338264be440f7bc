/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients on the host (ZeRO-Offload, arXiv 2101.06840) or on disks (ZeRO-Infinity, arXiv 2104.07857): a unit's go
 * down alongside the next unit's work, to one of two windows, and are added to the sum by the host when the ones after
 * them are on their way; sums on disks are read meanwhile and written again. Two buffers of the ring take
 * turns on the device: what writes to one waits for what left it. */
#include "host_grads.h"
#include <stdlib.h>
#include <string.h>
#include "offloaded.h"
#include "state.h"
#include "stochastic_sums.h"
#include "tier.h"

enum { AT_ONCE = 65536, BUFFERS = 2 };

/* What lands and is not added yet. */
struct zpr_host_grads {
  bool used, waits, add;
  int64_t first, count, ticket;
  int window;            /* the one that it lands in */
  int buffer;            /* of the ring, of the unit at work */
  int64_t left[BUFFERS]; /* the last copy out of each */
  zpr_block *blocks;     /* of the norm: their parts on the device, */
  zpr_block_list list;   /* the same, */
  double *squares;       /* and sums of the others */
  int n_zero;            /* buckets of sums on disks that are 0 until the first gradients of the step, */
  int64_t *zero;         /* of which nothing is written: their first elements off the device */
};

static struct zpr_host_grads *host_grads_of(zpr *c) {
  if (!c->state->host_grads) c->state->host_grads = zpr_alloc(c, 1, sizeof *c->state->host_grads);
  return c->state->host_grads;
}

void zpr_host_grads_close(zpr *c) {
  struct zpr_host_grads *l = c->state->host_grads;
  if (!l) return;
  zpr_block_list_close(c, &l->list);
  free(l->blocks);
  free(l->squares);
  free(l->zero);
  free(l);
  c->state->host_grads = NULL;
}

static char *on_device(zpr *c, int64_t i) { return (char *)zpr_at(c, c->stage->grads) + i * zpr_sum_bytes(c); }

static char *window_at(zpr *c, int window) {
  return (char *)zpr_host_at(c, c->stage->grads_in) + window * c->stage->window_elements * zpr_gradient_bytes(c);
}

/* ---- sums ---- */

typedef struct add_task {
  zpk_dtype dtype;
  char *sum;
  const char *landed;
  bool add;
} add_task;

static void add_range(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const add_task *a = arg;
  const void *parts[] = {a->sum, a->landed};
  int64_t size = zpk_bytes(a->dtype);
  if (a->add)
    zpk_sum_parts(a->dtype, a->sum, parts, 2, begin, end);
  else
    memcpy(a->sum + begin * size, a->landed + begin * size, (size_t)((end - begin) * size));
}

void zpr_land_gradients(zpr *c) {
  struct zpr_host_grads *l = host_grads_of(c);
  if (!l->waits) return;
  zpr_copy_wait(c, l->ticket);
  zpr_view sum = l->add ? zpr_offloaded_read(c, ZPR_CLASS_GRADS, l->first, l->count)
                        : zpr_offloaded_room(c, ZPR_CLASS_GRADS, l->first, l->count);
  add_task a = {zpr_gradient_type(c), sum.at, window_at(c, l->window), l->add};
  zpr_parallel(c, l->count, AT_ONCE, add_range, &a);
  zpr_offloaded_put(c, ZPR_CLASS_GRADS, sum, l->first, l->count, 0);
  l->waits = false;
}

/* Was the bucket set to 0, and nothing added since? Afterwards it is not. */
static bool is_zero(struct zpr_host_grads *l, int64_t first) {
  for (int i = 0; i < l->n_zero; i++)
    if (l->zero[i] == first) {
      l->zero[i] = l->zero[--l->n_zero];
      return true;
    }
  return false;
}

static void keep_here(zpr *c, const zpr_side *s, const char *from, bool add) {
  int64_t size = zpr_gradient_bytes(c);
  for (int k = 0; k < s->n; k++) {
    char *to = on_device(c, s->at + k * s->count);
    const char *part = from + (s->first + k * s->stride) * size;
    if (add)
      zpr_add(c, to, part, s->count);
    else
      zpr_copy(c, to, part, s->count * size);
  }
}

static int64_t send_down(zpr *c, char *window, const zpr_side *s, const char *from) {
  int64_t size = zpr_gradient_bytes(c), ticket = 0;
  for (int k = 0; k < s->n; k++)
    ticket = zpr_copy_down(c, window + k * s->count * size, from + (s->first + k * s->stride) * size, s->count * size);
  return ticket;
}

void zpr_keep_gradients(zpr *c, const zpr_bucket_home *b, const void *from, bool add) {
  zpr_side here = zpr_side_of(b, false), offloaded = zpr_side_of(b, true);
  if (c->program->stochastic_sums)
    zpr_keep_rounded(c, b, from, add);
  else
    keep_here(c, &here, from, add);
  if (offloaded.n == 0) return;
  struct zpr_host_grads *l = host_grads_of(c);
  int window = (l->window + 1) % 2; /* whatever landed there was added when the other one was taken */
  int64_t ticket = send_down(c, window_at(c, window), &offloaded, from);
  zpr_land_gradients(c);
  l->window = window;
  l->waits = true;
  l->add = !is_zero(l, offloaded.at) && add;
  l->first = offloaded.at;
  l->count = offloaded.n * offloaded.count;
  if (l->add) zpr_offloaded_ahead(c, ZPR_CLASS_GRADS, l->first, l->count);
  l->ticket = l->left[l->buffer] = ticket;
}

void *zpr_grad_buffer(zpr *c, void *ring) {
  if (c->state->rehearses) return ring;
  struct zpr_host_grads *l = host_grads_of(c);
  int64_t size = zpr_gradient_bytes(c);
  /* Gaps between parameters go down with them: they are numbers from the start. */
  if (!l->used) zpr_zero(c, ring, BUFFERS * c->stage->bucket_elements * size);
  l->used = true;
  l->buffer = (l->buffer + 1) % BUFFERS;
  zpr_copy_before(c, l->left[l->buffer]);
  return (char *)ring + l->buffer * c->stage->bucket_elements * size;
}

static void zero_here(zpr *c, int64_t first, int64_t count) {
  if (count > 0) zpr_zero(c, on_device(c, first), count * zpr_sum_bytes(c));
}

void zpr_zero_gradients(zpr *c, const zpr_bucket_home *b) {
  struct zpr_host_grads *l = host_grads_of(c);
  int64_t size = zpr_gradient_bytes(c), offloaded = b->shards * (b->size - b->here);
  zero_here(c, b->device, b->shards * b->here);
  if (c->program->stochastic_sums) zpr_restart_rounded(c, b);
  if (offloaded == 0) return;
  if (!c->stage->grads_offloaded.on_disk) {
    memset(zpr_offloaded_room(c, ZPR_CLASS_GRADS, b->host, offloaded).at, 0, (size_t)(offloaded * size));
    return;
  }
  if (!l->zero) l->zero = zpr_alloc(c, (size_t)c->stage->n_runs, sizeof *l->zero);
  (void)is_zero(l, b->host);
  l->zero[l->n_zero++] = b->host;
}

void zpr_zero_all_gradients(zpr *c) {
  int64_t here = zpr_held_here(c, ZPR_CLASS_GRADS);
  zero_here(c, 0, here);
  zpr_offloaded_zero(c, ZPR_CLASS_GRADS, zpr_held(c, ZPR_CLASS_GRADS) - here);
}

/* Element by element in rank order on either side, so it does not matter where one lies. */
void zpr_sum_gradients(zpr *c, const zpr_group *group, zpr_axis counted_as, const zpr_bucket_home *b) {
  int64_t offloaded = b->size - b->here;
  if (c->program->stochastic_sums)
    zpr_sum_rounded(c, group, counted_as, b);
  else if (b->here > 0)
    zpr_group_all_reduce(c, group, counted_as, zpr_gradient_type(c), on_device(c, b->device + b->mine * b->here),
                         b->here);
  if (offloaded == 0) return;
  zpr_view view = zpr_offloaded_read(c, ZPR_CLASS_GRADS, b->host + b->mine * offloaded, offloaded);
  zpr_host_all_reduce(c, group, counted_as, zpr_gradient_type(c), view.at, offloaded);
  zpr_offloaded_put(c, ZPR_CLASS_GRADS, view, b->host + b->mine * offloaded, offloaded, 0);
}

/* ---- over the data ranks, below ZeRO 2 ---- */

static void sum_over(zpr *c, const zpr_group *holders, const zpr_bucket_home *b, void *shards, int64_t elements) {
  if (zpr_shards_state(c->program)) {
    zpr_group_reduce_scatter(c, holders, ZPR_DATA, zpr_gradient_type(c), shards, elements);
    zpr_sum_copies(c, (char *)shards + b->mine * elements * zpr_gradient_bytes(c), elements);
  } else
    zpr_group_all_reduce(c, holders, ZPR_DATA, zpr_gradient_type(c), shards, b->shards * elements);
}

/* What is on the host comes up to a buffer of the ring, while the other one is at work, and what was summed goes
 * down. */
void zpr_sum_replicas(zpr *c, const zpr_group *holders, const zpr_bucket_home *b) {
  struct zpr_host_grads *l = host_grads_of(c);
  int64_t size = zpr_gradient_bytes(c), offloaded = b->size - b->here;
  if (b->here > 0) sum_over(c, holders, b, on_device(c, b->device), b->here);
  if (offloaded == 0) return;
  l->buffer = (l->buffer + 1) % BUFFERS;
  char *ring = (char *)zpr_at(c, c->stage->grad_ring) + l->buffer * c->stage->bucket_elements * size;
  zpr_copy_before(c, l->left[l->buffer]);
  zpr_view parts = zpr_offloaded_read(c, ZPR_CLASS_GRADS, b->host, b->shards * offloaded);
  int64_t came = zpr_copy_up(c, ring, parts.at, b->shards * offloaded * size, 0), mine = b->host + b->mine * offloaded;
  zpr_offloaded_leaves(c, ZPR_CLASS_GRADS, parts, came);
  zpr_copy_before(c, came);
  sum_over(c, holders, b, ring, offloaded);
  zpr_view sum = zpr_offloaded_room(c, ZPR_CLASS_GRADS, mine, offloaded);
  l->left[l->buffer] = zpr_copy_down(c, sum.at, ring + b->mine * offloaded * size, offloaded * size);
  zpr_offloaded_put(c, ZPR_CLASS_GRADS, sum, mine, offloaded, l->left[l->buffer]);
}

void zpr_await_replicas(zpr *c) {
  struct zpr_host_grads *l = host_grads_of(c);
  for (int i = 0; i < BUFFERS; i++) zpr_copy_wait(c, l->left[i]);
  zpr_offloaded_settle(c, ZPR_CLASS_GRADS);
}

/* ---- the norm ---- */

/* Own elements [begin, end), of which a view has the first at `at`. */
typedef struct squares_task {
  zpk_dtype dtype;
  const zpr_block *blocks;
  double *squares;
  int64_t begin, end;
  char *at;
} squares_task;

/* The part of each block that is there. */
static void square_offloaded(void *arg, int64_t first, int64_t last, int worker) {
  (void)worker;
  const squares_task *a = arg;
  for (int64_t i = first; i < last; i++) {
    const zpr_block *b = &a->blocks[i];
    int64_t begin = b->begin > a->begin ? b->begin : a->begin, end = b->end < a->end ? b->end : a->end;
    if (b->counted && begin < end) a->squares[i] += zpk_sum_squares(a->dtype, a->at, begin - a->begin, end - a->begin);
  }
}

/* Sums do not depend on the threads: they are cut by element numbers. On the host a block has one. */
static void square_stretch(zpr *c, const zpr_stretch *s, const zpr_block *blocks, int64_t n, double *squares) {
  int64_t here = zpr_own_here(c, ZPR_CLASS_GRADS), most = zpr_offloaded_most(c, ZPR_CLASS_GRADS);
  for (int64_t begin = s->begin > here ? s->begin : here, end; begin < s->end; begin = end) {
    int64_t first = begin + s->offloaded[ZPR_CLASS_GRADS];
    end = s->end - begin > most ? begin + most : s->end;
    zpr_view view = zpr_offloaded_read(c, ZPR_CLASS_GRADS, first, end - begin);
    squares_task a = {zpr_gradient_type(c), blocks, squares, begin, end, view.at};
    zpr_parallel(c, n, 1, square_offloaded, &a);
  }
}

zpr_block_list *zpr_counted_blocks(zpr *c, const zpr_stretches *stretches, const zpr_block *blocks, int64_t n) {
  struct zpr_host_grads *l = host_grads_of(c);
  if (l->blocks) return &l->list;
  l->blocks = zpr_alloc(c, (size_t)n + 1, sizeof *l->blocks);
  l->squares = zpr_alloc(c, (size_t)n + 1, sizeof *l->squares);
  for (int64_t i = 0; i < n; i++)
    l->blocks[i] = zpr_block_here(stretches, &blocks[i], zpr_own_here(c, ZPR_CLASS_GRADS));
  l->list = (zpr_block_list){.block = l->blocks, .n = n};
  return &l->list;
}

/* Both sums of a block. */
void zpr_square_gradients(zpr *c, const zpr_stretches *stretches, const zpr_block *blocks, int64_t n, double *squares) {
  struct zpr_host_grads *l = host_grads_of(c);
  zpr_square_blocks(c, zpr_counted_blocks(c, stretches, blocks, n), squares);
  if (c->stage->grads_offloaded.elements == 0) return;
  memset(l->squares, 0, (size_t)n * sizeof *l->squares);
  for (int64_t k = 0; k < stretches->n; k++) square_stretch(c, &stretches->item[k], blocks, n, l->squares);
  for (int64_t i = 0; i < n; i++) squares[i] += l->squares[i];
}
