/* Shared inside this folder: legal patterns, the search over them, and the local graph made from its answer. */
#ifndef ZPLAN_SHARD_INTERNAL_H
#define ZPLAN_SHARD_INTERNAL_H

#include <zplan/shard.h>

enum { ZP_SHARD_OPERANDS = 3, ZP_SHARD_PATTERNS = 3 };

/* What a pattern wants of an operand. */
typedef enum zp_need {
  ZP_NEED_ANY,   /* ids and labels: every rank has them */
  ZP_NEED_R,     /* replicated; its gradient comes out complete on every rank */
  ZP_NEED_ENTER, /* replicated, but every rank contributes a part of the gradient */
  ZP_NEED_S,     /* split on the last dimension */
  ZP_NEED_P,     /* partial sum */
  ZP_NEED_W_OUT, /* parameter of a matmul, split on its output dimension */
  ZP_NEED_W_IN,  /* the same on its inner dimension */
  ZP_NEED_ROWS,  /* parameter, split on dimension 0 */
} zp_need;

/* How a tensor comes out of its producer. */
typedef enum zp_state { ZP_STATE_NONE, ZP_STATE_R, ZP_STATE_S, ZP_STATE_P } zp_state;

typedef struct zp_pattern {
  zp_need in[ZP_SHARD_OPERANDS];
  zp_state out;
} zp_pattern;

/* Cost of an answer: first the matrix elements that could not be divided, then seconds. Reason: a tensor degree exists
 * to divide the model; by time alone a small model would be cheapest with everything replicated. */
typedef struct zp_shard_cost {
  double replicated, seconds, comm_s;
} zp_shard_cost;
bool zp_shard_cheaper(const zp_shard_cost *a, const zp_shard_cost *b);

/* One segment's question and answer. */
typedef struct zp_shard_problem {
  const zp_graph *graph; /* logical, parts inferred */
  const zp_machine *machine;
  int tensor;
  int64_t microbatch;
  const int *fixed; /* per model parameter: split_dim + 2 where decided before (1: replicated), 0: free */
} zp_shard_problem;
typedef struct zp_shard_answer {
  bool found;
  zp_shard_cost cost;
  zp_pattern *pattern; /* per node */
  int64_t visited;
} zp_shard_answer;

/* ---- patterns.c ---- */
/* The legal patterns of a node, divided ones first. */
int zp_shard_patterns(const zp_graph *graph, const zp_node *node, int tensor, zp_pattern out[ZP_SHARD_PATTERNS]);
/* The dimension of an operand that a need splits; -1: none. */
int zp_need_dim(const zp_graph *graph, const zp_node *node, int operand, zp_need need);
/* Size of a dimension on one rank, padding included. */
int64_t zp_local_size(int64_t size, zp_parts parts, int tensor);

/* ---- price.c ---- */
double zp_shard_node_seconds(const zp_shard_problem *problem, const zp_node *node, const zp_pattern *pattern);
double zp_shard_reduce_seconds(const zp_shard_problem *problem, int tensor);

/* ---- solve.c ---- */
zp_shard_answer zp_shard_solve(zp_arena *arena, const zp_shard_problem *problem);

/* ---- localize.c ---- */
zp_graph *zp_shard_localize(zp_arena *arena, const zp_graph *graph, const zp_pattern *pattern, int tensor);

#endif
