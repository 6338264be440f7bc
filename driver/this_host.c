/* SPDX-License-Identifier: Apache-2.0 */
/* Cores and memory of the machine, or of the container, that zplan runs in. */
#define _GNU_SOURCE
#include "driver.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int zp_host_cores(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  return count > 0 ? count : 1;
}

int64_t zp_number_in(const char *path, const char *key) {
  FILE *f = fopen(path, "r");
  char line[256];
  long long value = -1;
  size_t n = strlen(key);
  while (f && value < 0 && fgets(line, sizeof line, f))
    if (strncmp(line, key, n) == 0) value = atoll(line + n);
  if (f) fclose(f);
  return value;
}

int64_t zp_host_bytes(void) {
  int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
  int64_t limit = zp_number_in("/sys/fs/cgroup/memory.max", "");
  return limit > 0 && limit < all ? limit : all; /* "max" is 0 */
}
