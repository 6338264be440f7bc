/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that differ little take turns: tests/run.sh says whose it is by ZPLAN_TURN=K/N, as of tables of trainings
 * (tests/support/trainings.py). Without it, and with --whole, all run. */
#ifndef TURN_H
#define TURN_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline bool has_turn(int i) {
  const char *turn = getenv("ZPLAN_TURN");
  int k = 0, n = 1;
  return !turn || sscanf(turn, "%d/%d", &k, &n) != 2 || n < 1 || i % n == k;
}

#endif
