/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between GPUs by NCCL, which is opened when it is there. It has not run on GPUs yet.
 *
 * Activations of tensor groups are summed by NCCL's own all-reduce. Gradients are summed in rank order, as everywhere
 * in the runtime: shares are exchanged with ncclSend and ncclRecv and added by a kernel. A ring's order depends on
 * where an element lies, so the stages that hold a tied weight at different places would round differently and drift
 * apart.
 *
 * Messages of the pipeline: nccl_stages.c. */
#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/cuda_places.h>
#include "nccl.h"
#include "optimizer.h"

/* ---- opening ---- */

static void *open_library(bool emulated) {
  static zpr_cuda_files files;
  void *library = NULL;
  if (emulated) return dlopen("libzplan_emulated_gpu.so", RTLD_NOW | RTLD_LOCAL);
  zpr_cuda_find_file("libnccl.so.2", &files);
  for (int i = 0; i < files.n && !library; i++) library = dlopen(files.path[i], RTLD_NOW | RTLD_LOCAL);
  return library;
}

static bool open_api(nccl_api *api, bool emulated, const char **why_not) {
  static const struct {
    const char *name;
    size_t member;
  } symbols[] = {
#define NCCL_SYMBOL(member, symbol, arguments) {symbol, offsetof(nccl_api, member)},
      NCCL_FUNCTIONS(NCCL_SYMBOL){"ncclGetErrorString", offsetof(nccl_api, error_text)}};
#undef NCCL_SYMBOL
  void *library = open_library(emulated);
  *why_not = "libnccl.so.2 cannot be opened";
  if (!library) return false;
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *function = dlsym(library, symbols[i].name);
    *why_not = symbols[i].name; /* missing */
    if (!function) return false;
    memcpy((char *)api + symbols[i].member, &function, sizeof function);
  }
  return true;
}

bool zpr_nccl_available(bool emulated, int *version, const char **why_not) {
  nccl_api api;
  if (!open_api(&api, emulated, why_not)) return false;
  *why_not = "ncclGetVersion";
  return api.version(version) == 0;
}

void zpr_nccl_check(zpr *c, int result, const char *what) {
  if (result == 0) return;
  zpr_fail(c, "Z0852", "cannot %s: NCCL says %s (GPU %d)", what, c->state->device->nccl->api.error_text(result),
           c->state->device->ordinal);
}

/* Collective over all ranks: everybody learns the ids that the ranks with `make` have made. */
void zpr_nccl_exchange_ids(zpr *c, bool make, zpr_nccl_id *all) {
  zpr_nccl_id mine = {0};
  if (make) zpr_nccl_check(c, c->state->device->nccl->api.new_id(&mine), "make an id for a group");
  zpr_world_gather(c, &mine, sizeof mine, all);
}

void *zpr_nccl_join(zpr *c, const zpr_nccl_id *id, int n, int me) {
  void *comm = NULL;
  zpr_nccl_check(c, c->state->device->nccl->api.join(&comm, n, *id, me), "join a group");
  return comm;
}

/* Collective over all ranks, also those whose group is themselves. */
static void *join_group(zpr *c, zpr_group g, zpr_nccl_id *all) {
  zpr_nccl_exchange_ids(c, g.n > 1 && g.me == 0, all);
  return g.n > 1 ? zpr_nccl_join(c, &all[g.rank[0]], g.n, g.me) : NULL;
}

void zpr_nccl_open(zpr *c) {
  zpr_device *d = c->state->device;
  zpr_nccl *n = d->nccl = zpr_alloc(c, 1, sizeof *n);
  const char *why_not = "";
  setenv("NCCL_RUNTIME_CONNECT", "0", false); /* unless the user has set it; NCCL reads it when it is opened */
  if (!open_api(&n->api, d->emulated, &why_not)) zpr_fail(c, "Z0853", "NCCL cannot be opened: %s", why_not);
  zpr_nccl_id *all = zpr_alloc(c, (size_t)c->ranks, sizeof *all);
  n->tensor = join_group(c, zpr_axis_group(c, ZPR_TENSOR), all);
  n->data = join_group(c, zpr_shard_group(c), all);
  if (zpr_expert_ranks(c->program) > 1) { /* else they are all data ranks, and nobody */
    n->expert = join_group(c, zpr_axis_group(c, ZPR_EXPERT), all);
    n->replicas = join_group(c, zpr_replica_group(c), all);
  }
  if (zpr_context_ranks(c->program) > 1) n->context = join_group(c, zpr_axis_group(c, ZPR_CONTEXT), all);
  n->copies = join_group(c, zpr_copies_group(c), all);
  n->tie = zpr_alloc(c, (size_t)c->program->n_ties, sizeof *n->tie);
  for (int i = 0; i < c->program->n_ties; i++) n->tie[i] = join_group(c, zpr_tie_group(c, i), all);
  zpr_cuda(c, d->api.allocate(&n->scratch, ZPR_NCCL_SCRATCH_BYTES), "get memory for sums over ranks");
  zpr_nccl_open_channels(c, all);
  zpr_nccl_open_ring(c);
  free(all);
}

