/* SPDX-License-Identifier: Apache-2.0 */
/* Muon (arXiv 2502.16982): which matrices of a stage it updates, and the steps of one (formulas:
 * kernels/optimizer/muon.c).
 *
 * Momentum and parameters are changed element by element, by whoever owns them; in between the update stands in the
 * place of the second moment, which a matrix does not have. Newton-Schulz wants whole matrices:
 *   of those who hold the same elements every one updates all of them: gradients are summed, so they have the same
 * bits; with ZeRO the n data ranks exchange shards of n instances of a run at a time, so that each has all of one,
 * which it works on, and exchange back. At the end of a run there are fewer: their shards pass through the scratch
 * region, and what stands alongside them travels, too, so that every exchange sends the same; tensor ranks gather the
 * matrices that they share, one by one, and all of them work on these. The scratch region has, each at a multiple of
 * 256 bytes, with ZeRO one instance; then, also where shards pass, for the largest matrix a copy (of a shared one all
 * ranks' parts, padded, and the matrix itself) and two squares of its shorter side. */
#include "muon.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <stddef.h>
#include "home.h"
#include "optimizer.h"

enum { STEPS = 5 };
static const double A = 3.4445, B = -4.7750, C = 2.0315;

/* Those of a run of the stage. */
typedef struct matrices {
  const zpr_run *run;
  int n;
  zpr_matrix *item;
} matrices;

typedef struct muon {
  int n;
  matrices *runs;
  zpr_stretches stretches;
  double *sums; /* of the pieces of one */
} muon;

static zpr_matrix matrix_of(const zpr *c, const zpr_param *param) {
  int64_t rows = param->shape[0], cols = param->shape[1], longer = rows > cols ? rows : cols;
  bool split = param->split_dim >= 0 && c->program->tensor > 1;
  assert(param->rank == 2 && !param->spread);
  if (!split && param->split_dim == 0) rows = param->elements / cols;
  if (!split && param->split_dim == 1) cols = param->elements / rows;
  assert(split || param->elements == rows * cols);
  return (zpr_matrix){.param = param, .rows = rows, .cols = cols, .longer = longer, .split = split};
}

static int64_t pieces_of(const zpr_matrix *m) { return m->rows * m->cols / ZPR_MUON_PIECE + 1; }

/* For the parameters of the stage that Muon updates. */
static muon *open_matrices(zpr *c) {
  muon *m = zpr_alloc(c, 1, sizeof *m);
  int64_t most = 1;
  m->stretches = zpr_find_stretches(c);
  m->runs = zpr_alloc(c, (size_t)c->stage->n_runs + 1, sizeof *m->runs);
  for (int r = 0; r < c->stage->n_runs; r++) {
    matrices *of = &m->runs[m->n];
    *of = (matrices){.run = &c->stage->runs[r]};
    of->item = zpr_alloc(c, (size_t)of->run->n_params + 1, sizeof *of->item);
    for (int k = 0; k < of->run->n_params; k++)
      if (of->run->params[k].orthogonal) of->item[of->n++] = matrix_of(c, &of->run->params[k]);
    for (int k = 0; k < of->n; k++) most = most > pieces_of(&of->item[k]) ? most : pieces_of(&of->item[k]);
    if (of->n > 0)
      m->n++;
    else
      free(of->item);
  }
  m->sums = zpr_alloc(c, (size_t)most, sizeof *m->sums);
  return m;
}

static void *open_muon(zpr *c, const zpr_update_set *set) {
  (void)set;
  return open_matrices(c);
}

static void close_muon(void *own) {
  muon *m = own;
  for (int r = 0; r < m->n; r++) free(m->runs[r].item);
  free(m->runs);
  free(m->stretches.item);
  free(m->sums);
  free(m);
}

/* ---- Newton-Schulz of one matrix ---- */

static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

static int64_t real_bytes(const zpr *c) { return zpk_real_bytes(c->program->dtype); }

