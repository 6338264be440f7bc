/* SPDX-License-Identifier: Apache-2.0 */
/* Variants of mixed stages: first layers in one mode, the others in another one (zp_stage_mix). They are made of the
 * variants of the two modes, whose procedures and prices they share, each once. */
#include <assert.h>
#include <zplan/hash.h>
#include "procedures.h"

/* Layers that a stage calls in units first .. end - 1, of repeats alone; what is left of `stop` layers ends the count,
 * and `unit` is where. */
typedef struct layer_walk {
  const zp_pieces *pieces;
  int64_t layers, stop, unit;
  bool stopped;
} layer_walk;

static void count_layers(void *user, int piece, int64_t iteration, int64_t count) {
  layer_walk *w = user;
  const zp_piece *p = &w->pieces->piece[piece];
  int64_t here = count, units = p->end - p->first;
  (void)iteration;
  if (w->stopped) return;
  if (p->segment.is_repeat) {
    if (here > w->stop - w->layers) here = w->stop - w->layers;
    w->layers += here;
    w->stopped = here < count;
  }
  w->unit += here * units;
}

static layer_walk walk_layers(const zp_pieces *pieces, int64_t first, int64_t end, int64_t stop) {
  layer_walk w = {.pieces = pieces, .stop = stop, .unit = first};
  zp_pieces_walk(pieces, first, end, count_layers, &w);
  return w;
}

int64_t zp_stage_layers(const zp_lowered *lowered, int64_t first, int64_t end) {
  return walk_layers(lowered->pieces, first, end, INT64_MAX).layers;
}

int64_t zp_stage_rest(const zp_variant *mixed, int64_t first, int64_t end) {
  assert(mixed->rest);
  return walk_layers(mixed->lowered->pieces, first, end, mixed->layers).unit;
}

static zp_mixed_slot *slot_of(zp_search_memo *memo, const zp_lowered *first, const zp_lowered *rest, int64_t layers) {
  const int64_t key[] = {(int64_t)(intptr_t)first, (int64_t)(intptr_t)rest, layers};
  int mask = memo->mixed_slots - 1, at = (int)(zp_hash_numbers(key, 3) & (uint64_t)mask);
  for (;; at = (at + 1) & mask) {
    zp_mixed_slot *slot = &memo->mixed[at];
    if (!slot->variant || (slot->first == first && slot->rest == rest && slot->layers == layers)) return slot;
  }
}

static void grow(zp_search_cache *s) {
  zp_search_memo *memo = &s->memo;
  zp_mixed_slot *old = memo->mixed;
  int n = memo->mixed_slots;
  memo->mixed_slots = n ? 2 * n : 256;
  memo->mixed = ZP_NEW_ARRAY(s->kept, zp_mixed_slot, memo->mixed_slots);
  for (int i = 0; i < n; i++)
    if (old[i].variant) *slot_of(memo, old[i].first, old[i].rest, old[i].layers) = old[i];
}

const zp_variant *zp_mixed_variant(zp_search_cache *s, const zp_variant *first, const zp_variant *rest,
                                   int64_t layers) {
  assert(first->prefix_s && rest->prefix_s && !first->rest && !rest->rest && layers > 0);
  if (2 * (s->memo.n_mixed + 1) > s->memo.mixed_slots) grow(s);
  zp_mixed_slot *slot = slot_of(&s->memo, first->lowered, rest->lowered, layers);
  if (slot->variant) return slot->variant;
  zp_variant *both = ZP_NEW_ARRAY(s->kept, zp_variant, 2); /* the table of variants may move */
  both[0] = *first;
  both[1] = *rest;
  both[0].lowered = zp_lower_mixed(s->kept, first->lowered, rest->lowered, layers);
  both[0].rest = &both[1];
  both[0].layers = layers;
  *slot = (zp_mixed_slot){first->lowered, rest->lowered, layers, both};
  s->memo.n_mixed++;
  return both;
}
