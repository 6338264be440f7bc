/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor's passes over the threads of a rank (../optimizer/adafactor.c): of sums a tensor is a task, else a piece of
 * a fixed size, so that sums do not depend on the threads. */
#include "adafactor.h"
#include <math.h>

enum { PIECE = ZPR_FACTORED_PIECE };

typedef struct work {
  zpr *c;
  const zpr_factored *t; /* of sums the first of several */
  zpk_update rule;
  double *sums; /* of the instance, or [pieces][2] */
  const char *rows, *cols;
  double factor;
} work;

typedef enum pass { SUMS, SQUARES, APPLY } pass;

/* Elements [begin, end) of the tensor's own part, which are neighbours in the tensor from element `global` on. */
static void work_on(const work *w, const zpr_factored *t, pass which, int64_t begin, int64_t end, int64_t global,
                    double sums[2]) {
  zpk_rows at = {.rows = t->has.height, .cols = t->has.width, .first = global, .count = end - begin};
  zpr_block here = t->own;
  here.begin += begin;
  zpr_block_arrays x = zpr_arrays_of(w->c, &here);
  switch (which) {
  case SUMS:
    zpk_adafactor_sums(&w->rule, &at, x.grad, t->has.rows > 0 ? w->sums + t->sums : NULL,
                       w->sums + t->sums + t->has.rows);
    break;
  case SQUARES: zpk_adafactor_squares(&w->rule, &at, x.param, x.grad, w->rows, w->cols, sums); break;
  case APPLY:
    zpk_adafactor_apply(&w->rule, &at, x.param, x.grad, w->rule.beta1 > 0 ? x.m : NULL, w->rows, w->cols, w->factor);
    if (w->rule.ema > 0) zpk_average(&w->rule, x.param, x.average, 0, at.count);
    if (x.weight)
      zpk_round(w->rule.dtype, (const float *)(const void *)x.param, (uint16_t *)(void *)x.weight, at.count);
    break;
  }
}

typedef struct walked {
  const work *w;
  const zpr_factored *t;
  pass which;
  double *sums;
} walked;

static void on_neighbours(void *arg, int64_t begin, int64_t end, int64_t at) {
  const walked *x = arg;
  work_on(x->w, x->t, x->which, begin, end, at, x->sums);
}

/* Works on what is no padding of elements [begin, end) of the own part. */
static void walk(const work *w, const zpr_factored *t, pass which, int64_t begin, int64_t end, double sums[2]) {
  walked x = {w, t, which, sums};
  zpr_factored_walk(t, begin, end, on_neighbours, &x);
}

ZPR_TASK_EACH(sum_tensors, work, walk(a, &a->t[i], SUMS, 0, a->t[i].own.end - a->t[i].own.begin, NULL))

static int64_t begin_of(int64_t piece) { return piece * PIECE; }

static int64_t end_of(const zpr_factored *t, int64_t piece) {
  int64_t n = t->own.end - t->own.begin;
  return (piece + 1) * PIECE < n ? (piece + 1) * PIECE : n;
}

static void square_pieces(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const work *w = arg;
  for (int64_t i = begin; i < end; i++) {
    double *sums = &w->sums[2 * i];
    sums[0] = sums[1] = 0;
    walk(w, w->t, SQUARES, i * PIECE, end_of(w->t, i), sums);
  }
}

ZPR_TASK_EACH(apply_pieces, work, walk(a, a->t, APPLY, begin_of(i), end_of(a->t, i), NULL))

static int64_t pieces_of(const zpr_factored *t) { return (t->own.end - t->own.begin + PIECE - 1) / PIECE; }

/* ---- statistics ---- */

static double get(const zpr *c, const char *x, int64_t i) {
  return zpk_real_bytes(c->program->dtype) == 8 ? ((const double *)(const void *)x)[i]
                                                : (double)((const float *)(const void *)x)[i];
}

static void put(const zpr *c, char *x, int64_t i, double value) {
  if (zpk_real_bytes(c->program->dtype) == 8)
    ((double *)(void *)x)[i] = value;
  else
    ((float *)(void *)x)[i] = (float)value;
}

void zpr_adafactor_sums(zpr *c, const zpk_update *rule, const zpr_factored *tensors, int n, double *sums) {
  work w = {.c = c, .t = tensors, .rule = *rule, .sums = sums};
  zpr_parallel(c, n, 1, sum_tensors, &w);
}

void zpr_adafactor_add(zpr *c, double *to, const double *from, int64_t count, int n) {
  (void)c;
  for (int64_t i = 0; i < count; i++) {
    double sum = 0;
    for (int r = 0; r < n; r++) sum += from[r * count + i];
    to[i] = sum;
  }
}

void zpr_adafactor_means(zpr *c, const zpk_update *rule, const zpr_factored *t, const double *sums) {
  char *state = (char *)zpr_at(c, c->stage->statistics) + t->state * zpk_real_bytes(c->program->dtype);
  for (int64_t i = 0; i < t->has.rows + t->has.cols; i++) {
    double mean = sums[i] / (double)(i < t->has.rows ? t->has.width : t->has.height);
    put(c, state, i, rule->beta2 * get(c, state, i) + (1 - rule->beta2) * (mean + rule->eps));
  }
}

void zpr_adafactor_factors(zpr *c, const zpr_factored *t, void *to) {
  const char *state = (char *)zpr_at(c, c->stage->statistics) + t->state * zpk_real_bytes(c->program->dtype);
  for (int64_t first = 0; first < t->has.rows; first += t->has.height) {
    double mean = 0;
    for (int64_t i = 0; i < t->has.height; i++) mean += get(c, state, first + i);
    mean /= (double)t->has.height;
    for (int64_t i = 0; i < t->has.height; i++) put(c, to, first + i, 1 / sqrt(get(c, state, first + i) / mean));
  }
  for (int64_t i = t->has.rows; i < t->has.rows + t->has.cols; i++) put(c, to, i, 1 / sqrt(get(c, state, i)));
}

/* ---- passes by the factors ---- */

static work with_factors(zpr *c, const zpk_update *rule, const zpr_factored *t, const char *factors) {
  return (work){.c = c,
                .t = t,
                .rule = *rule,
                .rows = t->has.rows > 0 ? factors : NULL,
                .cols = factors + t->has.rows * zpk_real_bytes(c->program->dtype)};
}

void zpr_adafactor_squares(zpr *c, const zpk_update *rule, const zpr_factored *t, const void *factors,
                           const zpr_adafactor_room *room, double squares[2]) {
  work w = with_factors(c, rule, t, factors);
  w.sums = room->pieces;
  zpr_parallel(c, pieces_of(t), 1, square_pieces, &w);
  squares[0] = squares[1] = 0;
  for (int64_t i = 0; i < 2 * pieces_of(t); i++) squares[i % 2] += room->pieces[i];
}

void zpr_adafactor_apply(zpr *c, const zpk_update *rule, const zpr_factored *t, const void *factors, double factor) {
  work w = with_factors(c, rule, t, factors);
  w.factor = factor;
  zpr_parallel(c, pieces_of(t), 1, apply_pieces, &w);
}
