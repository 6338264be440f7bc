/* The arena of a stage, to the byte, and what of its state lives on the host or on disks.
 *
 * Order of regions: flat buffers (parameters, gradients, master copy, moments, average of the weights, compression
 * errors), model inputs, slots of saved values, rings, ping-pong buffers, tiles of products, message and gradient
 * buffers, transients last: the top of the arena is then a buffer that every step writes.
 *
 * Held elements: ZeRO 1 to 3 shard optimizer state, then gradients, then parameters over the data ranks (arXiv
 * 1910.02054, section 5); what is spread over expert groups over the data / expert ranks that hold the same. Of a class
 * with a home elsewhere the last eighths leave the device, of what a rank has of all owners' the last of every one's.
 * What is not trained has no state and no home elsewhere; ZeRO 3 shards it like the other parameters. What is not whole
 * on the device passes through rings of buffers that hold what a unit works with: parameters gathered
 * (ZeRO 3) or copied in, gradients about to be scattered (ZeRO 2, 3) or copied out. A copy goes straight between a
 * ring, or the flat buffer, and pinned host memory, so copies need no buffers of their own on the device.
 *
 * Of saved values every unit's last eighths leave. Its steps want them in one piece, so the unit works in a buffer of a
 * ring, from which the one part goes to its slot and the other one to the host, and back.
 *
 * On the host: the shares whose home is there; for an update on the host, weights that it writes (with mixed precision
 * the master copy is that), two buckets of gradients coming, and with mixed precision two of weights going. For disks:
 * four buckets of the class, in which it is read, changed and written; of optimizer state whole pages. A delayed update
 * has all its gradients there, and the weights that it writes in their place; windows only where gradients land. */
#include "layout_internal.h"

#include <assert.h>
#include <zplan/moves.h>

const zp_region_row zp_region_rows[ZP_REGION_COUNT] = {
#define REGION(region, memory, key, name) {ZP_MEMORY_##memory, key, name},
#include <zplan/regions.def>
};

/* The share of `total` that lives elsewhere, in whole units. */
static int64_t share_away(int64_t total, zp_home home, int64_t unit) {
  if (home.tier == ZP_TIER_DEVICE || home.eighths == 0) return 0;
  return home.eighths >= 8 ? total : total / 8 * home.eighths / unit * unit;
}

int64_t zp_saved_away(const zp_choice *choice, int64_t saved_bytes) {
  assert(saved_bytes >= 0);
  zp_home home = choice->home[ZP_STATE_ACTIVATIONS];
  return share_away(saved_bytes, home, home.tier == ZP_TIER_NVME ? ZP_PAGE_BYTES : ZP_ALIGN_BYTES);
}

int64_t zp_saved_away_stride(const zp_choice *choice, int64_t saved_bytes) {
  bool disk = choice->home[ZP_STATE_ACTIVATIONS].tier == ZP_TIER_NVME;
  return zp_round_up(zp_saved_away(choice, saved_bytes), disk ? ZP_PAGE_BYTES : ZP_ALIGN_BYTES);
}

/* How a class's elements fall apart; `gone` of those off the device the rank updates. of_bucket: what it has of the
 * largest bucket. */
typedef struct held {
  int64_t here, away, gone, of_bucket;
} held;

typedef struct placing {
  const zp_lowered *l;
  const zp_choice *c;
  const zp_totals *t;
  zp_stage *s;
  zp_move_room room; /* for what moves */
  held params, grads, state;
  zp_flat bucket;
  int64_t bucket_shard; /* of one bucket: what a rank updates */
} placing;

static void need(placing *p, zp_region region, int64_t bytes) {
  if (bytes > p->s->bytes[region]) p->s->bytes[region] = bytes;
}

int64_t zp_stage_away(const zp_choice *c, const zp_stage *s, int64_t gone) {
  int64_t spread = gone < s->spread_shard_elements ? gone : s->spread_shard_elements;
  if (!zp_shards_state(c)) return gone;
  return spread * (c->data / zp_expert_ranks(c)) + (gone - spread) * c->data;
}

static held split(const placing *p, zp_state state, bool sharded) {
  const zp_stage *s = p->s;
  held h = {.gone = share_away(s->shard_elements, p->c->home[state], zp_shard_align(p->c))};
  h.away = sharded ? h.gone : zp_stage_away(p->c, s, h.gone);
  h.here = (sharded ? s->shard_elements : s->flat_elements) - h.away;
  h.of_bucket = sharded ? p->bucket_shard : s->bucket_elements;
  return h;
}

