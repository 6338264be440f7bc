/* What the stages of a pipeline have in flight and waiting: asked for by many points, and slow to count where chunks
 * are interleaved, so it is remembered. */
#include <math.h>
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "bound.h"

/* Micro-batches for which a unit keeps its values, at least: those of the chunk with the fewest, or of a chunk's share
 * in the stage's pool. */
static double flight_of(const zp_flight_memo *memo, int stage) {
  return zp_sooner(memo->slots[stage] / memo->chunks, memo->fewest[stage]);
}

static void count_stage(zp_flight_memo *memo, const zp_choice *c, int stage) {
  int64_t m = memo->microbatches, *chunk = &memo->chunk[stage * memo->chunks];
  double fewest = HUGE_VAL, pending = HUGE_VAL, all = 0;
  for (int k = 0; k < memo->chunks; k++) {
    chunk[k] = zp_in_flight_chunk(c, stage, k, m);
    fewest = zp_sooner(fewest, (double)chunk[k]);
    pending = zp_sooner(pending, (double)zp_pending_chunk(c, stage, k, m));
    all += (double)chunk[k];
  }
  memo->fewest[stage] = fewest;
  memo->pending[stage] = pending;
  memo->all[stage] = all;
  memo->slots[stage] = (double)zp_in_flight(c, stage, m);
  memo->flight[stage] = flight_of(memo, stage);
}

static void give_room(zp_search_cache *s, zp_flight_memo *memo, const zp_choice *c) {
  if (memo->stages < c->pipeline) { /* what is outgrown is not given back: it at least doubles */
    memo->stages = c->pipeline > 2 * memo->stages ? c->pipeline : 2 * memo->stages;
    memo->flight = ZP_NEW_ARRAY(s->kept, double, 5 * memo->stages);
    memo->fewest = memo->flight + memo->stages;
    memo->all = memo->fewest + memo->stages;
    memo->slots = memo->all + memo->stages;
    memo->pending = memo->slots + memo->stages;
  }
  if (memo->room >= zp_model_chunks(c)) return;
  memo->room = zp_model_chunks(c) > 2 * memo->room ? zp_model_chunks(c) : 2 * memo->room;
  memo->chunk = ZP_NEW_ARRAY(s->kept, int64_t, memo->room);
}

static void widen(zp_flight_memo *memo, int stage, bool first) {
  double flight = memo->flight[stage], pending = memo->pending[stage];
  memo->least = first ? flight : zp_sooner(memo->least, flight);
  memo->most = first ? flight : zp_later(memo->most, flight);
  memo->least_pending = first ? pending : zp_sooner(memo->least_pending, pending);
  memo->most_pending = first ? pending : zp_later(memo->most_pending, pending);
}

/* With one chunk a stage both numbers rise or fall from the first stage to the last one, so these two have the
 * extremes. So have they where chunks are interleaved: no weight gradients wait, all stages run the forwards of all
 * chunks in one order, and the backwards, too; the first backward comes after so many more forwards on every stage than
 * on the next. */
static void find_extremes(zp_flight_memo *memo, const zp_choice *c) {
  int last = c->pipeline - 1;
  count_stage(memo, c, 0);
  count_stage(memo, c, last);
  widen(memo, 0, true);
  widen(memo, last, false);
  memo->descend = memo->flight[last] <= memo->flight[0];
}

static void count_stages(zp_flight_memo *memo, const zp_choice *c) {
  memo->counted = memo->descend = true; /* all of it is found below */
  for (int stage = 0; stage < c->pipeline; stage++) {
    count_stage(memo, c, stage);
    memo->descend &= stage == 0 || memo->flight[stage] <= memo->flight[stage - 1];
    widen(memo, stage, stage == 0);
  }
}

static bool ends_are_extremes(const zp_choice *c) {
  return zp_chunks(c) == 1 || c->schedule == ZP_SCHEDULE_INTERLEAVED;
}

/* Interleaved tables are slow to count in, and other points ask for the same ones. */
static zp_flight_memo *recall_flights(zp_search_cache *s, const zp_choice *c) {
  int64_t m = zp_microbatches(s->in->spec, c);
  int chunks = zp_chunks(c);
  const int64_t key[4] = {(int64_t)c->schedule, chunks, c->pipeline, m};
  zp_flight_memo *memo = &s->memo.flight[zp_hash(ZP_HASH_START, key, sizeof key) % ZP_FLIGHT_SLOTS];
  if (memo->known && memo->schedule == c->schedule && memo->chunks == chunks && memo->pipeline == c->pipeline &&
      memo->microbatches == m)
    return memo;
  give_room(s, memo, c);
  memo->known = true;
  memo->counted = false;
  memo->schedule = c->schedule, memo->chunks = chunks, memo->pipeline = c->pipeline, memo->microbatches = m;
  if (ends_are_extremes(c)) find_extremes(memo, c);
  return memo;
}

const zp_flight_memo *zp_find_flights(zp_search_cache *s, const zp_choice *c) {
  zp_flight_memo *memo = recall_flights(s, c);
  if (!memo->counted) count_stages(memo, c);
  return memo;
}

const zp_flight_memo *zp_find_flight_extremes(zp_search_cache *s, const zp_choice *c) {
  zp_flight_memo *memo = recall_flights(s, c);
  if (!ends_are_extremes(c) && !memo->counted) count_stages(memo, c);
  return memo;
}
