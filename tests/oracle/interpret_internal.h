/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the interpreter. */
#ifndef ZPLAN_INTERPRET_INTERNAL_H
#define ZPLAN_INTERPRET_INTERNAL_H

#include <zplan/philox.h>
#include "graph_internal.h"
#include "interpret.h"

/* ---- interpret_row.c: one ROW op on one row ---- */
typedef struct zp_row_place {
  const zp_interpreter *in;
  int64_t row, rows_per_sample;
  /* where the rank's share begins, and how many columns whole rows have */
  int64_t first_position, first_column, logical_cols;
} zp_row_place;

/* How one operation is interpreted: zp_oracle_ID, in the file of its kind. */
typedef struct zp_oracle {
  void (*node)(zp_interpreter *in, const zp_node *node);
  /* ROW ops that are made element by element, of x and, with two operands, y: the value, and its slope by an
   * operand. */
  double (*value)(const zp_op_attr *attr, double x, double y);
  double (*slope)(const zp_op_attr *attr, int operand, double x, double y);
  /* Other ROW ops: a whole row, and what it adds to d_arg as zp_row_backward does. */
  void (*row)(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y);
  void (*row_grad)(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                   double *const d_arg[3]);
} zp_oracle;
#define OP(id, ...) extern const zp_oracle zp_oracle_##id;
#include <zplan/ops.def>
const zp_oracle *zp_oracle_get(zp_op op); /* interpret.c */

void zp_row_forward(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y);
/* Adds to d_arg[k] (a whole row, also for broadcast operands; NULL: not wanted). */
void zp_row_backward(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                     double *const d_arg[3]);

/* ---- interpret_fused.c: rows of groups ---- */
void zp_interpret_row_node(zp_interpreter *in, const zp_node *node);
void zp_interpret_fused(zp_interpreter *in, const zp_node *node);
void zp_interpret_fused_grad(zp_interpreter *in, const zp_node *node);

static inline const zp_shape *zp_in_shape(const zp_interpreter *in, int tensor) {
  return &in->graph->tensors.data[tensor].shape;
}
static inline double *zp_in_value(const zp_interpreter *in, const zp_node *node, int i) {
  return in->value[node->in.data[i]];
}
static inline double *zp_out_value(const zp_interpreter *in, const zp_node *node, int i) {
  return in->value[node->out.data[i]];
}

#endif
