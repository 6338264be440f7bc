/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of which a part lives on the host or on disks: where they are, how units get them, how the device updates
 * them. */
#include "param_home.h"
#include <assert.h>
#include <string.h>
#include "offloaded.h"
#include "loads.h"
#include "profile.h"
#include "state.h"
#include "state_home.h"
#include "tier.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t element_bytes(const zpr *c) { return zpk_bytes(c->program->dtype); }

static char *here_at(zpr *c, int64_t at) { return (char *)zpr_at(c, c->stage->params) + at * element_bytes(c); }

/* ---- between steps ---- */

/* Element `at` of those that the rank holds: its number on the device, or off it, and how many follow it there. */
typedef struct spot {
  bool offloaded;
  int64_t at, count;
} spot;

static spot in_bucket(const zpr_bucket_home *b, int64_t within) {
  int64_t shard = within / b->size, i = within % b->size;
  if (i < b->here) return (spot){false, b->device + shard * b->here + i, b->here - i};
  return (spot){true, b->host + shard * (b->size - b->here) + i - b->here, b->size - i};
}

static spot spot_of(zpr *c, int64_t at) {
  int64_t here = zpr_own_here(c, ZPR_CLASS_PARAMS);
  bool numbered_as_own = !zpr_shards_state(c->program) || zpr_shards_params(c->program);
  if (numbered_as_own && at < here) return (spot){false, at, here - at};
  if (numbered_as_own) return (spot){true, at - here, c->stage->params_offloaded.elements - (at - here)};
  int64_t i;
  const zpr_run *run = zpr_bucket_of(c, at, &i);
  zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_PARAMS, run, i);
  return in_bucket(&home, at - (run->base + i * run->stride));
}

void *zpr_params_open(zpr *c, int64_t at, int64_t *count, bool to_read) {
  int64_t size = element_bytes(c);
  if (c->stage->params_offloaded.elements > 0) {
    spot s = spot_of(c, at);
    *count = least(*count, s.count);
    if (s.offloaded) return zpr_offloaded_open_some(c, ZPR_CLASS_PARAMS, s.at, count, to_read);
    at = s.at;
  }
  *count = least(*count, zpr_window_bytes(c) / size);
  return zpr_window_open(c, here_at(c, at), *count * size, to_read);
}

/* Closing what is not open does nothing. */
void zpr_params_close(zpr *c) { zpr_window_close(c); }

void zpr_params_zero(zpr *c) {
  int64_t here = zpr_held_here(c, ZPR_CLASS_PARAMS), offloaded = zpr_held(c, ZPR_CLASS_PARAMS) - here,
          size = element_bytes(c);
  assert(offloaded == 0 || c->stage->flat[ZPR_KIND_FROZEN] == 0);
  here += c->stage->shard[ZPR_KIND_FROZEN];
  if (here > 0) zpr_zero(c, here_at(c, 0), here * size);
  zpr_offloaded_zero(c, ZPR_CLASS_PARAMS, offloaded);
}

/* ---- before a unit works ---- */

/* A bucket's shards that this rank has, and where at `to` the first of them goes. */
typedef struct part {
  const zpr_run *run;
  zpr_bucket_home home;
  char *to;
} part;

static part part_of(zpr *c, int64_t first, void *to) {
  int64_t i;
  part p = {.run = zpr_bucket_of(c, first, &i), .to = to};
  p.home = zpr_home_of_bucket(c, ZPR_CLASS_PARAMS, p.run, i);
  if (zpr_shards_params(c->program)) p.to += zpr_part_of(c, p.run->kind).place * p.home.size * element_bytes(c);
  return p;
}

void zpr_read_params(zpr *c, int64_t first) {
  assert(first >= 0 && first < zpr_all_elements(c->stage));
  if (c->state->rehearses) return;
  int64_t i;
  const zpr_run *run = zpr_bucket_of(c, first, &i);
  zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_PARAMS, run, i);
  zpr_side s = zpr_side_of(&home, true);
  zpr_offloaded_ahead(c, ZPR_CLASS_PARAMS, s.at, s.n * s.count);
}

void zpr_fetch_params(zpr *c, int64_t first, void *to) {
  assert(first >= 0 && first < zpr_all_elements(c->stage));
  if (c->state->rehearses) return;
  part p = part_of(c, first, to);
  zpr_side s = zpr_side_of(&p.home, true);
  int64_t size = element_bytes(c);
  if (s.n == 0) return;
  int before = zpr_enter(c, ZPR_AT_MOVE);
  zpr_view from = zpr_offloaded_read(c, ZPR_CLASS_PARAMS, s.at, s.n * s.count);
  for (int k = 0; k < s.n; k++)
    c->state->fetched =
        zpr_copy_up(c, p.to + (s.first + k * s.stride) * size, from.at + k * s.count * size, s.count * size, 0);
  zpr_offloaded_leaves(c, ZPR_CLASS_PARAMS, from, c->state->fetched);
  zpr_leave(c, before);
}

