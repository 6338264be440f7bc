/* SPDX-License-Identifier: Apache-2.0 */
/* The arenas of a stage, to the byte: what the units need of each region, what strategies need alongside (moves/), and
 * where all that stands. regions.def has the regions in their order; transients are last on the device, so that the top
 * of the arena is a buffer that every step writes.
 *
 * Held elements: ZeRO 1 to 3 shard optimizer state, then gradients, then parameters over the data ranks (arXiv
 * 1910.02054, section 5); what is spread over expert groups over the data / expert ranks that hold the same. If a class
 * has a home elsewhere, its last eighths leave the device; if the rank holds a class unsharded while data ranks own
 * shards, the last of each owner's shard leave. What is not trained has no state and no home elsewhere; ZeRO 3 shards
 * it like the other parameters. What is not whole on the device passes through rings of buffers that hold what a unit
 * works with. A copy goes straight between a ring, or the flat buffer, and pinned host memory, so copies need no
 * buffers of their own on the device. */
#include "layout_internal.h"

#include <assert.h>
#include <stddef.h>

const zp_region_row zp_region_rows[ZP_REGION_COUNT] = {
#define REGION(region, memory, key, name) {ZP_MEMORY_##memory, key, name},
#include <zplan/regions.def>
};

/* The share of `total` that lives elsewhere, in whole units. */
static int64_t share_offloaded(int64_t total, zp_home home, int64_t unit) {
  if (home.tier == ZP_TIER_DEVICE || home.eighths == 0) return 0;
  return home.eighths >= 8 ? total : total / 8 * home.eighths / unit * unit;
}

int64_t zp_saved_offloaded(const zp_choice *choice, int64_t saved_bytes) {
  assert(saved_bytes >= 0);
  zp_home home = choice->home[ZP_STATE_ACTIVATIONS];
  return share_offloaded(saved_bytes, home, home.tier == ZP_TIER_NVME ? ZP_PAGE_BYTES : ZP_ALIGN_BYTES);
}

int64_t zp_saved_offloaded_stride(const zp_choice *choice, int64_t saved_bytes) {
  bool disk = choice->home[ZP_STATE_ACTIVATIONS].tier == ZP_TIER_NVME;
  return zp_round_up(zp_saved_offloaded(choice, saved_bytes), disk ? ZP_PAGE_BYTES : ZP_ALIGN_BYTES);
}

/* What leaves first are the last kinds. */
int64_t zp_stage_offloaded(const zp_choice *c, const zp_stage *s, int64_t gone) {
  int64_t offloaded = 0;
  for (zp_param_kind kind = ZP_KINDS - 1; kind > ZP_KIND_WHOLE; kind--) {
    int64_t part = zp_kinds[kind].trained ? s->shard.of[kind] : 0;
    if (part > gone) part = gone;
    offloaded += part * zp_owners(c, kind);
    gone -= part;
  }
  return offloaded + gone * zp_owners(c, ZP_KIND_WHOLE);
}

static zp_held split(const zp_placing *p, zp_state state) {
  const zp_stage *s = p->stage;
  bool sharded = zp_shards(p->choice, state);
  int64_t all = zp_flat_trained(&s->shard), align = zp_shard_align(p->choice);
  zp_held h = {.gone = share_offloaded(all, p->choice->home[state], align)};
  h.offloaded = sharded ? h.gone : zp_stage_offloaded(p->choice, s, h.gone);
  h.here = zp_flat_trained(sharded ? &s->shard : &s->flat) - h.offloaded;
  h.of_bucket = sharded ? p->bucket_shard : zp_flat_trained(&s->bucket);
  return h;
}

static void size_flat_buffers(zp_placing *p) {
  const zp_choice *c = p->choice;
  const zp_totals *t = p->totals;
  zp_stage *s = p->stage;
  int64_t align = zp_shard_align(c);
  bool takes_all = zp_moves_take_all(c);
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    int64_t owners = zp_owners(c, kind), parts = takes_all && kind == ZP_KIND_WHOLE ? c->data : owners;
    s->flat.of[kind] = zp_round_up(t->all.of[kind], parts * align);
    s->shard.of[kind] = s->flat.of[kind] / owners;
    if (!zp_kinds[kind].trained && !zp_shards_params(c)) continue;
    s->bucket.of[kind] = zp_round_up(t->bucket.of[kind], owners * align);
    if (zp_kinds[kind].trained) p->bucket_shard += s->bucket.of[kind] / owners;
  }
  if (zp_narrow_alone(p->lowered, c, &t->narrow_own) > 0) s->casts = t->narrow_own;
  s->statistics = t->statistics;
  for (zp_state state = 0; state < ZP_STATE_ACTIVATIONS; state++) {
    p->held[state] = split(p, state);
    s->offloaded[state] = p->held[state].gone;
  }
}

