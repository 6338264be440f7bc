/* Cutting units into stages. For a given longest stage, filling every stage as far as it goes (from the front or from
 * the back) finds cuts if there are any: a part of a feasible range is feasible on the same stage, in time and in
 * bytes, so the furthest reach of every stage is never worse. Bisection over the longest stage gives the exact optimum.
 */
#include <assert.h>
#include "search_internal.h"

typedef struct cutter {
  const zp_lowered *lowered;
  const zp_choice *choice;
  const double *prefix_s;
  double stage_s;
  int64_t limit_bytes;
} cutter;

static bool fits(const cutter *c, int stage, int64_t first, int64_t count) {
  return c->prefix_s[first + count] - c->prefix_s[first] <= c->stage_s &&
         zp_stage_bytes(c->lowered, c->choice, stage, first, count) <= c->limit_bytes;
}

/* The most units, at most `most`, that a stage can take from `first` on; with from_back, up to `first`. 0: none. */
static int64_t reach(const cutter *c, int stage, int64_t first, int64_t most, bool from_back) {
  int64_t low = 0, high = most;
  while (low < high) {
    int64_t n = low + (high - low + 1) / 2;
    if (fits(c, stage, from_back ? first - n : first, n))
      low = n;
    else
      high = n - 1;
  }
  return low;
}

bool zp_cut_within(const zp_searcher *s, const zp_point *point, double stage_s, int64_t limit_bytes, bool from_back,
                   int64_t *cut) {
  const zp_variant *v = &s->variants.data[point->variant];
  cutter c = {v->lowered, &point->choice, v->prefix_s, stage_s, limit_bytes};
  int stages = point->choice.pipeline;
  cut[0] = 0, cut[stages] = s->n_units;
  int64_t done = 0; /* units placed, from the side that is filled first */
  for (int i = 0; i < stages; i++) {
    int stage = from_back ? stages - 1 - i : i;
    int64_t most = s->n_units - done - (stages - 1 - i); /* every later stage needs a unit */
    int64_t n = reach(&c, stage, from_back ? s->n_units - done : done, most, from_back);
    if (n == 0) return false;
    done += n;
    if (from_back)
      cut[stage] = s->n_units - done;
    else
      cut[stage + 1] = done;
  }
  return done == s->n_units;
}

static double longest_stage(const zp_variant *v, const int64_t *cut, int stages) {
  double longest = 0;
  for (int i = 0; i < stages; i++) {
    double seconds = v->prefix_s[cut[i + 1]] - v->prefix_s[cut[i]];
    if (seconds > longest) longest = seconds;
  }
  return longest;
}

double zp_cut_bottleneck(const zp_searcher *s, const zp_point *point) {
  const zp_variant *v = &s->variants.data[point->variant];
  int stages = point->choice.pipeline;
  int64_t *cut = ZP_NEW_ARRAY(s->arena, int64_t, stages + 1);
  double total = v->prefix_s[s->n_units];
  double low = total / stages > v->longest_s ? total / stages : v->longest_s; /* nothing below is possible */
  if (zp_cut_within(s, point, low * (1 + 1e-12), s->limit_bytes, false, cut)) return longest_stage(v, cut, stages);
  bool found = zp_cut_within(s, point, total, s->limit_bytes, false, cut);
  assert(found);
  (void)found;
  double high = longest_stage(v, cut, stages);
  while (high - low > 1e-12 * high) { /* invariant: possible at high, impossible at low */
    double middle = low + (high - low) / 2;
    if (zp_cut_within(s, point, middle, s->limit_bytes, false, cut)) {
      high = longest_stage(v, cut, stages);
      if (high > middle) high = middle; /* rounding of prefix differences */
    } else {
      low = middle;
    }
  }
  return high;
}

int64_t zp_cut_least_memory(const zp_searcher *s, const zp_point *point, int64_t *cut) {
  double total = s->variants.data[point->variant].prefix_s[s->n_units];
  int64_t low = s->limit_bytes, high = low;
  while (!zp_cut_within(s, point, total, high, false, cut)) { /* doubling, then bisection */
    low = high;
    high = high > INT64_MAX / 2 ? INT64_MAX : 2 * (high > 0 ? high : 1);
  }
  while (high - low > 1 && (double)(high - low) > 1e-6 * (double)high) {
    int64_t middle = low + (high - low) / 2;
    if (zp_cut_within(s, point, total, middle, false, cut))
      high = middle;
    else
      low = middle;
  }
  bool found = zp_cut_within(s, point, total, high, false, cut);
  assert(found);
  (void)found;
  return high;
}

/* ---- all cuts of small problems ---- */

enum { MAX_CUTS = 4096 };

typedef struct all_cuts {
  zp_searcher *s;
  const zp_point *point;
  int64_t *cut;
  zp_on_cut *on_cut;
  void *user;
} all_cuts;

static void cut_from(all_cuts *a, int stage) {
  const zp_choice *choice = &a->point->choice;
  const zp_lowered *lowered = a->s->variants.data[a->point->variant].lowered;
  int later = choice->pipeline - 1 - stage;
  if (later < 0) {
    a->on_cut(a->user, a->cut);
    return;
  }
  int64_t first = a->cut[stage], most = a->s->n_units - first - later;
  for (int64_t n = later == 0 ? most : 1; n <= most; n++) {
    if (zp_stage_bytes(lowered, choice, stage, first, n) > a->s->limit_bytes) return; /* more units: more bytes */
    a->cut[stage + 1] = first + n;
    cut_from(a, stage + 1);
  }
}

/* Ways to cut: (units - 1) over (stages - 1). */
static bool few_cuts(int64_t units, int64_t stages) {
  double ways = 1;
  for (int64_t i = 1; i < stages; i++) {
    ways *= (double)(units - i) / (double)i;
    if (ways > 64.0 * MAX_CUTS) return false;
  }
  return ways <= MAX_CUTS;
}

bool zp_cut_all(zp_searcher *s, const zp_point *point, zp_on_cut *on_cut, void *user) {
  if (!few_cuts(s->n_units, point->choice.pipeline)) return false;
  all_cuts a = {s, point, ZP_NEW_ARRAY(s->arena, int64_t, point->choice.pipeline + 1), on_cut, user};
  cut_from(&a, 0);
  return true;
}
