/* What is looked at next, in the order of proven bounds; what a look finds out. */
#ifndef ZPLAN_SEARCH_FRONTIER_H
#define ZPLAN_SEARCH_FRONTIER_H

#include "ranking.h"
#include "run.h"

/* ---- frontier.c ---- */
typedef struct zp_wait { /* of degrees or a point, whose bound stays while it waits */
  double bound_s;
  int item; /* index */
} zp_wait;
typedef struct zp_heap {
  ZP_VEC(zp_wait) all;
  bool of_points; /* else of degrees */
} zp_heap;
/* What is still to be looked at: degrees, and the points of those that were looked into, in the order of their bounds.
 */
typedef struct zp_frontier {
  zp_search_run *run;
  zp_heap degrees, points;
  zp_ints families; /* of points: once the first plans are known */
  zp_ints later;    /* degrees that do not look as if they fit: once the first plans are known */
  zp_ints idle;     /* degrees that leave devices idle: once no other degrees are left */
  bool one_by_one;  /* all points of degrees go before the next are looked into */
  bool opens;       /* families do not wait any more */
  int known;        /* plans when degrees were looked into last */
} zp_frontier;
zp_frontier zp_frontier_new(zp_search_run *run);
/* Index of the next point to be priced; -1: none is left. */
int zp_frontier_next(zp_frontier *f, const zp_ranking *r);
/* A family is opened: its points take its place. */
void zp_frontier_open(zp_frontier *f, int family, const zp_ranking *r);
/* The point waits for its next turn, with the bound that it has now. */
void zp_frontier_return(zp_frontier *f, int point);

/* ---- price.c ---- */
/* All that its price needs; without order tables where that takes none. */
const zp_program *zp_search_program(zp_arena *arena, zp_search_cache *s, const zp_choice *choice);
/* Cuts and simulates the points in the order of their bounds while they can still enter the ranking. */
void zp_price_points(zp_search_run *run, zp_ranking *r);

#endif
