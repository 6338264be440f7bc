/* SPDX-License-Identifier: Apache-2.0 */
/* The best plans, one per triple of degrees, ascending; of estimates only step_s is known. */
#ifndef ZPLAN_SEARCH_RANKING_H
#define ZPLAN_SEARCH_RANKING_H

#include "cache.h"

typedef struct zp_ranking {
  zp_candidate *best;
  int len, cap;
  double range;  /* plans slower than the best one by this factor are not looked for */
  bool exact;    /* alternatives are the best of their degrees among the cuts of price.c, not only good ones */
  int behind;    /* points that were considered and cannot be the best plan; few of them are, unless `exact` */
  double closer; /* 1 + gap: nor are plans that are not faster by this factor */
} zp_ranking;
/* Fixed order of points that are equally fast. */
int zp_choice_compare(const zp_choice *a, const zp_choice *b);
void zp_rank(zp_search_cache *s, zp_ranking *r, const zp_candidate *candidate);
/* Plans of these degrees that are slower cannot enter the ranking. */
double zp_cutoff(const zp_ranking *r, const zp_choice *choice);
/* The most that zp_cutoff is for any degrees, now and later. */
double zp_most_cutoff(const zp_ranking *r);

#endif
