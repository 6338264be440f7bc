/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages of a pipeline have in flight and waiting: asked for by many points, and slow to count where chunks
 * are interleaved, so it is remembered. */
#include <math.h>
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "bound.h"

/* chunk: [chunks], filled in. Micro-batches for which a unit keeps its values are, at least, those of the
 * chunk with the fewest, or of a chunk's share in the stage's pool. */
static zp_stage_flight count_stage(const zp_choice *c, int64_t m, int stage, int64_t *chunk) {
  zp_stage_flight f = {.fewest = HUGE_VAL, .pending = HUGE_VAL, .slots = (double)zp_in_flight(c, stage, m)};
  int chunks = zp_chunks(c);
  zp_in_flight_chunks(c, stage, m, chunk);
  for (int k = 0; k < chunks; k++) {
    f.fewest = zp_sooner(f.fewest, (double)chunk[k]);
    f.pending = zp_sooner(f.pending, (double)zp_pending_chunk(c, stage, k, m));
    f.all += (double)chunk[k];
  }
  f.flight = zp_sooner(f.slots / chunks, f.fewest);
  return f;
}

static void widen(zp_flight_memo *memo, const zp_stage_flight *f, bool first) {
  memo->least = first ? f->flight : zp_sooner(memo->least, f->flight);
  memo->most = first ? f->flight : zp_later(memo->most, f->flight);
  memo->least_pending = first ? f->pending : zp_sooner(memo->least_pending, f->pending);
  memo->most_pending = first ? f->pending : zp_later(memo->most_pending, f->pending);
}

/* With one chunk a stage both numbers rise or fall from the first stage to the last one, so these two have the
 * extremes. So have they where chunks are interleaved: no weight gradients wait, all stages run the forwards of all
 * chunks in one order, and the backwards, too; the first backward comes after so many more forwards on every stage than
 * on the next. ZB-V, DualPipeV: both rise with the stage for the chunk with the fewest, and the other numbers are the
 * same on all stages, or rise with the stage, too. */
static void find_extremes(zp_flight_memo *memo, const zp_choice *c) {
  int64_t chunk[ZP_MOST_CHUNKS];
  zp_stage_flight first = count_stage(c, memo->microbatches, 0, chunk),
                  last = count_stage(c, memo->microbatches, c->pipeline - 1, chunk);
  widen(memo, &first, true);
  widen(memo, &last, false);
}

/* Room for what is counted of all stages; only then, because most pipelines are asked for their extremes alone. */
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

static void count_stages(zp_search_cache *s, zp_flight_memo *memo, const zp_choice *c) {
  give_room(s, memo, c);
  memo->counted = memo->descend = true; /* all of it is found below */
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_stage_flight f = count_stage(c, memo->microbatches, stage, &memo->chunk[stage * memo->chunks]);
    memo->flight[stage] = f.flight;
    memo->pending[stage] = f.pending;
    memo->fewest[stage] = f.fewest;
    memo->all[stage] = f.all;
    memo->slots[stage] = f.slots;
    memo->descend &= stage == 0 || f.flight <= memo->flight[stage - 1];
    widen(memo, &f, stage == 0);
  }
}

/* Interleaved tables are slow to count in, and other points ask for the same ones. */
static zp_flight_memo *recall_flights(zp_search_cache *s, const zp_choice *c) {
  int64_t m = zp_microbatches(s->in->spec, c);
  int chunks = zp_chunks(c);
  const int64_t key[4] = {(int64_t)c->schedule, chunks, c->pipeline, m};
  zp_flight_memo *memo = &s->memo.flight[zp_hash_numbers(key, sizeof key / sizeof *key) % ZP_FLIGHT_SLOTS];
  if (memo->known && memo->schedule == c->schedule && memo->chunks == chunks && memo->pipeline == c->pipeline &&
      memo->microbatches == m)
    return memo;
  memo->known = true;
  memo->counted = false;
  memo->schedule = c->schedule, memo->chunks = chunks, memo->pipeline = c->pipeline, memo->microbatches = m;
  find_extremes(memo, c);
  return memo;
}

const zp_flight_memo *zp_find_flights(zp_search_cache *s, const zp_choice *c) {
  zp_flight_memo *memo = recall_flights(s, c);
  if (!memo->counted) count_stages(s, memo, c);
  return memo;
}

const zp_flight_memo *zp_find_flight_extremes(zp_search_cache *s, const zp_choice *c) { return recall_flights(s, c); }

/* Where the stages of a pipeline are not all counted: few of them are wanted, but these again and again. */
static zp_stage_flight recall_stage(zp_search_cache *s, const zp_choice *c, int64_t m, int stage) {
  const int64_t key[ZP_STAGE_FLIGHT_KEY] = {(int64_t)c->schedule, zp_chunks(c), c->pipeline, m, stage};
  zp_stage_flight_memo *memo = &s->memo.stage_flight[zp_hash_numbers(key, ZP_STAGE_FLIGHT_KEY) % ZP_STAGE_FLIGHT_SLOTS];
  int64_t chunk[ZP_MOST_CHUNKS];
  if (memcmp(memo->key, key, sizeof key) == 0) return memo->flight;
  memcpy(memo->key, key, sizeof key);
  return memo->flight = count_stage(c, m, stage, chunk);
}

zp_stage_flight zp_find_stage_flight(zp_search_cache *s, const zp_choice *c, int stage) {
  const zp_flight_memo *memo = recall_flights(s, c);
  if (!memo->counted) return recall_stage(s, c, memo->microbatches, stage);
  return (zp_stage_flight){.flight = memo->flight[stage],
                           .pending = memo->pending[stage],
                           .fewest = memo->fewest[stage],
                           .all = memo->all[stage],
                           .slots = memo->slots[stage]};
}
