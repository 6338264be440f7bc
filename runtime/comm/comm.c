/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks, groups and collectives on memory of the host, over the point-to-point messages of a transport.
 *
 * Sums use a direct exchange: member i of a group owns chunk i = [i * count / n, (i + 1) * count / n); every member
 * sends chunk i to i, which adds in rank order, 16-bit elements in f32 and rounded once. This moves as many bytes as a
 * ring and takes one hop instead of n - 1. What decided for it is the order: a ring adds chunk i starting at rank i +
 * 1, so two stages that hold the same tied weight at different places of their buffers would round differently and
 * drift apart. Here the order is the same for every element. Over nodes with several members each it goes in two levels
 * (comm_levels.c). With zpr_program.rounds_sums the messages of a sum of gradients that leave a node are rounded to
 * bf16, once, and added in f32.
 *
 * Nothing is allocated after zpr_comm_init. Every payload byte is counted where it is sent. */
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm.h"
#include "device.h"
#include "watch.h"

enum {
  SPINS = 200, /* polls before the first nap */
  FIRST_NAP_US = 20,
  LONGEST_NAP_US = 100
};

/* ---- groups ---- */

/* Members of a node, where several nodes have equally many, and more than one. */
static int members_of_nodes(const zpr_comm *comm, const int *rank, int n) {
  int local = 1;
  while (local < n && comm->node[rank[local]] == comm->node[rank[0]]) local++;
  if (local == 1 || local == n || n % local != 0) return 0;
  for (int i = 1; i < n; i++)
    if ((i % local > 0) != (comm->node[rank[i]] == comm->node[rank[i - 1]])) return 0;
  return local;
}

static zpr_group make_group(zpr *c, int first, int stride, int n) {
  int *rank = zpr_alloc(c, (size_t)n, sizeof *rank);
  zpr_group g = {.n = n, .me = -1, .rank = rank};
  for (int i = 0; i < n; i++) {
    rank[i] = first + i * stride;
    if (rank[i] == c->rank) g.me = i;
  }
  g.local = members_of_nodes(c->state->comm, rank, n);
  return g;
}

/* Ranks, which are in order, fill nodes in order. */
bool zpr_rounds_sum(const zpr *c, const zpr_group *g, zpr_axis axis) {
  const int *node = c->state->comm->node;
  return c->program->rounds_sums && axis == ZPR_DATA && node[g->rank[0]] != node[g->rank[g->n - 1]];
}

/* From a rank to the next one of its pipeline and of its data group. */
int zpr_pipeline_stride(const zpr_program *p) { return p->tensor * (p->pipeline_before_data ? 1 : p->data); }

static int data_stride(const zpr_program *p) { return p->tensor * (p->pipeline_before_data ? p->pipeline : 1); }

static int rank_of(const zpr_program *program, int t, int p, int d) {
  return t + p * zpr_pipeline_stride(program) + d * data_stride(program);
}

static zpr_group make_tie_group(zpr *c, const zpr_tie *tie) {
  const zpr_program *program = c->program;
  int *rank = zpr_alloc(c, (size_t)tie->n_stages, sizeof *rank);
  zpr_group g = {.n = tie->n_stages, .me = -1, .rank = rank};
  for (int i = 0; i < tie->n_stages; i++) {
    rank[i] = rank_of(program, c->t, tie->stages[i], c->d);
    if (rank[i] == c->rank) g.me = i;
  }
  g.local = members_of_nodes(c->state->comm, rank, g.n);
  if (g.me < 0) g = (zpr_group){.n = 1, .rank = rank}, rank[0] = c->rank; /* not a holder */
  return g;
}

/* Ranks that the rows leave over stand on the last node. */
static void place_ranks(zpr *c) {
  const zpr_program *p = c->program;
  int *node = c->state->comm->node = zpr_alloc(c, (size_t)c->ranks, sizeof *node), rank = 0, at = 0;
  for (int i = 0; i < p->n_nodes; i++)
    for (int k = 0; k < p->nodes[i].nodes; k++, at++)
      for (int j = 0; j < p->nodes[i].ranks && rank < c->ranks; j++) node[rank++] = at;
  for (; rank < c->ranks; rank++) node[rank] = at > 0 ? at - 1 : 0;
}

/* Coordinates, the groups that share two of them, and the kinds into which data groups fall apart. A wrong number
 * of ranks has no coordinates: open.c refuses it next. */