/* The number of slots follows from the order tables. Chunks of equal size share a pool, which the number in flight of
 * the whole stage bounds; chunks of unequal size may need less with slots of their own. */
static void size_slots(zp_placing *p) {
  const zp_totals *t = p->totals;
  zp_stage *s = p->stage;
  s->slots = zp_in_flight(p->choice, s->index, p->microbatches);
  s->slot_stride = t->largest_slot;
  s->offloaded_stride = t->largest_offloaded;
  s->pooled = s->slots * (s->slot_stride + s->offloaded_stride) <= t->slot_bytes + t->offloaded_bytes;
}

static void size_messages(zp_placing *p) {
  const zp_choice *c = p->choice;
  int64_t index = p->stage->index, last = zp_chunk_stage(c, (int64_t)c->pipeline * zp_chunks(c) - 1, NULL);
  p->up = zp_chunks(c) - (index == last);
  p->down = zp_chunks(c) - (index == 0);
  p->carry_bytes = p->totals->carry_elements * p->lowered->compute_bytes;
  p->stage->messages = zp_message_buffers(c, p->microbatches);
  p->stage->message_stride = zp_round_up(p->carry_bytes, ZP_ALIGN_BYTES);
}

/* Interleaved chunks make the stages a ring, in which everybody has two neighbours; folded ones meet at the ends. */
int64_t zp_stage_landings(const zp_spec *spec, const zp_choice *c, int stage) {
  assert(stage >= 0 && stage < c->pipeline);
  bool folded = zp_schedule_folds(c->schedule), ring = zp_chunks(c) > 1 && !folded;
  int neighbours = ring ? 2 : (stage > 0) + (stage + 1 < c->pipeline);
  if (c->pipeline == 1 || spec->cluster.trainer != ZP_TRAINER_ZPLAN || spec->cluster.node.device.is_cpu) return 0;
  return folded ? 2 * neighbours : neighbours;
}

int64_t zp_stage_send_at(const zp_choice *choice, const zp_stage *s, int chunk, bool up) {
  assert(zp_choice_has_chunk(choice, chunk));
  int64_t part = zp_model_chunk(choice, s->index, chunk), base = s->at[up ? ZP_REGION_SEND_UP : ZP_REGION_SEND_DOWN];
  if (part == (up ? (int64_t)choice->pipeline * zp_chunks(choice) - 1 : 0)) return -1;
  return base + (!up && s->index == 0 ? chunk - 1 : chunk) * s->messages * s->message_stride;
}

int64_t zp_stage_slots_at(const zp_stage *s, int chunk) {
  assert(chunk >= 0 && chunk < s->n_chunks);
  int64_t at = s->at[ZP_REGION_SLOTS];
  for (int k = 0; k < chunk && at >= 0 && !s->pooled; k++) at += s->chunks[k].slots * s->chunks[k].slot_stride;
  return at;
}

int64_t zp_stage_offloaded_at(const zp_stage *s, int chunk) {
  assert(chunk >= 0 && chunk < s->n_chunks);
  int64_t at = s->at[s->bytes[ZP_REGION_FILE_SLOTS] > 0 ? ZP_REGION_FILE_SLOTS : ZP_REGION_HOST_SLOTS];
  for (int k = 0; k < chunk && at >= 0 && !s->pooled; k++) at += s->chunks[k].slots * s->chunks[k].offloaded_stride;
  return at;
}

int64_t zp_chunk_pending_stride(const zp_chunk *chunk) { return zp_round_up(chunk->pending_stride, ZP_ALIGN_BYTES); }

