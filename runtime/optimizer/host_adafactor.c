/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor over gradients and state that are off the device. Statistics stay on it: they are few, and all of a
 * tensor's elements need them. Per step: 1  sums of squared gradients by row and column of gradients that are off the
 * device, an instance at a time, added to the device's; 2  squares of parameters, of which disks give the weights
 * alone, and of updates whose gradients are off the device; those whose gradients are on it are the device's, so that
 * no gradient comes down twice; 3  parameters. Factors of rows and columns are made on the device, and copied here for
 * the last two passes: a number for each of either, memory of the runtime itself as sums are. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "adafactor.h"
#include "offloaded.h"

/* Parts of a tensor that are summed at the same time, so that one matrix keeps more than a thread busy: as many for any
 * number of threads, and added in their order. */
enum { SHARES = 16, AT_ONCE = 4096 /* sums that a thread takes */ };

struct zpr_factored_offloaded {
  const zpr_host_update *offloaded;
  const zpr_stretches *stretches;
  const zpr_factored *item; /* whole */
  int64_t *number;          /* [tensors]: of a tensor's item; -1: it is on another stage */
  char *factors;            /* of all items, as the device has their statistics */
  double *sums;             /* [SHARES][of the largest instance] */
  double *squares;          /* [blocks][2] */
};

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The number of a tensor's first own element. */
static int64_t first_of(const zpr_factored *t) { return t->own.begin + t->own.to_state; }

static int64_t statistics_of(const zpr_factored *t) { return t->has.rows + t->has.cols; }

zpr_factored_offloaded *zpr_factored_offloaded_open(zpr *c, const zpr_host_update *offloaded,
                                                    const zpr_stretches *stretches, const zpr_factored *items,
                                                    int64_t n, int64_t tensors, int64_t most_sums) {
  if (!offloaded) return NULL;
  zpr_factored_offloaded *a = zpr_alloc(c, 1, sizeof *a);
  a->offloaded = offloaded;
  a->stretches = stretches;
  a->item = items;
  a->number = zpr_alloc(c, (size_t)tensors + 1, sizeof *a->number);
  for (int64_t i = 0; i < tensors; i++) a->number[i] = -1;
  for (int64_t i = 0; i < n; i++) a->number[items[i].number] = i;
  a->factors = zpr_alloc(c, (size_t)c->stage->n_statistics + 1, (size_t)zpk_real_bytes(c->program->dtype));
  a->sums = zpr_alloc(c, (size_t)most_sums * SHARES + 1, sizeof *a->sums);
  a->squares = zpr_alloc(c, (size_t)zpr_host_blocks(offloaded) * 2 + 1, sizeof *a->squares);
  return a;
}

void zpr_factored_offloaded_close(zpr_factored_offloaded *a) {
  if (!a) return;
  free(a->number);
  free(a->factors);
  free(a->sums);
  free(a->squares);
  free(a);
}

/* ---- sums of squared gradients ---- */

typedef struct summing {
  const zpk_update *rule;
  const zpr_factored *item;
  int64_t begin, end; /* own elements that are there, the first one at `grads` */
  const char *grads;
  double *sums;          /* [SHARES][count] */
  int64_t count;         /* of sums */
  const zpr_factored *t; /* at work */
} summing;

static void sum_neighbours(void *arg, int64_t begin, int64_t end, int64_t at) {
  const summing *x = arg;
  const zpr_factored *t = x->t;
  zpk_rows rows = {.rows = t->has.height, .cols = t->has.width, .first = at, .count = end - begin};
  double *sums = x->sums + t->sums;
  zpk_adafactor_sums(x->rule, &rows, x->grads + (first_of(t) + begin - x->begin) * zpk_real_bytes(x->rule->dtype),
                     t->has.rows > 0 ? sums : NULL, sums + t->has.rows);
}

