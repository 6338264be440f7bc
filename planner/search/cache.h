/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the input and is found out only once: procedures, prices, memos, and the memory that they take.
 * Whether something is known already changes no answer, only the time until it comes. What may find something out takes
 * the cache without const; what takes it const neither adds to it nor uses its arenas. */
#ifndef ZPLAN_SEARCH_CACHE_H
#define ZPLAN_SEARCH_CACHE_H

#include "input.h"
#include "memo.h"

typedef struct zp_search_cache {
  const zp_search_input *in;
  zp_arena_budget *budget; /* of all arenas of the search (budget.c) */
  bool short_of_memory;    /* something was not done because of it */
  int64_t work, most_work; /* done and allowed, in stages laid out or as much as takes as long: no clock is asked */
  bool short_of_work;      /* something was not done because of it */
  bool interrupted;        /* the same, because the search was asked to end */
  zp_arena *arena;         /* of the search, given back at its end */
  zp_arena *kept;          /* the same for what is made while some of the other one is on its way to be given back */
  zp_arena *steps;         /* of procedures that are being lowered and priced */
  bool in_chunks;          /* the current space is that of plans with the loss in chunks, where none is named */
  zp_machine machine;      /* of the ranks that the current plan uses (zp_search_use), like the limits below */
  int64_t limit_bytes;     /* arena bytes that a rank may use; several node types: on the smallest */
  int64_t most_bytes;      /* the same on the largest */
  int64_t host_bytes, nvme_bytes; /* a rank's equal share of its node's */
  ZP_VEC(zp_tensor_groups) groups;
  ZP_VEC(zp_variant) variants;
  zp_ints variant_index; /* hash table: 1 + their places; 0: free */
  zp_search_memo memo;
  const char *cut_reason; /* why layers could not be cut (arena) */
  const char *reason;     /* why the last tensor degree could not be split or lowered, or no trainer is generated */
} zp_search_cache;

static inline const zp_variant *zp_variant_of(const zp_search_cache *s, const zp_point *point) {
  return &s->variants.data[point->variant];
}

/* Those of the point's own cuts: of layers, or of parts of layers. */
static inline int64_t zp_point_units(const zp_search_cache *s, const zp_point *point) {
  return zp_variant_of(s, point)->lowered->n_units;
}

/* Have the nodes several types? Then what all stages share is bounded by the least of the types, and every stage has
 * variants of its own. */
static inline bool zp_has_types(const zp_search_cache *s) { return s->machine.cluster->groups.len > 0; }

#endif
