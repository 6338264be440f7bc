/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of experts from micro-batches to the sign that moves a bias.
 *
 * The gradient of such a bias is 0 until all gradients are summed (zpr_param.zero_first); then the sign goes to where
 * the gradient is, so that the update knows nothing of it. Counts stand outside the arena, 8 bytes for every expert of
 * the stage's gates. Ranks exchange them as control values, which no plan predicts. */
#include "loads.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "offloaded.h"
#include "state.h"

/* A bias: its first flat element, and the first of its counts. Own elements [begin, end) of it this rank updates, the
 * first of which is that of expert `expert`. */
typedef struct load {
  const zpr_param *param;
  int64_t flat, first;
  int64_t begin, end, expert;
} load;

struct zpr_loads {
  int64_t n, counts;
  load *item; /* by `flat` */
  int64_t *there, *host;
};

static int by_flat(const void *a, const void *b) {
  int64_t x = ((const load *)a)->flat, y = ((const load *)b)->flat;
  return (x > y) - (x < y);
}

static load load_of(zpr *c, const zpr_run *run, int64_t i, const zpr_param *param) {
  zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
  int64_t flat = run->base + i * run->stride + param->offset, begin = flat, end = flat + param->elements,
          back = home.own - home.flat;
  if (zpr_shards_state(c->program) && begin < home.flat) begin = home.flat;
  if (zpr_shards_state(c->program) && end > home.flat + home.size) end = home.flat + home.size;
  return (load){.param = param, .flat = flat, .begin = begin + back, .end = end + back, .expert = begin - flat};
}

static int64_t find_biases(zpr *c, load *out) {
  int64_t n = 0;
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    for (int k = 0; k < run->n_params && zpr_is_trained(run->kind); k++) {
      const zpr_param *param = &run->params[k];
      if (param->recipe.sign_rate <= 0) continue;
      assert(param->split_dim < 0 && !param->spread); /* gates see all experts */
      for (int64_t i = 0; i < run->count; i++, n++)
        if (out) out[n] = load_of(c, run, i, param);
    }
  }
  return n;
}

void zpr_loads_open(zpr *c) {
  int64_t n = find_biases(c, NULL);
  if (n == 0) return;
  zpr_loads *l = c->state->loads = zpr_alloc(c, 1, sizeof *l);
  l->n = n;
  l->item = zpr_alloc(c, (size_t)n, sizeof *l->item);
  find_biases(c, l->item);
  qsort(l->item, (size_t)n, sizeof *l->item, by_flat);
  for (int64_t i = 0; i < n; i++) {
    l->item[i].first = l->counts;
    l->counts += l->item[i].param->elements;
  }
  l->host = zpr_alloc(c, (size_t)l->counts, sizeof *l->host);
  l->there = zpr_load_counts_open(c, l->counts);
  zpr_loads_zero(c);
}

void zpr_loads_close(zpr *c) {
  zpr_loads *l = c->state->loads;
  if (!l) return;
  zpr_load_counts_close(c, l->there);
  free(l->host);
  free(l->item);
  free(l);
  c->state->loads = NULL;
}

void zpr_loads_zero(zpr *c) {
  const zpr_loads *l = c->state->loads;
  if (l) zpr_zero(c, l->there, l->counts * (int64_t)sizeof *l->there);
}

int64_t *zpr_load_of(zpr *c, int64_t bias) {
  const zpr_loads *l = c->state->loads;
  load key = {.flat = bias};
  const load *found = bsearch(&key, l->item, (size_t)l->n, sizeof key, by_flat);
  assert(found);
  return l->there + found->first;
}

void zpr_put_load_signs(zpk_dtype type, const int64_t *count, int64_t experts, int64_t first, int64_t n, void *grad) {
  int64_t all = 0;
  for (int64_t e = 0; e < experts; e++) all += count[e];
  for (int64_t i = 0; i < n; i++) {
    int64_t above = experts * count[first + i] - all;
    int sign = (above > 0) - (above < 0);
    if (type == ZPK_F64)
      ((double *)grad)[i] = sign;
    else
      ((float *)grad)[i] = (float)sign;
  }
}

