/* SPDX-License-Identifier: Apache-2.0 */
/* Which units a stage of 1F1B may run in a plan below a target, and what they cost.
 *
 * Legend: stage s with w = zp_pipe_warmup, N = zp_pipe_between, X = F + B seconds of it, A of those before it, c a
 * message, H1 and H2 the answers of the stages after it to the first and to the last micro-batch:
 *   H of s = X + max(w F or w B, 2 c + H of s + 1)
 * (labels.c says why). Then T >= A + X + (the two turns of H after X) + N X. A, H1 and H2 are least over all cuts, by
 * dynamic programming over the nodes. */
#include <assert.h>
#include <math.h>
#include "labels.h"

/* ---- making ---- */

typedef struct maker {
  zp_arena *arena;
  const zp_cut_problem *problem;
  zp_stage_graph *graph;
  double deadline_s;         /* of the micro-batches */
  ZP_VEC(zp_stage_arc) arcs; /* of the current node */
  int **known; /* [first unit][units]: cost index + 1 of this stage, < 0: does not fit, 0: not asked for yet */
} maker;

/* May a stage take units [first, end) in work_s, if all other units take their least times? The time that it
 * compares grows with the stage. */
static bool may_take(const maker *k, int stage, int64_t first, int64_t end, double work_s) {
  const zp_pipe *pipe = &k->graph->pipe;
  const double *prefix = k->problem->work_s;
  double after = prefix[pipe->units] - prefix[end], between = (double)zp_pipe_between(pipe, stage);
  double around = prefix[first] + after + 2 * (pipe->stages - 1) * pipe->message_s;
  if (between >= 1) around += after + between * work_s;
  return (around + work_s) * (1 - ZP_LABEL_SLACK) <= k->deadline_s;
}

static bool may_take_least(const maker *k, int stage, int64_t first, int64_t end) {
  return may_take(k, stage, first, end, k->problem->work_s[end] - k->problem->work_s[first]);
}

static bool fits(const maker *k, int stage, int64_t first, int64_t end) {
  double work_s;
  return k->problem->fits(k->problem->user, stage, first, end, &work_s);
}

static int price_range(maker *k, int stage, int64_t first, int64_t end) {
  k->graph->work += ZP_STAGE_WORK;
  if (!fits(k, stage, first, end)) return -1;
  zp_cut_cost cost = k->problem->cost(k->problem->user, stage, first, end);
  zp_push(k->arena, &k->graph->cost,
          ((zp_range_cost){cost.forward_s, cost.backward_s, cost.reduce_s, cost.update_s, cost.step_s}));
  return k->graph->cost.len;
}

/* Ranges with the same procedures are one and the same on one stage. Cost index; < 0: does not fit. */
static int cost_of_range(maker *k, int stage, int64_t first, int64_t end) {
  int64_t start = k->problem->alike(k->problem->user, first, end);
  if (!k->known[start]) k->known[start] = ZP_NEW_ARRAY(k->arena, int, k->graph->pipe.units + 1);
  int *known = &k->known[start][end - first];
  if (*known == 0) *known = price_range(k, stage, first, end);
  return *known > 0 ? *known - 1 : -1;
}

static void forget_costs(maker *k) {
  for (int64_t u = 0; u < k->graph->pipe.units; u++)
    if (k->known[u]) memset(k->known[u], 0, sizeof **k->known * (size_t)(k->graph->pipe.units + 1));
}

/* The nearest starts from which every stage reaches that of the next one. More units never fit better. */
static void find_lows(maker *k) {
  const zp_pipe *pipe = &k->graph->pipe;
  int64_t *low = k->graph->low;
  low[pipe->stages] = pipe->units;
  for (int stage = pipe->stages - 1; stage > 0; stage--) {
    int64_t end = low[stage + 1], start = end;
    while (start > stage && may_take_least(k, stage, start - 1, end) && fits(k, stage, start - 1, end)) start--;
    low[stage] = start;
  }
  low[0] = 0;
}