static void sum_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  for (int64_t k = begin; k < end; k++) {
    summing x = *(const summing *)arg;
    x.t = &x.item[k / SHARES];
    x.sums += k % SHARES * x.count;
    int64_t first = first_of(x.t), from = most(0, x.begin - first);
    int64_t here = least(x.t->own.end - x.t->own.begin, x.end - first) - from;
    if (here <= 0) continue;
    zpr_factored_walk(x.t, from + here * (k % SHARES) / SHARES, from + here * (k % SHARES + 1) / SHARES, sum_neighbours,
                      &x);
  }
}

static void add_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const summing *x = arg;
  for (int64_t share = 1; share < SHARES; share++)
    for (int64_t i = begin; i < end; i++) x->sums[i] += x->sums[share * x->count + i];
}

/* To the room after the device's sums, and with them. */
static void give_sums(zpr *c, const double *from, double *sums, int64_t count) {
  int64_t at_once = zpr_window_bytes(c) / (int64_t)sizeof *sums;
  for (int64_t at = 0, n; at < count; at += n) {
    n = least(at_once, count - at);
    memcpy(zpr_window_open(c, sums + count + at, n * (int64_t)sizeof *sums, false), from + at,
           (size_t)n * sizeof *sums);
    zpr_window_close(c);
  }
  zpr_adafactor_add(c, sums, sums, count, 2);
  zpr_zero(c, sums + count, count * (int64_t)sizeof *sums);
}

/* The whole bucket, which of disks is whole pages. */
void zpr_factored_offloaded_sums(zpr *c, zpr_factored_offloaded *a, const zpk_update *rule, const zpr_factored *items,
                                 int n, double *sums, int64_t count) {
  int64_t begin = most(items->bucket_begin, zpr_own_here(c, ZPR_CLASS_GRADS)), end = items->bucket_end;
  if (begin >= end) return;
  assert(2 * count * (int64_t)sizeof *sums <= c->stage->scratch_bytes);
  const zpr_stretch *stretch = zpr_stretch_of(a->stretches, begin);
  zpr_view view = zpr_offloaded_read(c, ZPR_CLASS_GRADS, begin + stretch->offloaded[ZPR_CLASS_GRADS], end - begin);
  summing x = {
      .rule = rule, .item = items, .begin = begin, .end = end, .grads = view.at, .sums = a->sums, .count = count};
  memset(a->sums, 0, (size_t)count * SHARES * sizeof *a->sums);
  zpr_parallel(c, n * SHARES, 1, sum_shares, &x);
  zpr_parallel(c, count, AT_ONCE, add_shares, &x);
  give_sums(c, a->sums, sums, count);
}

/* ---- passes by the factors ---- */

void zpr_factored_offloaded_keep(zpr *c, zpr_factored_offloaded *a, const zpr_factored *t, const void *factors) {
  int64_t real = zpk_real_bytes(c->program->dtype), bytes = statistics_of(t) * real, at_once = zpr_window_bytes(c);
  char *to = a->factors + t->state * real;
  for (int64_t at = 0, n; at < bytes; at += n) {
    n = least(at_once, bytes - at);
    memcpy(to + at, zpr_window_open(c, (char *)(uintptr_t)factors + at, n, true), (size_t)n);
    zpr_window_close(c);
  }
}

typedef struct pass {
  const zpr_factored_offloaded *a;
  zpk_update rule;
  const zpr_factored_step *step; /* NULL: squares */
  const zpr_host_part *part;
  const zpr_factored *t;
  const void *rows, *cols;
  double factor, sums[2];
} pass;

static void *element(void *array, int64_t i, int64_t size) { return array ? (char *)array + i * size : NULL; }

static pass on_tensor(const pass *all, const zpr_host_part *part) {
  pass x = *all;
  int64_t number = x.a->number[part->tensor], real = zpk_real_bytes(x.rule.dtype);
  assert(number >= 0);
  x.t = &x.a->item[number];
  x.part = part;
  x.rule = zpr_rule_with(&all->rule, part->recipe);
  x.rows = x.t->has.rows > 0 ? x.a->factors + x.t->state * real : NULL;
  x.cols = x.a->factors + (x.t->state + x.t->has.rows) * real;
  if (!x.step) return x;
  x.rule.lr = x.step[number].lr;
  x.factor = x.step[number].factor;
  return x;
}

