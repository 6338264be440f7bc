/* SPDX-License-Identifier: Apache-2.0 */
/* What the units of a stage need: found again from the model and the decisions, and from their procedures, of which
 * only saved, pending and transient bytes are taken (verify_procedures.c). */
#include "verify_internal.h"
#include <zplan/recipe.h>

#define LL(x) ((long long)(x))

/* What of `total` is not on the device, in pieces of `unit`. */
int64_t zp_verify_offloaded(const zp_verifier *v, zp_state state, int64_t total, int64_t unit) {
  int eighths = v->choice.home[state].eighths;
  return eighths == 8 ? total : total / 8 * eighths / unit * unit;
}

static bool multiplies(const zp_graph *g) {
  for (int i = 0; i < g->nodes.len; i++) {
    zp_op_class class = zp_op_get_class(g->nodes.data[i].op);
    if (class == ZP_CLASS_MATMUL || class == ZP_CLASS_GROUPED) return true;
  }
  return false;
}

/* What Muon's update of the largest matrix works in: a copy of it, and two squares of its shorter side. Of a matrix
 * that tensor ranks share all parts, and itself. With ZeRO a whole instance besides, and where those of
 * a run are no whole number for each data rank, room for one. */
static int64_t orthogonalised(const zp_verifier *v, const zp_graph *g, int64_t stride, int64_t count) {
  int64_t most = 0;
  for (int i = 0; i < g->params.len; i++) {
    int number = g->params.data[i].param;
    const zp_param *param = &v->spec->model->params.data[number];
    if (!zp_recipe_of(&v->spec->train, param).orthogonal) continue;
    int64_t a = param->shape.dim[0], b = param->shape.dim[1];
    bool shared = v->split_dim[number] >= 0 && v->choice.tensor > 1;
    if (!shared && v->split_dim[number] == 0) a = v->elements[number] / b;
    if (!shared && v->split_dim[number] == 1) b = v->elements[number] / a;
    int64_t side = a < b ? a : b;
    int64_t copy = zp_times(zp_times(a, b), v->stat_bytes), square = zp_times(zp_times(side, side), v->stat_bytes);
    int64_t parts = shared ? zp_times(zp_times(v->elements[number], v->choice.tensor), v->stat_bytes) : 0;
    most = zp_verify_max(most, zp_up(parts, 256) + zp_up(copy, 256) + zp_up(square, 256) + square);
  }
  if (most == 0 || v->choice.zero == 0 || zp_verify_sharers(v) < 2) return most;
  int64_t instance = zp_times(stride, v->stat_bytes);
  return zp_up(instance, 256) + (count % zp_verify_sharers(v) ? zp_verify_max(most, instance) : most);
}

/* What Adafactor keeps of a parameter: of a matrix, or of several, a number a row and one a column. */
static int64_t statistics_of(const zp_param *param) {
  int rank = param->shape.rank;
  int64_t n = zp_shape_elements(&param->shape, 1);
  if (param->frozen) return 0;
  return rank < 2 ? n : n / param->shape.dim[rank - 1] + n / param->shape.dim[rank - 2];
}

/* Two arrays of f64, for whole shares of tensor ranks and of data ranks. */
static int64_t statistics_room(const zp_verifier *v, int64_t n) {
  int64_t ranks = zp_times(v->choice.tensor, v->choice.data);
  return n == 0 ? 0 : zp_times(zp_up(n, ranks) + ranks, 16);
}

/* Parameters that several units share count once a stage. */
static void add_statistics(const zp_verifier *v, const zp_graph *g, int64_t count, zp_verify_needs *n) {
  int64_t own = 0;
  for (int i = 0; i < g->params.len; i++) {
    int number = g->params.data[i].param;
    const zp_param *param = &v->spec->model->params.data[number];
    int64_t here = statistics_of(param);
    if (param->segment >= 0) own += here;
    if (param->segment >= 0 || n->seen[number]) continue;
    n->seen[number] = true;
    n->statistics += here;
    n->transient = zp_verify_max(n->transient, statistics_room(v, here));
  }
  n->statistics += zp_times(own, count);
  n->transient = zp_verify_max(n->transient, statistics_room(v, own));
}

/* Is the node a product that takes its operands in 8 or 4 bits? Of programs, those of experts in layers, too. */
static bool takes_casts(const zp_verifier *v, const zp_node *node, bool repeat) {
  if (zp_op_get_class(node->op) == ZP_CLASS_MATMUL) return node->attr.float8;
  return zp_op_get_class(node->op) == ZP_CLASS_GROUPED && v->spec->cluster.software && repeat;
}

