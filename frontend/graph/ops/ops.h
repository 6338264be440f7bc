/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of operations share: what a class file says about an operation, and what its functions may call. */
#ifndef ZPLAN_GRAPH_OPS_H
#define ZPLAN_GRAPH_OPS_H

#include "diff_internal.h"
#include "rules.h"

typedef struct zp_parts_pass zp_parts_pass;

/* Bytes of a FLOAT, and of an element of a parameter's gradient. */
typedef struct zp_cost_bytes {
  int of_float, of_sum;
} zp_cost_bytes;

/* What an i32 input may hold: from `least` to before `limit`. */
typedef struct zp_input_range {
  int64_t least, limit;
} zp_input_range;

/* The functions of one operation; its numbers and its class are in ops.def. */
typedef struct zp_op_row {
  const char *second; /* the name of the second result; NULL: there is none, or results are views */
  /* Which operands it takes and what shape comes out, with the message for a person when they do not fit. Defaults of
   * attributes are filled in. NULL: passes make it, with shapes that they know. */
  void (*rule)(zp_rule *rule);
  /* What an i32 input must hold that is operand i; says of the input what it is. NULL: whatever is 0 or more. */
  zp_input_range (*range)(zp_input *input, const zp_graph *graph, const zp_node *node, int i);
  /* Ties the natural units of its operands and results; of operations of a logical graph. */
  void (*parts)(zp_parts_pass *pass, const zp_node *node);
  /* FLOP at that micro-batch size; NULL: it computes nothing. */
  double (*flop)(const zp_graph *graph, const zp_node *node, int64_t microbatch);
  /* Bytes that it moves, those of parameters' gradients included; NULL: every operand and result once. */
  double (*bytes)(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes);
  /* Appends the nodes of its derivative; of operations of a fused local graph. */
  void (*differentiate)(zp_diff_pass *pass, const zp_node *node);
} zp_op_row;

#define OP(id, ...) extern const zp_op_row zp_op_row_##id;
#include <zplan/ops.def>
const zp_op_row *zp_op_get_row(zp_op op);

/* ---- parts.c ---- */
const zp_shape *zp_parts_shape(const zp_parts_pass *pass, int id);
zp_parts *zp_parts_of(const zp_parts_pass *pass, int id, int dim);
int zp_parts_last_dim(const zp_parts_pass *pass, int id);
zp_parts zp_parts_whole(void); /* nothing to split by */
/* Meets the parts of one dimension with a requirement, if its size allows the requirement at all. */
void zp_parts_require(zp_parts_pass *pass, int id, int dim, zp_parts want);
/* Both dimensions have the same parts. */
void zp_parts_tie(zp_parts_pass *pass, int a, int dim_a, int b, int dim_b);
/* The trailing dimensions that both have; `skip` 1 leaves the last one out. */
void zp_parts_tie_trailing(zp_parts_pass *pass, int a, int b, int skip);
/* Operations whose operands are as the result, of which columns stay, of which positions stay. */
void zp_parts_of_rows(zp_parts_pass *pass, const zp_node *node);
void zp_parts_of_columns(zp_parts_pass *pass, const zp_node *node);
void zp_parts_of_positions(zp_parts_pass *pass, const zp_node *node);

/* ---- cost.c ---- */
const zp_tensor *zp_cost_tensor(const zp_graph *graph, int id);
double zp_cost_elements(const zp_graph *graph, int id, int64_t microbatch);
double zp_tensor_bytes(const zp_graph *graph, int id, int64_t microbatch, int float_bytes);
/* The table's FLOP for every element of the first operand; one for each. */
double zp_flop_of_rows(const zp_graph *graph, const zp_node *node, int64_t microbatch);
double zp_flop_of_operand(const zp_graph *graph, const zp_node *node, int64_t microbatch);
/* Every operand and result once; nothing; the result read and written, whatever else the operand has. */
double zp_bytes_of_tensors(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes);
double zp_bytes_none(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes);
double zp_bytes_of_result_twice(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes);

#endif
