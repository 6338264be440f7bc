/* Cutting units into several model chunks a stage. A stage's memory then depends on chunks that are far apart in the
 * model. Up to 4,096 ways to cut, every one is in the space, and planner/cuts looks for the best. Where there are
 * more, where state may leave the device, and on several node types cuts are stated: the longest chunk as short as
 * possible, and of these cuts the ones with the longest first or the longest last chunks. */
#include <math.h>
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "cut.h"
#include "fit.h"
#include "procedures.h"

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

/* The shortest that a chunk must become before filling from the front gives another cut; HUGE_VAL: none was full. */
static double next_chunk_s(const double *prefix_s, int64_t units, int chunks, double chunk_s) {
  double next = HUGE_VAL;
  for (int64_t i = 0, at = 0; i < chunks && at < units; i++) {
    int64_t end = at + 1, last = units - (chunks - 1 - i);
    while (end < last && prefix_s[end + 1] - prefix_s[at] <= chunk_s) end++;
    if (end < last) next = fmin(next, prefix_s[end + 1] - prefix_s[at]);
    at = end;
  }
  return next;
}

/* The shortest possible longest chunk, exactly: both a success and a failure jump to a value that occurs. cut: scratch.
 */
static double find_shortest_longest(const zp_variant *v, int64_t units, int chunks, int64_t *cut) {
  double total = v->prefix_s[units], low = fmax(total / chunks, v->longest_s) * (1 - ZP_BOUND_SLACK);
  /* Chunks that are full to within one unit are longer than the mean. */
  if (!fill(v->prefix_s, units, chunks, (total / chunks + v->longest_s) * (1 + ZP_BOUND_SLACK), false, cut))
    fill(v->prefix_s, units, chunks, total, false, cut);
  double high = longest_chunk(v->prefix_s, chunks, cut);
  for (bool middle = false; high - low > ZP_EXACT_STEP * high; middle = !middle) {
    double chunk_s = middle ? low + (high - low) / 2 : low * (1 + ZP_ROUNDING);
    if (fill(v->prefix_s, units, chunks, chunk_s, false, cut))
      high = fmin(chunk_s, longest_chunk(v->prefix_s, chunks, cut));
    else
      low = fmax(chunk_s, next_chunk_s(v->prefix_s, units, chunks, chunk_s));
  }
  return high;
}

/* It depends on the number of chunks alone, and many points have the same. */
static double shortest_longest(zp_search_cache *s, zp_variant *v, int64_t units, int chunks, int64_t *cut) {
  if (!v->longest_chunk_s) v->longest_chunk_s = ZP_NEW_ARRAY(s->kept, double, units + 1);
  double *known = &v->longest_chunk_s[chunks];
  if (*known == 0) *known = find_shortest_longest(v, units, chunks, cut);
  return *known;
}