/* Weights of products in 8 or 4 bits: every unit casts its own, and those that it shares. */
static void add_casts(const zp_verifier *v, const zp_segment *segment, int64_t count, zp_verify_needs *n) {
  const zp_graph *g = segment->graph;
  for (int p = 0; p < g->params.len; p++) {
    int casts = 0, others = 0, param = g->params.data[p].param;
    for (int k = 0; k < g->nodes.len; k++) /* of forward alone: g has no others */
      for (int i = 0; i < g->nodes.data[k].in.len; i++)
        if (g->nodes.data[k].in.data[i] == g->params.data[p].tensor)
          *(takes_casts(v, &g->nodes.data[k], segment->is_repeat) ? &casts : &others) += 1;
    if (casts == 0) continue;
    n->narrow_weights += zp_times(v->elements[param], count);
    const zp_param *facts = &v->spec->model->params.data[param];
    if (others == 0 && facts->segment >= 0 && !facts->frozen)
      n->narrow_own.of[v->kind[param]] += zp_times(v->elements[param], count);
  }
}

static int64_t carried(const zp_verifier *v, const zp_graph *g, const zp_ints *carry) {
  int64_t elements = 0;
  for (int i = 0; i < carry->len; i++)
    elements += zp_shape_elements(&g->tensors.data[carry->data[i]].shape, v->choice.microbatch);
  return zp_verify_share(v, elements);
}

/* Adds one run; slot: bytes of the chunk's slot so far. */
static void add_needs(zp_verifier *v, int s, const zp_json *layer, zp_verify_needs *n, int64_t *slot, int64_t *gone,
                      int64_t *pending) {
  const zp_json *program = zp_claimed_program(v, s, layer);
  const zp_segment *segment = &v->pieces->piece[zp_claimed_piece(v, layer)].segment;
  int64_t count = zp_claim(layer, "count"), saved = zp_claim(program, "saved_bytes");
  int64_t page = v->choice.home[ZP_STATE_ACTIVATIONS].tier == ZP_TIER_NVME ? 4096 : 256;
  int64_t gone_of_unit = zp_verify_offloaded(v, ZP_STATE_ACTIVATIONS, saved, page), there = zp_up(gone_of_unit, page);
  if (zp_claim(layer, "saved") != *slot)
    zp_find(v, "stage %d: slot areas of `%s` start at %lld", s, segment->name, LL(zp_claim(layer, "saved")));
  if (zp_claim(layer, "pending") != *pending)
    zp_find(v, "stage %d: what waits of `%s` starts at %lld", s, segment->name, LL(zp_claim(layer, "pending")));
  if (zp_claim(layer, "saved_offloaded") != *gone)
    zp_find(v, "stage %d: slot areas of `%s` off the device start at %lld", s, segment->name,
            LL(zp_claim(layer, "saved_offloaded")));
  *slot += zp_times(count, saved - gone_of_unit);
  *gone += zp_times(count, there);
  *pending += zp_times(count, zp_claim(program, "pending_bytes"));
  n->unit_saved = zp_verify_max(n->unit_saved, saved);
  n->unit_offloaded = zp_verify_max(n->unit_offloaded, there);
  n->transient = zp_verify_max(n->transient, zp_claim(zp_json_get(program, "forward"), "transient_bytes"));
  n->transient = zp_verify_max(n->transient, zp_claim(zp_json_get(program, "backward"), "transient_bytes"));
  if (zp_json_get(program, "loss"))
    n->transient = zp_verify_max(n->transient, zp_claim(zp_json_get(program, "loss"), "transient_bytes"));
  n->transient = zp_verify_max(n->transient, orthogonalised(v, segment->graph, zp_claim(layer, "stride"), count));
  if (zp_optimizer_facts(&v->spec->train)->needs == ZP_NEEDS_STATISTICS) add_statistics(v, segment->graph, count, n);
  add_casts(v, segment, count, n);
  n->carry = zp_verify_max(n->carry, carried(v, segment->graph, &segment->graph->carry_in));
  n->carry = zp_verify_max(n->carry, carried(v, segment->graph, &segment->graph->carry_out));
  n->products |= multiplies(segment->graph);
  n->numbers |= zp_graph_reads_numbers(segment->graph);
  n->shards |= zp_claim(program, "carry_kept_elements") < zp_claim_own(program);
}