void zpr_await_params(zpr *c) {
  int before = zpr_enter(c, ZPR_AT_MOVE);
  zpr_copy_before(c, c->state->fetched);
  zpr_leave(c, before);
}

void zpr_gather_params(zpr *c, int64_t first, void *to) {
  assert(first >= 0 && first < zpr_all_elements(c->stage));
  part p = part_of(c, first, to);
  zpr_side s = zpr_side_of(&p.home, false);
  int64_t size = element_bytes(c);
  int before = zpr_enter(c, ZPR_AT_DATA);
  for (int k = 0; k < s.n; k++)
    zpr_copy(c, p.to + (s.first + k * s.stride) * size, here_at(c, s.at + k * s.count), s.count * size);
  if (zpr_shards_params(c->program)) {
    zpr_group holders = zpr_part_of(c, p.run->kind).holders;
    zpr_group_all_gather(c, &holders, ZPR_DATA, to, p.home.size);
  }
  zpr_leave(c, before);
}

/* ---- after the update ---- */

/* Shards [begin, end) of what is off the device, from the ring. */
static int64_t send_down(zpr *c, const zpr_bucket_home *b, const char *ring, int begin, int end) {
  int64_t offloaded = b->size - b->here, first = b->host + begin * offloaded, count = (end - begin) * offloaded,
          size = element_bytes(c);
  if (count == 0) return 0;
  zpr_view to = zpr_offloaded_room(c, ZPR_CLASS_PARAMS, first, count);
  int64_t ticket = zpr_copy_down(c, to.at, ring + begin * offloaded * size, count * size);
  zpr_offloaded_put(c, ZPR_CLASS_PARAMS, to, first, count, ticket);
  return ticket;
}

/* What is off the device: a rank's own comes up, and the others' go down. */
void zpr_gather_bucket(zpr *c, const zpr_group *holders, const zpr_bucket_home *b, int64_t number) {
  int64_t size = element_bytes(c), offloaded = b->size - b->here, *left = &c->state->returned[number % 2];
  if (b->here > 0) zpr_group_all_gather(c, holders, ZPR_DATA, here_at(c, b->device), b->here);
  if (offloaded == 0 || holders->n == 1) return;
  char *ring = (char *)zpr_at(c, c->stage->param_ring) + number % 2 * c->stage->bucket_elements * size;
  zpr_copy_before(c, *left);
  zpr_view own = zpr_offloaded_read(c, ZPR_CLASS_PARAMS, b->host + b->mine * offloaded, offloaded);
  int64_t came = zpr_copy_up(c, ring + b->mine * offloaded * size, own.at, offloaded * size, 0);
  zpr_offloaded_leaves(c, ZPR_CLASS_PARAMS, own, came);
  zpr_copy_before(c, came);
  zpr_group_all_gather(c, holders, ZPR_DATA, ring, offloaded);
  const int64_t sent[2] = {send_down(c, b, ring, 0, b->mine), send_down(c, b, ring, b->mine + 1, b->shards)};
  *left = sent[1] > 0 ? sent[1] : sent[0];
}

void zpr_await_bucket(zpr *c) {
  for (int i = 0; i < 2; i++) {
    zpr_copy_wait(c, c->state->returned[i]);
    zpr_copy_before(c, c->state->returned[i]);
    c->state->returned[i] = 0;
  }
  zpr_offloaded_settle(c, ZPR_CLASS_PARAMS);
}

/* ---- the update on the device ---- */

/* Own elements [begin, end), and the byte of the arena where the first of a class is, in its place or in a ring. */
typedef struct piece {
  int64_t begin, end, at[ZPR_CLASSES];
} piece;

typedef struct pieces {
  zpr *c;
  const zpr_stretches *stretches;
  const zpr_block *blocks;
  int64_t n, end;          /* own elements whose state is on the device end there */
  int64_t turn, ticket[2]; /* buffers of either ring take turns; the last copies out of those of parameters */
} pieces;

static int64_t bytes_of(const zpr *c, zpr_class class) {
  return class == ZPR_CLASS_PARAMS ? element_bytes(c) : zpr_sum_bytes(c);
}

/* The longest one from own element `begin` on, neighbours everywhere, of which either class is on the device, or off it
 * in one view. */
