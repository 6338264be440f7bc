/* SPDX-License-Identifier: Apache-2.0 */
/* Inside this folder: labels from within, and what label_loops.c has under two names (zplan/lanes.h). */
#ifndef ZPLAN_CUT_LABEL_LOOPS_H
#define ZPLAN_CUT_LABEL_LOOPS_H

#include "labels.h"

/* Windows of l stages up to b that are gone round: rounds * V_l - less; or whole rounds, and then one of `left` stages.
 * l = 1 .. N_b stand at l - 1. */
typedef struct rounds_of {
  double *rounds, *less, *whole;
  int32_t *left; /* less one */
} rounds_of;

struct zp_labels {
  zp_pipe pipe;
  double messages_s;   /* up and back */
  rounds_of *rounds;   /* [stages]: of b */
  rounds_of *diagonal; /* [stages]: of windows from stage s up to b = s, s + 1, ...; whole, left: NULL */
  double *between;     /* [stages]: N_b */
  double *share;       /* [stages + 1]: 1 / l */
  int64_t work;        /* numbers that were considered */
};

/* The functions of labels.h, one by one. */
#define ZP_LABEL_LOOPS(laned)                                                                                          \
  void zp_prefix_extend##laned(zp_labels *k, const double *prefix, int stage, const zp_range_cost *cost,               \
                               double *longer);                                                                        \
  void zp_suffix_extend##laned(zp_labels *k, const double *suffix, int stage, const zp_range_cost *cost,               \
                               double *longer);                                                                        \
  bool zp_labels_join##laned(zp_labels *k, zp_prefix_view *view, const double *suffix, int stage, double target_s);    \
  int64_t zp_label_above##laned(const double *a, const double *b, int64_t length);                                     \
  void zp_label_merge##laned(double *a, const double *b, int64_t length);
ZP_LABEL_LOOPS(_narrow)
ZP_LABEL_LOOPS(_wide)
#undef ZP_LABEL_LOOPS

#endif