/* Bytes at the beginning of a chunk's slots: every stream that comes into one of its units, once. */
static int64_t stream_bytes(zp_verifier *v, const zp_json *layers, int chunk) {
  int64_t bytes = 0;
  uint64_t counted = 0;
  for (int r = 0; r < zp_json_count(layers); r++) {
    const zp_json *layer = zp_json_at(layers, r);
    int segment = zp_claimed_piece(v, layer);
    const zp_ints *carry = &v->pieces->piece[segment].segment.graph->carry_in;
    for (int i = 0; i < carry->len && zp_claim(layer, "chunk") == chunk; i++) {
      int stream = zp_verify_stream(v, segment, i);
      if (stream < 0 || counted >> stream & 1) continue;
      counted |= UINT64_C(1) << stream;
      bytes += zp_up(zp_times(zp_verify_stream_elements(v, segment, i), v->compute_bytes), 256);
    }
  }
  return bytes;
}

/* A chunk's slots hold what the order tables have in flight; more would only cost memory, which the budget bounds. */
static void check_chunk(zp_verifier *v, int s, int k, const zp_json *chunk, int64_t slot, int64_t gone,
                        int64_t pending) {
  const struct {
    const char *count, *stride, *what;
    int64_t most, bytes;
  } kind[] = {
      {"slots", "slot_stride", "in flight", v->played.in_flight[s * v->chunks + k], slot},
      {"pending", "pending_stride", "waiting for weight gradients", v->played.pending[s * v->chunks + k], pending}};
  for (int i = 0; i < 2; i++) {
    if (zp_claim(chunk, kind[i].count) < kind[i].most)
      zp_find(v, "stage %d, chunk %d has %lld micro-batches %s and %lld slots", s, k, LL(kind[i].most), kind[i].what,
              LL(zp_claim(chunk, kind[i].count)));
    if (zp_claim(chunk, kind[i].stride) != kind[i].bytes)
      zp_find(v, "stage %d, chunk %d: a slot needs %lld bytes, the file says %lld", s, k, LL(kind[i].bytes),
              LL(zp_claim(chunk, kind[i].stride)));
  }
  if (zp_claim(chunk, "offloaded_stride") != gone)
    zp_find(v, "stage %d, chunk %d: a slot has %lld bytes off the device, the file says %lld", s, k, LL(gone),
            LL(zp_claim(chunk, "offloaded_stride")));
}

zp_verify_needs zp_verify_find_needs(zp_verifier *v, int s, const zp_json *stage) {
  const zp_json *layers = zp_json_get(stage, "layers"), *chunks = zp_json_get(stage, "chunks");
  zp_verify_needs n = {.seen = ZP_NEW_ARRAY(v->arena, bool, v->spec->model->params.len + 1)};
  for (int k = 0; k < v->chunks; k++) {
    const zp_json *chunk = zp_json_at(chunks, k);
    int64_t slot = stream_bytes(v, layers, k), gone = 0, pending = 0, calls = 0;
    n.streams |= slot > 0;
    for (int r = 0; r < zp_json_count(layers); r++) {
      const zp_json *layer = zp_json_at(layers, r);
      if (zp_claim(layer, "chunk") != k) continue;
      add_needs(v, s, layer, &n, &slot, &gone, &pending);
      calls += zp_claim(layer, "count");
    }
    check_chunk(v, s, k, chunk, slot, gone, pending);
    n.slots += zp_times(zp_claim(chunk, "slots"), slot);
    n.largest_slot = zp_verify_max(n.largest_slot, slot);
    n.offloaded += zp_times(zp_claim(chunk, "slots"), gone);
    n.largest_offloaded = zp_verify_max(n.largest_offloaded, gone);
    n.pending += zp_times(zp_claim(chunk, "pending"), zp_up(pending, 256));
    n.most_calls = zp_verify_max(n.most_calls, calls);
  }
  return n;
}

/* Bytes of all slots on the device, own ones of every chunk, or one pool; *gone: elsewhere. */
int64_t zp_verify_slot_bytes(zp_verifier *v, int s, const zp_json *arena, const zp_verify_needs *n, int64_t *gone) {
  int64_t slots = zp_claim(arena, "slots");
  if (slots < v->played.pool[s])
    zp_find(v, "stage %d has %lld slots, %lld micro-batches are in flight", s, LL(slots), LL(v->played.pool[s]));
  if (zp_claim(arena, "slot_stride") != n->largest_slot)
    zp_find(v, "stage %d: a slot needs %lld bytes, the file says %lld", s, LL(n->largest_slot),
            LL(zp_claim(arena, "slot_stride")));
  if (zp_claim(arena, "offloaded_stride") != n->largest_offloaded)
    zp_find(v, "stage %d: a slot has %lld bytes off the device, the file says %lld", s, LL(n->largest_offloaded),
            LL(zp_claim(arena, "offloaded_stride")));
  bool pooled = zp_json_get_bool(arena, "pooled", false);
  *gone = pooled ? zp_times(slots, n->largest_offloaded) : n->offloaded;
  return pooled ? zp_times(slots, n->largest_slot) : n->slots;
}