static piece next_piece(const pieces *x, int64_t begin) {
  const zpr_stage *s = x->c->stage;
  const zpr_stretch *stretch = zpr_stretch_of(x->stretches, begin);
  const int64_t start[ZPR_CLASSES] = {[ZPR_CLASS_PARAMS] = s->params, [ZPR_CLASS_GRADS] = s->grads};
  piece p = {.begin = begin, .end = least(least(x->end, stretch->end), begin + s->bucket_elements)};
  for (int k = 0; k < ZPR_CLASSES; k++) {
    zpr_class class = (zpr_class)k;
    int64_t here = zpr_own_here(x->c, class), most = least(zpr_offloaded_most(x->c, class), x->end);
    p.at[k] = start[k] + (begin + stretch->here[k]) * bytes_of(x->c, class);
    p.end = least(p.end, begin < here ? here : begin + most);
  }
  return p;
}

/* Signs of loads are not written to disks. */
static void put_signs(const pieces *x, const piece *p, zpr_view view) {
  for (int64_t i = 0; i < x->n && view.window >= 0; i++) {
    const zpr_block *b = &x->blocks[i];
    int64_t begin = most(b->begin, p->begin), end = least(b->end, p->end);
    if (b->recipe.sign_rate > 0 && begin < end)
      zpr_loads_read(x->c, begin, end, view.at + (begin - p->begin) * zpr_gradient_bytes(x->c));
  }
}

/* Brings what a piece has of a class off the device to a buffer of the ring, once the copy `left` out of it is done. */
static zpr_view bring(const pieces *x, zpr_class class, piece *p, int64_t left) {
  zpr *c = x->c;
  int64_t size = bytes_of(c, class), ring = class == ZPR_CLASS_PARAMS ? c->stage->param_ring : c->stage->grad_ring;
  int64_t first = p->begin + zpr_stretch_of(x->stretches, p->begin)->offloaded[class], count = p->end - p->begin;
  zpr_view view = zpr_offloaded_read(c, class, first, count);
  if (class == ZPR_CLASS_GRADS) put_signs(x, p, view);
  p->at[class] = ring + x->turn * c->stage->bucket_elements * size;
  zpr_copy_before(c, left);
  int64_t came = zpr_copy_up(c, zpr_at(c, p->at[class]), view.at, count * size, 0);
  zpr_offloaded_leaves(c, class, view, came);
  zpr_copy_before(c, came);
  return view;
}

static void send_back(pieces *x, const piece *p, zpr_view view) {
  zpr *c = x->c;
  int64_t first = p->begin + zpr_stretch_of(x->stretches, p->begin)->offloaded[ZPR_CLASS_PARAMS],
          count = p->end - p->begin,
          ticket = zpr_copy_down(c, view.at, zpr_at(c, p->at[ZPR_CLASS_PARAMS]), count * element_bytes(c));
  zpr_offloaded_put(c, ZPR_CLASS_PARAMS, view, first, count, ticket);
  x->ticket[x->turn] = ticket;
}

/* The parts of blocks in a piece. */
static void update_piece(const pieces *x, const zpk_update *rule, const piece *p) {
  const zpr_stage *s = x->c->stage;
  int64_t params = (p->at[ZPR_CLASS_PARAMS] - s->params) / element_bytes(x->c) - p->begin,
          grads = (p->at[ZPR_CLASS_GRADS] - s->grads) / zpr_sum_bytes(x->c) - p->begin;
  for (int64_t i = 0; i < x->n; i++) {
    zpr_block b = x->blocks[i];
    int64_t begin = most(b.begin, p->begin), end = least(b.end, p->end);
    if (begin >= end) continue;
    b.begin = begin + grads;
    b.end = end + grads;
    b.to_params = params - grads;
    b.to_state = -grads;
    zpr_update_blocks(x->c, &(zpr_block_list){.block = &b, .n = 1}, rule);
  }
}

void zpr_update_params_offloaded(zpr *c, const zpr_stretches *stretches, const zpr_block *blocks, int64_t n,
                                 const zpk_update *rule) {
  pieces x = {.c = c, .stretches = stretches, .blocks = blocks, .n = n, .end = zpr_state_here(c)};
  int64_t params = zpr_own_here(c, ZPR_CLASS_PARAMS), grads = zpr_own_here(c, ZPR_CLASS_GRADS);
  for (int64_t at = least(params, grads); at < x.end; x.turn = 1 - x.turn) {
    piece p = next_piece(&x, at);
    if (at >= grads) bring(&x, ZPR_CLASS_GRADS, &p, 0);
    zpr_view view = {NULL, -1};
    if (at >= params) view = bring(&x, ZPR_CLASS_PARAMS, &p, x.ticket[x.turn]);
    update_piece(&x, rule, &p);
    if (at >= params) send_back(&x, &p, view);
    at = p.end;
  }
  for (int i = 0; i < 2; i++) {
    zpr_copy_wait(c, x.ticket[i]);
    zpr_copy_before(c, x.ticket[i]);
  }
  zpr_offloaded_settle(c, ZPR_CLASS_PARAMS);
}
