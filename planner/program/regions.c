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

static int64_t region(int64_t *top, int64_t bytes) {
  if (bytes <= 0) return -1;
  int64_t at = zp_round_up(*top, ZP_ALIGN_BYTES);
  *top = at + bytes;
  return at;
}

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
  zp_signs_room signs;
  held params, grads, state;
  int64_t bucket_shard; /* of one bucket: what a rank updates */
  int64_t top;
} placing;

/* What leaves first are the last kinds. */
int64_t zp_stage_away(const zp_choice *c, const zp_stage *s, int64_t gone) {
  int64_t away = 0;
  for (zp_param_kind kind = ZP_KINDS - 1; kind > ZP_KIND_WHOLE; kind--) {
    int64_t part = zp_kinds[kind].trained ? s->shard.of[kind] : 0;
    if (part > gone) part = gone;
    away += part * zp_owners(c, kind);
    gone -= part;
  }
  return away + gone * zp_owners(c, ZP_KIND_WHOLE);
}

static held split(const placing *p, zp_state state, bool sharded) {
  const zp_stage *s = p->s;
  held h = {.gone = share_away(zp_flat_trained(&s->shard), p->c->home[state], zp_shard_align(p->c))};
  h.away = sharded ? h.gone : zp_stage_away(p->c, s, h.gone);
  h.here = zp_flat_trained(sharded ? &s->shard : &s->flat) - h.away;
  h.of_bucket = sharded ? p->bucket_shard : zp_flat_trained(&s->bucket);
  return h;
}

static void size_flat_buffers(placing *p) {
  const zp_choice *c = p->c;
  zp_stage *s = p->s;
  int64_t align = zp_shard_align(c);
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    int64_t owners = zp_owners(c, kind), parts = c->compress && kind == ZP_KIND_WHOLE ? c->data : owners;
    s->flat.of[kind] = zp_round_up(p->t->all.of[kind], parts * align); /* ranks average signs in equal parts */
    s->shard.of[kind] = s->flat.of[kind] / owners;
    if (!zp_kinds[kind].trained && !zp_shards_params(c)) continue;
    s->bucket.of[kind] = zp_round_up(p->t->bucket.of[kind], owners * align);
    if (zp_kinds[kind].trained) p->bucket_shard += s->bucket.of[kind] / owners;
  }
  p->params = split(p, ZP_STATE_PARAMS, zp_shards_params(c));
  p->grads = split(p, ZP_STATE_GRADIENTS, zp_shards_gradients(c));
  p->state = split(p, ZP_STATE_OPTIMIZER, true);
}

static void place_flat_buffers(placing *p) {
  const zp_lowered *l = p->l;
  zp_stage *s = p->s;
  bool mixed = l->compute_bytes == 2;
  int moments = zp_moments(&l->spec->train);
  s->at_params = region(&p->top, (p->params.here + s->shard.of[ZP_KIND_FROZEN]) * l->param_bytes);
  s->memory.weights = p->top;
  s->at_grads = region(&p->top, p->grads.here * l->grad_bytes);
  s->memory.gradients = p->top - s->memory.weights;
  int64_t before = p->top;
  s->at_master = region(&p->top, mixed ? p->state.here * 4 : 0);
  s->at_moment1 = region(&p->top, moments > 0 ? p->state.here * l->stat_bytes : 0);
  s->at_moment2 = region(&p->top, moments > 1 ? p->state.here * l->stat_bytes : 0);
  s->at_average = region(&p->top, p->state.here * l->average_bytes);
  s->statistics = p->t->statistics;
  s->at_statistics = region(&p->top, s->statistics * l->stat_bytes);
  p->signs = zp_signs_room_of(l, p->c, zp_flat_trained(&s->flat), p->state.here, p->state.away);
  s->at_error = region(&p->top, p->signs.error);
  s->at_server_error = region(&p->top, p->signs.server_error);
  s->at_fresh = region(&p->top, p->signs.fresh);
  s->at_momentum_before = region(&p->top, p->signs.momentum_before);
  s->at_local_sum = region(&p->top, p->signs.local_sum);
  s->at_anchor = region(&p->top, p->signs.anchor);
  s->memory.optimizer = p->top - before;
}

/* The number of slots follows from the order tables. Chunks of equal size share a pool, which the number in flight of
 * the whole stage bounds; chunks of unequal size may need less with slots of their own. */
