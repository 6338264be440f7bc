/* SPDX-License-Identifier: Apache-2.0 */
/* The best cut of a row of units into pipeline stages, over plain numbers: what ranges of units cost, whether they fit
 * and what orders of actions take comes in through callbacks; better cuts and a proven lower bound of the step's time
 * go out. Nothing here knows of models, machines or memory.
 *
 * Units: times are seconds, work is counted in simulated actions, the same on every machine. Shapes: a cut is
 * [places + 1], from 0 to the number of units, every place has at least one unit. Ownership: everything that is passed
 * stays the caller's and must stay unchanged until the call returns; provers free what they make. Errors: there are
 * none. Where work or memory ends, the bound is lower than it could be. What a problem requires, provers assert. */
#ifndef ZPLAN_CUTS_H
#define ZPLAN_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zplan/arena.h>

/* Why a part of the cuts was left out. window: the other units cannot be cut so that stages fit and no neighbours take
 * too long together. prefix: simulated alone, the first stages take too long. chain: actions that wait for each other
 * take too long, whatever the other units do. */
#define ZP_CUT_RULES(X) X(WINDOW, "window") X(PREFIX, "prefix") X(CHAIN, "chain")
typedef enum zp_cut_pruning {
#define ZP_CUT_RULE_ROW(name, key) ZP_CUT_##name,
  ZP_CUT_RULES(ZP_CUT_RULE_ROW)
#undef ZP_CUT_RULE_ROW
      ZP_CUT_RULE_COUNT
} zp_cut_pruning;

enum { ZP_CUT_MOST_CHUNKS = 20 }; /* of a stage */

/* What the units of one chunk take: one micro-batch's actions, a message to the next chunk, and what follows the last
 * micro-batch on its stage (of several chunks: on the stage's last one). */
typedef struct zp_cut_cost {
  double forward_s;
  double backward_s; /* where backward is split, the part that yields gradients of inputs */
  double weights_s;  /* the other part; 0 where it is not split */
  double message_s;  /* 0 after the last chunk */
  double reduce_s, update_s;
  double step_s; /* no step with it is shorter, whatever the other stages do; 0: nothing is known */
} zp_cut_cost;

/* How often a chain of actions that wait for each other passes a place. Of means of chains: shares. */
typedef struct zp_cut_weights {
  double forwards, backwards, weights; /* actions; backwards: whole ones, or gradients of inputs */
  double messages;                     /* to the next place, either way */
} zp_cut_weights;

/* The first stages of a cut, and the fastest answer that there can be after them. */
typedef struct zp_cut_first {
  int known;                        /* stages */
  const zp_cut_cost *cost;          /* [known] */
  double rest_s;                    /* from the activation that leaves the last of them to its gradient */
  double first_rest_s, last_rest_s; /* of the first and the last micro-batch, where it is more */
} zp_cut_first;

/* Everything about one row of units. A place is a chunk of the model, in the order in which activations pass them; with
 * one chunk a stage places are stages. */
