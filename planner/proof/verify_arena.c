/* SPDX-License-Identifier: Apache-2.0 */
/* The arena of every stage in a plan file: regions, memory classes, what lives on host and disks, budgets. Every size
 * is found again from the model and the decisions; of the procedures only saved, pending and transient bytes are taken
 * (verify_procedures.c). */
#include <assert.h>
#include <zplan/schedule.h>
#include "verify_internal.h"

#define LL(x) ((long long)(x))

/* ---- regions ---- */

typedef struct claimed_region {
  const char *name;
  int64_t at, bytes;
} claimed_region;

static void check_regions(zp_verifier *v, int s, const claimed_region *r, int n, int64_t bytes) {
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

/* ---- what the regions hold ---- */

enum { DISK_WINDOWS = 4, PAGE = 4096, PAGE_ELEMENTS = 2048 }; /* of the shortest format */

typedef struct facts {
  const zp_verifier *v;
  const zp_flat_sizes *sizes;
  const zp_verify_needs *n;
  int64_t params, grads, state; /* elements on the device; parameters: with those that are not trained */
  int64_t params_off_device, grads_off_device, state_off_device; /* and off it, of these the rank updates: */
  int64_t params_offloaded, grads_offloaded;
  int64_t window, params_window, grads_window; /* elements of a window on the host */
  int64_t slots, slots_offloaded;              /* bytes */
  int64_t carry, messages, up, down, landings; /* bytes of a message; buffers of a chunk; chunks that send; places */
} facts;

static bool on_disk(const zp_verifier *v, zp_state state) { return v->choice.home[state].tier == ZP_TIER_NVME; }

/* Does the row say that the optimizer keeps such an array? None where its setting for them is 0. */
static bool keeps(const zp_train *train, zp_kept kept) {
  const zp_optimizer *row = zp_optimizer_facts(train);
  return row->keeps >> kept & 1 && (row->keeps_with == 0 || zp_setting_real(train, row->keeps_with) != 0);
}

/* Gradients and weights of a delayed update have one place for all of them. */
static bool is_late(const facts *f) { return f->v->spec->train.delayed && f->state_off_device > 0; }

/* 1-bit: the error of a rank, f32; with ZeRO 1 of everybody's elements. */
static int64_t error_bytes(const facts *f) {
  if (!f->v->choice.compress) return 0;
  return 4 * (f->v->choice.zero == 1 ? f->sizes->flat : f->state);
}

/* 1-bit: the server's error for `state` elements of the part that it averages; with ZeRO 1 a master copy has it. */
static int64_t server_error_bytes(const facts *f, int64_t state) {
  if (!f->v->choice.compress || (f->v->choice.zero == 1 && f->v->compute_bytes == 2)) return 0;
  int64_t part = f->sizes->flat / f->v->choice.data;
  return 4 * (state < part ? state : part);
}

/* A record has 12 bytes for 64 elements: all that the host updates, or what all ranks sent of a part, and its mean. */
static int64_t record_bytes(const facts *f) {
  int64_t ranks = f->v->choice.data, part = f->sizes->flat / ranks;
  if (!f->v->choice.compress) return 0;
  if (part > f->state_off_device) part = f->state_off_device;
  int64_t of_parts = (ranks + 1) * part / 64, of_all = f->v->choice.zero == 1 ? 0 : f->state_off_device / 64;
  return zp_up(zp_verify_max(of_parts, of_all) * 12, 256);
}

static int64_t state_bytes(const zp_verifier *v) {
  const zp_train *train = &v->spec->train;
  int arrays = train->ema > 0;
  for (zp_kept kept = 0; kept < ZP_KEPT_COUNT; kept++) arrays += keeps(train, kept);
  return arrays * v->stat_bytes + (v->compute_bytes == 2 ? 4 : v->compute_bytes);
}

/* All of it, or on disks the windows that its pieces take turns in. */
static int64_t host_state_bytes(const facts *f) {
  if (!on_disk(f->v, ZP_STATE_OPTIMIZER) || f->state_off_device == 0) return f->state_off_device * state_bytes(f->v);
  int64_t there = zp_up(f->state_off_device, PAGE_ELEMENTS), piece = f->window < there ? f->window : there;
  int64_t turns = (f->state_off_device - 1) / f->window + 1;
  return (turns < DISK_WINDOWS ? turns : DISK_WINDOWS) * piece * state_bytes(f->v);
}

/* Bytes of a class on the host, or of its windows there; bytes in the file. */
static int64_t on_host(const facts *f, zp_state state, int64_t bytes, int64_t window_bytes) {
  return bytes > 0 && on_disk(f->v, state) ? DISK_WINDOWS * window_bytes : bytes;
}
static int64_t in_file(const facts *f, zp_state state, int64_t bytes) { return on_disk(f->v, state) ? bytes : 0; }

/* Bytes of n message buffers, all but the last one padded. */
static int64_t message_bytes(int64_t n, int64_t carry) {
  return n > 0 ? zp_times(n - 1, zp_up(carry, 256)) + carry : 0;
}

/* Buffers of a ring. CPU ranks gather and scatter when they need it. */
static int64_t ring(const facts *f, zp_state state, bool shards) {
  if (f->v->choice.home[state].eighths > 0) return 2;
  return shards ? 1 + !f->v->spec->cluster.node.device.is_cpu : 0;
}

/* Weights that the rank keeps as casts to 8 or 4 bits, without 16 bits. Data ranks share the
 * optimizer's state then; with ZeRO 3 the weights, too. */
static int64_t casts_alone(const facts *f) {
  const zp_choice *c = &f->v->choice;
  int64_t group = c->zero >= 3 ? zp_verify_sharers(f->v) : 1, spread = c->zero >= 3 ? group / zp_expert_ranks(c) : 1;
  if (!zp_software_casts_alone(f->v->spec->cluster.software, &f->v->spec->train, c)) return 0;
  return f->n->narrow_own.of[ZP_KIND_WHOLE] / group + f->n->narrow_own.of[ZP_KIND_SPREAD] / spread;
}

/* Casts of what is kept in 16 bits, too, are whole. */
static int64_t narrow_elements(const facts *f) {
  int64_t alone = casts_alone(f), own = f->n->narrow_own.of[ZP_KIND_WHOLE] + f->n->narrow_own.of[ZP_KIND_SPREAD];
  return alone > 0 ? f->n->narrow_weights - own + alone : f->n->narrow_weights;
}

/* One of `hpz` equal parts of everything that the stage's data ranks hold, trained or not. */
static int64_t hpz_elements(const facts *f) {
  int64_t elements = 0;
  if (f->v->choice.hpz == 0) return 0;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) elements += f->sizes->all.of[kind] / f->v->choice.hpz;
  return elements;
}

