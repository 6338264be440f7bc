/* The cuts of one point into model chunks, as a graph: its nodes are the places where a chunk may end, its edges the
 * units that a chunk may have, each with what they cost at least. For a chain of actions that wait for each other
 * (order_graph.c), or a mean of several, seconds are a sum over edges: of all cuts the one that the chain allows most
 * is a shortest path, and what is left of the way on either side of an edge says whether any cut with it meets a
 * target.
 *
 * One chunk a stage: edges fit into memory and have the costs of the mode that the stage then takes. Several: an edge
 * fits when its stage would fit without its other chunks, and has the least costs of all modes. */
#include <math.h>
#include "cost.h"
#include "schedule.h"
#include "cut_branch.h"

enum { MOST_EDGES = 1 << 20 };

typedef struct making {
  zp_cut_space *space;
  const zp_searcher *s;
  const zp_point *point;
  const zp_variant *v;
  zp_limits limits;
  double microbatches, rest_s; /* rest_s: of the step, beside micro-batches */
  double target_s;
  zp_stage_costs *costs; /* one chunk a stage */
  zp_group_link link;    /* between stages */
} making;

/* What the place runs alone; NULL: it does not fit, or misses the target. */
static const zp_variant *variant_of(const making *m, int place, int64_t first, int64_t end) {
  const zp_choice *c = &m->point->choice;
  int chunk, stage = zp_chunk_stage(c, place, &chunk);
  zp_units part[ZP_MOST_CHUNKS] = {0};
  if (m->microbatches * (m->v->prefix_s[end] - m->v->prefix_s[first]) + m->rest_s > m->target_s) return NULL;
  part[chunk] = (zp_units){first, end - first};
  const zp_variant *own = zp_stage_variant(m->s, m->point, stage, part, &m->limits);
  if (!own || zp_chunks(c) > 1) return own;
  return m->microbatches * (own->prefix_s[end] - own->prefix_s[first]) + m->rest_s > m->target_s ? NULL : own;
}

/* Parts of a range that is possible are possible, so the furthest end never moves back as the start moves on. */
static int64_t furthest_end(const making *m, int place, int64_t first, int64_t reached) {
  int64_t end = reached > first ? reached : first, most = m->space->units - (m->space->places - 1 - place);
  while (end < most && variant_of(m, place, first, end + 1)) end++;
  return end;
}

/* Ends of the places when each goes as far as it can, and as near as those behind it allow. False: there is no cut. */
static bool find_ranges(const making *m) {
  zp_cut_space *x = m->space;
  x->high[0] = 0;
  for (int k = 0; k < x->places; k++) {
    x->high[k + 1] = furthest_end(m, k, x->high[k], x->high[k]);
    if (x->high[k + 1] == x->high[k]) return false;
  }
  if (x->high[x->places] < x->units) return false;
  x->low[x->places] = x->high[x->places] = x->units;
  for (int k = x->places; k-- > 0;) {
    int64_t low = x->low[k + 1];
    while (low > k && variant_of(m, k, low - 1, x->low[k + 1])) low--;
    x->low[k] = low;
  }
  return x->low[0] == 0;
}

static zp_edge_cost cost_of(const making *m, int place, int64_t first, int64_t end) {
  const zp_choice *c = &m->point->choice;
  const zp_variant *v = m->v;
  zp_edge_cost cost = {0};
  if (zp_chunks(c) == 1) {
    const zp_variant *own = variant_of(m, place, first, end);
    zp_stage_cost stage = zp_stage_cost_of(m->costs, own->lowered, place, first, end);
    cost = zp_edge_cost_of_time(&stage.time, zp_schedule_splits(c->schedule));
    cost.reduce_s = stage.reduce_s;
    cost.update_s = stage.update_s + stage.offload_s;
  } else {
    double work = v->prefix_s[end] - v->prefix_s[first], input = v->input_s[end] - v->input_s[first];
    cost.forward_s = v->forward_s[end] - v->forward_s[first];
    cost.backward_s = (zp_schedule_splits(c->schedule) ? input : work) - cost.forward_s;
    cost.weights_s = work - cost.forward_s - cost.backward_s;
  }
  if (place + 1 < m->space->places) cost.message_s = zp_edge_message(m->s, m->point, &m->link, end);
  return cost;
}

static bool make_edges(making *m, zp_arena *arena) {
  zp_cut_space *x = m->space;
  ZP_VEC(zp_edge_cost) edges = {0};
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
        zp_edge_cost cost = cost_of(m, k, a, b);
        zp_push(arena, &edges, cost);
      }
      if (edges.len > MOST_EDGES || !zp_arena_has_room(arena, 4 * sizeof *edges.data * (size_t)edges.len)) return false;
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

double zp_edge_message(const zp_searcher *s, const zp_point *point, const zp_group_link *link, int64_t end) {
  const zp_lowered *l = zp_variant_of(s, point)->lowered;
  int segment;
  int64_t iteration;
  if (!s->floor.messages) return 0;
  zp_unit(l, end - 1, &segment, &iteration);
  return zp_cost_message(link, (double)l->segments[segment].carry_out_elements * l->compute_bytes);
}

zp_edge_cost zp_edge_cost_of_time(const zp_stage_time *time, bool split) {
  double weights = split ? time->weights_s : 0;
  return (zp_edge_cost){.forward_s = time->forward_s, .backward_s = time->backward_s - weights, .weights_s = weights};
}

zp_cut_space *zp_cut_space_new(zp_arena *arena, const zp_searcher *s, const zp_point *point, zp_stage_costs *costs,
                               double target_s) {
  const zp_choice *c = &point->choice;
  zp_cut_space *x = ZP_NEW(arena, zp_cut_space);
  *x = (zp_cut_space){.places = zp_model_chunks(c), .units = zp_point_units(s, point)};
  x->low = ZP_NEW_ARRAY(arena, int64_t, x->places + 1);
  x->high = ZP_NEW_ARRAY(arena, int64_t, x->places + 1);
  making m = {.space = x,
              .s = s,
              .point = point,
              .v = zp_variant_of(s, point),
              .limits = zp_search_limits(s),
              .microbatches = (double)zp_microbatches(s->spec, c),
              .rest_s = zp_bound_update(s, point),
              .target_s = target_s,
              .costs = costs,
              .link = zp_machine_pipeline_link(&s->machine, c->tensor, c->pipeline, c->data, c->order)};
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
        const zp_edge_cost *cost = &x->edges[e];
        double work = cost->forward_s + cost->backward_s + cost->weights_s, sum = rest[to] + work * work;
        if (x->alive[e] && sum < rest[at]) rest[at] = sum, best[at] = x->nearest[at] + e - x->first_edge[at];
      }
    }
  cut[0] = 0;
  for (int k = 0; k < x->places && isfinite(rest[0]); k++) cut[k + 1] = best[x->base[k] + cut[k] - x->low[k]];
  return isfinite(rest[0]);
}
