/* SPDX-License-Identifier: Apache-2.0 */
/* Names that are given out once each: `h`, then `h_2`, `h_3`, ... A hash table, because a model may repeat a name
 * thousands of times. */
#ifndef ZPLAN_NAMES_H
#define ZPLAN_NAMES_H

#include <zplan/arena.h>

typedef struct zp_taken_name {
  const char *name; /* NULL: a free slot */
  int next;         /* the first suffix that has not been tried after it */
} zp_taken_name;

/* All zero: none taken. */
typedef struct zp_taken_names {
  zp_taken_name *slots;
  int n_slots; /* a power of two; 0 */
  int len;
} zp_taken_names;

/* `name`, or name_2, name_3, ... when taken; marks it as taken. name must live as long as the table. */
const char *zp_taken_names_give(zp_arena *arena, zp_taken_names *names, const char *name);
void zp_taken_names_clear(zp_taken_names *names);

#endif
