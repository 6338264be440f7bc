/* Cutting units into several model chunks a stage. A stage's memory then depends on chunks that are far apart in the
 * model, so cuts are not searched for but stated: the longest chunk as short as possible, and of these cuts the ones
 * with the longest first or the longest last chunks. */
#include <math.h>
#include "schedule.h"
#include "search_internal.h"

/* Fills chunks as far as they stay within chunk_s. */
static bool fill(const double *prefix_s, int64_t units, int chunks, double chunk_s, bool from_back, int64_t *cut) {
  int64_t at = from_back ? units : 0;
  cut[0] = 0, cut[chunks] = units;
  for (int i = 0; i < chunks; i++) {
    int64_t later = chunks - 1 - i, end = at;
    if (from_back) {
      while (end > later && prefix_s[at] - prefix_s[end - 1] <= chunk_s) end--;
      cut[chunks - 1 - i] = end;
    } else {
      while (end < units - later && prefix_s[end + 1] - prefix_s[at] <= chunk_s) end++;
      cut[i + 1] = end;
    }
    if (end == at) return false;
    at = end;
  }
  return at == (from_back ? 0 : units);
}

static double longest_chunk(const double *prefix_s, int chunks, const int64_t *cut) {
  double longest = 0;
  for (int i = 0; i < chunks; i++) longest = fmax(longest, prefix_s[cut[i + 1]] - prefix_s[cut[i]]);
  return longest;
}

/* The shortest possible longest chunk, exactly: every success jumps to a value that occurs. cut: scratch. */
static double find_shortest_longest(const zp_variant *v, int64_t units, int chunks, int64_t *cut) {
  double total = v->prefix_s[units], low = fmax(total / chunks, v->longest_s) * (1 - 1e-9);
  fill(v->prefix_s, units, chunks, total, false, cut);
  double high = longest_chunk(v->prefix_s, chunks, cut);
  while (high - low > 1e-9 * high) {
    double middle = low + (high - low) / 2;
    if (fill(v->prefix_s, units, chunks, middle, false, cut))
      high = fmin(middle, longest_chunk(v->prefix_s, chunks, cut));
    else
      low = middle;
  }
  return high;
}

/* It depends on the number of chunks alone, and many points have the same. */
static double shortest_longest(const zp_variant *v, int64_t units, int chunks, int64_t *cut) {
  double *known = &v->longest_chunk_s[chunks];
  if (*known == 0) *known = find_shortest_longest(v, units, chunks, cut);
  return *known;
}

bool zp_cut_is_possible(const zp_searcher *s, const zp_point *point, double stage_s) {
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  int64_t *cut = ZP_NEW_ARRAY(s->arena, int64_t, point->choice.pipeline + 1);
  const double *prefix_s = s->variants.data[point->modes[0]].prefix_s;
  bool possible = fill(prefix_s, zp_point_units(s, point), point->choice.pipeline, stage_s, false, cut);
  zp_arena_rewind(s->arena, mark);
  return possible;
}

void zp_parts_of_stage(const zp_choice *c, int stage, const int64_t *cut, zp_units *part) {
  for (int turn = 0; turn < zp_chunks(c); turn++) {
    int chunk;
    int64_t k = (int64_t)turn * c->pipeline + stage;
    if (zp_chunk_stage(c, k, &chunk) != stage) k = (int64_t)(turn + 1) * c->pipeline - 1 - stage; /* folded back */
    part[turn] = (zp_units){cut[k], cut[k + 1] - cut[k]};
  }
}

static bool all_stages_fit(const zp_searcher *s, const zp_point *point, const zp_limits *limits, const int64_t *cut) {
  zp_units part[ZP_MOST_CHUNKS];
  for (int stage = 0; stage < point->choice.pipeline; stage++) {
    zp_parts_of_stage(&point->choice, stage, cut, part);
    if (!zp_stage_variant(s, point, stage, part, limits)) return false;
  }
  return true;
}

bool zp_cut_chunks(const zp_searcher *s, const zp_point *point, const zp_limits *limits, int by, bool from_back,
                   int64_t *cut) {
  const zp_variant *v = &s->variants.data[point->modes[by]];
  int chunks = zp_model_chunks(&point->choice);
  double longest = shortest_longest(v, zp_point_units(s, point), chunks, cut) * (1 + 2e-9);
  return fill(v->prefix_s, zp_point_units(s, point), chunks, longest, from_back, cut) &&
         all_stages_fit(s, point, limits, cut);
}