/* ---- sums ---- */

/* Between the host and where kernels count. */
static void move_counts(zpr *c, const zpr_loads *l, bool to_host) {
  int64_t most = zpr_window_bytes(c) / (int64_t)sizeof *l->there;
  for (int64_t at = 0, some; at < l->counts; at += some) {
    some = l->counts - at < most ? l->counts - at : most;
    size_t bytes = (size_t)some * sizeof *l->there;
    void *window = zpr_window_open(c, l->there + at, (int64_t)bytes, to_host);
    if (to_host)
      memcpy(l->host + at, window, bytes);
    else
      memcpy(window, l->host + at, bytes);
    zpr_window_close(c);
  }
}

static load *find_tied(const zpr_loads *l, const zpr_tie *tie, int stage) {
  load key = {.flat = tie->offset[stage]};
  return bsearch(&key, l->item, (size_t)l->n, sizeof key, by_flat);
}

static void sum_counts(zpr *c, const zpr_loads *l) {
  zpr_group tensor = zpr_axis_group(c, ZPR_TENSOR), data = zpr_axis_group(c, ZPR_DATA);
  for (int64_t i = 0; i < l->n; i++)
    if (l->item[i].param->grad_partial)
      zpr_sum_counts(c, &tensor, l->host + l->item[i].first, l->item[i].param->elements);
  zpr_sum_counts(c, &data, l->host, l->counts);
  for (int t = 0; t < c->program->n_ties; t++) {
    zpr_group stages = zpr_tie_group(c, t);
    const load *tied = stages.n > 1 ? find_tied(l, &c->program->ties[t], stages.me) : NULL;
    if (tied) zpr_sum_counts(c, &stages, l->host + tied->first, tied->param->elements);
  }
}

/* ---- gradients ---- */

static void put_signs(zpr *c, const zpr_loads *l, const load *b, const zpr_stretches *stretches) {
  int64_t here = zpr_own_here(c, ZPR_CLASS_GRADS), size = zpr_gradient_bytes(c);
  int64_t experts = b->param->elements, cut = b->end < here ? b->end : b->begin > here ? b->begin : here;
  if (b->begin >= b->end) return;
  const zpr_stretch *s = zpr_stretch_of(stretches, b->begin);
  if (b->begin < cut)
    zpr_load_signs(c, l->there + b->first, experts, b->expert, cut - b->begin,
                   (char *)zpr_at(c, c->stage->grads) + (b->begin + s->here[ZPR_CLASS_GRADS]) * size);
  if (cut == b->end || c->stage->grads_offloaded.on_disk) return;
  zpr_view view = zpr_offloaded_room(c, ZPR_CLASS_GRADS, cut + s->offloaded[ZPR_CLASS_GRADS], b->end - cut);
  zpr_put_load_signs(zpr_gradient_type(c), l->host + b->first, experts, b->expert + cut - b->begin, b->end - cut,
                     view.at);
}

void zpr_loads_read(zpr *c, int64_t begin, int64_t end, void *grads) {
  const zpr_loads *l = c->state->loads;
  int64_t i = 0;
  while (begin < l->item[i].begin || begin >= l->item[i].end) i++;
  assert(end <= l->item[i].end);
  zpr_put_load_signs(zpr_gradient_type(c), l->host + l->item[i].first, l->item[i].param->elements,
                     l->item[i].expert + begin - l->item[i].begin, end - begin, grads);
}

/* One rank whose gradients are on the device leaves the counts there, so that its host need not wait. */
void zpr_loads_finish(zpr *c, const zpr_stretches *stretches) {
  const zpr_loads *l = c->state->loads;
  if (!l) return;
  if (c->ranks > 1 || c->stage->grads_offloaded.elements > 0) {
    move_counts(c, l, true);
    sum_counts(c, l);
    move_counts(c, l, false);
  }
  for (int64_t i = 0; i < l->n; i++) put_signs(c, l, &l->item[i], stretches);
}
