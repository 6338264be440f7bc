/* SPDX-License-Identifier: Apache-2.0 */
/* Inside this folder: bounds of 1F1B pipelines whose first or last stages are known, and the cuts that they leave. */
#ifndef ZPLAN_CUT_LABELS_H
#define ZPLAN_CUT_LABELS_H

#include <string.h>
#include <zplan/cuts.h>
#include <zplan/search_numbers.h>
#include <zplan/seconds.h>
#include <zplan/vec.h>

/* Between the forward and the backward of the first micro-batch on a stage, or of the last one. */
typedef enum zp_turn { ZP_FIRST_TURN, ZP_LAST_TURN } zp_turn;

/* What all of this needs of a pipeline. */
typedef struct zp_pipe {
  int stages;
  int64_t units, microbatches;
  double message_s; /* at least */
  double ties_s;    /* of the first stage, at least */
  double update_s;  /* of the longest update of any cut, at least */
} zp_pipe;

/* Forwards that a stage runs one after the other before its first backward, less one; backwards after its last
 * forward. */
static inline double zp_pipe_warmup(const zp_pipe *pipe, int stage) {
  int64_t later = pipe->stages - 1 - stage, most = pipe->microbatches - 1;
  return (double)(later < most ? later : most);
}
/* Micro-batches between the first backward of a stage and its last forward; below 1 the two turn into one. */
static inline int64_t zp_pipe_between(const zp_pipe *pipe, int stage) {
  return pipe->microbatches - pipe->stages + stage;
}

/* ---- stage_graph.c: the stages that a cut may have ---- */
/* Nodes are starts of stages, arcs are stages that fit into memory; cuts are paths. Arcs are only ever taken away. */
typedef struct zp_stage_arc {
  int32_t end;        /* units: there are fewer than 2^31, and millions of arcs */
  uint32_t cost : 31; /* index into zp_stage_graph.cost */
  uint32_t seen : 1;  /* by the current round (label_search.c) */
} zp_stage_arc;
typedef struct zp_stage_node {
  zp_stage_arc *arcs;
  int n;
  double before_s;    /* seconds of one micro-batch on the stages before it, the messages between them and the first
                         stage's reduction, at least */
  double after_s;     /* of one micro-batch on the stages from it on, and the messages between them, at least */
  double answer_s[2]; /* zp_turn: of the stages from it on, from the arrival of a micro-batch to the end of its
                         backward, at least: the first, the last micro-batch */
} zp_stage_node;
typedef struct zp_range_cost {
  double forward_s, backward_s, reduce_s, update_s, step_s;
} zp_range_cost;
typedef struct zp_stage_graph {
  zp_pipe pipe;
  zp_stage_node **nodes; /* [stages + 1][low .. high]: zp_stage_node_at */
  int64_t *low, *high;   /* [stages + 1]: no plan comes to units outside */
  ZP_VEC(zp_range_cost) cost;
  int64_t work; /* simulated actions that take as long as what was done to it: an arc that is considered is one */
} zp_stage_graph;
static inline zp_stage_node *zp_stage_node_at(const zp_stage_graph *graph, int stage, int64_t first) {
  return &graph->nodes[stage][first - graph->low[stage]];
}
/* Nodes of a stage. */
static inline int64_t zp_stage_graph_width(const zp_stage_graph *graph, int stage) {
  int64_t width = graph->high[stage] - graph->low[stage] + 1;
  return width > 0 ? width : 0;
}
/* All stages of plans below the target, and more. Arena. */
zp_stage_graph *zp_stage_graph_new(zp_arena *arena, const zp_cut_problem *problem, const zp_pipe *pipe,
                                   double target_s);