static void make_groups(zpr *c) {
  const zpr_program *program = c->program;
  zpr_comm *comm = c->state->comm;
  int T = program->tensor, D = program->data, P = program->pipeline;
  comm->axis[ZPR_CONTROL] = make_group(c, 0, 1, c->ranks);
  if (c->ranks != T * D * P) return;
  c->t = c->rank % T;
  c->d = c->rank / data_stride(program) % D;
  c->p = c->rank / zpr_pipeline_stride(program) % P;
  comm->axis[ZPR_TENSOR] = make_group(c, c->rank - c->t, 1, T);
  comm->axis[ZPR_DATA] = make_group(c, rank_of(program, c->t, c->p, 0), data_stride(program), D);
  int E = zpr_expert_ranks(program), first = c->d / E * E, S = zpr_shard_ranks(program), shard = c->d / S * S;
  comm->axis[ZPR_EXPERT] = make_group(c, rank_of(program, c->t, c->p, first), data_stride(program), E);
  comm->sharers = make_group(c, rank_of(program, c->t, c->p, shard), data_stride(program), S);
  comm->replicas = make_group(c, rank_of(program, c->t, c->p, shard + c->d - first), E * data_stride(program), S / E);
  comm->copies = make_group(c, rank_of(program, c->t, c->p, c->d - shard), S * data_stride(program), D / S);
  int Z = program->hpz > 0 ? program->hpz : 1;
  comm->hpz = make_group(c, rank_of(program, c->t, c->p, c->d / Z * Z), data_stride(program), Z);
  int C = zpr_context_ranks(program);
  comm->axis[ZPR_CONTEXT] = make_group(c, rank_of(program, c->t, c->p, c->d / C * C), data_stride(program), C);
  comm->axis[ZPR_PIPELINE] = make_group(c, rank_of(program, c->t, 0, c->d), zpr_pipeline_stride(program), P);
  comm->tie = zpr_alloc(c, (size_t)program->n_ties, sizeof *comm->tie);
  for (int i = 0; i < program->n_ties; i++) comm->tie[i] = make_tie_group(c, &program->ties[i]);
}

zpr_group zpr_shard_group(zpr *c) { return c->state->comm->sharers; }

zpr_group zpr_copies_group(zpr *c) { return c->state->comm->copies; }

zpr_group zpr_hpz_group(zpr *c) { return c->state->comm->hpz; }

zpr_group zpr_replica_group(zpr *c) { return c->state->comm->replicas; }

zpr_group zpr_axis_group(zpr *c, zpr_axis axis) {
  assert(axis != ZPR_TIE && "every tie has its own group");
  return c->state->comm->axis[axis];
}

zpr_group zpr_tie_group(zpr *c, int tie) { return c->state->comm->tie[tie]; }

void zpr_comm_init(zpr *c, int *argc, char ***argv) {
  zpr_linked_transport->init(&c->state->options, argc, argv, &c->rank, &c->ranks);
  zpr_comm *comm = zpr_alloc(c, 1, sizeof *comm);
  c->state->comm = comm;
  comm->transport = zpr_linked_transport;
  comm->staging = zpr_alloc(c, 1, (size_t)ZPR_STAGING_BYTES);
  comm->gather = zpr_alloc(c, (size_t)c->ranks, ZPR_GATHER_BYTES);
  comm->handles = zpr_alloc(c, 2 * (size_t)c->ranks, sizeof *comm->handles);
  comm->parts = zpr_alloc(c, (size_t)c->ranks, sizeof *comm->parts);
  comm->sends = zpr_alloc(c, (size_t)zpr_message_buffers(c->program), sizeof *comm->sends);
  comm->transfers = zpr_alloc(c, ZPR_TRANSFERS, sizeof *comm->transfers);
  comm->stays = zpr_alloc(c, (size_t)zpr_message_buffers(c->program), sizeof *comm->stays);
  place_ranks(c);
  make_groups(c);
  comm->hosts = zpr_alloc(c, (size_t)c->ranks, ZPR_HOST_BYTES);
  char name[ZPR_HOST_BYTES] = "";
  gethostname(name, sizeof name - 1);
  zpr_world_gather(c, name, sizeof name, comm->hosts);
}

void zpr_comm_finish(zpr *c) {
  zpr_comm *comm = c->state->comm;
  if (!comm) return;
  comm->transport->finish();
  for (int a = 0; a < ZPR_AXIS_COUNT; a++) free((void *)comm->axis[a].rank);
  free((void *)comm->sharers.rank);
  free((void *)comm->replicas.rank);
  free((void *)comm->copies.rank);
  for (int i = 0; comm->tie && i < c->program->n_ties; i++) free((void *)comm->tie[i].rank);
  free(comm->tie);
  free(comm->node);
  free(comm->staging);
  free(comm->gather);
  free(comm->handles);
  free(comm->parts);
  free(comm->sends);
  free(comm->transfers);
  free(comm->stays);
  free(comm->hosts);
  free(comm);
  c->state->comm = NULL;
}

