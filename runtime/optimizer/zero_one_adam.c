/* SPDX-License-Identifier: Apache-2.0 */
/* 0/1 Adam (arXiv 2202.06009): ranks exchange signs and scales from the first step on, later not in every step, and sum
 * gradients in few steps, the farther apart the later, from which the variance follows. The plan has both as tables.
 *
 * Between two exchanges a rank moves by its own momentum: weights are a - S / denominator, where a are those of the
 * last exchange, which all ranks have, and S sums momentum times rate. An exchange is 1-bit Adam's, of the mean of the
 * momenta with these weights, which becomes the momentum of all; a moves by it and by the sum of the rates. Decay is
 * that of a, alike on all ranks. Errors are of momentum, as 1-bit Adam's, so that they mean the same when the rate
 * changes.
 *
 * A step that is followed by a checkpoint, or is the last one, exchanges whatever the intervals say: a checkpoint has
 * weights that all ranks have, and nothing is added up. Where the variance is updated it is before the weights are, by
 * the gradients of the same step, as in Adam; the first step does. */
#include "zero_one_adam.h"
#include <assert.h>
#include "one_bit.h"
#include "optimizer.h"
#include "state.h"

static int64_t applied_before(const zpr *c) { return c->step - c->skipped_steps; }

/* Updates of the variance up to this step, this one included. */
static int64_t variance_updates(const zpr *c) {
  int64_t n = 0, t = applied_before(c);
  while (n < c->program->n_variance && c->program->variance_at[n] <= t) n++;
  return n;
}

static bool is_summed(const zpr *c) {
  int64_t n = variance_updates(c);
  return n > 0 && c->program->variance_at[n - 1] == applied_before(c);
}

/* The last step of an interval, or of a phase. */
static bool is_exchanged(const zpr *c) {
  const zpr_program *p = c->program;
  int64_t t = applied_before(c);
  int k = p->n_phases - 1;
  while (k > 0 && p->phases[k].begin > t) k--;
  return (t - p->phases[k].begin + 1) % p->phases[k].every == 0 ||
         (k + 1 < p->n_phases && p->phases[k + 1].begin == t + 1);
}

/* The weights of the last exchange are the master copy, or a copy of the parameters. */
static void copy_anchor(zpr *c, bool back) {
  const zpr_stage *s = c->stage;
  if (zpk_is_narrow(c->program->dtype)) return;
  void *anchor = zpr_at(c, s->anchor), *params = zpr_at(c, s->params);
  zpr_copy(c, back ? params : anchor, back ? anchor : params, zpr_flat_elements(s) * zpk_bytes(c->program->dtype));
}

static void sum_gradients(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  zpr_group g = zpr_axis_group(c, ZPR_DATA);
  zpk_update all = *rule;
  zpr_group_all_reduce(c, &g, ZPR_DATA, zpr_gradient_type(c), zpr_at(c, c->stage->grads), zpr_flat_elements(c->stage));
  all.grad_scale /= g.n; /* the sum's, not a replica's */
  zpr_variance_blocks(c, blocks, n, &all);
}

static void exchange(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  zpr_local *local = &c->state->local;
  zpk_update all = *rule;
  zpr_local_mean(c, blocks, n, local->total);
  copy_anchor(c, true);
  zpr_one_bit_exchange(c, NULL);
  all.kind = ZPK_ADAM; /* decay has been */
  all.lr = local->total;
  all.bias1 = 1;
  zpr_frozen_blocks(c, blocks, n, &all);
  copy_anchor(c, false);
  local->total = 0;
  local->synced = true;
}

/* rule->lr is not yet corrected. */
static void update(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule) {
  (void)own;
  const zpr_block *blocks = set->here->block;
  int64_t n = set->here->n;
  zpr_local *local = &c->state->local;
  double weight = rule->lr / rule->bias1;
  if (!local->anchored) copy_anchor(c, false);
  local->anchored = true;
  local->synced = false;
  local->summed = is_summed(c);
  zpr_momentum_blocks(c, blocks, n, rule);
  if (local->summed) sum_gradients(c, blocks, n, rule);
  zpr_local_add(c, blocks, n, rule, weight);
  local->total += weight;
  if (is_exchanged(c) || local->meets)
    exchange(c, blocks, n, rule);
  else
    zpr_local_weights(c, blocks, n, rule, local->total);
}

/* Exchanges what is left where zpr_local.meets. */
static void skip(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule) {
  (void)own;
  zpr_local *local = &c->state->local;
  local->synced = local->summed = false;
  if (local->meets && local->total > 0) exchange(c, set->here->block, set->here->n, rule);
}

const zpr_one_bit_row zpr_zero_one_adam = {.name = "Adam",
                                           .applies = zpr_is_zero_one_adam,
                                           .variance_updates = variance_updates,
                                           .update = update,
                                           .skip = skip};