static int64_t place_slots(placing *p, int64_t microbatches) {
  const zp_totals *t = p->t;
  zp_stage *s = p->s;
  s->slots = zp_in_flight(p->c, s->index, microbatches);
  s->slot_stride = t->largest_slot;
  s->away_stride = t->largest_away;
  s->pooled = s->slots * (s->slot_stride + s->away_stride) <= t->slot_bytes + t->away_bytes;
  int64_t here = s->pooled ? s->slots * s->slot_stride : t->slot_bytes;
  int64_t away = s->pooled ? s->slots * s->away_stride : t->away_bytes, before = p->top;
  s->at_slots = region(&p->top, here);
  s->saved_ring_stride = t->unit_saved_bytes;
  s->at_saved_ring = region(&p->top, p->room.buffers[ZP_MOVE_SAVED] * t->unit_saved_bytes);
  s->at_pending = region(&p->top, t->pending_bytes);
  s->memory.saved = p->top - before;
  return away;
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
  int64_t part = zp_model_chunk(choice, s->index, chunk), base = up ? s->at_send_up : s->at_send_down;
  if (part == (up ? (int64_t)choice->pipeline * zp_chunks(choice) - 1 : 0)) return -1;
  return base + (!up && s->index == 0 ? chunk - 1 : chunk) * s->messages * s->message_stride;
}

int64_t zp_stage_slots_at(const zp_stage *s, int chunk) {
  assert(chunk >= 0 && chunk < s->n_chunks);
  int64_t at = s->at_slots;
  for (int k = 0; k < chunk && at >= 0 && !s->pooled; k++) at += s->chunks[k].slots * s->chunks[k].slot_stride;
  return at;
}

int64_t zp_stage_away_at(const zp_stage *s, int chunk) {
  assert(chunk >= 0 && chunk < s->n_chunks);
  int64_t at = s->away_slots;
  for (int k = 0; k < chunk && at >= 0 && !s->pooled; k++) at += s->chunks[k].slots * s->chunks[k].away_stride;
  return at;
}

int64_t zp_chunk_pending_stride(const zp_chunk *chunk) { return zp_round_up(chunk->pending_stride, ZP_ALIGN_BYTES); }

int64_t zp_stage_pending_at(const zp_stage *s, int chunk) {
  assert(chunk >= 0 && chunk < s->n_chunks);
  int64_t at = s->at_pending;
  for (int k = 0; k < chunk && at >= 0; k++) at += s->chunks[k].pending * zp_chunk_pending_stride(&s->chunks[k]);
  return at;
}

static void place_buffers(placing *p, int64_t microbatches) {
  const zp_lowered *l = p->l;
  const zp_choice *c = p->c;
  zp_stage *s = p->s;
  int64_t carry = p->t->carry_elements * l->compute_bytes, n = p->t->most_calls;
  int64_t up = zp_chunks(c) - (s->index == zp_chunk_stage(c, (int64_t)c->pipeline * zp_chunks(c) - 1, NULL));
  int64_t down = zp_chunks(c) - (s->index == 0); /* chunks that have a chunk of the model above, below */
  int64_t landings = zp_stage_landings(l->spec, c, s->index);
  s->messages = zp_message_buffers(c, microbatches);
  s->message_stride = zp_round_up(carry, ZP_ALIGN_BYTES);
  s->at_param_ring = region(&p->top, p->room.buffers[ZP_MOVE_PARAMETERS] * zp_stage_ring_elements(s) * l->param_bytes);
  s->at_grad_ring = region(&p->top, p->room.buffers[ZP_MOVE_GRADIENTS] * zp_flat_trained(&s->bucket) * l->grad_bytes);
  for (int i = 0; i < 2; i++) s->at_carry[i] = region(&p->top, p->t->any_shard ? carry : 0);
  /* Not behind the messages: small products leave the end of the tiles alone, and the top is what every step writes. */
  s->at_products = region(&p->top, p->t->products_bytes);
  s->at_landing = region(&p->top, landings > 0 ? (landings - 1) * s->message_stride + carry : 0);
  s->at_send_up = region(&p->top, message_bytes(s, up, carry));
  bool lands = c->pipeline > 1 && p->t->any_stream;
  s->at_grad[0] = region(&p->top, up || n >= 3 || lands ? carry : 0);
  s->at_grad[1] = region(&p->top, n >= 2 ? carry : 0);
  s->at_send_down = region(&p->top, message_bytes(s, down, carry));
  s->at_transient = region(&p->top, p->t->transient_bytes);
}

/* Where a share stands that lives elsewhere; of disks also the windows on the host. */
typedef struct away_place {
  int64_t host, file; /* -1: absent */
} away_place;

/* Adds it: on the host, or on disks with windows of `window_bytes` on the host. */
static away_place put_away(zp_memory *m, int windows, int64_t bytes, int64_t window_bytes) {
  away_place at = {-1, -1};
  if (bytes == 0) return at;
  at.host = m->host;
  if (windows > 0) {
    at.file = m->nvme;
    m->nvme += bytes;
  }
  m->host += windows > 0 ? windows * window_bytes : bytes;
  return at;
}

/* `bytes` more on the host; where. -1: none. */
static int64_t on_host(zp_memory *m, int64_t bytes) {
  int64_t at = m->host;
  m->host += bytes;
  return bytes > 0 ? at : -1;
}

