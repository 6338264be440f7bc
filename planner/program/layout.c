/* SPDX-License-Identifier: Apache-2.0 */
/* What a stage holds: its units, their parameters in the flat buffers, and what they add up to. regions.c places that
 * in the arena. zp_stage_footprint is the same arithmetic without the tables, for the search.
 *
 * Flat buffers: shared parameters first, then unit after unit; after all that the same for what is spread over expert
 * groups, and last, in the buffer of parameters alone, the same for what is not trained. ZeRO shards them in buckets:
 * what a unit has of its own, and every shared parameter alone, because a unit uses some of these and stages share a
 * few of them. So each of them is padded to whole shards of 64 elements. */
#include "layout_internal.h"
#include <zplan/recipe.h>

#include <assert.h>

void zp_unit(const zp_lowered *lowered, int64_t unit, int *segment, int64_t *iteration) {
  assert(segment && iteration);
  zp_pieces_unit(lowered->pieces, unit, segment, iteration);
}

int64_t zp_microbatches(const zp_spec *spec, const zp_choice *choice) {
  int64_t sequences = zp_replicas(choice) * choice->microbatch; /* of all replicas at once */
  assert(sequences > 0);
  return spec->train.batch / sequences;
}

int zp_stage_carry_index(int64_t j) {
  assert(j >= 0);
  return (int)(j % 2);
}
int zp_stage_grad_index(int64_t n, int64_t j) {
  assert(j >= -1 && j < n);
  return (int)((n - 1 - j) % 2);
}

int64_t zp_stage_shared(const zp_stage *stage, int param) {
  assert(param >= 0);
  for (int i = 0; i < stage->shared.len; i++)
    if (stage->shared.data[i].param == param) return stage->shared.data[i].offset;
  return -1;
}

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static bool on_disk(const zp_choice *c, zp_state state) {
  return c->home[state].eighths > 0 && c->home[state].tier == ZP_TIER_NVME;
}

int64_t zp_shard_align(const zp_choice *c) {
  return on_disk(c, ZP_STATE_PARAMS) || on_disk(c, ZP_STATE_GRADIENTS) ? ZP_PAGE_ELEMENTS : ZP_ALIGN_ELEMENTS;
}

/* Padded to whole shards where data ranks own pieces of it. */
static int64_t padded(const zp_choice *c, zp_param_kind kind, int64_t elements) {
  return elements == 0 ? 0 : zp_round_up(elements, zp_shard_align(c) * zp_owners(c, kind));
}

static zp_flat unit_elements(const zp_lowered *l, const zp_choice *c, int segment) {
  zp_flat elements = l->segments[segment].elements;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) elements.of[kind] = padded(c, kind, elements.of[kind]);
  return elements;
}

/* Elements of a parameter declared outside repeats, as the flat buffers have them: of its kind. */
static int64_t shared_elements(const zp_lowered *l, const zp_choice *c, int param, zp_param_kind kind) {
  return padded(c, kind, zp_round_up(l->param_elements[param], ZP_ALIGN_ELEMENTS));
}

/* What one unit works with: its buckets together (zp_unit_buckets). own: unit_elements. */
static zp_flat unit_needs(const zp_lowered *l, const zp_choice *c, int segment, const zp_flat *own) {
  zp_flat needs = *own;
  for (int i = 0; i < l->shared.len; i++) {
    int param = l->shared.data[i];
    zp_param_kind kind = zp_kind_of(l, param);
    if (l->segments[segment].uses_shared[i]) needs.of[kind] += shared_elements(l, c, param, kind);
  }
  return needs;
}

/* Kind after kind: its own parameters, then the shared ones. */
bool zp_next_bucket(const zp_lowered *l, const zp_choice *c, int segment, zp_bucket_walk *walk) {
  assert(segment >= 0 && segment < l->n_segments);
  assert(walk->next >= 0);
  int n = 1 + l->shared.len;
  while (walk->next < ZP_KINDS * n) {
    int i = walk->next % n - 1, param = i < 0 ? -1 : l->shared.data[i];
    zp_param_kind kind = (zp_param_kind)(walk->next / n);
    walk->next++;
    if (i >= 0 && !l->segments[segment].uses_shared[i]) continue;
    int64_t elements = i < 0                          ? padded(c, kind, l->segments[segment].elements.of[kind])
                       : zp_kind_of(l, param) == kind ? shared_elements(l, c, param, kind)
                                                      : 0;
    if (elements == 0) continue;
    walk->bucket = (zp_bucket){param, kind, elements, walk->end};
    walk->end += elements;
    return true;
  }
  return false;
}

