/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle: executes a (logical, local, fused or differentiated) graph in f64 with plain loops. Collectives are
 * copies, as at tensor degree 1; the local graph of a rank among several runs node by node, with the collectives made
 * by the caller. Written for obviousness, not speed; shares no code with generated kernels. */
#ifndef ZPLAN_ORACLE_INTERPRET_H
#define ZPLAN_ORACLE_INTERPRET_H

#include <zplan/model.h>

typedef struct zp_interpreter {
  const zp_graph *graph;
  int64_t microbatch;
  int rank;       /* whose local graph this is: what its split tables, vocabulary and dropout counters start from */
  double **value; /* per tensor, row-major; inputs, params and carries are set by the caller before running */
  double **param_grad; /* per graph.params entry; zeroed by the caller, accumulated into */
  double loss_scale;   /* 1 / tokens in the whole batch */
  double loss;         /* out: the sum of token losses times loss_scale */
  double balance; /* out: the balancing losses of gates, on the same scale; gradients are those of loss + balance */
  uint64_t seed, step, first_sample, instance; /* of dropout's Philox counters */
} zp_interpreter;

/* Allocates value[] for every tensor (NaN until something is written; i32 inputs hold ids as doubles) and param_grad[].
 * Arena. */
zp_interpreter *zp_interpreter_new(zp_arena *arena, const zp_graph *graph, int64_t microbatch);
/* Runs nodes first .. last-1. */
void zp_interpret(zp_interpreter *in, int first, int last);
/* Evaluates one FUSED or FUSED_GRAD node alone: the row-program oracle. */
void zp_interpret_node(zp_interpreter *in, const zp_node *node);

#endif
