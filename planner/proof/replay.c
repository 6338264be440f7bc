/* SPDX-License-Identifier: Apache-2.0 */
/* The program over poisoned memory: every action of a stage's order table in order, every step of the units, at the
 * addresses that the plan gives. Instead of numbers the arena holds which value every byte is (shadow.h), so a step
 * finds the very tensor, unit and micro-batch that the graph names, or something else: nothing, another value, another
 * micro-batch's.
 *
 * Shares no code with verify.c and its neighbours: what must be where follows from graphs and from what trainers do
 * (codegen/trainer), not from live ranges, sizes or rules about places. Where a copy runs alongside the units it reads
 * as late and writes as early as the trainer lets it.
 *
 * Stages are played by themselves: messages of neighbours arrive when they are wanted, and those that were sent must
 * stay until their buffer is used again (verify_order.c proves that the stages meet). A stage is played for as many
 * micro-batches as it has in flight and two more, so that every slot is used again; stages that run the same in the
 * same places are played where they have most in flight and where they have least, all others as far as the work lasts.
 * Not played: the update, and what of state, parameters and gradients lives off the device. */
#include "replay_internal.h"

#include <assert.h>
#include <zplan/schedule.h>

enum {
  STAGE_WORK = 50000, /* operands of one stage: about 3 ms */
  ALL_WORK = 100000,  /* of all, before stages that others stand for are played as well */
};

static void list_calls(zp_replay *r) {
  const zp_stage *s = r->stage;
  const zp_pieces *pieces = r->lowered->pieces;
  r->chunk = ZP_NEW_ARRAY(r->arena, zp_replay_chunk, s->n_chunks);
  for (int k = 0; k < s->n_chunks; k++) {
    zp_replay_chunk *chunk = &r->chunk[k];
    int64_t unit = s->chunks[k].units.first;
    chunk->part = zp_model_chunk(&r->program->choice, s->index, k);
    chunk->is_last = chunk->part + 1 == (int64_t)r->program->choice.pipeline * s->n_chunks;
    for (int i = 0; i < s->runs.len; i++) chunk->calls += s->runs.data[i].chunk == k ? s->runs.data[i].count : 0;
    chunk->call = ZP_NEW_ARRAY(r->arena, zp_replay_call, chunk->calls);
    int64_t j = 0;
    for (int n = 0; n < s->runs.len; n++) {
      const zp_run *run = &s->runs.data[n];
      const zp_piece *piece = &pieces->piece[run->segment];
      const zp_replay_segment *known = zp_replay_know(r, run);
      for (int64_t i = 0; i < run->count && run->chunk == k; i++, unit += piece->end - piece->first)
        chunk->call[j++] = (zp_replay_call){.run = run,
                                            .seg = zp_run_segment(r->lowered, run),
                                            .known = known,
                                            .i = i,
                                            .first = unit,
                                            .end = unit + piece->end - piece->first};
    }
  }
}

/* Would so many micro-batches never need more slots than all of them do? Interleaving groups them by their number. */
static bool has_slots_for(const zp_replay *r, int64_t microbatches) {
  const zp_choice *c = &r->program->choice;
  int s = r->stage->index;
  int64_t all = r->program->microbatches;
  bool fits = zp_in_flight(c, s, microbatches) <= zp_in_flight(c, s, all);
  for (int k = 0; k < zp_chunks(c) && fits; k++)
    fits = zp_in_flight_chunk(c, s, k, microbatches) <= zp_in_flight_chunk(c, s, k, all) &&
           zp_pending_chunk(c, s, k, microbatches) <= zp_pending_chunk(c, s, k, all);
  return fits;
}

/* Enough micro-batches that every slot is used again, as far as the work allows. An order of its own is one of all. */
static int64_t microbatches_to_play(const zp_replay *r, int64_t work) {
  const zp_choice *c = &r->program->choice;
  int64_t all = r->program->microbatches, most = 0, allowed = work / (zp_replay_cost(r) + 1);
  if (c->own_order) return all;
  for (int k = 0; k < zp_chunks(c); k++) {
    int64_t flight = zp_in_flight_chunk(c, r->stage->index, k, all);
    if (most < flight) most = flight;
  }
  int64_t play = most + 2 < allowed ? most + 2 : allowed > 2 ? allowed : 2;
  while (play < all && !has_slots_for(r, play))
    play = (play / c->pipeline + 1) * c->pipeline; /* groups of equal size */
  return play < all ? play : all;
}

static zp_replay replay_of(const zp_program *program, int stage, zp_arena *arena, zp_arena *words, zp_strings *findings,
                           int64_t work) {
  zp_replay r = {.arena = arena,
                 .program = program,
                 .stage = &program->stages[stage],
                 .lowered = zp_program_lowered(program, stage),
                 .words = words,
                 .findings = findings};
  r.known = ZP_NEW_ARRAY(arena, zp_replay_segment, 2 * r.lowered->n_segments);
  r.products_bytes = zp_products_bytes(program->spec);
  r.device.arena = r.offloaded.arena = arena;
  r.microbatches = microbatches_to_play(&r, work);
  return r;
}

