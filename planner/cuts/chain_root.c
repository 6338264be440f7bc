/* SPDX-License-Identifier: Apache-2.0 */
/* The root of branch and bound by chains. Rows are chains, each of which bounds every cut by a shortest path
 * (cut_space.c). The first ones are what a balanced cut waits for when one of its stages is the longest, for every
 * stage: one by one they say how long that stage may be. Then means of rows: the best shares for the cuts that were
 * seen are a matrix game (matrix_game.c); the shortest path for the mean is a bound of all cuts and the next cut to
 * see, and what that cut waits for in the simulation is the next row. On the way cuts that are below the target are
 * found, and edges that no such cut has are dropped. */
#include <math.h>
#include "chain_tree.h"

static bool is_known(const zp_chain_tree *t, const int64_t *cut) {
  for (int i = 0; i < t->n_cuts; i++)
    if (memcmp(t->cuts[i], cut, sizeof *cut * (size_t)(t->places + 1)) == 0) return true;
  return false;
}

static zp_chain *add_row(zp_chain_tree *t) {
  zp_chain *row = &t->rows[t->n_rows++];
  *row = zp_chain_new(t->arena, t->places);
  return row;
}

/* All units on one place: no cut, but shares of rows that let it weigh less than cuts do are not worth trying. */
static double all_at(const zp_chain_tree *t, const zp_chain *row, int place) {
  double seconds = row->constant_s + zp_chain_of_edge(&row->at[place], row->reduce[place], 0, &t->all);
  for (int k = 0; k + 1 < t->places; k++) seconds += row->at[k].messages * t->message_s[k];
  return seconds;
}

static void play_row(zp_chain_tree *t, const zp_chain *row) {
  for (int k = 0; k < t->places; k++) t->value[k] = all_at(t, row, k) * ZP_GAME_ROOM / t->scale_s;
  for (int c = 0; c < t->n_cuts; c++) t->value[t->places + c] = zp_chain_of_cut(t->space, row, t->cuts[c]) / t->scale_s;
  zp_matrix_game_add_row(t->game, t->value);
}

static double work_of_stage(const zp_chain_tree *t, int stage) {
  double seconds = 0;
  for (int k = stage; k < t->places; k++)
    if (t->stage_of[k] == stage) {
      const zp_cut_cost *edge = zp_chain_edge(t, k);
      seconds += edge->forward_s + edge->backward_s + edge->weights_s;
    }
  return seconds;
}

/* Every stage's own actions, with what they wait for at the beginning and, on the stage or on the first one, at the
 * end. */
static void add_plain_rows(zp_chain_tree *t) {
  for (int stage = 0; stage < t->stages; stage++)
    for (int end = stage;; end = 0) {
      zp_chain *row = add_row(t);
      t->problem->through(t->problem->user, end, stage, row->at);
      zp_chain_end(t, row, end, stage);
      play_row(t, row);
      if (end == 0) break;
    }
}

/* What the cut waits for when one of its stages takes longer than all others: for every stage. */
static void add_stage_rows(zp_chain_tree *t) {
  double longest = 0;
  for (int stage = 0; stage < t->stages; stage++) longest = fmax(longest, work_of_stage(t, stage));
  for (int stage = 0; stage < t->stages; stage++) {
    double factor = ZP_SLOWER_STAGE * longest / work_of_stage(t, stage);
    for (int k = 0; k < t->places; k++) {
      t->cost[k] = *zp_chain_edge(t, k);
      if (t->stage_of[k] != stage) continue;
      t->cost[k].forward_s *= factor, t->cost[k].backward_s *= factor, t->cost[k].weights_s *= factor;
    }
    zp_chain *row = add_row(t);
    zp_chain_simulate(t, row);
    play_row(t, row);
  }
}

/* Simulates t->cut, whose chain becomes a row; a plan below the target is a new best plan. t->seen_s: how long
 * the cut takes, at least. False: it does not fit. */
