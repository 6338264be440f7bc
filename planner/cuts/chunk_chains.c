/* SPDX-License-Identifier: Apache-2.0 */
/* How soon the micro-batches of a point with several chunks a stage can be done, however it is cut: a bound by chains
 * of actions that wait for each other (order_graph.c), before any memory is considered.
 *
 * Seconds of a chain are a sum over the places of the model: so often each place's forward, backward and so on. Each is
 * a difference of sums up to the ends of a chunk, so every end counts by itself, and the cut that a chain allows most
 * is found end by end: O(places * units). So does the mean of several chains, and what a chain says of every cut, their
 * mean says, too. Chains are those that simulated cuts wait for, the best mean of them for the cuts seen is a matrix
 * game (matrix_game.c), and the cut that this mean allows most is simulated next. Loose where memory forces stages to
 * recompute, and where what is best for the chains together is no cut. */
#include <assert.h>
#include <math.h>
#include <zplan/lanes.h>
#include "cut_space.h"
#include "provers.h"

typedef struct bounding {
  zp_arena *arena;
  const zp_cut_problem *problem;
  int places, stages;
  int64_t units;
  zp_cut_cost *cost; /* [place]: of the current cut */
  double *end_s;     /* [stage]: room */
  zp_chain row[ZP_MOST_ROUNDS], mean;
  int64_t *cut[ZP_MOST_ROUNDS];
  int rounds;
  double *least;  /* [places + 1][units + 1] */
  int32_t *where; /* the same: the end before */
  double *back,
      *weights; /* [units + 1]: of the units before each, the two parts of backward; weights 0 when it is not split */
  double *before, *after; /* [units + 1]: room, seconds of the place before an end and of the one after it */
} bounding;

static zp_cut_cost cost_of(const bounding *b, int64_t first, int64_t end) {
  const zp_cut_problem *p = b->problem;
  double forward = p->forward_s[end] - p->forward_s[first], work = p->work_s[end] - p->work_s[first],
         input = p->split ? p->input_s[end] - p->input_s[first] : work;
  return (zp_cut_cost){.forward_s = forward,
                       .backward_s = zp_later(input - forward, 0),
                       .weights_s = zp_later(work - input, 0),
                       .message_s = p->message_s};
}

static double chain_of_cut(const bounding *b, const zp_chain *chain, const int64_t *cut) {
  double seconds = 0;
  for (int k = 0; k < b->places; k++) {
    zp_cut_cost cost = cost_of(b, cut[k], cut[k + 1]);
    seconds += zp_chain_of_edge(&chain->at[k], 0, 0, &cost);
  }
  return seconds;
}

/* Seconds of all units before each end, as often as the chain passes the place. */
static void weigh(const bounding *b, const zp_cut_weights *w, double *seconds) {
  const double *forward = b->problem->forward_s;
  zp_lanes forwards = zp_lanes_all(w->forwards), backwards = zp_lanes_all(w->backwards),
           weights = zp_lanes_all(w->weights);
  int64_t u = 0;
  for (; u + ZP_LANES - 1 <= b->units; u += ZP_LANES) {
    zp_lanes sum = zp_lanes_add(zp_lanes_times(forwards, zp_lanes_at(&forward[u])),
                                zp_lanes_times(backwards, zp_lanes_at(&b->back[u])));
    zp_lanes_put(&seconds[u], zp_lanes_add(sum, zp_lanes_times(weights, zp_lanes_at(&b->weights[u]))));
  }
  for (; u <= b->units; u++)
    seconds[u] = w->forwards * forward[u] + w->backwards * b->back[u] + w->weights * b->weights[u];
}

/* Finds the cut for which the chain is shortest, into cut; its seconds. */
static double find_least(bounding *b, const zp_chain *chain, int64_t *cut) {
  int64_t wide = b->units + 1;
  double messages = 0;
  for (int k = 0; k < b->places; k++) messages += chain->at[k].messages * b->problem->message_s;
  b->least[0] = 0;
  weigh(b, &chain->at[0], b->before);
  for (int k = 1; k <= b->places; k++) {
    const double *before = &b->least[(k - 1) * wide];
    double best = HUGE_VAL;
    int32_t from = 0;
    double *least = &b->least[k * wide], *seconds = b->before;
    int32_t *where = &b->where[k * wide];
    int64_t last = k == b->places ? b->units : b->units - (b->places - k);
    if (k < b->places)
      weigh(b, &chain->at[k], b->after);
    else
      memset(b->after, 0, sizeof *b->after * (size_t)wide);
    for (int64_t end = k; end <= last; end++) {
      if ((k > 1 || end == 1) && before[end - 1] < best) best = before[end - 1], from = (int32_t)(end - 1);
      least[end] = best + (seconds[end] - b->after[end]);
      where[end] = from;
    }
    b->before = b->after;
    b->after = seconds;
  }
  cut[b->places] = b->units;
  for (int k = b->places; k > 0; k--) cut[k - 1] = b->where[k * wide + cut[k]];
  return b->least[b->places * wide + b->units] + messages;
}