int zp_unit_buckets(const zp_lowered *l, const zp_choice *c, int segment, zp_bucket *out) {
  assert(out);
  zp_bucket_walk walk = {0};
  int n = 0;
  while (zp_next_bucket(l, c, segment, &walk)) out[n++] = walk.bucket;
  return n;
}

int64_t zp_tied_elements(const zp_lowered *l, const zp_choice *c, int param) {
  zp_param_kind kind = zp_kind_of(l, param);
  assert(param >= 0 && zp_kinds[kind].trained);
  int64_t all = shared_elements(l, c, param, kind);
  if (!zp_shards_state(c) || zp_moves_take_all(c)) return zp_moves_gradients(c) ? all : l->param_elements[param];
  return all / zp_owners(c, kind);
}

static void for_pieces(const zp_lowered *l, zp_units units, zp_on_piece *fn, void *arg) {
  zp_pieces_walk(l->pieces, units.first, units.first + units.count, fn, arg);
}

/* Calls on_run for what a chunk runs: of a mixed stage the first layers and the others by themselves. */
typedef void on_run(void *user, const zp_lowered *runs, int segment, int64_t first, int64_t count);
typedef struct mixed_walk {
  const zp_lowered *l;
  int64_t left; /* of the first layers */
  on_run *fn;
  void *user;
} mixed_walk;

static void on_piece(void *arg, int segment, int64_t first, int64_t count) {
  mixed_walk *w = arg;
  int64_t here = w->l->segments[segment].segment->is_repeat && w->left < count ? w->left : count;
  if (here > 0) w->fn(w->user, w->l, segment, first, here);
  if (here < count) w->fn(w->user, w->l->rest, segment, first + here, count - here);
  if (w->l->segments[segment].segment->is_repeat) w->left -= here;
}

static void on_plain_piece(void *arg, int segment, int64_t first, int64_t count) {
  const mixed_walk *w = arg;
  w->fn(w->user, w->l, segment, first, count);
}

static void for_runs(const zp_lowered *l, zp_units units, on_run *fn, void *user) {
  mixed_walk w = {l, l->layers, fn, user};
  for_pieces(l, units, l->rest ? on_piece : on_plain_piece, &w);
}

/* ---- shared parameters ---- */

typedef struct looking_for {
  const zp_lowered *l;
  int shared;
  bool found;
} looking_for;

static void find_use(void *arg, int segment, int64_t first, int64_t count) {
  looking_for *x = arg;
  (void)first, (void)count;
  x->found |= x->l->segments[segment].uses_shared[x->shared];
}

static bool any_part_uses(const zp_lowered *l, const zp_units *part, int n_parts, int shared) {
  looking_for x = {l, shared, false};
  for (int k = 0; k < n_parts && !x.found; k++) for_pieces(l, part[k], find_use, &x);
  return x.found;
}

/* Which of the first shared parameters the parts use, where that is known. */
enum { MOST_NOTED = 64 };

static bool is_used(const zp_lowered *l, const zp_choice *c, const zp_units *part, const uint64_t *noted, int shared) {
  return noted && shared < MOST_NOTED ? *noted >> shared & 1 : any_part_uses(l, part, zp_chunks(c), shared);
}

/* Elements of the shared parameters that the parts use, each once a stage. noted: of the first MOST_NOTED ones, NULL:
 * not known yet. out may be NULL, else it has its regions. */
static zp_flat all_shared(const zp_lowered *l, const zp_choice *c, const zp_units *part, const uint64_t *noted,
                          zp_arena *arena, zp_stage *out) {
  zp_flat elements = {{0}}, all = out ? out->flat : elements;
  for (int i = 0; i < l->shared.len; i++) {
    if (!is_used(l, c, part, noted, i)) continue;
    int param = l->shared.data[i];
    zp_param_kind kind = zp_kind_of(l, param);
    zp_shared shared = {param, zp_flat_before(&all, kind) + elements.of[kind]};
    if (out) zp_push(arena, &out->shared, shared);
    elements.of[kind] += shared_elements(l, c, param, kind);
  }
  return elements;
}

