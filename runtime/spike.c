/* SPDX-License-Identifier: Apache-2.0 */
/* Is a step's loss far above the recent ones? A spike is worth a look: bad data, a learning rate too high.
 *
 * The losses of the last RECENT steps of this process are kept. A loss is a spike when it exceeds their median by FAR
 * deviations; a deviation is 1.4826 times the median distance from the median, which for normally distributed losses
 * is their standard deviation and which single spikes do not move, but at least FLOOR of the median, so that losses
 * that hardly vary do not make every tremor one. Nothing is said before FEW losses are known. Spikes count among the
 * recent losses: a loss that stays high is the new level after half as many steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

enum { RECENT = ZPR_RECENT_LOSSES, FEW = 16 };
#define FAR 8.0
#define FLOOR 0.01

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, compare);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

bool zpr_loss_is_spike(zpr_losses *losses, double loss, double *usual) {
  double sorted[RECENT];
  int n = losses->count < RECENT ? (int)losses->count : RECENT;
  bool spike = false;
  if (!isfinite(loss)) return false; /* that has its own warning */
  if (n >= FEW) {
    memcpy(sorted, losses->value, (size_t)n * sizeof *sorted);
    *usual = median(sorted, n);
    for (int i = 0; i < n; i++) sorted[i] = fabs(sorted[i] - *usual);
    double deviation = fmax(1.4826 * median(sorted, n), FLOOR * fabs(*usual));
    spike = loss > *usual + FAR * deviation;
  }
  losses->value[losses->count++ % RECENT] = loss;
  return spike;
}
