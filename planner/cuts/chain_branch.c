/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound over the cuts of one point by chains, for every schedule that has order tables.
 *
 * A chain of actions that wait for each other (order_graph.c) bounds every cut: the step takes at least what its
 * actions and messages take, the last stage's reduction and any stage's update. So does every mean of chains. For one
 * chain the cut that it allows most is a shortest path (cut_space.c).
 *
 * Root: chains and cuts are found in turn. The best mean of the chains for the cuts seen so far is a matrix game
 * (matrix_game.c); the shortest path for that mean is a bound of all cuts and the next cut to see, and what that cut
 * waits for in the simulation is the next chain. Edges that no cut below the target has are dropped on the way.
 *
 * Tree: a node fixes the ends of the first places. It is pruned when some chain's seconds up to there and the least
 * ones after it miss the target. A whole cut that misses it yields the chain that it waited for, which is a chain of
 * the tree from then on; the search goes back to the first place where that chain alone would have pruned.
 *
 * Several chunks a stage: what a stage runs is known with its last chunk. Only then its memory and mode count, and all
 * of its reduction and update. Work is counted in simulated actions. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include "chain_tree.h"
#include "provers.h"

enum { BYTES_AN_ACTION = 64 }; /* in the order tables and their graph, at most */

/* ---- chains of the tree ---- */

/* Does the end of the place tell what its stage costs? */
static bool settles_stage(const zp_chain_tree *t, int place) {
  return zp_chain_chunked(t) && t->last_place[t->stage_of[place]] == place;
}

/* What a fixed place adds to chains: its own seconds, and with those of its stage what its other chunks take more than
 * they cost at least. */
typedef struct added {
  int n, at[ZP_CUT_MOST_CHUNKS]; /* places */
  zp_cut_cost cost[ZP_CUT_MOST_CHUNKS];
} added;

static zp_cut_cost minus(const zp_cut_cost *a, const zp_cut_cost *b) {
  return (zp_cut_cost){.forward_s = a->forward_s - b->forward_s,
                       .backward_s = a->backward_s - b->backward_s,
                       .weights_s = a->weights_s - b->weights_s,
                       .message_s = a->message_s - b->message_s,
                       .reduce_s = a->reduce_s - b->reduce_s,
                       .update_s = a->update_s - b->update_s};
}

/* settled: t->cost has what the stage costs. */
static void set_added(const zp_chain_tree *t, int place, bool settled, added *x) {
  x->n = 1;
  x->at[0] = place;
  x->cost[0] = settled ? t->cost[place] : *zp_chain_edge(t, place);
  for (int k = 0; k < place && settled; k++) {
    if (t->stage_of[k] != t->stage_of[place]) continue;
    x->at[x->n] = k;
    x->cost[x->n++] = minus(&t->cost[k], zp_chain_edge(t, k));
  }
}

/* A chain's seconds up to the end of a fixed place. */
static double add_place(zp_held_chain *h, int place, const added *x) {
  double sum = h->sum_s[place];
  for (int i = 0; i < x->n; i++) sum += zp_chain_seconds(&h->chain, x->at[i], &x->cost[i]);
  return h->sum_s[place + 1] = sum;
}

static double rest_of(const zp_chain_tree *t, const zp_held_chain *h, int place, int64_t end) {
  return h->rest_s[t->space->base[place] + end - t->space->low[place]];
}

/* The chain at this position of the order is asked first from now on. */
static void ask_first(zp_chain_tree *t, int at) {
  int chain = t->order[at];
  memmove(t->order + 1, t->order, sizeof *t->order * (size_t)at);
  t->order[0] = chain;
}

/* Room for one more, asked first: the one that has not pruned for longest goes. */
static zp_held_chain *hold_chain(zp_chain_tree *t) {
  if (t->n_chains < ZP_MOST_CHAINS) {
    t->order[t->n_chains] = t->n_chains;
    t->n_chains++;
  }
  ask_first(t, t->n_chains - 1);
  zp_held_chain *h = &t->chains[t->order[0]];
  if (h->rest_s) {
    zp_chain_clear(&h->chain, t->places);
    return h;
  }
  h->chain = zp_chain_new(t->arena, t->places);
  h->rest_s = ZP_NEW_ARRAY(t->arena, double, t->space->ends);
  h->sum_s = ZP_NEW_ARRAY(t->arena, double, t->places + 1);
  return h;
}

/* ---- the tree ---- */

typedef struct child {
  int64_t end;
  double bound_s;
} child;

