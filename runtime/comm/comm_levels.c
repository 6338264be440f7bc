/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and gathers over several nodes with m > 1 members of the group each, on memory of the host, in two levels.
 *
 * Sent to its owner by everybody, a chunk of a sum would leave each node m times, m times as much as of a ring. So the
 * member at place j of a node first gets from the others there their parts of the chunks that members at place j own,
 * in all nodes, and adds them in rank order; then each of these sums goes to the owner of its chunk, who adds one of
 * every node, in their order. What leaves a node is what of a ring does, and the order is one for all elements, as
 * without levels. 16-bit sums of a node are rounded to travel, and once more at the end. With
 * zpr_program.rounds_sums f32 sums of gradients travel as bf16 and are added in f32: a sum is the owner's node's, as it
 * is, and the rounded ones of the others. Gathers go the other way: to the same places of the other nodes, and from
 * there to the others in the node.
 *
 * Nodes with unlike numbers of members exchange directly (comm.c). planner/machine/link_bytes.c says what either sends,
 * which prices are made of. */
#include <assert.h>
#include "comm.h"

/* The group as nodes with `places` members each; me: at a place of a node. */
typedef struct grid {
  int nodes, places, node, place;
} grid;

static grid grid_of(const zpr_group *g) {
  return (grid){g->n / g->local, g->local, g->me / g->local, g->me % g->local};
}

/* One round of a collective: messages that are posted together and waited for together. */
typedef struct posted {
  zpr *c;
  const zpr_group *g;
  zpr_axis axis;
  int receives, sends;
} posted;

static void receive(posted *r, void *to, int64_t bytes, int member) {
  zpr_comm *comm = r->c->state->comm;
  if (bytes > 0) comm->handles[r->receives++] = comm->transport->irecv(to, bytes, r->g->rank[member], (int)r->axis);
}

static void send(posted *r, const void *from, int64_t bytes, int member) {
  int *sends = r->c->state->comm->handles + r->g->n;
  if (bytes > 0) sends[r->sends++] = zpr_post_send(r->c, r->axis, from, bytes, r->g->rank[member], (int)r->axis);
}

static void wait_for_all(posted *r) {
  int *handles = r->c->state->comm->handles;
  zpr_wait_handles(r->c, handles, r->receives);
  zpr_wait_handles(r->c, handles + r->g->n, r->sends);
  r->receives = r->sends = 0;
}

/* ---- sums ---- */

/* A window of a sum: what of every chunk is there, and where it passes through the staging buffer: parts from each
 * member of this node for each node, sums for each node, sums from each node. */
typedef struct window {
  posted posted;
  grid grid;
  zpk_dtype dtype;
  int64_t size, count, at, most; /* bytes of an element; elements of all chunks, of a chunk before, of one at most */
  const char *data;
  char *own, *parts, *sums, *arrived; /* own: my chunk's place for its sum, which has my part */
  bool rounds;
  uint16_t *leaving, *coming; /* rounds: sums for each node and from each, as they travel */
} window;

static zpr_piece piece_of(const window *w, int node, int place) {
  return zpr_chunk_piece(w->count, w->grid.nodes * w->grid.places, node * w->grid.places + place, w->at, w->most);
}

static char *slot(const window *w, char *first, int i) { return first + i * w->most * w->size; }

static const char *my_part(const window *w, int node) {
  return node == w->grid.node ? w->own : w->data + piece_of(w, node, w->grid.place).begin * w->size;
}

static void exchange_inside(window *w) {
  const grid *at = &w->grid;
  for (int j = 0; j < at->places; j++)
    for (int k = 0; k < at->nodes && j != at->place; k++) {
      zpr_piece mine = piece_of(w, k, at->place), theirs = piece_of(w, k, j);
      receive(&w->posted, slot(w, w->parts, j * at->nodes + k), mine.count * w->size, at->node * at->places + j);
      send(&w->posted, w->data + theirs.begin * w->size, theirs.count * w->size, at->node * at->places + j);
    }
  wait_for_all(&w->posted);
}

static void add_inside(const window *w) {
  const grid *at = &w->grid;
  const void **part = w->posted.c->state->comm->parts;
  for (int k = 0; k < at->nodes; k++) {
    for (int j = 0; j < at->places; j++)
      part[j] = j == at->place ? my_part(w, k) : slot(w, w->parts, j * at->nodes + k);
    zpr_add_in_rank_order(w->posted.c, w->dtype, slot(w, w->sums, k), part, at->places,
                          piece_of(w, k, at->place).count);
  }
}

