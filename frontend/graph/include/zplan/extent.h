/* SPDX-License-Identifier: Apache-2.0 */
/* How large a dimension is, in the symbols of its model: `3*d`, `kv_heads*d/heads`. Symbols are the whole numbers that
 * a `model` declares; what is computed from them keeps where it came from, so two symbols of one value stay apart.
 * Extents serve texts only: no number of a plan or a program depends on them. */
#ifndef ZPLAN_EXTENT_H
#define ZPLAN_EXTENT_H

#include <zplan/arena.h>

enum { ZP_EXTENT_FACTORS = 6 };

/* value = times / over * factor[0]^power[0] * ... / ranks; times / over in lowest terms, no power 0, no factor twice. A
 * factor is a symbol or a sum in parentheses. `ranks` stands apart, so that half of 4*d is 4*d/2. NULL stands for an
 * extent that is not known. */
typedef struct zp_extent {
  int64_t value; /* >= 1 */
  int64_t times, over;
  int64_t ranks; /* that share the dimension */
  int n_factors;
  const char *factor[ZP_EXTENT_FACTORS];
  int power[ZP_EXTENT_FACTORS];
} zp_extent;

/* All of them: arena; NULL where an operand is NULL, where the value is no whole number from 1 on, or where it has too
 * many factors. */
const zp_extent *zp_extent_number(zp_arena *arena, int64_t value);
const zp_extent *zp_extent_symbol(zp_arena *arena, const char *name, int64_t value);
const zp_extent *zp_extent_product(zp_arena *arena, const zp_extent *a, const zp_extent *b);
const zp_extent *zp_extent_quotient(zp_arena *arena, const zp_extent *a, const zp_extent *b);
const zp_extent *zp_extent_sum(zp_arena *arena, const zp_extent *a, const zp_extent *b);
const zp_extent *zp_extent_difference(zp_arena *arena, const zp_extent *a, const zp_extent *b);
/* What is left of a dimension of `from` when it becomes `to`: one rank's share of it, or the other way round. */
const zp_extent *zp_extent_share(zp_arena *arena, const zp_extent *whole, int64_t from, int64_t to);
/* `3*d/2`: products first, so that every division is without remainder. */
const char *zp_extent_text(zp_arena *arena, const zp_extent *extent);

#endif
