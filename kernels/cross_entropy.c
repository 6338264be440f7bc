/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of logits whose vocabulary may be split over tensor ranks: each rank reduces its columns to three
 * numbers a row (zpk_ce_stats), the ranks exchange those, and each combines all of them (zpk_ce_loss). Logits are read
 * twice forward (the second time mostly from cache: a row of 50,304 f32 is 200 KB) and once backward. */
#include "clones.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/zpk.h>

enum { LANES = 64 };

/* Columns that are classes, of so many in all; the rest of the last rank's columns are padding. */
static int64_t valid_columns(int64_t V, int64_t first_col, int64_t vocabulary) {
  int64_t valid = vocabulary - first_col;
  return valid < 0 ? 0 : valid > V ? V : valid;
}

#define TEMPLATE "cross_entropy_template.h"
#include "every_dtype.h"

void zpk_ce_stats(zpk_dtype dtype, const void *logits, int64_t V, int64_t first_col, int64_t vocabulary,
                  const int32_t *labels, const int32_t *lengths, void *stat, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && V >= 1 && first_col >= 0 && vocabulary >= 1);
  assert(begin >= 0 && begin <= end);
  ZPK_BY_DTYPE(dtype, ce_stats, logits, V, first_col, vocabulary, labels, lengths, stat, begin, end);
}

double zpk_ce_loss(zpk_dtype dtype, const void *stat, int ranks, int64_t rows, int64_t vocabulary,
                   const int32_t *labels, void *lse, int64_t *right, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && ranks >= 1 && vocabulary >= 1);
  assert(begin >= 0 && begin <= end && end <= rows);
  int64_t not_wanted = 0;
  return ZPK_BY_DTYPE(dtype, ce_loss, stat, ranks, rows, vocabulary, labels, lse, right ? right : &not_wanted, begin,
                      end);
}

void zpk_ce_grad(zpk_dtype dtype, const void *logits, int64_t V, int64_t first_col, int64_t vocabulary,
                 const int32_t *labels, const int32_t *lengths, const void *lse, zpk_targets targets, double scale,
                 void *dlogits, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && V >= 1 && first_col >= 0 && vocabulary >= 1);
  assert(begin >= 0 && begin <= end);
  assert(targets.smoothing >= 0 && targets.smoothing < 1 && targets.z >= 0);
  assert(!lengths || targets.smoothing == 0);
  ZPK_BY_DTYPE(dtype, ce_grad, logits, V, first_col, vocabulary, labels, lengths, lse, targets, scale, dlogits, begin,
               end);
}