/* ---- connecting ----
 *
 * A communicator is joined by a call that returns when all of its members have made it, and ranks are connected inside
 * a call that returns when both have made it. So these calls come in one order that all ranks share: communicators by
 * kind (tensor, data, expert groups, their replicas, context groups, copies of shards, ties, channels by number and
 * sending stage), and of one kind and number a rank is in one at most, or, of channels, in two that the sending stage
 * puts in order. Take the first communicator in this order that is not complete: all before it are, so each of its
 * members has returned from those and is at this one, or will be. So it becomes complete, and then the next one.
 *
 * Left to itself NCCL connects the ranks of a collective when the first one of its kind is started
 * (NCCL_RUNTIME_CONNECT=1, since 2.22) and those of a send when they first talk: in the middle of a step, where rank
 * A's host would wait in a call of one communicator for rank B, and B's in one of another communicator for A, though
 * the order of their streams would let both end. So collectives connect when a communicator is joined, and sends by a
 * byte between all members of each communicator that send to each other, in the order in which they were joined.
 *
 * Afterwards no call waits for another rank, and the GPU's order counts alone: a kernel of NCCL waits for what is
 * before it in its own stream and for its members. NCCL_LAUNCH_ORDER_IMPLICIT stays off: it asks for one order of
 * operations on all ranks over all communicators, and the stages of a pipeline have none. Without it operations of
 * several communicators must be able to run alongside each other, which they are: at most one a stream, the streams are
 * those of units, of what moves alongside them, and of the channels' ends. */

/* Do sums of the group send between me and r? In two levels (nccl_levels.c): inside nodes, and between the same places
 * of them. */
static bool talk(const zpr_group *g, int r) {
  return g->local == 0 || r / g->local == g->me / g->local || r % g->local == g->me % g->local;
}

/* A byte between any two members that send to each other; all: everybody to everybody, in exchanges. What is connected
 * has buffers for as long as the communicator (planner/machine/communicators.c). Bytes come in above those that go
 * out. */
static void connect_members(zpr *c, void *comm, zpr_group g, bool all) {
  zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  char *byte = zpr_gpu_host(d->nccl->scratch);
  if (!comm) return;
  zpr_nccl_check(c, nccl->group_start(), "connect ranks");
  for (int r = 0; r < g.n; r++) {
    if (r == g.me || !(all || talk(&g, r))) continue;
    zpr_nccl_check(c, nccl->send(byte, 1, NCCL_U8, r, comm, d->stream), "connect ranks");
    zpr_nccl_check(c, nccl->receive(byte + 1 + r, 1, NCCL_U8, r, comm, d->stream), "connect ranks");
  }
  zpr_nccl_check(c, nccl->group_end(), "connect ranks");
}

void zpr_nccl_connect(zpr *c) {
  zpr_device *d = c->state->device;
  const zpr_nccl *n = d->nccl;
  bool exchanges = zpr_is_one_bit(c->program) || zpr_optimizer_of(c->program)->exchanges;
  zpr_cuda(c, d->api.fill_bytes(n->scratch, 0, 1, d->stream), "connect ranks");
  if (c->stage->scratch_bytes > 0) /* else the tensor ranks have collectives alone */
    connect_members(c, n->tensor, zpr_axis_group(c, ZPR_TENSOR), exchanges);
  connect_members(c, n->data, zpr_shard_group(c), exchanges);
  if (zpr_expert_ranks(c->program) > 1) {
    connect_members(c, n->expert, zpr_axis_group(c, ZPR_EXPERT), true);
    connect_members(c, n->replicas, zpr_replica_group(c), false);
  }
  if (zpr_context_ranks(c->program) > 1) connect_members(c, n->context, zpr_axis_group(c, ZPR_CONTEXT), true);
  connect_members(c, n->copies, zpr_copies_group(c), false);
  for (int i = 0; i < c->program->n_ties; i++) connect_members(c, n->tie[i], zpr_tie_group(c, i), false);
  zpr_nccl_connect_channels(c);
}

