/* The arena of every stage in a plan file: regions, memory classes, what lives on host and disks, budgets. Every size
 * is found again from the model and the decisions; of the procedures only saved, pending and transient bytes are taken
 * (verify_procedures.c). */
#include <zplan/schedule.h>
#include "verify_internal.h"

#define LL(x) ((long long)(x))

/* ---- regions ---- */

typedef struct region {
  const char *name;
  int64_t at, bytes;
} region;

static void check_regions(zp_verifier *v, int s, const region *r, int n, int64_t bytes) {
  int64_t end = 0;
  for (int i = 0; i < n; i++) {
    if (r[i].bytes <= 0) {
      if (r[i].at != -1) zp_find(v, "stage %d: %s is placed but has no bytes", s, r[i].name);
      continue;
    }
    if (r[i].at < 0 || r[i].at % 256 != 0) zp_find(v, "stage %d: %s stands at byte %lld", s, r[i].name, LL(r[i].at));
    for (int k = 0; k < i; k++)
      if (r[k].bytes > 0 && r[i].at < r[k].at + r[k].bytes && r[k].at < r[i].at + r[i].bytes)
        zp_find(v, "stage %d: %s and %s overlap", s, r[k].name, r[i].name);
    if (end < r[i].at + r[i].bytes) end = r[i].at + r[i].bytes;
  }
  if (end != bytes) zp_find(v, "stage %d: the arena is %lld bytes, its regions end at %lld", s, LL(bytes), LL(end));
}

/* What of `total` is not on the device, in pieces of `unit`. */
static int64_t away(const zp_verifier *v, zp_state state, int64_t total, int64_t unit) {
  int eighths = v->choice.home[state].eighths;
  return eighths == 8 ? total : total / 8 * eighths / unit * unit;
}

/* What a rank holds for all owners has as much of every owner's off the device; what is spread over expert groups
 * leaves first. */
static int64_t of_all_owners(const zp_flat_sizes *sizes, int64_t gone) {
  int64_t elements = 0;
  for (zp_param_kind kind = ZP_KIND_FROZEN; kind-- > 0;) {
    int64_t own = sizes->own.of[kind], part = gone < own ? gone : own;
    if (part > 0) elements += part * (sizes->all.of[kind] / own);
    gone -= part;
  }
  return elements;
}

/* ---- what the stage's units need, from the model and from their (verified) procedures ---- */

typedef struct needs {
  int64_t slots, largest_slot, pending, transient, unit_saved; /* bytes, of slots on the device */
  int64_t away, largest_away, unit_away;                       /* of slots elsewhere */
  int64_t carry, most_calls; /* elements; calls of procedures in the chunk with most of them */
  int64_t statistics;        /* Adafactor's */
  bool *seen;                /* of the parameters: those that units share and that are in it */
  bool products;             /* some unit multiplies matrices */
  bool numbers;              /* some unit reads inputs that are numbers */
  bool shards;               /* some unit keeps its input as shards: the forward ping-pong exists */
  bool streams;              /* some come into a unit */
} needs;

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

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
    most = max64(most, zp_up(parts, 256) + zp_up(copy, 256) + zp_up(square, 256) + square);
  }
  if (most == 0 || v->choice.zero == 0 || v->choice.data < 2) return most;
  int64_t instance = zp_times(stride, v->stat_bytes);
  return zp_up(instance, 256) + (count % v->choice.data ? max64(most, instance) : most);
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
static void add_statistics(const zp_verifier *v, const zp_graph *g, int64_t count, needs *n) {
  int64_t own = 0;
  for (int i = 0; i < g->params.len; i++) {
    int number = g->params.data[i].param;
    const zp_param *param = &v->spec->model->params.data[number];
    int64_t here = statistics_of(param);
    if (param->segment >= 0) own += here;
    if (param->segment >= 0 || n->seen[number]) continue;
    n->seen[number] = true;
    n->statistics += here;
    n->transient = max64(n->transient, statistics_room(v, here));
  }
  n->statistics += zp_times(own, count);
  n->transient = max64(n->transient, statistics_room(v, own));
}

