/* SPDX-License-Identifier: Apache-2.0 */
/* The least limit within which a row can be cut: the shortest possible longest place, the least bound, the fewest
 * bytes. Both a success and a failure of filling jump to a limit that occurs as a need. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/search_numbers.h>
#include <zplan/seconds.h>
#include "fill.h"

bool zp_row_least(const zp_cut_row *row, zp_cut_limits *limits, double step, int64_t *cut) {
  assert(row->places > 0 && row->need && row->scratch && step > 0);
  zp_filling f = {.row = row, .limit = limits->possible, .side = ZP_FILL_FRONT};
  if (!zp_fill(&f, cut)) return false;
  double low = limits->none_below, high = zp_sooner(f.limit, f.longest);
  zp_arena_mark mark = zp_arena_get_mark(row->scratch);
  int64_t *trial = ZP_NEW_ARRAY(row->scratch, int64_t, row->places + 1);
  bool middle = false; /* else the low end is tried: a need that was missed, or where the caller thinks it is */
  while (high - low > step * high) { /* invariant: possible at high, not below low */
    f.limit = middle ? low + (high - low) / 2 : low * (1 + ZP_ROUNDING);
    if (zp_fill(&f, trial)) {
      high = zp_sooner(f.limit, f.longest);
      memcpy(cut, trial, sizeof *cut * (size_t)(row->places + 1));
      middle = true;
    } else {
      low = zp_later(f.limit, f.next);
      middle = !middle || low <= f.limit * (1 + ZP_ROUNDING);
    }
  }
  zp_arena_rewind(row->scratch, mark);
  *limits = (zp_cut_limits){zp_sooner(low, high), high};
  return true;
}
