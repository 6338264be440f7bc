/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: what the search found, with its price, its certificate and the next best. */
#ifndef ZPLAN_PLAN_H
#define ZPLAN_PLAN_H

#include <zplan/cuts.h>
#include <zplan/estimate.h>
#include <zplan/json.h>

typedef struct zp_candidate {
  zp_choice choice;
  zp_estimate estimate;
} zp_candidate;

/* Why points of the space, or all with the same degrees, were rejected: one list for enum, name and text. */
#define ZP_REJECTIONS(X)                                                                                               \
  X(CONSTRAINT, "constraint", "outside the plan block's constraints")                                                  \
  X(BATCH, "batch", "batch does not divide over data ranks and micro-batch")                                           \
  X(UNITS, "units", "more stages than units to place")                                                                 \
  X(NODE, "node", "tensor group larger than a node")                                                                   \
  X(WORK, "work", "degrees whose least work cannot beat the best plan")                                                \
  X(SPLIT, "split", "no way to split the model over that many tensor ranks")                                           \
  X(MEMORY, "memory", "does not fit the device memory")                                                                \
  X(BOUND, "bound", "cannot beat the best plan (lower bound)")                                                         \
  X(HOST, "host", "does not fit the host memory or the disks")                                                         \
  X(SCHEDULE, "schedule", "decisions that do not go together")                                                         \
  X(GENERATED, "program", "not in the program that the plan is for")                                                   \
  X(CUT, "cut", "no cut inside a layer where the plan block wants one")                                                \
  X(BUDGET, "search memory", "not considered: the search had reached its budget of memory or work")
typedef enum zp_rejection {
  ZP_REJECT_NONE = -1, /* not rejected */
#define ZP_REJECTION_ROW(name, key, text) ZP_REJECT_##name,
  ZP_REJECTIONS(ZP_REJECTION_ROW)
#undef ZP_REJECTION_ROW
      ZP_REJECT_COUNT
} zp_rejection;
const char *zp_rejection_key(zp_rejection r);
const char *zp_rejection_text(zp_rejection r);

/* The nearest miss by memory, for the report and the infeasible answer. */
typedef struct zp_miss {
  zp_choice choice;
  int stage;
  int64_t need_bytes, have_bytes;
  bool is_partial; /* others may be nearer: the work that looking for it may take was done */
  zp_memory memory;
} zp_miss;

/* Why branch and bound over the cuts of a finalist left out a subtree: zp_cut_pruning of cuts.h. */
const char *zp_cut_rule_key(zp_cut_pruning rule);

/* A bound that is this close to the best plan, as a share, counts as equal: sums of up to a million rounded terms. */
#define ZP_GAP_TOLERANCE 2e-9

typedef struct zp_certificate {
  double best_s, bound_s;     /* no plan of the space is faster; zp_certificate_gap says how close they are */
  double searched_s;          /* the same but for plans of the stated points, below, with other cuts */
  int64_t candidates, priced; /* points of the space; finalists that were simulated */
  int64_t rejected[ZP_REJECT_COUNT];
  int64_t in_chunks; /* candidates with the loss in chunks that were considered after all others, and are not among the
                      * above unless the best plan is one of them */
  int64_t simulated; /* cuts of finalists */
  int64_t cut_nodes; /* first stages of cuts that branch and bound considered */
  int64_t cut_pruned[ZP_CUT_RULE_COUNT];
  int64_t cut_work;     /* of branch and bound, in simulated actions */
  int64_t laid_out;     /* stages whose memory was added up */
  int64_t memory_bytes; /* budget of the search */
  int64_t held_bytes;   /* the most that it held of it: the same on every machine */
  bool short_of_memory; /* something was left open that more memory would have settled */
  int64_t work;         /* all of it, in stages laid out or as much as takes as long; the same on every machine */
  bool short_of_work;   /* something was left open that more work would have settled */
  bool interrupted;     /* something was left open because the search was asked to end */
  /* points with several chunks a stage that are considered not with every cut, but with stated ones */
  int64_t stated_cuts;
  /* Several node types: the orders of nodes that were searched, of so many. Bound, work and what was short are those of
   * all of them, counts those of the plan's order. 0: there is one. */
  int64_t node_orders, node_orders_there;
  bool nodes_together; /* these orders have alike nodes side by side, but for the written one */
} zp_certificate;
/* By what share of the best plan's time another one may be faster; 0: proven optimal in the stated space. */
double zp_certificate_gap(const zp_certificate *certificate);

typedef struct zp_plan {
  zp_arena *arena;
  const zp_spec *spec;  /* its nodes in the order in which ranks fill them */
  const zp_spec *asked; /* with the nodes as they are written; NULL: spec */
  int devices;          /* given; the plan uses machine.devices of them, the first ones */
  zp_machine machine;   /* of the ranks in use; not feasible: of all devices */
  bool feasible;
  zp_candidate best;
  zp_program *program;               /* of best */
  zp_candidate *fastest;             /* best was preferred to it, as less exposed; NULL: best is the fastest */
  ZP_VEC(zp_candidate) alternatives; /* with other degrees, ascending step time */
  bool exact_alternatives; /* the next best ones, searched for; else good ones that the search for the best plan met */
  bool proven_alone; /* the decisions of `best` were the only ones left open, with all of the work for their cuts */
  zp_certificate certificate;
  zp_miss miss;        /* have_bytes > 0: the nearest that did not fit */
  bool stopped;        /* not feasible: the search ended at its budget of memory or work, so there may be plans */
  const char *why_not; /* one sentence when nothing was even tried for memory (arena) */
} zp_plan;

static inline const zp_spec *zp_plan_asked(const zp_plan *plan) { return plan->asked ? plan->asked : plan->spec; }
/* Ranks that share a state, each of which is needed to go on; 1: every replica has all of its own. */
int zp_choice_exposure(const zp_choice *choice);
/* Devices that a choice leaves out. */
static inline int zp_plan_idle(const zp_plan *plan, const zp_choice *choice) {
  return plan->devices - zp_choice_ranks(choice);
}

typedef struct zp_search_options {
  int top;    /* alternatives to search for; 0: up to three that are met, not slower than the best plan by a quarter */
  double gap; /* plans that are not faster by more than this share are not looked for; 0: as the plan block says */
  bool generated_only; /* for `build` and `run`: what zplan's own trainer has, whatever program the cluster names, and
                        * of that what is not plain only where a constraint names it */
  bool no_miss;        /* where nothing fits, the nearest miss is not looked for */
  int64_t work;        /* units that it may take (zp_certificate.work); 0: ZP_MOST_SEARCH_WORK, about a minute. Where
                        * nodes may stand in several orders: three times that, at most */
  double rival_s;   /* of a plan from elsewhere: none is looked for that is not faster; 0: there is none. Not feasible
                     * then is no answer, but certificate.bound_s is one */
  unsigned without; /* bit i: row i of zp_cut_provers is left out; for measurements of what it buys */
} zp_search_options;
/* The largest context degree that the search opens by itself on so many devices, of the powers of two; 1: none. */
int zp_most_free_context(const zp_spec *spec, int devices);
/* Searches all plans that use at most `devices`, 1 to ZP_MOST_RANKS; options may be NULL. Never NULL; plan->feasible
 * says whether something fits. */
zp_plan *zp_search(zp_arena *arena, const zp_spec *spec, int devices, const zp_search_options *options);

#endif