/* A formula of its own for every region: what lacks one does not compile. */
#pragma GCC diagnostic error "-Wswitch"
static int64_t region_bytes(const facts *f, zp_region region) {
  const zp_verifier *v = f->v;
  const zp_choice *c = &v->choice;
  const zp_train *train = &v->spec->train;
  const zp_verify_needs *n = f->n;
  int64_t cb = v->compute_bytes, gb = v->grad_bytes, state = f->state * v->stat_bytes;
  bool lamb = c->compress && zp_optimizer_facts(train)->one_bit == ZP_ONE_BIT_LAMB,
       local = c->compress && train->variance_every > 0;
  switch (region) {
  case ZP_REGION_PARAMS: return (f->params - casts_alone(f)) * cb;
  case ZP_REGION_GRADS: return f->grads * v->sum_bytes;
  case ZP_REGION_MASTER:
    return cb == 2 ? f->state * 4 : 0;
/* clang-format off */
#define STATE_MOMENT(region, ...) case ZP_REGION_##region: return keeps(train, ZP_KEPT_##region) ? state : 0;
#include <zplan/state_regions.def>
  /* clang-format on */
  case ZP_REGION_AVERAGE: return train->ema > 0 ? state : 0;
  case ZP_REGION_STATISTICS: return zp_times(n->statistics, v->stat_bytes);
  case ZP_REGION_ERROR: return error_bytes(f);
  case ZP_REGION_SERVER_ERROR: return server_error_bytes(f, f->state);
  case ZP_REGION_FRESH: return lamb ? state : 0;
  case ZP_REGION_MOMENTUM_BEFORE: return lamb && c->zero != 1 ? state : 0;
  case ZP_REGION_LOCAL_SUM: return local ? state : 0;
  case ZP_REGION_ANCHOR: return local && cb != 2 ? state : 0;
  case ZP_REGION_NARROW_WEIGHTS:
    return (zp_times(narrow_elements(f), zp_software_weight_32nds(v->spec->cluster.software)) + 31) / 32;
  case ZP_REGION_HPZ_PARAMS: return hpz_elements(f) * cb;
  case ZP_REGION_INPUTS:
    return v->microbatches *
           zp_model_inputs_bytes(v->spec->model, v->spec->model->inputs.len, c->microbatch, (int)cb, n->numbers);
  case ZP_REGION_SLOTS: return f->slots;
  case ZP_REGION_SAVED_RING: return c->home[ZP_STATE_ACTIVATIONS].eighths > 0 ? 3 * n->unit_saved : 0;
  case ZP_REGION_PENDING: return n->pending;
  case ZP_REGION_PARAM_RING:
    return ring(f, ZP_STATE_PARAMS, zp_shards_params(c)) * (f->sizes->bucket + f->sizes->unit.of[ZP_KIND_FROZEN]) * cb;
  case ZP_REGION_GRAD_RING: return ring(f, ZP_STATE_GRADIENTS, zp_shards_gradients(c)) * f->sizes->bucket * gb;
  case ZP_REGION_CARRY0:
  case ZP_REGION_CARRY1: return n->shards ? f->carry : 0;
  case ZP_REGION_PRODUCTS: return n->products ? zp_products_bytes(v->spec) : 0;
  case ZP_REGION_LANDING: return message_bytes(f->landings, f->carry);
  case ZP_REGION_SEND_UP: return message_bytes(f->up * f->messages, f->carry);
  case ZP_REGION_GRAD0: return f->up || n->most_calls >= 3 || (n->streams && c->pipeline > 1) ? f->carry : 0;
  case ZP_REGION_GRAD1: return n->most_calls >= 2 ? f->carry : 0;
  case ZP_REGION_SEND_DOWN: return message_bytes(f->down * f->messages, f->carry);
  case ZP_REGION_TRANSIENT: return n->transient;
  case ZP_REGION_HOST_GRADS_IN: return is_late(f) && f->grads_off_device == 0 ? 0 : 2 * f->window * gb;
  case ZP_REGION_HOST_WEIGHTS_OUT: return f->state_off_device > 0 && cb == 2 && !is_late(f) ? 2 * f->window * cb : 0;
  case ZP_REGION_HOST_DELAYED: return is_late(f) ? f->state_off_device * gb : 0;
  case ZP_REGION_HOST_ERROR: return c->compress && c->zero != 1 ? 4 * f->state_off_device : 0;
  case ZP_REGION_HOST_SERVER_ERROR: return server_error_bytes(f, f->state_off_device);
  case ZP_REGION_HOST_RECORDS: return record_bytes(f);
  case ZP_REGION_HOST_STATE: return host_state_bytes(f);
  case ZP_REGION_HOST_GRADS: return on_host(f, ZP_STATE_GRADIENTS, f->grads_off_device * gb, f->grads_window * gb);
  case ZP_REGION_HOST_PARAMS: return on_host(f, ZP_STATE_PARAMS, f->params_off_device * cb, f->params_window * cb);
  case ZP_REGION_HOST_SLOTS: return on_host(f, ZP_STATE_ACTIVATIONS, f->slots_offloaded, n->unit_offloaded);
  case ZP_REGION_FILE_STATE:
    return in_file(f, ZP_STATE_OPTIMIZER, zp_up(f->state_off_device, PAGE_ELEMENTS) * state_bytes(v));
  case ZP_REGION_FILE_GRADS: return in_file(f, ZP_STATE_GRADIENTS, f->grads_off_device * gb);
  case ZP_REGION_FILE_PARAMS: return in_file(f, ZP_STATE_PARAMS, f->params_off_device * cb);
  case ZP_REGION_FILE_SLOTS: return in_file(f, ZP_STATE_ACTIVATIONS, f->slots_offloaded);
  case ZP_REGION_COUNT: break;
  }
  assert(!"a region without a formula");
  return 0;
}

