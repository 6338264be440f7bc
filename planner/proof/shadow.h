/* SPDX-License-Identifier: Apache-2.0 */
/* Shadow memory: which value every byte of an arena holds. Starts as poison, which nothing ever wrote. Knows no
 * plan. */
#ifndef ZPLAN_SHADOW_H
#define ZPLAN_SHADOW_H

#include <stdbool.h>
#include <zplan/vec.h>

enum { ZP_POISON = 0 }; /* the value of bytes that hold none */

/* Columns [from, to) of every row, in bytes. Column `from` of the memory is column `from - shift` of the value. */
typedef struct zp_shadow_columns {
  int64_t from, to, shift;
  uint64_t value;
} zp_shadow_columns;

/* Neighbouring bytes of one write: byte `at` is byte `origin` of what was written. Either all of them are `value`, or
 * rows of `row` bytes whose columns have values of their own; columns in no list are poison. */
typedef struct zp_shadow_cell {
  int64_t at, end, origin, row;
  uint64_t value;
  const zp_shadow_columns *columns; /* NULL: all are `value` */
  int n_columns;
} zp_shadow_cell;

typedef struct zp_shadow {
  zp_arena *arena;             /* borrowed */
  ZP_VEC(zp_shadow_cell) cell; /* ascending, apart */
} zp_shadow;

/* Where a tensor, or some of its columns, stands: rows of `row` bytes in [at, at + bytes), of which columns [from, to)
 * are columns `column` and on of the value. origin: bytes of the value before the place, whole rows; of a place with
 * all columns only. */
typedef struct zp_shadow_place {
  int64_t at, bytes, row, from, to, column, origin;
} zp_shadow_place;

/* All of [at, at + bytes). */
static inline zp_shadow_place zp_shadow_whole(int64_t at, int64_t bytes) {
  return (zp_shadow_place){at, bytes, bytes, 0, bytes, 0, 0};
}

void zp_shadow_poison(zp_shadow *shadow, int64_t at, int64_t bytes);
/* What else stood in these columns is gone. Columns alongside them stay only where the bytes are rows of that length
 * already. */
void zp_shadow_write(zp_shadow *shadow, zp_shadow_place place, uint64_t value);
/* Is every byte of the place the very byte of `value`? Otherwise *found is what stands at the first one that is not,
 * and *at where. */
bool zp_shadow_holds(const zp_shadow *shadow, zp_shadow_place place, uint64_t value, uint64_t *found, int64_t *at);
/* The value of all bytes; ZP_POISON where they do not have one together. */
uint64_t zp_shadow_get(const zp_shadow *shadow, int64_t at, int64_t bytes);
/* Between two memories, or two places apart of one. */
void zp_shadow_copy(const zp_shadow *from, int64_t from_at, int64_t bytes, zp_shadow *to, int64_t to_at);

#endif