static void add_arcs(maker *k, int stage, int64_t first) {
  zp_stage_graph *g = k->graph;
  zp_stage_node *node = zp_stage_node_at(g, stage, first);
  int64_t later = g->pipe.stages - 1 - stage, most = g->pipe.units - later;
  k->arcs.len = 0;
  for (int64_t end = later ? first + 1 : most; end <= most && may_take_least(k, stage, first, end); end++) {
    g->work++;
    if (end < g->low[stage + 1]) continue;
    int cost = cost_of_range(k, stage, first, end);
    if (cost < 0) break;
    const zp_range_cost *own = &g->cost.data[cost];
    if (!may_take(k, stage, first, end, own->forward_s + own->backward_s)) continue;
    zp_push(k->arena, &k->arcs, ((zp_stage_arc){.end = (int32_t)end, .cost = (uint32_t)cost}));
    if (end > g->high[stage + 1]) g->high[stage + 1] = end;
  }
  node->n = k->arcs.len;
  node->arcs = ZP_ROOM_FOR(k->arena, zp_stage_arc, node->n);
  if (node->n) memcpy(node->arcs, k->arcs.data, sizeof *node->arcs * (size_t)node->n);
}

zp_stage_graph *zp_stage_graph_new(zp_arena *arena, const zp_cut_problem *problem, const zp_pipe *pipe,
                                   double target_s) {
  assert(pipe->units <= INT32_MAX);
  zp_stage_graph *g = ZP_NEW(arena, zp_stage_graph);
  *g = (zp_stage_graph){.pipe = *pipe,
                        .nodes = ZP_NEW_ARRAY(arena, zp_stage_node *, pipe->stages + 1),
                        .low = ZP_NEW_ARRAY(arena, int64_t, pipe->stages + 1),
                        .high = ZP_NEW_ARRAY(arena, int64_t, pipe->stages + 1)};
  maker k = {.arena = arena,
             .problem = problem,
             .graph = g,
             .deadline_s = target_s - pipe->update_s,
             .known = ZP_NEW_ARRAY(arena, int *, pipe->units)};
  find_lows(&k);
  for (int stage = 0; stage <= pipe->stages; stage++) {
    g->nodes[stage] = ZP_NEW_ARRAY(arena, zp_stage_node, zp_stage_graph_width(g, stage));
    for (int64_t first = g->low[stage]; first <= g->high[stage] && stage < pipe->stages; first++)
      add_arcs(&k, stage, first);
    forget_costs(&k);
  }
  return g;
}

/* ---- narrowing ---- */

static zp_stage_node *node_after(const zp_stage_graph *g, int stage, const zp_stage_arc *arc) {
  return zp_stage_node_at(g, stage + 1, arc->end);
}

static bool is_last(const zp_stage_graph *g, int stage) { return stage == g->pipe.stages - 1; }

/* What passes between the forward and the backward of the first and of the last micro-batch on a stage, at least. */
static void turns_of(const zp_stage_graph *g, int stage, const zp_stage_arc *arc, double turn_s[2]) {
  const zp_range_cost *own = &g->cost.data[arc->cost];
  const zp_stage_node *next = node_after(g, stage, arc);
  double w = zp_pipe_warmup(&g->pipe, stage);
  for (int way = 0; way < 2; way++) {
    double behind = is_last(g, stage) ? 0 : next->answer_s[way] + 2 * g->pipe.message_s;
    turn_s[way] = zp_later(behind, w * (way == ZP_FIRST_TURN ? own->forward_s : own->backward_s));
  }
}

static void find_answers(zp_stage_graph *g) {
  for (int stage = g->pipe.stages - 1; stage >= 0; stage--)
    for (int64_t first = g->low[stage]; first <= g->high[stage]; first++) {
      zp_stage_node *node = zp_stage_node_at(g, stage, first);
      node->after_s = node->answer_s[0] = node->answer_s[1] = HUGE_VAL;
      g->work += node->n;
      for (int i = 0; i < node->n; i++) {
        const zp_range_cost *own = &g->cost.data[node->arcs[i].cost];
        double turn_s[2], work = own->forward_s + own->backward_s;
        double behind = is_last(g, stage) ? 0 : node_after(g, stage, &node->arcs[i])->after_s + 2 * g->pipe.message_s;
        turns_of(g, stage, &node->arcs[i], turn_s);
        node->after_s = zp_sooner(node->after_s, work + behind);
        for (int way = 0; way < 2; way++) node->answer_s[way] = zp_sooner(node->answer_s[way], work + turn_s[way]);
      }
    }
}