/* With ZeRO several data ranks have a part each of an instance. */
static int owners_of(zpr *c, const zpr_run *run) {
  return zpr_shards_state(c->program) ? zpr_part_of(c, run->kind).holders.n : 1;
}

static char *work_of(zpr *c, const zpr_run *run) {
  char *scratch = zpr_at(c, c->stage->scratch);
  return scratch + (owners_of(c, run) > 1 ? aligned(run->stride * real_bytes(c)) : 0);
}

/* Where a matrix is worked on: x, y, of its size, and two squares. */
typedef struct places {
  char *x, *y, *gram, *factor;
} places;

/* here: what this rank has of the matrix. */
static places places_of(zpr *c, const zpr_run *run, const zpr_matrix *m, char *here) {
  int64_t real = real_bytes(c), n = m->rows < m->cols ? m->rows : m->cols;
  int64_t whole = m->rows * m->cols, parts = m->split ? m->param->elements * c->program->tensor : whole;
  places at = {.x = here, .y = work_of(c, run)};
  char *after = at.y + aligned(parts * real);
  if (m->split) {
    at.x = after;
    after += aligned(whole * real);
  }
  at.gram = after;
  at.factor = after + aligned(n * n * real);
  assert(at.factor + n * n * real <= (char *)zpr_at(c, c->stage->scratch) + c->stage->scratch_bytes);
  return at;
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

/* All tensor ranks' parts come to at->y; the whole matrix to at->x. */
static void gather_matrix(zpr *c, const zpr_matrix *m, const places *at, const char *here) {
  zpr_group g = zpr_axis_group(c, ZPR_TENSOR);
  int64_t real = real_bytes(c), bytes = m->param->elements * real;
  zpr_copy(c, at->y + g.me * bytes, here, bytes);
  zpr_group_all_gather(c, &g, ZPR_TENSOR, at->y, bytes / zpk_bytes(c->program->dtype));
  for (int t = 0; t < g.n; t++) {
    zpr_share s = zpr_share_of(c->program, m->param, t);
    if (s.width > 0)
      zpr_muon_place(c, at->x + s.first * real, s.stride, at->y + t * bytes, s.local_stride, s.width, s.blocks);
  }
}

static void orthogonalise(zpr *c, const muon *all, const zpr_run *run, const zpr_matrix *m, char *here) {
  places at = places_of(c, run, m, here);
  zpr_muon_room room = {.sums = all->sums, .free = at.gram, .free_bytes = at.factor - at.gram};
  if (m->split) gather_matrix(c, m, &at, here);
  zpr_muon_unit(c, at.x, at.y, m->rows * m->cols, &room);
  for (int i = 0; i < STEPS; i++) newton_schulz(c, m, &at, i % 2 ? at.x : at.y, i % 2 ? at.y : at.x);
  static_assert(STEPS % 2 == 1, "the result is at x");
  if (!m->split) return;
  zpr_share s = zpr_share_of(c->program, m->param, c->t);
  if (s.width > 0) zpr_muon_place(c, here, s.local_stride, at.x + s.first * real_bytes(c), s.stride, s.width, s.blocks);
}

/* ---- the instances of a run ---- */

static void element_by_element(zpr *c, const muon *all, const matrices *of, const zpk_update *rule, bool apply) {
  for (int64_t i = 0; i < of->run->count; i++)
    for (int k = 0; k < of->n; k++) {
      const zpr_param *param = of->item[k].param;
      int64_t first;
      zpr_block part = zpr_own_block(c, &all->stretches, of->run, i, param, &first);
      const zpk_update own = zpr_rule_with(rule, param->recipe);
      if (part.begin >= part.end) continue;
      if (apply)
        zpr_muon_apply(c, &part, &own, 0.2 * sqrt((double)of->item[k].longer));
      else
        zpr_muon_momentum(c, &part, &own);
    }
}

static void orthogonalise_instance(zpr *c, const muon *all, const matrices *of, char *instance) {
  for (int k = 0; k < of->n; k++)
    orthogonalise(c, all, of->run, &of->item[k], instance + of->item[k].param->offset * real_bytes(c));
}

/* The plan has room to work in for every rank; one that never has an instance uses it, too. */
static void use_work(zpr *c, const matrices *of) {
  for (int k = 0; k < of->n; k++) {
    const zpr_matrix *m = &of->item[k];
    int64_t n = m->rows < m->cols ? m->rows : m->cols;
    zpr_zero(c, places_of(c, of->run, m, NULL).factor, n * n * real_bytes(c));
  }
}

/* Shards stand one after the other, instance by instance. */
static void orthogonalise_shards(zpr *c, const muon *all, const matrices *of) {
  const zpr_run *run = of->run;
  zpr_group owners = zpr_part_of(c, run->kind).holders;
  char *whole = zpr_at(c, c->stage->scratch), *passing = work_of(c, run);
  for (int64_t first = 0; first < run->count; first += owners.n) {
    zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, first);
    int64_t left = run->count - first < owners.n ? run->count - first : owners.n, bytes = home.size * real_bytes(c);
    char *shards = (char *)zpr_at(c, c->stage->moment2) + home.own * real_bytes(c);
    char *sent = left == owners.n ? shards : passing;
    assert(sent == shards ||
           passing + owners.n * bytes <= (char *)zpr_at(c, c->stage->scratch) + c->stage->scratch_bytes);
    if (sent != shards) {
      zpr_copy(c, sent, shards, left * bytes);
      zpr_zero(c, sent + left * bytes, (owners.n - left) * bytes);
    }
    zpr_group_exchange(c, &owners, ZPR_DATA, sent, bytes, bytes, whole);
    if (owners.me < left)
      orthogonalise_instance(c, all, of, whole);
    else if (first == 0)
      use_work(c, of);
    zpr_group_exchange(c, &owners, ZPR_DATA, whole, bytes, bytes, sent);
    if (sent != shards) zpr_copy(c, shards, sent, left * bytes);
  }
}