/* ---- what the parts add up to ---- */

/* What one unit of a segment adds. */
typedef struct unit_sums {
  int segment; /* -1: of none yet */
  const zp_lowered *runs;
  zp_flat elements;
  int64_t slot_bytes, offloaded_bytes, pending_bytes;
  uint64_t streams;
} unit_sums;

typedef struct adding {
  const zp_lowered *l;
  const zp_choice *c;
  zp_totals *t;
  unit_sums unit;                                            /* of the last segment: chunks often have the same one */
  uint64_t noted;                                            /* shared parameters in use */
  int64_t slot_bytes, offloaded_bytes, pending_bytes, calls; /* of the current chunk */
  uint64_t streams;
} adding;

static zp_flat most(zp_flat a, zp_flat b) {
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) a.of[kind] = max64(a.of[kind], b.of[kind]);
  return a;
}

/* The most of all units, and what each of this segment adds. */
static void note_unit(adding *a, const zp_lowered *runs, int segment) {
  const zp_segment_program *s = &runs->segments[segment];
  int64_t offloaded = zp_saved_offloaded(a->c, s->saved_bytes);
  zp_totals *t = a->t;
  a->unit = (unit_sums){.segment = segment,
                        .runs = runs,
                        .elements = unit_elements(a->l, a->c, segment),
                        .slot_bytes = s->saved_bytes - offloaded,
                        .offloaded_bytes = zp_saved_offloaded_stride(a->c, s->saved_bytes),
                        .pending_bytes = zp_unit_pending_bytes(s, a->c)};
  for (int i = 0; i < s->graph->carry_in.len; i++)
    if (s->carries[i].stream >= 0) a->unit.streams |= UINT64_C(1) << s->carries[i].stream;
  for (int i = 0; i < a->l->shared.len && i < MOST_NOTED; i++)
    if (s->uses_shared[i]) a->noted |= UINT64_C(1) << i;
  t->bucket = most(t->bucket, unit_needs(a->l, a->c, segment, &a->unit.elements));
  t->transient_bytes = max64(t->transient_bytes, zp_transient_bytes(s, a->c->schedule));
  t->products_bytes = max64(t->products_bytes, s->products_bytes);
  t->reads_numbers |= s->reads_numbers;
  t->any_shard |= !zp_keeps_input(s);
  t->carry_elements = max64(t->carry_elements, max64(s->carry_in_elements, s->carry_out_elements));
  t->unit_saved_bytes = max64(t->unit_saved_bytes, s->saved_bytes);
  t->unit_offloaded_bytes = max64(t->unit_offloaded_bytes, a->unit.offloaded_bytes);
}

static void add_totals(void *arg, const zp_lowered *runs, int segment, int64_t first, int64_t count) {
  adding *a = arg;
  zp_totals *t = a->t;
  (void)first;
  if (a->unit.segment != segment || a->unit.runs != runs) note_unit(a, runs, segment);
  zp_flat_add(&t->all, &a->unit.elements, count);
  t->transient_bytes = max64(t->transient_bytes, zp_moves_transient(a->l, a->c, segment, count));
  t->statistics += a->l->segments[segment].statistics * count;
  t->narrow_weights += a->l->segments[segment].narrow_weights * count;
  zp_flat_add(&t->narrow_own, &a->l->segments[segment].narrow_own, count);
  a->streams |= a->unit.streams;
  a->slot_bytes += a->unit.slot_bytes * count;
  a->offloaded_bytes += a->unit.offloaded_bytes * count;
  a->pending_bytes += a->unit.pending_bytes * count;
  a->calls += count;
}

static void add_shared_statistics(adding *a, const zp_units *part) {
  for (int i = 0; i < a->l->shared.len; i++) {
    if (!is_used(a->l, a->c, part, &a->noted, i)) continue;
    int64_t n = zp_statistics(&a->l->spec->train, &a->l->spec->model->params.data[a->l->shared.data[i]]);
    a->t->transient_bytes = max64(a->t->transient_bytes, zp_statistics_room(a->c, n));
    a->t->statistics += n;
  }
}

