/* How soon the micro-batches of a point with several chunks a stage can be done, however it is cut: a bound by chains
 * of actions that wait for each other (order_graph.c), before any memory is looked at.
 *
 * Seconds of a chain are a sum over the places of the model: so often each place's forward, backward and so on. Each is
 * a difference of sums up to the ends of a chunk, so every end counts by itself, and the cut that a chain allows most
 * is found end by end: O(places * units). So does the mean of several chains, and what a chain says of every cut, their
 * mean says, too. Chains are those that simulated cuts wait for, the best mean of them for the cuts seen is a matrix
 * game (matrix_game.c), and the cut that this mean allows most is simulated next. Loose where memory forces stages to
 * recompute, and where what is best for the chains together is no cut. */
#include <math.h>
#include <zplan/hash.h>
#include "schedule.h"
#include "cut_branch.h"

enum { MOST_ROUNDS = 24 };
/* Shares move so far to the best ones for the cuts seen, which jump while these are few. */
static const double TOWARDS = 0.5;

typedef struct bounding {
  zp_arena *arena;
  const zp_variant *v;
  int places, stages;
  int64_t units;
  bool split;
  double message_s;
  int *at; /* [place]: its times in run.time */
  zp_pipeline_run run;
  zp_stage_time *time; /* run.time */
  zp_order_graph *graph;
  zp_chain row[MOST_ROUNDS], mean;
  int64_t *cut[MOST_ROUNDS];
  int rounds;
  double *least;  /* [places + 1][units + 1] */
  int32_t *where; /* the same: the end before */
} bounding;

static zp_edge_cost cost_of(const bounding *b, int64_t first, int64_t end) {
  const zp_variant *v = b->v;
  double forward = v->forward_s[end] - v->forward_s[first], work = v->prefix_s[end] - v->prefix_s[first],
         input = b->split ? v->input_s[end] - v->input_s[first] : work;
  return (zp_edge_cost){.forward_s = forward,
                        .backward_s = zp_later(input - forward, 0),
                        .weights_s = zp_later(work - input, 0),
                        .message_s = b->message_s};
}

static double chain_of_cut(const bounding *b, const zp_chain *chain, const int64_t *cut) {
  double seconds = 0;
  for (int k = 0; k < b->places; k++) {
    zp_edge_cost cost = cost_of(b, cut[k], cut[k + 1]);
    seconds += zp_chain_of_edge(&chain->at[k], 0, 0, &cost);
  }
  return seconds;
}

/* Seconds of all units before an end, as often as the chain passes the place. */
static double weighed(const bounding *b, const zp_place_weights *w, int64_t end) {
  const zp_variant *v = b->v;
  double forward = v->forward_s[end], work = v->prefix_s[end], input = b->split ? v->input_s[end] : work;
  return w->forwards * forward + w->backwards * (input - forward) + w->weights * (work - input);
}

/* Of all cuts the one that the chain allows most, into cut; its seconds. */
static double find_least(const bounding *b, const zp_chain *chain, int64_t *cut) {
  int64_t wide = b->units + 1;
  double messages = 0;
  for (int k = 0; k < b->places; k++) messages += chain->at[k].messages * b->message_s;
  b->least[0] = 0;
  for (int k = 1; k <= b->places; k++) {
    const double *before = &b->least[(k - 1) * wide];
    double best = HUGE_VAL;
    int32_t from = 0;
    int64_t last = k == b->places ? b->units : b->units - (b->places - k);
    for (int64_t end = k; end <= last; end++) {
      if ((k > 1 || end == 1) && before[end - 1] < best) best = before[end - 1], from = (int32_t)(end - 1);
      double here = weighed(b, &chain->at[k - 1], end);
      if (k < b->places) here -= weighed(b, &chain->at[k], end);
      b->least[k * wide + end] = best + here;
      b->where[k * wide + end] = from;
    }
  }
  cut[b->places] = b->units;
  for (int k = b->places; k > 0; k--) cut[k - 1] = b->where[k * wide + cut[k]];
  return b->least[b->places * wide + b->units] + messages;
}