int64_t zpr_comm_sent_bytes(zpr *c, zpr_axis axis) { return c->state->comm->sent_bytes[axis]; }

int64_t zpr_comm_routed_bytes(zpr *c) { return c->state->comm->routed_bytes; }

int64_t zpr_comm_across_bytes(zpr *c, zpr_axis axis) { return c->state->comm->across_bytes[axis]; }

bool zpr_is_elsewhere(const zpr *c, int rank) {
  const int *node = c->state->comm->node;
  return node[rank] != node[c->rank];
}

void zpr_comm_count(zpr *c, zpr_axis axis, int64_t bytes, int peer) {
  zpr_comm *comm = c->state->comm;
  comm->sent_bytes[axis] += bytes;
  if (zpr_is_elsewhere(c, peer)) comm->across_bytes[axis] += bytes;
}

/* ---- waiting ---- */

/* True when all are complete; completed handles become -1. */
static bool poll_handles(const zpr_comm *comm, int *handle, int n) {
  bool complete = true;
  for (int i = 0; i < n; i++) {
    if (handle[i] < 0) continue;
    if (comm->transport->poll(handle[i]))
      handle[i] = -1;
    else
      complete = false;
  }
  return complete;
}

static void poll_send(const zpr_comm *comm, pending_send *send) {
  if (send->n > 0 && poll_handles(comm, send->handle, send->n)) send->n = 0;
}

void zpr_comm_progress(zpr *c) {
  zpr_comm *comm = c->state->comm;
  for (int64_t i = 0; i < zpr_message_buffers(c->program); i++) poll_send(comm, &comm->sends[i]);
}

/* Which message is missing? One that is to come rather than one that nobody takes: handles begin with those. */
static void watch_handles(zpr *c, zpr_wait *wait, const int *handle, int n) {
  int first = -1, others = 0, tag = 0;
  for (int i = 0; i < n; i++)
    if (handle[i] >= 0 && first >= 0)
      others++;
    else if (handle[i] >= 0)
      first = handle[i];
  if (first < 0) return;
  int peer = c->state->comm->transport->peer(first, &tag);
  zpr_watch(c, wait, peer, tag < ZPR_AXIS_COUNT ? (zpr_axis)tag : ZPR_PIPELINE, others);
}

/* Polls, then naps: ranks may share cores, and a waiting rank must leave its core to one that computes. */
void zpr_wait_handles(zpr *c, int *handle, int n) {
  useconds_t nap_us = FIRST_NAP_US;
  zpr_wait wait = {0};
  for (int tries = 0; !poll_handles(c->state->comm, handle, n); tries++) {
    if (tries < SPINS) continue;
    zpr_comm_progress(c);
    watch_handles(c, &wait, handle, n);
    usleep(nap_us);
    if (nap_us < LONGEST_NAP_US) nap_us += FIRST_NAP_US;
  }
}

int zpr_post_send(zpr *c, zpr_axis axis, const void *data, int64_t bytes, int peer, int tag) {
  zpr_comm_count(c, axis, bytes, peer);
  return c->state->comm->transport->isend(data, bytes, peer, tag);
}

/* ---- sums and gathers over a group ---- */

zpr_piece zpr_chunk_piece(int64_t count, int n, int r, int64_t at, int64_t most) {
  int64_t begin = count * r / n, size = count * (r + 1) / n - begin - at;
  if (size < 0) size = 0;
  return (zpr_piece){begin + at, size < most ? size : most};
}

typedef struct sum_args {
  zpk_dtype dtype;
  char *mine; /* my piece, in place */
  const void *const *part;
  int n;
} sum_args;

ZPR_TASK(add_part, sum_args, zpk_sum_parts(a->dtype, a->mine, a->part, a->n, begin, end))

void zpr_add_in_rank_order(zpr *c, zpk_dtype dtype, char *sum, const void *const *part, int n, int64_t count) {
  sum_args args = {dtype, sum, part, n};
  zpr_parallel(c, count, 16384, add_part, &args);
}

typedef struct rounding {
  float *sum;
  uint16_t *bits;
} rounding;

