/* Muon over the threads of a rank (../muon.c, formulas in kernels/muon.c): products are shared out as the model's are,
 * everything else by pieces of a fixed size, so that sums do not depend on the threads. */
#include "muon.h"
#include <assert.h>
#include <math.h>
#include "blas.h"
#include "device.h"

enum { STEPS = 5, PIECE = ZPR_MUON_PIECE };
static const double A = 3.4445, B = -4.7750, C = 2.0315, LEAST_LENGTH = 1e-7;

typedef struct muon_work {
  zpr *c;
  const zpk_update *rule;
  zpk_dtype real;
  int64_t elements;
  const char *grad;
  char *m, *x, *param; /* x: where the update comes about; param: what is updated */
  char *weights;       /* what is computed with, where it is rounded; else NULL */
  char *average;       /* NULL: there is none */
  double *sums;        /* of pieces */
  const char *from;    /* of scaling */
  char *to;
  double factor;
} muon_work;

static muon_work work_of(zpr *c, const zpr_matrix *matrix, const zpk_update *rule) {
  const zpr_stage *s = c->stage;
  bool mixed = zpk_is_narrow(rule->dtype);
  int64_t size = zpk_bytes(rule->dtype), state = matrix->begin * zpk_real_bytes(rule->dtype);
  char *weights = (char *)zpr_at(c, s->params) + matrix->begin * size;
  return (muon_work){.c = c,
                     .rule = rule,
                     .real = mixed ? ZPK_F32 : rule->dtype,
                     .elements = matrix->rows * matrix->cols,
                     .grad = (char *)zpr_at(c, s->grads) + matrix->begin * size,
                     .m = (char *)zpr_at(c, s->moment1) + state,
                     .x = (char *)zpr_at(c, s->moment2) + state,
                     .param = mixed ? (char *)zpr_at(c, s->master) + state : weights,
                     .weights = mixed ? weights : NULL,
                     .average = rule->ema > 0 ? (char *)zpr_at(c, s->average) + state : NULL};
}

static int64_t pieces_of(int64_t elements) { return (elements + PIECE - 1) / PIECE; }

static int64_t end_of(int64_t piece, int64_t elements) {
  return (piece + 1) * PIECE < elements ? (piece + 1) * PIECE : elements;
}

static void momentum(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const muon_work *w = arg;
  for (int64_t i = begin; i < end; i++)
    zpk_muon_momentum(w->rule, w->grad, w->m, w->x, i * PIECE, end_of(i, w->elements), &w->sums[i]);
}

static void scaled(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const muon_work *w = arg;
  for (int64_t i = begin; i < end; i++)
    zpk_muon_scale(w->real, w->factor, w->from, w->to, i * PIECE, end_of(i, w->elements));
}

static void scale(const muon_work *w, double factor, const char *from, char *to, int64_t elements) {
  muon_work own = *w;
  own.factor = factor, own.from = from, own.to = to, own.elements = elements;
  zpr_parallel(w->c, pieces_of(elements), 1, scaled, &own);
}

static void apply(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const muon_work *w = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i * PIECE, last = end_of(i, w->elements);
    zpk_muon_apply(w->rule, w->param, w->from, w->factor, first, last);
    if (w->average) zpk_average(w->rule, w->param, w->average, first, last);
    if (w->weights)
      zpk_round(w->rule->dtype, (const float *)(const void *)w->param + first, (uint16_t *)(void *)w->weights + first,
                last - first);
  }
}

/* |x|, and x in the place of the second moment. */
static double first_update(const muon_work *w) {
  double sum = 0;
  zpr_parallel(w->c, pieces_of(w->elements), 1, momentum, (void *)(uintptr_t)w);
  for (int64_t i = 0; i < pieces_of(w->elements); i++) sum += w->sums[i];
  return sqrt(sum);
}

/* y = a x + (b G + c G G) x, or with x taller than wide y = a x + x (b G + c G G): as one product by a I + G (b I + c
 * G). `square`: room for two matrices of the shorter side; y holds the third until it gets the result. */
static void newton_schulz(const muon_work *w, const zpr_matrix *matrix, const char *x, char *y, char *square) {
  zpr *c = w->c;
  bool wide = matrix->rows <= matrix->cols;
  int64_t rows = matrix->rows, cols = matrix->cols, n = wide ? rows : cols, m = wide ? cols : rows;
  char *u = square + (n * n * zpk_bytes(w->real) + 255) / 256 * 256;
  zpr_gemm_real(c, !wide, wide, n, n, m, x, cols, x, cols, square, n);
  scale(w, C, square, y, n * n);
  zpk_muon_diagonal(w->real, B, y, n);
  zpr_gemm_real(c, false, false, n, n, n, square, n, y, n, u, n);
  zpk_muon_diagonal(w->real, A, u, n);
  if (wide)
    zpr_gemm_real(c, false, false, n, m, n, u, n, x, cols, y, cols);
  else
    zpr_gemm_real(c, false, false, m, n, n, x, cols, u, n, y, cols);
}

void zpr_muon_matrix(zpr *c, const zpr_matrix *matrix, const zpk_update *rule, double *sums) {
  muon_work w = work_of(c, matrix, rule);
  w.sums = sums;
  int64_t real = zpk_real_bytes(rule->dtype), n = matrix->rows < matrix->cols ? matrix->rows : matrix->cols;
  int64_t copy = (w.elements * real + 255) / 256 * 256;
  int64_t square = (n * n * real + 255) / 256 * 256;
  assert(c->stage->scratch_bytes >= copy + square + n * n * real);
  char *scratch = zpr_at(c, c->stage->scratch), *x = w.x, *y = scratch;
  scale(&w, 1 / fmax(first_update(&w), LEAST_LENGTH), x, y, w.elements);
  for (int i = 0; i < STEPS; i++) newton_schulz(&w, matrix, i % 2 ? x : y, i % 2 ? y : x, scratch + copy);
  w.from = STEPS % 2 ? x : y;
  w.factor = 0.2 * sqrt((double)(matrix->rows > matrix->cols ? matrix->rows : matrix->cols));
  zpr_parallel(c, pieces_of(w.elements), 1, apply, &w);
}