static bool may_be_below(const zp_stage_graph *g, int stage, const zp_stage_node *node, const zp_stage_arc *arc,
                         double target_s) {
  const zp_range_cost *own = &g->cost.data[arc->cost];
  double turn_s[2], work = own->forward_s + own->backward_s, between = (double)zp_pipe_between(&g->pipe, stage);
  turns_of(g, stage, arc, turn_s);
  double end = node->before_s + work + (stage == 0 ? own->reduce_s + g->pipe.ties_s : 0);
  end += between >= 1 ? turn_s[0] + turn_s[1] + between * work : zp_later(turn_s[0], turn_s[1]);
  double step = zp_later(end + zp_later(own->update_s, g->pipe.update_s), own->step_s);
  return step * (1 - ZP_LABEL_SLACK) < target_s;
}

/* From the front, so that what is taken away counts for what follows. True: something was. */
static bool take_offloaded(zp_stage_graph *g, double target_s) {
  bool changed = false;
  for (int stage = 0; stage <= g->pipe.stages; stage++)
    for (int64_t first = g->low[stage]; first <= g->high[stage]; first++)
      zp_stage_node_at(g, stage, first)->before_s = stage == 0 ? 0 : HUGE_VAL;
  for (int stage = 0; stage < g->pipe.stages; stage++)
    for (int64_t first = g->low[stage]; first <= g->high[stage]; first++) {
      zp_stage_node *node = zp_stage_node_at(g, stage, first);
      int n = 0;
      g->work += node->n;
      for (int i = 0; i < node->n; i++) {
        const zp_stage_arc *arc = &node->arcs[i];
        if (!may_be_below(g, stage, node, arc, target_s)) continue;
        const zp_range_cost *own = &g->cost.data[arc->cost];
        zp_stage_node *next = node_after(g, stage, arc);
        next->before_s = zp_sooner(next->before_s, node->before_s + own->forward_s + own->backward_s +
                                                       (is_last(g, stage) ? 0 : 2 * g->pipe.message_s) +
                                                       (stage == 0 ? own->reduce_s + g->pipe.ties_s : 0));
        node->arcs[n++] = *arc;
      }
      changed |= n < node->n;
      node->n = n;
    }
  return changed;
}

bool zp_stage_graph_narrow(zp_stage_graph *g, double target_s) {
  do find_answers(g);
  while (take_offloaded(g, target_s));
  return isfinite(g->nodes[0][0].answer_s[0]);
}

int64_t zp_stage_graph_arcs(const zp_stage_graph *g) {
  int64_t n = 0;
  for (int stage = 0; stage < g->pipe.stages; stage++)
    for (int64_t first = g->low[stage]; first <= g->high[stage]; first++) n += zp_stage_node_at(g, stage, first)->n;
  return n;
}

zp_stage_graph *zp_stage_graph_copy(zp_arena *arena, const zp_stage_graph *g, zp_stage_graph *copy) {
  int stages = g->pipe.stages;
  bool fresh = !copy;
  if (fresh) {
    copy = ZP_NEW(arena, zp_stage_graph);
    *copy = *g;
    copy->nodes = ZP_NEW_ARRAY(arena, zp_stage_node *, stages + 1);
    for (int stage = 0; stage <= stages; stage++)
      copy->nodes[stage] = ZP_NEW_ARRAY(arena, zp_stage_node, zp_stage_graph_width(g, stage));
  }
  for (int stage = 0; stage <= stages; stage++)
    for (int64_t first = g->low[stage]; first <= g->high[stage]; first++) {
      const zp_stage_node *from = zp_stage_node_at(g, stage, first);
      zp_stage_node *to = zp_stage_node_at(copy, stage, first);
      zp_stage_arc *arcs = fresh ? ZP_ROOM_FOR(arena, zp_stage_arc, from->n) : to->arcs;
      *to = *from;
      to->arcs = arcs;
      if (from->n) memcpy(arcs, from->arcs, sizeof *arcs * (size_t)from->n);
    }
  return copy;
}

const zp_stage_arc *zp_stage_graph_find(const zp_stage_graph *g, int stage, int64_t first, int64_t end) {
  if (first < g->low[stage] || first > g->high[stage]) return NULL;
  const zp_stage_node *node = zp_stage_node_at(g, stage, first);
  for (int i = 0; i < node->n; i++)
    if (node->arcs[i].end == end) return &node->arcs[i];
  return NULL;
}