ZPR_TASK(round_range, rounding, zpk_round(ZPK_BF16, a->sum + begin, a->bits + begin, end - begin))

ZPR_TASK(widen_range, rounding, zpk_widen(ZPK_BF16, a->bits + begin, a->sum + begin, end - begin))

void zpr_round_sum(zpr *c, const char *sum, uint16_t *bits, int64_t count) {
  zpr_parallel(c, count, 16384, round_range, &(rounding){(float *)(uintptr_t)sum, bits});
}

void zpr_widen_sum(zpr *c, const uint16_t *bits, char *sum, int64_t count) {
  zpr_parallel(c, count, 16384, widen_range, &(rounding){(float *)(void *)sum, (uint16_t *)(uintptr_t)bits});
}

/* A round of an exchange between all members: where parts arrive, and of those that are rounded to leave a node the
 * bits of either way. */
typedef struct exchange_round {
  int64_t most; /* elements of a slot */
  char *slots;
  uint16_t *leaving, *coming;
} exchange_round;

/* Part of data for member r, and what of mine comes from it. */
static void exchange_with(zpr *c, const zpr_group *g, zpr_axis axis, int r, bool rounds, int64_t size, zpr_piece theirs,
                          zpr_piece mine, const char *data, const exchange_round *at) {
  zpr_comm *comm = c->state->comm;
  const char *from = data + theirs.begin * size;
  char *to = at->slots + r * at->most * size;
  if (rounds) {
    zpr_round_sum(c, from, at->leaving + r * at->most, theirs.count);
    from = (const char *)(at->leaving + r * at->most);
    to = (char *)(at->coming + r * at->most);
    size = sizeof *at->leaving;
  }
  if (mine.count > 0) comm->handles[r] = comm->transport->irecv(to, mine.count * size, g->rank[r], (int)axis);
  if (theirs.count > 0)
    comm->handles[g->n + r] = zpr_post_send(c, axis, from, theirs.count * size, g->rank[r], (int)axis);
}

/* Afterwards chunk g->me of data is summed in `sum`, which has this rank's own chunk before; it may be its place in
 * data. */
static void reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, const char *data, int64_t count,
                           char *sum) {
  zpr_comm *comm = c->state->comm;
  const bool rounds = zpr_rounds_sum(c, g, axis);
  const int64_t size = zpk_bytes(dtype), longest = (count + g->n - 1) / g->n;
  exchange_round at = {.most = ZPR_STAGING_BYTES / (g->n * (rounds ? 2 : 1)) / size / 64 * 64, .slots = comm->staging};
  assert(!rounds || dtype == ZPK_F32);
  if (g->local > 0) {
    zpr_levels_reduce_scatter(c, g, axis, dtype, data, count, sum);
    return;
  }
  if (rounds) {
    at.leaving = (uint16_t *)(void *)(at.slots + g->n * at.most * size);
    at.coming = at.leaving + g->n * at.most;
  }
  for (int64_t done = 0; done < longest; done += at.most) {
    zpr_piece mine = zpr_chunk_piece(count, g->n, g->me, done, at.most);
    for (int r = 0; r < g->n; r++) {
      comm->handles[r] = comm->handles[g->n + r] = -1;
      if (r == g->me) continue;
      exchange_with(c, g, axis, r, rounds && zpr_is_elsewhere(c, g->rank[r]), size,
                    zpr_chunk_piece(count, g->n, r, done, at.most), mine, data, &at);
    }
    zpr_wait_handles(c, comm->handles, g->n);
    char *out = sum + done * size;
    for (int r = 0; r < g->n; r++) {
      char *slot = at.slots + r * at.most * size;
      comm->parts[r] = r == g->me ? out : slot;
      if (rounds && zpr_is_elsewhere(c, g->rank[r])) zpr_widen_sum(c, at.coming + r * at.most, slot, mine.count);
    }
    zpr_add_in_rank_order(c, dtype, out, comm->parts, g->n, mine.count);
    zpr_wait_handles(c, comm->handles + g->n, g->n);
  }
}

static char *own_chunk(const zpr_group *g, zpk_dtype dtype, char *data, int64_t count) {
  return data + zpr_chunk_piece(count, g->n, g->me, 0, count).begin * zpk_bytes(dtype);
}

