/* Muon (arXiv 2502.16982): which matrices of a stage it updates, and the steps of one (formulas: kernels/muon.c). Every
 * replica updates all of its own: gradients are summed, so they have the same bits.
 *
 * The update comes about in the place of the second moment, which a matrix does not have, and in the scratch region: a
 * copy of the matrix, and two squares of its shorter side, each at a multiple of 256 bytes. */
#include "muon.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include "device.h"

enum { STEPS = 5 };
static const double A = 3.4445, B = -4.7750, C = 2.0315;

struct zpr_muon {
  int64_t n;
  zpr_matrix *matrix;
  double *sums; /* of the pieces of one */
};

static int64_t matrices_of(const zpr_run *run) {
  int64_t n = 0;
  for (int k = 0; k < run->n_params; k++) n += run->params[k].orthogonal;
  return n * run->count;
}

static zpr_matrix matrix_of(const zpr_run *run, int64_t i, const zpr_param *param) {
  int64_t rows = param->shape[0], cols = param->shape[1], longer = rows > cols ? rows : cols;
  assert(param->rank == 2);
  if (param->split_dim == 0) rows = param->elements / cols;
  if (param->split_dim == 1) cols = param->elements / rows;
  assert(param->elements == rows * cols);
  return (zpr_matrix){.begin = run->base + i * run->stride + param->offset,
                      .rows = rows,
                      .cols = cols,
                      .longer = longer,
                      .recipe = param->recipe};
}

zpr_muon *zpr_muon_open(zpr *c) {
  assert(!zpr_shards_state(c->program) && c->program->tensor == 1);
  zpr_muon *m = zpr_alloc(c, 1, sizeof *m);
  int64_t n = 0, most = 0;
  for (int r = 0; r < c->stage->n_runs; r++) n += matrices_of(&c->stage->runs[r]);
  m->matrix = zpr_alloc(c, (size_t)n + 1, sizeof *m->matrix);
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    for (int64_t i = 0; i < run->count; i++)
      for (int k = 0; k < run->n_params; k++)
        if (run->params[k].orthogonal) m->matrix[m->n++] = matrix_of(run, i, &run->params[k]);
  }
  for (int64_t i = 0; i < m->n; i++) {
    int64_t pieces = m->matrix[i].rows * m->matrix[i].cols / ZPR_MUON_PIECE + 1;
    most = most > pieces ? most : pieces;
  }
  m->sums = zpr_alloc(c, (size_t)most + 1, sizeof *m->sums);
  return m;
}

void zpr_muon_close(zpr_muon *m) {
  if (!m) return;
  free(m->matrix);
  free(m->sums);
  free(m);
}

/* ---- one matrix ---- */

static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/* Where a matrix is worked on: x, y, of its size, and two squares. */
typedef struct places {
  char *x, *y, *gram, *factor;
} places;

static places places_of(zpr *c, const zpr_matrix *matrix) {
  int64_t real = zpk_real_bytes(c->program->dtype), n = matrix->rows < matrix->cols ? matrix->rows : matrix->cols;
  int64_t copy = aligned(matrix->rows * matrix->cols * real), square = aligned(n * n * real);
  assert(c->stage->scratch_bytes >= copy + square + n * n * real);
  char *scratch = zpr_at(c, c->stage->scratch);
  return (places){.x = (char *)zpr_at(c, c->stage->moment2) + matrix->begin * real,
                  .y = scratch,
                  .gram = scratch + copy,
                  .factor = scratch + copy + square};
}

/* y = a x + (b G + c G G) x, or with x taller than wide y = a x + x (b G + c G G): as one product by a I + G (b I + c
 * G). y holds the second factor of that until it gets the result. */
static void newton_schulz(zpr *c, const zpr_matrix *matrix, const places *at, const void *x, void *y) {
  bool wide = matrix->rows <= matrix->cols;
  int64_t cols = matrix->cols, n = wide ? matrix->rows : cols, m = wide ? cols : matrix->rows;
  zpr_gemm_real(c, !wide, wide, n, n, m, x, cols, x, cols, at->gram, n);
  zpr_muon_mix(c, C, B, at->gram, y, n);
  zpr_gemm_real(c, false, false, n, n, n, at->gram, n, y, n, at->factor, n);
  zpr_muon_mix(c, 1, A, at->factor, at->factor, n);
  if (wide)
    zpr_gemm_real(c, false, false, n, m, n, at->factor, n, x, cols, y, cols);
  else
    zpr_gemm_real(c, false, false, m, n, n, x, cols, at->factor, n, y, cols);
}

static void update_matrix(zpr *c, const zpr_muon *m, const zpr_matrix *matrix, const zpk_update *rule) {
  places at = places_of(c, matrix);
  zpr_muon_room room = {.sums = m->sums, .free = at.gram, .free_bytes = at.factor - at.gram};
  zpr_muon_first(c, matrix, rule, at.y, &room);
  for (int i = 0; i < STEPS; i++) newton_schulz(c, matrix, &at, i % 2 ? at.x : at.y, i % 2 ? at.y : at.x);
  zpr_muon_apply(c, matrix, rule, STEPS % 2 ? at.x : at.y, 0.2 * sqrt((double)matrix->longer));
}

void zpr_muon_update(zpr *c, const zpr_muon *m, const zpk_update *rule) {
  for (int64_t i = 0; i < m->n; i++) {
    const zpk_update own = zpr_rule_with(rule, m->matrix[i].recipe);
    update_matrix(c, m, &m->matrix[i], &own);
  }
}

void zpr_muon_rehearse(zpr *c) {
  zpr_muon *m = zpr_muon_open(c);
  for (int64_t i = 0; i < m->n; i++) {
    places at = places_of(c, &m->matrix[i]);
    newton_schulz(c, &m->matrix[i], &at, at.y, at.x);
    newton_schulz(c, &m->matrix[i], &at, at.x, at.y);
  }
  zpr_muon_close(m);
}