static void size_flat_buffers(placing *p) {
  const zp_choice *c = p->c;
  zp_stage *s = p->s;
  int64_t shards = zp_shards_state(c) ? c->data : 1, pad = zp_shards_state(c) || c->compress ? c->data : 1;
  int64_t replicas = zp_shards_state(c) ? c->data / zp_expert_ranks(c) : 1; /* of what is spread */
  int64_t align = zp_shard_align(c), whole = zp_round_up(p->t->all.whole, pad * align);
  s->spread_elements = zp_round_up(p->t->all.spread, replicas * align);
  s->spread_shard_elements = s->spread_elements / replicas;
  s->flat_elements = whole + s->spread_elements;
  s->shard_elements = whole / shards + s->spread_shard_elements;
  p->bucket = (zp_flat){.whole = zp_round_up(p->t->bucket.whole, shards * align),
                        .spread = zp_round_up(p->t->bucket.spread, replicas * align)};
  s->bucket_elements = p->bucket.whole + p->bucket.spread;
  p->bucket_shard = p->bucket.whole / shards + p->bucket.spread / replicas;
  int64_t keepers = zp_shards_params(c) ? c->data : 1;
  s->frozen_elements = zp_round_up(p->t->all.frozen, keepers * align);
  s->frozen_shard_elements = s->frozen_elements / keepers;
  s->frozen_bucket_elements = zp_shards_params(c) ? p->t->bucket.frozen : 0;
  p->params = split(p, ZP_STATE_PARAMS, zp_shards_params(c));
  p->grads = split(p, ZP_STATE_GRADIENTS, zp_shards_gradients(c));
  p->state = split(p, ZP_STATE_OPTIMIZER, true);
}

/* A share that lives elsewhere: on the host, or on disks with windows of `window_bytes` on the host. */
static void need_away(placing *p, zp_region host, zp_region file, int windows, int64_t bytes, int64_t window_bytes) {
  if (bytes == 0) return;
  need(p, host, windows > 0 ? windows * window_bytes : bytes);
  if (windows > 0) need(p, file, bytes);
}

static void size_state(placing *p) {
  const zp_lowered *l = p->l;
  zp_stage *s = p->s;
  bool mixed = l->compute_bytes == 2;
  int moments = zp_moments(&l->spec->train);
  need(p, ZP_REGION_PARAMS, (p->params.here + s->frozen_shard_elements) * l->param_bytes);
  need(p, ZP_REGION_GRADS, p->grads.here * l->grad_bytes);
  need(p, ZP_REGION_MASTER, mixed ? p->state.here * 4 : 0);
  need(p, ZP_REGION_MOMENT1, moments > 0 ? p->state.here * l->stat_bytes : 0);
  need(p, ZP_REGION_MOMENT2, moments > 1 ? p->state.here * l->stat_bytes : 0);
  need(p, ZP_REGION_AVERAGE, p->state.here * l->average_bytes);
  s->statistics = p->t->statistics;
  need(p, ZP_REGION_STATISTICS, s->statistics * l->stat_bytes);
  zp_signs_room signs = zp_signs_room_of(l, p->c, s->flat_elements, p->state.here, p->state.away);
  need(p, ZP_REGION_ERROR, signs.error);
  need(p, ZP_REGION_SERVER_ERROR, signs.server_error);
  need(p, ZP_REGION_FRESH, signs.fresh);
  need(p, ZP_REGION_MOMENTUM_BEFORE, signs.momentum_before);
  need(p, ZP_REGION_LOCAL_SUM, signs.local_sum);
  need(p, ZP_REGION_ANCHOR, signs.anchor);
  need(p, ZP_REGION_HOST_ERROR, signs.host_error);
  need(p, ZP_REGION_HOST_SERVER_ERROR, signs.host_server_error);
  need(p, ZP_REGION_HOST_RECORDS, zp_round_up(signs.host_records, ZP_ALIGN_BYTES));
}

/* The number of slots follows from the order tables. Chunks of equal size share a pool, which the number in flight of
 * the whole stage bounds; chunks of unequal size may need less with slots of their own. */
static void size_slots(placing *p, int64_t microbatches) {
  const zp_totals *t = p->t;
  zp_stage *s = p->s;
  s->slots = zp_in_flight(p->c, s->index, microbatches);
  s->slot_stride = t->largest_slot;
  s->away_stride = t->largest_away;
  s->pooled = s->slots * (s->slot_stride + s->away_stride) <= t->slot_bytes + t->away_bytes;
  s->saved_ring_stride = t->unit_saved_bytes;
  need(p, ZP_REGION_SLOTS, s->pooled ? s->slots * s->slot_stride : t->slot_bytes);
  need(p, ZP_REGION_SAVED_RING, p->room.buffers[ZP_MOVE_SAVED] * t->unit_saved_bytes);
  need(p, ZP_REGION_PENDING, t->pending_bytes);
  int64_t away = s->pooled ? s->slots * s->away_stride : t->away_bytes;
  int windows = p->room.windows[ZP_MOVE_SAVED];
  need_away(p, ZP_REGION_HOST_SLOTS, ZP_REGION_FILE_SLOTS, windows, away, t->unit_away_bytes);
}