/* Every member's chunk travels to all others, in place. */
static void all_gather(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, char *data, int64_t count) {
  zpr_comm *comm = c->state->comm;
  int64_t size = zpk_bytes(dtype), longest = (count + g->n - 1) / g->n, most = ZPR_SPLIT_BYTES / size;
  if (g->local > 0) {
    zpr_levels_all_gather(c, g, axis, size, data, count);
    return;
  }
  for (int64_t at = 0; at < longest; at += most) {
    zpr_piece mine = zpr_chunk_piece(count, g->n, g->me, at, most);
    for (int r = 0; r < g->n; r++) {
      zpr_piece theirs = zpr_chunk_piece(count, g->n, r, at, most);
      int *receive = &comm->handles[r], *send = &comm->handles[g->n + r];
      *receive = *send = -1;
      if (r == g->me) continue;
      if (theirs.count > 0)
        *receive = comm->transport->irecv(data + theirs.begin * size, theirs.count * size, g->rank[r], (int)axis);
      if (mine.count > 0)
        *send = zpr_post_send(c, axis, data + mine.begin * size, mine.count * size, g->rank[r], (int)axis);
    }
    zpr_wait_handles(c, comm->handles, 2 * g->n);
  }
}

void zpr_host_all_reduce(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                         int64_t count) {
  if (group->n == 1) return;
  reduce_scatter(c, group, counted_as, dtype, data, count, own_chunk(group, dtype, data, count));
  all_gather(c, group, counted_as, dtype, data, count);
}

void zpr_host_reduce_scatter(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                             int64_t shard_count) {
  int64_t count = shard_count * group->n;
  if (group->n > 1) reduce_scatter(c, group, counted_as, dtype, data, count, own_chunk(group, dtype, data, count));
}

void zpr_host_reduce_scatter_to(zpr *c, const zpr_group *group, zpr_axis counted_as, const void *data,
                                int64_t shard_count, void *out) {
  zpk_dtype dtype = c->program->dtype;
  int64_t bytes = shard_count * zpk_bytes(dtype);
  memcpy(out, (const char *)data + group->me * bytes, (size_t)bytes);
  if (group->n > 1) reduce_scatter(c, group, counted_as, dtype, data, shard_count * group->n, out);
}

void zpr_host_all_gather(zpr *c, const zpr_group *group, zpr_axis counted_as, void *data, int64_t shard_count) {
  if (group->n > 1) all_gather(c, group, counted_as, c->program->dtype, data, shard_count * group->n);
}

void zpr_host_exchange(zpr *c, const zpr_group *g, zpr_axis counted_as, const void *send, int64_t stride, int64_t bytes,
                       void *recv) {
  zpr_comm *comm = c->state->comm;
  memcpy((char *)recv + g->me * bytes, (const char *)send + g->me * stride, (size_t)bytes);
  for (int64_t at = 0; at < bytes; at += ZPR_SPLIT_BYTES) {
    int64_t part = bytes - at < ZPR_SPLIT_BYTES ? bytes - at : ZPR_SPLIT_BYTES;
    for (int r = 0; r < g->n; r++) {
      int *receive = &comm->handles[r], *sent = &comm->handles[g->n + r];
      *receive = *sent = -1;
      if (r == g->me) continue;
      *receive = comm->transport->irecv((char *)recv + r * bytes + at, part, g->rank[r], (int)counted_as);
      *sent = zpr_post_send(c, counted_as, (const char *)send + r * stride + at, part, g->rank[r], (int)counted_as);
    }
    zpr_wait_handles(c, comm->handles, 2 * g->n);
  }
}

/* ---- control values: through rank 0, two hops ---- */

void zpr_world_gather(zpr *c, const void *mine, int64_t bytes, void *all) {
  assert(bytes <= ZPR_GATHER_BYTES);
  zpr_comm *comm = c->state->comm;
  int tag = ZPR_CONTROL, n = c->ranks;
  memmove((char *)all + c->rank * bytes, mine, (size_t)bytes);
  if (n == 1) return;
  comm->handles[0] = -1;
  if (c->rank != 0) {
    comm->handles[0] = zpr_post_send(c, ZPR_CONTROL, mine, bytes, 0, tag);
    comm->handles[1] = comm->transport->irecv(all, n * bytes, 0, tag);
    zpr_wait_handles(c, comm->handles, 2);
    return;
  }
  for (int r = 1; r < n; r++) comm->handles[r] = comm->transport->irecv((char *)all + r * bytes, bytes, r, tag);
  zpr_wait_handles(c, comm->handles, n);
  for (int r = 1; r < n; r++) comm->handles[r] = zpr_post_send(c, ZPR_CONTROL, all, n * bytes, r, tag);
  zpr_wait_handles(c, comm->handles, n);
}

