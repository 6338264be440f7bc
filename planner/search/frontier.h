/* SPDX-License-Identifier: Apache-2.0 */
/* What waits: nodes in the order of their bounds. */
#ifndef ZPLAN_SEARCH_FRONTIER_H
#define ZPLAN_SEARCH_FRONTIER_H

#include "ranking.h"
#include "progress.h"

/* What is decided so far (the degrees, point or family of that index), a proven bound of all plans that decide so, and
 * what is refined next. Bounds lie alongside the indices, because what waits is far apart in memory. */
typedef struct zp_search_node {
  double bound_s;
  zp_refinement next;
  int item; /* in progress->degrees while zp_refines_degrees, then in progress->points */
} zp_search_node;

/* Lanes of one queue: a node of the lanes that are open is taken, others wait until theirs is opened. */
typedef enum zp_lane {
  ZP_LANE_DEGREES,  /* open */
  ZP_LANE_POINTS,   /* open */
  ZP_LANE_UNLIKELY, /* degrees that do not look as if they fit: until the first plans are known */
  ZP_LANE_FAMILIES, /* until the first plans are known */
  ZP_LANE_IDLE,     /* the node of all degrees that leave devices idle: until no other nodes are left */
  ZP_LANES
} zp_lane;
typedef ZP_VEC(zp_search_node) zp_search_nodes;

typedef struct zp_frontier {
  zp_search_progress *progress;
  zp_search_nodes lane[ZP_LANES]; /* heaps */
  bool opens;                     /* the first plans are known, and so is what others must leave */
  bool takes_least;               /* the next point is the one with the least bound of all nodes */
  bool one_by_one;                /* all points of degrees go before the next are looked into */
  bool none_likely;               /* all degrees that wait are known not to look as if they fit */
  int known;                      /* plans when degrees were looked into last */
} zp_frontier;

/* All degrees of the run wait. */
zp_frontier zp_frontier_new(zp_search_progress *progress);
/* The next node, which does not wait any more. False: none is left. */
bool zp_frontier_next(zp_frontier *f, const zp_ranking *r, zp_search_node *node);
/* The degrees or the point wait, with the bound that they have now. */
void zp_frontier_add_degrees(zp_frontier *f, int degrees);
void zp_frontier_add_point(zp_frontier *f, int point);

#endif