typedef struct zp_cut_problem {
  int stages, chunks; /* chunks: of every stage */
  int64_t units, microbatches;
  bool split;          /* backward has two parts */
  const int *stage_of; /* [places] */
  const int *chunk_of; /* [places]: the first, second, ... of its stage */
  /* Seconds of the units before each, [units + 1], each the least of all ways to run them: forward; forward and the
   * part of backward that yields gradients of inputs; everything. */
  const double *forward_s, *input_s, *work_s;
  double message_s; /* of any message, at least */
  double ties_s;    /* that follow the reduction on the first and the last stage; one chunk a stage */
  double update_s;  /* of the longest update of any cut, at least */
  double end_s;     /* from the end of the micro-batches to that of the step, at least */
  double bound_s;   /* no cut is faster: what is known so far */

  const zp_arena *alongside; /* memory of provers counts in its budget */
  void *user;                /* of the callbacks */
  /* May provers take that much more memory? */
  bool (*may_grow)(void *user, size_t bytes);
  /* Do units first .. end - 1 fit on the place, its stage's other chunks left out? Fewer of them always do, too. Then
   * *work_s is what they take there at least. */
  bool (*fits)(void *user, int place, int64_t first, int64_t end, double *work_s);
  /* What they cost. Requires: they fit. One chunk a stage. */
  zp_cut_cost (*cost)(void *user, int place, int64_t first, int64_t end);
  /* The first unit of the first range that costs the same on every stage. One chunk a stage. */
  int64_t (*alike)(void *user, int64_t first, int64_t end);
  /* The part of their update that never shrinks when units are added, whether they fit or not. One chunk a stage. */
  double (*growing_update_s)(void *user, int stage, int64_t first, int64_t end);
  /* What they cost on any place at least, message_s and update_s left out; reduce_s, which may be below zero, adds up
   * to no more than that of a stage with these units. Several chunks a stage. NULL: what the sums above say. */
  zp_cut_cost (*least)(void *user, int64_t first, int64_t end);
  /* The least message after the unit before `end`. Several chunks a stage. */
  double (*message_after_s)(void *user, int64_t end);
  /* What a stage costs whose chunks are known: cost[chunks], message_s left out, reduce_s and update_s on its last
   * place. False: it does not fit. *work: what asking took, in simulated actions. Several chunks a stage. */
  bool (*stage)(void *user, int stage, const int64_t *cut, zp_cut_cost *cost, int64_t *work);

  /* Ends of the last actions of the first stages of 1F1B, into end_s[known]. NULL: the schedule is another one. */
  void (*run_first)(void *user, const zp_cut_first *first, double *end_s);
  /* Runs the orders of all stages; cost: [places], end_s: [stages]. */
  void (*run)(void *user, const zp_cut_cost *cost, double *end_s);
  /* Adds what the end of a stage waited for in the last run. weights: [places]. */
  void (*chain)(void *user, int stage, zp_cut_weights *weights);
  /* Adds a chain that holds whatever the costs: to the first action of `stage`, all of its actions, and from there to
   * the end of stage `end`, which is the same one or that of the first place. */
  void (*through)(void *user, int end, int stage, zp_cut_weights *weights);
} zp_cut_problem;

static inline int zp_cut_places(const zp_cut_problem *p) { return p->stages * p->chunks; }

/* What is wanted, and whom to tell. */
typedef struct zp_cut_task {
  double (*limit_s)(void *user);              /* cuts that are not faster are not looked for; may shrink */
  double (*on_cut)(void *user, int64_t *cut); /* a cut that may be faster: its exact time */
  void *user;
} zp_cut_task;

/* What the search over cuts took, and may still take. */
typedef struct zp_cut_effort {
  int64_t nodes, pruned[ZP_CUT_RULE_COUNT];
  int64_t work_left;
} zp_cut_effort;

typedef struct zp_cut_proof {
  double bound_s;       /* no cut is faster, or than the task's limit */
  bool short_of_memory; /* more memory would have raised it */
} zp_cut_proof;

/* When a problem is considered: before any of its cuts is simulated, where only the bound is wanted; with little of the
 * work that is left, because others want theirs; with much of it; with all of it. */
typedef enum zp_cut_depth { ZP_CUT_BEFORE, ZP_CUT_SHALLOW, ZP_CUT_DEEP, ZP_CUT_WHOLE } zp_cut_depth;

/* One way to raise the bound. */
typedef struct zp_cut_prover {
  const char *name;
  /* Is it worth it in this turn? */
  bool (*applies)(const zp_cut_problem *problem, zp_cut_depth turn);
  /* Before: on_cut and effort are not considered. */
  zp_cut_proof (*prove)(const zp_cut_problem *problem, const zp_cut_task *task, zp_cut_effort *effort,
                        zp_cut_depth turn);
} zp_cut_prover;

/* All of them, in the order in which they are tried while a gap is left. */
enum { ZP_CUT_PROVERS = 3 };
extern const zp_cut_prover zp_cut_provers[ZP_CUT_PROVERS];

/* 1F1B: would labels drop the cut while looking for ones below target_s? Then how many of its first stages they need to
 * know; -1: it is considered. What the tests prove the rules with. */
int zp_cut_refusal(const zp_cut_problem *problem, const int64_t *cut, double target_s);

#endif