/* Adds the chain that the cut waits for, and remembers the cut. */
static void learn(bounding *b, const int64_t *cut) {
  const zp_cut_problem *p = b->problem;
  int longest = 0;
  for (int k = 0; k < b->places; k++) b->cost[k] = cost_of(b, cut[k], cut[k + 1]);
  p->run(p->user, b->cost, b->end_s);
  for (int s = 1; s < b->stages; s++)
    if (b->end_s[s] > b->end_s[longest]) longest = s;
  b->row[b->rounds] = zp_chain_new(b->arena, b->places);
  p->chain(p->user, longest, b->row[b->rounds].at);
  b->cut[b->rounds] = ZP_NEW_ARRAY(b->arena, int64_t, b->places + 1);
  memcpy(b->cut[b->rounds], cut, sizeof *cut * (size_t)(b->places + 1));
  b->rounds++;
}

static bool is_known(const bounding *b, const int64_t *cut) {
  for (int i = 0; i < b->rounds; i++)
    if (memcmp(b->cut[i], cut, sizeof *cut * (size_t)(b->places + 1)) == 0) return true;
  return false;
}

/* The newest cut and chain join the game. */
static void play(bounding *b, zp_matrix_game *game, double scale_s) {
  double value[ZP_MOST_ROUNDS];
  int n = b->rounds - 1;
  for (int r = 0; r < n; r++) value[r] = chain_of_cut(b, &b->row[r], b->cut[n]) / scale_s;
  if (n > 0) zp_matrix_game_add_column(game, value);
  for (int c = 0; c <= n; c++) value[c] = chain_of_cut(b, &b->row[n], b->cut[c]) / scale_s;
  zp_matrix_game_add_row(game, value);
}

static double search(bounding *b, double enough_s) {
  double most = 0, best[ZP_MOST_ROUNDS] = {1}, share[ZP_MOST_ROUNDS] = {1}, towards = ZP_TOWARDS_CHUNKS;
  int64_t *cut = ZP_NEW_ARRAY(b->arena, int64_t, b->places + 1);
  for (int k = 0; k <= b->places; k++) cut[k] = b->units * k / b->places;
  learn(b, cut);
  double scale = chain_of_cut(b, &b->row[0], cut);
  zp_matrix_game *game = zp_matrix_game_new(b->arena, ZP_MOST_ROUNDS, ZP_MOST_ROUNDS, 1);
  play(b, game, scale);
  while (most < enough_s) {
    zp_chain_clear(&b->mean, b->places);
    zp_matrix_game_shares(game, share);
    for (int r = 0; r < b->rounds; r++) {
      share[r] = towards * share[r] + (1 - towards) * best[r];
      if (share[r] > 0) zp_chain_add(&b->mean, &b->row[r], share[r], b->places);
    }
    double bound = find_least(b, &b->mean, cut);
    if (bound > most) {
      most = bound;
      memcpy(best, share, sizeof best);
    }
    bool known = is_known(b, cut);
    if (b->rounds == ZP_MOST_ROUNDS || (known && towards >= 1)) break;
    if (known) {
      towards = fmin(1, 2 * towards);
      continue;
    }
    learn(b, cut);
    play(b, game, scale);
  }
  return most;
}

static void find_parts(bounding *b) {
  const zp_cut_problem *p = b->problem;
  b->back = ZP_NEW_ARRAY(b->arena, double, b->units + 1);
  b->weights = ZP_NEW_ARRAY(b->arena, double, b->units + 1);
  b->before = ZP_NEW_ARRAY(b->arena, double, b->units + 1);
  b->after = ZP_NEW_ARRAY(b->arena, double, b->units + 1);
  for (int64_t u = 0; u <= b->units; u++) {
    double input = p->split ? p->input_s[u] : p->work_s[u];
    b->back[u] = input - p->forward_s[u];
    b->weights[u] = p->work_s[u] - input;
  }
}

zp_cut_proof zp_prove_by_means(const zp_cut_problem *problem, const zp_cut_task *task, zp_cut_effort *effort,
                               zp_cut_depth turn) {
  assert(problem->chunks > 1 && zp_cut_problem_is_sound(problem));
  (void)effort, (void)turn; /* a bound alone, in limited rounds */
  zp_arena *arena = zp_arena_new_alongside("means", problem->alongside);
  bounding b = {.arena = arena,
                .problem = problem,
                .places = zp_cut_places(problem),
                .stages = problem->stages,
                .units = problem->units};
  b.cost = ZP_NEW_ARRAY(arena, zp_cut_cost, b.places);
  b.end_s = ZP_NEW_ARRAY(arena, double, b.stages);
  b.mean = zp_chain_new(arena, b.places);
  int64_t numbers = (b.places + 1) * (b.units + 1);
  b.least = ZP_NEW_ARRAY(arena, double, numbers);
  b.where = ZP_NEW_ARRAY(arena, int32_t, numbers);
  find_parts(&b);
  double microbatches = search(&b, task->limit_s(task->user) - problem->end_s) * (1 - ZP_BOUND_SLACK);
  zp_arena_free(arena);
  return (zp_cut_proof){.bound_s = fmax(problem->bound_s, microbatches + problem->end_s)};
}