static void walk_part(pass *x, zpr_on_neighbours *on) {
  int64_t first = first_of(x->t);
  zpr_factored_walk(x->t, x->part->begin - first, x->part->end - first, on, x);
}

static zpk_rows rows_of(const pass *x, int64_t begin, int64_t end, int64_t at) {
  return (zpk_rows){.rows = x->t->has.height, .cols = x->t->has.width, .first = at, .count = end - begin};
}

static void square_neighbours(void *arg, int64_t begin, int64_t end, int64_t at) {
  pass *x = arg;
  const zpr_host_part *p = x->part;
  int64_t own = first_of(x->t) + begin, real = zpk_real_bytes(x->rule.dtype);
  zpk_rows rows = rows_of(x, begin, end, at);
  const char *weights = element(p->weights, own, real);
  if (!p->grads) { /* the device has the updates' */
    x->sums[0] += zpk_sum_squares(real == 8 ? ZPK_F64 : ZPK_F32, weights, 0, rows.count);
    return;
  }
  const char *grads = (const char *)p->grads + own * zpk_real_bytes(x->rule.dtype);
  zpk_adafactor_squares(&x->rule, &rows, weights, grads, x->rows, x->cols, x->sums);
}

/* A block may have two parts. */
static void square_part(void *arg, const zpr_host_part *part) {
  const pass *all = arg;
  pass x = on_tensor(all, part);
  double *to = &all->a->squares[2 * part->block];
  walk_part(&x, square_neighbours);
  to[0] += x.sums[0];
  to[1] += x.sums[1];
}

static void apply_neighbours(void *arg, int64_t begin, int64_t end, int64_t at) {
  const pass *x = arg;
  const zpr_host_part *p = x->part;
  int64_t own = first_of(x->t) + begin, real = zpk_real_bytes(x->rule.dtype);
  zpk_rows rows = rows_of(x, begin, end, at);
  void *weights = element(p->weights, own, real);
  zpk_adafactor_apply(&x->rule, &rows, weights, (const char *)p->grads + own * zpk_real_bytes(x->rule.dtype),
                      element(p->moment[ZPK_MOMENT1], own, real), x->rows, x->cols, x->factor);
  if (p->average) zpk_average(&x->rule, weights, element(p->average, own, real), 0, rows.count);
}

static void apply_part(void *arg, const zpr_host_part *part) {
  pass x = on_tensor(arg, part);
  walk_part(&x, apply_neighbours);
}

static void nothing(zpr *c, void *arg) {
  (void)c;
  (void)arg;
}

void zpr_factored_offloaded_squares(zpr *c, zpr_factored_offloaded *a, const zpk_update *rule, double *squares) {
  pass x = {.a = a, .rule = *rule};
  const zpr_host_walk walk = {
      .reads = 1 << ZPR_WEIGHTS, .gradients = ZPR_GRADIENTS_OFFLOADED, .on_part = square_part, .arg = &x};
  memset(a->squares, 0, (size_t)zpr_host_blocks(a->offloaded) * 2 * sizeof *a->squares);
  zpr_host_walk_run(c, a->offloaded, &walk, nothing, NULL);
  zpr_host_add_squares(a->offloaded, a->squares, squares);
}

void zpr_factored_offloaded_apply(zpr *c, zpr_factored_offloaded *a, const zpk_update *rule,
                                  const zpr_factored_step *step, zpr_between *between, void *arg) {
  pass x = {.a = a, .rule = *rule, .step = step};
  const zpr_host_walk walk = {.reads = ZPR_ALL_ARRAYS,
                              .writes = ZPR_ALL_ARRAYS,
                              .gradients = ZPR_GRADIENTS_HERE | ZPR_GRADIENTS_OFFLOADED,
                              .weights = true,
                              .on_part = apply_part,
                              .arg = &x};
  zpr_host_walk_run(c, a->offloaded, &walk, between, arg);
}
