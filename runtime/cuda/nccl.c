/* Messages between GPUs by NCCL, which is opened when it is there. It has not run on GPUs yet.
 *
 * Activations of tensor groups are summed by NCCL's own all-reduce. Gradients are summed in rank order, as everywhere
 * in the runtime: shares are exchanged with ncclSend and ncclRecv and added by a kernel. A ring's order depends on
 * where an element lies, so the stages that hold a tied weight at different places would round differently and drift
 * apart.
 *
 * Pipeline messages have a communicator of two ranks and a stream for every neighbour and direction: a send that waits
 * for its receiver must not hold up the kernels behind it, or two stages that send to each other wait for ever. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "cuda.h"

typedef struct unique_id {
  char bytes[128]; /* ncclUniqueId */
} unique_id;
_Static_assert(sizeof(unique_id) <= ZPR_GATHER_BYTES, "an id travels in one control message");

enum { NCCL_F16 = 6, NCCL_F32 = 7, NCCL_F64 = 8, NCCL_BF16 = 9, NCCL_SUM = 0 }; /* ncclDataType_t, ncclRedOp_t */
#define SCRATCH_BYTES ((int64_t)64 << 20) /* where shares of a sum arrive, on the GPU, outside the arena */

/* name of the member, symbol, arguments; all return 0 for success */
#define NCCL_FUNCTIONS(X)                                                                                              \
  X(new_id, "ncclGetUniqueId", (unique_id * id))                                                                       \
  X(join, "ncclCommInitRank", (void **comm, int ranks, unique_id id, int rank))                                        \
  X(leave, "ncclCommDestroy", (void *comm))                                                                            \
  X(all_reduce, "ncclAllReduce",                                                                                       \
    (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))                            \
  X(all_gather, "ncclAllGather", (const void *from, void *to, size_t count, int type, void *comm, void *stream))       \
  X(reduce_scatter, "ncclReduceScatter",                                                                               \
    (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))                            \
  X(broadcast, "ncclBroadcast",                                                                                        \
    (const void *from, void *to, size_t count, int type, int root, void *comm, void *stream))                          \
  X(send, "ncclSend", (const void *from, size_t count, int type, int peer, void *comm, void *stream))                  \
  X(receive, "ncclRecv", (void *to, size_t count, int type, int peer, void *comm, void *stream))                       \
  X(group_start, "ncclGroupStart", (void))                                                                             \
  X(group_end, "ncclGroupEnd", (void))

typedef struct nccl_api {
#define NCCL_MEMBER(name, symbol, arguments) int(*name) arguments;
  NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
  const char *(*error_text)(int result);
} nccl_api;

/* Messages of one direction. In `out` this rank is member 0, in `in` member 1. */
typedef struct channel {
  void *out, *in, *stream;
  void *ready, *sent; /* events: the message is complete in the compute stream; it has left */
  bool pending;
} channel;

struct zpr_nccl {
  nccl_api api;
  void *tensor, *data;
  void **tie;          /* [n_ties] */
  channel channels[2]; /* down, up */
  gpu_pointer scratch;
};

/* ---- opening ---- */

