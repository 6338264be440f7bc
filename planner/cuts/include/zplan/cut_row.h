/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts of a row of units whose every place stays within one limit: is there any, what is the least limit, which cuts
 * are there at all. Plain numbers, like cuts.h: what the limit is held against (seconds of a place, the bound of a
 * place, bytes, room or none) is the caller's.
 *
 * Shapes: a cut is [places + 1], from 0 to the number of units, and every place has at least one unit. Ownership:
 * everything that is passed stays the caller's. Errors: there are none. */
#ifndef ZPLAN_CUT_ROW_H
#define ZPLAN_CUT_ROW_H

#include <stdbool.h>
#include <stdint.h>
#include <zplan/arena.h>

/* The units and what places need to run them. */
typedef struct zp_cut_row {
  int places;
  int64_t units;
  zp_arena *scratch; /* given back before a function returns */
  void *user;        /* of the callbacks */
  /* The least limit within which the place runs units first .. end - 1; HUGE_VAL: there is none. Fewer of them on the
   * same place never need more. It may be less exact: at most `limit`, any number from the need to `limit`; above
   * `limit`, any number above `limit` up to the need. */
  double (*need)(void *user, int place, int64_t first, int64_t end, double limit);
  /* The first unit that needs the same as this one on every place but those at the ends. NULL: none is known to. */
  int64_t (*alike)(void *user, int64_t unit);
  /* Has a place no limit for units wherever another one has none? Asked of places between the first and the last one.
   * NULL: that is not known. */
  bool (*needs_as_much)(void *user, int place, int other);
} zp_cut_row;

typedef enum zp_fill_side { ZP_FILL_FRONT, ZP_FILL_BACK } zp_fill_side;

/* A cut within the limit, if there is any: every place from that side on takes as many units as it can. */
bool zp_row_fill(const zp_cut_row *row, double limit, zp_fill_side side, int64_t *cut);
/* Where the least limit lies. possible: HUGE_VAL where nothing is known, if needs are exact. */
typedef struct zp_cut_limits {
  double none_below, possible;
} zp_cut_limits;
/* Narrows the limits until they differ by the share `step`, at least one of them; cut: within the possible one. Cuts
 * within the first none_below are not distinguished. False: there is no cut within the possible limit. */
bool zp_row_least(const zp_cut_row *row, zp_cut_limits *limits, double step, int64_t *cut);

/* ---- sums of seconds alone ---- */
typedef struct zp_cut_sums {
  int places;
  int64_t units;
  const double *before_s; /* [units + 1]: seconds of the units before each, ascending */
} zp_cut_sums;
/* As zp_row_fill, when a place needs the seconds of its units and has room for all. */
bool zp_sums_fill(const zp_cut_sums *sums, double limit_s, zp_fill_side side, int64_t *cut);
/* The shortest possible longest place, exactly; HUGE_VAL: there are more places than units. cut: [places + 1], room. */
double zp_sums_least(const zp_cut_sums *sums, double longest_unit_s, int64_t *cut);

/* ---- one by one ---- */
/* Are there at most so many ways to cut units into places, whatever fits? */
bool zp_few_ways(int64_t units, int64_t places, double most);

typedef struct zp_cut_walk {
  int places;
  int64_t units, steps; /* steps: ends of places that are tried at most */
  void *user;
  /* May a cut begin with these places 0 .. place? More units on the last of them never fit better. */
  bool (*may_begin)(void *user, int place, const int64_t *cut);
  bool (*on_cut)(void *user, int64_t *cut); /* false: no more cuts are wanted */
} zp_cut_walk;
typedef enum zp_walk_end { ZP_WALK_DONE, ZP_WALK_STOPPED, ZP_WALK_SPENT } zp_walk_end;
/* Every cut, those with the fewest units in the first places first; stopped: by on_cut, spent: by steps. */
zp_walk_end zp_walk_cuts(const zp_cut_walk *walk, int64_t *cut);

#endif