int64_t zp_stage_pending_at(const zp_stage *s, int chunk) {
  assert(chunk >= 0 && chunk < s->n_chunks);
  int64_t at = s->at[ZP_REGION_PENDING];
  for (int k = 0; k < chunk && at >= 0; k++) at += s->chunks[k].pending * zp_chunk_pending_stride(&s->chunks[k]);
  return at;
}

/* What units need, whatever else moves. */
static void need_units(zp_placing *p) {
  const zp_lowered *l = p->lowered;
  const zp_model *model = l->spec->model;
  const zp_totals *t = p->totals;
  const zp_stage *s = p->stage;
  int64_t *bytes = p->stage->bytes, calls = t->most_calls;
  bool lands = p->choice->pipeline > 1 && t->any_stream;
  int64_t alone = zp_narrow_alone(l, p->choice, &t->narrow_own);
  bytes[ZP_REGION_PARAMS] = (p->held[ZP_STATE_PARAMS].here + s->shard.of[ZP_KIND_FROZEN] - alone) * l->param_bytes;
  bytes[ZP_REGION_GRADS] = p->held[ZP_STATE_GRADIENTS].here * l->sum_bytes;
  bytes[ZP_REGION_INPUTS] = p->microbatches * zp_model_inputs_bytes(model, model->inputs.len, l->microbatch,
                                                                    l->compute_bytes, t->reads_numbers);
  bytes[ZP_REGION_SLOTS] = s->pooled ? s->slots * s->slot_stride : t->slot_bytes;
  bytes[ZP_REGION_PENDING] = t->pending_bytes;
  bytes[ZP_REGION_CARRY0] = bytes[ZP_REGION_CARRY1] = t->any_shard ? p->carry_bytes : 0;
  bytes[ZP_REGION_PRODUCTS] = t->products_bytes;
  bytes[ZP_REGION_GRAD0] = p->up || calls >= 3 || lands ? p->carry_bytes : 0;
  bytes[ZP_REGION_GRAD1] = calls >= 2 ? p->carry_bytes : 0;
  bytes[ZP_REGION_TRANSIENT] = t->transient_bytes;
}

static int64_t *line_of(zp_memory *m, zp_memory_line line) {
#define ZP_MEMORY_ROW(id, field) offsetof(zp_memory, field),
  static const unsigned char at[] = {ZP_MEMORY_LINES(ZP_MEMORY_ROW)};
#undef ZP_MEMORY_ROW
  return (int64_t *)(void *)((char *)m + at[line]);
}

/* One after the other, in the order of the table. Slots on disks begin with a page, and so do the buffers on the host
 * that they pass through. */
static void place(zp_stage *s) {
  s->arena_bytes = 0;
  for (int r = 0; r < ZP_REGION_COUNT; r++) {
    s->at[r] = -1;
    if (s->bytes[r] == 0) continue;
    int64_t *line = line_of(&s->memory, zp_region_rows[r].memory);
    int64_t *top = r < ZP_REGION_DEVICE_END ? &s->arena_bytes : line, begin = *top;
    if ((r == ZP_REGION_HOST_SLOTS || r == ZP_REGION_FILE_SLOTS) && s->bytes[ZP_REGION_FILE_SLOTS] > 0)
      begin = zp_round_up(begin, ZP_PAGE_BYTES);
    else if (r < ZP_REGION_DEVICE_END)
      begin = zp_round_up(begin, ZP_ALIGN_BYTES);
    s->at[r] = begin;
    int64_t end = begin + s->bytes[r];
    if (top != line) *line += end - *top;
    *top = end;
  }
}

void zp_place_regions(const zp_lowered *l, const zp_choice *choice, const zp_totals *t, zp_stage *s) {
  const zp_device *device = &l->spec->cluster.node.device;
  zp_placing p = {.lowered = l, .choice = choice, .totals = t, .stage = s};
  zp_move_scope moves = {.lowered = l, .choice = choice, .cpu = device->is_cpu, .run = -1};
  p.microbatches = zp_microbatches(l->spec, choice);
  s->n_units = t->units;
  s->n_calls = t->calls;
  s->reads_numbers = t->reads_numbers;
  s->memory = (zp_memory){.context = device->context_bytes};
  size_flat_buffers(&p);
  size_slots(&p);
  size_messages(&p);
  need_units(&p);
  zp_make_regions(&moves, &p);
  place(s);
}
