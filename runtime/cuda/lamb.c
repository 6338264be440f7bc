/* SPDX-License-Identifier: Apache-2.0 */
/* What LAMB does on the GPU (../optimizer/lamb.c): a launch for the moments of all segments and their squares, one for
 * the parameters. The segments of a list without its empty blocks are in both tables, in one order. */
#include <assert.h>
#include <string.h>
#include "cuda.h"
#include "lamb.h"
#include "update.h"

/* Parts of a segment are added in order. */
static const double *add_parts(const double *part, int64_t parts, double sums[2]) {
  sums[0] = sums[1] = 0;
  for (int64_t k = 0; k < parts; k++, part += 2) {
    sums[0] += part[0];
    sums[1] += part[1];
  }
  return part;
}

void zpr_lamb_moments(zpr *c, zpr_block_list *list, const zpk_update *rule, double *sums) {
  const zpr_table *t = zpr_table_of(c, list, ZPR_TABLE_LAMB);
  int64_t bytes = t->blocks * 2 * (int64_t)sizeof(double);
  memset(sums, 0, (size_t)list->n * 2 * sizeof *sums);
  zpr_put_decision(c, rule);
  if (bytes == 0) return;
  assert(bytes <= zpr_window_bytes(c));
  zpd_updates a = zpr_updates_over(c, t, rule);
  a.sums = zpr_sums_in(t);
  ZPR_START(c, lamb_moments, &a, t->blocks);
  const double *part = zpr_window_open(c, a.sums, bytes, true);
  for (int64_t i = 0; i < list->n; i++) {
    const zpr_block *b = &list->block[i];
    if (zpr_block_is_there(b)) part = add_parts(part, zpr_blocks_of_norm(b->end - b->begin), &sums[2 * i]);
  }
  zpr_window_close(c);
}

const double *zpr_put_ratios(zpr *c, zpr_block_list *list, const double *ratio) {
  const zpr_table *t = zpr_table_of(c, list, ZPR_TABLE_LAMB);
  double *there = zpr_sums_in(t), *to = zpr_window_open(c, there, t->n * (int64_t)sizeof *to, false);
  for (int64_t i = 0; i < list->n; i++)
    if (zpr_block_is_there(&list->block[i])) *to++ = ratio[i];
  zpr_window_close(c);
  return there;
}

void zpr_lamb_apply(zpr *c, zpr_block_list *list, const zpk_update *rule, const double *ratio) {
  const zpr_table *t = zpr_table_of(c, list, ZPR_TABLE_UPDATE);
  if (t->blocks == 0) return;
  zpd_updates a = zpr_updates_over(c, t, rule);
  a.ratios = zpr_put_ratios(c, list, ratio);
  ZPR_START(c, optimizer, &a, zpr_grid(c, a.blocks));
}