static void exchange_rounded(window *w) {
  const grid *at = &w->grid;
  int64_t mine = piece_of(w, at->node, at->place).count;
  for (int k = 0; k < at->nodes; k++) {
    int64_t theirs = piece_of(w, k, at->place).count;
    if (k == at->node) continue;
    zpr_round_sum(w->posted.c, slot(w, w->sums, k), w->leaving + k * w->most, theirs);
    receive(&w->posted, w->coming + k * w->most, mine * (int64_t)sizeof *w->coming, k * at->places + at->place);
    send(&w->posted, w->leaving + k * w->most, theirs * (int64_t)sizeof *w->leaving, k * at->places + at->place);
  }
  wait_for_all(&w->posted);
  for (int k = 0; k < at->nodes; k++)
    if (k != at->node) zpr_widen_sum(w->posted.c, w->coming + k * w->most, slot(w, w->arrived, k), mine);
}

static void exchange_between(window *w) {
  const grid *at = &w->grid;
  int64_t mine = piece_of(w, at->node, at->place).count;
  if (w->rounds) {
    exchange_rounded(w);
    return;
  }
  for (int k = 0; k < at->nodes; k++) {
    if (k == at->node) continue;
    receive(&w->posted, slot(w, w->arrived, k), mine * w->size, k * at->places + at->place);
    send(&w->posted, slot(w, w->sums, k), piece_of(w, k, at->place).count * w->size, k * at->places + at->place);
  }
  wait_for_all(&w->posted);
}

static void add_nodes(const window *w) {
  const void **part = w->posted.c->state->comm->parts;
  for (int k = 0; k < w->grid.nodes; k++) part[k] = slot(w, k == w->grid.node ? w->sums : w->arrived, k);
  zpr_add_in_rank_order(w->posted.c, w->dtype, w->own, part, w->grid.nodes,
                        piece_of(w, w->grid.node, w->grid.place).count);
}

void zpr_levels_reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, const char *data,
                               int64_t count, char *sum) {
  const bool rounds = zpr_rounds_sum(c, g, axis);
  char *staging = c->state->comm->staging;
  const grid at = grid_of(g);
  int64_t size = zpk_bytes(dtype), longest = (count + g->n - 1) / g->n,
          slots = g->n + (rounds ? 3 : 2) * (int64_t)at.nodes, most = ZPR_STAGING_BYTES / slots / size;
  if (most > 64) most = most / 64 * 64; /* whole lines; thousands of ranks have less than one each */
  assert(most >= 1);
  window w = {.posted = {.c = c, .g = g, .axis = axis},
              .grid = at,
              .dtype = dtype,
              .size = size,
              .count = count,
              .most = most,
              .data = data};
  w.parts = staging;
  w.sums = slot(&w, w.parts, g->n);
  w.arrived = slot(&w, w.sums, at.nodes);
  w.rounds = rounds;
  if (rounds) {
    w.leaving = (uint16_t *)(void *)slot(&w, w.arrived, at.nodes);
    w.coming = w.leaving + at.nodes * most;
  }
  for (w.at = 0; w.at < longest; w.at += most) {
    w.own = sum + w.at * size;
    exchange_inside(&w);
    add_inside(&w);
    exchange_between(&w);
    add_nodes(&w);
  }
}

/* ---- gathers ---- */

void zpr_levels_all_gather(zpr *c, const zpr_group *g, zpr_axis axis, int64_t size, char *data, int64_t count) {
  posted now = {.c = c, .g = g, .axis = axis};
  const grid at = grid_of(g);
  int64_t longest = (count + g->n - 1) / g->n, most = ZPR_SPLIT_BYTES / size;
  for (int64_t begin = 0; begin < longest; begin += most) {
    zpr_piece mine = zpr_chunk_piece(count, g->n, g->me, begin, most);
    for (int k = 0; k < at.nodes; k++) {
      int r = k * at.places + at.place;
      zpr_piece theirs = zpr_chunk_piece(count, g->n, r, begin, most);
      if (k == at.node) continue;
      receive(&now, data + theirs.begin * size, theirs.count * size, r);
      send(&now, data + mine.begin * size, mine.count * size, r);
    }
    wait_for_all(&now);
    for (int j = 0; j < at.places; j++)
      for (int k = 0; k < at.nodes && j != at.place; k++) {
        zpr_piece theirs = zpr_chunk_piece(count, g->n, k * at.places + j, begin, most);
        zpr_piece held = zpr_chunk_piece(count, g->n, k * at.places + at.place, begin, most);
        receive(&now, data + theirs.begin * size, theirs.count * size, at.node * at.places + j);
        send(&now, data + held.begin * size, held.count * size, at.node * at.places + j);
      }
    wait_for_all(&now);
  }
}
