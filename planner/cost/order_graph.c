/* SPDX-License-Identifier: Apache-2.0 */
/* The order tables of all stages as one graph: an action begins when the one before it on its stage, the message that
 * it takes and the message that holds its buffer are over. The same rules as pipeline.c, and the same ends to the last
 * bit; made once for a table, it is run in one pass for any durations, and the actions that an end waited for can be
 * read from it. No time is ever taken away, so whatever the durations, the last action of a stage ends no sooner than
 * the actions and messages of a chain that leads to it take together. */
#include <assert.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>

enum { NOTHING = -1 };

typedef struct node {
  int32_t before, input, buffer; /* nodes; `buffer` had it before */
  int16_t place, act;            /* place in the model */
} node;

struct zp_order_graph {
  const zp_pipeline_run *run;
  int places;
  int64_t n_nodes;
  node *nodes; /* each after those that it waits for */
  double *end_s;
  int32_t *last;      /* [stage] */
  int *stage_of, *at; /* [place]: its stage; its times in run->time */
};

typedef struct making {
  zp_order_graph *graph;
  int *place_of;    /* [stage * chunks + chunk] */
  int32_t *made[2]; /* [place * microbatches + microbatch]: gradients of inputs, activations; NOTHING: not yet */
  int32_t *senders; /* [(2 * place + forward) * buffers]: nodes that had a buffer last */
  int64_t *sent;    /* [2 * place + forward] */
  int64_t *next;    /* [stage] */
} making;

/* The place that an action hands its result to; NOTHING: none. */
static int place_after(const zp_order_graph *g, int place, bool forward) {
  if (forward) return place + 1 < g->places ? place + 1 : NOTHING;
  return place - 1;
}

/* What an action takes is made at this place; NOTHING: nothing is taken. */
static int place_before(const zp_order_graph *g, int place, bool forward) { return place_after(g, place, !forward); }

static bool is_message(const zp_order_graph *g, int place, int other) {
  return other != NOTHING && g->stage_of[place] != g->stage_of[other];
}

static int boundary(int place, int other) { return place < other ? place : other; }

static void take_buffer(making *m, node *n, int32_t id, bool forward) {
  zp_order_graph *g = m->graph;
  if (!is_message(g, n->place, place_after(g, n->place, forward))) return;
  int64_t way = 2 * n->place + forward, buffers = g->run->buffers;
  int32_t *sender = &m->senders[way * buffers + m->sent[way] % buffers];
  if (m->sent[way]++ >= buffers) n->buffer = *sender;
  *sender = id;
}

/* False: what the action takes is not made yet. */
static bool add_action(making *m, int stage, const zp_action *action) {
  zp_order_graph *g = m->graph;
  int64_t microbatches = g->run->microbatches;
  int place = m->place_of[stage * g->run->chunks + action->chunk], from = NOTHING;
  node n = {g->last[stage], NOTHING, NOTHING, (int16_t)place, (int16_t)action->act};
  bool forward = action->forward, passes = action->act != ZP_ACT_BW;
  if (passes) from = place_before(g, place, forward);
  if (from != NOTHING && (n.input = m->made[forward][from * microbatches + action->microbatch]) == NOTHING)
    return false;
  int32_t id = (int32_t)g->n_nodes++;
  if (passes) {
    take_buffer(m, &n, id, forward);
    m->made[forward][place * microbatches + action->microbatch] = id;
  }
  g->nodes[id] = n;
  g->last[stage] = id;
  return true;
}

static void add_actions(making *m) {
  const zp_pipeline_run *run = m->graph->run;
  for (bool added = true; added;) {
    added = false;
    for (int s = 0; s < run->stages; s++)
      for (; m->next[s] < run->actions[s] && add_action(m, s, &run->order[s][m->next[s]]); m->next[s]++) added = true;
  }
}

static void find_places(making *m, zp_arena *arena) {
  zp_order_graph *g = m->graph;
  const zp_pipeline_run *run = g->run;
  g->stage_of = ZP_NEW_ARRAY(arena, int, g->places);
  g->at = ZP_NEW_ARRAY(arena, int, g->places);
  m->place_of = ZP_NEW_ARRAY(arena, int, g->places);
  for (int k = 0; k < g->places; k++) {
    int chunk;
    g->stage_of[k] = zp_chunk_stage(run->choice, k, &chunk);
    g->at[k] = g->stage_of[k] * run->chunks + chunk;
    m->place_of[g->at[k]] = k;
  }
}