void zpr_world_sum(zpr *c, double *values, int count) {
  const char *all = c->state->comm->gather;
  zpr_world_gather(c, values, count * (int64_t)sizeof *values, c->state->comm->gather);
  for (int i = 0; i < count; i++) {
    values[i] = 0;
    for (int r = 0; r < c->ranks; r++) {
      double x;
      memcpy(&x, all + ((int64_t)r * count + i) * (int64_t)sizeof x, sizeof x);
      values[i] += x;
    }
  }
}

void zpr_world_sums(zpr *c, double *values, int64_t n) {
  enum { AT_ONCE = ZPR_GATHER_BYTES / (int)sizeof(double) };
  for (int64_t i = 0; i < n; i += AT_ONCE) zpr_world_sum(c, values + i, (int)(n - i < AT_ONCE ? n - i : AT_ONCE));
}

enum { INTEGERS_AT_ONCE = 1 << 16 };

static void receive_integers(zpr *c, const zpr_group *g, uint64_t *values, int64_t n, int member) {
  zpr_comm *comm = c->state->comm;
  comm->handles[0] = comm->transport->irecv(values, n * (int64_t)sizeof *values, g->rank[member], ZPR_CONTROL);
  zpr_wait_handles(c, comm->handles, 1);
}

static void send_integers(zpr *c, const zpr_group *g, const uint64_t *values, int64_t n, int member) {
  zpr_comm *comm = c->state->comm;
  comm->handles[0] = zpr_post_send(c, ZPR_CONTROL, values, n * (int64_t)sizeof *values, g->rank[member], ZPR_CONTROL);
  zpr_wait_handles(c, comm->handles, 1);
}

/* Along a binary tree: member r takes what 2r + 1 and 2r + 2 have, and gives its sum to (r - 1) / 2; back: the sum of
 * all goes the other way. */
static void sum_integers(zpr *c, const zpr_group *g, uint64_t *values, int64_t n, bool back) {
  uint64_t *theirs = (uint64_t *)(void *)c->state->comm->staging;
  _Static_assert(INTEGERS_AT_ONCE * sizeof *theirs <= ZPR_STAGING_BYTES, "a round goes through the staging buffer");
  for (int64_t at = 0; at < n && g->n > 1; at += INTEGERS_AT_ONCE) {
    int64_t count = n - at < INTEGERS_AT_ONCE ? n - at : INTEGERS_AT_ONCE;
    for (int r = 2 * g->me + 1; r <= 2 * g->me + 2 && r < g->n; r++) {
      receive_integers(c, g, theirs, count, r);
      for (int64_t i = 0; i < count; i++) values[at + i] += theirs[i];
    }
    if (g->me > 0) send_integers(c, g, values + at, count, (g->me - 1) / 2);
    if (g->me > 0 && back) receive_integers(c, g, values + at, count, (g->me - 1) / 2);
    for (int r = 2 * g->me + 1; r <= 2 * g->me + 2 && r < g->n && back; r++) send_integers(c, g, values + at, count, r);
  }
}

void zpr_first_sums(zpr *c, uint64_t *values, int64_t n) {
  sum_integers(c, &c->state->comm->axis[ZPR_CONTROL], values, n, false);
}

void zpr_sum_counts(zpr *c, const zpr_group *group, int64_t *values, int64_t n) {
  sum_integers(c, group, (uint64_t *)values, n, true);
}

int64_t zpr_world_min(zpr *c, int64_t value) {
  const char *all = c->state->comm->gather;
  zpr_world_gather(c, &value, sizeof value, c->state->comm->gather);
  for (int r = 0; r < c->ranks; r++) {
    int64_t x;
    memcpy(&x, all + (int64_t)r * (int64_t)sizeof x, sizeof x);
    if (x < value) value = x;
  }
  return value;
}

void zpr_barrier(zpr *c) { zpr_world_min(c, 0); }

const char *zpr_host_of(const zpr *c, int rank) {
  assert(rank >= 0 && rank < c->ranks);
  return c->state->comm->hosts[rank];
}

/* How many of the first `ranks` ranks run on this host. */
static int count_on_host(const zpr *c, int ranks) {
  int same = 0;
  for (int r = 0; r < ranks; r++) same += strcmp(zpr_host_of(c, r), zpr_host_of(c, c->rank)) == 0;
  return same;
}

int zpr_ranks_on_host(zpr *c) { return count_on_host(c, c->ranks); }

int zpr_rank_on_host(zpr *c) { return count_on_host(c, c->rank); }