void zpr_nccl_close(zpr *c) {
  zpr_device *d = c->state->device;
  zpr_nccl *n = d->nccl;
  zpr_nccl_close_channels(c);
  zpr_nccl_close_ring(c);
  for (int i = 0; i < c->program->n_ties; i++)
    if (n->tie[i]) n->api.leave(n->tie[i]);
  if (n->copies) n->api.leave(n->copies);
  if (n->replicas) n->api.leave(n->replicas);
  if (n->expert) n->api.leave(n->expert);
  if (n->context) n->api.leave(n->context);
  if (n->data) n->api.leave(n->data);
  if (n->tensor) n->api.leave(n->tensor);
  d->api.release(n->scratch);
  free(n->tie);
  free(n);
  d->nccl = NULL;
}

/* ---- collectives ---- */

static int nccl_type(zpk_dtype dtype) {
  static const int type[] = {[ZPK_F32] = NCCL_F32, [ZPK_F64] = NCCL_F64, [ZPK_BF16] = NCCL_BF16, [ZPK_F16] = NCCL_F16};
  return type[dtype];
}

int zpr_nccl_type(const zpr *c) { return nccl_type(c->program->dtype); }

static void *comm_of(zpr *c, const zpr_group *g, zpr_axis axis) {
  const zpr_nccl *n = c->state->device->nccl;
  if (axis == ZPR_TENSOR) return n->tensor;
  if (axis == ZPR_EXPERT) return n->expert;
  if (axis == ZPR_CONTEXT) return n->context;
  if (axis == ZPR_DATA && g->rank == zpr_copies_group(c).rank) return n->copies;
  if (axis == ZPR_DATA) /* replicas of spread experts are some of the data ranks */
    return n->replicas && g->rank == zpr_replica_group(c).rank ? n->replicas : n->data;
  for (int i = 0; axis == ZPR_TIE && i < c->program->n_ties; i++)
    if (zpr_tie_group(c, i).rank == g->rank) return n->tie[i];
  zpr_fail(c, "Z0853", "there is no NCCL group for this axis");
}

/* NCCL sends along a ring, in the order of the members: of `count` elements all but the chunk that the next one has. */
static void count_ring(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, int64_t count) {
  int next = (g->me + 1) % g->n;
  int64_t there = zpr_chunk_piece(count, g->n, next, 0, count).count;
  zpr_comm_count(c, axis, (count - there) * zpk_bytes(dtype), g->rank[next]);
}

static void launch_rounding(zpr *c, zpr_device_kernel *kernel, zpd_rounding a) {
  if (a.count > 0) zpr_launch(c, kernel, &a, sizeof a, zpr_flat_blocks(c, a.count), 1, 1, ZPD_FLAT_THREADS);
}

void zpr_round_on_device(zpr *c, const char *sum, unsigned short *bits, int64_t count) {
  launch_rounding(c, &c->state->device->kernels.round_sum, (zpd_rounding){(float *)(uintptr_t)sum, bits, count});
}

void zpr_widen_on_device(zpr *c, const unsigned short *bits, char *sum, int64_t count) {
  launch_rounding(c, &c->state->device->kernels.widen_sum,
                  (zpd_rounding){(float *)(void *)sum, (unsigned short *)(uintptr_t)bits, count});
}

void zpr_nccl_exchange_rounded(zpr *c, zpr_axis axis, void *comm, const zpr_group *g, int member,
                               const unsigned short *leaving, int64_t theirs, unsigned short *coming, int64_t mine) {
  const zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  if (mine > 0)
    zpr_nccl_check(c, nccl->receive(coming, (size_t)mine, NCCL_BF16, member, comm, d->stream),
                   "receive a rounded share");
  if (theirs > 0)
    zpr_nccl_check(c, nccl->send(leaving, (size_t)theirs, NCCL_BF16, member, comm, d->stream), "send a rounded share");
  zpr_comm_count(c, axis, theirs * (int64_t)sizeof *leaving, g->rank[member]);
}

/* A sum between all members: slots for what comes, and of what is rounded the bits of either way. */
typedef struct direct {
  void *comm;
  int type;
  int64_t size, most;
  char *data, *slots;
  unsigned short *leaving, *coming; /* NULL: nothing is rounded */
} direct;

static bool is_rounded(const zpr *c, const direct *x, const zpr_group *g, int r) {
  return x->leaving && zpr_is_elsewhere(c, g->rank[r]);
}

