/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside this folder: the shape rules behind zp_graph_apply and zp_graph_check, and small graph helpers. */
#ifndef ZPLAN_GRAPH_INTERNAL_H
#define ZPLAN_GRAPH_INTERNAL_H

#include <zplan/model.h>

/* ---- ops.c ---- */
bool zp_op_is_row(zp_op op);
/* The fewest operands that the op has; -1 for the ops that passes make (their operand count varies). */
int zp_op_arity(zp_op op);
/* FLOP per element of a ROW op's result: an estimate, see the table. */
double zp_op_row_flop(zp_op op);

/* ---- rule_checks.c ---- */
/* What a shape rule says about one application of an op. */
typedef struct zp_rule {
  /* question */
  const zp_graph *graph;
  zp_diags *diags; /* NULL: a failure only sets `error` */
  zp_op op;
  const int *in;
  int n_in;
  zp_op_attr attr; /* defaults are filled in: head_size, kv_heads, scale */
  zp_span span;
  /* answer */
  int n_out;
  zp_shape shape[2]; /* SPLIT: all outputs have shape[0] */
  zp_element element[2];
  const char *error; /* arena; NULL when the operands fit */
} zp_rule;
/* False after setting `error` (and reporting it, with diags). */
bool zp_rule_apply(zp_rule *rule);

/* ---- sorted.c ---- */
/* An operation as it is asked for. */
typedef struct zp_application {
  zp_graph *graph;
  zp_diags *diags; /* maybe NULL */
  zp_op op;
  const int *in;
  int n_in;
  const zp_op_attr *attr;
  const char *name;
  zp_span span;
} zp_application;
/* Where it works on rows sorted by expert: its operands and where experts begin, in[*n_in]; else *n_in stays, and `in`
 * is not written. False after reporting what may not read such rows. */
bool zp_sorted_operands(const zp_application *application, int in[ZP_MAX_OPERANDS], int *n_in);
/* Where the experts of sorted rows begin: the last operand of the dispatch that sorted them. Of forward graphs before
 * experts are spread. */
int zp_sorted_first(const zp_graph *graph, int tensor);
/* Is the rule's first result of such rows? */
bool zp_is_sorted_result(const zp_rule *rule);

/* ---- graph.c ---- */
/* Copies tensors, nodes and lists into new vectors, so that appending to the copy leaves the original alone. */
zp_graph *zp_graph_copy(const zp_graph *graph);
/* Does it have no backward nodes, nor what they would read and write? */
bool zp_graph_is_forward(const zp_graph *graph);
/* Everything but the nodes; producers are reset to -1. */
zp_graph *zp_graph_copy_tensors(const zp_graph *graph);
void zp_ints_copy(zp_arena *arena, zp_ints *to, const zp_ints *from);
bool zp_ints_has(const zp_ints *list, int item);
/* May the op have so many operands? */
bool zp_op_takes(zp_op op, int operands);
/* A fresh VALUE tensor without storage of another: base, producer and split_dim are -1. */
zp_tensor zp_tensor_make(const char *name, zp_element element, zp_shape shape, zp_span span);
/* How a ROW op reads an operand alongside rows of shape `rows`; false when the shapes do not fit. */
bool zp_operand_kind(const zp_shape *rows, const zp_shape *operand, zp_operand *kind);
/* zp_fused.row_parts of the node, as a group of its own. */
int64_t zp_op_row_parts(const zp_node *node);
/* As zp_operand_kind, and columns of an operand, where rows of the tensors are so many of the group's. */
bool zp_part_operand_kind(const zp_shape *rows, const zp_shape *operand, int64_t row_parts, zp_operand *kind);
int64_t zp_part_cols(const zp_shape *shape, zp_operand operand, int64_t row_parts);
/* Fills in row_parts, rows_per_sample and the share that the rows of tensor `rows` are. */
void zp_fused_set_rows(zp_fused *fused, const zp_tensor *rows, int64_t row_parts);
/* Rows of one sample: the product of the dims between the first and the last. */
int64_t zp_shape_rows_per_sample(const zp_shape *shape);

/* ---- ops/experts.c ---- */
/* Slots of one expert for so many positions of a sample; attr: of the gate. */
int64_t zp_gate_slots(const zp_op_attr *attr, int64_t positions);

/* ---- slice.c ---- */
/* Does a node of first .. end - 1 read the tensor? */
bool zp_graph_reads(const zp_graph *graph, int tensor, int first, int end);
/* What is made before `node` or carried in, and read by it or a later one or carried on: into `crossing` (emptied
 * first; arena of the graph) a tensor for every place of graph->carry_in, with the shape and element of what is carried
 * there. False: it does not fall into these places, or nothing is changed yet. What a collective makes of a tensor that
 * crosses does not count. */
bool zp_graph_crossing(const zp_graph *graph, int node, zp_ints *crossing);
/* The graph of nodes first .. end - 1: what crosses before them is carried in, what crosses after them is carried out,
 * and collectives before them are made once more where they are read. Tensors keep their indices. Requires: what
 * crosses at an end that is not the graph's own falls into the places of what the graph carries. */
zp_graph *zp_graph_slice(const zp_graph *graph, int first, int end);

/* ---- model.c ---- */
/* Sets first_trained of the segments' graphs: called after parameters were frozen, or trained ones added to a model
 * that has frozen ones. */
void zp_model_find_first_trained(zp_model *model);

#endif