static bool open_api(nccl_api *api, const char **why_not) {
  static const struct {
    const char *name;
    size_t member;
  } symbols[] = {
#define NCCL_SYMBOL(member, symbol, arguments) {symbol, offsetof(nccl_api, member)},
      NCCL_FUNCTIONS(NCCL_SYMBOL){"ncclGetErrorString", offsetof(nccl_api, error_text)}};
#undef NCCL_SYMBOL
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
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

bool zpr_nccl_available(const char **why_not) {
  nccl_api api;
  return open_api(&api, why_not);
}

static void check(zpr *c, int result, const char *what) {
  if (result == 0) return;
  zpr_fail(c, "Z0852", "cannot %s: NCCL says %s (GPU %d)", what, c->state->device->nccl->api.error_text(result),
           c->state->device->ordinal);
}

/* Collective over all ranks: everybody learns the ids that the ranks with `make` have made. */
static void exchange_ids(zpr *c, bool make, unique_id *all) {
  unique_id mine = {0};
  if (make) check(c, c->state->device->nccl->api.new_id(&mine), "make an id for a group");
  zpr_world_gather(c, &mine, sizeof mine, all);
}

static void *join(zpr *c, const unique_id *id, int n, int me) {
  void *comm = NULL;
  check(c, c->state->device->nccl->api.join(&comm, n, *id, me), "join a group");
  return comm;
}

/* Collective over all ranks, also those whose group is themselves. */
static void *join_group(zpr *c, zpr_group g, unique_id *all) {
  exchange_ids(c, g.n > 1 && g.me == 0, all);
  return g.n > 1 ? join(c, &all[g.rank[0]], g.n, g.me) : NULL;
}

/* The neighbour below first: so the ranks of a pipeline join one after the other, and none waits for one that waits. */
static void open_channel(zpr *c, bool up, unique_id *all) {
  zpr_device *d = c->state->device;
  zpr_group g = zpr_axis_group(c, ZPR_PIPELINE);
  channel *h = &d->nccl->channels[up];
  bool below = c->p > 0, above = c->p + 1 < c->program->pipeline;
  exchange_ids(c, up ? above : below, all);
  if (up) {
    if (below) h->in = join(c, &all[g.rank[c->p - 1]], 2, 1);
    if (above) h->out = join(c, &all[c->rank], 2, 0);
  } else {
    if (below) h->out = join(c, &all[c->rank], 2, 0);
    if (above) h->in = join(c, &all[g.rank[c->p + 1]], 2, 1);
  }
  zpr_cuda(c, d->api.new_stream(&h->stream, 1), "make a stream for messages"); /* CU_STREAM_NON_BLOCKING */
  zpr_cuda(c, d->api.new_event(&h->ready, 2), "make an event");                /* CU_EVENT_DISABLE_TIMING */
  zpr_cuda(c, d->api.new_event(&h->sent, 2), "make an event");
}

void zpr_nccl_open(zpr *c) {
  zpr_device *d = c->state->device;
  zpr_nccl *n = d->nccl = zpr_alloc(c, 1, sizeof *n);
  const char *why_not = "";
  if (!open_api(&n->api, &why_not)) zpr_fail(c, "Z0853", "NCCL cannot be opened: %s", why_not);
  unique_id *all = zpr_alloc(c, (size_t)c->ranks, sizeof *all);
  n->tensor = join_group(c, zpr_axis_group(c, ZPR_TENSOR), all);
  n->data = join_group(c, zpr_axis_group(c, ZPR_DATA), all);
  n->tie = zpr_alloc(c, (size_t)c->program->n_ties, sizeof *n->tie);
  for (int i = 0; i < c->program->n_ties; i++) n->tie[i] = join_group(c, zpr_tie_group(c, i), all);
  open_channel(c, false, all);
  open_channel(c, true, all);
  free(all);
  zpr_cuda(c, d->api.allocate(&n->scratch, SCRATCH_BYTES), "get memory for sums over ranks");
}

void zpr_nccl_close(zpr *c) {
  zpr_device *d = c->state->device;
  zpr_nccl *n = d->nccl;
  for (int i = 0; i < 2; i++) {
    channel *h = &n->channels[i];
    if (h->in) n->api.leave(h->in);
    if (h->out) n->api.leave(h->out);
    d->api.release_stream(h->stream);
    d->api.release_event(h->ready);
    d->api.release_event(h->sent);
  }
  for (int i = 0; i < c->program->n_ties; i++)
    if (n->tie[i]) n->api.leave(n->tie[i]);
  if (n->data) n->api.leave(n->data);
  if (n->tensor) n->api.leave(n->tensor);
  d->api.release(n->scratch);
  free(n->tie);
  free(n);
  d->nccl = NULL;
}

/* ---- collectives ---- */

static int type_of(const zpr *c) {
  static const int type[] = {[ZPK_F32] = NCCL_F32, [ZPK_F64] = NCCL_F64, [ZPK_BF16] = NCCL_BF16, [ZPK_F16] = NCCL_F16};
  return type[c->program->dtype];
}

static void *comm_of(zpr *c, const zpr_group *g, zpr_axis axis) {
  const zpr_nccl *n = c->state->device->nccl;
  if (axis == ZPR_TENSOR) return n->tensor;
  if (axis == ZPR_DATA) return n->data;
  for (int i = 0; axis == ZPR_TIE && i < c->program->n_ties; i++)
    if (zpr_tie_group(c, i).rank == g->rank) return n->tie[i];
  zpr_fail(c, "Z0853", "there is no NCCL group for this axis");
}

/* Afterwards chunk g->me of data holds the sum, added in rank order: as reduce_scatter in comm.c of the host. */
static void reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, char *data, int64_t count) {
  zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  void *comm = comm_of(c, g, axis);
  char *scratch = zpr_gpu_host(d->nccl->scratch);
  int type = type_of(c);
  int64_t size = zpk_bytes(c->program->dtype), longest = (count + g->n - 1) / g->n;
  int64_t most = SCRATCH_BYTES / g->n / size / 64 * 64, slot = most * size;
  for (int64_t at = 0; at < longest; at += most) {
    zpr_piece mine = zpr_chunk_piece(count, g->n, g->me, at, most);
    check(c, nccl->group_start(), "exchange shares of a sum");
    for (int r = 0; r < g->n; r++) {
      zpr_piece theirs = zpr_chunk_piece(count, g->n, r, at, most);
      if (r == g->me) continue;
      if (mine.count > 0)
        check(c, nccl->receive(scratch + r * slot, (size_t)mine.count, type, r, comm, d->stream), "receive a share");
      if (theirs.count > 0)
        check(c, nccl->send(data + theirs.begin * size, (size_t)theirs.count, type, r, comm, d->stream),
              "send a share");
      zpr_comm_count(c, axis, theirs.count * size);
    }
    check(c, nccl->group_end(), "exchange shares of a sum");
    zpr_sum_parts(c, &(zpd_rank_sum){.mine = data + mine.begin * size,
                                     .others = scratch,
                                     .slot = most,
                                     .count = mine.count,
                                     .n = g->n,
                                     .me = g->me});
  }
}

