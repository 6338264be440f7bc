/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside this folder: legal patterns, the search over them, and the local graph made from its answer. */
#ifndef ZPLAN_SHARD_INTERNAL_H
#define ZPLAN_SHARD_INTERNAL_H

#include <zplan/shard.h>

enum { ZP_SHARD_OPERANDS = ZP_MAX_OPERANDS, ZP_SHARD_PATTERNS = 12 };

/* What a pattern wants of an operand. */
typedef enum zp_need {
  ZP_NEED_ANY,       /* ids and labels: every rank has them */
  ZP_NEED_R,         /* replicated; its gradient comes out complete on every rank */
  ZP_NEED_ENTER,     /* replicated, but every rank contributes a part of the gradient */
  ZP_NEED_S,         /* split on the last dimension */
  ZP_NEED_P,         /* partial sum */
  ZP_NEED_SEQ,       /* split along the sequence */
  ZP_NEED_GATHER,    /* gathered from that, and every rank contributes a part of the gradient */
  ZP_NEED_W_OUT,     /* parameter of a matmul, split on its output dimension */
  ZP_NEED_W_IN,      /* the same on its inner dimension */
  ZP_NEED_ROWS,      /* parameter, split on dimension 0 */
  ZP_NEED_EXPERTS,   /* split along the experts, [B, experts, slots, columns] */
  ZP_NEED_W_EXPERTS, /* parameter of a batched matmul, split on its experts */
  ZP_NEED_SHARED,    /* parameter, replicated, but every rank has only its rows' part of the gradient */
} zp_need;

/* How a tensor comes out of its producer. */
typedef enum zp_form {
  ZP_FORM_NONE,
  ZP_FORM_R,
  ZP_FORM_S,
  ZP_FORM_P,
  ZP_FORM_SEQ,
  ZP_FORM_EXPERTS, /* split along the experts */
  ZP_FORM_ENTERED, /* replicated, but its gradient is a part on every rank: made of something that was entered */
} zp_form;

typedef struct zp_pattern {
  zp_need in[ZP_SHARD_OPERANDS];
  zp_form out;
} zp_pattern;

/* Cost of an answer: first the matrix elements that could not be divided, then seconds. Reason: a tensor degree exists
 * to divide the model; by time alone a small model would be cheapest with everything replicated. */
typedef struct zp_shard_cost {
  double replicated, seconds;
} zp_shard_cost;
bool zp_shard_cheaper(const zp_shard_cost *a, const zp_shard_cost *b);

/* One segment's question and answer. */
typedef struct zp_shard_problem {
  const zp_graph *graph; /* logical, parts inferred */
  const zp_machine *machine;
  int tensor;
  int64_t microbatch;
  int expert;               /* more than 1: experts stay whole on the tensor ranks */
  int context;              /* ranks that share the positions of a sample */
  zp_context_by context_by; /* and exchange so around attention */
  bool sequence;            /* carried tensors are split along the sequence; else replicated, and nothing is split so */
  const int *fixed;         /* per model parameter: a zp_param_form where decided before, FREE otherwise */
} zp_shard_problem;

/* How a parameter lies on the ranks. */
typedef enum zp_param_form {
  ZP_PARAM_FREE,
  ZP_PARAM_REPLICATED,
  ZP_PARAM_SPLIT_0, /* on dimension 0 */
  ZP_PARAM_SPLIT_1,
  ZP_PARAM_SPLIT_2,
  ZP_PARAM_SHARED, /* replicated, gradients partial */
} zp_param_form;

typedef struct zp_shard_answer {
  bool found;
  zp_shard_cost cost;
  zp_pattern *pattern; /* per node */
} zp_shard_answer;

/* ---- patterns.c ---- */
/* The legal patterns of a node of the problem's graph, divided ones first. Some want a parameter where the node reads a
 * value: a value has no form that meets such a need. */
int zp_shard_patterns(const zp_shard_problem *problem, const zp_node *node, zp_pattern out[ZP_SHARD_PATTERNS]);
/* Can this activation be split along the sequence over so many ranks? Equal shares only: a padded share would make
 * padding rows of what is gathered, in the middle of every sample. */
bool zp_divides_sequence(const zp_tensor *t, int tensor);
/* The dimension of an operand that a need splits; -1: none. */
int zp_need_dim(const zp_graph *graph, const zp_node *node, int operand, zp_need need);
/* The dimension of a result that a form splits; -1: none. */
int zp_form_dim(const zp_tensor *t, zp_form form);
/* Size of a dimension on one rank, padding included. */
int64_t zp_local_size(int64_t size, zp_parts parts, int tensor);

/* ---- price.c ---- */
double zp_shard_node_seconds(const zp_shard_problem *problem, const zp_node *node, const zp_pattern *pattern);
/* All-reduce of a logical tensor. */
double zp_shard_reduce_seconds(const zp_shard_problem *problem, int tensor);
/* All-gather or reduce-scatter of it along the sequence. */
double zp_shard_pass_seconds(const zp_shard_problem *problem, int tensor);

/* ---- solve.c ---- */
zp_shard_answer zp_shard_solve(zp_arena *arena, const zp_shard_problem *problem);

/* ---- localize.c ---- */
zp_graph *zp_shard_localize(zp_arena *arena, const zp_shard_problem *problem, const zp_pattern *pattern);

/* ---- pad.c ---- */
/* Rounds up the rank's share of dimensions of the local graphs, in place, before they are fused. A padded dimension is
 * marked as split, over one rank where the tensor degree is 1; full_dim says its logical size. */
void zp_shard_pad(zp_arena *scratch, const zp_model *model, zp_sharding *sharding);

#endif
