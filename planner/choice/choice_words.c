/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of a choice in words. */
#include <zplan/buf.h>
#include <zplan/choice.h>

static const char *mode_name(const zp_choice *c, int stage) { return zp_stage_mode_name(zp_choice_mode(c, stage)); }

const char *zp_stage_mode_words(zp_arena *arena, const zp_choice *c, int stage) {
  int64_t layers = zp_choice_layers(c, stage);
  if (layers == ZP_ALL_LAYERS) return mode_name(c, stage);
  return zp_format(arena, "%s on %lld layer%s, %s on the others", mode_name(c, stage), (long long)layers,
                   layers == 1 ? "" : "s", zp_stage_mode_name(c->mix[stage].rest));
}

/* Where stages are listed: "full in 3 layers then none". */
static const char *name_in_list(zp_arena *arena, const zp_choice *c, int stage) {
  int64_t layers = zp_choice_layers(c, stage);
  if (layers == ZP_ALL_LAYERS) return mode_name(c, stage);
  return zp_format(arena, "%s in %lld layer%s then %s", mode_name(c, stage), (long long)layers, layers == 1 ? "" : "s",
                   zp_stage_mode_name(c->mix[stage].rest));
}

static bool same_modes(const zp_choice *c, int a, int b) {
  if (zp_choice_mode(c, a) != zp_choice_mode(c, b) || zp_choice_layers(c, a) != zp_choice_layers(c, b)) return false;
  return zp_choice_layers(c, a) == ZP_ALL_LAYERS || c->mix[a].rest == c->mix[b].rest;
}

/* "full on stages 0-5, selective on 6-9". */
static void put_mode_ranges(zp_buf *out, const zp_choice *c) {
  for (int first = 0, last; first < c->pipeline; first = last + 1) {
    for (last = first; last + 1 < c->pipeline && same_modes(c, last + 1, first);) last++;
    const char *stages = first > 0 ? "" : last == first ? "stage " : "stages ";
    zp_buf_printf(out, "%s%s on %s%d", first ? ", " : "", name_in_list(out->arena, c, first), stages, first);
    if (last > first) zp_buf_printf(out, "-%d", last);
  }
}

/* "full on 30 stages, selective on 20": where the ranges are too many to read; the modes in the order of the stages. */
static void put_mode_counts(zp_buf *out, const zp_choice *c) {
  for (int first = 0; first < c->pipeline; first++) {
    int count = 0;
    bool seen = false;
    for (int stage = 0; stage < c->pipeline; stage++) {
      bool same = same_modes(c, stage, first);
      count += same;
      seen |= same && stage < first;
    }
    if (!seen)
      zp_buf_printf(out, "%s%s on %d stage%s", first ? ", " : "", name_in_list(out->arena, c, first), count,
                    count > 1 ? "s" : "");
  }
}

const char *zp_choice_recompute_words(zp_arena *arena, const zp_choice *c) {
  enum { MOST_RANGES = 6 };
  zp_buf out = zp_buf_new(arena);
  int ranges = 1;
  for (int stage = 1; stage < c->pipeline; stage++) ranges += !same_modes(c, stage, stage - 1);
  if (ranges == 1 && c->mix) return zp_stage_mode_words(arena, c, 0);
  if (ranges == 1) return c->recompute_shard ? "full, kept inputs split over tensor" : zp_recompute_name(c->recompute);
  if (ranges <= MOST_RANGES)
    put_mode_ranges(&out, c);
  else
    put_mode_counts(&out, c);
  return out.data;
}
