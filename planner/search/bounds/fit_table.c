/* SPDX-License-Identifier: Apache-2.0 */
/* Which numbers of units fit on the stages of one point, remembered: cuts ask for the same ranges again and again. Of
 * several chunks a stage the last answers are kept.
 *
 * What a range inside a segment needs is remembered for all inner stages together, because they differ only in how many
 * micro-batches are in flight. Of two ranges of units, one inside the other, the inner one needs no more bytes on the
 * same stage, so of ranges that follow each other in this order two numbers say all: the longest one that is known to
 * fit and the shortest one that is known not to. Three such orders are kept for every stage and mode: ranges from the
 * first unit of the model on, ranges up to its last one, and ranges inside one segment, which differ in their length
 * alone when they begin with the same part of a layer. */
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "fit.h"
#include "procedures.h"

enum { FROM_FIRST, TO_LAST, INSIDE };
enum { MOST_INNER_UNITS = 128 }; /* of a range whose bytes are remembered */

/* Every lowering has pieces of its own. */
static bool same_units(const zp_pieces *a, const zp_pieces *b) {
  return a->n_units == b->n_units && memcmp(a->parts, b->parts, sizeof *a->parts * (size_t)a->n_whole) == 0;
}

/* Numbers the orders of ranges from every unit on that are neither at the beginning nor at the end of the model. */
static void find_orders(zp_fits_memo *memo, zp_search_cache *s, const zp_pieces *pieces) {
  if (memo->pieces && same_units(memo->pieces, pieces)) return;
  memo->pieces = pieces;
  if (pieces->n_units > memo->order_cap) { /* points with layers whole and in parts take turns */
    memo->order_cap = pieces->n_units;
    memo->order = ZP_NEW_ARRAY(s->kept, zp_range_order, pieces->n_units);
  }
  memo->orders = INSIDE;
  for (int64_t i = 0, unit = 0; i < pieces->n_whole; i++) {
    int parts = pieces->parts[i];
    int64_t units = parts * pieces->piece[i].segment.count, end = unit + units;
    for (int64_t k = 0; k < units; k++) memo->order[unit++] = (zp_range_order){memo->orders + (int)(k % parts), end};
    memo->orders += parts;
  }
}

/* What is outgrown is not given back, so it at least doubles. */
static int64_t grown(int64_t cap, int64_t wanted) { return wanted > 2 * cap ? wanted : 2 * cap; }

static void make_room(zp_search_cache *s, zp_fits_memo *memo, const zp_point *point) {
  int64_t ranges = (int64_t)memo->orders * point->n_modes, known = ranges * point->choice.pipeline;
  if (known > memo->cap) {
    memo->cap = grown(memo->cap, known);
    memo->known = ZP_NEW_ARRAY(s->kept, zp_known_fit, memo->cap);
  }
  for (int64_t i = 0; i < known; i++) memo->known[i] = (zp_known_fit){0, INT64_MAX};
  if (ranges * MOST_INNER_UNITS > memo->inner_cap) {
    memo->inner_cap = grown(memo->inner_cap, ranges * MOST_INNER_UNITS);
    memo->inner = ZP_NEW_ARRAY(s->kept, zp_known_inner, memo->inner_cap);
  }
}

void zp_remember_fits(zp_search_cache *s, zp_point *point, const zp_limits *limits) {
  zp_fits_memo *memo = &s->memo.fits;
  if (zp_chunks(&point->choice) == 1) {
    find_orders(memo, s, zp_variant_of(s, point)->lowered->pieces);
    make_room(s, memo, point);
  } else if (!memo->chunks) {
    memo->chunks = ZP_NEW_ARRAY(s->kept, zp_known_chunks, ZP_CHUNK_FIT_SLOTS);
  }
  memo->limits = *limits;
  point->fits = ++memo->point;
}

static bool is_remembered(const zp_fits_memo *memo, const zp_point *point) {
  return point->fits && point->fits == memo->point;
}

static bool is_remembered_within(const zp_fits_memo *memo, const zp_point *point, const zp_limits *limits) {
  return is_remembered(memo, point) && memcmp(limits, &memo->limits, sizeof *limits) == 0;
}

