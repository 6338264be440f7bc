/* SPDX-License-Identifier: Apache-2.0 */
/* The cuts of one point into model chunks, as a graph: its nodes are the places where a chunk may end, its edges the
 * units that a chunk may have, each with what they cost at least. For a chain of actions that wait for each other
 * (order_graph.c), or a mean of several, seconds are a sum over edges: of all cuts the one that the chain allows most
 * is a shortest path, and what is left of the way on either side of an edge says whether any cut with it meets a
 * target.
 *
 * One chunk a stage: edges fit into memory and have the costs of the mode that the stage then takes. Several: an edge
 * fits when its stage would fit without its other chunks, and has the least costs of all modes. */
#include <math.h>
#include "cut_space.h"

typedef struct making {
  zp_cut_space *space;
  const zp_cut_problem *problem;
  double target_s;
} making;

/* Would micro-batches that take so long there alone miss the target? */
static bool misses(const making *m, double work_s) {
  return (double)m->problem->microbatches * work_s + m->problem->update_s > m->target_s;
}

/* Does it fit, and meet the target? */
static bool is_possible(const making *m, int place, int64_t first, int64_t end) {
  const zp_cut_problem *p = m->problem;
  double work_s;
  if (misses(m, p->work_s[end] - p->work_s[first]) || !p->fits(p->user, place, first, end, &work_s)) return false;
  return p->chunks > 1 || !misses(m, work_s);
}

/* Parts of a range that is possible are possible, so the furthest end never moves back as the start moves on. */
static int64_t furthest_end(const making *m, int place, int64_t first, int64_t reached) {
  int64_t end = reached > first ? reached : first, most = m->space->units - (m->space->places - 1 - place);
  while (end < most && is_possible(m, place, first, end + 1)) end++;
  return end;
}

/* Ends of the places when each goes as far as it can, and as near as those after it allow. False: there is no cut. */
static bool find_ranges(const making *m) {
  zp_cut_space *x = m->space;
  x->high[0] = 0;
  for (int k = 0; k < x->places; k++) {
    int64_t start = x->high[k];
    while (x->high[k + 1] = furthest_end(m, k, start, start), x->high[k + 1] == start)
      if (--start < k) return false; /* the next unit alone may have room on later stages only */
  }
  if (x->high[x->places] < x->units) return false;
  x->low[x->places] = x->high[x->places] = x->units;
  for (int k = x->places; k-- > 0;) {
    int64_t low = x->low[k + 1];
    while (low > k && is_possible(m, k, low - 1, x->low[k + 1])) low--;
    x->low[k] = low;
  }
  return x->low[0] == 0;
}

static zp_cut_cost least_of(const zp_cut_problem *p, int64_t first, int64_t end) {
  if (p->least) return p->least(p->user, first, end);
  double work = p->work_s[end] - p->work_s[first], input = p->input_s[end] - p->input_s[first];
  zp_cut_cost cost = {.forward_s = p->forward_s[end] - p->forward_s[first]};
  cost.backward_s = (p->split ? input : work) - cost.forward_s;
  cost.weights_s = work - cost.forward_s - cost.backward_s;
  return cost;
}

static zp_cut_cost cost_of(const making *m, int place, int64_t first, int64_t end) {
  const zp_cut_problem *p = m->problem;
  if (p->chunks == 1) return p->cost(p->user, place, first, end);
  zp_cut_cost cost = least_of(p, first, end);
  if (place + 1 < m->space->places) cost.message_s = p->message_after_s(p->user, end);
  return cost;
}