/* Room for the messages of so many chunks in one direction; the last buffer ends with its message. */
static int64_t message_bytes(const zp_stage *s, int64_t chunks, int64_t carry) {
  return chunks > 0 ? (chunks * s->messages - 1) * s->message_stride + carry : 0;
}

/* Interleaved chunks make the stages a ring, in which everybody has two neighbours; folded ones meet at the ends. */
int64_t zp_stage_landings(const zp_spec *spec, const zp_choice *c, int stage) {
  assert(stage >= 0 && stage < c->pipeline);
  bool folded = c->schedule == ZP_SCHEDULE_ZB_V, ring = zp_chunks(c) > 1 && !folded;
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

int64_t zp_stage_away_at(const zp_stage *s, int chunk) {
  assert(chunk >= 0 && chunk < s->n_chunks);
  int64_t at = s->at[s->bytes[ZP_REGION_FILE_SLOTS] > 0 ? ZP_REGION_FILE_SLOTS : ZP_REGION_HOST_SLOTS];
  for (int k = 0; k < chunk && at >= 0 && !s->pooled; k++) at += s->chunks[k].slots * s->chunks[k].away_stride;
  return at;
}

int64_t zp_chunk_pending_stride(const zp_chunk *chunk) { return zp_round_up(chunk->pending_stride, ZP_ALIGN_BYTES); }

int64_t zp_stage_pending_at(const zp_stage *s, int chunk) {
  assert(chunk >= 0 && chunk < s->n_chunks);
  int64_t at = s->at[ZP_REGION_PENDING];
  for (int k = 0; k < chunk && at >= 0; k++) at += s->chunks[k].pending * zp_chunk_pending_stride(&s->chunks[k]);
  return at;
}

static void size_buffers(placing *p, int64_t microbatches) {
  const zp_lowered *l = p->l;
  const zp_choice *c = p->c;
  zp_stage *s = p->s;
  int64_t carry = p->t->carry_elements * l->compute_bytes, n = p->t->most_calls;
  int64_t up = zp_chunks(c) - (s->index == zp_chunk_stage(c, (int64_t)c->pipeline * zp_chunks(c) - 1, NULL));
  int64_t down = zp_chunks(c) - (s->index == 0); /* chunks that have a chunk of the model above, below */
  int64_t landings = zp_stage_landings(l->spec, c, s->index);
  s->messages = zp_message_buffers(c, microbatches);
  s->message_stride = zp_round_up(carry, ZP_ALIGN_BYTES);
  need(p, ZP_REGION_PARAM_RING, p->room.buffers[ZP_MOVE_PARAMETERS] * zp_stage_ring_elements(s) * l->param_bytes);
  need(p, ZP_REGION_GRAD_RING, p->room.buffers[ZP_MOVE_GRADIENTS] * s->bucket_elements * l->grad_bytes);
  for (int i = 0; i < 2; i++) need(p, (zp_region)(ZP_REGION_CARRY0 + i), p->t->any_shard ? carry : 0);
  need(p, ZP_REGION_PRODUCTS, p->t->products_bytes);
  need(p, ZP_REGION_LANDING, landings > 0 ? (landings - 1) * s->message_stride + carry : 0);
  need(p, ZP_REGION_SEND_UP, message_bytes(s, up, carry));
  bool lands = c->pipeline > 1 && p->t->any_stream;
  need(p, ZP_REGION_GRAD0, up || n >= 3 || lands ? carry : 0);
  need(p, ZP_REGION_GRAD1, n >= 2 ? carry : 0);
  need(p, ZP_REGION_SEND_DOWN, message_bytes(s, down, carry));
  need(p, ZP_REGION_TRANSIENT, p->t->transient_bytes);
}

/* Optimizer state, and what its update on the host works through. Only the windows that the pieces take turns in. */
static void size_state_away(placing *p) {
  const zp_lowered *l = p->l;
  zp_stage *s = p->s;
  int windows = p->room.windows[ZP_MOVE_OPTIMIZER];
  bool mixed = l->compute_bytes == 2, disk = windows > 0;
  int64_t state_bytes = l->state_bytes + (mixed ? 0 : l->param_bytes), gone = p->state.away;
  int64_t window = p->grads.away > 0 ? p->grads.of_bucket : p->bucket_shard; /* where gradients land */
  if (disk && window > 0) window = zp_round_up(window, ZP_PAGE_ELEMENTS);
  s->offloaded[ZP_STATE_OPTIMIZER] = gone;
  s->window[ZP_STATE_OPTIMIZER] = gone > 0 || p->grads.away > 0 ? window : 0;
  bool delayed = l->spec->train.delayed && gone > 0;
  int64_t windows_in = delayed && p->grads.away == 0 ? 0 : 2 * s->window[ZP_STATE_OPTIMIZER];
  need(p, ZP_REGION_HOST_GRADS_IN, windows_in * l->grad_bytes);
  need(p, ZP_REGION_HOST_WEIGHTS_OUT, gone > 0 && mixed && !delayed ? 2 * window * l->param_bytes : 0);
  need(p, ZP_REGION_HOST_DELAYED, delayed ? gone * l->grad_bytes : 0);
  int64_t pieces = gone > 0 ? (gone + window - 1) / window : 0, whole = zp_round_up(gone, ZP_PAGE_ELEMENTS);
  s->state_windows = pieces < windows ? pieces : windows;
  need(p, ZP_REGION_HOST_STATE, (disk ? s->state_windows * (window < whole ? window : whole) : gone) * state_bytes);
  need(p, ZP_REGION_FILE_STATE, disk ? whole * state_bytes : 0);
}

static void size_away(placing *p) {
  const zp_lowered *l = p->l;
  zp_stage *s = p->s;
  int in = p->room.windows[ZP_MOVE_PARAMETERS], out = p->room.windows[ZP_MOVE_GRADIENTS];
  int64_t params = p->params.of_bucket, grads = p->grads.of_bucket;
  size_state_away(p);
  need_away(p, ZP_REGION_HOST_GRADS, ZP_REGION_FILE_GRADS, out, p->grads.away * l->grad_bytes, grads * l->grad_bytes);
  need_away(p, ZP_REGION_HOST_PARAMS, ZP_REGION_FILE_PARAMS, in, p->params.away * l->param_bytes,
            params * l->param_bytes);
  s->offloaded[ZP_STATE_GRADIENTS] = p->grads.gone;
  s->offloaded[ZP_STATE_PARAMS] = p->params.gone;
  s->window[ZP_STATE_GRADIENTS] = s->bytes[ZP_REGION_FILE_GRADS] > 0 ? grads : 0;
  s->window[ZP_STATE_PARAMS] = s->bytes[ZP_REGION_FILE_PARAMS] > 0 ? params : 0;
}

static int64_t *line_of(zp_memory *m, zp_memory_line line) {
  switch (line) {
  case ZP_MEMORY_WEIGHTS: return &m->weights;
  case ZP_MEMORY_GRADIENTS: return &m->gradients;
  case ZP_MEMORY_OPTIMIZER: return &m->optimizer;
  case ZP_MEMORY_SAVED: return &m->saved;
  case ZP_MEMORY_BUFFERS: return &m->buffers;
  case ZP_MEMORY_HOST: return &m->host;
  case ZP_MEMORY_NVME: break;
  }
  return &m->nvme;
}

/* One after the other, in the order of the table. Slots on disks begin with a page, and so do the buffers on the host
 * that they pass through. */
static void place(zp_stage *s) {
  s->arena_bytes = 0;
  for (int r = 0; r < ZP_REGION_COUNT; r++) {
    s->at[r] = -1;
    if (s->bytes[r] == 0) continue;
    int64_t *line = line_of(&s->memory, zp_region_rows[r].memory);
    int64_t *top = r < ZP_REGION_DEVICE_END ? &s->arena_bytes : line;
    bool pages = (r == ZP_REGION_HOST_SLOTS || r == ZP_REGION_FILE_SLOTS) && s->bytes[ZP_REGION_FILE_SLOTS] > 0;
    s->at[r] = zp_round_up(*top, pages ? ZP_PAGE_BYTES : r < ZP_REGION_DEVICE_END ? ZP_ALIGN_BYTES : 1);
    int64_t end = s->at[r] + s->bytes[r];
    if (top != line) *line += end - *top;
    *top = end;
  }
}

void zp_place_regions(const zp_lowered *l, const zp_choice *choice, const zp_totals *t, zp_stage *s) {
  const zp_spec *spec = l->spec;
  placing p = {.l = l, .c = choice, .t = t, .s = s};
  zp_move_scope moves = {.lowered = l, .choice = choice, .cpu = spec->cluster.node.device.is_cpu, .run = -1};
  p.room = zp_move_room_of(&moves);
  int64_t m = zp_microbatches(spec, choice);
  s->n_units = t->units;
  s->n_calls = t->calls;
  s->reads_numbers = t->reads_numbers;
  s->memory = (zp_memory){.context = spec->cluster.node.device.context_bytes};
  size_flat_buffers(&p);
  size_state(&p);
  need(&p, ZP_REGION_INPUTS,
       m * zp_model_inputs_bytes(spec->model, spec->model->inputs.len, l->microbatch, l->compute_bytes,
                                 t->reads_numbers));
  size_slots(&p, m);
  size_buffers(&p, m);
  size_away(&p);
  place(s);
}
