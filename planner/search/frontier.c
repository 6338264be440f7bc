/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which nodes are refined: the least bound first. Degrees wait as a whole until their turn comes, because
 * most of them never have one. Before that a plan of some degrees that look as if they fit is found for every place of
 * the ranking: plans that are known early leave most degrees out. For the same reason the node of all degrees that
 * leave devices idle waits until all others are settled: they are many, and seldom the best. */
#include <assert.h>
#include "budget.h"
#include "frontier.h"
#include "space.h"

/* ---- a queue ---- */

static bool is_of_degrees(const zp_search_node *x) { return zp_refines_degrees(x->next); }

/* Equal bounds: degrees before points, then what came first. */
static bool is_before(const zp_search_node *x, const zp_search_node *y) {
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s;
  return is_of_degrees(x) != is_of_degrees(y) ? is_of_degrees(x) : x->item < y->item;
}

static void push(zp_frontier *f, zp_lane lane, zp_search_node fresh) {
  zp_search_nodes *heap = &f->lane[lane];
  zp_push(f->progress->s->arena, heap, fresh);
  zp_search_node *at = heap->data;
  int i = heap->len - 1;
  for (; i > 0 && is_before(&fresh, &at[(i - 1) / 2]); i = (i - 1) / 2) at[i] = at[(i - 1) / 2];
  at[i] = fresh;
}

static bool is_empty(const zp_frontier *f, zp_lane lane) { return f->lane[lane].len == 0; }

/* Any node of the lane, at once. Requires: the lane is not empty. */
static zp_search_node pop_any(zp_frontier *f, zp_lane lane) { return f->lane[lane].data[--f->lane[lane].len]; }

/* Requires: the lane is not empty. */
static zp_search_node pop(zp_frontier *f, zp_lane lane) {
  zp_search_nodes *heap = &f->lane[lane];
  assert(heap->len > 0);
  zp_search_node *at = heap->data, first = at[0];
  int n = --heap->len, i = 0;
  zp_search_node moved = at[n];
  for (int least; (least = 2 * i + 1) < n; i = least) {
    if (least + 1 < n && is_before(&at[least + 1], &at[least])) least++;
    if (!is_before(&at[least], &moved)) break;
    at[i] = at[least];
  }
  at[i] = moved;
  return first;
}

/* What waits in a lane goes to another one: the shorter of the two heaps into the longer one. */
static void open_lane(zp_frontier *f, zp_lane from, zp_lane to) {
  if (f->lane[from].len > f->lane[to].len) {
    zp_search_nodes longer = f->lane[from];
    f->lane[from] = f->lane[to];
    f->lane[to] = longer;
  }
  for (int i = 0; i < f->lane[from].len; i++) push(f, to, f->lane[from].data[i]);
  f->lane[from].len = 0;
}

/* ---- what waits ---- */

zp_frontier zp_frontier_new(zp_search_progress *progress) {
  zp_frontier f = {.progress = progress};
  for (int i = 0; i < progress->degrees.len; i++) {
    const zp_degrees *d = &progress->degrees.data[i];
    push(&f, d->next == ZP_REFINE_IDLE ? ZP_LANE_IDLE : ZP_LANE_DEGREES, (zp_search_node){d->bound_s, d->next, i});
  }
  return f;
}

void zp_frontier_add_degrees(zp_frontier *f, int degrees) {
  const zp_degrees *d = &f->progress->degrees.data[degrees];
  f->none_likely &= d->next == ZP_REFINE_DEGREES && !d->may_fit;
  push(f, ZP_LANE_DEGREES, (zp_search_node){d->bound_s, d->next, degrees});
}

void zp_frontier_add_point(zp_frontier *f, int point) {
  const zp_point *p = &f->progress->points.data[point];
  push(f, zp_is_family(p) && !f->opens ? ZP_LANE_FAMILIES : ZP_LANE_POINTS,
       (zp_search_node){p->bound_s, p->next, point});
}

/* ---- what is next ---- */

/* Degrees that the first plans are not looked for in: as far as is known they do not fit, or there is no room to
 * know. */
static bool is_unlikely(const zp_frontier *f, const zp_search_node *node) {
  if (node->next == ZP_REFINE_DEGREES) return !f->progress->degrees.data[node->item].may_fit;
  return !f->opens && !zp_has_room(f->progress->s, ZP_GROW_EARLY, 0);
}

/* Degrees that may fit are looked into one by one, each until it has given a plan. False: none are left. */
static bool next_of_first(zp_frontier *f, const zp_ranking *r, zp_search_node *node) {
  if (r->len == f->known && !is_empty(f, ZP_LANE_POINTS)) {
    *node = pop(f, ZP_LANE_POINTS);
    return true;
  }
  while (!f->none_likely && !is_empty(f, ZP_LANE_DEGREES)) {
    *node = pop(f, ZP_LANE_DEGREES);
    if (!is_unlikely(f, node)) return true;
    push(f, ZP_LANE_UNLIKELY, *node);
  }
  f->none_likely = f->opens; /* memory decides no more: they need not be looked through again */
  return false;
}

/* The least of all that do not wait; in doubt degrees, whose points may have the same bound. Where not even the least
 * can enter the ranking, the order does not matter. */
static bool next_of_all(zp_frontier *f, const zp_ranking *r, zp_search_node *node) {
  bool degrees = !is_empty(f, ZP_LANE_DEGREES), points = !is_empty(f, ZP_LANE_POINTS);
  if (degrees && points)
    degrees = !f->one_by_one && is_before(f->lane[ZP_LANE_DEGREES].data, f->lane[ZP_LANE_POINTS].data);
  if (!degrees && !points) return false;
  zp_lane lane = degrees ? ZP_LANE_DEGREES : ZP_LANE_POINTS;
  *node = f->lane[lane].data[0].bound_s >= zp_most_cutoff(r) ? pop_any(f, lane) : pop(f, lane);
  if (!degrees) f->takes_least = false;
  return true;
}

static bool next(zp_frontier *f, const zp_ranking *r, zp_search_node *node) {
  if (!f->takes_least) {
    if (r->len < r->cap && next_of_first(f, r, node)) return true;
    open_lane(f, ZP_LANE_UNLIKELY, ZP_LANE_DEGREES);
    open_lane(f, ZP_LANE_FAMILIES, ZP_LANE_POINTS);
    f->opens = f->takes_least = true;
  }
  return next_of_all(f, r, node);
}

/* Where state of idle degrees may leave the device, they are looked into one after the other: they have many points,
 * few have anything to offer, and nearly all are looked into. */
bool zp_frontier_next(zp_frontier *f, const zp_ranking *r, zp_search_node *node) {
  if (next(f, r, node)) return true;
  if (is_empty(f, ZP_LANE_IDLE)) return false;
  *node = pop(f, ZP_LANE_IDLE);
  f->none_likely = false;
  f->one_by_one = f->progress->opens_families = zp_some_state_may_leave(f->progress->in);
  f->takes_least = false;
  return true;
}
