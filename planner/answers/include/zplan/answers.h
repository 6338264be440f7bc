/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to "why", "how many" and "what if". Every one is a search of a changed copy of the input: nothing is promised
 * that was not planned again. Results are structs; the driver prints them.
 *
 * Plans inside the results own their memory through the arena that was passed in. */
#ifndef ZPLAN_ANSWERS_H
#define ZPLAN_ANSWERS_H

#include <zplan/plan.h>

/* ---- changed copies (what_if.c). Shallow: the model and all texts are shared with the original. ---- */

/* The copy has its own constraints of the chosen plan block; change them through this. */
zp_constraints *zp_copied_constraints(zp_spec *copy);
/* It keeps the chosen block of the constraints alone. */
zp_spec *zp_copy_spec(zp_arena *arena, const zp_spec *spec);
/* The cluster grown or shrunk to `devices`: as many nodes as they need; CPU ranks share the nodes that there are. */
zp_spec *zp_spec_with_devices(zp_arena *arena, const zp_spec *spec, int devices);
/* Same decisions but for the cuts. */
bool zp_same_decisions(const zp_choice *a, const zp_choice *b);

/* ---- numbers of devices (sizes.c) ---- */

typedef struct zp_size {
  int devices;
  bool feasible;
  bool stopped;            /* not feasible: the search reached its memory budget first, nothing is known */
  zp_candidate best;       /* when feasible */
  zp_miss miss;            /* when not, and memory was the reason */
  double run_device_hours; /* of the whole training run; 0: its length is unknown */
  double run_dollars;      /* 0: no price */
} zp_size;
typedef ZP_VEC(zp_size) zp_sizes;

/* The largest count that the cluster's kind can grow to: nodes without network cards stay alone. */
int zp_most_devices(const zp_spec *spec);
/* Counts between low and high, which is not below it, that are worth a look, at most ZP_SWEEP_SIZES: both ends; below a
 * node its divisors; above whole nodes, m * 2^e of them with m < 8, 4 or 2, the finest that stays within the limit.
 * Ascending. */
enum { ZP_SWEEP_SIZES = 24 };
zp_ints zp_sweep_counts(zp_arena *arena, const zp_spec *spec, int low, int high);
zp_size zp_plan_size(zp_arena *arena, const zp_spec *spec, int devices);
/* The first that fits, NULL when none does; tokens a second and device against another size's, both feasible. */
const zp_size *zp_first_fit(const zp_sizes *sizes);
double zp_scaling(const zp_size *base, const zp_size *size);

/* Bytes of parameters, gradients and optimizer state that the devices together must hold, however they are divided;
 * classes that may be offloaded are left out. */
int64_t zp_least_state_bytes(zp_arena *arena, const zp_spec *spec);

typedef struct zp_fewest {
  int lower_bound; /* by the state alone: fewer devices cannot hold it */
  int stopped;     /* of these: their searches reached the memory budget first, nothing is known */
  int searched;    /* counts that were planned */
  int below;       /* the largest count below that does not fit */
  bool found;
  zp_sizes sizes; /* found: the fewest that fit, then the next sizes (at most three); else the largest tried */
} zp_fewest;
/* Upwards from the lower bound: the divisors of a node, then whole nodes by strides that double; halves between the
 * last count that does not fit and the first that does, of whole nodes and then of devices. Where no device may stay
 * idle, or devices are CPU ranks, fitting is not monotone in the count: above 16 nodes the first pass steps by at most
 * 1/8, and every count of the step that fits is asked from below. */
zp_fewest zp_find_fewest(zp_arena *arena, const zp_spec *spec);

/* ---- which machine, and how many devices (purchase.c) ---- */

typedef struct zp_offer {
  int machine;         /* index of its spec */
  zp_size size;        /* run_dollars: 0 where there is no price, or the training's length is unknown */
  double hour_dollars; /* of a device hour, its energy included; 0: no price */
  double energy_dollars;
  double step_device_hours, step_dollars; /* this and what follows: when it fits */
  double run_s;                           /* 0: the training's length is unknown */
  bool in_time, in_budget;                /* or there is no deadline, no budget */
} zp_offer;
typedef struct zp_purchase {
  zp_terms terms;
  ZP_VEC(zp_offer) offers; /* all that were planned: machines in their order, counts ascending */
  int stopped;             /* of these: their searches reached the memory budget, nothing is known */
  int best, next;          /* by the objective among those that fit and meet the terms; -1: there is none */
  int nearest;             /* where none does: the one that exceeds its worse term by the least factor; -1: none fits */
  int in_time, in_budget;  /* the cheapest that meets the deadline, the fastest that meets the budget; -1: none */
} zp_purchase;
/* Plans counts[i] devices of specs[i], which are one training on n machines, under the terms of the first one's plan
 * block. */