static int64_t carried(const zp_verifier *v, const zp_graph *g, const zp_ints *carry) {
  int64_t elements = 0;
  for (int i = 0; i < carry->len; i++)
    elements += zp_shape_elements(&g->tensors.data[carry->data[i]].shape, v->choice.microbatch);
  return v->choice.sequence ? elements / v->choice.tensor : elements;
}

/* Adds one run; slot: bytes of the chunk's slot so far. */
static void add_needs(zp_verifier *v, int s, const zp_json *layer, needs *n, int64_t *slot, int64_t *gone,
                      int64_t *pending) {
  const zp_json *program = zp_claimed_program(v, s, layer);
  const zp_segment *segment = &v->pieces->piece[zp_claimed_piece(v, layer)].segment;
  int64_t count = zp_claim(layer, "count"), saved = zp_claim(program, "saved_bytes");
  int64_t page = v->choice.home[ZP_STATE_ACTIVATIONS].tier == ZP_TIER_NVME ? 4096 : 256;
  int64_t gone_of_unit = away(v, ZP_STATE_ACTIVATIONS, saved, page), there = zp_up(gone_of_unit, page);
  if (zp_claim(layer, "saved") != *slot)
    zp_find(v, "stage %d: slot areas of `%s` start at %lld", s, segment->name, LL(zp_claim(layer, "saved")));
  if (zp_claim(layer, "pending") != *pending)
    zp_find(v, "stage %d: what waits of `%s` starts at %lld", s, segment->name, LL(zp_claim(layer, "pending")));
  if (zp_claim(layer, "saved_away") != *gone)
    zp_find(v, "stage %d: off the device slot areas of `%s` start at %lld", s, segment->name,
            LL(zp_claim(layer, "saved_away")));
  *slot += zp_times(count, saved - gone_of_unit);
  *gone += zp_times(count, there);
  *pending += zp_times(count, zp_claim(program, "pending_bytes"));
  n->unit_saved = max64(n->unit_saved, saved);
  n->unit_away = max64(n->unit_away, there);
  n->transient = max64(n->transient, zp_claim(zp_json_get(program, "forward"), "transient_bytes"));
  n->transient = max64(n->transient, zp_claim(zp_json_get(program, "backward"), "transient_bytes"));
  if (zp_json_get(program, "loss"))
    n->transient = max64(n->transient, zp_claim(zp_json_get(program, "loss"), "transient_bytes"));
  n->transient = max64(n->transient, orthogonalised(v, segment->graph, zp_claim(layer, "stride"), count));
  if (v->spec->train.optimizer == ZP_OPT_ADAFACTOR) add_statistics(v, segment->graph, count, n);
  n->carry = max64(n->carry, carried(v, segment->graph, &segment->graph->carry_in));
  n->carry = max64(n->carry, carried(v, segment->graph, &segment->graph->carry_out));
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
  if (zp_claim(chunk, "away_stride") != gone)
    zp_find(v, "stage %d, chunk %d: a slot has %lld bytes off the device, the file says %lld", s, k, LL(gone),
            LL(zp_claim(chunk, "away_stride")));
}

static needs find_needs(zp_verifier *v, int s, const zp_json *stage) {
  const zp_json *layers = zp_json_get(stage, "layers"), *chunks = zp_json_get(stage, "chunks");
  needs n = {.seen = ZP_NEW_ARRAY(v->arena, bool, v->spec->model->params.len + 1)};
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
    n.largest_slot = max64(n.largest_slot, slot);
    n.away += zp_times(zp_claim(chunk, "slots"), gone);
    n.largest_away = max64(n.largest_away, gone);
    n.pending += zp_times(zp_claim(chunk, "pending"), zp_up(pending, 256));
    n.most_calls = max64(n.most_calls, calls);
  }
  return n;
}

