/* SPDX-License-Identifier: Apache-2.0 */
/* Inside this folder: the graph of all cuts of a problem, chains of actions over it, and the game between chains and
 * cuts that bounds a step. */
#ifndef ZPLAN_CUT_SPACE_H
#define ZPLAN_CUT_SPACE_H

#include <string.h>
#include <zplan/cuts.h>
#include <zplan/search_numbers.h>
#include <zplan/seconds.h>
#include <zplan/vec.h>

/* ---- cut_space.c: all cuts of a problem, and what they cost at least ---- */
/* Chunk k of the model may end at low[k + 1] .. high[k + 1]. Ends are numbered, those of chunk k from base[k + 1] on;
 * from end number n chunks may have the ends from nearest[n] on, one for every edge from first_edge[n] up to, but
 * without, first_edge[n + 1]. */
typedef struct zp_cut_space {
  int places; /* chunks of the model */
  int64_t units, ends, n_edges;
  int64_t *low, *high, *base, *nearest, *first_edge;
  zp_cut_cost *edges;
  bool *alive;           /* [edge]: not dropped */
  int64_t *begin, *stop; /* [end]: of its edges, those that are not dropped lie between */
  bool *kept_alive;      /* the same as kept last */
  int64_t *kept_begin, *kept_stop;
  bool possible; /* else there are no edges */
} zp_cut_space;
/* Arena. Without the cuts of which one chunk alone misses the target. NULL: there are too many edges. */
zp_cut_space *zp_cut_space_new(zp_arena *arena, const zp_cut_problem *problem, double target_s);
/* The edge of the chunk at `place` with these ends; -1: there is none. */
int64_t zp_cut_edge(const zp_cut_space *x, int place, int64_t first, int64_t end);
/* Number of the end that an edge leads to from end number `at`, where chunk `place` begins. */
int64_t zp_cut_end_of(const zp_cut_space *x, int place, int64_t at, int64_t edge);
/* The cut with the least sum of the squares of its chunks' seconds. False: there is none. Scratch memory from the
 * arena. */
bool zp_cut_balanced(zp_arena *arena, const zp_cut_space *x, int64_t *cut);
/* Keeps what is dropped by now; returns to it. */
void zp_cut_keep(zp_cut_space *x);
void zp_cut_return(zp_cut_space *x);

/* ---- chain.c ---- */
/* Actions that wait for each other, and the end of a step: shares of a place's stage in its last reduction and
 * update. */
typedef struct zp_chain {
  zp_cut_weights *at;      /* [places] */
  double *reduce, *update; /* [places] */
  double constant_s;
} zp_chain;
zp_chain zp_chain_new(zp_arena *arena, int places);
void zp_chain_clear(zp_chain *chain, int places);
void zp_chain_add(zp_chain *sum, const zp_chain *chain, double share, int places);
static inline double zp_chain_of_edge(const zp_cut_weights *w, double reduce, double update, const zp_cut_cost *cost) {
  return w->forwards * cost->forward_s + w->backwards * cost->backward_s + w->weights * cost->weights_s +
         w->messages * cost->message_s + reduce * cost->reduce_s + update * cost->update_s;
}
/* Seconds of the chain in a cut whose edges are all there. */
double zp_chain_of_cut(const zp_cut_space *x, const zp_chain *chain, const int64_t *cut);
/* Least seconds after every end, [ends]. Returns how many edges it took. */
int64_t zp_chain_rest(const zp_cut_space *x, const zp_chain *chain, double *rest_s);
/* Drops the edges that no cut below the target has, by the chain. done_s: room, [ends]. */
void zp_chain_drop(zp_cut_space *x, const zp_chain *chain, const double *rest_s, double *done_s, double target_s);
/* The cut that the chain allows most. */
void zp_chain_cut(const zp_cut_space *x, const zp_chain *chain, const double *rest_s, int64_t *cut);
/* May a cut of which a chain takes so long be below the target? */
static inline bool zp_chain_meets(double seconds, double target_s) { return seconds * (1 - ZP_PATH_SLACK) < target_s; }

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
