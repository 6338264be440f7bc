/* SPDX-License-Identifier: Apache-2.0 */
/* Inside this folder: filling the places of a row within a limit, one after the other. */
#ifndef ZPLAN_CUT_FILL_H
#define ZPLAN_CUT_FILL_H

#include <zplan/cut_row.h>

typedef struct zp_filling {
  const zp_cut_row *row;
  double limit;
  zp_fill_side side;
  /* What was learned on the way. */
  double longest; /* the largest need of the places that were filled */
  double next;    /* the least need that was above the limit: no limit below it gives another cut */
} zp_filling;

/* ---- fill.c ---- */
/* Fills in longest and next. */
bool zp_fill(zp_filling *f, int64_t *cut);
/* May the place run these? *need: what it asked for. */
bool zp_fill_takes(const zp_filling *f, int place, int64_t first, int64_t end, double *need);
/* The most units, at most `most`, that a place can take from `first` on; from the back, up to `first`. 0: none. guess:
 * near it, at least 1. */
int64_t zp_fill_reach(zp_filling *f, int place, int64_t first, int64_t most, int64_t guess);

/* ---- fill_around.c ---- */
/* `place` has no room for `unit`, the furthest one that the places filled before it leave to it: a cut around it, if
 * there is any. */
bool zp_fill_around(zp_filling *f, int place, int64_t unit, int64_t *cut);

#endif