/* -1: neither at an end of the model nor inside one segment. */
static int order_of(const zp_fits_memo *memo, const zp_units *part) {
  const zp_range_order *at = &memo->order[part->first];
  int64_t end = part->first + part->count;
  if (part->first == 0) return FROM_FIRST;
  return end == memo->pieces->n_units ? TO_LAST : end <= at->segment_end ? at->order : -1;
}

bool zp_is_inside(int order) { return order >= INSIDE; }

int zp_known_order(const zp_search_cache *s, const zp_point *point, const zp_units *part, const zp_limits *limits) {
  return is_remembered_within(&s->memo.fits, point, limits) ? order_of(&s->memo.fits, part) : -1;
}

/* What is known for the first mode; the other modes follow, memo->orders from each to the next. NULL: nothing is
 * remembered. */
static zp_known_fit *find_known(zp_search_cache *s, const zp_point *point, int stage, const zp_units *part,
                                const zp_limits *limits) {
  zp_fits_memo *memo = &s->memo.fits;
  if (zp_chunks(&point->choice) > 1 || !is_remembered_within(memo, point, limits)) return NULL;
  int order = order_of(memo, part);
  return order < 0 ? NULL : &memo->known[(int64_t)stage * point->n_modes * memo->orders + order];
}

/* NULL: not a range inside a segment on an inner stage, or too long a one. */
static zp_known_inner *find_inner(zp_search_cache *s, const zp_point *point, int mode, int stage,
                                  const zp_units *part) {
  zp_fits_memo *memo = &s->memo.fits;
  if (zp_chunks(&point->choice) > 1 || !is_remembered(memo, point)) return NULL;
  if (stage == 0 || stage == point->choice.pipeline - 1) return NULL;
  int order = part->count < MOST_INNER_UNITS ? order_of(memo, part) : -1;
  return order < INSIDE ? NULL : &memo->inner[(mode * memo->orders + order) * MOST_INNER_UNITS + part->count];
}

static zp_memory lay_out(zp_search_cache *s, const zp_point *point, int mode, int stage, const zp_units *part) {
  const zp_lowered *lowered = s->variants.data[point->modes[mode]].lowered;
  const zp_choice *c = &point->choice;
  int chunks = zp_chunks(c);
  zp_known_inner *inner = find_inner(s, point, mode, stage, part);
  if (!inner || inner->point != point->fits) s->memo.fits.laid_out++, s->work++;
  if (!inner)
    return zp_stage_footprint(lowered, c, stage, part,
                              chunks > 1 ? zp_find_flights(s, c)->chunk + stage * chunks : NULL);
  if (inner->point != point->fits) *inner = (zp_known_inner){point->fits, zp_inner_footprint(lowered, c, stage, part)};
  return zp_inner_memory(&inner->stage, s->in->spec, c, stage);
}

static inline __attribute__((always_inline)) bool is_within(zp_search_cache *s, const zp_point *point, int ties,
                                                            int stage, const zp_memory *memory,
                                                            const zp_limits *limits) {
  zp_limits own = zp_limits_of_stage(s, &point->choice, stage, limits);
  if (own.device != INT64_MAX) own.device -= zp_choice_communicator_bytes(s, &point->choice, ties);
  return zp_memory_of_arena(memory) <= own.device && memory->host <= own.host && memory->nvme <= own.nvme;
}

static bool mode_fits(zp_search_cache *s, const zp_point *point, int mode, int stage, const zp_units *part,
                      const zp_limits *limits) {
  zp_memory memory = lay_out(s, point, mode, stage, part);
  return is_within(s, point, s->variants.data[point->modes[mode]].lowered->ties, stage, &memory, limits);
}

static zp_memory lay_out_lowered(zp_search_cache *s, const zp_point *point, const zp_lowered *lowered, int stage,
                                 const zp_units *part) {
  const zp_choice *c = &point->choice;
  int chunks = zp_chunks(c);
  s->memo.fits.laid_out++, s->work++;
  return zp_stage_footprint(lowered, c, stage, part, chunks > 1 ? zp_find_flights(s, c)->chunk + stage * chunks : NULL);
}

