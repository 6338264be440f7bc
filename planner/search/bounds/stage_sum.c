/* SPDX-License-Identifier: Apache-2.0 */
/* What all stages have together, where only a limit of it is asked for: most of them need not be asked one by one. */
#include <assert.h>
#include <zplan/seconds.h>
#include "bound.h"

enum { MOST_SPANS = 64 }; /* then every stage is asked */

typedef struct stage_sum {
  int first, stages, spans;
  double at[MOST_SPANS + 1]; /* of the stages that divide the spans */
} stage_sum;

static int place_of(const stage_sum *x, int i, int spans) {
  return x->first + (int)((int64_t)(x->stages - 1) * i / spans);
}

/* A stage inside a span has no less than one of the span's ends and no more than the other one. */
static void sum_spans(const stage_sum *x, double *low, double *high) {
  *low = *high = x->at[0];
  for (int i = 1; i <= x->spans; i++) {
    int inside = place_of(x, i, x->spans) - place_of(x, i - 1, x->spans) - 1;
    if (inside < 0) continue; /* both ends are one stage */
    *low += x->at[i];
    *high += x->at[i];
    if (inside == 0) continue;
    *low += inside * zp_sooner(x->at[i - 1], x->at[i]);
    *high += inside * zp_later(x->at[i - 1], x->at[i]);
  }
}

static void halve_spans(stage_sum *x, zp_of_stage *number, void *user) {
  for (int i = x->spans; i > 0; i--) {
    x->at[2 * i] = x->at[i];
    x->at[2 * i - 1] = number(user, place_of(x, 2 * i - 1, 2 * x->spans));
  }
  x->spans *= 2;
}

/* The spans are halved until the sum is known to be on one side of what is wanted. */
bool zp_stages_reach(int first, int end, double wanted, zp_of_stage *number, void *user) {
  assert(first < end && number);
  stage_sum x = {.first = first, .stages = end - first, .spans = 1};
  x.at[0] = number(user, first);
  x.at[1] = number(user, end - 1);
  for (; x.spans <= MOST_SPANS; halve_spans(&x, number, user)) {
    double low, high;
    sum_spans(&x, &low, &high);
    if (low >= wanted) return true;
    if (high < wanted) return false;
    if (2 * x.spans > MOST_SPANS) break;
  }
  double sum = 0;
  for (int stage = first; stage < end && sum < wanted; stage++) sum += number(user, stage);
  return sum >= wanted;
}
