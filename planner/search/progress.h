/* SPDX-License-Identifier: Apache-2.0 */
/* How far a search is: what waits, the bounds of what was left out, the counts of the certificate. */
#ifndef ZPLAN_SEARCH_PROGRESS_H
#define ZPLAN_SEARCH_PROGRESS_H

#include <zplan/search_numbers.h>
#include "cache.h"
#include "robust.h"

/* What branch and bound over cuts took, and may still take. */
typedef struct zp_effort {
  zp_cut_effort cuts;
  int64_t chunk_work_left; /* points of several chunks a stage with many cuts: in place of cuts.work_left */
  /* Then the point that has the least bound of all: 1F1B, which has labels; other schedules. */
  int64_t label_work_left, least_work_left;
  int64_t given; /* all four at the start */
} zp_effort;

/* Decisions of the only point that was left open, which had all of the work then. */
typedef struct zp_proven {
  bool any;
  double decisions[ZP_DECISIONS];
} zp_proven;

typedef struct zp_search_progress {
  const zp_search_input *in;
  zp_search_cache *s;
  zp_arena_budget budget;    /* of the cache's arenas */
  zp_degrees_list degrees;   /* subspaces: none is looked into that cannot beat the plans that are known by then */
  zp_degrees_list too_small; /* those that do not fit, by their memory floor */
  ZP_VEC(zp_point) points;   /* nodes after the degrees that may fit into memory */
  zp_ints fresh, done;       /* of them: found since the frontier looked; considered, their places are taken again */
  bool opens_families;       /* of a choice as soon as they are found: none would wait in vain */
  bool keeps_all;            /* and those that do not: nothing fits, and the nearest miss is looked for */
  double cutoff_s;           /* points of the current subspace that are not faster are left out */
  double expanding_s;        /* bound of the degrees that are being looked into */
  double left_out_s;         /* the least bound of what was left out so */
  double unsearched_s;       /* of all cuts of points whose cuts are stated */
  zp_certificate certificate;
  zp_effort effort;
  zp_proven proven;
  zp_miss miss;
  double miss_ratio; /* need / have of the nearest miss */
} zp_search_progress;

/* Fills in what follows from the input, with arenas of its own; the rest of the run is zero, and it stays where it is.
 * The specification is borrowed; options may be NULL. */
void zp_search_start(zp_search_progress *progress, const zp_spec *spec, const zp_machine *machine,
                     const zp_search_options *options);
/* Gives the memory back; started or not. */
void zp_search_end(zp_search_progress *progress);

/* ---- progress.c ---- */
/* Counted as one candidate. */
void zp_search_reject(zp_search_progress *progress, zp_rejection why);
/* Nothing with this bound beats the plans that are known: counted. */
bool zp_is_beaten(zp_search_progress *progress, double bound_s);
/* Plans with this bound are not looked for any more: counted. */
void zp_leave_out(zp_search_progress *progress, double bound_s);
/* The point waits in progress->points and is one of progress->fresh. False: the list cannot grow, and it is left
 * out. */
bool zp_keep_point(zp_search_progress *progress, const zp_point *point);
/* Nothing waits any more. */
void zp_forget_points(zp_search_progress *progress);

#endif
