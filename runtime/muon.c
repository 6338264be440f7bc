/* Muon (arXiv 2502.16982): which matrices of a stage it updates, one after the other. Every replica does all of them:
 * gradients are summed, so they have the same bits. */
#include "muon.h"
#include <assert.h>
#include <stdlib.h>
#include "device.h"

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
  assert(param->rank == 2 && param->elements == param->shape[0] * param->shape[1]);
  return (zpr_matrix){.begin = run->base + i * run->stride + param->offset,
                      .rows = param->shape[0],
                      .cols = param->shape[1],
                      .recipe = param->recipe};
}

zpr_muon *zpr_muon_open(zpr *c) {
  assert(!zpr_shards_state(c->program) && c->program->tensor == 1);
  zpr_muon *m = zpr_alloc(c, 1, sizeof *m);
  int64_t n = 0;
  for (int r = 0; r < c->stage->n_runs; r++) n += matrices_of(&c->stage->runs[r]);
  m->matrix = zpr_alloc(c, (size_t)n + 1, sizeof *m->matrix);
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    for (int64_t i = 0; i < run->count; i++)
      for (int k = 0; k < run->n_params; k++)
        if (run->params[k].orthogonal) m->matrix[m->n++] = matrix_of(run, i, &run->params[k]);
  }
  int64_t most = 0;
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

void zpr_muon_update(zpr *c, const zpr_muon *m, const zpk_update *rule) {
  for (int64_t i = 0; i < m->n; i++) {
    const zpk_update own = zpr_rule_with(rule, m->matrix[i].recipe);
    zpr_muon_matrix(c, &m->matrix[i], &own, m->sums);
  }
}