/* Bytes of all slots on the device, own ones of every chunk, or one pool; *gone: elsewhere. */
static int64_t slot_bytes(zp_verifier *v, int s, const zp_json *arena, const needs *n, int64_t *gone) {
  int64_t slots = zp_claim(arena, "slots");
  if (slots < v->played.pool[s])
    zp_find(v, "stage %d has %lld slots, %lld micro-batches are in flight", s, LL(slots), LL(v->played.pool[s]));
  if (zp_claim(arena, "slot_stride") != n->largest_slot)
    zp_find(v, "stage %d: a slot needs %lld bytes, the file says %lld", s, LL(n->largest_slot),
            LL(zp_claim(arena, "slot_stride")));
  if (zp_claim(arena, "away_stride") != n->largest_away)
    zp_find(v, "stage %d: a slot has %lld bytes off the device, the file says %lld", s, LL(n->largest_away),
            LL(zp_claim(arena, "away_stride")));
  bool pooled = zp_json_get_bool(arena, "pooled", false);
  *gone = pooled ? zp_times(slots, n->largest_away) : n->away;
  return pooled ? zp_times(slots, n->largest_slot) : n->slots;
}

/* ---- homes ---- */

/* Where a class stands in the file; -1: not there. */
static int64_t add_away(zp_verifier *v, int s, zp_state state, int64_t bytes, int64_t staged) {
  bool disk = v->choice.home[state].tier == ZP_TIER_NVME;
  int64_t at = v->nvme[s];
  if (bytes == 0) return -1;
  if (disk) v->nvme[s] += bytes;
  v->host[s] += disk ? 4 * staged : bytes;
  return disk ? at : -1;
}

/* Optimizer state off the device, and what its update goes through. */
typedef struct state_home {
  int64_t state, grads, params, window;                                      /* elements */
  int64_t grads_in, weights_out, delayed, place, file, gradients, params_at; /* bytes; -1: absent */
  int64_t gradients_file, params_file, gradients_window, params_window;
  int64_t error, server_error, records;
} state_home;

static int64_t on_host(zp_verifier *v, int s, int64_t bytes) {
  int64_t at = v->host[s];
  v->host[s] += bytes;
  return bytes > 0 ? at : -1;
}

/* 1-bit Adam: four bytes an element that a rank owes, and of what it averages; a record has 12 bytes for 64 elements.
 */
static void add_errors_away(zp_verifier *v, int s, int64_t state, int64_t flat, state_home *h) {
  int64_t n = v->choice.data, part = flat / n < state ? flat / n : state;
  int64_t records = state / 64 > (n + 1) * part / 64 ? state / 64 * 12 : (n + 1) * part / 64 * 12;
  if (!v->choice.compress) state = part = records = 0;
  bool shards = v->choice.zero == 1; /* then it has its own elements' records and errors alone */
  if (shards) records = (n + 1) * part / 64 * 12;
  h->error = on_host(v, s, shards ? 0 : 4 * state);
  h->server_error = on_host(v, s, shards && v->compute_bytes == 2 ? 0 : 4 * part);
  h->records = on_host(v, s, zp_up(records, 256));
}

static state_home add_state_away(zp_verifier *v, int s, int64_t state, int64_t grads, const zp_flat_sizes *sizes,
                                 int64_t state_bytes) {
  int64_t bucket = grads > 0 && !zp_shards_gradients(&v->choice) ? sizes->bucket : sizes->bucket_shard;
  const int64_t page = 2048; /* elements: 4096 bytes of the shortest format */
  bool disk = v->choice.home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_NVME, any = state > 0 || grads > 0;
  int64_t cb = v->compute_bytes, window = disk ? zp_up(bucket, page) : bucket, there = zp_up(state, page);
  state_home h = {.state = state, .grads = grads, .window = any ? window : 0, .file = -1};
  bool late = v->spec->train.delayed && state > 0; /* gradients and weights have one place for all of them */
  h.grads_in = on_host(v, s, late && grads == 0 ? 0 : 2 * h.window * v->grad_bytes);
  h.weights_out = on_host(v, s, state > 0 && cb == 2 && !late ? 2 * window * cb : 0);
  h.delayed = on_host(v, s, late ? state * v->grad_bytes : 0);
  add_errors_away(v, s, state, sizes->flat, &h);
  int64_t piece = window < there ? window : there, turns = state > 0 ? (state - 1) / window + 1 : 0;
  if (disk && state > 0) h.file = v->nvme[s];
  if (disk) v->nvme[s] += there * state_bytes;
  h.place = on_host(v, s, (!disk ? state : turns < 4 ? turns * piece : 4 * piece) * state_bytes);
  h.gradients = grads > 0 ? v->host[s] : -1;
  return h;
}