bool zp_cut_is_possible(zp_search_cache *s, const zp_point *point, double stage_s) {
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

/* ---- every cut ---- */

/* As many as are looked at one by one with one chunk a stage (cut.c), of no more chunks than can be simulated often. */
bool zp_few_chunk_cuts(const zp_search_cache *s, const zp_point *point) {
  int64_t units = zp_point_units(s, point), chunks = zp_model_chunks(&point->choice);
  double ways = 1; /* (units - 1) over (chunks - 1) */
  int64_t fewer = chunks - 1 < units - chunks ? chunks - 1 : units - chunks;
  for (int64_t i = 1; i <= fewer && ways <= ZP_MOST_CUTS; i++) ways *= (double)(units - i) / (double)i;
  return ways <= ZP_MOST_CUTS;
}

bool zp_every_chunk_cut(const zp_search_cache *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  int chunks = zp_model_chunks(c);
  if (zp_chunks(c) == 1 || chunks > ZP_MOST_FREE_CHUNKS || zp_has_types(s)) return false;
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (c->home[i].tier != ZP_TIER_DEVICE) return false;
  int64_t units = zp_point_units(s, point);
  bool light = 3 * zp_microbatches(s->in->spec, c) * chunks <= ZP_MOST_FREE_ACTIONS &&
               units * units * chunks <= ZP_MOST_FREE_RANGES;
  return light || zp_few_chunk_cuts(s, point);
}

typedef struct looking {
  zp_search_cache *s;
  const zp_point *point;
  zp_limits limits;
  int64_t *cut, units;
  int chunks, steps; /* steps: left */
} looking;

/* With what is known of its chunks so far. */
static bool stage_of_place_fits(const looking *x, int place) {
  const zp_choice *c = &x->point->choice;
  zp_units part[ZP_MOST_CHUNKS] = {0};
  int own = zp_chunk_stage(c, place, NULL);
  for (int k = 0; k <= place; k++) {
    int chunk;
    if (zp_chunk_stage(c, k, &chunk) == own) part[chunk] = (zp_units){x->cut[k], x->cut[k + 1] - x->cut[k]};
  }
  return zp_stage_variant(x->s, x->point, own, part, &x->limits) != NULL;
}

/* Cuts with the fewest units in the first chunks first, which keep most micro-batches. */
static zp_any_cut find_from(looking *x, int place) {
  if (place == x->chunks) return ZP_ANY_CUT;
  int64_t most = x->units - (x->chunks - 1 - place);
  for (int64_t end = place == x->chunks - 1 ? most : x->cut[place] + 1; end <= most; end++) {
    if (x->steps-- <= 0) return ZP_CUT_UNKNOWN;
    x->cut[place + 1] = end;
    if (!stage_of_place_fits(x, place)) break; /* more units: more bytes */
    zp_any_cut found = find_from(x, place + 1);
    if (found != ZP_NO_CUT) return found;
  }
  return ZP_NO_CUT;
}

zp_any_cut zp_find_chunk_cut(zp_search_cache *s, const zp_point *point, int64_t *cut) {
  enum { MOST_STEPS = 10000 };
  looking x = {s,         point, zp_search_limits(s), cut, zp_point_units(s, point), zp_model_chunks(&point->choice),
               MOST_STEPS};
  cut[0] = 0;
  return find_from(&x, 0);
}

/* ---- stated cuts ---- */

/* Points of other data degrees, ZeRO stages and rank orders have the same cuts. */
static zp_stated_cut_memo *find_stated_cut(zp_search_cache *s, int variant, int chunks, bool from_back) {
  const int64_t key[3] = {variant, chunks, from_back};
  zp_stated_cut_memo *memo = &s->memo.stated[zp_hash(ZP_HASH_START, key, sizeof key) % ZP_STATED_CUT_SLOTS];
  if (memo->known && memo->variant == variant && memo->chunks == chunks && memo->from_back == from_back) return memo;
  zp_stated_cut_memo fresh = {
      .variant = variant, .chunks = chunks, .from_back = from_back, .room = memo->room, .cut = memo->cut};
  if (fresh.room < chunks + 1) {
    fresh.room = chunks + 1;
    fresh.cut = ZP_NEW_ARRAY(s->kept, int64_t, fresh.room);
  }
  *memo = fresh;
  return memo;
}

bool zp_state_cut(zp_search_cache *s, const zp_point *point, int by, bool from_back, int64_t *cut) {
  zp_variant *v = &s->variants.data[point->modes[by]];
  int chunks = zp_model_chunks(&point->choice);
  zp_stated_cut_memo *memo = find_stated_cut(s, point->modes[by], chunks, from_back);
  if (!memo->known) {
    double longest = shortest_longest(s, v, zp_point_units(s, point), chunks, cut) * (1 + ZP_FILL_SLACK);
    memo->known = true;
    memo->possible = fill(v->prefix_s, zp_point_units(s, point), chunks, longest, from_back, cut);
    if (memo->possible) memcpy(memo->cut, cut, sizeof *cut * (size_t)(chunks + 1));
  } else if (memo->possible) {
    memcpy(cut, memo->cut, sizeof *cut * (size_t)(chunks + 1));
  }
  return memo->possible;
}

static bool is_among(const int64_t *cut, int64_t *const *cuts, int n, int chunks) {
  for (int i = 0; i < n; i++)
    if (memcmp(cuts[i], cut, sizeof *cut * (size_t)(chunks + 1)) == 0) return true;
  return false;
}

zp_stated_cuts zp_state_cuts(zp_arena *arena, zp_search_cache *s, const zp_point *point) {
  zp_stated_cuts all = {.n = 0};
  int chunks = zp_model_chunks(&point->choice);
  int64_t *cut = NULL;
  for (int i = 0; i < 2 * point->n_modes; i++) {
    if (!cut) cut = ZP_NEW_ARRAY(arena, int64_t, chunks + 1);
    if (!zp_state_cut(s, point, i / 2, i % 2, cut) || is_among(cut, all.cut, all.n, chunks)) continue;
    all.cut[all.n++] = cut;
    cut = NULL;
  }
  return all;
}

bool zp_chunks_fit(zp_search_cache *s, const zp_point *point, const zp_limits *limits, const int64_t *cut) {
  zp_units part[ZP_MOST_CHUNKS];
  for (int stage = 0; stage < point->choice.pipeline; stage++) {
    zp_parts_of_stage(&point->choice, stage, cut, part);
    if (!zp_stage_variant(s, point, stage, part, limits)) return false;
  }
  return true;
}