static bool learn_row(zp_chain_tree *t) {
  bool fits = zp_chain_fix_cut(t);
  zp_chain *row = add_row(t);
  zp_chain_simulate(t, row);
  play_row(t, row);
  t->seen_s = zp_chain_of_fixed(t, row);
  if (!fits || !zp_chain_meets(t->seen_s, t->target_s)) return fits;
  zp_chain_found(t);
  return true;
}

/* Simulates t->cut, whose chain becomes a row (learn_row), and makes the cut a column. */
static void learn_cut(zp_chain_tree *t) {
  learn_row(t);
  for (int r = 0; r < t->n_rows; r++) t->value[r] = zp_chain_of_cut(t->space, &t->rows[r], t->cut) / t->scale_s;
  zp_matrix_game_add_column(t->game, t->value);
  t->cuts[t->n_cuts] = ZP_NEW_ARRAY(t->arena, int64_t, t->places + 1);
  memcpy(t->cuts[t->n_cuts++], t->cut, sizeof *t->cut * (size_t)(t->places + 1));
  zp_chain_spend(t, (int64_t)t->n_rows * (t->n_rows + t->places) / ZP_GAME_ENTRIES);
}

bool zp_chain_ask(zp_chain_tree *t, const zp_chain *chain, double *rest_s) {
  zp_chain_spend(t, (zp_chain_rest(t->space, chain, rest_s) + t->space->ends) / ZP_CHAIN_ENDS);
  if (!zp_chain_meets(chain->constant_s + rest_s[0], t->target_s)) return false;
  zp_chain_drop(t->space, chain, rest_s, t->done_s, t->target_s);
  return true;
}

/* Moves the ends between two places by one unit; false: no chunk may be so, t->cut is as before. */
static bool move_unit(zp_chain_tree *t, int from, int to) {
  int step = from < to ? -1 : 1, low = from < to ? from : to, high = from < to ? to : from;
  for (int k = low + 1; k <= high; k++) t->cut[k] += step;
  for (int k = low; k <= high; k++) {
    int64_t edge = zp_cut_edge(t->space, k, t->cut[k], t->cut[k + 1]);
    if (edge >= 0) continue;
    for (int i = low + 1; i <= high; i++) t->cut[i] -= step;
    return false;
  }
  return true;
}

static bool row_allows(const zp_chain_tree *t, int row, double seconds) {
  return zp_chain_meets(zp_chain_of_cut(t->space, &t->rows[row], t->cut), seconds);
}

/* Does every row allow a faster cut? The row that did not last time, when a unit went to the same place, comes first;
 * of the others the last ones know most. */
static bool rows_allow(const zp_chain_tree *t, int *refused, double seconds) {
  if (!row_allows(t, *refused, seconds)) return false;
  for (int r = t->n_rows; r-- > 0;)
    if (r != *refused && !row_allows(t, r, seconds)) {
      *refused = r;
      return false;
    }
  return true;
}

/* Moves single units from one place to another while that makes the step faster, from the cut that was learned last. */
static void improve_cut(zp_chain_tree *t) {
  int n = t->places, since = 0;
  double best = t->seen_s;
  int *refused = ZP_NEW_ARRAY(t->scratch, int, n); /* by which row, of moves to a place */
  int64_t stop_at = t->effort->work_left - (t->effort->work_left - t->stop_at) / ZP_IMPROVE_PART;
  for (int64_t i = 0; since < n * n && t->n_rows < t->most_rows - ZP_MOST_SEEN / 2 && t->effort->work_left > stop_at;
       i = (i + 1) % (n * n), since++) {
    int from = (int)(i / n), to = (int)(i % n);
    if (from == to || !move_unit(t, from, to)) continue;
    zp_chain_spend(t, t->places / ZP_CHAIN_ENDS);
    if (rows_allow(t, &refused[to], best * (1 - ZP_BOUND_SLACK)) && learn_row(t) &&
        t->seen_s < best * (1 - ZP_BOUND_SLACK))
      best = t->seen_s, since = 0;
    else
      move_unit(t, to, from);
  }
}