bool zp_lowered_fits(zp_search_cache *s, const zp_point *point, const zp_lowered *lowered, int stage,
                     const zp_units *part, const zp_limits *limits) {
  zp_memory memory = lay_out_lowered(s, point, lowered, stage, part);
  return is_within(s, point, lowered->ties, stage, &memory, limits);
}

int64_t zp_lowered_excess(zp_search_cache *s, const zp_point *point, const zp_lowered *lowered, int stage,
                          const zp_units *part, const zp_limits *limits, const zp_inner_stage *known) {
  zp_memory memory = known ? zp_inner_memory(known, s->in->spec, &point->choice, stage)
                           : lay_out_lowered(s, point, lowered, stage, part);
  if (limits->device == INT64_MAX) return 0;
  zp_limits own = zp_limits_of_stage(s, &point->choice, stage, limits);
  return zp_memory_of_arena(&memory) - (own.device - zp_choice_communicator_bytes(s, &point->choice, lowered->ties));
}

/* known: of mode `first`; NULL: nothing is remembered. */
static int find_first_mode(zp_search_cache *s, const zp_point *point, int first, int end, int stage,
                           const zp_units *part, const zp_limits *limits, zp_known_fit *known) {
  for (int mode = first; mode < end; mode++) {
    if (known && part->count <= known->fits) return mode;
    if (!known || part->count < known->fails) {
      bool fits = mode_fits(s, point, mode, stage, part, limits);
      if (known && fits) known->fits = part->count;
      if (known && !fits) known->fails = part->count;
      if (fits) return mode;
    }
    if (known && mode + 1 < end) known += s->memo.fits.orders;
  }
  return -1;
}

/* Most answers are known; what fits is shorter than what does not. */
static int first_mode(zp_search_cache *s, const zp_point *point, int first, int end, int stage, const zp_units *part,
                      const zp_limits *limits) {
  zp_known_fit *known = find_known(s, point, stage, part, limits);
  if (!known || first >= end) return find_first_mode(s, point, first, end, stage, part, limits, NULL);
  int64_t orders = s->memo.fits.orders, count = part->count;
  known += first * orders;
  while (count >= known->fails) {
    if (++first == end) return -1;
    known += orders;
  }
  return count <= known->fits ? first : find_first_mode(s, point, first, end, stage, part, limits, known);
}

/* Where the answer for these chunks is kept. */
static zp_known_chunks *slot_of(const zp_fits_memo *memo, int stage, const zp_units *part, int chunks) {
  int64_t key[1 + ZP_MOST_CHUNKS] = {stage};
  for (int k = 0; k < chunks; k++) key[1 + k] = part[k].first * 1024 + part[k].count;
  return &memo->chunks[zp_hash_numbers(key, 1 + (size_t)chunks) % ZP_CHUNK_FIT_SLOTS];
}

/* Counts the work of a remembered answer as if it were found anew: budgets do not depend on what is remembered. */
static int recall_first_mode(zp_search_cache *s, const zp_point *point, int first, int end, int stage,
                             const zp_units *part, const zp_limits *limits) {
  int chunks = zp_chunks(&point->choice);
  size_t bytes = sizeof *part * (size_t)chunks;
  zp_known_chunks *known = slot_of(&s->memo.fits, stage, part, chunks);
  if (known->point == point->fits && known->stage == stage && known->first == first && known->end == end &&
      memcmp(known->part, part, bytes) == 0) {
    s->work += known->mode < 0 ? end - first : known->mode + 1 - first;
    return known->mode;
  }
  *known = (zp_known_chunks){.point = point->fits, .stage = stage, .first = first, .end = end};
  known->mode = first_mode(s, point, first, end, stage, part, limits);
  memcpy(known->part, part, bytes);
  return known->mode;
}

int zp_first_mode_that_fits(zp_search_cache *s, const zp_point *point, int first, int end, int stage,
                            const zp_units *part, const zp_limits *limits) {
  bool recalls = zp_chunks(&point->choice) > 1 && is_remembered_within(&s->memo.fits, point, limits);
  s->work++;
  return (recalls ? recall_first_mode : first_mode)(s, point, first, end, stage, part, limits);
}
