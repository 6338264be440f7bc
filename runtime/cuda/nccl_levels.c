/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over several nodes with several members of the group each, by NCCL's sends, in two levels:
 * runtime/comm/comm_levels.c says why and how. Sums of a node are made where this rank's part of them was, in the
 * gradients. Rounded ones leave from the scratch memory and arrive there, where parts of the node are no longer
 * needed. */
#include "nccl.h"

typedef struct grid {
  int nodes, places, node, place;
} grid;

/* What of every chunk is there. */
typedef struct window {
  zpr *c;
  const zpr_group *g;
  grid grid;
  zpr_axis axis;
  void *comm;
  int type;
  int64_t size, count, at, most; /* bytes of an element; elements of all chunks, of a chunk before, of one at most */
  char *data, *scratch;
  unsigned short *leaving, *coming; /* rounded: for each node and from each; NULL: they are not */
} window;

static zpr_piece piece_of(const window *w, int node, int place) {
  return zpr_chunk_piece(w->count, w->g->n, node * w->grid.places + place, w->at, w->most);
}

static void receive(const window *w, int slot, int64_t count, int member) {
  const zpr_device *d = w->c->state->device;
  if (count > 0)
    zpr_nccl_check(
        w->c,
        d->nccl->api.receive(w->scratch + slot * w->most * w->size, (size_t)count, w->type, member, w->comm, d->stream),
        "receive a share");
}

static void send(const window *w, zpr_piece part, int member) {
  const zpr_device *d = w->c->state->device;
  if (part.count > 0)
    zpr_nccl_check(
        w->c,
        d->nccl->api.send(w->data + part.begin * w->size, (size_t)part.count, w->type, member, w->comm, d->stream),
        "send a share");
  zpr_comm_count(w->c, w->axis, part.count * w->size, w->g->rank[member]);
}

/* Slots lie node by node, so that what is added together is. */
static void exchange_inside(const window *w) {
  const grid *at = &w->grid;
  for (int j = 0; j < at->places; j++)
    for (int k = 0; k < at->nodes && j != at->place; k++) {
      int member = at->node * at->places + j;
      receive(w, k * at->places + j, piece_of(w, k, at->place).count, member);
      send(w, piece_of(w, k, j), member);
    }
}

static void exchange_rounded(const window *w) {
  const grid *at = &w->grid;
  for (int k = 0; k < at->nodes; k++) {
    int member = k * at->places + at->place;
    if (k != at->node)
      zpr_nccl_exchange_rounded(w->c, w->axis, w->comm, w->g, member, w->leaving + k * w->most,
                                piece_of(w, k, at->place).count, w->coming + k * w->most,
                                piece_of(w, at->node, at->place).count);
  }
}

/* Sums that leave; or those that have come, to where zpr_sum_parts wants them. */
static void round_sums(const window *w) {
  const grid *at = &w->grid;
  for (int k = 0; k < at->nodes; k++) {
    zpr_piece part = piece_of(w, k, at->place);
    if (k != at->node) zpr_round_on_device(w->c, w->data + part.begin * w->size, w->leaving + k * w->most, part.count);
  }
}

static void widen_sums(const window *w) {
  const grid *at = &w->grid;
  for (int k = 0; k < at->nodes; k++)
    if (k != at->node)
      zpr_widen_on_device(w->c, w->coming + k * w->most, w->scratch + k * w->most * w->size,
                          piece_of(w, at->node, at->place).count);
}

static void exchange_between(const window *w) {
  const grid *at = &w->grid;
  for (int k = 0; k < at->nodes; k++) {
    if (k == at->node) continue;
    receive(w, k, piece_of(w, at->node, at->place).count, k * at->places + at->place);
    send(w, piece_of(w, k, at->place), k * at->places + at->place);
  }
}

static void add(const window *w, zpr_piece sum, int first_slot, int n, int me) {
  zpr_sum_parts(w->c, &(zpd_rank_sum){.mine = w->data + sum.begin * w->size,
                                      .others = w->scratch + first_slot * w->most * w->size,
                                      .slot = w->most,
                                      .count = sum.count,
                                      .n = n,
                                      .me = me});
}

void zpr_nccl_levels_reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, void *comm, int type, int64_t size,
                                    char *data, int64_t count) {
  const nccl_api *nccl = &c->state->device->nccl->api;
  const grid at = {g->n / g->local, g->local, g->me / g->local, g->me % g->local};
  int64_t longest = (count + g->n - 1) / g->n;
  window w = {.c = c,
              .g = g,
              .grid = at,
              .axis = axis,
              .comm = comm,
              .type = type,
              .size = size,
              .count = count,
              .most = ZPR_NCCL_SCRATCH_BYTES / g->n / size / 64 * 64,
              .data = data,
              .scratch = zpr_gpu_host(c->state->device->nccl->scratch)};
  if (zpr_rounds_sum(c, g, axis)) { /* after the nodes' sums: members are twice as many as nodes, or more */
    w.leaving = (unsigned short *)(void *)(w.scratch + at.nodes * w.most * size);
    w.coming = w.leaving + at.nodes * w.most;
  }
  for (; w.at < longest; w.at += w.most) {
    zpr_nccl_check(c, nccl->group_start(), "exchange shares of a sum");
    exchange_inside(&w);
    zpr_nccl_check(c, nccl->group_end(), "exchange shares of a sum");
    for (int k = 0; k < at.nodes; k++) add(&w, piece_of(&w, k, at.place), k * at.places, at.places, at.place);
    if (w.leaving) round_sums(&w);
    zpr_nccl_check(c, nccl->group_start(), "exchange sums of nodes");
    (w.leaving ? exchange_rounded : exchange_between)(&w);
    zpr_nccl_check(c, nccl->group_end(), "exchange sums of nodes");
    if (w.leaving) widen_sums(&w);
    add(&w, piece_of(&w, at.node, at.place), 0, at.nodes, at.node);
  }
}