static void exchange_share(zpr *c, const direct *x, const zpr_group *g, zpr_axis axis, int r, zpr_piece theirs,
                           zpr_piece mine) {
  const zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  if (is_rounded(c, x, g, r)) {
    zpr_nccl_exchange_rounded(c, axis, x->comm, g, r, x->leaving + r * x->most, theirs.count, x->coming + r * x->most,
                              mine.count);
    return;
  }
  if (mine.count > 0)
    zpr_nccl_check(c,
                   nccl->receive(x->slots + r * x->most * x->size, (size_t)mine.count, x->type, r, x->comm, d->stream),
                   "receive a share");
  if (theirs.count > 0)
    zpr_nccl_check(c,
                   nccl->send(x->data + theirs.begin * x->size, (size_t)theirs.count, x->type, r, x->comm, d->stream),
                   "send a share");
  zpr_comm_count(c, axis, theirs.count * x->size, g->rank[r]);
}

static void exchange_shares(zpr *c, const direct *x, const zpr_group *g, zpr_axis axis, int64_t count, int64_t at) {
  const nccl_api *nccl = &c->state->device->nccl->api;
  const zpr_piece mine = zpr_chunk_piece(count, g->n, g->me, at, x->most);
  for (int r = 0; r < g->n; r++) {
    const zpr_piece theirs = zpr_chunk_piece(count, g->n, r, at, x->most);
    if (r != g->me && is_rounded(c, x, g, r))
      zpr_round_on_device(c, x->data + theirs.begin * x->size, x->leaving + r * x->most, theirs.count);
  }
  zpr_nccl_check(c, nccl->group_start(), "exchange shares of a sum");
  for (int r = 0; r < g->n; r++)
    if (r != g->me) exchange_share(c, x, g, axis, r, zpr_chunk_piece(count, g->n, r, at, x->most), mine);
  zpr_nccl_check(c, nccl->group_end(), "exchange shares of a sum");
  for (int r = 0; r < g->n; r++)
    if (r != g->me && is_rounded(c, x, g, r))
      zpr_widen_on_device(c, x->coming + r * x->most, x->slots + r * x->most * x->size, mine.count);
}

/* Afterwards chunk g->me of data holds the sum, added in rank order: as reduce_scatter in comm.c of the host. Of
 * gradients: the kernel adds no other type. */
static void reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, char *data, int64_t count) {
  zpr_device *d = c->state->device;
  const bool rounds = zpr_rounds_sum(c, g, axis);
  int64_t size = zpk_bytes(dtype), longest = (count + g->n - 1) / g->n;
  direct x = {.comm = comm_of(c, g, axis),
              .type = nccl_type(dtype),
              .size = size,
              .most = ZPR_NCCL_SCRATCH_BYTES / (g->n * (rounds ? 2 : 1)) / size / 64 * 64,
              .data = data,
              .slots = zpr_gpu_host(d->nccl->scratch)};
  assert(dtype == zpr_gradient_type(c) && (!rounds || dtype == ZPK_F32));
  if (g->local > 0) {
    zpr_nccl_levels_reduce_scatter(c, g, axis, x.comm, x.type, size, data, count);
    return;
  }
  if (rounds) {
    x.leaving = (unsigned short *)(void *)(x.slots + g->n * x.most * size);
    x.coming = x.leaving + g->n * x.most;
  }
  for (int64_t at = 0; at < longest; at += x.most) {
    zpr_piece mine = zpr_chunk_piece(count, g->n, g->me, at, x.most);
    exchange_shares(c, &x, g, axis, count, at);
    zpr_sum_parts(c, &(zpd_rank_sum){.mine = data + mine.begin * size,
                                     .others = x.slots,
                                     .slot = x.most,
                                     .count = mine.count,
                                     .n = g->n,
                                     .me = g->me});
  }
}

void zpr_nccl_group_reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, void *data,
                                   int64_t shard_count) {
  if (shard_count > 0) reduce_scatter(c, g, axis, dtype, data, shard_count * g->n);
}

void zpr_nccl_group_all_gather(zpr *c, const zpr_group *g, zpr_axis axis, void *data, int64_t shard_count) {
  zpr_device *d = c->state->device;
  int64_t bytes = shard_count * zpk_bytes(c->program->dtype);
  if (shard_count == 0) return;
  zpr_nccl_check(c,
                 d->nccl->api.all_gather((char *)data + g->me * bytes, data, (size_t)shard_count, zpr_nccl_type(c),
                                         comm_of(c, g, axis), d->stream),
                 "gather");
  count_ring(c, g, axis, c->program->dtype, g->n * shard_count);
}

