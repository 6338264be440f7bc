/* SPDX-License-Identifier: Apache-2.0 */
/* What 1-bit LAMB does on the GPU (../optimizer/one_bit_lamb.c): a launch over all segments each. */
#include "one_bit_lamb.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include "cuda.h"
#include "update.h"

void zpr_lamb_fresh(zpr *c, zpr_block_list *list, const zpk_update *rule, double fresh_bias2, const void *records,
                    double *most) {
  const zpr_table *t = zpr_table_of(c, list, ZPR_TABLE_LAMB);
  int64_t bytes = t->blocks * (int64_t)sizeof(double);
  memset(most, 0, (size_t)list->n * sizeof *most);
  zpr_put_decision(c, rule);
  if (bytes == 0) return;
  assert(bytes <= zpr_window_bytes(c));
  zpd_fresh a = {.updates = zpr_updates_over(c, t, rule),
                 .before = records ? NULL : zpr_at(c, c->stage->momentum_before),
                 .fresh = zpr_at(c, c->stage->fresh),
                 .fresh_bias2 = fresh_bias2,
                 .records = records,
                 .blocks = zpr_shard_elements(c->stage) / ZPK_SIGNS,
                 .n = c->program->data};
  a.updates.sums = zpr_sums_in(t);
  ZPR_START(c, lamb_fresh, &a, t->blocks);
  const double *part = zpr_window_open(c, a.updates.sums, bytes, true);
  for (int64_t i = 0; i < list->n; i++) {
    const zpr_block *b = &list->block[i];
    if (!zpr_block_is_there(b)) continue;
    for (int64_t k = zpr_blocks_of_norm(b->end - b->begin); k > 0; k--) most[i] = fmax(most[i], *part++);
  }
  zpr_window_close(c);
}

void zpr_lamb_frozen(zpr *c, zpr_block_list *list, const zpk_update *rule, const double *ratio) {
  const zpr_table *t = zpr_table_of(c, list, ZPR_TABLE_UPDATE);
  if (t->blocks == 0) return;
  zpd_updates a = zpr_updates_over(c, t, rule);
  a.ratios = zpr_put_ratios(c, list, ratio);
  ZPR_START(c, lamb_frozen, &a, zpr_grid(c, a.blocks));
}
