/* SPDX-License-Identifier: Apache-2.0 */
/* One processor. */
#ifndef ZPLAN_ABSENT_SCHED_H
#define ZPLAN_ABSENT_SCHED_H

#include <stddef.h>

typedef int cpu_set_t;
#define CPU_COUNT(set) (*(set))
static inline int sched_getaffinity(int process, size_t bytes, cpu_set_t *set) {
  return (void)process, (void)bytes, *set = 1, 0;
}

#endif