/* The chunks may differ by an element, so each comes from its owner by a broadcast. */
void zpr_nccl_group_all_reduce(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, void *data, int64_t count) {
  zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  int64_t size = zpk_bytes(dtype);
  if (count == 0) return;
  reduce_scatter(c, g, axis, dtype, data, count);
  zpr_nccl_check(c, nccl->group_start(), "spread a sum");
  for (int r = 0; r < g->n; r++) {
    zpr_piece chunk = zpr_chunk_piece(count, g->n, r, 0, count);
    char *place = (char *)data + chunk.begin * size;
    if (chunk.count == 0) continue;
    zpr_nccl_check(
        c, nccl->broadcast(place, place, (size_t)chunk.count, nccl_type(dtype), r, comm_of(c, g, axis), d->stream),
        "spread a sum");
  }
  zpr_nccl_check(c, nccl->group_end(), "spread a sum");
  count_ring(c, g, axis, dtype, count);
}

/* All members together send 2(n - 1) * count elements, as comm.c of the host does. */
void zpr_nccl_all_reduce(zpr *c, zpr_axis axis, void *data, int64_t count) {
  zpr_device *d = c->state->device;
  zpr_group g = zpr_axis_group(c, axis);
  if (count == 0) return;
  zpr_nccl_check(
      c,
      d->nccl->api.all_reduce(data, data, (size_t)count, zpr_nccl_type(c), NCCL_SUM, comm_of(c, &g, axis), d->stream),
      "sum over ranks");
  count_ring(c, &g, axis, c->program->dtype, count);
  count_ring(c, &g, axis, c->program->dtype, count);
}

void zpr_nccl_together(zpr *c, bool begin) {
  const nccl_api *nccl = &c->state->device->nccl->api;
  zpr_nccl_check(c, begin ? nccl->group_start() : nccl->group_end(), "start collectives together");
}

void zpr_nccl_reduce_scatter(zpr *c, zpr_axis axis, const void *data, int64_t shard_count, void *out) {
  zpr_device *d = c->state->device;
  zpr_group g = zpr_axis_group(c, axis);
  if (shard_count == 0) return;
  zpr_nccl_check(c,
                 d->nccl->api.reduce_scatter(data, out, (size_t)shard_count, zpr_nccl_type(c), NCCL_SUM,
                                             comm_of(c, &g, axis), d->stream),
                 "sum shares over ranks");
  count_ring(c, &g, axis, c->program->dtype, g.n * shard_count);
}

/* ---- exchanges ---- */

/* Block j of member r stands at one of two places, see zpr_spread_slots; blocks go one by one, because what is one
 * piece on one side is several on the other. */
void zpr_nccl_exchange_slots(zpr *c, zpr_axis axis, bool spread, const char *in, int64_t experts, int64_t elements,
                             char *out) {
  zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  zpr_group g = zpr_axis_group(c, axis);
  int type = zpr_nccl_type(c);
  int64_t bytes = elements * zpk_bytes(c->program->dtype);
  if (g.n > 1) zpr_nccl_check(c, nccl->group_start(), "exchange slots");
  for (int r = 0; r < g.n; r++)
    for (int64_t j = 0; j < experts; j++) {
      int64_t owned = (r * experts + j) * bytes, together = (j * g.n + r) * bytes;
      const char *from = in + (spread ? owned : together);
      char *to = out + (spread ? together : owned);
      if (r == g.me) {
        zpr_copy(c, to, from, bytes);
        continue;
      }
      zpr_nccl_check(c, nccl->receive(to, (size_t)elements, type, r, comm_of(c, &g, axis), d->stream), "receive slots");
      zpr_nccl_check(c, nccl->send(from, (size_t)elements, type, r, comm_of(c, &g, axis), d->stream), "send slots");
      zpr_comm_count(c, axis, bytes, g.rank[r]);
    }
  if (g.n > 1) zpr_nccl_check(c, nccl->group_end(), "exchange slots");
}

void zpr_nccl_group_exchange(zpr *c, const zpr_group *g, zpr_axis axis, const void *send, int64_t stride, int64_t bytes,
                             void *recv) {
  zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  const char *from = send;
  char *to = recv;
  zpr_copy(c, to + g->me * bytes, from + g->me * stride, bytes);
  if (g->n == 1) return;
  void *comm = comm_of(c, g, axis);
  zpr_nccl_check(c, nccl->group_start(), "exchange records");
  for (int r = 0; r < g->n; r++) {
    if (r == g->me) continue;
    zpr_nccl_check(c, nccl->receive(to + r * bytes, (size_t)bytes, NCCL_U8, r, comm, d->stream), "receive a record");
    zpr_nccl_check(c, nccl->send(from + r * stride, (size_t)bytes, NCCL_U8, r, comm, d->stream), "send a record");
    zpr_comm_count(c, axis, bytes, g->rank[r]);
  }
  zpr_nccl_check(c, nccl->group_end(), "exchange records");
}