static void check_state_home(zp_verifier *v, int s, const zp_json *a, const state_home *h) {
  const struct {
    const char *key;
    int64_t want;
  } claims[] = {{"state_offloaded", h->state},
                {"grads_offloaded", h->grads},
                {"window_elements", h->window},
                {"host_grads_in", h->grads_in},
                {"host_weights_out", h->weights_out},
                {"host_delayed", h->delayed},
                {"host_state", h->place},
                {"file_state", h->file},
                {"host_grads", h->gradients},
                {"params_offloaded", h->params},
                {"host_params", h->params_at},
                {"host_error", h->error},
                {"host_server_error", h->server_error},
                {"host_records", h->records},
                {"file_grads", h->gradients_file},
                {"file_params", h->params_file},
                {"grads_window", h->gradients_window},
                {"params_window", h->params_window}};
  for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
    if (zp_claim(a, claims[i].key) != claims[i].want)
      zp_find(v, "stage %d: %s is %lld, the file says %lld", s, claims[i].key, LL(claims[i].want),
              LL(zp_claim(a, claims[i].key)));
}

typedef struct classes { /* elements on the device */
  int64_t params, grads, state;
  int64_t away_slots, away_staging; /* where the slots' part off the device stands, and its buffers for disks */
  int param_ring, grad_ring;        /* buffers */
  state_home home;
} classes;

/* SGD without momentum has no state, Lion and SGD have one moment. */
static bool has_moment1(const zp_train *train) {
  if (train->optimizer == ZP_OPT_ADAFACTOR) return train->beta1 > 0;
  return train->optimizer != ZP_OPT_SGD || train->momentum != 0;
}
static bool has_moment2(const zp_train *train) {
  return train->optimizer != ZP_OPT_SGD && train->optimizer != ZP_OPT_LION && train->optimizer != ZP_OPT_ADAFACTOR;
}

static classes find_classes(zp_verifier *v, int s, const zp_flat_sizes *sizes, const needs *n, int64_t saved_away) {
  const zp_choice *c = &v->choice;
  int64_t cb = v->compute_bytes, params = zp_shards_params(c) ? sizes->shard : sizes->flat,
          grads = zp_shards_gradients(c) ? sizes->shard : sizes->flat, align = zp_verify_align(v);
  int64_t params_offloaded = away(v, ZP_STATE_PARAMS, sizes->shard, align),
          grads_offloaded = away(v, ZP_STATE_GRADIENTS, sizes->shard, align),
          state_away = away(v, ZP_STATE_OPTIMIZER, sizes->shard, align);
  int64_t params_away = zp_shards_params(c) ? params_offloaded : of_all_owners(sizes, params_offloaded),
          grads_away = zp_shards_gradients(c) ? grads_offloaded : of_all_owners(sizes, grads_offloaded);
  int64_t state_bytes =
      (has_moment1(&v->spec->train) + has_moment2(&v->spec->train) + (v->spec->train.ema > 0)) * v->stat_bytes +
      (cb == 2 ? 4 : cb);
  classes held = {.params = params - params_away + sizes->own.of[ZP_KIND_FROZEN],
                  .grads = grads - grads_away,
                  .state = sizes->shard - state_away};
  int ahead = v->spec->cluster.node.device.is_cpu ? 0 : 1; /* CPU ranks gather and scatter when they need it */
  held.param_ring = c->home[ZP_STATE_PARAMS].eighths > 0 ? 2 : zp_shards_params(c) ? 1 + ahead : 0;
  held.grad_ring = c->home[ZP_STATE_GRADIENTS].eighths > 0 ? 2 : zp_shards_gradients(c) ? 1 + ahead : 0;
  held.home = add_state_away(v, s, state_away, grads_offloaded, sizes, state_bytes);
  int64_t window = zp_shards_gradients(c) ? sizes->bucket_shard : sizes->bucket;
  held.home.gradients_file = add_away(v, s, ZP_STATE_GRADIENTS, grads_away * v->grad_bytes, window * v->grad_bytes);
  held.home.gradients_window = held.home.gradients_file < 0 ? 0 : window;
  held.home.params = params_offloaded;
  held.home.params_at = params_away > 0 ? v->host[s] : -1;
  window = zp_shards_params(c) ? sizes->bucket_shard : sizes->bucket;
  held.home.params_file = add_away(v, s, ZP_STATE_PARAMS, params_away * cb, window * cb);
  held.home.params_window = held.home.params_file < 0 ? 0 : window;
  bool disk = v->choice.home[ZP_STATE_ACTIVATIONS].tier == ZP_TIER_NVME;
  if (saved_away > 0 && disk) {
    v->nvme[s] = zp_up(v->nvme[s], 4096);
    v->host[s] = zp_up(v->host[s], 4096);
  }
  held.away_slots = saved_away == 0 ? -1 : disk ? v->nvme[s] : v->host[s];
  held.away_staging = saved_away > 0 && disk ? v->host[s] : -1;
  add_away(v, s, ZP_STATE_ACTIVATIONS, saved_away, n->unit_away);
  return held;
}