static int by_child(const void *a, const void *b) {
  const child *x = a, *y = b;
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s ? -1 : 1;
  return x->end < y->end ? 1 : -1;
}

/* The most that a chain says of the cuts that start with the fixed places up to this one, or what the first one says
 * that rules them out: neighbours are mostly ruled out by the same. Counts the places that chains were asked about,
 * each as an action. */
static double bound_of_place(zp_chain_tree *t, int place, bool settled, int64_t *asked) {
  double most = 0;
  added x;
  set_added(t, place, settled, &x);
  *asked += 2; /* the place itself */
  for (int i = 0; i < t->n_chains; i++) {
    zp_held_chain *h = &t->chains[t->order[i]];
    *asked += x.n;
    double seconds = add_place(h, place, &x) + rest_of(t, h, place + 1, t->cut[place + 1]);
    if (!zp_chain_meets(seconds, t->target_s)) {
      ask_first(t, i);
      return seconds;
    }
    if (seconds > most) most = seconds;
  }
  return most;
}

/* The fewest of the fixed places that miss the target by the chain; all when they do not. */
static int blame(zp_chain_tree *t, zp_held_chain *h) {
  for (int k = 0; k < t->places; k++) {
    added x;
    set_added(t, k, settles_stage(t, k), &x);
    add_place(h, k, &x);
  }
  for (int k = 0; k <= t->places; k++)
    if (!zp_chain_meets(h->sum_s[k] + rest_of(t, h, k, t->cut[k]), t->target_s)) return k;
  return t->places;
}

/* A whole cut; how many of its first places are to blame when it misses the target. */
static int visit_leaf(zp_chain_tree *t) {
  zp_held_chain *h = hold_chain(t);
  zp_chain_simulate(t, &h->chain);
  h->sum_s[0] = h->chain.constant_s;
  if (!zp_chain_ask(t, &h->chain, h->rest_s)) return 0;
  int miss = blame(t, h);
  if (zp_chain_meets(h->sum_s[t->places], t->target_s)) {
    zp_chain_found(t);
    miss = blame(t, h);
  }
  t->effort->pruned[ZP_CUT_CHAIN]++;
  return miss;
}

/* Fixes the place, whose end is set. False: nothing below the target starts so. A stage is priced only where its
 * chunks allow that by themselves. */
static bool fix(zp_chain_tree *t, int place, double *bound_s, int64_t *asked) {
  bool last = settles_stage(t, place);
  if (last && !zp_chain_meets(bound_of_place(t, place, false, asked), t->target_s)) {
    t->effort->pruned[ZP_CUT_CHAIN]++;
    return false;
  }
  if (!zp_chain_fix_place(t, place)) return false;
  *bound_s = bound_of_place(t, place, last, asked);
  bool meets = zp_chain_meets(*bound_s, t->target_s);
  t->effort->pruned[ZP_CUT_CHAIN] += !meets;
  return meets;
}

static int visit(zp_chain_tree *t, int place) {
  t->effort->nodes++;
  if (place == t->places) return visit_leaf(t);
  const zp_cut_space *x = t->space;
  int64_t at = x->base[place] + t->cut[place] - x->low[place], n = 0, asked = 0;
  zp_arena_mark mark = zp_arena_get_mark(t->scratch);
  child *children = ZP_NEW_ARRAY(t->scratch, child, x->stop[at] - x->begin[at] + 1);
  for (int64_t e = x->begin[at]; e < x->stop[at]; e++) {
    int64_t end = x->nearest[at] + e - x->first_edge[at];
    if (!x->alive[e]) continue;
    t->cut[place + 1] = end;
    double bound;
    if (fix(t, place, &bound, &asked)) children[n++] = (child){end, bound};
  }
  zp_chain_spend(t, 1 + (x->stop[at] - x->begin[at]) / ZP_CHAIN_ENDS + asked);
  if (n) qsort(children, (size_t)n, sizeof *children, by_child);
  int miss = place + 1;
  for (int64_t i = 0; i < n && !t->spent && miss > place; i++) {
    t->cut[place + 1] = children[i].end;
    asked = 0;
    if (!fix(t, place, &children[i].bound_s, &asked)) continue;
    zp_chain_spend(t, asked);
    miss = visit(t, place + 1);
  }
  zp_arena_rewind(t->scratch, mark);
  return miss <= place ? miss : place;
}

static bool take_row(zp_chain_tree *t, const zp_chain *row) {
  zp_held_chain *h = hold_chain(t);
  zp_chain_add(&h->chain, row, 1, t->places);
  h->sum_s[0] = row->constant_s;
  return zp_chain_ask(t, &h->chain, h->rest_s);
}