zp_order_graph *zp_order_graph_new(zp_arena *arena, const zp_pipeline_run *run) {
  assert(run->stages >= 1 && run->chunks >= 1 && run->buffers >= 1);
  assert(run->order && run->actions);
  zp_order_graph *g = ZP_NEW(arena, zp_order_graph);
  making m = {.graph = g};
  int64_t actions = 0;
  g->run = run;
  g->places = run->stages * run->chunks;
  for (int s = 0; s < run->stages; s++) actions += run->actions[s];
  g->nodes = ZP_NEW_ARRAY(arena, node, actions);
  g->end_s = ZP_NEW_ARRAY(arena, double, actions);
  g->last = ZP_NEW_ARRAY(arena, int32_t, run->stages);
  find_places(&m, arena);
  for (int s = 0; s < run->stages; s++) g->last[s] = NOTHING;
  zp_arena *scratch = zp_arena_new_alongside("order_graph", arena);
  for (int way = 0; way < 2; way++) {
    m.made[way] = ZP_NEW_ARRAY(scratch, int32_t, g->places * run->microbatches);
    for (int64_t i = 0; i < g->places * run->microbatches; i++) m.made[way][i] = NOTHING;
  }
  m.senders = ZP_NEW_ARRAY(scratch, int32_t, 2 * g->places * run->buffers);
  m.sent = ZP_NEW_ARRAY(scratch, int64_t, 2 * g->places);
  m.next = ZP_NEW_ARRAY(scratch, int64_t, run->stages);
  add_actions(&m);
  zp_arena_free(scratch);
  assert(g->n_nodes == actions); /* the order tables cannot deadlock */
  return g;
}

/* ---- running it ---- */

static double duration_of(const zp_stage_time *time, int act) {
  switch (act) {
  case ZP_ACT_F: return time->forward_s;
  case ZP_ACT_B: return time->backward_s;
  case ZP_ACT_BI: return time->backward_s - time->weights_s;
  default: return time->weights_s;
  }
}

static int input_place(const zp_order_graph *g, const node *n) { return place_before(g, n->place, n->act == ZP_ACT_F); }

static double input_s(const zp_order_graph *g, const node *n) {
  int from = input_place(g, n);
  double end = g->end_s[n->input];
  return is_message(g, n->place, from) ? end + g->run->message_s[boundary(n->place, from)] : end;
}

static double buffer_s(const zp_order_graph *g, const node *n) {
  int to = place_after(g, n->place, n->act == ZP_ACT_F);
  return g->end_s[n->buffer] + g->run->message_s[boundary(n->place, to)];
}

void zp_order_graph_run(zp_order_graph *g) {
  for (int64_t i = 0; i < g->n_nodes; i++) {
    const node *n = &g->nodes[i];
    double begin = n->before == NOTHING ? 0 : g->end_s[n->before], other;
    if (n->input != NOTHING && (other = input_s(g, n)) > begin) begin = other;
    if (n->buffer != NOTHING && (other = buffer_s(g, n)) > begin) begin = other;
    g->end_s[i] = begin + duration_of(&g->run->time[g->at[n->place]], n->act);
  }
  for (int s = 0; s < g->run->stages; s++) g->run->end_s[s] = g->end_s[g->last[s]];
}

/* The node that an action waited for longest, whose message, if it came with one, is counted. */
static int32_t waited_for(const zp_order_graph *g, const node *n, zp_place_weights *weights) {
  int32_t longest = n->before;
  double begin = longest == NOTHING ? 0 : g->end_s[longest], other;
  int message = NOTHING;
  if (n->input != NOTHING && (other = input_s(g, n)) > begin) {
    int from = input_place(g, n);
    begin = other, longest = n->input;
    message = is_message(g, n->place, from) ? boundary(n->place, from) : NOTHING;
  }
  if (n->buffer != NOTHING && buffer_s(g, n) > begin) {
    longest = n->buffer;
    message = boundary(n->place, place_after(g, n->place, n->act == ZP_ACT_F));
  }
  if (message != NOTHING) weights[message].messages++;
  return longest;
}

static void count_action(const node *n, zp_place_weights *weights) {
  zp_place_weights *w = &weights[n->place];
  if (n->act == ZP_ACT_F)
    w->forwards++;
  else if (n->act == ZP_ACT_BW)
    w->weights++;
  else
    w->backwards++;
}

void zp_order_graph_chain(const zp_order_graph *g, int stage, zp_place_weights *weights) {
  assert(stage >= 0 && stage < g->run->stages && weights);
  for (int32_t id = g->last[stage]; id != NOTHING; id = waited_for(g, &g->nodes[id], weights))
    count_action(&g->nodes[id], weights);
}

/* Elsewhere the messages of gradients are followed back to the stage, then those of activations to the beginning. */
static bool follows_message(const zp_order_graph *g, const node *n, int stage, bool been) {
  if (n->input == NOTHING) return false;
  return been ? n->before == NOTHING : g->stage_of[n->place] != stage && n->act != ZP_ACT_F;
}

void zp_order_graph_through(const zp_order_graph *g, int end, int stage, zp_place_weights *weights) {
  assert(stage >= 0 && stage < g->run->stages && weights);
  assert(end == stage || end == zp_chunk_stage(g->run->choice, 0, NULL));
  bool been = false;
  for (int32_t id = g->last[end]; id != NOTHING;) {
    const node *n = &g->nodes[id];
    count_action(n, weights);
    been |= g->stage_of[n->place] == stage;
    bool message = follows_message(g, n, stage, been);
    int from = message ? input_place(g, n) : NOTHING;
    if (message && is_message(g, n->place, from)) weights[boundary(n->place, from)].messages++;
    id = message ? n->input : n->before;
  }
}