zp_purchase zp_find_purchase(zp_arena *arena, const zp_spec *const *specs, const zp_ints *counts, int n);
/* Does offer a, which fits as b does, stand before b in a ranking: does it alone meet the terms, or is it better? */
bool zp_offer_before(const zp_purchase *p, int a, int b);

/* ---- the smallest changes that make it fit (relax.c) ---- */

typedef enum zp_relaxation_kind {
  ZP_RELAX_CONSTRAINT, /* drop one, or all */
  ZP_RELAX_ZERO,       /* allow higher stages, recomputation, offload: values that are not allowed now */
  ZP_RELAX_RECOMPUTE,
  ZP_RELAX_OFFLOAD,
  ZP_RELAX_MICROBATCH,
  ZP_RELAX_CONTEXT,
  ZP_RELAX_BATCH,
  ZP_RELAX_DEVICES,
  ZP_RELAX_IDLE, /* some of the devices stay idle */
  ZP_RELAX_DEVICE_MEMORY,
  ZP_RELAX_HOST_MEMORY,
} zp_relaxation_kind;

typedef struct zp_relaxation {
  zp_relaxation_kind kind;
  const char *words;  /* "without the constraint on `tensor`", "with 40.2 GB of memory per device" */
  const char *option; /* what to write on the command line; NULL: not expressible there */
  int64_t amount;     /* bytes, devices or sequences that the change is about; 0: none */
  zp_choice choice;
  zp_estimate estimate;
} zp_relaxation;
typedef struct zp_relaxations { /* ZP_VEC */
  zp_relaxation *data;
  int len, cap;
  bool cut_short; /* others may be there: the work that looking for them may take was done */
  int64_t work;   /* of all searches for them, as zp_certificate has it */
} zp_relaxations;
/* For a plan that is not feasible. Ascending kinds; each was planned and fits. Takes at most a few times the work of
 * the search that found none, or some seconds. */
zp_relaxations zp_find_relaxations(zp_arena *arena, const zp_plan *plan);

/* Why nothing is legal (refused.c): no way to divide the devices, or no combination of the other decisions. One line,
 * or one for every rule that is broken; none when the search must say. */
zp_strings zp_explain_refusals(zp_arena *arena, const zp_plan *plan);

/* "with 40.2 GB of memory per device it fits: tensor 8 ...; step ~3.1 s, peak ~38.0 GB": one line, as reports say
 * it. */
const char *zp_report_relaxation(zp_arena *arena, const zp_relaxation *relaxation);

/* zp_report_infeasible (zplan/report.h) in two parts: what is known at once, and what takes further searches. */
const char *zp_report_verdict(zp_arena *arena, const zp_plan *plan);
const char *zp_report_changes(zp_arena *arena, const zp_plan *plan, const zp_relaxations *nearest);

/* ---- what would help (would_help.c) ---- */
typedef enum zp_help_kind {
  ZP_HELP_LIMIT, /* a limit of the plan block dropped, or all */
  ZP_HELP_CONTEXT,
  ZP_HELP_SHARD,
  ZP_HELP_OFFLOAD,
  ZP_HELP_PRECISION, /* another training from here on */
  ZP_HELP_BATCH,
} zp_help_kind;
typedef struct zp_help {
  zp_help_kind kind;
  const char *words;  /* "without `tensor`" */
  const char *option; /* of --set; NULL: not expressible there */
  zp_candidate best;  /* arena */
  double times_faster;
} zp_help;
typedef ZP_VEC(zp_help) zp_helps;
/* Changes under which the same devices train at least a tenth faster, the one that helps most first, at most three;
 * each was planned. Takes about as long as the search for the plan did. Requires a feasible plan that was searched. */
zp_helps zp_find_helps(zp_arena *arena, const zp_plan *plan);

/* ---- poor use (poor_use.c) ---- */
typedef struct zp_poor_use {
  const char *term; /* of the step that takes longest, and how long */
  double term_s;
  const char *cause; /* why it does, from what was decided; NULL: nothing that could be named */
  zp_helps helps;
  int devices; /* so many take hardly longer; 0: no count that was considered */
  double times_longer, times_fewer_hours;
  zp_candidate fewer; /* their plan, arena */
} zp_poor_use;
/* Does a searched plan on GPUs make little of them (MFU)? Then why, and with how many the hours are better spent, if a
 * few reduced searches find that. Requires a feasible plan. */
bool zp_find_poor_use(zp_arena *arena, const zp_plan *plan, zp_poor_use *out);

/* ---- fewer ranks (fewer.c) ---- */

/* Are CPU ranks all started because `idle` is not written, and would fewer of them be faster by more than 1 %? Then
 * *best (its choice in the arena) is the best plan with fewer. Requires a feasible plan. */
bool zp_find_fewer_ranks(zp_arena *arena, const zp_plan *plan, zp_candidate *best);

/* ---- why not (compare.c) ---- */

