/* SPDX-License-Identifier: Apache-2.0 */
/* What Muon does alongside products over the threads of a rank (../optimizer/muon.c), by pieces of a fixed size, so
 * that sums do not depend on the threads. */
#include "muon.h"
#include <math.h>
#include <string.h>
#include "device.h"

enum { PIECE = ZPR_MUON_PIECE };
static const double LEAST_LENGTH = 1e-7;

typedef struct muon_work {
  zpr *c;
  const zpk_update *rule;
  zpk_dtype real;
  int64_t elements;
  const char *grad;
  char *m, *x, *param; /* x: where the second moment would be; param: what is updated */
  char *weights;       /* what is computed with, where it is rounded; else NULL */
  char *average;       /* NULL: there is none */
  double *sums;        /* of pieces */
  const char *from;    /* of scaling */
  char *to;
  double factor;
  int64_t width, from_bytes, to_bytes; /* of blocks: bytes of one, and from one to the next */
} muon_work;

static zpk_dtype real_of(const zpr *c) { return zpk_is_narrow(c->program->dtype) ? ZPK_F32 : c->program->dtype; }

static muon_work work_of(zpr *c, const zpr_block *block, const zpk_update *rule) {
  zpr_block_arrays x = zpr_arrays_of(c, block);
  return (muon_work){.c = c,
                     .rule = rule,
                     .real = real_of(c),
                     .elements = block->end - block->begin,
                     .grad = x.grad,
                     .m = x.m,
                     .x = x.v,
                     .param = x.param,
                     .weights = x.weight,
                     .average = rule->ema > 0 ? x.average : NULL};
}

static int64_t pieces_of(int64_t elements) { return (elements + PIECE - 1) / PIECE; }

static int64_t begin_of(int64_t piece) { return piece * PIECE; }

static int64_t end_of(int64_t piece, int64_t elements) {
  return (piece + 1) * PIECE < elements ? (piece + 1) * PIECE : elements;
}

ZPR_TASK_EACH(momentum, muon_work, zpk_muon_momentum(a->rule, a->grad, a->m, a->x, begin_of(i), end_of(i, a->elements)))

void zpr_muon_momentum(zpr *c, const zpr_block *block, const zpk_update *rule) {
  muon_work w = work_of(c, block, rule);
  zpr_parallel(c, pieces_of(w.elements), 1, momentum, &w);
}

ZPR_TASK_EACH(squares, muon_work, a->sums[i] = zpk_muon_squares(a->real, a->from, begin_of(i), end_of(i, a->elements)))

ZPR_TASK_EACH(scale, muon_work, zpk_muon_scale(a->real, a->factor, a->from, a->to, begin_of(i), end_of(i, a->elements)))

void zpr_muon_unit(zpr *c, const void *x, void *y, int64_t elements, const zpr_muon_room *room) {
  muon_work w = {.c = c, .real = real_of(c), .elements = elements, .from = x, .to = y, .sums = room->sums};
  int64_t pieces = pieces_of(elements);
  double sum = 0;
  zpr_parallel(c, pieces, 1, squares, &w);
  for (int64_t i = 0; i < pieces; i++) sum += w.sums[i];
  w.factor = 1 / fmax(sqrt(sum), LEAST_LENGTH);
  zpr_parallel(c, pieces, 1, scale, &w);
}

void zpr_muon_mix(zpr *c, double factor, double diagonal, const void *x, void *y, int64_t n) {
  muon_work w = {.c = c, .real = real_of(c), .elements = n * n, .from = x, .to = y, .factor = factor};
  if (x != y || factor != 1) zpr_parallel(c, pieces_of(w.elements), 1, scale, &w);
  zpk_muon_diagonal(w.real, diagonal, y, n);
}

ZPR_TASK_EACH(place, muon_work, memcpy(a->to + i * a->to_bytes, a->from + i * a->from_bytes, (size_t)a->width))

void zpr_muon_place(zpr *c, void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t width,
                    int64_t blocks) {
  int64_t real = zpk_real_bytes(c->program->dtype);
  muon_work w = {
      .from = from, .to = to, .width = width * real, .from_bytes = from_stride * real, .to_bytes = to_stride * real};
  zpr_parallel(c, blocks, PIECE / width + 1, place, &w);
}

static void apply(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const muon_work *w = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i * PIECE, last = end_of(i, w->elements);
    zpk_muon_apply(w->rule, w->param, w->x, w->factor, first, last);
    if (w->average) zpk_average(w->rule, w->param, w->average, first, last);
    if (w->weights)
      zpk_round(w->rule->dtype, (const float *)(const void *)w->param + first, (uint16_t *)(void *)w->weights + first,
                last - first);
  }
}

void zpr_muon_apply(zpr *c, const zpr_block *block, const zpk_update *rule, double factor) {
  muon_work w = work_of(c, block, rule);
  w.factor = factor;
  zpr_parallel(c, pieces_of(w.elements), 1, apply, &w);
}
