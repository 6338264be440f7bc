/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that a stage has at least, in one place for layers whole and in parts (least_work.c, least_parts.c): of state,
 * and alongside what it holds for every unit. regions.c lays it out. */
#include <zplan/hash.h>
#include <zplan/moves.h>
#include <zplan/schedule.h>
#include "bound.h"

zp_shares zp_shares_here(const zp_choice *c) {
  zp_shares shares = {.frozen = 1};
  for (int i = 0; i < ZP_STATE_COUNT; i++) shares.of[i] = zp_eighths_here(c, (zp_state)i) / (double)ZP_EIGHTHS;
  return shares;
}

/* Bytes of a parameter, its gradient and optimizer state on one of so many ranks that hold it. */
static double bytes_among(const zp_choice *c, const zp_lowered *l, const zp_shares *shares, double holders) {
  double bytes = 0;
  for (zp_state state = ZP_STATE_ACTIVATIONS; state-- > 0;)
    bytes += shares->of[state] * zp_kept_element_bytes(l, state) / (zp_shards(c, state) ? holders : 1);
  return bytes;
}

zp_state_bytes zp_bytes_of_state(const zp_choice *c, const zp_lowered *l, const zp_shares *shares) {
  zp_state_bytes bytes;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    bytes.of[kind] = zp_kinds[kind].trained ? bytes_among(c, l, shares, zp_holders(c, kind))
                                            : shares->frozen * l->param_bytes / zp_owners(c, kind);
  return bytes;
}

/* Rings that every plan of the point has. Classes count where all of them are off the device; where ZeRO is open,
 * zp_smallest with the highest stage stands for the others, too, so its rings do not count. */
static zp_move_rings rings_of(const zp_search_cache *s, const zp_point *point) {
  zp_choice sure = point->choice;
  const zp_move_scope scope = {.choice = &sure, .cpu = s->machine.node->device.is_cpu, .run = -1};
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (sure.home[i].eighths < ZP_EIGHTHS) sure.home[i] = (zp_home){ZP_TIER_DEVICE, 0};
  if (zp_is_subspace(point)) sure.zero = 0;
  return zp_moves_rings(&scope);
}

int64_t zp_choice_communicator_bytes(zp_search_cache *s, const zp_choice *c, int ties) {
  const int64_t key[ZP_COMMUNICATORS_KEY] = {
      c->tensor,    c->pipeline,          c->data,     c->order, zp_expert_ranks(c), zp_context_ranks(c),
      zp_chunks(c), (int64_t)c->schedule, c->sequence, ties,     c->shard,           c->hpz};
  const zp_communicators_memo *last = s->memo.last_communicators;
  if (last && memcmp(last->key, key, sizeof key) == 0) return last->bytes;
  zp_communicators_memo *memo =
      &s->memo.communicators[zp_hash_numbers(key, ZP_COMMUNICATORS_KEY) % ZP_COMMUNICATORS_SLOTS];
  s->memo.last_communicators = memo;
  if (memcmp(memo->key, key, sizeof key) == 0) return memo->bytes;
  memcpy(memo->key, key, sizeof key);
  memo->bytes = zp_communicators_of(&s->in->spec->cluster, c, ties).total_bytes;
  return memo->bytes;
}

/* Bytes of messages that every stage has buffers for. One chunk: all have a neighbour in one direction. Several: in
 * both directions for all chunks, less one at an end of the model; a stage of a folded model with both ends has two
 * less in buffers, and a gradient on its way instead (regions.c). */
static int64_t message_bytes(zp_search_cache *s, const zp_choice *c, const zp_variant *v) {
  if (c->pipeline == 1 || v->carry_elements == INT64_MAX) return 0;
  int64_t chunks = zp_chunks(c), carry = v->carry_elements * v->lowered->compute_bytes;
  int64_t buffers = zp_message_buffers(c, zp_microbatches(s->in->spec, c));
  return chunks == 1 ? buffers * carry : ((2 * chunks - 1) * buffers - 1) * carry;
}

/* Streams stand once a chunk, whichever of its units they come into, so they are no unit's. */
zp_unit_bytes zp_bytes_of_unit(const zp_segment_program *unit, zp_schedule schedule) {
  return (zp_unit_bytes){.transient = zp_transient_bytes(unit, schedule),
                         .elements = zp_flat_trained(&unit->elements),
                         .saved = unit->saved_bytes};
}

zp_alongside zp_find_alongside(zp_search_cache *s, const zp_point *point, const zp_variant *v) {
  const zp_choice *c = &point->choice;
  const zp_lowered *l = v->lowered;
  zp_move_rings rings = rings_of(s, point);
  zp_alongside a = {zp_choice_communicator_bytes(s, c, l->ties) + message_bytes(s, c, v), 0,
                    rings.of[ZP_STATE_ACTIVATIONS]};
  for (zp_state state = 0; state < ZP_STATE_ACTIVATIONS; state++)
    a.of_element += rings.of[state] * zp_state_element_bytes(l, state);
  return a;
}

bool zp_is_all_between(const zp_lowered *lowered, int segment) {
  int64_t before = 0, after = 0;
  for (int i = 0; i < lowered->pieces->n_whole; i++) {
    int64_t units = lowered->segments[i].segment->count * lowered->pieces->parts[i];
    if (i != segment) *(i < segment ? &before : &after) += units;
  }
  return before <= 1 && after <= 1;
}