/* ---- memory classes and budget ---- */

static void check_budget(zp_verifier *v, int s, const zp_json *memory, int64_t arena) {
  int64_t sum = zp_claim(memory, "weights") + zp_claim(memory, "gradients") + zp_claim(memory, "optimizer") +
                zp_claim(memory, "saved") + zp_claim(memory, "buffers");
  if (sum != arena)
    zp_find(v, "stage %d: the memory breakdown sums to %lld, the arena is %lld bytes", s, LL(sum), LL(arena));
  zp_machine machine = zp_machine_of_stage(&v->machine, &v->choice, s);
  if (zp_claim(memory, "context") != machine.context_bytes)
    zp_find(v, "stage %d: the device's context takes %lld bytes, the file says %lld", s, LL(machine.context_bytes),
            LL(zp_claim(memory, "context")));
  int64_t communicators = zp_communicators_of(&v->spec->cluster, &v->choice, zp_count_ties(v->spec->model)).total_bytes;
  if (zp_claim(memory, "communicators") != communicators)
    zp_find(v, "stage %d: its communicators take %lld bytes, the file says %lld", s, LL(communicators),
            LL(zp_claim(memory, "communicators")));
  int64_t outside = machine.context_bytes + communicators;
  double limit = v->spec->plans.data[v->spec->plan].memory_fraction * (double)machine.memory_bytes;
  if ((double)(arena + outside) > limit)
    zp_find(v, "stage %d needs %lld bytes (context and communicators included), %.0f may be used", s,
            LL(arena + outside), limit);
}

/* A class is what its regions hold; alignment between regions may add less than 256 bytes to each. */
static void check_class(zp_verifier *v, int s, const zp_json *memory, const char *name, int64_t least, int n_regions) {
  int64_t claimed = zp_claim(memory, name);
  if (claimed < least || claimed >= least + 256 * n_regions)
    zp_find(v, "stage %d: %s take %lld bytes, the file says %lld", s, name, LL(least), LL(claimed));
}

/* Bytes of n message buffers, all but the last one padded. */
static int64_t message_bytes(int64_t n, int64_t carry) {
  return n > 0 ? zp_times(n - 1, zp_up(carry, 256)) + carry : 0;
}

