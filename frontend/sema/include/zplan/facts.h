/* SPDX-License-Identifier: Apache-2.0 */
/* What elaboration found out about the names in the main file: shapes, values, parameters, and where they come from.
 * For editors. A name in a block that is called several times has a fact of every call. */
#ifndef ZPLAN_FACTS_H
#define ZPLAN_FACTS_H

#include <zplan/diag.h>
#include <zplan/vec.h>

typedef struct zp_fact {
  zp_span span;     /* of the name */
  zp_span defined;  /* where it got its value, or of the block's name; file < 0: the language has it */
  const char *text; /* "x: [B, 1024, 768]", "d = 768", "linear: [B, 1024, 768], 589,824 parameters" */
} zp_fact;

/* The caller sets the arena; facts beyond ZP_MOST_FACTS are not kept. */
typedef struct zp_facts {
  zp_arena *arena;
  ZP_VEC(zp_fact) list;
} zp_facts;
enum { ZP_MOST_FACTS = 100000 };

#endif