/* Collective over the data ranks with ZeRO, and over tensor ranks. */
static void update_matrices(zpr *c, const muon *m, const zpk_update *rule) {
  for (int r = 0; r < m->n; r++) {
    const matrices *of = &m->runs[r];
    char *moment2 = zpr_at(c, c->stage->moment2);
    element_by_element(c, m, of, rule, false);
    if (owners_of(c, of->run) > 1)
      orthogonalise_shards(c, m, of);
    else
      for (int64_t i = 0; i < of->run->count; i++)
        orthogonalise_instance(c, m, of,
                               moment2 + zpr_home_of_bucket(c, ZPR_CLASS_GRADS, of->run, i).own * real_bytes(c));
    element_by_element(c, m, of, rule, true);
  }
}

/* AdamW updates what is no matrix. */
static void update(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule, int64_t step) {
  update_matrices(c, own, rule);
  zpr_update_elements(c, NULL, set, rule, step);
}

static void rehearse(zpr *c) {
  muon *m = open_matrices(c);
  for (int r = 0; r < m->n; r++)
    for (int k = 0; k < m->runs[r].n; k++) {
      places at = places_of(c, m->runs[r].run, &m->runs[r].item[k], zpr_at(c, c->stage->moment2));
      newton_schulz(c, &m->runs[r].item[k], &at, at.y, at.x);
      newton_schulz(c, &m->runs[r].item[k], &at, at.x, at.y);
    }
  close_muon(m);
}

const zpr_optimizer_row zpr_muon_row = {.name = "muon",
                                        .rule = ZPK_ADAMW,
                                        .moment = {[ZPK_MOMENT1] = ".exp_avg", [ZPK_MOMENT2] = ".exp_avg_sq"},
                                        .moment_of_matrix = {[ZPK_MOMENT1] = ".momentum_buffer"},
                                        .exchanges = true,
                                        .recorded = {"beta1", "beta2", "eps", "momentum"},
                                        .open = open_muon,
                                        .close = close_muon,
                                        .update = update,
                                        .rehearse = rehearse};