/* Takes away stages that no plan below the target has, by what they take themselves. False: no cut is left. */
bool zp_stage_graph_narrow(zp_stage_graph *graph, double target_s);
int64_t zp_stage_graph_arcs(const zp_stage_graph *graph);
/* What copy has becomes what graph has. copy is NULL or a copy of the same graph. */
zp_stage_graph *zp_stage_graph_copy(zp_arena *arena, const zp_stage_graph *graph, zp_stage_graph *copy);
/* NULL: taken away. */
const zp_stage_arc *zp_stage_graph_find(const zp_stage_graph *graph, int stage, int64_t first, int64_t end);

/* ---- labels.c: vectors of seconds; a smaller one is never worse ---- */
enum { ZP_PREFIX_WORK, ZP_PREFIX_UPDATE, ZP_PREFIX_DONE, ZP_PREFIX_RUNS = ZP_PREFIX_DONE + 4 };
enum { ZP_SUFFIX_UPDATE, ZP_SUFFIX_TURN, ZP_SUFFIX_DONE = ZP_SUFFIX_TURN + 2, ZP_SUFFIX_RUNS };
static inline int64_t zp_prefix_length(int stages) { return ZP_PREFIX_RUNS + stages; }
static inline int64_t zp_suffix_length(int stages) { return ZP_SUFFIX_RUNS + 2 * stages; }
typedef struct zp_labels zp_labels;
zp_labels *zp_labels_new(zp_arena *arena, const zp_pipe *pipe);
/* Makes the label of a prefix without stages. */
void zp_prefix_start(const zp_labels *labels, double *prefix);
/* longer: the label of the stages up to and with `stage`; prefix: that of the stages before it. */
void zp_prefix_extend(zp_labels *labels, const double *prefix, int stage, const zp_range_cost *cost, double *longer);
/* longer: the label of `stage` and those after it; suffix: that of the stages after it, not considered when there are
 * none. */
void zp_suffix_extend(zp_labels *labels, const double *suffix, int stage, const zp_range_cost *cost, double *longer);
/* A label of the stages before `stage` that is held against many suffixes. */
typedef struct zp_prefix_view {
  const double *label;
  double highest_mean_s; /* of its last stages, of any number of them: seconds a stage; < 0: not asked for yet */
} zp_prefix_view;
zp_prefix_view zp_prefix_view_of(zp_labels *labels, const double *prefix, int stage);
/* May a plan be below the target whose stages before `stage` are these and whose stages from it on are those? */
bool zp_labels_join(zp_labels *labels, zp_prefix_view *prefix, const double *suffix, int stage, double target_s);
/* Bound of the step, from the label of all stages. */
double zp_prefix_bound(const double *prefix);
/* Numbers that were considered so far. */
int64_t zp_labels_work(const zp_labels *labels);
/* The first number of a that is above that of b; length: none is, a is never worse. */
int64_t zp_label_above(const double *a, const double *b, int64_t length);
/* a: the least of both, element by element. */
void zp_label_merge(double *a, const double *b, int64_t length);

/* ---- label_search.c ---- */
typedef struct zp_label_search zp_label_search;
/* Graph is borrowed and narrowed: zp_stage_graph_narrow has to come first. */
/* Its arenas count in the budget of `alongside`. */
zp_label_search *zp_label_search_new(const zp_arena *alongside, zp_stage_graph *graph);
void zp_label_search_free(zp_label_search *search);
typedef struct zp_label_pass {
  bool spent;     /* the budget is: nothing is known, and no other round may follow */
  bool open;      /* a plan below the target may exist */
  bool exact;     /* no labels were merged */
  double bound_s; /* open: no plan below the target is below this */
} zp_label_pass;
/* Takes stages out of the graph that no plan below the target has, with `width` labels a node; cut: the one with the
 * least bound, [stages + 1]. */
zp_label_pass zp_label_search_pass(zp_label_search *search, int width, double target_s, int64_t *cut);
/* After a round: may stages from this node on follow these? */
bool zp_label_search_may_follow(zp_label_search *search, const double *prefix, int stage, int64_t first);
zp_labels *zp_label_search_labels(const zp_label_search *search);
/* Numbers that were considered so far. */
int64_t zp_label_search_work(const zp_label_search *search);

#endif
