/* SPDX-License-Identifier: Apache-2.0 */
/* Included first by every file that has mutants (instrument.py): which mutant runs, and which places are reached.
 *
 * ZP_MUTANT=N makes mutant N the one that runs. ZP_MUTANT_SEEN=FILE: a file of as many bytes as there are mutants, in
 * which a byte becomes 1 when its place is reached, in whatever process. */
#ifndef ZPLAN_MUTANT_H
#define ZPLAN_MUTANT_H

#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <sys/mman.h>

/* Not unistd.h: files have functions of their own called read and link. */
extern off_t lseek(int file, off_t offset, int whence);
extern int close(int file);

static int zp_mutant_now = -1;
static volatile unsigned char *zp_mutant_seen;

__attribute__((constructor)) static void zp_mutant_begin(void) {
  const char *number = getenv("ZP_MUTANT"), *seen = getenv("ZP_MUTANT_SEEN");
  if (number) zp_mutant_now = atoi(number);
  if (!seen) return;
  int file = open(seen, O_RDWR);
  off_t size = file < 0 ? 0 : lseek(file, 0, SEEK_END);
  void *map = size > 0 ? mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (map != MAP_FAILED) zp_mutant_seen = map;
  if (file >= 0) close(file);
}

__attribute__((unused)) static inline int zp_m(int id) {
  if (zp_mutant_seen) zp_mutant_seen[id] = 1;
  return zp_mutant_now == id;
}

#endif
