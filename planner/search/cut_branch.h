/* Shared by those who search all cuts of one point: what stages and chunks cost, labels, chains of actions, and the
 * game between them that bounds a step. */
#ifndef ZPLAN_CUT_BRANCH_H
#define ZPLAN_CUT_BRANCH_H

#include "search_internal.h"

/* ---- stage_cost.c: one chunk a stage ---- */
typedef struct zp_stage_cost {
  zp_stage_time time; /* of one micro-batch */
  double reduce_s;    /* after the last backward, ties left out */
  double update_s;    /* on the device, and the gather: grows with the units */
  double offload_s;   /* how much longer the update on the host takes */
} zp_stage_cost;
typedef struct zp_stage_costs zp_stage_costs;
/* Of one point; arena. */
zp_stage_costs *zp_stage_costs_new(zp_arena *arena, const zp_searcher *s, const zp_point *point);
/* Of a stage that runs these procedures for units first .. end - 1. */
zp_stage_cost zp_stage_cost_of(zp_stage_costs *costs, const zp_lowered *lowered, int stage, int64_t first, int64_t end);
/* The first unit of the first range that has the same procedures in the same order. */
int64_t zp_stage_canonical(const zp_lowered *lowered, int64_t first, int64_t end);
/* Of a stage with all of its chunks, for this cut: seconds of each chunk, and what follows, ties left out. */
zp_step_end zp_chunks_cost(zp_arena *arena, const zp_searcher *s, const zp_choice *choice, const zp_lowered *lowered,
                           int stage, zp_stage_time *time);
/* Seconds that ties take on the first and on the last stage, at least. Scratch memory from the arena. */
double zp_least_ties(zp_arena *arena, const zp_searcher *s, const zp_point *point);

/* ---- branch_labels.c, chain_branch.c: branch and bound over cuts ---- */
typedef struct zp_branching {
  double (*limit_s)(void *user);              /* plans that are not faster are not looked for */
  double (*on_cut)(void *user, int64_t *cut); /* exact step time; ranks the plan */
  void *user;
} zp_branching;
/* Looks for better cuts of a point of 1F1B. Returns the new lower bound of its step time. deep: other points need
 * little of the work that is left. */
double zp_label_branch(zp_searcher *s, const zp_point *point, const zp_branching *task, bool deep);
/* Would its rules drop the cut while looking for plans below target_s? Then how many of its first stages they need to
 * know; -1: it is looked at. What the tests prove the rules with. */
int zp_label_branch_refusal(zp_searcher *s, const zp_point *point, const int64_t *cut, double target_s);
/* The same search for points of every schedule that has order tables. */
double zp_chain_branch(zp_searcher *s, const zp_point *point, const zp_branching *task, bool deep);

/* ---- cut_space.c: all cuts of a point, and what they cost at least ---- */
/* Of the units of a chunk: of its actions, of a message to the next chunk, and on a stage's last chunk of its end. */
typedef struct zp_edge_cost {
  double forward_s, backward_s, weights_s; /* backward: of inputs alone where it is split */
  double message_s, reduce_s, update_s;
} zp_edge_cost;
/* Chunk k of the model may end at low[k + 1] .. high[k + 1]. Ends are numbered, those of chunk k from base[k + 1] on;
 * from end number n chunks may have the ends from nearest[n] on, one for every edge first_edge[n] .. first_edge[n + 1]
 * - 1.
 */
typedef struct zp_cut_space {
  int places; /* chunks of the model */
  int64_t units, ends, n_edges;
  int64_t *low, *high, *base, *nearest, *first_edge;
  zp_edge_cost *edges;
  bool *alive;           /* [edge]: not dropped */
  int64_t *begin, *stop; /* [end]: of its edges, those that are not dropped lie between */
  bool *kept_alive;      /* the same as kept last */
  int64_t *kept_begin, *kept_stop;
  bool possible; /* else there are no edges */
} zp_cut_space;
/* Arena. Without the cuts of which one chunk alone misses the target. NULL: there are too many edges. costs: of points
 * with one chunk a stage. */
zp_cut_space *zp_cut_space_new(zp_arena *arena, const zp_searcher *s, const zp_point *point, zp_stage_costs *costs,
                               double target_s);
zp_edge_cost zp_edge_cost_of_time(const zp_stage_time *time, bool split);
/* Of a message behind the unit before `end`. */
double zp_edge_message(const zp_searcher *s, const zp_point *point, const zp_group_link *link, int64_t end);
/* Of these ends of a chunk; -1: there is none. */
int64_t zp_cut_edge(const zp_cut_space *x, int place, int64_t first, int64_t end);
/* Number of the end that an edge leads to from end number `at`, where chunk `place` begins. */
int64_t zp_cut_end_of(const zp_cut_space *x, int place, int64_t at, int64_t edge);
/* Of all cuts the one with the least sum of the squares of its chunks' seconds. False: there is none. Scratch memory
 * from the arena. */
bool zp_cut_balanced(zp_arena *arena, const zp_cut_space *x, int64_t *cut);
/* Keeps what is dropped by now; returns to it. */
void zp_cut_keep(zp_cut_space *x);
void zp_cut_return(zp_cut_space *x);

/* ---- chain.c ---- */
/* Actions that wait for each other, and the end of a step: shares of a place's stage in its last reduction and update.
 */
typedef struct zp_chain {
  zp_place_weights *at;    /* [places] */
  double *reduce, *update; /* [places] */
  double constant_s;
} zp_chain;
zp_chain zp_chain_new(zp_arena *arena, int places);
void zp_chain_clear(zp_chain *chain, int places);
void zp_chain_add(zp_chain *sum, const zp_chain *chain, double share, int places);
double zp_chain_of_edge(const zp_place_weights *w, double reduce, double update, const zp_edge_cost *cost);
/* Of a cut whose edges are all there. */
double zp_chain_of_cut(const zp_cut_space *x, const zp_chain *chain, const int64_t *cut);
/* Least seconds behind every end, [ends]. Returns how many edges it took. */
int64_t zp_chain_rest(const zp_cut_space *x, const zp_chain *chain, double *rest_s);
/* Drops the edges that no cut below the target has, by the chain. done_s: room, [ends]. */
void zp_chain_drop(zp_cut_space *x, const zp_chain *chain, const double *rest_s, double *done_s, double target_s);
/* The cut that the chain allows most. */
void zp_chain_cut(const zp_cut_space *x, const zp_chain *chain, const double *rest_s, int64_t *cut);
/* May a cut of which a chain takes so long be below the target? */
bool zp_chain_meets(double seconds, double target_s);

/* ---- chunk_chains.c ---- */
/* Several chunks a stage: no cut has its micro-batches done sooner. Stops where the bound is enough. Memory of the
 * arena is not given back. */
double zp_bound_by_chunk_chains(zp_arena *arena, const zp_searcher *s, const zp_point *point, double enough_s);

/* ---- matrix_game.c ---- */
typedef struct zp_matrix_game zp_matrix_game;
/* Arena. Values are above 0, best near 1. */
zp_matrix_game *zp_matrix_game_new(zp_arena *arena, int most_rows, int most_columns, int columns);
/* value: of the columns there are; of the rows there are. */
void zp_matrix_game_add_row(zp_matrix_game *game, const double *value);
void zp_matrix_game_add_column(zp_matrix_game *game, const double *value);
/* Shares of rows for which the smallest mean of a column is as large as possible, or close to it. Returns how much work
 * that was since the last call. */
int64_t zp_matrix_game_shares(zp_matrix_game *game, double *share);

#endif