void zpr_nccl_group_reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, void *data, int64_t shard_count) {
  if (shard_count > 0) reduce_scatter(c, g, axis, data, shard_count * g->n);
}

void zpr_nccl_group_all_gather(zpr *c, const zpr_group *g, zpr_axis axis, void *data, int64_t shard_count) {
  zpr_device *d = c->state->device;
  int64_t bytes = shard_count * zpk_bytes(c->program->dtype);
  if (shard_count == 0) return;
  check(c,
        d->nccl->api.all_gather((char *)data + g->me * bytes, data, (size_t)shard_count, type_of(c),
                                comm_of(c, g, axis), d->stream),
        "gather");
  zpr_comm_count(c, axis, (g->n - 1) * bytes);
}

/* The chunks may differ by an element, so each comes from its owner by a broadcast. */
void zpr_nccl_group_all_reduce(zpr *c, const zpr_group *g, zpr_axis axis, void *data, int64_t count) {
  zpr_device *d = c->state->device;
  const nccl_api *nccl = &d->nccl->api;
  int64_t size = zpk_bytes(c->program->dtype);
  if (count == 0) return;
  reduce_scatter(c, g, axis, data, count);
  check(c, nccl->group_start(), "spread a sum");
  for (int r = 0; r < g->n; r++) {
    zpr_piece chunk = zpr_chunk_piece(count, g->n, r, 0, count);
    char *place = (char *)data + chunk.begin * size;
    if (chunk.count == 0) continue;
    check(c, nccl->broadcast(place, place, (size_t)chunk.count, type_of(c), r, comm_of(c, g, axis), d->stream),
          "spread a sum");
    if (r == g->me) zpr_comm_count(c, axis, (g->n - 1) * chunk.count * size);
  }
  check(c, nccl->group_end(), "spread a sum");
}

/* Counted as a ring's traffic, which is what comm.c of the host sends: all members together 2(n - 1) * count elements.
 */
void zpr_nccl_all_reduce(zpr *c, zpr_axis axis, void *data, int64_t count) {
  zpr_device *d = c->state->device;
  zpr_group g = zpr_axis_group(c, axis);
  int64_t size = zpk_bytes(c->program->dtype), mine = zpr_chunk_piece(count, g.n, g.me, 0, count).count;
  if (count == 0) return;
  check(c, d->nccl->api.all_reduce(data, data, (size_t)count, type_of(c), NCCL_SUM, comm_of(c, &g, axis), d->stream),
        "sum over ranks");
  zpr_comm_count(c, axis, (count - mine + (g.n - 1) * mine) * size);
}

void zpr_nccl_together(zpr *c, bool begin) {
  const nccl_api *nccl = &c->state->device->nccl->api;
  check(c, begin ? nccl->group_start() : nccl->group_end(), "exchange shares of samples");
}

void zpr_nccl_reduce_scatter(zpr *c, zpr_axis axis, const void *data, int64_t shard_count, void *out) {
  zpr_device *d = c->state->device;
  zpr_group g = zpr_axis_group(c, axis);
  if (shard_count == 0) return;
  check(c,
        d->nccl->api.reduce_scatter(data, out, (size_t)shard_count, type_of(c), NCCL_SUM, comm_of(c, &g, axis),
                                    d->stream),
        "sum shares over ranks");
  zpr_comm_count(c, axis, (g.n - 1) * shard_count * zpk_bytes(c->program->dtype));
}

/* ---- pipeline neighbours ---- */

void zpr_nccl_send(zpr *c, bool up, const void *data, int64_t count) {
  zpr_device *d = c->state->device;
  channel *h = &d->nccl->channels[up];
  zpr_cuda(c, d->api.record(h->ready, d->stream), "mark a message as complete");
  zpr_cuda(c, d->api.stream_waits(h->stream, h->ready, 0), "wait for a message to be complete");
  check(c, d->nccl->api.send(data, (size_t)count, type_of(c), 1, h->out, h->stream), "send to the next stage");
  zpr_cuda(c, d->api.record(h->sent, h->stream), "mark a message as sent");
  h->pending = true;
  zpr_comm_count(c, ZPR_PIPELINE, count * zpk_bytes(c->program->dtype));
}

/* What the compute stream does next may write the buffer. */
void zpr_nccl_send_wait(zpr *c, bool up) {
  zpr_device *d = c->state->device;
  channel *h = &d->nccl->channels[up];
  if (h->pending) zpr_cuda(c, d->api.stream_waits(d->stream, h->sent, 0), "wait for a message to be sent");
  h->pending = false;
}

void zpr_nccl_recv(zpr *c, bool from_below, void *data, int64_t count) {
  zpr_device *d = c->state->device;
  void *comm = d->nccl->channels[from_below].in;
  check(c, d->nccl->api.receive(data, (size_t)count, type_of(c), 0, comm, d->stream), "receive from the stage before");
}