/* flight: of the stage's chunks; NULL: not known yet. */
static zp_totals find_totals(const zp_lowered *l, const zp_choice *c, int stage, const zp_units *part,
                             const int64_t *flight, zp_chunk *chunks) {
  int64_t m = zp_microbatches(l->spec, c);
  zp_totals t = {.units = 0};
  adding a = {.l = l, .c = c, .t = &t, .unit.segment = -1};
  for (int k = 0; k < zp_chunks(c); k++) {
    a.slot_bytes = a.offloaded_bytes = a.pending_bytes = a.calls = 0;
    a.streams = 0;
    for_runs(l, part[k], add_totals, &a);
    a.slot_bytes += zp_stream_at(l, a.streams, ZP_MOST_STREAMS);
    t.any_stream |= a.streams != 0;
    int64_t slots = flight ? flight[k] : zp_in_flight_chunk(c, stage, k, m);
    zp_chunk chunk = {.units = part[k],
                      .slots = slots,
                      .slot_stride = a.slot_bytes,
                      .offloaded_stride = a.offloaded_bytes,
                      .streams = a.streams,
                      .pending = zp_pending_chunk(c, stage, k, m),
                      .pending_stride = a.pending_bytes};
    t.slot_bytes += chunk.slots * chunk.slot_stride;
    t.largest_slot = max64(t.largest_slot, chunk.slot_stride);
    t.offloaded_bytes += chunk.slots * chunk.offloaded_stride;
    t.largest_offloaded = max64(t.largest_offloaded, chunk.offloaded_stride);
    t.pending_bytes += chunk.pending * zp_chunk_pending_stride(&chunk);
    t.most_calls = max64(t.most_calls, a.calls);
    t.calls += a.calls;
    t.units += part[k].count;
    if (chunks) chunks[k] = chunk;
  }
  if (zp_optimizer_facts(&l->spec->train)->needs == ZP_NEEDS_STATISTICS) add_shared_statistics(&a, part);
  t.shared = all_shared(l, c, part, &a.noted, NULL, NULL);
  zp_flat_add(&t.all, &t.shared, 1);
  return t;
}

zp_memory zp_stage_footprint(const zp_lowered *lowered, const zp_choice *choice, int stage, const zp_units *part,
                             const int64_t *flight) {
  assert(zp_choice_has_stage(choice, stage) && part);
  zp_stage s = {.index = stage};
  zp_totals t = find_totals(lowered, choice, stage, part, flight, NULL);
  zp_place_regions(lowered, choice, &t, &s);
  s.memory.context = s.memory.communicators = 0;
  return s.memory;
}

zp_inner_stage zp_inner_footprint(const zp_lowered *lowered, const zp_choice *choice, int stage, const zp_units *part) {
  assert(zp_chunks(choice) == 1 && stage > 0 && stage < choice->pipeline - 1);
  zp_stage s = {.index = stage};
  zp_chunk chunk;
  zp_totals t = find_totals(lowered, choice, stage, part, NULL, &chunk);
  zp_place_regions(lowered, choice, &t, &s);
  s.memory.context = s.memory.communicators = 0;
  return (zp_inner_stage){
      s.memory, chunk.slots, chunk.pending, chunk.slot_stride, chunk.offloaded_stride, zp_chunk_pending_stride(&chunk)};
}

/* Slots are whole numbers of aligned bytes, so a region grows by just that. */
zp_memory zp_inner_memory(const zp_inner_stage *known, const zp_spec *spec, const zp_choice *choice, int stage) {
  assert(stage > 0 && stage < choice->pipeline - 1);
  int64_t m = zp_microbatches(spec, choice), more = zp_in_flight_chunk(choice, stage, 0, m) - known->flight;
  zp_memory memory = known->memory;
  memory.saved += more * known->slot + (zp_pending_chunk(choice, stage, 0, m) - known->pending) * known->pending_slot;
  *(choice->home[ZP_STATE_ACTIVATIONS].tier == ZP_TIER_NVME ? &memory.nvme : &memory.host) +=
      more * known->offloaded_slot;
  return memory;
}

int64_t zp_memory_of_arena(const zp_memory *m) {
  return m->weights + m->gradients + m->optimizer + m->saved + m->buffers;
}

int64_t zp_memory_on_device(const zp_memory *m) { return zp_memory_of_arena(m) + m->communicators; }

