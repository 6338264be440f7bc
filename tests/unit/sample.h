/* SPDX-License-Identifier: Apache-2.0 */
/* How many random instances a test of the search draws: a quarter of those that it has, all with ZPLAN_LONG in the
 * environment (tests/long.sh). The seed is the same, so the quarter is the first one. Plans are held against the search
 * by tests/fuzz/plans.py, too. */
#ifndef ZPLAN_TEST_SAMPLE_H
#define ZPLAN_TEST_SAMPLE_H

#include <stdlib.h>

static inline int sample_of(int all) { return getenv("ZPLAN_LONG") ? all : all / 4; }

#endif