/* Adds the chain that the cut waits for, and remembers the cut. */
static void learn(bounding *b, const int64_t *cut) {
  int longest = 0;
  for (int k = 0; k < b->places; k++) {
    zp_edge_cost cost = cost_of(b, cut[k], cut[k + 1]);
    b->time[b->at[k]] = (zp_stage_time){
        .forward_s = cost.forward_s, .backward_s = cost.backward_s + cost.weights_s, .weights_s = cost.weights_s};
  }
  zp_order_graph_run(b->graph);
  for (int s = 1; s < b->stages; s++)
    if (b->run.end_s[s] > b->run.end_s[longest]) longest = s;
  b->row[b->rounds] = zp_chain_new(b->arena, b->places);
  zp_order_graph_chain(b->graph, longest, b->row[b->rounds].at);
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
  double value[MOST_ROUNDS];
  int n = b->rounds - 1;
  for (int r = 0; r < n; r++) value[r] = chain_of_cut(b, &b->row[r], b->cut[n]) / scale_s;
  if (n > 0) zp_matrix_game_add_column(game, value);
  for (int c = 0; c <= n; c++) value[c] = chain_of_cut(b, &b->row[n], b->cut[c]) / scale_s;
  zp_matrix_game_add_row(game, value);
}

static double search(bounding *b, double enough_s) {
  double most = 0, best[MOST_ROUNDS] = {1}, share[MOST_ROUNDS] = {1}, towards = TOWARDS;
  int64_t *cut = ZP_NEW_ARRAY(b->arena, int64_t, b->places + 1);
  for (int k = 0; k <= b->places; k++) cut[k] = b->units * k / b->places;
  learn(b, cut);
  double scale = chain_of_cut(b, &b->row[0], cut);
  zp_matrix_game *game = zp_matrix_game_new(b->arena, MOST_ROUNDS, MOST_ROUNDS, 1);
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
    if (b->rounds == MOST_ROUNDS || (known && towards >= 1)) break;
    if (known) {
      towards = fmin(1, 2 * towards);
      continue;
    }
    learn(b, cut);
    play(b, game, scale);
  }
  return most;
}

double zp_bound_by_chunk_chains(zp_arena *arena, const zp_searcher *s, const zp_point *point, double enough_s) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  bounding b = {.arena = arena,
                .v = v,
                .places = zp_model_chunks(c),
                .stages = c->pipeline,
                .units = zp_point_units(s, point),
                .split = zp_schedule_splits(c->schedule),
                .message_s = zp_least_message(s, point)};
  int chunks = zp_chunks(c);
  int64_t m = zp_microbatches(s->spec, c), *actions = ZP_NEW_ARRAY(arena, int64_t, b.stages);
  double *message_s = ZP_NEW_ARRAY(arena, double, b.places);
  b.at = ZP_NEW_ARRAY(arena, int, b.places);
  b.time = ZP_NEW_ARRAY(arena, zp_stage_time, b.places);
  for (int k = 0; k < b.places; k++) {
    int chunk, stage = zp_chunk_stage(c, k, &chunk);
    b.at[k] = stage * chunks + chunk;
    message_s[k] = b.message_s;
  }
  b.run = (zp_pipeline_run){.stages = b.stages,
                            .chunks = chunks,
                            .choice = c,
                            .microbatches = m,
                            .buffers = zp_message_buffers(c, m),
                            .order = zp_orders(arena, c, m, actions),
                            .actions = actions,
                            .time = b.time,
                            .message_s = message_s,
                            .end_s = ZP_NEW_ARRAY(arena, double, b.stages)};
  b.graph = zp_order_graph_new(arena, &b.run);
  b.mean = zp_chain_new(arena, b.places);
  int64_t numbers = (b.places + 1) * (b.units + 1);
  b.least = ZP_NEW_ARRAY(arena, double, numbers);
  b.where = ZP_NEW_ARRAY(arena, int32_t, numbers);
  return search(&b, enough_s) * (1 - 1e-9);
}