/* One term of both prices. */
typedef struct zp_term {
  const char *name;
  double best_s, asked_s;
} zp_term;
typedef struct zp_why_not {
  const zp_plan *best, *asked;
  ZP_VEC(zp_term) terms; /* both feasible: they sum to the last one, the step */
  /* infeasible by memory: ranks of the stage that is short (order TPD: of the first replica) */
  int first_rank, last_rank;
  int64_t short_bytes;    /* by how much */
  zp_strings refusals;    /* infeasible otherwise: zp_explain_refusals */
  zp_relaxations nearest; /* infeasible: changes of the asked plan that fit */
} zp_why_not;
/* `asked`: a search of the same input under more constraints. */
zp_why_not zp_compare(zp_arena *arena, const zp_plan *best, const zp_plan *asked);

/* ---- decisions in words, of two plans (diff.c) ---- */

typedef struct zp_decision {
  const char *name, *words; /* as the plan block writes it */
} zp_decision;
typedef ZP_VEC(zp_decision) zp_decisions;
/* What was asked, then what was decided: the same names in the same order for every plan. Requires a feasible plan. */
zp_decisions zp_plan_decisions(zp_arena *arena, const zp_plan *plan);

typedef struct zp_decision_pair {
  const char *name, *a, *b; /* as the plan block writes it */
  bool same;
} zp_decision_pair;
typedef struct zp_plan_diff {
  bool same;                          /* all rows are */
  ZP_VEC(zp_decision_pair) decisions; /* what was asked, then what was decided */
  zp_why_not prices;                  /* a as best, b as asked: the terms of both */
} zp_plan_diff;
/* Both feasible. */
zp_plan_diff zp_diff_plans(zp_arena *arena, const zp_plan *a, const zp_plan *b);

/* ---- several plans (report/side_by_side.c) ---- */

/* One row: the same of every plan, in their order. One of words, seconds and bytes is there. */
typedef struct zp_row_alongside {
  const char *name;
  const char **words;
  double *seconds;
  int64_t *bytes;
  bool same;      /* for all plans; seconds: to 1e-9 of the step */
  bool estimated; /* bytes: by the cost model; else exact. Seconds always are */
} zp_row_alongside;
typedef ZP_VEC(zp_row_alongside) zp_rows_alongside;
typedef struct zp_side_by_side {
  int n;
  const zp_plan *const *plans;
  zp_rows_alongside decisions; /* zp_plan_decisions */
  zp_rows_alongside terms;     /* they sum to the last one, the step */
  zp_rows_alongside memory;    /* of a rank of the fullest stage; they sum to the last one, the peak */
  zp_rows_alongside elsewhere; /* of the same rank: state on its host and disks */
  zp_rows_alongside traffic;   /* sent over an axis in a step, by all ranks together */
  double *run_s, *run_device_hours, *run_dollars; /* of the whole training run; 0: its length or the price is unknown */
} zp_side_by_side;
/* All feasible. */
zp_side_by_side zp_put_side_by_side(zp_arena *arena, const zp_plan *const *plans, int n);

/* ---- sensitivity (sensitivity.c) ---- */

typedef struct zp_reaction { /* to one knob turned to `factor` */
  double factor;
  bool feasible, same_plan;
  bool stopped; /* not feasible: the search ended at its memory budget, so there may be plans */
  zp_candidate best;
} zp_reaction;
enum { ZP_REACTIONS = 4 };
extern const double zp_reaction_factors[ZP_REACTIONS]; /* 0.5, 0.9, 1.1, 2 */
typedef struct zp_sensitivity {
  const char *knob; /* "device memory" */
  double value;     /* as it is */
  const char *unit; /* "B", "B/s", "FLOP/s" */
  zp_reaction reaction[ZP_REACTIONS];
  double low, high; /* the plan stays best between these factors, found to about 5 % assuming one switch on each
                     * side; low 0.5 or high 2: at least that far */
} zp_sensitivity;
typedef ZP_VEC(zp_sensitivity) zp_sensitivities;
/* Knobs that the cluster has. Requires a feasible plan. */
zp_sensitivities zp_find_sensitivity(zp_arena *arena, const zp_plan *plan);

/* ---- Pareto front (pareto.c) ---- */

typedef struct zp_pareto_point {
  int devices;
  zp_candidate candidate;
  double step_device_hours, step_dollars; /* dollars: 0 without a price */
} zp_pareto_point;
typedef struct zp_pareto {
  ZP_VEC(zp_pareto_point) points;
  int stopped; /* counts whose last search ended at its memory budget: points may be missing */
} zp_pareto;
/* Plans that no other beats in all of step time, peak memory per device, devices and device hours. For every count: the
 * best plan, then the best of those whose peak is at least 5 % lower, and so on down. Ascending step time. */
zp_pareto zp_find_pareto(zp_arena *arena, const zp_spec *spec, const int *devices, int n);

#endif
