/* SPDX-License-Identifier: Apache-2.0 */
/* LAMB (arXiv 1904.00962, algorithm 2): every tensor moves by its own length. Moments are Adam's; the update of a
 * tensor, decay included, is scaled by |x| / |update|, or by 1 where either is 0.
 *
 * A tensor is a parameter of one layer, whoever has parts of it: tensor ranks, shards of ZeRO, experts of data ranks,
 * stages with copies of a tied one. Each element is counted by one rank, as in the norm of the gradients, and all ranks
 * sum all tensors' squares in rank order: they have the same bits, so copies stay equal. */
#include "lamb.h"
#include "one_bit.h"
#include "one_bit_lamb.h"
#include "optimizer.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct lamb {
  int64_t tensors;
  double *squares;   /* [tensors][2]: of the parameters, of the updates */
  double *sums;      /* [blocks][2] */
  double *ratio;     /* [blocks] */
  double *ratios;    /* [tensors] */
  double *offloaded; /* [blocks off the device][2] */
} lamb;

/* ---- numbers of tensors ---- */

int64_t zpr_tensors_of(const zpr_stage *stage) {
  int64_t n = 0;
  for (int r = 0; r < stage->n_runs; r++) n += stage->runs[r].count * stage->runs[r].n_params;
  return n;
}

int64_t zpr_tensor_number_on(const zpr *c, int stage, int r, int64_t i, int k) {
  const zpr_stage *s = &c->program->stages[stage];
  int64_t n = i * s->runs[r].n_params + k;
  for (int p = 0; p < stage; p++) n += zpr_tensors_of(&c->program->stages[p]);
  for (int before = 0; before < r; before++) n += s->runs[before].count * s->runs[before].n_params;
  return n;
}

/* The parameter that begins at an element of a stage's flat buffers. */
static int64_t number_at(const zpr *c, int stage, int64_t element) {
  const zpr_stage *s = &c->program->stages[stage];
  for (int r = 0; r < s->n_runs; r++)
    for (int64_t i = 0; i < s->runs[r].count; i++)
      for (int k = 0; k < s->runs[r].n_params; k++)
        if (s->runs[r].base + i * s->runs[r].stride + s->runs[r].params[k].offset == element)
          return zpr_tensor_number_on(c, stage, r, i, k);
  assert(!"a tie begins where a parameter does");
  return 0;
}

int64_t zpr_tensor_number(const zpr *c, int r, int64_t i, int k) {
  const zpr_run *run = &c->stage->runs[r];
  int64_t begin = run->base + i * run->stride + run->params[k].offset;
  for (int t = 0; t < c->program->n_ties; t++) {
    const zpr_tie *tie = &c->program->ties[t];
    for (int s = 1; s < tie->n_stages; s++)
      if (tie->stages[s] == c->p && tie->offset[s] == begin) return number_at(c, tie->stages[0], tie->offset[0]);
  }
  return zpr_tensor_number_on(c, c->p, r, i, k);
}

/* ---- the update ---- */

static void *open_lamb(zpr *c, const zpr_update_set *set) {
  lamb *l = zpr_alloc(c, 1, sizeof *l);
  for (int p = 0; p < c->program->pipeline; p++) l->tensors += zpr_tensors_of(&c->program->stages[p]);
  l->squares = zpr_alloc(c, (size_t)l->tensors * 2, sizeof *l->squares);
  l->ratios = zpr_alloc(c, (size_t)l->tensors + 1, sizeof *l->ratios);
  l->sums = zpr_alloc(c, (size_t)set->here->n * 2 + 1, sizeof *l->sums);
  l->ratio = zpr_alloc(c, (size_t)set->here->n + 1, sizeof *l->ratio);
  l->offloaded = zpr_alloc(c, (size_t)zpr_host_blocks(set->offloaded) * 2 + 1, sizeof *l->offloaded);
  return l;
}

static void close_lamb(void *own) {
  lamb *l = own;
  free(l->squares);
  free(l->sums);
  free(l->ratio);
  free(l->ratios);
  free(l->offloaded);
  free(l);
}

/* What the device does of it. */
typedef struct on_device {
  lamb *lamb;
  zpr_block_list *list;
  const zpk_update *rule;
} on_device;

static void moments_here(zpr *c, void *arg) {
  on_device *d = arg;
  zpr_lamb_moments(c, d->list, d->rule, d->lamb->sums);
}

static void apply_here(zpr *c, void *arg) {
  on_device *d = arg;
  zpr_lamb_apply(c, d->list, d->rule, d->lamb->ratio);
}

static void find_squares(zpr *c, on_device *d, const zpr_host_update *offloaded) {
  lamb *l = d->lamb;
  memset(l->squares, 0, (size_t)l->tensors * 2 * sizeof *l->squares);
  if (offloaded)
    zpr_host_lamb_moments(c, offloaded, d->rule, l->offloaded, l->squares, moments_here, d);
  else
    moments_here(c, d);
  for (int64_t i = 0; i < d->list->n; i++) {
    if (!d->list->block[i].counted) continue;
    double *of = &l->squares[2 * d->list->block[i].tensor];
    of[0] += l->sums[2 * i];
    of[1] += l->sums[2 * i + 1];
  }
  zpr_world_sums(c, l->squares, 2 * l->tensors);
}

static void update(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule, int64_t step) {
  (void)step;
  lamb *l = own;
  zpr_block_list *list = set->here;
  on_device d = {l, list, rule};
  find_squares(c, &d, set->offloaded);
  for (int64_t i = 0; i < l->tensors; i++) {
    const double *of = &l->squares[2 * i];
    l->ratios[i] = of[0] > 0 && of[1] > 0 ? sqrt(of[0] / of[1]) : 1;
  }
  for (int64_t i = 0; i < list->n; i++) l->ratio[i] = l->ratios[list->block[i].tensor];
  if (zpr_is_one_bit(c->program)) zpr_coefficients_average(c, l->ratios);
  if (set->offloaded)
    zpr_host_lamb_apply(c, set->offloaded, rule, l->ratios, apply_here, &d);
  else
    apply_here(c, &d);
}

static const zpr_one_bit_row *const one_bit[] = {&zpr_one_bit_lamb_shards, &zpr_one_bit_lamb};

const zpr_optimizer_row zpr_lamb_row = {.name = "lamb",
                                        .rule = ZPK_LAMB,
                                        .moment = {[ZPK_MOMENT1] = ".exp_avg", [ZPK_MOMENT2] = ".exp_avg_sq"},
                                        .recorded = {"beta1", "beta2", "eps"},
                                        .one_bit = one_bit,
                                        .open = open_lamb,
                                        .close = close_lamb,
                                        .update = update};