/* Where the work does not allow all of an order, only its beginning. */
static void play(zp_replay *r, int64_t work) {
  int64_t room = 3 * zp_chunks(&r->program->choice) * r->microbatches, allowed = work / (zp_replay_cost(r) + 1) + 2;
  zp_action *order = ZP_NEW_ARRAY(r->arena, zp_action, room);
  int64_t n = zp_order(&r->program->choice, r->stage->index, r->microbatches, order, NULL);
  bool all = !r->program->choice.own_order || allowed >= r->microbatches;
  if (!all) n = n / r->microbatches * allowed;
  r->owner = ZP_NEW_ARRAY(r->arena, int64_t, r->stage->slots + 1);
  list_calls(r);
  zp_move_list moves = zp_stage_moves(r->arena, r->program, r->stage->index);
  zp_replay_check_moves(r, &moves);
  zp_replay_load(r);
  for (int64_t i = 0; i < n && r->n_found == 0; i++) zp_replay_act(r, &order[i]);
  for (int k = 0; k < r->stage->n_chunks && r->n_found == 0 && all; k++)
    for (int64_t mb = r->microbatches - r->stage->messages; mb < r->microbatches; mb++) {
      if (!r->chunk[k].is_last) zp_replay_expect_message(r, &r->chunk[k], true, mb);
      if (r->chunk[k].part > 0) zp_replay_expect_message(r, &r->chunk[k], false, mb);
    }
  if (r->n_found == 0 && all) zp_replay_check_end(r);
}

void zp_replay_moves(zp_arena *arena, const zp_program *program, int stage, const zp_move_list *list,
                     zp_strings *findings) {
  zp_arena *scratch = zp_arena_new("replay of moves");
  zp_replay r = replay_of(program, stage, scratch, arena, findings, STAGE_WORK);
  list_calls(&r);
  zp_replay_check_moves(&r, list);
  zp_arena_free(scratch);
}

/* ---- which stages ---- */

/* Do two stages run the same steps, with other numbers of slots at most? */
static bool alike(const zp_program *p, int a, int b) {
  const zp_stage *x = &p->stages[a], *y = &p->stages[b];
  bool same = p->stage_lowered[a] == p->stage_lowered[b] && x->runs.len == y->runs.len &&
              x->shared.len == y->shared.len && (x->at[ZP_REGION_SEND_UP] < 0) == (y->at[ZP_REGION_SEND_UP] < 0) &&
              (x->at[ZP_REGION_SEND_DOWN] < 0) == (y->at[ZP_REGION_SEND_DOWN] < 0) && x->pooled == y->pooled;
  for (int i = 0; i < x->runs.len && same; i++)
    same = x->runs.data[i].segment == y->runs.data[i].segment && x->runs.data[i].count == y->runs.data[i].count &&
           x->runs.data[i].chunk == y->runs.data[i].chunk && x->runs.data[i].rest == y->runs.data[i].rest;
  return same;
}

/* Is no stage before it alike with as many slots or more, or none after it alike with as few or fewer? */
static bool stands_for_others(const zp_program *p, int stage) {
  bool most = true, least = true;
  for (int s = 0; s < p->choice.pipeline; s++) {
    if (s == stage || !alike(p, s, stage)) continue;
    int64_t own = p->stages[stage].slots, other = p->stages[s].slots;
    most = most && (other < own || (other == own && s > stage));
    least = least && (other > own || (other == own && s < stage));
  }
  return most || least;
}

void zp_replay_program(zp_arena *arena, const zp_program *program, zp_strings *findings) {
  assert(findings);
  zp_arena *scratch = zp_arena_new("replay");
  int64_t left = ALL_WORK, each, representatives = 0;
  bool *stands = ZP_NEW_ARRAY(scratch, bool, program->choice.pipeline);
  for (int s = 0; s < program->choice.pipeline; s++) representatives += stands[s] = stands_for_others(program, s);
  each = ALL_WORK / representatives < STAGE_WORK ? ALL_WORK / representatives : STAGE_WORK;
  for (int pass = 0; pass < 2; pass++)
    for (int s = 0; s < program->choice.pipeline && findings->len == 0; s++) {
      if (stands[s] != (pass == 0)) continue;
      zp_arena_mark mark = zp_arena_get_mark(scratch);
      zp_replay r = replay_of(program, s, scratch, arena, findings, each);
      int64_t work = zp_replay_cost(&r) * r.microbatches;
      if (pass == 0 || work <= left) play(&r, each);
      left -= work;
      zp_arena_rewind(scratch, mark);
    }
  zp_arena_free(scratch);
}
