/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of actions that wait for each other, and means of them, over the cuts of a point: seconds of a chain are a sum
 * over the edges of a cut (cut_space.c), so the cut that it allows most is a shortest path. */
#include <math.h>
#include "cut_space.h"

zp_chain zp_chain_new(zp_arena *arena, int places) {
  zp_chain chain = {.at = ZP_NEW_ARRAY(arena, zp_cut_weights, places)};
  chain.reduce = ZP_NEW_ARRAY(arena, double, places);
  chain.update = ZP_NEW_ARRAY(arena, double, places);
  return chain;
}

void zp_chain_clear(zp_chain *chain, int places) {
  memset(chain->at, 0, sizeof *chain->at * (size_t)places);
  memset(chain->reduce, 0, sizeof *chain->reduce * (size_t)places);
  memset(chain->update, 0, sizeof *chain->update * (size_t)places);
  chain->constant_s = 0;
}

void zp_chain_add(zp_chain *sum, const zp_chain *chain, double share, int places) {
  for (int k = 0; k < places; k++) {
    sum->at[k].forwards += share * chain->at[k].forwards;
    sum->at[k].backwards += share * chain->at[k].backwards;
    sum->at[k].weights += share * chain->at[k].weights;
    sum->at[k].messages += share * chain->at[k].messages;
    sum->reduce[k] += share * chain->reduce[k];
    sum->update[k] += share * chain->update[k];
  }
  sum->constant_s += share * chain->constant_s;
}

static inline __attribute__((always_inline)) double seconds_of(const zp_chain *chain, int place,
                                                               const zp_cut_cost *cost) {
  return zp_chain_of_edge(&chain->at[place], chain->reduce[place], chain->update[place], cost);
}

int64_t zp_chain_rest(const zp_cut_space *x, const zp_chain *chain, double *rest_s) {
  int64_t seen = 0;
  rest_s[x->ends - 1] = 0;
  for (int k = x->places; k-- > 0;)
    for (int64_t at = x->base[k]; at < x->base[k + 1]; at++) {
      double least = HUGE_VAL, *after = &rest_s[zp_cut_end_of(x, k, at, x->begin[at])];
      for (int64_t e = x->begin[at]; e < x->stop[at]; e++, after++)
        if (x->alive[e]) least = fmin(least, seconds_of(chain, k, &x->edges[e]) + *after);
      rest_s[at] = least;
      seen += x->stop[at] - x->begin[at];
    }
  return seen;
}

/* Drops the edges of one end; done_s: seconds of the places before it. */
static void drop_edges(zp_cut_space *x, const zp_chain *chain, int place, int64_t at, const double *rest_s,
                       double *done_s, double target_s) {
  int64_t begin = x->stop[at], stop = x->begin[at], to = zp_cut_end_of(x, place, at, x->begin[at]);
  for (int64_t e = x->begin[at]; e < x->stop[at]; e++, to++) {
    if (!x->alive[e]) continue;
    double here = done_s[at] + seconds_of(chain, place, &x->edges[e]);
    x->alive[e] = zp_chain_meets(fmax(here + rest_s[to], x->edges[e].step_s), target_s);
    if (!x->alive[e]) continue;
    done_s[to] = fmin(done_s[to], here);
    if (e < begin) begin = e;
    stop = e + 1;
  }
  x->begin[at] = begin < stop ? begin : stop;
  x->stop[at] = stop;
}

void zp_chain_drop(zp_cut_space *x, const zp_chain *chain, const double *rest_s, double *done_s, double target_s) {
  for (int64_t at = 0; at < x->ends; at++) done_s[at] = HUGE_VAL;
  done_s[0] = chain->constant_s;
  for (int k = 0; k < x->places; k++)
    for (int64_t at = x->base[k]; at < x->base[k + 1]; at++)
      if (x->begin[at] < x->stop[at]) drop_edges(x, chain, k, at, rest_s, done_s, target_s);
}

void zp_chain_cut(const zp_cut_space *x, const zp_chain *chain, const double *rest_s, int64_t *cut) {
  cut[0] = 0;
  for (int k = 0; k < x->places; k++) {
    int64_t at = x->base[k] + cut[k] - x->low[k];
    double least = HUGE_VAL;
    for (int64_t e = x->begin[at]; e < x->stop[at]; e++) {
      if (!x->alive[e]) continue;
      double seconds = seconds_of(chain, k, &x->edges[e]) + rest_s[zp_cut_end_of(x, k, at, e)];
      if (seconds >= least) continue;
      least = seconds;
      cut[k + 1] = x->nearest[at] + e - x->first_edge[at];
    }
  }
}

double zp_chain_of_cut(const zp_cut_space *x, const zp_chain *chain, const int64_t *cut) {
  double seconds = chain->constant_s;
  for (int k = 0; k < x->places; k++) seconds += seconds_of(chain, k, &x->edges[zp_cut_edge(x, k, cut[k], cut[k + 1])]);
  return seconds;
}