/* Classes stand one after the other on the host and in the file. */
static void check_away(zp_verifier *v, int s, const zp_json *a, const classes *held) {
  if (zp_claim(a, "away_slots") != held->away_slots || zp_claim(a, "away_staging") != held->away_staging)
    zp_find(v, "stage %d: off the device slots stand at %lld and their buffers at %lld, the file says %lld and %lld", s,
            LL(held->away_slots), LL(held->away_staging), LL(zp_claim(a, "away_slots")),
            LL(zp_claim(a, "away_staging")));
}

/* Messages that zplan's GPU trainer receives ahead: one from every stage that sends this one something in a direction,
 * looked for among the model's chunks; folded, for either chunk. */
static int64_t landings(const zp_verifier *v, int s) {
  int64_t parts = (int64_t)v->choice.pipeline * v->chunks, n = 0;
  bool seen[2][2] = {{false}}, folded = v->choice.schedule == ZP_SCHEDULE_ZB_V;
  if (v->spec->cluster.trainer != ZP_TRAINER_ZPLAN || v->spec->cluster.node.device.is_cpu) return 0;
  for (int64_t k = 0; k < parts; k++)
    for (int up = 0; up < 2; up++) {
      int64_t to = up ? k + 1 : k - 1;
      int chunk = 0;
      if (to < 0 || to >= parts || zp_chunk_stage(&v->choice, to, NULL) != s) continue;
      if (zp_chunk_stage(&v->choice, k, &chunk) == s) continue; /* a copy */
      bool *known = &seen[folded ? chunk : 0][up];
      n += !*known;
      *known = true;
    }
  return n;
}

