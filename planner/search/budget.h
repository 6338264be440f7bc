/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a search may hold and the work that it may do, and what it does without near their end. */
#ifndef ZPLAN_SEARCH_BUDGET_H
#define ZPLAN_SEARCH_BUDGET_H

#include "cache.h"

/* What makes the search grow, in the order in which it does without. */
typedef enum zp_growth {
  ZP_GROW_EARLY,      /* degrees are measured while plans are still missing: the others wait until these are known */
  ZP_GROW_PROCEDURES, /* degrees are measured */
  ZP_GROW_POINTS,     /* degrees are looked into, families opened */
  ZP_GROW_MORE,       /* what is begun of that goes on */
  ZP_GROW_CUTS        /* branch and bound, simulations */
} zp_growth;
/* Are there room and work left for it, and room for `bytes` besides? */
bool zp_has_room(const zp_search_cache *s, zp_growth what, size_t bytes);
/* zp_has_room for whoever takes it; false is noted in the certificate: whoever asks leaves it out. */
bool zp_may_grow(zp_search_cache *s, zp_growth what, size_t bytes);

#endif