/* Messages that zplan's GPU trainer receives ahead: one from every stage that sends this one something in a direction,
 * looked for among the model's chunks; folded, for either chunk. */
static int64_t landings(const zp_verifier *v, int s) {
  int64_t parts = (int64_t)v->choice.pipeline * v->chunks, n = 0;
  bool seen[2][2] = {{false}}, folded = zp_schedule_folds(v->choice.schedule);
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

static facts find_facts(zp_verifier *v, int s, const zp_flat_sizes *sizes, const zp_verify_needs *n) {
  const zp_choice *c = &v->choice;
  bool params = zp_shards_params(c), grads = zp_shards_gradients(c);
  int64_t align = zp_verify_align(v);
  facts f = {.v = v, .sizes = sizes, .n = n};
  f.params_offloaded = zp_verify_offloaded(v, ZP_STATE_PARAMS, sizes->shard, align);
  f.grads_offloaded = zp_verify_offloaded(v, ZP_STATE_GRADIENTS, sizes->shard, align);
  f.state_off_device = zp_verify_offloaded(v, ZP_STATE_OPTIMIZER, sizes->shard, align);
  f.params_off_device = params ? f.params_offloaded : of_all_owners(sizes, f.params_offloaded);
  f.grads_off_device = grads ? f.grads_offloaded : of_all_owners(sizes, f.grads_offloaded);
  f.params = (params ? sizes->shard : sizes->flat) - f.params_off_device + sizes->own.of[ZP_KIND_FROZEN];
  f.grads = (grads ? sizes->shard : sizes->flat) - f.grads_off_device;
  f.state = sizes->shard - f.state_off_device;
  int64_t bucket = f.grads_off_device > 0 && !grads ? sizes->bucket : sizes->bucket_shard;
  if (f.state_off_device > 0 || f.grads_off_device > 0)
    f.window = on_disk(v, ZP_STATE_OPTIMIZER) ? zp_up(bucket, PAGE_ELEMENTS) : bucket;
  if (in_file(&f, ZP_STATE_GRADIENTS, f.grads_off_device) > 0)
    f.grads_window = grads ? sizes->bucket_shard : sizes->bucket;
  if (in_file(&f, ZP_STATE_PARAMS, f.params_off_device) > 0)
    f.params_window = params ? sizes->bucket_shard : sizes->bucket;
  f.carry = n->carry * v->compute_bytes;
  f.messages = zp_message_buffers(c, v->microbatches);
  f.up = v->chunks - (s == zp_chunk_stage(c, (int64_t)c->pipeline * v->chunks - 1, NULL));
  f.down = v->chunks - (s == 0);
  f.landings = landings(v, s);
  return f;
}

/* ---- what lives off the device ---- */

static void check_int(zp_verifier *v, int s, const zp_json *a, const char *key, int64_t want) {
  if (zp_claim(a, key) != want)
    zp_find(v, "stage %d: %s is %lld, the file says %lld", s, key, LL(want), LL(zp_claim(a, key)));
}

/* Regions stand one after the other on the host and in the file. Slots on disks, and their windows, begin with a
 * page. */
static void check_offloaded(zp_verifier *v, int s, const zp_json *a, const facts *f) {
  int64_t at[ZP_REGION_COUNT];
  for (int r = 0; r < ZP_REGION_COUNT; r++) {
    bool host = zp_region_rows[r].memory == ZP_MEMORY_HOST, file = zp_region_rows[r].memory == ZP_MEMORY_NVME;
    if (!host && !file) continue;
    bool slots = r == ZP_REGION_HOST_SLOTS || r == ZP_REGION_FILE_SLOTS;
    int64_t *top = host ? &v->host[s] : &v->nvme[s], bytes = region_bytes(f, (zp_region)r);
    if (slots && in_file(f, ZP_STATE_ACTIVATIONS, bytes) > 0) *top = zp_up(*top, PAGE);
    at[r] = bytes > 0 ? *top : -1;
    *top += bytes;
    if (zp_region_rows[r].key) check_int(v, s, a, zp_region_rows[r].key, at[r]);
  }
  bool disk = on_disk(v, ZP_STATE_ACTIVATIONS);
  check_int(v, s, a, "offloaded_slots", at[disk ? ZP_REGION_FILE_SLOTS : ZP_REGION_HOST_SLOTS]);
  check_int(v, s, a, "offloaded_staging", disk ? at[ZP_REGION_HOST_SLOTS] : -1);
  check_int(v, s, a, "state_offloaded", f->state_off_device);
  check_int(v, s, a, "grads_offloaded", f->grads_offloaded);
  check_int(v, s, a, "params_offloaded", f->params_offloaded);
  check_int(v, s, a, "window_elements", f->window);
  check_int(v, s, a, "grads_window", f->grads_window);
  check_int(v, s, a, "params_window", f->params_window);
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

/* The arena's regions, and the memory classes that they add up to. */
static void check_arena(zp_verifier *v, int s, const zp_json *a, const zp_json *memory, const facts *f) {
  static const char *const name[] = {
#define ZP_MEMORY_ROW(id, field) #field,
      ZP_MEMORY_LINES(ZP_MEMORY_ROW)
#undef ZP_MEMORY_ROW
  };
  claimed_region regions[ZP_REGION_DEVICE_END];
  int64_t bytes[ZP_MEMORY_HOST] = {0};
  int count[ZP_MEMORY_HOST] = {0};
  for (int r = 0; r < ZP_REGION_DEVICE_END; r++) {
    regions[r] = (claimed_region){zp_region_rows[r].name, zp_claim_place(a, zp_region_rows[r].key),
                                  region_bytes(f, (zp_region)r)};
    bytes[zp_region_rows[r].memory] += regions[r].bytes;
    count[zp_region_rows[r].memory]++;
  }
  check_regions(v, s, regions, ZP_REGION_DEVICE_END, zp_claim(a, "bytes"));
  for (int line = 0; line < ZP_MEMORY_HOST; line++) check_class(v, s, memory, name[line], bytes[line], count[line]);
}

void zp_verify_stage(zp_verifier *v, int s) {
  const zp_json *stage = zp_json_at(v->stages, s), *a = zp_json_get(stage, "arena"),
                *memory = zp_json_get(stage, "memory");
  zp_flat_sizes sizes = zp_verify_flat(v, s);
  zp_verify_needs n = zp_verify_find_needs(v, s, stage);
  facts f = find_facts(v, s, &sizes, &n);
  f.slots = zp_verify_slot_bytes(v, s, a, &n, &f.slots_offloaded);
  check_arena(v, s, a, memory, &f);
  check_offloaded(v, s, a, &f);
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