int64_t zp_stage_bytes(const zp_lowered *lowered, const zp_choice *choice, int stage, int64_t first_unit,
                       int64_t n_units) {
  assert(n_units >= 1);
  assert(zp_chunks(choice) == 1);
  zp_memory memory = zp_stage_footprint(lowered, choice, stage, &(zp_units){first_unit, n_units}, NULL);
  return zp_memory_of_arena(&memory);
}

int64_t zp_most_of_a_node(const zp_choice *choice, int devices_per_node, const int64_t *stage_bytes) {
  assert(zp_choice_has_degrees(choice) && devices_per_node >= 1 && stage_bytes);
  int64_t ranks = (int64_t)choice->tensor * choice->data * choice->pipeline, block = zp_stage_block(choice), most = 0;
  for (int64_t first = 0; first < ranks; first += devices_per_node) {
    int64_t end = first + devices_per_node < ranks ? first + devices_per_node : ranks, sum = 0, to;
    for (int64_t from = first; from < end; from = to) {
      to = (from / block + 1) * block < end ? (from / block + 1) * block : end;
      sum += (to - from) * stage_bytes[zp_stage_of_rank(choice, from)];
    }
    most = max64(most, sum);
  }
  return most;
}

/* ---- the tables ---- */

struct runs_arg {
  zp_arena *arena;
  const zp_lowered *l;
  const zp_choice *c;
  zp_stage *s;
  int chunk;
  zp_flat base;
  int64_t saved, saved_offloaded, pending;
};
static void add_run(void *arg, const zp_lowered *runs, int segment, int64_t first, int64_t count) {
  struct runs_arg *a = arg;
  zp_flat stride = unit_elements(a->l, a->c, segment);
  zp_run run = {.segment = segment,
                .rest = runs != a->l,
                .first = first,
                .count = count,
                .chunk = a->chunk,
                .base = a->base,
                .stride = stride,
                .saved = a->saved,
                .saved_offloaded = a->saved_offloaded,
                .pending = a->pending};
  zp_push(a->arena, &a->s->runs, run);
  zp_flat_add(&a->base, &stride, count);
  int64_t saved = runs->segments[segment].saved_bytes, offloaded = zp_saved_offloaded(a->c, saved);
  a->saved += (saved - offloaded) * count;
  a->saved_offloaded += zp_saved_offloaded_stride(a->c, saved) * count;
  a->pending += zp_unit_pending_bytes(&runs->segments[segment], a->c) * count;
}

/* Model chunk k runs units cut[k] .. cut[k + 1]. */
static void find_parts(const zp_choice *c, int stage, zp_units *part) {
  for (int chunk = 0; chunk < zp_chunks(c); chunk++) {
    int64_t k = zp_model_chunk(c, stage, chunk);
    part[chunk] = (zp_units){c->cut[k], c->cut[k + 1] - c->cut[k]};
  }
}

void zp_layout_stage(zp_arena *arena, const zp_lowered *lowered, const zp_choice *choice, int stage, zp_stage *out) {
  assert(zp_choice_has_stage(choice, stage) && choice->cut && out);
  int n = zp_chunks(choice);
  zp_units *part = ZP_NEW_ARRAY(arena, zp_units, n);
  find_parts(choice, stage, part);
  *out = (zp_stage){.index = stage, .first_unit = part[0].first, .n_chunks = n};
  out->chunks = ZP_NEW_ARRAY(arena, zp_chunk, n);
  zp_totals t = find_totals(lowered, choice, stage, part, NULL, out->chunks);
  zp_place_regions(lowered, choice, &t, out);
  out->memory.communicators = zp_communicators_of(&lowered->spec->cluster, choice, lowered->ties).total_bytes;
  all_shared(lowered, choice, part, NULL, arena, out);
  struct runs_arg runs = {.arena = arena, .l = lowered, .c = choice, .s = out, .base = t.shared};
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) runs.base.of[kind] += zp_flat_before(&out->flat, kind);
  for (int k = 0; k < n; k++) {
    runs.chunk = k;
    runs.saved = zp_stream_at(lowered, out->chunks[k].streams, ZP_MOST_STREAMS);
    runs.saved_offloaded = runs.pending = 0;
    for_runs(lowered, part[k], add_run, &runs);
  }
}