void zp_verify_stage(zp_verifier *v, int s) {
  const zp_json *stage = zp_json_at(v->stages, s), *a = zp_json_get(stage, "arena"),
                *memory = zp_json_get(stage, "memory");
  const zp_train *train = &v->spec->train;
  zp_flat_sizes sizes = zp_verify_flat(v, s);
  needs n = find_needs(v, s, stage);
  int last = zp_chunk_stage(&v->choice, (int64_t)v->choice.pipeline * v->chunks - 1, NULL);
  int64_t cb = v->compute_bytes, carry = n.carry * cb, up = v->chunks - (s == last), down = v->chunks - (s == 0);
  int64_t messages = zp_message_buffers(&v->choice, v->microbatches), gone, slots = slot_bytes(v, s, a, &n, &gone);
  classes held = find_classes(v, s, &sizes, &n, gone);
  int64_t master = cb == 2 ? held.state * 4 : 0, moment1 = has_moment1(train) * held.state * v->stat_bytes;
  int64_t moment2 = has_moment2(train) * held.state * v->stat_bytes, error = v->choice.compress ? held.state * 4 : 0;
  int64_t average = (train->ema > 0) * held.state * v->stat_bytes, statistics = zp_times(n.statistics, v->stat_bytes);
  int64_t part = sizes.flat / v->choice.data * 4, server_error = error < part ? error : part;
  if (v->choice.compress && v->choice.zero == 1) {
    error = sizes.flat * 4;
    if (cb == 2) server_error = 0; /* then the master copy has it */
  }
  int64_t ring = v->choice.home[ZP_STATE_ACTIVATIONS].eighths > 0 ? 3 * n.unit_saved : 0,
          bucket = (sizes.bucket + sizes.unit.of[ZP_KIND_FROZEN]) * cb;
  int64_t followed = v->choice.compress && train->optimizer == ZP_OPT_LAMB ? held.state * v->stat_bytes : 0;
  int64_t local = v->choice.compress && train->variance_every > 0 ? held.state * v->stat_bytes : 0;
  int64_t anchor = cb == 2 ? 0 : local, before = v->choice.zero == 1 ? 0 : followed;
  const region regions[] = {
      {"params", zp_claim(a, "at_params"), held.params * cb},
      {"gradients", zp_claim(a, "at_grads"), held.grads * v->grad_bytes},
      {"master weights", zp_claim(a, "at_master"), master},
      {"first moment", zp_claim(a, "at_moment1"), moment1},
      {"second moment", zp_claim(a, "at_moment2"), moment2},
      {"average of the weights", zp_claim(a, "at_average"), average},
      {"statistics", zp_claim(a, "at_statistics"), statistics},
      {"error", zp_claim(a, "at_error"), error},
      {"server error", zp_claim(a, "at_server_error"), server_error},
      {"sum of local steps", zp_claim(a, "at_local_sum"), local},
      {"weights of the last exchange", zp_claim(a, "at_anchor"), anchor},
      {"fresh variance", zp_claim(a, "at_fresh"), followed},
      {"momentum before", zp_claim(a, "at_momentum_before"), before},
      {"inputs", zp_claim(a, "at_inputs"),
       v->microbatches * zp_model_inputs_bytes(v->spec->model, v->spec->model->inputs.len, v->choice.microbatch,
                                               (int)v->compute_bytes, n.numbers)},
      {"slots", zp_claim(a, "at_slots"), slots},
      {"saved ring", zp_claim(a, "at_saved_ring"), ring},
      {"pending", zp_claim(a, "at_pending"), n.pending},
      {"parameter ring", zp_claim(a, "at_param_ring"), held.param_ring * bucket},
      {"gradient ring", zp_claim(a, "at_grad_ring"), held.grad_ring * sizes.bucket * v->grad_bytes},
      {"carry 0", zp_claim(a, "at_carry0"), n.shards ? carry : 0},
      {"carry 1", zp_claim(a, "at_carry1"), n.shards ? carry : 0},
      {"landings", zp_claim(a, "at_landing"), message_bytes(landings(v, s), carry)},
      {"message up", zp_claim(a, "at_send_up"), message_bytes(up * messages, carry)},
      {"gradient 0", zp_claim(a, "at_grad0"),
       up || n.most_calls >= 3 || (n.streams && v->choice.pipeline > 1) ? carry : 0},
      {"gradient 1", zp_claim(a, "at_grad1"), n.most_calls >= 2 ? carry : 0},
      {"message down", zp_claim(a, "at_send_down"), message_bytes(down * messages, carry)},
      {"tiles of products", zp_claim(a, "at_products"), n.products ? zp_products_bytes(v->spec) : 0},
      {"transient", zp_claim(a, "at_transient"), n.transient}};
  check_regions(v, s, regions, (int)(sizeof regions / sizeof *regions), zp_claim(a, "bytes"));
  check_class(v, s, memory, "weights", held.params * cb, 1);
  check_class(v, s, memory, "gradients", held.grads * v->grad_bytes, 1);
  check_class(v, s, memory, "optimizer",
              master + moment1 + moment2 + average + statistics + error + server_error + followed + before + local +
                  anchor,
              11);
  check_class(v, s, memory, "saved", slots + ring + n.pending, 3);
  check_away(v, s, a, &held);
  check_state_home(v, s, a, &held.home);
  check_class(v, s, memory, "host", v->host[s], 1);
  check_class(v, s, memory, "nvme", v->nvme[s], 1);
  check_budget(v, s, memory, zp_claim(a, "bytes"));
}

/* Ranks fill nodes in order; a node's ranks share its host memory and its disks. */
void zp_verify_nodes(zp_verifier *v) {
  int64_t ranks = (int64_t)v->choice.tensor * v->choice.data * v->choice.pipeline;
  zp_node_place node;
  for (int64_t first = 0; first < ranks; first = node.first + node.ranks) {
    node = zp_machine_node_of(&v->machine, first);
    int64_t host = 0, nvme = 0;
    for (int64_t r = first; r < node.first + node.ranks; r++) {
      host += v->host[zp_stage_of_rank(&v->choice, r)];
      nvme += v->nvme[zp_stage_of_rank(&v->choice, r)];
    }
    bool short_of_host = host > node.type->host_memory_bytes;
    if (!short_of_host && nvme <= node.type->nvme_bytes) continue;
    zp_find(v, "node %lld needs %lld bytes of %s, it has %lld", LL(node.index), LL(short_of_host ? host : nvme),
            short_of_host ? "host memory" : "NVMe space",
            LL(short_of_host ? node.type->host_memory_bytes : node.type->nvme_bytes));
    return;
  }
}