static bool make_edges(making *m, zp_arena *arena) {
  zp_cut_space *x = m->space;
  ZP_VEC(zp_cut_cost) edges = {0};
  x->base = ZP_NEW_ARRAY(arena, int64_t, x->places + 2);
  for (int k = 0; k <= x->places; k++) x->base[k + 1] = x->base[k] + x->high[k] - x->low[k] + 1;
  x->ends = x->base[x->places + 1];
  x->first_edge = ZP_NEW_ARRAY(arena, int64_t, x->ends + 1);
  x->nearest = ZP_NEW_ARRAY(arena, int64_t, x->ends + 1);
  for (int k = 0; k < x->places; k++) {
    int64_t reached = 0;
    for (int64_t a = x->low[k]; a <= x->high[k]; a++) {
      int64_t at = x->base[k] + a - x->low[k];
      reached = furthest_end(m, k, a, reached);
      x->first_edge[at] = edges.len;
      x->nearest[at] = a + 1 > x->low[k + 1] ? a + 1 : x->low[k + 1];
      for (int64_t b = x->nearest[at]; b <= reached && b <= x->high[k + 1]; b++) {
        zp_cut_cost cost = cost_of(m, k, a, b);
        zp_push(arena, &edges, cost);
      }
      if (edges.len > ZP_MOST_EDGES || !zp_arena_has_room(arena, 4 * sizeof *edges.data * (size_t)edges.len))
        return false;
    }
  }
  for (int64_t at = x->base[x->places]; at <= x->ends; at++) x->first_edge[at] = edges.len;
  x->n_edges = edges.len;
  x->edges = edges.data;
  x->alive = ZP_NEW_ARRAY(arena, bool, edges.len + 1);
  for (int64_t e = 0; e < x->n_edges; e++) x->alive[e] = true;
  x->begin = ZP_NEW_ARRAY(arena, int64_t, x->ends);
  x->stop = ZP_NEW_ARRAY(arena, int64_t, x->ends);
  memcpy(x->begin, x->first_edge, sizeof *x->begin * (size_t)x->ends);
  memcpy(x->stop, x->first_edge + 1, sizeof *x->stop * (size_t)x->ends);
  x->kept_alive = ZP_NEW_ARRAY(arena, bool, edges.len + 1);
  x->kept_begin = ZP_NEW_ARRAY(arena, int64_t, x->ends);
  x->kept_stop = ZP_NEW_ARRAY(arena, int64_t, x->ends);
  zp_cut_keep(x);
  return true;
}

zp_cut_space *zp_cut_space_new(zp_arena *arena, const zp_cut_problem *problem, double target_s) {
  zp_cut_space *x = ZP_NEW(arena, zp_cut_space);
  *x = (zp_cut_space){.places = zp_cut_places(problem), .units = problem->units};
  x->low = ZP_NEW_ARRAY(arena, int64_t, x->places + 1);
  x->high = ZP_NEW_ARRAY(arena, int64_t, x->places + 1);
  making m = {x, problem, target_s};
  x->possible = find_ranges(&m);
  if (x->possible && !make_edges(&m, arena)) return NULL;
  return x;
}

/* ---- asking for edges ---- */

int64_t zp_cut_edge(const zp_cut_space *x, int place, int64_t first, int64_t end) {
  if (first < x->low[place] || first > x->high[place]) return -1;
  int64_t at = x->base[place] + first - x->low[place], e = x->first_edge[at] + end - x->nearest[at];
  return end >= x->nearest[at] && e < x->first_edge[at + 1] ? e : -1;
}

int64_t zp_cut_end_of(const zp_cut_space *x, int place, int64_t at, int64_t edge) {
  return x->base[place + 1] + x->nearest[at] - x->low[place + 1] + edge - x->first_edge[at];
}

void zp_cut_keep(zp_cut_space *x) {
  memcpy(x->kept_alive, x->alive, sizeof *x->alive * (size_t)x->n_edges);
  memcpy(x->kept_begin, x->begin, sizeof *x->begin * (size_t)x->ends);
  memcpy(x->kept_stop, x->stop, sizeof *x->stop * (size_t)x->ends);
}

void zp_cut_return(zp_cut_space *x) {
  memcpy(x->alive, x->kept_alive, sizeof *x->alive * (size_t)x->n_edges);
  memcpy(x->begin, x->kept_begin, sizeof *x->begin * (size_t)x->ends);
  memcpy(x->stop, x->kept_stop, sizeof *x->stop * (size_t)x->ends);
}

bool zp_cut_balanced(zp_arena *arena, const zp_cut_space *x, int64_t *cut) {
  double *rest = ZP_NEW_ARRAY(arena, double, x->ends);
  int64_t *best = ZP_NEW_ARRAY(arena, int64_t, x->ends);
  for (int64_t at = 0; at < x->ends; at++) rest[at] = HUGE_VAL;
  rest[x->ends - 1] = 0;
  for (int k = x->places; k-- > 0;)
    for (int64_t at = x->base[k]; at < x->base[k + 1]; at++) {
      int64_t to = zp_cut_end_of(x, k, at, x->begin[at]);
      for (int64_t e = x->begin[at]; e < x->stop[at]; e++, to++) {
        const zp_cut_cost *cost = &x->edges[e];
        double work = cost->forward_s + cost->backward_s + cost->weights_s, sum = rest[to] + work * work;
        if (x->alive[e] && sum < rest[at]) rest[at] = sum, best[at] = x->nearest[at] + e - x->first_edge[at];
      }
    }
  cut[0] = 0;
  for (int k = 0; k < x->places && isfinite(rest[0]); k++) cut[k + 1] = best[x->base[k] + cut[k] - x->low[k]];
  return isfinite(rest[0]);
}
