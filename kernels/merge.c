/* SPDX-License-Identifier: Apache-2.0 */
/* What the same queries have seen of two sets of keys, made one result; and sums of rows with leading dimensions. */
#include <assert.h>
#include <zplan/zpk.h>

#define TEMPLATE "merge_template.h"
#include "every_dtype.h"

void zpk_merge_parts(zpk_dtype dtype, const zpk_merge *m, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && m->heads >= 1 && m->hd >= 1 && (m->lse != NULL) == (m->from_lse != NULL));
  assert(!m->set || !m->lse);
  assert(begin >= 0 && begin <= end && end <= m->rows);
  ZPK_BY_DTYPE(dtype, merge_parts, m, begin, end);
}
