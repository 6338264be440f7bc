/* SPDX-License-Identifier: Apache-2.0 */
/* Which labels a model's logits get right, and of how many samples all: the exact match of losses that have one label a
 * sample, as the first and the last position of a span. */
#ifndef ZPLAN_RT_JUDGE_H
#define ZPLAN_RT_JUDGE_H

#include "state.h"

/* What the logits of a row say of its label. right: the largest logit is the label's, of equal ones that of the lower
 * class. Without a label: zeros. */
typedef struct zpr_verdict {
  double loss;
  bool right;
} zpr_verdict;

/* [seen->rows], to be freed. seen: with labels. */
zpr_verdict *zpr_judge(zpr *c, const zpr_looked *seen);

/* What losses with one label a sample say of a sample. */
typedef struct zpr_match {
  bool labelled, wrong;
} zpr_match;

typedef struct zpr_matches {
  int64_t samples, seen[ZPR_MOST_LOSSES]; /* how many there are; how many every loss has seen, in one order */
  zpr_match *of;                          /* [samples], owned */
} zpr_matches;

/* Losses that have one label a sample, a bit each. */
unsigned zpr_losses_of_samples(const zpr_program *p);
/* Are there two of them or more? Of one the accuracy says it. */
bool zpr_has_matches(const zpr_program *p);
void zpr_matches_open(zpr *c, zpr_matches *m, int64_t samples);
/* The next rows of a loss; those of other losses, and samples after the last one, do not count. */
void zpr_matches_add(zpr_matches *m, const zpr_program *p, const zpr_looked *seen, const zpr_verdict *verdicts);
/* Samples that have a label, and those of them all of whose labels are right. */
void zpr_matches_count(const zpr_matches *m, int64_t *labelled, int64_t *exact);
void zpr_matches_close(zpr_matches *m);

#endif
