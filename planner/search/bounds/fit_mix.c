/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed stages of the search: a stage that does not fit in a fast mode recomputes in a slower one only as many of its
 * layers, from the first on, as it must. Of all pairs of modes the one with the least work.
 *
 * Bytes of a mixed stage, however long: each region is the sum or the most of what its units need. While the set of
 * procedures that it runs stays the same, one layer more in the slower mode takes w (a - b) + q (c - d) less: w
 * micro-batches in flight of which a unit keeps a and b, q whose weight gradients wait in c and d. So of a run of equal
 * layers the first mix is laid out, and the others follow. The last one of a run, with all of its layers in the slower
 * mode, runs fewer procedures and is laid out, too. */
#include <math.h>
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "fit.h"
#include "procedures.h"

/* Runs of equal layers of a stage; a stage has at most one run of whole layers and two pieces of each segment. */
enum { MOST_RUNS = 12 };
typedef struct layer_run {
  int piece;
  int64_t count;
} layer_run;

typedef struct mixing {
  zp_search_cache *s;
  const zp_point *point;
  int stage;
  const zp_units *part;
  const zp_limits *limits;
  int order; /* zp_known_order of the part */
  layer_run run[MOST_RUNS];
  int n;
  int64_t layers;
} mixing;

static void add_run(void *user, int piece, int64_t iteration, int64_t count) {
  mixing *m = user;
  const zp_pieces *pieces = zp_variant_of(m->s, m->point)->lowered->pieces;
  (void)iteration;
  if (!pieces->piece[piece].segment.is_repeat) return;
  m->layers += count;
  if (m->n < MOST_RUNS) m->run[m->n++] = (layer_run){piece, count};
}

/* Bytes that the stage is over, with so many layers in the slower mode. Inner stages differ in what is in flight. */
static int64_t excess_of(mixing *m, const zp_variant *slow, const zp_variant *fast, int64_t layers) {
  const zp_choice *c = &m->point->choice;
  const zp_variant *own = zp_mixed_variant(m->s, slow, fast, layers);
  bool inner = m->order >= 0 && zp_is_inside(m->order) && m->stage > 0 && m->stage < c->pipeline - 1;
  if (!inner) return zp_lowered_excess(m->s, m->point, own->lowered, m->stage, m->part, m->limits, NULL);
  const int64_t modes = slow->mode * ZP_STAGE_MODES + fast->mode;
  const int64_t key[] = {m->point->fits, modes, layers, m->order, m->part->count};
  zp_mix_memo *memo = &m->s->memo.mixes;
  if (!memo->inner) memo->inner = ZP_NEW_ARRAY(m->s->kept, zp_inner_mix, ZP_INNER_MIX_SLOTS);
  zp_inner_mix *at = &memo->inner[zp_hash_numbers(key, 5) % ZP_INNER_MIX_SLOTS];
  if (memcmp(at->key, key, sizeof key) != 0) {
    memcpy(at->key, key, sizeof key);
    at->stage = zp_inner_footprint(own->lowered, c, m->stage, m->part);
    m->s->memo.fits.laid_out++, m->s->work++;
  }
  return zp_lowered_excess(m->s, m->point, own->lowered, m->stage, m->part, m->limits, &at->stage);
}

static bool fits(mixing *m, const zp_variant *slow, const zp_variant *fast, int64_t layers) {
  return excess_of(m, slow, fast, layers) <= 0;
}

/* Bytes that one layer more in the slower mode saves. */
static int64_t saved_by_layer(const mixing *m, const zp_variant *slow, const zp_variant *fast, int piece) {
  const zp_choice *c = &m->point->choice;
  int64_t n = zp_microbatches(m->s->in->spec, c);
  const zp_segment_program *a = &slow->lowered->segments[piece], *b = &fast->lowered->segments[piece];
  return zp_in_flight_chunk(c, m->stage, 0, n) * (b->saved_bytes - a->saved_bytes) +
         zp_pending_chunk(c, m->stage, 0, n) * (zp_unit_pending_bytes(b, c) - zp_unit_pending_bytes(a, c));
}

/* The fewest layers of a run beyond those before it, at least one and not all of them, with which the stage fits; 0: it
 * does not. */
static int64_t fewest_of_run(mixing *m, const zp_variant *slow, const zp_variant *fast, const layer_run *run,
                             int64_t before) {
  int64_t over = excess_of(m, slow, fast, before + 1);
  if (over <= 0) return before + 1;
  int64_t each = saved_by_layer(m, slow, fast, run->piece);
  int64_t more = each > 0 ? (over - 1) / each + 1 : run->count;
  bool sure = !zp_schedule_splits(m->point->choice.schedule); /* what waits is rounded */
  for (; more <= run->count - 2; more++)
    if (sure || fits(m, slow, fast, before + 1 + more)) return before + 1 + more;
  return 0;
}

/* The fewest layers in the slower mode; all of them: no mix fits. */
static int64_t fewest_layers(mixing *m, const zp_variant *slow, const zp_variant *fast) {
  int64_t before = 0;
  for (int i = 0; i < m->n; i++) {
    int64_t found = m->run[i].count > 1 ? fewest_of_run(m, slow, fast, &m->run[i], before) : 0;
    if (found > 0) return found;
    before += m->run[i].count;
    if (before < m->layers && fits(m, slow, fast, before)) return before;
  }
  return m->layers;
}

static const zp_variant *find_mix(zp_search_cache *s, const zp_point *point, int mode, int stage, const zp_units *part,
                                  const zp_limits *limits, int order) {
  int64_t first = part->first, end = first + part->count;
  mixing m = {.s = s, .point = point, .stage = stage, .part = part, .limits = limits, .order = order};
  const zp_variant *best = &s->variants.data[point->modes[mode]];
  zp_pieces_walk(best->lowered->pieces, first, end, add_run, &m);
  if (m.layers < 2 || m.n == MOST_RUNS) return best;
  double least = zp_stage_work(best, first, end);
  for (int slow = mode; slow < point->n_modes; slow++)
    for (int fast = 0; fast < mode; fast++) {
      const zp_variant *a = &s->variants.data[point->modes[slow]], *b = &s->variants.data[point->modes[fast]];
      if (a->saved_bytes >= b->saved_bytes) continue;
      int64_t layers = fewest_layers(&m, a, b);
      if (layers == m.layers) continue;
      const zp_variant *own = zp_mixed_variant(s, a, b, layers);
      double work = zp_stage_work(own, first, end);
      if (work < least * (1 - ZP_ROUNDING)) least = work, best = own;
    }
  return best;
}

/* ---- remembered ---- */

const zp_variant *zp_fewest_recomputed(zp_search_cache *s, const zp_point *point, int mode, int stage,
                                       const zp_units *part, const zp_limits *limits) {
  zp_mix_memo *memo = &s->memo.mixes;
  int order = zp_known_order(s, point, part, limits);
  if (order < 0) return find_mix(s, point, mode, stage, part, limits, order);
  if (!memo->known) memo->known = ZP_NEW_ARRAY(s->kept, zp_known_mix, ZP_MIX_SLOTS);
  uint64_t place = ((uint64_t)stage * 512 + (uint64_t)order) * 2048 + (uint64_t)part->count;
  zp_known_mix *at = &memo->known[(place * UINT64_C(0x9e3779b97f4a7c15) >> 32) % ZP_MIX_SLOTS];
  if (at->point != point->fits || at->stage != stage || at->order != order || at->units != part->count)
    *at = (zp_known_mix){point->fits, part->count, stage, order, find_mix(s, point, mode, stage, part, limits, order)};
  return at->variant;
}
