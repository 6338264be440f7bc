/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing between machines and numbers of devices, by cost or time. */
#ifndef ZPLAN_PURCHASE_H
#define ZPLAN_PURCHASE_H

#include "driver.h"
#include "machines.h"

enum { ZP_MOST_SELLERS = 16 };

/* A machine of the list. */
typedef struct zp_seller {
  const char *name;  /* as given; NULL: the file's own cluster */
  const char *shown; /* in answers */
  bool is_machine;   /* of `zplan machines`; else a cluster block of the file */
  const zp_spec *spec;
  zp_ints counts;
} zp_seller;

/* ---- purchase.c ---- */
/* Is there a deadline, a budget, or another objective than the default? */
bool zp_asks_terms(const zp_terms *terms);
/* Does this command line, or the plan block that it chooses, ask for a machine or a number of devices? */
bool zp_wants_purchase(zp_run_state *run);
/* Says on stderr where a plan for given devices misses the deadline or the budget. */
void zp_note_terms(const zp_run_state *run, const zp_plan *plan);
/* Prints the answer. *plan: of the best choice, *json: of the answer, owned by the caller. Another status than OK after
 * saying why there is none. */
int zp_plan_purchase(zp_run_state *run, zp_plan **plan, zp_json **json);

/* ---- show_purchase.c ---- */
const char *zp_show_dollars(zp_arena *arena, double dollars);
void zp_show_purchase(zp_page *page, const zp_purchase *p, const zp_seller *sellers);
/* Nothing fits, or nothing meets the terms. */
void zp_show_no_purchase(zp_page *page, const zp_purchase *p, const zp_seller *sellers);
zp_json *zp_purchase_json(const zp_purchase *p, const zp_seller *sellers);

#endif
