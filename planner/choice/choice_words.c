/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of a choice in words. */
#include <zplan/buf.h>
#include <zplan/choice.h>

/* "full on stages 0-5, selective on 6-9". */
static void put_mode_ranges(zp_buf *out, const zp_choice *c) {
  for (int first = 0, last; first < c->pipeline; first = last + 1) {
    for (last = first; last + 1 < c->pipeline && c->stage_recompute[last + 1] == c->stage_recompute[first];) last++;
    const char *stages = first > 0 ? "" : last == first ? "stage " : "stages ";
    zp_buf_printf(out, "%s%s on %s%d", first ? ", " : "", zp_stage_mode_name(c->stage_recompute[first]), stages, first);
    if (last > first) zp_buf_printf(out, "-%d", last);
  }
}

/* "full on 30 stages, selective on 20": where the ranges are too many to read; the modes in the order of the stages. */
static void put_mode_counts(zp_buf *out, const zp_choice *c) {
  for (int first = 0; first < c->pipeline; first++) {
    int count = 0;
    bool seen = false;
    for (int stage = 0; stage < c->pipeline; stage++) {
      bool same = c->stage_recompute[stage] == c->stage_recompute[first];
      count += same;
      seen |= same && stage < first;
    }
    if (!seen)
      zp_buf_printf(out, "%s%s on %d stage%s", first ? ", " : "", zp_stage_mode_name(c->stage_recompute[first]), count,
                    count > 1 ? "s" : "");
  }
}

const char *zp_choice_recompute_words(zp_arena *arena, const zp_choice *c) {
  enum { MOST_RANGES = 6 };
  if (!c->stage_recompute)
    return c->recompute_shard ? "full, kept inputs split over tensor" : zp_recompute_name(c->recompute);
  zp_buf out = zp_buf_new(arena);
  int ranges = 1;
  for (int stage = 1; stage < c->pipeline; stage++)
    ranges += c->stage_recompute[stage] != c->stage_recompute[stage - 1];
  if (ranges <= MOST_RANGES)
    put_mode_ranges(&out, c);
  else
    put_mode_counts(&out, c);
  return out.data;
}
