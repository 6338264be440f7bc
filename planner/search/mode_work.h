/* Shared by mode_table.c and mode_work.c.
 *
 * Counted are the units of one segment, the longest repeat; other units take the time of their fastest mode and no
 * memory, but for those that the first and the last stage hold anyway. */
#ifndef ZPLAN_MODE_WORK_H
#define ZPLAN_MODE_WORK_H

#include <math.h>
#include "search_internal.h"

/* Seconds by the number of counted units: of least .. most; HUGE_VAL elsewhere. */
typedef struct zp_row {
  int64_t least, most;
  double *work_s; /* [most - least + 1] */
} zp_row;

struct zp_mode_work {
  zp_arena *arena;
  int stages;
  int64_t first, end, n_units; /* first .. end - 1 are counted */
  double unit_s;               /* of a counted one in its fastest mode */
  double least_unit_s;         /* share of one in the work of its stage, at least */
  const double *prefix_s;      /* of all units in their fastest modes */
  bool alone;                  /* inner stages have counted units alone */
  zp_row *own;                 /* [stage]: x, as far as memory allows */
  const zp_variant ***variant; /* [stage][units]: what it runs then */
  double **way_s[2];           /* [stage][units]: forward, backward; of the least part */
  int64_t *most;               /* [stage]: as far as the deadline allows, too */
  int64_t *low, *high;         /* [stages + 1]: counted units before a stage */
  zp_row *before, *after;      /* [stages + 1]: of all stages before one; of one and all after it */
  zp_row *turn[2];             /* [stages + 1]: H of the first, of the last micro-batch */
  zp_row *climb[2];            /* [stages + 1]: what a stage before that one waits for: H, or `after` and messages */
  int longest;                 /* run */
  zp_row *runs;                /* [stage * stages + length - 1]: of the stages that end with this one */
  double *numbers;             /* of `runs` */
  int64_t n_numbers;
};

static inline int64_t zp_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t zp_larger(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t zp_counted(const zp_mode_work *w) { return w->end - w->first; }

static inline int64_t zp_counted_before(const zp_mode_work *w, int64_t unit) {
  return unit < w->first ? 0 : zp_smaller(unit, w->end) - w->first;
}

/* Seconds of the units first .. end - 1 that are not counted. */
static inline double zp_others_s(const zp_mode_work *w, int64_t first, int64_t end) {
  int64_t counted = zp_counted_before(w, end) - zp_counted_before(w, first);
  return w->prefix_s[end] - w->prefix_s[first] - (double)counted * w->unit_s;
}

/* The fewest units of a stage with n counted ones. */
zp_units zp_mode_least_part(const zp_mode_work *w, int stage, int64_t n);

#endif