/* The chains of the root that count in its mean, as far as there is room for more, and the mean. */
static bool take_rows(zp_chain_tree *t) {
  for (int r = t->n_rows; r-- > 0 && t->n_chains < ZP_MOST_CHAINS / 2;)
    if (t->share[r] > ZP_GAME_SHARE && !take_row(t, &t->rows[r])) return false;
  return take_row(t, &t->mean);
}

static void search_tree(zp_chain_tree *t) {
  t->n_chains = 0;
  if (t->spent || !take_rows(t)) return;
  for (int r = 0; r < t->n_chains && !t->spent; r++) /* again, without the edges that the others dropped */
    if (!zp_chain_ask(t, &t->chains[r].chain, t->chains[r].rest_s)) return;
  if (!t->spent) visit(t, 0);
}

/* ---- start ---- */

/* False: the orders are too long, or the ways to cut too many. */
static bool plant(zp_chain_tree *t) {
  const zp_cut_problem *p = t->problem;
  t->places = zp_cut_places(p);
  t->stages = p->stages;
  t->stage_of = p->stage_of;
  int64_t actions = 3 * p->microbatches * t->places;
  if (t->effort->work_left <= 0 || actions > ZP_MOST_ACTIONS) return false;
  if (!p->may_grow(p->user, (size_t)actions * BYTES_AN_ACTION)) return false;
  if (zp_chain_chunked(t)) t->update_s = p->update_s;
  t->space = zp_cut_space_new(t->arena, p, t->target_s);
  zp_chain_spend(t, t->space ? t->space->n_edges : p->microbatches * t->places);
  if (!t->space) return false;
  t->cut = ZP_NEW_ARRAY(t->arena, int64_t, t->places + 1);
  t->done_s = ZP_NEW_ARRAY(t->arena, double, t->space->ends);
  if (t->space->possible) zp_chain_start_costs(t);
  return true;
}

/* Raises the proven bound, finds better plans. */
static void search_below(zp_chain_tree *t, double target_s, bool deep) {
  t->target_s = target_s;
  zp_cut_return(t->space);
  if (zp_chain_search_root(t)) {
    t->spent |= !deep;
    search_tree(t);
  } else {
    t->effort->pruned[ZP_CUT_CHAIN]++;
  }
  if (!t->spent) t->low_s = fmax(t->low_s, t->target_s);
}

static double limit_s(const zp_chain_tree *t) { return t->task->limit_s(t->task->user); }

/* The first targets are near the bound, where little is left to search and a cut that is found is good. Targets that
 * the root rules out cost next to nothing; after one that took a search the best plan is near, and the target is the
 * best plan itself. */
static void search(zp_chain_tree *t, bool deep) {
  double high, share = ZP_NEAR_TARGET;
  while (high = limit_s(t), t->low_s < high * (1 - ZP_BOUND_SLACK) && !t->spent) {
    int64_t nodes = t->effort->nodes;
    search_below(t, fmin(t->low_s + share * (high - t->low_s), high * (1 - ZP_BOUND_SLACK)), deep);
    bool searched = t->effort->nodes > nodes;
    share = limit_s(t) < high ? ZP_NEAR_TARGET : searched || share >= ZP_FIRST_TARGET ? 1 : ZP_FIRST_TARGET;
  }
}

zp_cut_proof zp_prove_by_chains(const zp_cut_problem *problem, const zp_cut_task *task, zp_cut_effort *effort,
                                zp_cut_depth turn) {
  assert(zp_cut_problem_is_sound(problem));
  assert(task && effort);
  bool deep = turn >= ZP_CUT_DEEP;
  zp_chain_tree t = {.problem = problem, .task = task, .effort = effort, .low_s = problem->bound_s};
  t.arena = zp_arena_new_alongside("chain_branch", problem->alongside);
  t.scratch = zp_arena_new_alongside("chain_branch.scratch", problem->alongside);
  if (turn != ZP_CUT_WHOLE) /* other problems want their share */
    t.stop_at = effort->work_left - effort->work_left / (deep ? ZP_CHAINS_DEEP_PART : ZP_CHAINS_PART);
  t.target_s = limit_s(&t) * (1 - ZP_BOUND_SLACK);
  if (plant(&t)) {
    if (t.space->possible && zp_chain_start_root(&t))
      search(&t, deep);
    else
      t.low_s = fmax(t.low_s, t.target_s);
  }
  zp_arena_free(t.scratch);
  zp_arena_free(t.arena);
  return (zp_cut_proof){.bound_s = t.low_s};
}