/* The mean of rows, between the best shares so far and those of the game. */
static void find_mean(zp_chain_tree *t, double towards) {
  zp_chain_clear(&t->mean, t->places);
  zp_chain_spend(t, zp_matrix_game_shares(t->game, t->share) / ZP_GAME_SOLVED);
  for (int r = 0; r < t->n_rows; r++) {
    t->share[r] = towards * t->share[r] + (1 - towards) * t->best_share[r];
    if (t->share[r] > 0) zp_chain_add(&t->mean, &t->rows[r], t->share[r], t->places);
  }
}

/* Every row by itself. */
static bool ask_rows(zp_chain_tree *t) {
  for (int r = 0; r < t->n_rows && !t->spent; r++)
    if (!zp_chain_ask(t, &t->rows[r], t->rest_s)) return false;
  return true;
}

bool zp_chain_search_root(zp_chain_tree *t) {
  double most = 0, towards = ZP_TOWARDS_CUTS;
  if (!ask_rows(t)) return false;
  zp_chain_spend(t, zp_matrix_game_shares(t->game, t->best_share) / ZP_GAME_SOLVED);
  for (int since = 0; t->n_cuts < ZP_MOST_SEEN && t->n_rows < t->most_rows && since < ZP_MOST_SINCE && !t->spent;) {
    find_mean(t, towards);
    if (!zp_chain_ask(t, &t->mean, t->rest_s)) return false;
    double bound = t->mean.constant_s + t->rest_s[0];
    since = bound > most + ZP_LITTLE * (t->target_s - most) ? 0 : since + 1;
    if (bound > most) {
      most = bound;
      memcpy(t->best_share, t->share, sizeof *t->share * (size_t)t->n_rows);
    }
    zp_chain_cut(t->space, &t->mean, t->rest_s, t->cut);
    if (!is_known(t, t->cut))
      learn_cut(t);
    else if (towards >= 1)
      break;
    else
      towards = fmin(1, 2 * towards);
  }
  return true;
}

static zp_cut_cost cost_of_all(const zp_cut_problem *p) {
  double forward = p->forward_s[p->units], work = p->work_s[p->units], input = p->split ? p->input_s[p->units] : work;
  zp_cut_cost all = {.forward_s = forward, .backward_s = input - forward, .weights_s = work - input};
  if (p->chunks > 1 && p->least) all.reduce_s = fmax(0, p->least(p->user, 0, p->units).reduce_s);
  return all;
}

static void make_room(zp_chain_tree *t) {
  t->all = cost_of_all(t->problem);
  zp_arena *arena = t->arena;
  t->most_rows = 2 * t->stages + ZP_MOST_SEEN + 1;
  t->rows = ZP_NEW_ARRAY(arena, zp_chain, t->most_rows);
  t->value = ZP_NEW_ARRAY(arena, double, t->most_rows + t->places + ZP_MOST_SEEN);
  t->share = ZP_NEW_ARRAY(arena, double, t->most_rows);
  t->best_share = ZP_NEW_ARRAY(arena, double, t->most_rows);
  t->rest_s = ZP_NEW_ARRAY(arena, double, t->space->ends);
  t->mean = zp_chain_new(arena, t->places);
  t->game = zp_matrix_game_new(arena, t->most_rows, t->places + ZP_MOST_SEEN, t->places);
  t->scale_s = t->target_s;
}

bool zp_chain_start_root(zp_chain_tree *t) {
  make_room(t);
  if (!zp_cut_balanced(t->scratch, t->space, t->cut)) return false;
  zp_chain_fix_cut(t);
  if (t->stages * t->problem->microbatches * t->places < (t->effort->work_left - t->stop_at) / ZP_IMPROVE_PART)
    add_stage_rows(t);
  else
    add_plain_rows(t);
  learn_cut(t);
  improve_cut(t);
  if (!ask_rows(t)) return false;
  zp_cut_keep(t->space);
  return true;
}