/* Optimizer state, and what its update on the host works through. Only the windows that the pieces take turns in. */
static void place_state_away(placing *p, zp_memory *m) {
  const zp_lowered *l = p->l;
  zp_stage *s = p->s;
  int windows = p->room.windows[ZP_MOVE_OPTIMIZER];
  bool mixed = l->compute_bytes == 2, disk = windows > 0;
  int64_t state_bytes = l->state_bytes + (mixed ? 0 : l->param_bytes), gone = p->state.away;
  int64_t window = p->grads.away > 0 ? p->grads.of_bucket : p->bucket_shard; /* where gradients land */
  if (disk && window > 0) window = zp_round_up(window, ZP_PAGE_ELEMENTS);
  s->state_offloaded = gone;
  s->grads_offloaded = p->grads.gone;
  s->window_elements = gone > 0 || p->grads.away > 0 ? window : 0;
  bool delayed = l->spec->train.delayed && gone > 0;
  s->host_grads_in = on_host(m, delayed && p->grads.away == 0 ? 0 : 2 * s->window_elements * l->grad_bytes);
  s->host_weights_out = on_host(m, gone > 0 && mixed && !delayed ? 2 * window * l->param_bytes : 0);
  s->host_delayed = on_host(m, delayed ? gone * l->grad_bytes : 0);
  s->host_error = on_host(m, p->signs.host_error);
  s->host_server_error = on_host(m, p->signs.host_server_error);
  s->host_records = on_host(m, zp_round_up(p->signs.host_records, ZP_ALIGN_BYTES));
  int64_t pieces = gone > 0 ? (gone + window - 1) / window : 0, whole = zp_round_up(gone, ZP_PAGE_ELEMENTS);
  s->state_windows = pieces < windows ? pieces : windows;
  s->host_state = on_host(m, (disk ? s->state_windows * (window < whole ? window : whole) : gone) * state_bytes);
  s->file_state = disk && gone > 0 ? m->nvme : -1;
  if (disk) m->nvme += whole * state_bytes;
}

static void place_away(placing *p, int64_t saved_away) {
  const zp_lowered *l = p->l;
  const int *windows = p->room.windows;
  zp_memory *m = &p->s->memory;
  zp_stage *s = p->s;
  int64_t params = p->params.of_bucket, grads = p->grads.of_bucket;
  place_state_away(p, m);
  away_place at = put_away(m, windows[ZP_MOVE_GRADIENTS], p->grads.away * l->grad_bytes, grads * l->grad_bytes);
  s->host_grads = at.host;
  s->file_grads = at.file;
  s->grads_window = at.file < 0 ? 0 : grads;
  s->params_offloaded = p->params.gone;
  at = put_away(m, windows[ZP_MOVE_PARAMETERS], p->params.away * l->param_bytes, params * l->param_bytes);
  s->host_params = at.host;
  s->file_params = at.file;
  s->params_window = at.file < 0 ? 0 : params;
  bool disk = windows[ZP_MOVE_SAVED] > 0;
  if (saved_away > 0 && disk) {
    m->nvme = zp_round_up(m->nvme, ZP_PAGE_BYTES);
    m->host = zp_round_up(m->host, ZP_PAGE_BYTES);
  }
  p->s->away_slots = saved_away == 0 ? -1 : disk ? m->nvme : m->host;
  p->s->away_staging = saved_away > 0 && disk ? m->host : -1;
  put_away(m, windows[ZP_MOVE_SAVED], saved_away, p->t->unit_away_bytes);
}

void zp_place_regions(const zp_lowered *l, const zp_choice *choice, const zp_totals *t, zp_stage *s) {
  const zp_spec *spec = l->spec;
  placing p = {.l = l, .c = choice, .t = t, .s = s};
  zp_move_scope moves = {.lowered = l, .choice = choice, .cpu = spec->cluster.node.device.is_cpu, .run = -1};
  p.room = zp_move_room_of(&moves);
  int64_t m = zp_microbatches(spec, choice);
  s->n_units = t->units;
  s->n_calls = t->calls;
  s->memory = (zp_memory){.context = spec->cluster.node.device.context_bytes};
  size_flat_buffers(&p);
  place_flat_buffers(&p);
  int64_t before = p.top;
  s->reads_numbers = t->reads_numbers;
  int64_t mb_inputs =
      zp_model_inputs_bytes(spec->model, spec->model->inputs.len, l->microbatch, l->compute_bytes, t->reads_numbers);
  s->at_inputs = region(&p.top, m * mb_inputs);
  int64_t inputs = p.top - before;
  int64_t saved_away = place_slots(&p, m);
  before = p.top;
  place_buffers(&p, m);
  s->memory.buffers = inputs + p.top - before;
  s->arena_bytes = p.top;
  place_away(&p, saved_away);
}
