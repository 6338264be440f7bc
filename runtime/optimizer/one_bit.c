/* SPDX-License-Identifier: Apache-2.0 */
/* The step's end of 1-bit Adam once the variance is frozen (arXiv 2102.02888): every data rank makes a momentum of its
 * own gradients, and what the ranks send of it are signs and scales (kernels/optimizer/one_bit.c).
 *
 * Rank r of n averages part r of the flat buffers, zpr_flat_elements / n of them. Every rank sends the record of part r
 * to r, which sends the record of the mean to all: two passes of 1 bit an element and 4 bytes for every ZPK_SIGNS of
 * them. The gradients are not needed any more once momentum is made of them, so the records lie in their place. */
#include "one_bit.h"
#include "optimizer.h"
#include "state.h"

#include <assert.h>

typedef struct momentum {
  const zpr_block *blocks;
  int64_t n;
  const zpk_update *rule;
} momentum;

static void momentum_here(zpr *c, void *arg) {
  const momentum *a = arg;
  zpr_momentum_blocks(c, a->blocks, a->n, a->rule);
}

static void nothing(zpr *c, void *arg) { (void)c, (void)arg; }

void zpr_one_bit_exchange(zpr *c, const zpr_host_update *offloaded) {
  zpr_group g = zpr_axis_group(c, ZPR_DATA);
  int64_t part = zpr_flat_elements(c->stage) / g.n, record = part / ZPK_SIGNS * ZPK_SIGNS_BYTES;
  char *mine = zpr_at(c, c->stage->grads), *theirs = mine + g.n * record, *mean = theirs + g.n * record;
  assert(part % ZPK_SIGNS == 0 && 3 * g.n * record <= zpr_flat_elements(c->stage) * zpr_gradient_bytes(c));
  for (int r = 0; r < g.n; r++) zpr_pack_part(c, r, mine + r * record);
  if (offloaded) zpr_pack_offloaded(c, mine);
  zpr_group_exchange(c, &g, ZPR_DATA, mine, record, record, theirs);
  zpr_average_part(c, g.me, theirs, mine);
  if (offloaded) zpr_average_offloaded(c, g.me, theirs, mine);
  zpr_group_exchange(c, &g, ZPR_DATA, mine, 0, record, mean);
  for (int r = 0; r < g.n; r++) zpr_unpack_part(c, r, mean + r * record);
  if (offloaded) zpr_unpack_offloaded(c, mean);
}

void zpr_exchange_momentum(zpr *c, const zpr_block *blocks, int64_t n, const zpr_host_update *offloaded,
                           const zpk_update *rule) {
  momentum here = {blocks, n, rule};
  if (offloaded)
    zpr_host_update_run(c, offloaded, ZPR_PASS_MOMENTUM, rule, momentum_here, &here);
  else
    momentum_here(c, &here);
  zpr_one_bit_exchange(c, offloaded);
}

static void update(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule) {
  (void)own;
  zpr_exchange_momentum(c, set->here->block, set->here->n, set->offloaded, rule);
  zpr_frozen_blocks(c, set->here->block, set->here->n, rule);
  if (set->offloaded) zpr_host_update_run(c, set->offloaded, ZPR_PASS_FROZEN, rule, nothing, NULL);
}

static bool applies(const zpr_program *program) { return !zpr_shards_state(program); }

const zpr_one_bit_row zpr_one_bit_adam = {.name = "Adam", .applies = applies, .update = update};
