/* SPDX-License-Identifier: Apache-2.0 */
/* Cases take turns: tests/run.sh says whose it is by ZPLAN_TURN=K/N, as of tables of trainings (trainings.py). Without
 * it, and with --whole, all run. Of `among` cases that follow each other one is due at every commit. */
#ifndef TURN_H
#define TURN_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline bool has_turn(int i, int among) {
  const char *turn = getenv("ZPLAN_TURN");
  int k = 0, n = 1;
  if (!turn || sscanf(turn, "%d/%d", &k, &n) != 2 || n < 1) return true;
  if (among < n) n = among;
  return i % n == k % n;
}

#endif
